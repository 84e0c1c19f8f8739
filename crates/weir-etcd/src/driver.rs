//! The thread that runs a machine: time, requests, the watch, and the messages to and from the daemon.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use weir_cluster::{Input, Machine, Output, SharedState, Status, TxnResult};

use crate::client::Client;

/// How long the end of a daemon waits for etcd.
const END_LIMIT: Duration = Duration::from_millis(500);

/// What a driver needs.
#[derive(Debug)]
pub struct Settings {
    /// The machine's settings.
    pub machine: weir_cluster::Settings,
    /// The last configuration of the group: version, text.
    pub applied: Option<(u64, String)>,
    /// Shared entries.
    pub shared: SharedState,
    /// The client.
    pub client: Client,
}

/// Messages of the daemon.
#[derive(Debug)]
pub enum ToGroup {
    /// For the machine.
    Input(Box<Input>),
    /// The daemon ends: leave the group at once, instead of after the lease.
    Leave,
}

/// Messages to the daemon: orders of the machine. Requests to etcd never occur.
pub type FromGroup = Output;

/// A running machine. It ends when this value is dropped.
#[derive(Debug)]
pub struct Driver {
    to: UnboundedSender<ToGroup>,
    status: Arc<Mutex<Option<(Status, Duration, String)>>>,
    since: Instant,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts the thread. Returns the messages to the daemon as well.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(settings: Settings) -> io::Result<(Self, UnboundedReceiver<FromGroup>)> {
        let (to, inputs) = unbounded_channel();
        let (orders, from) = unbounded_channel();
        let status = Arc::default();
        let since = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shown = Arc::clone(&status);
        let thread = std::thread::Builder::new()
            .name("cluster".to_owned())
            .spawn(move || {
                let running = Running::new(settings, orders, shown, since);
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

    /// Sends the machine an event.
    pub fn send(&self, input: Input) {
        let _ = self.to.send(ToGroup::Input(Box::new(input)));
    }

    /// The group as the machine knew it last, how long ago a moment of its clock was, and the endpoint in use.
    pub fn status(&self) -> Option<(Status, String)> {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status
            .as_ref()
            .map(|(status, _, endpoint)| (status.clone(), endpoint.clone()))
    }

    /// How long ago a moment of the machine's clock was.
    pub fn age(&self, moment: Duration) -> Duration {
        self.since.elapsed().saturating_sub(moment)
    }

    /// Leaves the group, and waits for that for a moment.
    pub fn leave(mut self) {
        let _ = self.to.send(ToGroup::Leave);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An answer of etcd.
type Answer = (u64, Input);

struct Running {
    machine: Machine,
    client: Arc<Client>,
    range: (String, String),
    orders: UnboundedSender<FromGroup>,
    status: Arc<Mutex<Option<(Status, Duration, String)>>>,
    since: Instant,
    /// Answers of etcd, with the number of the watch that they belong to; 0 = none.
    answers: (UnboundedSender<Answer>, UnboundedReceiver<Answer>),
    watch: Option<(u64, AbortHandle)>,
    watches: u64,
    /// The last reading of all keys.
    listing: Option<AbortHandle>,
    lease: Option<i64>,
    /// Failures that the machine has counted.
    failures: u64,
}

impl Running {
    fn new(
        settings: Settings,
        orders: UnboundedSender<FromGroup>,
        status: Arc<Mutex<Option<(Status, Duration, String)>>>,
        since: Instant,
    ) -> Self {
        let now = since.elapsed();
        let machine = Machine::new(settings.machine, settings.applied, settings.shared, now);
        Self {
            range: machine.range(),
            machine,
            client: Arc::new(settings.client),
            orders,
            status,
            since,
            answers: unbounded_channel(),
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
                Some((watch, input)) = self.answers.1.recv() => {
                    let is_current = self.watch.as_ref().is_some_and(|(number, _)| *number == watch);
                    if watch == 0 || is_current {
                        self.note(&input);
                        self.machine.handle(input, self.since.elapsed());
                    }
                }
                () = sleep(pause) => self.machine.handle_time(self.since.elapsed()),
            }
        }
    }

    fn note(&mut self, input: &Input) {
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
        if let Some((former, _, _)) = &*status {
            log_changes(former, &new, &endpoint);
        }
        *status = Some((new, now, endpoint));
    }

    fn execute(&mut self, output: Output) {
        let client = Arc::clone(&self.client);
        let answers = self.answers.0.clone();
        let reply = move |input| drop(answers.send((0, input)));
        match output {
            Output::List => {
                if let Some((_, watch)) = self.watch.take() {
                    watch.abort();
                }
                if let Some(former) = self.listing.take() {
                    former.abort();
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
                let _ = self.orders.send(output);
            }
        }
    }

    fn start_watch(&mut self, from: i64) {
        if let Some((_, watch)) = self.watch.take() {
            watch.abort();
        }
        self.watches += 1;
        let number = self.watches;
        let (client, answers) = (Arc::clone(&self.client), self.answers.0.clone());
        let (key, end) = self.range.clone();
        let task = tokio::spawn(async move {
            let report = |input| drop(answers.send((number, input)));
            crate::watch::run(&client, (&key, &end), from, report).await;
        });
        self.watch = Some((number, task.abort_handle()));
    }

    async fn leave(&self) {
        if let Some(lease) = self.lease {
            let _ = timeout(END_LIMIT, self.client.revoke(lease)).await;
        }
    }
}

fn log_changes(former: &Status, now: &Status, endpoint: &str) {
    use weir_cluster::Link;
    match (&former.link, &now.link) {
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
    if former.refused != now.refused
        && let Some(reason) = &now.refused
    {
        tracing::error!(reason, "this director is not a member of its group");
    }
}
