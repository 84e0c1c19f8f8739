//! Implements the daemon's side of the keeper channel: inherited sockets and files, and messages to the keeper.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use weir_engine_host::EngineClient;
use weir_sys::Channel;

use super::message::{ToDaemon, ToKeeper};
use super::root_info::RootInfo;

/// The environment variable with the keeper's process ID. The channel itself is the child's standard input.
pub(super) const KEEPER: &str = "WEIR_KEEPER";

/// Returns the name under which the keeper stores a socket. The service manager does not allow colons in names
/// (sd_notify(3), FDNAME).
pub(super) fn name(kind: &str, address: SocketAddr, number: usize) -> String {
    format!("{kind}/{address}/{number}").replace(':', "~")
}

/// The channel to the keeper. If there is no keeper (in tests), messages are discarded.
#[derive(Debug, Clone, Default)]
pub struct Link {
    channel: Option<Arc<Channel>>,
}

/// The sockets, files and state from the keeper; empty if there is no keeper.
#[derive(Debug, Default)]
pub struct KeeperState {
    /// The channel to the keeper.
    pub link: Link,
    sockets: BTreeMap<String, OwnedFd>,
    /// Prevents another daemon from starting while this process is running.
    _lock: Option<OwnedFd>,
    /// Number of daemon crashes since the keeper started.
    pub restarts: u32,
    /// Cause of the last crash.
    pub last_death: Option<String>,
    /// The handover from the predecessor, if this daemon is a successor.
    pub takeover: Option<Takeover>,
    /// The channel to a privileged helper, which the keeper starts at the first request.
    pub helper: Option<Channel>,
    /// The client of the process that owns the layer 4 engine, which the keeper starts at the first request.
    pub engine: Option<EngineClient>,
    /// The channel to the engine process until privileges are dropped. The client is created only then, because it
    /// starts a thread.
    pub(crate) engine_channel: Option<Channel>,
    /// Whether a data plane was pinned, determined while this process was still privileged.
    pub pinned: bool,
    /// Whether the pins are lost when this process's mount namespace ends, as under `ip netns exec`.
    pub(crate) pins_are_temporary: bool,
    /// Whether the last daemon had dropped its privileges. This daemon must then drop them, too.
    pub confined: bool,
    /// Information from the helper service; `Some` = this process was started unprivileged and has helpers.
    pub root_info: Option<RootInfo>,
    /// Whether the VRRP agent's helper and the announcer, which the keeper starts, read the configuration file
    /// themselves.
    pub reads_file: bool,
}

/// A handover from a daemon to its successor.
#[derive(Debug)]
pub struct Takeover {
    /// The channel to the predecessor.
    pub channel: Channel,
    /// The predecessor's state.
    pub state: File,
}

/// The result of an upgrade.
#[derive(Debug)]
pub enum UpgradeResult {
    /// The successor has taken over.
    Succeeded {
        /// The successor's process ID.
        pid: u32,
        /// The channel to the successor.
        channel: Channel,
    },
    /// This daemon stays active.
    Failed {
        /// The reason.
        reason: String,
    },
}

impl KeeperState {
    /// Connects to the keeper if a keeper started this process; `None` = no keeper started it. After connecting, this
    /// process is killed when the keeper exits.
    ///
    /// # Errors
    /// Fails if the keeper's messages are invalid, or the keeper has exited.
    pub fn from_environment() -> io::Result<Option<Self>> {
        let parent = getppid().map(|pid| pid.as_raw_nonzero().to_string());
        if std::env::var(KEEPER).ok() != parent || parent.is_none() {
            return Ok(None);
        }
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid().map(|pid| pid.as_raw_nonzero().to_string()) != parent {
            return Err(io::Error::other("the keeper has exited"));
        }
        let channel = Channel::from(io::stdin().as_fd().try_clone_to_owned()?);
        // Child processes must not inherit the channel.
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        let mut state = Self::default();
        loop {
            let message = channel.receive().map_err(io::Error::other)?;
            let message = message.ok_or_else(|| io::Error::other("the keeper has exited"))?;
            let mut files = message.files.into_iter();
            match serde_json::from_slice(&message.bytes)? {
                ToDaemon::Socket { name } => {
                    state.sockets.extend(files.next().map(|file| (name, file)))
                }
                ToDaemon::Begin {
                    restarts,
                    last_death,
                    successor,
                    helper,
                    engine,
                    confined,
                    root_info,
                    reads_file,
                } => {
                    state.root_info = root_info;
                    (state.confined, state.reads_file) = (confined, reads_file);
                    state.restarts = restarts;
                    state.last_death = last_death;
                    if helper {
                        state.helper = files.next_back().map(Channel::from);
                    }
                    let mut channel_to_engine = None;
                    if engine {
                        channel_to_engine = files.next_back().map(Channel::from);
                    }
                    state._lock = files.next();
                    let pair = (files.next(), files.next());
                    if let (true, (Some(channel), Some(takeover_state))) = (successor, pair) {
                        state.takeover = Some(Takeover {
                            channel: channel.into(),
                            state: takeover_state.into(),
                        });
                    }
                    state.engine_channel = channel_to_engine;
                    state.link.channel = Some(Arc::new(channel));
                    return Ok(Some(state));
                }
                ToDaemon::Succeeded { .. } | ToDaemon::Failed { .. } => {}
            }
        }
    }

    /// Returns whether a keeper started this process and holds the runtime directory's lock.
    pub(crate) const fn has_keeper(&self) -> bool {
        self.link.channel.is_some()
    }

    /// Returns whether this daemon uses the configuration that was active before, even if the file has changed.
    pub(crate) const fn keeps_configuration(&self) -> bool {
        self.restarts > 0 || self.takeover.is_some()
    }

