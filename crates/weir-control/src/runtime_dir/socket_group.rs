//! Sets the group of the API's socket through the helper service.
//!
//! The daemon uses the service if it is not a member of `[node] socket_group`. The service manager cannot set the
//! group, because it does not read the configuration.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, chownat, fstat, openat};
use serde::{Deserialize, Serialize};
use weir_sys::connect_to_service;

/// The environment variable that contains the helper service's socket path.
pub(crate) const SERVICE_VARIABLE: &str = "WEIR_HELPER_SOCKET";

/// Time limit for the service's response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A request to the helper service. A connection carries only one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Set the group of this file in the runtime directory to `[node] socket_group`.
    SocketGroup {
        /// File name.
        name: String,
    },
}

/// The response to a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    /// The group was set.
    Permitted,
    /// The request was rejected or failed.
    Refused {
        /// The error message.
        reason: String,
    },
}

/// Returns the helper service's socket path from this process's environment.
pub(crate) fn service() -> Option<PathBuf> {
    std::env::var_os(SERVICE_VARIABLE)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}

/// Makes the helper service set the group of the socket `name`.
pub(super) fn request(service: &Path, name: &str) -> io::Result<()> {
    let (channel, peer) = connect_to_service(service).map_err(io::Error::other)?;
    if peer.user != 0 {
        return Err(io::Error::other("the helper service does not run as root"));
    }
    channel
        .set_receive_timeout(Some(TIMEOUT))
        .map_err(io::Error::other)?;
    let name = name.to_owned();
    let bytes = serde_json::to_vec(&Request::SocketGroup { name })?;
    channel.send(&bytes, &[]).map_err(io::Error::other)?;
    let response = channel.receive().map_err(io::Error::other)?;
    let response = response.ok_or_else(|| io::Error::other("the helper service has exited"))?;
    match serde_json::from_slice(&response.bytes)? {
        Response::Permitted => Ok(()),
        Response::Refused { reason } => Err(io::Error::other(reason)),
    }
}

/// Sets the group of a socket that the account owns. Rejects other files, because the account can create any file with
/// this name, including a link to a file of another user.
pub(super) fn set(file: &Path, account: u32, group: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = openat(rustix::fs::CWD, file, flags, Mode::empty())?;
    let status = fstat(&socket)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket || status.st_uid != account {
        return Err(io::Error::other(format!(
            "{} is not a socket that the account owns",
            file.display()
        )));
    }
    let group = Some(Gid::from_raw(group));
    Ok(chownat(
        socket.as_fd(),
        "",
        None,
        group,
        AtFlags::EMPTY_PATH,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_of_the_account_get_the_group() {
        let directory = std::env::temp_dir().join(format!("weir-group-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        let path = directory.join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        set(&path, user, group).unwrap();
        let set_error = |path: &Path, account: u32| set(path, account, group).unwrap_err();
        let error = set_error(&path, user + 1).to_string();
        assert!(
            error.contains("not a socket that the account owns"),
            "{error}"
        );
        let file = directory.join("file");
        std::fs::write(&file, "x").unwrap();
        let error = set_error(&file, user).to_string();
        assert!(
            error.contains("not a socket that the account owns"),
            "{error}"
        );
        let link = directory.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let error = set_error(&link, user).to_string();
        assert!(
            error.contains("not a socket that the account owns"),
            "{error}"
        );
        drop(listener);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
