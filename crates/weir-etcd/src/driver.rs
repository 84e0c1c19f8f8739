//! Runs a director's state machine on its own thread, and connects it to etcd and the daemon.
//!
//! The driver provides the time, sends requests to etcd, watches the group's keys, and exchanges messages with the
//! daemon.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use weir_cluster::{Input, Machine, Output, SavedState, Status, TxnResult};

use crate::client::Client;

/// Maximum time that a stopping daemon waits for etcd to revoke the lease.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);

/// Settings of a driver.
#[derive(Debug)]
pub struct Settings {
    /// Settings of the state machine.
    pub machine: weir_cluster::Settings,
    /// The state from disk.
    pub saved: SavedState,
    /// The client for etcd.
    pub client: Client,
}

/// Messages from the daemon.
#[derive(Debug)]
pub enum GroupInput {
    /// An event for the state machine.
    Input(Box<Input>),
    /// The daemon is stopping. The director leaves the group immediately and does not wait for the lease to expire.
    Leave,
}

/// Messages to the daemon: outputs of the state machine, except requests to etcd.
pub type GroupOutput = Output;

/// A running state machine. Its thread ends when this value is dropped.
#[derive(Debug)]
pub struct Driver {
    inputs: UnboundedSender<GroupInput>,
    /// The last status, its time, and the endpoint in use.
    status: Arc<Mutex<Option<(Status, Duration, String)>>>,
    /// Start of the state machine's clock.
    started: Instant,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts the thread. Also returns the receiver of messages to the daemon.
    ///
    /// # Errors
    /// Returns an error if the runtime or the thread cannot be started.
    pub fn start(settings: Settings) -> io::Result<(Self, UnboundedReceiver<GroupOutput>)> {
        let (input_sender, inputs) = unbounded_channel();
        let (outputs, output_receiver) = unbounded_channel();
        let status = Arc::default();
        let started = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shared_status = Arc::clone(&status);
        let thread = std::thread::Builder::new()
            .name("cluster".to_owned())
            .spawn(move || {
                let runner = Runner::new(settings, outputs, shared_status, started);
                runtime.block_on(runner.run(inputs));
                runtime.shutdown_background();
            })?;
        let driver = Self {
            inputs: input_sender,
            status,
            started,
            thread: Some(thread),
        };
        Ok((driver, output_receiver))
    }

    /// Sends an event to the state machine.
    pub fn send(&self, input: Input) {
        let _ = self.inputs.send(GroupInput::Input(Box::new(input)));
    }

    /// Returns the last status of the group and the endpoint in use; `None` if there is no status yet.
    pub fn status(&self) -> Option<(Status, String)> {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status
            .as_ref()
            .map(|(status, _, endpoint)| (status.clone(), endpoint.clone()))
    }

    /// Returns the time that has passed since `time` on the state machine's clock.
    pub fn age(&self, time: Duration) -> Duration {
        self.started.elapsed().saturating_sub(time)
    }

    /// Leaves the group, and waits for the thread to end. Waits at most half a second for etcd.
    pub fn leave(mut self) {
        let _ = self.inputs.send(GroupInput::Leave);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A response from etcd, and the number of its watch; 0 = the response is not for a watch.
type Response = (u64, Input);

/// The state machine and its requests in progress.
struct Runner {
    machine: Machine,
    client: Arc<Client>,
    /// First key and exclusive end of the range of the group's keys.
    range: (String, String),
    outputs: UnboundedSender<GroupOutput>,
    status: Arc<Mutex<Option<(Status, Duration, String)>>>,
    started: Instant,
    responses: (UnboundedSender<Response>, UnboundedReceiver<Response>),
    /// The number of the current watch, and its task.
    watch: Option<(u64, AbortHandle)>,
    /// The number of the last watch that was started.
    last_watch_number: u64,
    /// The task that reads all keys.
    listing: Option<AbortHandle>,
    /// The lease to revoke when leaving the group.
    lease: Option<i64>,
    /// The state machine's failure count at the last check.
    failures: u64,
}

impl Runner {
    fn new(
        settings: Settings,
        outputs: UnboundedSender<GroupOutput>,
        status: Arc<Mutex<Option<(Status, Duration, String)>>>,
        started: Instant,
    ) -> Self {
        let now = started.elapsed();
        let machine = Machine::new(settings.machine, settings.saved, now);
        Self {
            range: machine.range(),
            machine,
            client: Arc::new(settings.client),
            outputs,
            status,
            started,
            responses: unbounded_channel(),
            watch: None,
            last_watch_number: 0,
            listing: None,
            lease: None,
            failures: 0,
        }
    }

    /// Runs until the daemon stops or the driver is dropped.
    async fn run(mut self, mut inputs: UnboundedReceiver<GroupInput>) {
        self.machine.handle_time(self.started.elapsed());
        loop {
            self.drain_outputs();
            let now = self.started.elapsed();
            let pause = self.machine.next_deadline(now).saturating_sub(now);
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(GroupInput::Input(input)) => {
                        self.machine.handle(*input, self.started.elapsed());
                    }
                    Some(GroupInput::Leave) => {
                        self.leave().await;
                        return;
                    }
                    None => return,
                },
                Some((watch, input)) = self.responses.1.recv() => {
                    let is_current = self.watch.as_ref().is_some_and(|(number, _)| *number == watch);
                    if watch == 0 || is_current {
                        self.record_lease(&input);
                        self.machine.handle(input, self.started.elapsed());
                    }
                }
                () = sleep(pause) => self.machine.handle_time(self.started.elapsed()),
            }
        }
    }

