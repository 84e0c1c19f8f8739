//! Runs the helper's loop, which handles one request at a time. Only tracked programs run concurrently.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use weir_model::{TrackObject, VirtualRouter};
use weir_sys::{Channel, sealed_file};

use crate::Error;
use crate::fifo::Fifos;
use crate::message::{Envelope, Reply, Request, TrackedOutcome};
use crate::process::ProcessFinder;
use crate::program;
use crate::router_source::{ActiveRouters, RouterSource};
use crate::state::Addresses;

/// Maximum time for which this process serves the caller after SIGTERM, because the caller must become inactive first.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Real-time priority of this process; lower than that of the agent, which must send its advertisements first.
const REAL_TIME_PRIORITY: i32 = 9;

/// Serves the caller at the other end of the channel until the channel is closed, then removes the added objects.
/// `active_files` are files that may contain the active configuration; the first one that exists is used. A file that
/// an unprivileged daemon has written can only select among the virtual routers of `configuration`, root's file. If
/// `adopt` is true, the addresses of an earlier helper are kept, for the same caller or its successor. Must be called
/// inside a tokio runtime.
///
/// # Errors
/// Fails if the addresses cannot be read or removed.
pub async fn serve(
    channel: Channel,
    runtime_dir: &Path,
    active_files: &[PathBuf],
    configuration: &Path,
    adopt: bool,
) -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|source| Error::File {
        path: "signals".into(),
        source,
    })?;
    let channel = Arc::new(channel);
    let mut helper = Helper {
        addresses: Addresses::open(runtime_dir, adopt).await?,
        source: RouterSource::new(runtime_dir, active_files, configuration),
        routers: Vec::new(),
        processes: ProcessFinder::default(),
        fifos: Fifos::default(),
        channel: Arc::clone(&channel),
    };
    if adopt {
        // Requests to the previous helper may be waiting.
        match helper.source.read() {
            Ok(active) => helper.set_active(active),
            Err(error) => tracing::error!(%error, "failed to read the virtual routers"),
        }
    }
    run_in_real_time();
    let (sender, mut requests) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        run_in_real_time();
        while let Ok(Some(message)) = channel.receive() {
            if sender.send(message.bytes).is_err() {
                return;
            }
        }
    });
    let mut end: Option<Instant> = None;
    loop {
        let bytes = tokio::select! {
            bytes = requests.recv() => bytes,
            _ = terminate.recv() => {
                end.get_or_insert_with(|| Instant::now() + END_TIMEOUT);
                continue;
            }
            () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => None,
        };
        let Some(bytes) = bytes else { break };
        match Envelope::<Request>::decode(&bytes) {
            Ok(envelope) => helper.handle(envelope).await,
            Err(error) => tracing::error!(%error, "rejected a request"),
        }
    }
    helper.addresses.remove_fifos(&|_| true);
    helper.addresses.remove(&|_| true).await
}

/// Sets real-time priority for the calling thread, so addresses move immediately even on a busy machine: clients have
/// no connectivity until the move. Errors are ignored, because the agent lacks the same privilege and reports it.
fn run_in_real_time() {
    let _ = weir_sys::run_in_real_time(REAL_TIME_PRIORITY);
}

struct Helper {
    addresses: Addresses,
    source: RouterSource,
    routers: Vec<VirtualRouter>,
    processes: ProcessFinder,
    fifos: Fifos,
    channel: Arc<Channel>,
}

