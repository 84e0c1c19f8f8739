//! Implements the keeper's side of the helper service.
//!
//! Requests are sent to the service, and the keeper reconnects when the service is restarted.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use weir_sys::{Channel, connect_to_service};

use super::message::{FromService, ToService, VERSION};
use crate::keeper::announcer;
use crate::keeper::error::Error;
use crate::keeper::helper::{Kind, is_closed};
use crate::keeper::root_info::RootInfo;
use crate::runtime_dir;

/// Time limit for a connection to the service, which may be restarted, and then for its response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for stopping virtual routers and announcements. The service stops both at the same time; stopping the
/// announcer can take longer.
const STOP_TIMEOUT: Duration = announcer::EXIT_TIMEOUT.saturating_add(Duration::from_secs(10));
/// Interval between attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A daemon's helper, which must be reported to a new service.
struct HelperEntry {
    kind: Kind,
    program: PathBuf,
    channel: OwnedFd,
}

#[derive(Default)]
struct State {
    /// The channel to the service; `None` = the service is being restarted.
    channel: Option<Arc<Channel>>,
    helpers: Vec<HelperEntry>,
    vrrp: Option<PathBuf>,
    announce: Option<PathBuf>,
    /// The destination of the response to the current request.
    reply_to: Option<mpsc::Sender<(FromService, Vec<OwnedFd>)>>,
}

/// A connection to the service, which is re-established when it is lost.
pub(in crate::keeper) struct ServiceClient {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for ServiceClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = &self.path;
        formatter
            .debug_struct("ServiceClient")
            .field("path", path)
            .finish_non_exhaustive()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a message. Ignores errors: if the service has exited, the receiving thread reconnects and sends the state
/// again.
fn send(channel: &Channel, message: &ToService, files: &[BorrowedFd<'_>]) {
    let result = serde_json::to_vec(message).map(|bytes| channel.send(&bytes, files));
    if let Ok(Err(error)) = result {
        tracing::debug!(%error, "failed to send a message to the helper service");
    }
}

fn connect(path: &Path) -> Result<Channel, String> {
    let (channel, peer) = connect_to_service(path).map_err(|error| error.to_string())?;
    if peer.user != 0 {
        let user = peer.user;
        return Err(format!(
            "{}: the helper service must run as root, not as user {user}",
            path.display()
        ));
    }
    send(&channel, &ToService::Keeper { version: VERSION }, &[]);
    Ok(channel)
}

/// Asks the helper service or a keeper at the socket `path` to permit a program. Does nothing if this process is not
/// root, or if it cannot connect to the socket.
///
/// # Errors
/// Returns a message if the process rejects the request, or sends no valid response in time.
pub fn permit(path: &Path, program: &Path) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let Ok((channel, _)) = connect_to_service(path) else {
        return Ok(());
    };
    let result = channel.set_receive_timeout(Some(REQUEST_TIMEOUT));
    result.map_err(|error| error.to_string())?;
    let program = program.to_owned();
    send(&channel, &ToService::Permit { program }, &[]);
    match channel.receive() {
        Ok(Some(message)) => match serde_json::from_slice(&message.bytes) {
            Ok(FromService::Permitted) => Ok(()),
            Ok(FromService::Refused { reason }) => Err(reason),
            Ok(_) | Err(_) => Err(format!("invalid response at {}", path.display())),
        },
        Ok(None) => Err(format!("the process at {} has exited", path.display())),
        Err(error) => Err(error.to_string()),
    }
}

impl ServiceClient {
    /// Connects to the service at `path`, and starts a thread that receives responses.
    ///
    /// # Errors
    /// Fails if no service that runs as root can be reached within [`REQUEST_TIMEOUT`].
    pub(in crate::keeper) fn connect(path: &Path) -> Result<Self, Error> {
        let started = Instant::now();
        let channel = loop {
            match connect(path) {
                Ok(channel) => break channel,
                Err(reason) if started.elapsed() > REQUEST_TIMEOUT => {
                    return Err(Error::Service { reason });
                }
                Err(_) => std::thread::sleep(RETRY_INTERVAL),
            }
        };
        let channel = Arc::new(channel);
        let state = Arc::new(Mutex::new(State {
            channel: Some(Arc::clone(&channel)),
            ..State::default()
        }));
        let client = Self {
            path: path.to_owned(),
            state: Arc::clone(&state),
        };
        let path = path.to_owned();
        std::thread::spawn(move || {
            let mut channel = channel;
            loop {
                receive(&channel, &state);
                tracing::warn!("the helper service has exited; waiting for the next one");
                channel = reconnect(&path, &state);
                tracing::info!("connected to a new helper service");
            }
        });
        Ok(client)
    }

