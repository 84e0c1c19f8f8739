//! Runs the helper's loop, which handles one request at a time. Only programs and ping relays run concurrently.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::sync::{Semaphore, mpsc, oneshot};
use weir_sys::privileged::PingTarget;
use weir_sys::untrusted_file::{self, Owner};
use weir_sys::{Channel, guarded_path, privileged, sealed_file};

use super::message::{DaemonRequest, HelperReply, NO_REQUEST};
use super::ping;
use super::policy::Policies;
use super::run::{self, PreparedProgram};
use crate::Error;
use crate::message::Envelope;

/// Maximum number of programs that run at the same time.
const MAX_PROGRAMS: usize = 4096;
/// Maximum number of requests queued in this process; further requests wait in the channel.
const MAX_QUEUED_REQUESTS: usize = 256;

/// Serves a daemon at the other end of the channel until it exits. `configuration` is the file of `weir run`. Must be
/// called inside a tokio runtime.
///
/// # Errors
/// Returns no error: failures are logged and sent as replies.
pub async fn serve_daemon(channel: Channel, configuration: &Path) -> Result<(), Error> {
    let channel = Arc::new(channel);
    let (exits, mut exited_programs) = mpsc::unbounded_channel();
    let mut helper = Helper {
        policies: Policies::new(configuration),
        channel: Arc::clone(&channel),
        running: HashMap::new(),
        pings: Arc::new(Semaphore::new(ping::MAX_RELAYS)),
        exits,
    };
    helper.send(NO_REQUEST, &HelperReply::Started, None);
    let (sender, mut requests) = mpsc::channel(MAX_QUEUED_REQUESTS);
    std::thread::spawn(move || {
        while let Ok(Some(message)) = channel.receive() {
            if sender.blocking_send(message.bytes).is_err() {
                return;
            }
        }
    });
    loop {
        tokio::select! {
            bytes = requests.recv() => match bytes {
                Some(bytes) => match Envelope::<DaemonRequest>::decode(&bytes) {
                    Ok(envelope) => helper.handle(envelope.number, envelope.body),
                    Err(error) => tracing::error!(%error, "refused an invalid request from the daemon"),
                },
                None => return Ok(()),
            },
            Some((number, reply)) = exited_programs.recv() => {
                helper.running.remove(&number);
                helper.send(number, &reply, None);
            }
        }
    }
}

struct Helper {
    policies: Policies,
    channel: Arc<Channel>,
    /// Running programs by request number. Dropping a sender kills the program.
    running: HashMap<u64, oneshot::Sender<()>>,
    /// One permit for each relayed socket.
    pings: Arc<Semaphore>,
    /// Sends a reply for each program that exits.
    exits: mpsc::UnboundedSender<(u64, HelperReply)>,
}

/// The result of a request that the helper replies to immediately.
type ImmediateReply = Result<(HelperReply, Option<OwnedFd>), Failure>;

enum Failure {
    Kernel(io::Error),
    Refused(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Kernel(error)
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Self::Kernel(error.into())
    }
}

fn refusal(action: &str, object: &dyn std::fmt::Display) -> Failure {
    Failure::Refused(format!(
        "the configuration file does not permit the daemon to {action} {object}"
    ))
}

impl Helper {
    fn handle(&mut self, number: u64, request: DaemonRequest) {
        let result = match request {
            DaemonRequest::Kill { number } => {
                self.running.remove(&number);
                return;
            }
            DaemonRequest::Check { .. }
            | DaemonRequest::Notify { .. }
            | DaemonRequest::Notifier { .. } => match self.prepare_program(&request) {
                Ok(program) => return self.start(number, program),
                Err(failure) => Err(failure),
            },
            other => self.reply_to(other),
        };
        match result {
            Ok((reply, file)) => self.send(number, &reply, file),
            // An error from this process has no errno.
            Err(Failure::Kernel(error)) if error.raw_os_error().is_none() => {
                let reason = error.to_string();
                tracing::error!(reason, "refused a request from the daemon");
                self.send(number, &HelperReply::Refused { reason }, None);
            }
            Err(Failure::Kernel(error)) => {
                let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                self.send(number, &HelperReply::Failed { errno }, None);
            }
            Err(Failure::Refused(reason)) => {
                tracing::error!(reason, "refused a request from the daemon");
                self.send(number, &HelperReply::Refused { reason }, None);
            }
        }
    }

