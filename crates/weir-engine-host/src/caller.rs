//! Decides who may edit ipvsadm's services: root, and members of `socket_group` if `socket_mode` permits it.
//!
//! The daemon passes the client's socket, and the kernel reports who connected it (SO_PEERCRED). A compromised daemon
//! could pass a socket of its own, so the daemon's account is rejected, whatever groups it has. For a socket that the
//! daemon connected itself, the kernel reports the listening process, which may be root's
//! (`/run/systemd/journal/stdout`, a system bus). Therefore the socket must have been accepted by the API's socket: it
//! has the name of the API's socket, and its peer has no name.

use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::{fs, io};

use rustix::net::sockopt::{socket_domain, socket_peercred, socket_type};
use rustix::net::{AddressFamily, SocketType};
use weir_model::Node;
use weir_runtime_dir::ACCOUNT;
use weir_sys::names;

/// The names with which the API's socket is bound; a later rename does not change them.
const API_SOCKETS: [&str; 2] = ["weir.sock.new", "weir.sock"];

/// Checks the client at the other end of a socket. Returns the client's user ID. `runtime_dir` is the directory of the
/// API's socket.
///
/// # Errors
/// Returns a message if the client may not edit services.
pub(crate) fn check(
    socket: BorrowedFd<'_>,
    node: &Node,
    runtime_dir: &Path,
) -> Result<u32, String> {
    let failed = |error: &dyn std::fmt::Display| format!("failed to identify the client: {error}");
    if socket_domain(socket).map_err(|error| failed(&error))? != AddressFamily::UNIX {
        return Err("only clients of the unix socket may edit the services of ipvsadm".to_owned());
    }
    if !is_accepted(socket, runtime_dir).map_err(|error| failed(&error))? {
        return Err("the socket does not belong to a client of the API".to_owned());
    }
    let peer = socket_peercred(socket).map_err(|error| failed(&error))?;
    let user = peer.uid.as_raw();
    if user == 0 {
        return Ok(user);
    }
    let is_account = weir_sys::account(ACCOUNT).is_some_and(|(account, _)| account == user);
    let group = node.socket_group.as_deref().and_then(names::group_id);
    let group = group.filter(|_| node.socket_mode.is_for_group() && !is_account);
    let is_member = group.is_some_and(|group| {
        let others = weir_sys::peer_groups(socket).unwrap_or_default();
        peer.gid.as_raw() == group || others.contains(&group)
    });
    if is_member {
        return Ok(user);
    }
    Err(format!(
        "user {user} may not edit the services of ipvsadm: only root and members of socket_group may"
    ))
}

/// Returns whether the socket was accepted by the API's socket. A process without write permission for the directory
/// cannot give this name to a socket whose peer is another process.
fn is_accepted(socket: BorrowedFd<'_>, runtime_dir: &Path) -> io::Result<bool> {
    if socket_type(socket)? != SocketType::STREAM {
        return Ok(false);
    }
    let socket = UnixStream::from(socket.try_clone_to_owned()?);
    let (local, peer) = (socket.local_addr()?, socket.peer_addr()?);
    let Some(path) = local.as_pathname().filter(|_| peer.is_unnamed()) else {
        return Ok(false);
    };
    let has_name = path
        .file_name()
        .is_some_and(|name| API_SOCKETS.iter().any(|known| name == *known));
    let identity = |directory: Option<&Path>| {
        let known = fs::metadata(directory?).ok()?;
        Some((known.dev(), known.ino()))
    };
    let expected = identity(Some(runtime_dir));
    Ok(has_name && expected.is_some() && identity(path.parent()) == expected)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use rustix::net::{SocketAddrUnix, SocketFlags, bind, connect, socket_with};

    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("weir-caller-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("other")).unwrap();
            Self(path)
        }

        /// Connects to a new socket. Returns the client's end and the accepted end.
        fn connected(&self, name: &str) -> (UnixStream, UnixStream) {
            let path = self.0.join(name);
            let listener = UnixListener::bind(&path).unwrap();
            let client = UnixStream::connect(&path).unwrap();
            (client, listener.accept().unwrap().0)
        }

        fn check(&self, socket: &impl AsFd) -> Result<u32, String> {
            check(socket.as_fd(), &Node::default(), &self.0)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn caller_is_identified_by_kernel_and_other_sockets_are_rejected() {
        let directory = Directory::new("user");
        let (_client, accepted) = directory.connected("weir.sock.new");
        let own = rustix::process::geteuid().as_raw();
        let checked = directory.check(&accepted);
        if own == 0 {
            assert_eq!(checked, Ok(0));
        } else {
            assert!(checked.unwrap_err().contains(&format!("user {own}")));
        }
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(directory.check(&tcp).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(directory.check(&file).is_err());
    }

    #[test]
    fn socket_connected_by_daemon_is_rejected() {
        let directory = Directory::new("connected");
        let assert_rejected = |socket: &dyn AsFd| {
            let error = check(socket.as_fd(), &Node::default(), &directory.0).unwrap_err();
            assert!(error.contains("does not belong to a client"), "{error}");
        };
        // The peer of these sockets is this process, as the peer of journald's socket would be root.
        let (end, _other_end) = UnixStream::pair().unwrap();
        assert_rejected(&end);
        let (client, accepted) = directory.connected("other/weir.sock");
        assert_rejected(&client);
        assert_rejected(&accepted);
        let (client, accepted) = directory.connected("vrrp.sock");
        assert_rejected(&client);
        assert_rejected(&accepted);
        // A client that gave the name of the API's socket to its own socket.
        let other = directory.0.join("listener");
        let _listener = UnixListener::bind(&other).unwrap();
        let named = |kind: SocketType, name: &str| -> OwnedFd {
            let own = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            let path = directory.0.join(name);
            bind(&own, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            own
        };
        let client = named(SocketType::STREAM, "weir.sock");
        connect(&client, &SocketAddrUnix::new(&other).unwrap()).unwrap();
        assert_rejected(&client);
        // A channel that root created: one of its ends gets the name afterwards.
        let (mine, _theirs) = weir_sys::Channel::pair().unwrap();
        let path = directory.0.join("weir.sock.new");
        bind(&mine, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert_rejected(&mine);
    }
}
