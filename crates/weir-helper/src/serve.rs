//! Runs the helper's loop, which handles one request at a time. Only tracked objects are checked concurrently.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use weir_model::{TrackObject, VirtualRouter};
use weir_sys::{Channel, Message, sealed_file};

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

/// Maximum number of callers: an agent, and the one that replaces it.
const MAX_CALLERS: usize = 2;

/// Serves the caller at the other end of the channel, and callers that are added later, until all channels are closed,
/// or for three seconds after SIGTERM. Then removes the added objects. `active_files` are files that may contain the
/// active configuration; the first one that exists is used. A file that an unprivileged daemon has written can only
/// select among the virtual routers of `configuration`, root's configuration file. If `adopt` is true, the addresses of
/// an earlier helper are kept, for the same caller or its successor. Must be called inside a tokio runtime.
///
/// # Errors
/// Fails if the addresses cannot be read or removed, or if SIGTERM cannot be handled.
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
    let mut helper = Helper {
        addresses: Addresses::open(runtime_dir, adopt).await?,
        source: RouterSource::new(runtime_dir, active_files, configuration),
        routers: Vec::new(),
        processes: ProcessFinder::default(),
        fifos: Fifos::default(),
    };
    if adopt {
        // Requests to the previous helper may be waiting.
        match helper.source.read() {
            Ok(active) => helper.set_active(active),
            Err(error) => tracing::error!(%error, "failed to read the virtual routers"),
        }
    }
    set_real_time_priority();
    let (mut callers, mut received) = Callers::new(channel);
    let mut end: Option<Instant> = None;
    while callers.count > 0 {
        let received = tokio::select! {
            received = received.recv() => received,
            _ = terminate.recv() => {
                end.get_or_insert_with(|| Instant::now() + END_TIMEOUT);
                continue;
            }
            () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => None,
        };
        let (channel, message) = match received {
            None => break,
            Some(Received::Closed) => {
                callers.count -= 1;
                continue;
            }
            Some(Received::Message(channel, message)) => (channel, message),
        };
        match Envelope::<Request>::decode(&message.bytes) {
            Ok(Envelope {
                body: Request::AddCaller,
                number,
                ..
            }) => callers.add(message.files, number),
            Ok(envelope) => helper.handle(envelope, &channel).await,
            Err(error) => tracing::error!(%error, "rejected a request"),
        }
    }
    helper.addresses.remove_fifos(&|_| true);
    helper.addresses.remove(&|_| true).await
}

/// Sets real-time priority for the calling thread, so addresses move immediately even on a busy machine: clients have
/// no connectivity until the move. Errors are ignored, because the agent lacks the same privilege and reports it.
fn set_real_time_priority() {
    let _ = weir_sys::set_real_time_priority(REAL_TIME_PRIORITY);
}

/// What a reader thread received from its caller.
enum Received {
    Message(Arc<Channel>, Message),
    /// The caller has closed the channel.
    Closed,
}

/// The callers, each with a thread that receives its messages.
struct Callers {
    /// Number of open channels.
    count: usize,
    sender: mpsc::UnboundedSender<Received>,
}

impl Callers {
    fn new(channel: Channel) -> (Self, mpsc::UnboundedReceiver<Received>) {
        let (sender, received) = mpsc::unbounded_channel();
        let mut callers = Self { count: 0, sender };
        callers.start_reader(Arc::new(channel));
        (callers, received)
    }

    /// Adds a caller, whose channel is the first of the attached files. If there are too many callers, closes the
    /// channel instead.
    fn add(&mut self, files: Vec<OwnedFd>, number: u64) {
        let Some(file) = files.into_iter().next() else {
            return tracing::error!("rejected a caller: no channel is attached");
        };
        if self.count >= MAX_CALLERS {
            return tracing::error!("rejected a caller: there are already {MAX_CALLERS} callers");
        }
        let channel = Arc::new(Channel::from(file));
        self.start_reader(Arc::clone(&channel));
        send(&channel, number, Reply::Done, &[]);
    }

    fn start_reader(&mut self, channel: Arc<Channel>) {
        self.count += 1;
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            set_real_time_priority();
            while let Ok(Some(message)) = channel.receive() {
                if sender
                    .send(Received::Message(Arc::clone(&channel), message))
                    .is_err()
                {
                    return;
                }
            }
            let _ = sender.send(Received::Closed);
        });
    }
}

