//! Sends the daemon's requests to the engine process and receives the replies.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use weir_sys::Channel;

use crate::message::{self, Reply, Request, UNREQUESTED};

/// Maximum duration of a request that only reads.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum duration of a change, which includes verification of programs and resolution of neighbors. In an emulated
/// machine, which `make release-check` uses, changing the size of the flow table takes more than five minutes.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(900);

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The process died; the keeper restarts it.
    #[error("the privileged layer 4 process has exited; it is being restarted")]
    Lost,
    /// The process did not respond in time.
    #[error("the privileged layer 4 process does not respond")]
    TimedOut,
    /// The engine's error.
    #[error("{0}")]
    Engine(String),
    /// The policy does not permit the request.
    #[error("{0}")]
    Refused(String),
}

#[derive(Debug)]
struct Shared {
    channel: Channel,
    next_number: AtomicU64,
    /// Requests that wait for a reply, by number.
    pending: Mutex<HashMap<u64, mpsc::Sender<Reply>>>,
    /// Whether the process that opened the engine has exited.
    lost: AtomicBool,
}

/// The daemon's connection to the engine process. Requests block.
#[derive(Clone, Debug)]
pub struct EngineClient {
    shared: Arc<Shared>,
}

impl EngineClient {
    /// Creates a client for the process at the other end of the channel, and starts a thread that receives its replies.
    /// The process may be started later.
    pub fn new(channel: Channel) -> Self {
        let shared = Arc::new(Shared {
            channel,
            next_number: AtomicU64::new(0),
            pending: Mutex::default(),
            lost: AtomicBool::new(false),
        });
        let reader = Arc::clone(&shared);
        std::thread::spawn(move || reader.receive());
        Self { shared }
    }

    /// Returns whether the process that opened the engine has exited.
    pub fn is_lost(&self) -> bool {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Sends a request without waiting for the reply.
    pub fn send(&self, request: &Request) {
        let number = self.shared.next_number.fetch_add(1, Ordering::Relaxed);
        if !self.is_lost()
            && let Err(error) = message::send(&self.shared.channel, number, request, &[])
        {
            tracing::debug!(%error, "failed to send a request");
        }
    }

    /// Sends a request with files and waits for the reply.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn request(&self, request: &Request, files: &[BorrowedFd<'_>]) -> Result<Reply, Failure> {
        self.begin(request, files)?.wait()
    }

    /// Sends a request with files. The reply need not be read.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn begin(
        &self,
        request: &Request,
        files: &[BorrowedFd<'_>],
    ) -> Result<PendingRequest, Failure> {
        let shared = &self.shared;
        if matches!(request, Request::Begin { .. }) {
            shared.lost.store(false, Ordering::Relaxed);
        } else if self.is_lost() {
            return Err(Failure::Lost);
        }
        let timeout = match request {
            Request::Read(_) | Request::IsCurrent => READ_TIMEOUT,
            _ => CHANGE_TIMEOUT,
        };
        let (sender, reply_receiver) = mpsc::channel();
        let number = shared.next_number.fetch_add(1, Ordering::Relaxed);
        shared.lock().insert(number, sender);
        let pending = PendingRequest {
            shared: Arc::clone(shared),
            number,
            reply_receiver,
            timeout,
        };
        message::send(&shared.channel, number, request, files)
            .map_err(|error| Failure::Engine(error.to_string()))?;
        Ok(pending)
    }
}

/// A request that was sent.
#[derive(Debug)]
pub struct PendingRequest {
    shared: Arc<Shared>,
    number: u64,
    reply_receiver: mpsc::Receiver<Reply>,
    timeout: Duration,
}

