//! Implements `weir helper --service`, which starts the privileged processes for an unprivileged keeper.
//!
//! A service manager runs the keeper unprivileged. The keeper holds descriptors and restarts the daemon. Neither task
//! requires privileges. This service starts the processes that need privileges: the helpers of daemons, the VRRP agent
//! with its helper, and the announcer. It reads no data from clients. It executes only one kind of request from the
//! daemon: to set the group of the API's socket. The helpers execute the others. Each helper enforces a policy that it
//! reads from root's files.
//!
//! The keeper connects to a socket that only root can create, and each side obtains the identity of the other from the
//! kernel. The service serves one keeper at a time; other keepers wait. A keeper specifies the programs to start as
//! root. It may specify only this service's own program and programs that root has permitted with `weir upgrade`.
//!
//! When this process dies, its helpers die with it. The keeper keeps the channels open, and the next service connects
//! new helpers to them.

mod client;
mod message;
mod permitted;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use weir_engine::Paths;
use weir_model::Desired;
use weir_runtime_dir::ACCOUNT;
use weir_sys::{Channel, Message, Notification, Notifier, Peer, ServiceSocket};

use super::announcer::Announcer;
use super::error::Error;
use super::helper;
use super::root_info::RootInfo;
use super::vrrp::VrrpProcesses;
use crate::runtime_dir::{self, RuntimeDir, socket_group};
use message::{FromService, ToService, VERSION};
use permitted::{Permitted, SharedPermitted, permit_program};

pub(super) use client::{ServiceClient, StopHandle};
pub(super) use permitted::PermitSocket;

pub use client::permit;

/// Time limit for a client's first message.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of connections from users other than root that have not sent their first message; further connections
/// are closed. Connections from root are not limited.
const MAX_PENDING: usize = 32;
/// Maximum number of keepers that are waiting for another keeper to exit; further keepers are rejected.
const MAX_WAITING: usize = 4;
/// Maximum number of queued messages from a keeper; further messages wait in the channel.
const MAX_RECEIVED: usize = 64;
/// Pause after an error from accept(2).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket that the package's systemd units use.
pub const SOCKET: &str = "/run/weir-helper/socket";

/// Returns the helper service's socket path from this process's environment.
pub fn configured_socket() -> Option<PathBuf> {
    socket_group::service()
}

/// The state of the thread that accepts connections.
#[derive(Debug, Clone)]
struct Acceptor {
    /// The keepers' user ID.
    user: u32,
    permitted: SharedPermitted,
    configuration: PathBuf,
    runtime_dir: PathBuf,
    /// Number of connections from users other than root that have not sent their first message.
    pending: Arc<AtomicUsize>,
}

/// A keeper that has connected.
struct Client {
    channel: Channel,
    peer: Peer,
}

/// Serves keepers at the socket, one after another, until SIGTERM or SIGINT. `configuration` is the configuration file
/// of `weir run`. Must be called inside a tokio runtime, by a thread that lives as long as the process.
///
/// # Errors
/// Fails if this process is not root, there is no account for the keeper, or the socket cannot be created.
pub async fn serve(socket: &Path, configuration: &Path, paths: &Paths) -> Result<(), Error> {
    let to_error = |reason: &str| Error::Service {
        reason: reason.to_owned(),
    };
    if !rustix::process::geteuid().is_root() {
        return Err(to_error("the helper service must run as root"));
    }
    let Some((user, group)) = weir_sys::account(ACCOUNT) else {
        return Err(to_error(
            "the account weir, which the keeper uses, does not exist",
        ));
    };
    if let Err(error) = weir_sys::raise_nofile() {
        tracing::warn!(%error, "failed to raise the open-file limit: the number of helpers is limited");
    }
    let watch_signal = |kind| signal(kind).map_err(|source| Error::Signals { source });
    let (mut terminate, mut interrupt) = (
        watch_signal(SignalKind::terminate())?,
        watch_signal(SignalKind::interrupt())?,
    );
    let permitted = Arc::new(Mutex::new(Permitted::new()?));
    let listener = ServiceSocket::listen(socket, group)?;
    let (sender, mut clients) = mpsc::channel(MAX_WAITING);
    let acceptor = Acceptor {
        user,
        permitted: Arc::clone(&permitted),
        configuration: configuration.to_owned(),
        runtime_dir: paths.runtime_dir.clone(),
        pending: Arc::default(),
    };
    std::thread::spawn(move || acceptor.accept(&listener, &sender));
    if let Err(error) = Notifier::from_env()?.send(Notification::Ready) {
        tracing::warn!(%error, "failed to notify the service manager");
    }
    tracing::info!(socket = %socket.display(), "running");
    loop {
        let client = tokio::select! {
            client = clients.recv() => client,
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
        };
        let Some(client) = client else { return Ok(()) };
        let mut session = Session::new(client, configuration, paths, &permitted);
        let must_exit = session.run(&mut terminate, &mut interrupt).await;
        session.end(must_exit).await;
        if must_exit {
            return Ok(());
        }
    }
}