struct Helper {
    addresses: Addresses,
    source: RouterSource,
    routers: Vec<VirtualRouter>,
    processes: ProcessFinder,
    fifos: Fifos,
}

impl Helper {
    async fn handle(&mut self, envelope: Envelope<Request>, channel: &Arc<Channel>) {
        let number = envelope.number;
        let result = match envelope.body {
            Request::Policy => return self.send_policy(number, channel),
            Request::Track { router, object } => {
                return self.track(number, (&router, object), channel);
            }
            // Handled by `Callers`.
            Request::AddCaller => return,
            Request::Add { router } => match self.router(&router) {
                Ok(router) => self.addresses.add(&router).await,
                Err(error) => Err(error),
            },
            Request::Remove { router } => self.addresses.remove(&|name| name == router).await,
            Request::RemoveInactive { router } => match self.router(&router) {
                Ok(router) => self.addresses.remove_inactive(&router).await,
                Err(error) => Err(error),
            },
            Request::Retire { router } => self.addresses.retire(&router).await,
            Request::TakeOver { router } => match self.router(&router) {
                Ok(router) => self.addresses.take_over_all(&router).await,
                Err(error) => Err(error),
            },
            Request::RemoveAllExcept { retained } => {
                let is_removed = |name: &str| !retained.iter().any(|it| it == name);
                self.addresses.remove(&is_removed).await
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
        send(channel, number, reply, &[]);
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
    fn send_policy(&mut self, number: u64, channel: &Channel) {
        let active = self.source.unchanged().map(Ok).unwrap_or_else(|| {
            let _ = weir_sys::set_normal_priority();
            let active = self.source.read();
            set_real_time_priority();
            active
        });
        let file = active.and_then(|active| {
            let text = serde_json::to_vec(&active.routers).unwrap_or_default();
            let file = sealed_file("weir-vrrp", &text);
            self.set_active(active);
            file.map_err(|source| Error::File {
                path: "memfd".into(),
                source,
            })
        });
        match file {
            Ok(file) => send(channel, number, Reply::Policy, &[file.as_fd()]),
            Err(error) => {
                let reason = error.to_string();
                send(channel, number, Reply::Failed { reason }, &[]);
            }
        }
    }

    fn track(&mut self, number: u64, (router, object): (&str, usize), channel: &Arc<Channel>) {
        let router = self.routers.iter().find(|it| it.name == router);
        let object = router.and_then(|router| router.track.get(object)).cloned();
        let object = object.map(|tracked| tracked.object);
        let process = match &object {
            Some(TrackObject::Process(name)) => Some(self.processes.find(name)),
            _ => None,
        };
        let channel = Arc::clone(channel);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(received: Option<Received>) -> Option<Vec<u8>> {
        match received? {
            Received::Message(_, message) => Some(message.bytes),
            Received::Closed => None,
        }
    }

    #[tokio::test]
    async fn second_caller_is_served_after_the_first_has_closed() {
        let (helper_end, agent) = Channel::pair().unwrap();
        let (mut callers, mut received) = Callers::new(helper_end);
        let (helper_end, successor) = Channel::pair().unwrap();
        callers.add(vec![helper_end.into()], 7);
        let reply = successor.receive().unwrap().unwrap();
        let reply = Envelope::<Reply>::decode(&reply.bytes).unwrap();
        assert_eq!((reply.number, reply.body), (7, Reply::Done));
        for (channel, text) in [(&agent, b"first"), (&successor, b"other")] {
            channel.send(text, &[]).unwrap();
            let Some(Received::Message(channel, message)) = received.recv().await else {
                panic!("no message");
            };
            assert_eq!(message.bytes, text);
            send(&channel, 1, Reply::Done, &[]);
        }
        for channel in [&agent, &successor] {
            assert!(channel.receive().unwrap().is_some());
        }
        // A third caller is rejected, and a request without a channel is ignored.
        let (helper_end, third) = Channel::pair().unwrap();
        callers.add(vec![helper_end.into()], 8);
        assert!(third.receive().unwrap().is_none());
        callers.add(Vec::new(), 9);
        assert_eq!(callers.count, MAX_CALLERS);
        drop(agent);
        assert_eq!(bytes(received.recv().await), None);
        successor.send(b"after", &[]).unwrap();
        assert_eq!(bytes(received.recv().await), Some(b"after".to_vec()));
    }
}