impl PendingRequest {
    /// Waits for the reply.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn wait(self) -> Result<Reply, Failure> {
        let mut parts = Vec::new();
        let reply = loop {
            match self.reply_receiver.recv_timeout(self.timeout) {
                Ok(Reply::Services(part)) => parts.push(part),
                reply => break reply,
            }
        };
        match reply {
            Ok(Reply::Snapshot(mut snapshot)) => {
                parts.push(std::mem::take(&mut snapshot.services));
                snapshot.services = parts.into_iter().flatten().collect();
                Ok(Reply::Snapshot(snapshot))
            }
            Ok(Reply::NotOpen) => {
                self.shared.lost.store(true, Ordering::Relaxed);
                Err(Failure::Lost)
            }
            Ok(Reply::Failed { reason }) => Err(Failure::Engine(reason)),
            Ok(Reply::Refused { reason }) => Err(Failure::Refused(reason)),
            Ok(reply) => Ok(reply),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(Failure::Lost),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(Failure::TimedOut),
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.shared.lock().remove(&self.number);
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, mpsc::Sender<Reply>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives replies until the keeper has exited.
    fn receive(&self) {
        let mut is_first = true;
        while let Ok(Some(received)) = self.channel.receive() {
            let (number, reply) = match message::open_reply(received) {
                Ok(message) => message,
                Err(error) => {
                    tracing::error!(%error, "the privileged layer 4 process sent an invalid message");
                    continue;
                }
            };
            if number != UNREQUESTED {
                let sender = if matches!(reply, Reply::Services(_)) {
                    self.lock().get(&number).cloned()
                } else {
                    self.lock().remove(&number)
                };
                if let Some(sender) = sender {
                    // The request may have timed out.
                    let _ = sender.send(reply);
                }
                continue;
            }
            // A new process has started, and earlier requests are lost. The first request is an exception: it starts
            // the first process, and is still in the channel.
            if !std::mem::take(&mut is_first) {
                self.lost.store(true, Ordering::Relaxed);
                self.lock().clear();
            }
        }
        self.lost.store(true, Ordering::Relaxed);
        self.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use weir_engine::snapshot::Layer4Snapshot;

    use super::*;
    use crate::message::Query;

    #[test]
    fn parts_of_a_snapshot_are_joined_in_order() {
        let (daemon_end, engine_end) = Channel::pair().unwrap();
        let client = EngineClient::new(daemon_end);
        let service = |name: &str| -> weir_engine::snapshot::ServiceStatus {
            let text = r#"{"name":"","origin":"file","listen":[],"vip":"Absent","forward":"nat","scheduler":"rr",
                "pool":"p","pool_state":null,"persistence":null,"one_packet":false,
                "totals":{"connections":0,"stateless":0,"packets_in":0,"packets_out":0,
                "bytes_in":0,"bytes_out":0},"servers":[]}"#;
            let mut service: weir_engine::snapshot::ServiceStatus =
                serde_json::from_str(text).unwrap();
            name.clone_into(&mut service.name);
            service
        };
        let host = std::thread::spawn(move || {
            message::send(&engine_end, UNREQUESTED, &Reply::Started, &[]).unwrap();
            for must_die in [false, true] {
                let (number, _, _) =
                    message::open::<Request>(engine_end.receive().unwrap().unwrap()).unwrap();
                let parts = [vec![service("a"), service("b")], vec![service("c")]];
                for part in parts {
                    message::send_reply(&engine_end, number, &Reply::Services(part)).unwrap();
                }
                if must_die {
                    message::send(&engine_end, UNREQUESTED, &Reply::Started, &[]).unwrap();
                    return engine_end;
                }
                let snapshot = Layer4Snapshot {
                    revision: 7,
                    services: vec![service("d")],
                    ..Layer4Snapshot::default()
                };
                let snapshot = Reply::Snapshot(Box::new(snapshot));
                message::send_reply(&engine_end, number, &snapshot).unwrap();
            }
            engine_end
        });
        let request = || client.request(&Request::Read(Query::Snapshot), &[]);
        let Reply::Snapshot(snapshot) = request().unwrap() else {
            panic!("unexpected reply");
        };
        let names: Vec<&str> = snapshot
            .services
            .iter()
            .map(|it| it.name.as_str())
            .collect();
        assert_eq!((snapshot.revision, names), (7, vec!["a", "b", "c", "d"]));
        assert_eq!(
            request().unwrap_err(),
            Failure::Lost,
            "the process died between two parts"
        );
        drop(host.join().unwrap());
    }

    #[test]
    fn request_to_a_process_that_died_fails_until_the_engine_is_opened_again() {
        let (daemon_end, engine_end) = Channel::pair().unwrap();
        let client = EngineClient::new(daemon_end);
        let host = std::thread::spawn(move || {
            let receive_request =
                || message::open::<Request>(engine_end.receive().unwrap().unwrap()).unwrap();
            let send_reply =
                |number, reply: &Reply| message::send(&engine_end, number, reply, &[]).unwrap();
            send_reply(UNREQUESTED, &Reply::Started);
            let (number, _, _) = receive_request();
            send_reply(number, &Reply::Current(true));
            // The process dies during a request, and another one starts.
            drop(receive_request());
            send_reply(UNREQUESTED, &Reply::Started);
            let (number, request, _) = receive_request();
            assert!(matches!(request, Request::Begin { .. }));
            send_reply(number, &Reply::Done);
        });
        let request = |request: &Request| client.request(request, &[]);
        assert!(matches!(
            request(&Request::IsCurrent),
            Ok(Reply::Current(true))
        ));
        assert!(!client.is_lost());
        assert_eq!(
            request(&Request::TransferCounts).unwrap_err(),
            Failure::Lost
        );
        assert!(client.is_lost());
        let read = request(&Request::Read(Query::Active));
        assert_eq!(
            read.unwrap_err(),
            Failure::Lost,
            "the request must not be sent"
        );
        let begin = Request::Begin {
            added: Vec::new(),
            address_digest: None,
        };
        assert!(matches!(request(&begin), Ok(Reply::Done)));
        host.join().unwrap();
        // The keeper has exited.
        assert!(request(&begin).is_err());
    }
}
