//! The thread that runs a state machine: it provides the time, sends requests to etcd, runs the watch, and exchanges
//! messages with the daemon.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use weir_cluster::{Input, Machine, Output, SharedState, Status, TxnResult};

use crate::client::Client;

/// Maximum time that a stopping daemon waits for etcd.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);

/// Settings of a driver.
#[derive(Debug)]
pub struct Settings {
    /// Settings of the state machine.
    pub machine: weir_cluster::Settings,
    /// The group's last configuration from disk: version and text.
    pub applied: Option<(u64, String)>,
    /// Shared entries from disk.
    pub shared: SharedState,
    /// The client for etcd.
    pub client: Client,
}

/// Messages from the daemon.
#[derive(Debug)]
pub enum ToGroup {
    /// An event for the state machine.
    Input(Box<Input>),
    /// The daemon is stopping: leave the group at once instead of waiting until the lease expires.
    Leave,
}

/// Messages to the daemon: outputs of the state machine, except requests to etcd.
pub type FromGroup = Output;

/// A running state machine. Its thread ends when this value is dropped.
#[derive(Debug)]
pub struct Driver {
    to: UnboundedSender<ToGroup>,
    status: Arc<Mutex<Option<(Status, Duration, String)>>>,
    since: Instant,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts the thread. Also returns the receiver of messages to the daemon.
    ///
    /// # Errors
    /// Returns an error if the runtime or the thread cannot be started.
    pub fn start(settings: Settings) -> io::Result<(Self, UnboundedReceiver<FromGroup>)> {
        let (to, inputs) = unbounded_channel();
        let (outputs, from) = unbounded_channel();
        let status = Arc::default();
        let since = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let published = Arc::clone(&status);
        let thread = std::thread::Builder::new()
            .name("cluster".to_owned())
            .spawn(move || {
                let running = Running::new(settings, outputs, published, since);
                runtime.block_on(running.run(inputs));
                runtime.shutdown_background();
            })?;
        let driver = Self {
            to,
            status,
            since,
            thread: Some(thread),
        };
        Ok((driver, from))
    }

    /// Sends an event to the state machine.
    pub fn send(&self, input: Input) {
        let _ = self.to.send(ToGroup::Input(Box::new(input)));
    }

    /// Returns the last status of the group and the endpoint in use; `None` if there is no status yet.
    pub fn status(&self) -> Option<(Status, String)> {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status
            .as_ref()
            .map(|(status, _, endpoint)| (status.clone(), endpoint.clone()))
    }

    /// Returns how long ago a time of the state machine's clock was.
    pub fn age(&self, moment: Duration) -> Duration {
        self.since.elapsed().saturating_sub(moment)
    }

    /// Leaves the group. Waits at most half a second for etcd.
    pub fn leave(mut self) {
        let _ = self.to.send(ToGroup::Leave);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A response from etcd, with the number of the watch that it belongs to; 0 = none.
type Response = (u64, Input);

struct Running {
    machine: Machine,
    client: Arc<Client>,
    range: (String, String),
    outputs: UnboundedSender<FromGroup>,
    status: Arc<Mutex<Option<(Status, Duration, String)>>>,
    since: Instant,
    responses: (UnboundedSender<Response>, UnboundedReceiver<Response>),
    /// The number of the current watch, and its task.
    watch: Option<(u64, AbortHandle)>,
    /// The number of the last watch.
    watches: u64,
    /// The task that reads all keys.
    listing: Option<AbortHandle>,
    lease: Option<i64>,
    /// The state machine's number of failures, when last read.
    failures: u64,
}

impl Running {
    fn new(
        settings: Settings,
        outputs: UnboundedSender<FromGroup>,
        status: Arc<Mutex<Option<(Status, Duration, String)>>>,
        since: Instant,
    ) -> Self {
        let now = since.elapsed();
        let machine = Machine::new(settings.machine, settings.applied, settings.shared, now);
        Self {
            range: machine.range(),
            machine,
            client: Arc::new(settings.client),
            outputs,
            status,
            since,
            responses: unbounded_channel(),
            watch: None,
            watches: 0,
            listing: None,
            lease: None,
            failures: 0,
        }
    }

    async fn run(mut self, mut inputs: UnboundedReceiver<ToGroup>) {
        self.machine.handle_time(self.since.elapsed());
        loop {
            self.drain();
            let now = self.since.elapsed();
            let pause = self.machine.next_deadline(now).saturating_sub(now);
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(ToGroup::Input(input)) => {
                        self.machine.handle(*input, self.since.elapsed());
                    }
                    Some(ToGroup::Leave) => {
                        self.leave().await;
                        return;
                    }
                    None => return,
                },
                Some((watch, input)) = self.responses.1.recv() => {
                    let is_current = self.watch.as_ref().is_some_and(|(number, _)| *number == watch);
                    if watch == 0 || is_current {
                        self.record_lease(&input);
                        self.machine.handle(input, self.since.elapsed());
                    }
                }
                () = sleep(pause) => self.machine.handle_time(self.since.elapsed()),
            }
        }
    }

    /// Records the lease, which must be revoked when the member leaves the group.
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
            | Input::Facts(_)
            | Input::Changed { .. }
            | Input::Publish { .. }
            | Input::Applied(_)
            | Input::Settled(_) => {}
        }
    }

    fn drain(&mut self) {
        if self.machine.failures() != self.failures {
            self.failures = self.machine.failures();
            self.client.rotate();
        }
        while let Some(output) = self.machine.poll_output() {
            self.execute(output);
        }
        let now = self.since.elapsed();
        let new = self.machine.status(now);
        let endpoint = self.client.endpoint().to_string();
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((previous, _, _)) = &*status {
            log_changes(previous, &new, &endpoint);
        }
        *status = Some((new, now, endpoint));
    }

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
            Output::Watch { from } => self.start_watch(from),
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
                    let unknown = |error: crate::Error| TxnResult::Unknown(error.to_string());
                    let result = result.unwrap_or_else(unknown);
                    reply(Input::Txn { number, result });
                });
            }
            Output::Apply { .. }
            | Output::Shared { .. }
            | Output::Settle { .. }
            | Output::Settled { .. }
            | Output::Published { .. }
            | Output::Held(_)
            | Output::Verdicts(_)
            | Output::Save(_) => {
                let _ = self.outputs.send(output);
            }
        }
    }

    fn start_watch(&mut self, from: i64) {
        if let Some((_, watch)) = self.watch.take() {
            watch.abort();
        }
        self.watches += 1;
        let number = self.watches;
        let (client, responses) = (Arc::clone(&self.client), self.responses.0.clone());
        let (key, end) = self.range.clone();
        let task = tokio::spawn(async move {
            let report = |input| drop(responses.send((number, input)));
            crate::watch::run(&client, (&key, &end), from, report).await;
        });
        self.watch = Some((number, task.abort_handle()));
    }

    async fn leave(&self) {
        if let Some(lease) = self.lease {
            let _ = timeout(LEAVE_TIMEOUT, self.client.revoke(lease)).await;
        }
    }
}

fn log_changes(previous: &Status, current: &Status, endpoint: &str) {
    use weir_cluster::Link;
    match (&previous.link, &current.link) {
        (Link::Away { .. }, Link::Connected) => tracing::info!(endpoint, "connected to etcd"),
        (Link::Connected, Link::Away { error, .. }) => {
            tracing::warn!(
                error,
                "etcd does not respond; this director continues with its current state"
            );
        }
        (Link::Away { error: old, .. }, Link::Away { error, .. })
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