    /// Records the lease that must be revoked when the director leaves the group.
    fn record_lease(&mut self, input: &Input) {
        match input {
            Input::Granted { lease, .. } => self.lease = Some(*lease),
            Input::LeaseEnded => self.lease = None,
            Input::Listed { .. }
            | Input::ListFailed(_)
            | Input::Watched { .. }
            | Input::WatchEnded { .. }
            | Input::Renewed
            | Input::LeaseFailed(_)
            | Input::Txn { .. }
            | Input::LocalState(_)
            | Input::Changed { .. }
            | Input::Publish { .. }
            | Input::Applied(_)
            | Input::Staged(_)
            | Input::Settled(_) => {}
        }
    }

    /// Updates the status, and executes the machine's outputs. After a failure, switches to the next endpoint.
    fn drain_outputs(&mut self) {
        if self.machine.failures() != self.failures {
            self.failures = self.machine.failures();
            self.client.rotate();
        }
        let outputs: Vec<Output> = std::iter::from_fn(|| self.machine.poll_output()).collect();
        // Update the status before any output reports that a publication has ended: a client may read the status
        // immediately.
        self.update_status();
        for output in outputs {
            self.execute(output);
        }
    }

    fn update_status(&self) {
        let now = self.started.elapsed();
        let current = self.machine.status(now);
        let endpoint = self.client.endpoint().to_string();
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((previous, _, _)) = &*status {
            log_changes(previous, &current, &endpoint);
        }
        *status = Some((current, now, endpoint));
    }

    /// Starts a request to etcd, or passes an output to the daemon.
    fn execute(&mut self, output: Output) {
        let client = Arc::clone(&self.client);
        let responses = self.responses.0.clone();
        let reply = move |input| drop(responses.send((0, input)));
        match output {
            Output::List => {
                if let Some((_, watch)) = self.watch.take() {
                    watch.abort();
                }
                if let Some(previous) = self.listing.take() {
                    previous.abort();
                }
                let (key, end) = self.range.clone();
                let task = tokio::spawn(async move {
                    reply(match client.range(&key, &end).await {
                        Ok((revision, entries)) => Input::Listed { revision, entries },
                        Err(error) => Input::ListFailed(error.to_string()),
                    });
                });
                self.listing = Some(task.abort_handle());
            }
            Output::Watch {
                from: start_revision,
            } => self.start_watch(start_revision),
            Output::Grant { ttl } => {
                tokio::spawn(async move {
                    reply(match client.grant(ttl).await {
                        Ok((lease, ttl)) => Input::Granted { lease, ttl },
                        Err(error) => Input::LeaseFailed(error.to_string()),
                    });
                });
            }
            Output::Renew { lease } => {
                tokio::spawn(async move {
                    reply(match client.renew(lease).await {
                        Ok(true) => Input::Renewed,
                        Ok(false) => Input::LeaseEnded,
                        Err(error) => Input::LeaseFailed(error.to_string()),
                    });
                });
            }
            Output::Txn { number, lease, txn } => {
                tokio::spawn(async move {
                    let result = client.txn(&txn, lease).await;
                    let unknown_result =
                        |error: crate::Error| TxnResult::Unknown(error.to_string());
                    let result = result.unwrap_or_else(unknown_result);
                    reply(Input::Txn { number, result });
                });
            }
            Output::Apply { .. }
            | Output::Stage { .. }
            | Output::LastChanges { .. }
            | Output::PreviousStaged
            | Output::Shared { .. }
            | Output::Settle { .. }
            | Output::Settled { .. }
            | Output::Published { .. }
            | Output::Decided { .. }
            | Output::Verdicts(_)
            | Output::Save(_) => {
                let _ = self.outputs.send(output);
            }
        }
    }

    fn start_watch(&mut self, start_revision: i64) {
        if let Some((_, watch)) = self.watch.take() {
            watch.abort();
        }
        self.last_watch_number += 1;
        let number = self.last_watch_number;
        let (client, responses) = (Arc::clone(&self.client), self.responses.0.clone());
        let (key, end) = self.range.clone();
        let task = tokio::spawn(async move {
            let report = |input| drop(responses.send((number, input)));
            crate::watch::run(&client, (&key, &end), start_revision, report).await;
        });
        self.watch = Some((number, task.abort_handle()));
    }

    /// Revokes the lease, so the group does not have to wait for it to expire.
    async fn leave(&self) {
        if let Some(lease) = self.lease {
            let _ = timeout(LEAVE_TIMEOUT, self.client.revoke(lease)).await;
        }
    }
}

/// Logs connection changes, and the reason why this director is not a member.
fn log_changes(previous: &Status, current: &Status, endpoint: &str) {
    use weir_cluster::Link;
    match (&previous.link, &current.link) {
        (Link::Disconnected { .. }, Link::Connected) => {
            tracing::info!(endpoint, "connected to etcd")
        }
        (Link::Connected, Link::Disconnected { error, .. }) => {
            tracing::warn!(
                error,
                "etcd does not respond; this director continues with its current state"
            );
        }
        (Link::Disconnected { error: old, .. }, Link::Disconnected { error, .. })
            if old.is_empty() && !error.is_empty() =>
        {
            tracing::warn!(error, "etcd does not respond");
        }
        _ => {}
    }
    if previous.refused != current.refused
        && let Some(reason) = &current.refused
    {
        tracing::error!(reason, "this director is not a member of its group");
    }
}