    fn reply_to(&mut self, request: DaemonRequest) -> ImmediateReply {
        let reply_with = |file: OwnedFd| Ok((HelperReply::File, Some(file)));
        match request {
            DaemonRequest::Open { path } => {
                let is_permitted = self.policies.is_configuration(&path)
                    || self
                        .policies
                        .permits(|policy| policy.permits_reading(&path));
                if !is_permitted {
                    return Err(refusal("read", &path.display()));
                }
                reply_with(open_regular(&path)?.into())
            }
            DaemonRequest::Append { path } => {
                if !self
                    .policies
                    .permits(|policy| policy.permits_appending(&path))
                {
                    return Err(refusal("write", &path.display()));
                }
                reply_with(guarded_path::append(&path)?.into())
            }
            DaemonRequest::List { .. } | DaemonRequest::Untrusted { .. } => self.read(request),
            DaemonRequest::Bind { address } => {
                if !self
                    .policies
                    .permits(|policy| policy.permits_binding(address))
                {
                    return Err(refusal("listen on", &address));
                }
                reply_with(privileged::bind_stream_without_helper(address)?)
            }
            DaemonRequest::Ping {
                to,
                from,
                is_optional,
                interface,
            } => {
                if !self.policies.permits(|policy| policy.permits_ping(to)) {
                    return Err(refusal("send echo requests to", &to));
                }
                reply_with(ping::relay(
                    &PingTarget {
                        to,
                        from,
                        is_optional,
                        interface,
                    },
                    &self.pings,
                )?)
            }
            DaemonRequest::Sections { digest } => {
                if !self
                    .policies
                    .permits(|policy| policy.permits_sections(digest))
                {
                    let sections =
                        "these virtual routers or announcements: change the file, and reload it";
                    return Err(refusal("use", &sections));
                }
                Ok((HelperReply::Permitted, None))
            }
            DaemonRequest::Check { .. }
            | DaemonRequest::Notify { .. }
            | DaemonRequest::Notifier { .. }
            | DaemonRequest::Kill { .. } => Err(Errno::INVAL.into()),
        }
    }

    /// Handles a request for the content of a file or directory.
    fn read(&mut self, request: DaemonRequest) -> ImmediateReply {
        match request {
            DaemonRequest::List { path } => {
                if !self
                    .policies
                    .permits(|policy| policy.permits_listing(&path))
                {
                    return Err(refusal("list", &path.display()));
                }
                let entries = privileged::list_without_helper(&path)?;
                let is_directory = entries.is_some();
                let text =
                    serde_json::to_vec(&entries.unwrap_or_default()).map_err(io::Error::other)?;
                Ok((
                    HelperReply::Entries { is_directory },
                    Some(sealed_file("weir-list", &text)?),
                ))
            }
            DaemonRequest::Untrusted {
                path,
                check_owner,
                max_bytes,
            } => {
                if !self
                    .policies
                    .permits(|policy| policy.permits_reading(&path))
                {
                    return Err(refusal("read", &path.display()));
                }
                let owner = if check_owner {
                    Owner::Expected
                } else {
                    Owner::Any
                };
                match untrusted_file::read(&path, owner, max_bytes) {
                    Ok(text) => Ok((
                        HelperReply::Text,
                        Some(sealed_file("weir-text", text.as_bytes())?),
                    )),
                    Err(reason) => Ok((HelperReply::NoText { reason }, None)),
                }
            }
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Prepares the program of a request, if the policy permits it.
    fn prepare_program(&mut self, request: &DaemonRequest) -> Result<PreparedProgram, Failure> {
        if self.running.len() >= MAX_PROGRAMS {
            return Err(Errno::AGAIN.into());
        }
        let prepared = match request {
            DaemonRequest::Check {
                command,
                user,
                address,
                port,
            } => {
                if !self
                    .policies
                    .permits(|policy| policy.permits_check(command, user))
                {
                    let program = format!("{command:?} as {user}");
                    return Err(refusal("run", &program));
                }
                run::prepare_check(command, user, *address, *port)
            }
            DaemonRequest::Notify {
                command,
                pool,
                server,
                service,
                from,
                to,
                reason,
            } => {
                if !self
                    .policies
                    .permits(|policy| policy.permits_notify(pool, command))
                {
                    let program = format!("{command:?} for pool {pool:?}");
                    return Err(refusal("run", &program));
                }
                let values = [
                    ("WEIR_POOL", pool.as_str()),
                    ("WEIR_SERVER", server),
                    ("WEIR_SERVICE", service),
                    ("WEIR_FROM", from),
                    ("WEIR_TO", to),
                    ("WEIR_REASON", reason),
                ];
                run::prepare_notification(command, &values)
            }
            DaemonRequest::Notifier {
                notifier,
                lines,
                lost,
            } => {
                let program = self.policies.find(|policy| policy.notifier(notifier));
                let Some(program) = program else {
                    let program = format!("a program of notifier {notifier:?}");
                    return Err(refusal("run", &program));
                };
                run::prepare_notifier(notifier, &program, lines, *lost)
            }
            _ => return Err(Errno::INVAL.into()),
        };
        prepared.map_err(Failure::Refused)
    }

    fn start(&mut self, number: u64, program: PreparedProgram) {
        // A request that was still in the channel when the daemon resent it arrives twice.
        if self.running.contains_key(&number) {
            return;
        }
        let (kill, killed) = oneshot::channel();
        self.running.insert(number, kill);
        let exits = self.exits.clone();
        tokio::spawn(async move {
            let reply = run::run(program, killed).await;
            let _ = exits.send((number, reply));
        });
    }

    /// Sends a reply. Errors are only logged, because the reader detects that the daemon has exited.
    fn send(&self, number: u64, reply: &HelperReply, file: Option<OwnedFd>) {
        let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        let bytes = Envelope::encode(number, reply.clone());
        if let Err(error) = self.channel.send(&bytes, &files) {
            tracing::debug!(%error, "failed to send a reply");
        }
    }
}

/// Opens a regular file. Rejects other kinds of files: opening a device or pipe could block or have side effects.
fn open_regular(path: &Path) -> io::Result<File> {
    let file = guarded_path::open(path, OFlags::NONBLOCK)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(Errno::INVAL.into())
    }
}
