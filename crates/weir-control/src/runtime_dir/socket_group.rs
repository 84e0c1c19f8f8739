//! The group of the API's socket, where the daemon is not a member of `[node] socket_group`: the helper service sets it,
//! because a service manager cannot know the group.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, chownat, fstat, openat};
use serde::{Deserialize, Serialize};
use weir_sys::connect_to_service;

use super::{NEW_SOCKET, SOCKET};

/// The environment variable with the path of the service's socket.
pub(crate) const SERVICE_VARIABLE: &str = "WEIR_HELPER_SOCKET";

/// How long the service may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The request; the only message of its connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Set the group of this file of the runtime directory to `[node] socket_group`.
    SocketGroup {
        /// Its name.
        name: String,
    },
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It is done.
    Permitted,
    /// It is not permitted, or has failed.
    Refused {
        /// In words.
        reason: String,
    },
}

/// The socket of the service that this process's environment names.
pub(crate) fn service() -> Option<PathBuf> {
    std::env::var_os(SERVICE_VARIABLE)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}

/// Asks the service.
pub(super) fn request(service: &Path, name: &str) -> io::Result<()> {
    let (channel, peer) = connect_to_service(service).map_err(io::Error::other)?;
    if peer.user != 0 {
        return Err(io::Error::other("the helper service is not root"));
    }
    channel
        .set_receive_timeout(Some(TIMEOUT))
        .map_err(io::Error::other)?;
    let name = name.to_owned();
    let bytes = serde_json::to_vec(&Request::SocketGroup { name })?;
    channel.send(&bytes, &[]).map_err(io::Error::other)?;
    let answer = channel.receive().map_err(io::Error::other)?;
    let answer = answer.ok_or_else(|| io::Error::other("the helper service has ended"))?;
    match serde_json::from_slice(&answer.bytes)? {
        Answer::Permitted => Ok(()),
        Answer::Refused { reason } => Err(io::Error::other(reason)),
    }
}

/// Sets the group of a socket of the account in the directory, for the service. Other files are refused: the account
/// can give the name to any of its files, but not to those of others.
pub(crate) fn set(directory: &Path, name: &str, account: u32, group: u32) -> io::Result<()> {
    if ![SOCKET, NEW_SOCKET].contains(&name) {
        return Err(io::Error::other(format!("{name} is not the API's socket")));
    }
    let path = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(rustix::fs::CWD, directory.join(name), path, Mode::empty())?;
    let known = fstat(&file)?;
    let is_socket = FileType::from_raw_mode(known.st_mode) == FileType::Socket;
    if !is_socket || known.st_uid != account || known.st_nlink > 2 {
        return Err(io::Error::other(format!(
            "{name} is not a socket of the account"
        )));
    }
    let group = Some(Gid::from_raw(group));
    Ok(chownat(file.as_fd(), "", None, group, AtFlags::EMPTY_PATH)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_of_the_account_get_the_group() {
        let directory = std::env::temp_dir().join(format!("weir-group-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        let bound = std::os::unix::net::UnixListener::bind(directory.join(SOCKET)).unwrap();
        set(&directory, SOCKET, own, group).unwrap();
        let refused = |name: &str, account: u32| {
            set(&directory, name, account, group)
                .unwrap_err()
                .to_string()
        };
        assert!(refused(SOCKET, own + 1).contains("not a socket of the account"));
        std::fs::write(directory.join(NEW_SOCKET), "x").unwrap();
        assert!(refused(NEW_SOCKET, own).contains("not a socket of the account"));
        std::fs::write(directory.join("state.json"), "x").unwrap();
        assert!(refused("state.json", own).contains("not the API's socket"));
        drop(bound);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
