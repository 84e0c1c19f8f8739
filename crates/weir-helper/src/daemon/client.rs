//! Implements the daemon's end of the channel: sends requests and receives replies.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use weir_sys::Channel;
use weir_sys::privileged::{ExitCallback, PingTarget, PrivilegedHelper, Program};
use weir_sys::untrusted_file::Owner;

use super::message::{DaemonRequest, HelperReply, NO_REQUEST};
use crate::message::Envelope;

/// Time limit for the reply to a request other than running a program; long enough for the keeper to replace a helper
/// that died.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A reply, with the attached file, if any.
type ReplyWithFile = (HelperReply, Option<OwnedFd>);

/// A request that has no reply yet.
#[derive(Debug)]
struct PendingRequest {
    request: DaemonRequest,
    waiter: Waiter,
}

enum Waiter {
    Thread(mpsc::Sender<ReplyWithFile>),
    Callback(ExitCallback),
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Thread(_) => "Thread",
            Self::Callback(_) => "Callback",
        })
    }
}

#[derive(Debug)]
struct SharedState {
    channel: Channel,
    next_number: AtomicU64,
    pending: Mutex<HashMap<u64, PendingRequest>>,
}

/// The daemon's connection to its helper.
#[derive(Debug)]
pub struct DaemonClient {
    shared: Arc<SharedState>,
}

impl DaemonClient {
    /// Creates a client for the helper at the other end of the channel, and starts the thread that receives replies.
    /// The helper may be started later.
    pub fn new(channel: Channel) -> Self {
        let shared = Arc::new(SharedState {
            channel,
            next_number: AtomicU64::new(0),
            pending: Mutex::default(),
        });
        let reader = Arc::clone(&shared);
        std::thread::spawn(move || reader.receive());
        Self { shared }
    }

    fn request(&self, request: DaemonRequest) -> io::Result<ReplyWithFile> {
        let (sender, receiver) = mpsc::channel();
        let number = self.shared.send(request, Waiter::Thread(sender))?;
        let reply = receiver.recv_timeout(REPLY_TIMEOUT);
        self.shared.remove_pending(number);
        match reply {
            Ok((HelperReply::Failed { errno }, _)) => Err(io::Error::from_raw_os_error(errno)),
            Ok((HelperReply::Refused { reason }, _)) => Err(refused(reason)),
            Ok(reply) => Ok(reply),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the privileged helper did not respond in time",
            )),
        }
    }

    fn request_file(&self, request: DaemonRequest) -> io::Result<OwnedFd> {
        let (_, file) = self.request(request)?;
        file.ok_or_else(|| io::Error::other("the privileged helper sent no file"))
    }
}