    /// Sends a request and returns the response. Blocks for at most twice [`REQUEST_TIMEOUT`].
    fn request(&self, request: &ToService) -> Result<(FromService, Vec<OwnedFd>), String> {
        let (sender, response) = mpsc::channel();
        let started = Instant::now();
        loop {
            let mut state = lock(&self.state);
            if let Some(channel) = state.channel.clone() {
                state.reply_to = Some(sender);
                drop(state);
                send(&channel, request, &[]);
                break;
            }
            drop(state);
            if started.elapsed() > REQUEST_TIMEOUT {
                return Err("the helper service is not running".to_owned());
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
        match response.recv_timeout(REQUEST_TIMEOUT) {
            Ok((FromService::Refused { reason }, _)) => Err(reason),
            Ok(response) => Ok(response),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err("the helper service has exited".to_owned())
            }
            Err(mpsc::RecvTimeoutError::Timeout) => Err(
                "the helper service did not respond in time; another keeper may be connected to it"
                    .to_owned(),
            ),
        }
    }

    /// Acquires the runtime directory's lock. The service prepares the directory.
    ///
    /// # Errors
    /// Fails if another process holds the lock, the directory cannot be used, or the service does not respond in time.
    pub(in crate::keeper) fn lock(&self) -> Result<OwnedFd, Error> {
        let unexpected = || Error::Service {
            reason: "the helper service sent an invalid response".to_owned(),
        };
        match self.request(&ToService::Lock) {
            Ok((FromService::Locked, files)) => files.into_iter().next().ok_or_else(unexpected),
            Ok((FromService::Held { holder }, _)) => {
                Err(Error::RuntimeDir(runtime_dir::Error::Running { holder }))
            }
            Ok(_) => Err(unexpected()),
            Err(reason) => Err(Error::Service { reason }),
        }
    }

    /// Returns the information that only root can determine, for a daemon that runs this program.
    ///
    /// # Errors
    /// Returns a message if root has not permitted the program or the service did not respond in time.
    pub(in crate::keeper) fn root_info(&self, program: &Path) -> Result<RootInfo, String> {
        let program = program.to_owned();
        match self.request(&ToService::RootInfo { program })? {
            (FromService::RootInfo(root_info), _) => Ok(root_info),
            _ => Err("the helper service sent an invalid response".to_owned()),
        }
    }

    /// Returns the daemon's end of the channel to a helper that runs `program`.
    ///
    /// # Errors
    /// Fails if the open-file limit is reached.
    pub(in crate::keeper) fn start_helper(
        &self,
        kind: Kind,
        program: &Path,
    ) -> Result<OwnedFd, Error> {
        let (service_end, daemon_end) = Channel::pair()?;
        let mut state = lock(&self.state);
        state.helpers.retain(|entry| !is_closed(&entry.channel));
        let entry = HelperEntry {
            kind,
            program: program.to_owned(),
            channel: service_end.into(),
        };
        if let Some(channel) = &state.channel {
            entry.send(channel, false);
        }
        state.helpers.push(entry);
        Ok(daemon_end.into())
    }

    /// Sends [`ToService::Vrrp`].
    pub(in crate::keeper) fn configure_vrrp(&self, configured: bool, program: &Path) {
        let program = program.to_owned();
        let mut state = lock(&self.state);
        state.vrrp = configured.then(|| program.clone());
        if let Some(channel) = &state.channel {
            let message = ToService::Vrrp {
                configured,
                program,
            };
            send(channel, &message, &[]);
        }
    }

    /// Sends [`ToService::Announce`].
    pub(in crate::keeper) fn configure_announcer(&self, configured: bool, program: &Path) {
        let program = program.to_owned();
        let mut state = lock(&self.state);
        state.announce = configured.then(|| program.clone());
        if let Some(channel) = &state.channel {
            let message = ToService::Announce {
                configured,
                program,
            };
            send(channel, &message, &[]);
        }
    }

    /// Makes the service stop virtual routers and announcements. Returns a handle that waits for this.
    pub(in crate::keeper) fn stop(&self) -> StopHandle {
        let (sender, response) = mpsc::channel();
        let mut state = lock(&self.state);
        (state.vrrp, state.announce) = (None, None);
        state.reply_to = Some(sender);
        if let Some(channel) = &state.channel {
            send(channel, &ToService::Stop, &[]);
        } else {
            state.reply_to = None;
        }
        StopHandle { response }
    }
}

/// A handle that waits until virtual routers and announcements have stopped; see [`ServiceClient::stop`].
#[derive(Debug)]
pub(in crate::keeper) struct StopHandle {
    response: mpsc::Receiver<(FromService, Vec<OwnedFd>)>,
}

impl StopHandle {
    /// Blocks until virtual routers and announcements have stopped, the service has exited, or [`STOP_TIMEOUT`] has
    /// expired.
    pub(in crate::keeper) fn wait(self) {
        let _ = self.response.recv_timeout(STOP_TIMEOUT);
    }
}

impl HelperEntry {
    fn send(&self, channel: &Channel, is_needed: bool) {
        let message = ToService::StartHelper {
            kind: self.kind,
            program: self.program.clone(),
            is_needed,
        };
        send(channel, &message, &[self.channel.as_fd()]);
    }
}

/// Receives responses until the service has exited.
fn receive(channel: &Channel, state: &Mutex<State>) {
    while let Ok(Some(message)) = channel.receive() {
        match serde_json::from_slice(&message.bytes) {
            Ok(response) => {
                let reply_to = lock(state).reply_to.take();
                if let Some(reply_to) = reply_to {
                    // Ignore errors, because the request may have timed out.
                    let _ = reply_to.send((response, message.files));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "received an invalid message from the helper service")
            }
        }
    }
    let mut state = lock(state);
    state.channel = None;
    state.reply_to = None;
}

/// Connects to the next service, and reports the running processes to it.
fn reconnect(path: &Path, state: &Mutex<State>) -> Arc<Channel> {
    let channel = loop {
        std::thread::sleep(RETRY_INTERVAL);
        match connect(path) {
            Ok(channel) => break Arc::new(channel),
            Err(reason) => tracing::debug!(reason, "the helper service is not running"),
        }
    };
    let mut state = lock(state);
    state.helpers.retain(|entry| !is_closed(&entry.channel));
    for entry in &state.helpers {
        entry.send(&channel, true);
    }
    if let Some(program) = state.vrrp.clone() {
        let message = ToService::Vrrp {
            configured: true,
            program,
        };
        send(&channel, &message, &[]);
    }
    if let Some(program) = state.announce.clone() {
        let message = ToService::Announce {
            configured: true,
            program,
        };
        send(&channel, &message, &[]);
    }
    state.channel = Some(Arc::clone(&channel));
    drop(state);
    channel
}