impl Helper {
    async fn handle(&mut self, envelope: Envelope<Request>) {
        let number = envelope.number;
        let result = match envelope.body {
            Request::Policy => return self.send_policy(number),
            Request::Track { router, object } => return self.track(number, &router, object),
            Request::Add { router } => match self.router(&router) {
                Ok(router) => self.addresses.add(&router).await,
                Err(error) => Err(error),
            },
            Request::Remove { router } => self.addresses.remove(&|name| name == router).await,
            Request::Vacate { router } => match self.router(&router) {
                Ok(router) => self.addresses.vacate(&router).await,
                Err(error) => Err(error),
            },
            Request::Retire { router } => self.addresses.retire(&router).await,
            Request::Keep { router } => match self.router(&router) {
                Ok(router) => self.addresses.keep(&router).await,
                Err(error) => Err(error),
            },
            Request::Settle { active } => {
                let is_inactive = |name: &str| !active.iter().any(|it| it == name);
                self.addresses.remove(&is_inactive).await
            }
            Request::NotifyGroup { router, state } => self.router(&router).map(|router| {
                let line = program::group_line(&router, state);
                self.fifos.write(&router, &line, &mut self.addresses);
                program::notify_group(&router, state);
            }),
            Request::Notify {
                router,
                state,
                priority,
            } => self.router(&router).map(|router| {
                let line = program::line(&router, state, priority);
                self.fifos.write(&router, &line, &mut self.addresses);
                program::notify(&router, state, priority);
            }),
        };
        let reply = match result {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Failed {
                reason: error.to_string(),
            },
        };
        send(&self.channel, number, reply, &[]);
    }

    fn set_active(&mut self, active: ActiveRouters) {
        self.routers = active.routers;
        self.addresses.configured_addresses = active.configured_addresses;
        self.fifos.configure(&self.routers, &mut self.addresses);
    }

    fn router(&self, name: &str) -> Result<VirtualRouter, Error> {
        let router = self.routers.iter().find(|router| router.name == name);
        router.cloned().ok_or_else(|| Error::UnknownRouter {
            name: name.to_owned(),
        })
    }

    /// Sends the configuration's virtual routers. An invalid configuration has no effect. If a file has changed, it is
    /// read at normal priority, because a large file would keep other processes waiting.
    fn send_policy(&mut self, number: u64) {
        let read = self.source.unchanged().map(Ok).unwrap_or_else(|| {
            let _ = weir_sys::run_at_normal_priority();
            let read = self.source.read();
            run_in_real_time();
            read
        });
        let file = read.and_then(|active| {
            let text = serde_json::to_vec(&active.routers).unwrap_or_default();
            let file = sealed_file("weir-vrrp", &text);
            self.set_active(active);
            file.map_err(|source| Error::File {
                path: "memfd".into(),
                source,
            })
        });
        match file {
            Ok(file) => send(&self.channel, number, Reply::Policy, &[file.as_fd()]),
            Err(error) => {
                let reason = error.to_string();
                send(&self.channel, number, Reply::Failed { reason }, &[]);
            }
        }
    }

    fn track(&mut self, number: u64, router: &str, object: usize) {
        let router = self.routers.iter().find(|it| it.name == router);
        let object = router.and_then(|router| router.track.get(object)).cloned();
        let object = object.map(|tracked| tracked.object);
        let process = match &object {
            Some(TrackObject::Process(name)) => Some(self.processes.find(name)),
            _ => None,
        };
        let channel = Arc::clone(&self.channel);
        tokio::spawn(async move {
            let outcome = match (process, &object) {
                (Some(search), _) => search.await.map(|is_running| match is_running {
                    true => TrackedOutcome::Up,
                    false => TrackedOutcome::Down,
                }),
                (None, Some(object)) => program::track(object).await,
                (None, None) => Err("no such object".to_owned()),
            };
            let failed = |reason| Reply::Failed { reason };
            let reply = outcome.map_or_else(failed, Reply::Tracked);
            send(&channel, number, reply, &[]);
        });
    }
}

/// Sends a reply. Ignores errors, because the reader detects that the caller has exited.
fn send(channel: &Channel, number: u64, reply: Reply, files: &[BorrowedFd<'_>]) {
    if let Err(error) = channel.send(&Envelope::encode(number, reply), files) {
        tracing::debug!(%error, "failed to send a reply");
    }
}