fn refused(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

impl SharedState {
    fn send(&self, request: DaemonRequest, waiter: Waiter) -> io::Result<u64> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let bytes = Envelope::encode(number, request.clone());
        self.lock()
            .insert(number, PendingRequest { request, waiter });
        if let Err(error) = self.channel.send(&bytes, &[]) {
            self.remove_pending(number);
            return Err(io::Error::other(error));
        }
        Ok(number)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, PendingRequest>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove_pending(&self, number: u64) -> Option<PendingRequest> {
        self.lock().remove(&number)
    }

    /// Receives replies until the keeper has exited.
    fn receive(&self) {
        while let Ok(Some(message)) = self.channel.receive() {
            let Ok(envelope) = Envelope::<HelperReply>::decode(&message.bytes) else {
                tracing::error!("the privileged helper sent an invalid message");
                continue;
            };
            if envelope.number == NO_REQUEST {
                self.resend_pending();
                continue;
            }
            let Some(pending) = self.remove_pending(envelope.number) else {
                continue;
            };
            let file = message.files.into_iter().next();
            match pending.waiter {
                Waiter::Thread(sender) => drop(sender.send((envelope.body, file))),
                Waiter::Callback(on_exit) => on_exit(match envelope.body {
                    HelperReply::Exit { code } => Ok(code),
                    HelperReply::Failed { errno } => Err(io::Error::from_raw_os_error(errno)),
                    HelperReply::Refused { reason } => Err(refused(reason)),
                    _ => Err(io::Error::other(
                        "the privileged helper sent an unexpected reply",
                    )),
                }),
            }
        }
    }

    /// Resends the requests to which a helper had not replied when it died. The new helper receives a request twice if
    /// it was still in the channel. It does not start a running program again, and the second reply is ignored.
    fn resend_pending(&self) {
        let pending: Vec<(u64, DaemonRequest)> = self
            .lock()
            .iter()
            .map(|(number, pending)| (*number, pending.request.clone()))
            .collect();
        for (number, request) in pending {
            let _ = self.channel.send(&Envelope::encode(number, request), &[]);
        }
    }
}

impl PrivilegedHelper for DaemonClient {
    fn open(&self, path: &Path) -> io::Result<File> {
        let path = path.to_owned();
        self.request_file(DaemonRequest::Open { path })
            .map(File::from)
    }

    fn append(&self, path: &Path) -> io::Result<File> {
        let path = path.to_owned();
        self.request_file(DaemonRequest::Append { path })
            .map(File::from)
    }

    fn list(&self, path: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        let path = path.to_owned();
        let (reply, file) = self.request(DaemonRequest::List { path })?;
        let HelperReply::Entries { is_directory: true } = reply else {
            return Ok(None);
        };
        let file = file.ok_or_else(|| io::Error::other("the privileged helper sent no list"))?;
        Ok(Some(serde_json::from_slice(&read_all(file)?)?))
    }

    fn read_untrusted(&self, path: &Path, owner: Owner, max_bytes: u64) -> Result<String, String> {
        let request = DaemonRequest::Untrusted {
            path: path.to_owned(),
            check_owner: owner == Owner::Expected,
            max_bytes,
        };
        match self.request(request).map_err(|error| error.to_string())? {
            (HelperReply::Text, Some(file)) => {
                let bytes = read_all(file).map_err(|error| error.to_string())?;
                String::from_utf8(bytes).map_err(|_| "it is not valid UTF-8".to_owned())
            }
            (HelperReply::NoText { reason }, _) => Err(reason),
            _ => Err("the privileged helper sent no text".to_owned()),
        }
    }

    fn bind_stream(&self, address: SocketAddr) -> io::Result<OwnedFd> {
        self.request_file(DaemonRequest::Bind { address })
    }

    fn ping_socket(&self, target: &PingTarget) -> io::Result<OwnedFd> {
        let PingTarget {
            to,
            from,
            is_optional,
            interface,
        } = target.clone();
        self.request_file(DaemonRequest::Ping {
            to,
            from,
            is_optional,
            interface,
        })
    }

    fn permits_sections(&self, digest: u64) -> io::Result<()> {
        self.request(DaemonRequest::Sections { digest }).map(drop)
    }

    fn run(&self, program: &Program, on_exit: ExitCallback) -> io::Result<u64> {
        self.shared
            .send(program_request(program.clone()), Waiter::Callback(on_exit))
    }

    fn kill(&self, number: u64) {
        if self.shared.remove_pending(number).is_some() {
            let _ = self.shared.channel.send(
                &Envelope::encode(NO_REQUEST, DaemonRequest::Kill { number }),
                &[],
            );
        }
    }
}

fn program_request(program: Program) -> DaemonRequest {
    match program {
        Program::Check {
            command,
            user,
            address,
            port,
        } => DaemonRequest::Check {
            command,
            user,
            address,
            port,
        },
        Program::Notify {
            command,
            pool,
            server,
            service,
            from,
            to,
            reason,
        } => DaemonRequest::Notify {
            command,
            pool,
            server,
            service,
            from,
            to,
            reason,
        },
        Program::Notifier {
            notifier,
            lines,
            lost,
        } => DaemonRequest::Notifier {
            notifier,
            lines,
            lost,
        },
    }
}

fn read_all(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::from(file);
    io::Seek::rewind(&mut file)?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