    /// Removes and returns the sockets of a kind, with their addresses, in order of address and number.
    pub(crate) fn take_sockets(&mut self, kind: &str) -> Vec<(SocketAddr, OwnedFd)> {
        let names: Vec<String> = self.sockets.keys().cloned().collect();
        let mut sockets: Vec<(SocketAddr, usize, OwnedFd)> = Vec::new();
        for name in names {
            let parts: Vec<&str> = name.split('/').collect();
            let [socket_kind, address, number] = parts.as_slice() else {
                continue;
            };
            let address = address.replace('~', ":").parse();
            let (Ok(address), Ok(number)) = (address, number.parse()) else {
                continue;
            };
            if *socket_kind == kind
                && let Some(socket) = self.sockets.remove(&name)
            {
                sockets.push((address, number, socket));
            }
        }
        sockets.sort_by_key(|(address, number, _)| (*address, *number));
        sockets
            .into_iter()
            .map(|(address, _, socket)| (address, socket))
            .collect()
    }

    /// Removes and returns the file that was stored under this name.
    pub(crate) fn take_file(&mut self, name: &str) -> Option<OwnedFd> {
        self.sockets.remove(name)
    }

    /// Reports that the configuration is active. The keeper closes the sockets and files that were not taken.
    pub fn report_ready(&mut self) {
        for name in std::mem::take(&mut self.sockets).into_keys() {
            self.link.send(&ToKeeper::Forget { name }, &[]);
        }
        self.link.send(&ToKeeper::Ready, &[]);
    }
}

impl Link {
    /// Reports that this daemon is exiting before it is ready, with the reason.
    pub fn report_failure(&self, reason: &impl ToString) {
        let reason = reason.to_string();
        self.send(&ToKeeper::Fails { reason }, &[]);
    }

    fn send(&self, message: &ToKeeper, files: &[BorrowedFd<'_>]) {
        let Some(channel) = &self.channel else { return };
        let result = serde_json::to_vec(message).map(|bytes| channel.send(&bytes, files));
        if let Ok(Err(error)) = result {
            tracing::warn!(%error, "failed to send a message to the keeper");
        }
    }

    /// Stores a socket in the keeper.
    pub fn store_socket(
        &self,
        kind: &str,
        address: SocketAddr,
        number: usize,
        socket: BorrowedFd<'_>,
    ) {
        let name = name(kind, address, number);
        self.send(&ToKeeper::Keep { name }, &[socket]);
    }

    /// Removes a socket from the keeper.
    pub fn remove_socket(&self, kind: &str, address: SocketAddr, number: usize) {
        let name = name(kind, address, number);
        self.send(&ToKeeper::Forget { name }, &[]);
    }

    /// Stores a file in the keeper, replacing a previous file with this name. The file must not change afterwards.
    pub(crate) fn store_file(&self, name: &str, file: BorrowedFd<'_>) {
        let name = name.to_owned();
        self.send(&ToKeeper::Keep { name }, &[file]);
    }

    /// Reports whether the recorded configuration has virtual routers.
    pub(crate) fn configure_vrrp(&self, configured: bool) {
        self.send(&ToKeeper::Vrrp { configured }, &[]);
    }

    /// Reports whether the configuration announces VIPs.
    pub(crate) fn configure_announcer(&self, configured: bool) {
        self.send(&ToKeeper::Announce { configured }, &[]);
    }

    /// Removes a file from the keeper.
    pub(crate) fn remove_file(&self, name: &str) {
        let name = name.to_owned();
        self.send(&ToKeeper::Forget { name }, &[]);
    }

    /// Makes the keeper start `program` as the successor, and pass `state` to it. Blocks until the successor is ready
    /// or has failed.
    pub fn upgrade(&self, program: PathBuf, state: BorrowedFd<'_>) -> UpgradeResult {
        let failure = |reason: &str| UpgradeResult::Failed {
            reason: reason.to_owned(),
        };
        let Some(channel) = &self.channel else {
            return failure("this daemon runs without a keeper");
        };
        self.send(&ToKeeper::Upgrade { program }, &[state]);
        loop {
            let message = match channel.receive() {
                Ok(Some(message)) => message,
                Ok(None) => return failure("the keeper has exited"),
                Err(error) => return failure(&error.to_string()),
            };
            match serde_json::from_slice(&message.bytes) {
                Ok(ToDaemon::Succeeded { pid }) => {
                    return match message.files.into_iter().next() {
                        Some(channel) => UpgradeResult::Succeeded {
                            pid,
                            channel: channel.into(),
                        },
                        None => failure("the keeper sent no channel to the successor"),
                    };
                }
                Ok(ToDaemon::Failed { reason }) => return UpgradeResult::Failed { reason },
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_names_are_parsed_by_kind_address_and_number() {
        let mut state = KeeperState::default();
        let socket = || OwnedFd::from(File::open("/dev/null").unwrap());
        let (v4, v6): (SocketAddr, SocketAddr) =
            ("127.0.0.1:80".parse().unwrap(), "[::1]:80".parse().unwrap());
        for (kind, address, number) in [
            ("proxy", v4, 10),
            ("proxy", v4, 2),
            ("proxy", v6, 0),
            ("admin", v4, 0),
        ] {
            let name = name(kind, address, number);
            assert!(!name.contains(':'), "{name}");
            state.sockets.insert(name, socket());
        }
        state.sockets.insert("stray".to_owned(), socket());
        let addresses: Vec<SocketAddr> = state
            .take_sockets("proxy")
            .iter()
            .map(|(address, _)| *address)
            .collect();
        assert_eq!(addresses, [v4, v4, v6]);
        assert_eq!(state.take_sockets("admin").len(), 1);
        assert_eq!(state.sockets.len(), 1);
    }
}