impl Acceptor {
    /// Accepts connections. Passes keepers to `clients`, and executes requests from other clients.
    fn accept(&self, listener: &ServiceSocket, clients: &mpsc::Sender<Client>) {
        loop {
            let (channel, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    std::thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            let is_counted = peer.user != 0;
            if is_counted && self.pending.load(Ordering::Relaxed) >= MAX_PENDING {
                continue;
            }
            let (acceptor, clients) = (self.clone(), clients.clone());
            self.pending
                .fetch_add(usize::from(is_counted), Ordering::Relaxed);
            let spawned = std::thread::Builder::new().spawn(move || {
                let client = acceptor.read_first_message(channel, peer);
                acceptor.end_pending(is_counted);
                if let Some(Err(error)) = client.map(|client| clients.try_send(client)) {
                    let reason = "too many keepers are waiting".to_owned();
                    let client = error.into_inner();
                    send(&client.channel, &FromService::Refused { reason }, &[]);
                }
            });
            if let Err(error) = spawned {
                tracing::warn!(%error, "failed to serve a connection");
                self.end_pending(is_counted);
            }
        }
    }

    /// Records that a connection is no longer waiting for its first message.
    fn end_pending(&self, is_counted: bool) {
        self.pending
            .fetch_sub(usize::from(is_counted), Ordering::Relaxed);
    }

    /// Reads a connection's first message. Returns the client if it is a keeper; executes other clients' requests.
    fn read_first_message(&self, channel: Channel, peer: Peer) -> Option<Client> {
        let Peer { process, user } = peer;
        channel
            .set_receive_timeout(Some(FIRST_MESSAGE_TIMEOUT))
            .ok()?;
        let message = channel.receive().ok()??;
        if user == self.user
            && let Ok(socket_group::Request::SocketGroup { name }) =
                serde_json::from_slice(&message.bytes)
        {
            send(&channel, &self.set_socket_group(&name), &[]);
            return None;
        }
        let reply = match serde_json::from_slice(&message.bytes) {
            Ok(ToService::Keeper { version: VERSION }) if user == self.user => {
                channel.set_receive_timeout(None).ok()?;
                return Some(Client { channel, peer });
            }
            Ok(ToService::Permit { program }) if user == 0 => {
                permit_program(&self.permitted, &program)
            }
            Ok(ToService::Keeper { version }) if user == self.user => {
                let reason =
                    format!("the helper service does not support protocol version {version}");
                FromService::Refused { reason }
            }
            Ok(_) | Err(_) => {
                tracing::error!(process, user, "refused a connection");
                let reason = format!("user {user} is not permitted to request this");
                FromService::Refused { reason }
            }
        };
        send(&channel, &reply, &[]);
        None
    }

    /// Sets the group of the API's socket to the group in root's configuration.
    fn set_socket_group(&self, name: &str) -> socket_group::Response {
        let reject = |reason: String| {
            tracing::error!(reason, "refused a request from the daemon");
            socket_group::Response::Refused { reason }
        };
        let desired = read_desired(&self.configuration);
        let group = desired.and_then(|desired| desired.node.socket_group);
        let Some(group) = group.and_then(|group| weir_sys::names::group_id(&group)) else {
            return reject(
                "the configuration file is unusable or sets no socket_group, or the group does not exist"
                    .to_owned(),
            );
        };
        match RuntimeDir::set_socket_group(&self.runtime_dir, name, self.user, group) {
            Ok(()) => socket_group::Response::Permitted,
            Err(error) => reject(error.to_string()),
        }
    }
}

fn send(channel: &Channel, reply: &impl Serialize, files: &[BorrowedFd<'_>]) {
    let result = serde_json::to_vec(reply).map(|bytes| channel.send(&bytes, files));
    if let Ok(Err(error)) = result {
        tracing::debug!(%error, "failed to send a message to the keeper");
    }
}

/// Serves one keeper.
struct Session {
    channel: Arc<Channel>,
    peer: Peer,
    received: mpsc::Receiver<Message>,
    permitted: SharedPermitted,
    configuration: PathBuf,
    paths: Paths,
    /// The supervised processes; `None` = all have exited.
    running: Option<(VrrpProcesses, Announcer)>,
    /// Whether the keeper has requested that the processes be stopped.
    is_stopped: bool,
}

impl Session {
    fn new(
        Client { channel, peer }: Client,
        configuration: &Path,
        paths: &Paths,
        permitted: &SharedPermitted,
    ) -> Self {
        let channel = Arc::new(channel);
        let (sender, received) = mpsc::channel(MAX_RECEIVED);
        let reader = Arc::clone(&channel);
        // The thread ends when the keeper exits.
        std::thread::spawn(move || {
            while let Ok(Some(message)) = reader.receive() {
                if sender.blocking_send(message).is_err() {
                    return;
                }
            }
        });
        tracing::info!(process = peer.process, "a keeper has connected");
        let vrrp = VrrpProcesses::new(&paths.runtime_dir, configuration);
        // The daemon is unprivileged from the start.
        vrrp.confine();
        Self {
            channel,
            peer,
            received,
            permitted: Arc::clone(permitted),
            configuration: configuration.to_owned(),
            paths: paths.clone(),
            running: Some((vrrp, Announcer::new(&paths.runtime_dir, configuration))),
            is_stopped: false,
        }
    }

    /// Serves the keeper. Returns whether this process must exit.
    async fn run(&mut self, terminate: &mut Signal, interrupt: &mut Signal) -> bool {
        loop {
            let message = tokio::select! {
                message = self.received.recv() => message,
                _ = terminate.recv() => return true,
                _ = interrupt.recv() => return true,
            };
            let Some(Message { bytes, files }) = message else {
                return false;
            };
            match serde_json::from_slice(&bytes) {
                Ok(request) => self.handle(request, files).await,
                Err(error) => tracing::error!(%error, "refused an invalid request from the keeper"),
            }
        }
    }

    fn check(&self, program: &Path) -> Result<PathBuf, String> {
        let result = permitted::check(&self.permitted, program);
        if let Err(reason) = &result {
            tracing::error!(reason, "refused a request from the keeper");
        }
        result
    }

    async fn handle(&mut self, request: ToService, files: Vec<OwnedFd>) {
        match request {
            ToService::Keeper { .. } | ToService::Permit { .. } => {
                tracing::error!("refused an out-of-sequence request from the keeper");
            }
            ToService::Lock => self.lock(),
            ToService::RootInfo { program } => {
                let reply = match self.check(&program) {
                    Ok(_) => FromService::RootInfo(self.root_info()),
                    Err(reason) => FromService::Refused { reason },
                };
                send(&self.channel, &reply, &[]);
            }
            ToService::StartHelper {
                kind,
                program,
                is_needed,
            } => {
                // If the request is rejected, dropping the channel closes it.
                if let Some(channel) = files.into_iter().next()
                    && let Ok(program) = self.check(&program)
                {
                    let configuration = &self.configuration;
                    helper::supervise_channel(
                        kind,
                        &program,
                        configuration,
                        &self.paths,
                        channel,
                        is_needed,
                    );
                }
            }
            ToService::Vrrp {
                configured,
                program,
            } => {
                if let Some((vrrp, _)) = &self.running
                    && let Ok(program) = self.check(&program)
                {
                    vrrp.configure(configured, &program);
                }
            }
            ToService::Announce {
                configured,
                program,
            } => {
                if let Some((_, announcer)) = &self.running
                    && let Ok(program) = self.check(&program)
                {
                    announcer.configure(configured, &program);
                }
            }
            ToService::Stop => {
                self.is_stopped = true;
                self.shut_down_processes().await;
                send(&self.channel, &FromService::Stopped, &[]);
            }
        }
    }

    /// Acquires the runtime directory's lock for the keeper, and lets the account write files in the directory.
    fn lock(&self) {
        let directory = &self.paths.runtime_dir;
        // If a keeper was killed, the account may still own the directory.
        weir_runtime_dir::return_to_root(directory);
        let (reply, lock) = match RuntimeDir::lock_for(directory, self.peer.process) {
            Ok(lock) => (FromService::Locked, Some(lock)),
            Err(runtime_dir::Error::Running { holder }) => (FromService::Held { holder }, None),
            Err(error) => {
                let reason = error.to_string();
                (FromService::Refused { reason }, None)
            }
        };
        if lock.is_some() {
            let desired = read_desired(&self.configuration);
            let has_group_access =
                desired.is_some_and(|desired| desired.node.socket_group.is_some());
            weir_runtime_dir::share_from_start(directory, has_group_access);
        }
        let files: Vec<_> = lock.iter().map(AsFd::as_fd).collect();
        send(&self.channel, &reply, &files);
    }

    fn root_info(&self) -> RootInfo {
        let desired = read_desired(&self.configuration).unwrap_or_default();
        let routes = desired.proxies.iter().flat_map(|proxy| &proxy.routes);
        let files = routes.filter_map(weir_model::Route::files);
        RootInfo {
            pinned: weir_engine::is_pinned(&self.paths),
            readable: files.map(|files| PathBuf::from(&files.root)).collect(),
        }
    }

    async fn shut_down_processes(&mut self) {
        if let Some((vrrp, announcer)) = self.running.take() {
            announcer.stop();
            vrrp.stop();
            announcer.shutdown().await;
            vrrp.shutdown().await;
        }
    }

    /// Ends the session. If `must_exit` is set, this process must exit and the keeper waits for the next service;
    /// otherwise the keeper has exited.
    async fn end(mut self, must_exit: bool) {
        if !self.is_stopped
            && let Some((vrrp, announcer)) = self.running.take()
        {
            // The announcer withdraws its routes itself if no keeper follows.
            announcer.detach();
            vrrp.shutdown().await;
        }
        if !must_exit {
            tracing::info!(process = self.peer.process, "the keeper has exited");
            // An earlier version rejects a directory that another account owns.
            weir_runtime_dir::return_to_root(&self.paths.runtime_dir);
        }
    }
}

/// Returns root's configuration; `None` = it cannot be read or is invalid. The daemon reports the errors.
fn read_desired(configuration: &Path) -> Option<Desired> {
    let text = match weir_helper::read_trusted(configuration) {
        Ok(text) => text,
        Err(error) => {
            tracing::warn!(%error, "failed to read the configuration file for the helper service");
            return None;
        }
    };
    let parsed = weir_helper::parse(&text, &weir_helper::Environment);
    if let Err(reason) = &parsed {
        tracing::warn!(
            reason,
            "the helper service ignores the invalid configuration file"
        );
    }
    parsed.ok()
}
