//! Connects an unprivileged account to a privileged service, through a socket in a directory owned by root.
//!
//! Only root can create the socket there. Each end gets the identity of the other from the kernel (SO_PEERCRED): an
//! attacker could make the account connect to a different socket, and other members of the account's group can connect
//! to this socket. Two other functions create sockets in a directory that another account can also write to:
//! [`ServiceSocket::listen_in_shared`] and [`create_private_listener`].

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, chownat, fchmod, fstat, openat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, shutdown, socket_with,
};

use crate::{Channel, Error, Result};

/// Maximum number of connections waiting for [`ServiceSocket::accept`].
const BACKLOG: i32 = 16;
/// Pause after a socket error.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// Mode of the directory: only the group can reach the socket.
const DIRECTORY_MODE: u32 = 0o750;
const SOCKET_MODE: u32 = 0o660;

/// The process at the other end of a connection, as reported by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process ID.
    pub process: u32,
    /// Its effective user ID.
    pub user: u32,
}

/// A listening socket.
#[derive(Debug)]
pub struct ServiceSocket {
    path: PathBuf,
    socket: OwnedFd,
    /// Device and inode of its file.
    file: (u64, u64),
    is_stopped: AtomicBool,
}

fn packet_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn peer_of(socket: &OwnedFd) -> rustix::io::Result<Peer> {
    let credentials = socket_peercred(socket)?;
    Ok(Peer {
        process: credentials.pid.as_raw_nonzero().get().unsigned_abs(),
        user: credentials.uid.as_raw(),
    })
}

impl ServiceSocket {
    /// Listens at `path`. Creates its directory with mode 0750 if it is missing. Members of `group` can connect; the
    /// socket has mode 0660. An old socket with this name is replaced.
    ///
    /// # Errors
    /// Fails if another user owns the directory, other users can write to it, or a system call fails.
    pub fn listen(path: &Path, group: u32) -> Result<Self> {
        let call_error = |error: io::Error| Error::file(path, error);
        let directory = path.parent().unwrap_or_else(|| Path::new("/"));
        prepare_directory(directory, group).map_err(|error| Error::file(directory, error))?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(call_error(error)),
            _ => {}
        }
        let bind_socket = || -> io::Result<OwnedFd> {
            let socket = packet_socket()?;
            // bind(2) gives the file the mode of the socket, so the file never has wider permissions.
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            bind(&socket, &SocketAddrUnix::new(path)?)?;
            chown(path, None, Some(group))?;
            fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
            listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        let socket = bind_socket().map_err(call_error)?;
        let metadata = fs::symlink_metadata(path).map_err(call_error)?;
        Ok(Self {
            path: path.to_owned(),
            socket,
            file: (metadata.dev(), metadata.ino()),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// Listens at `path` in a directory that another account may also write to, with mode 0600, or 0660 for `group`.
    /// Replaces an existing file with this name. The file is private from the start; group and mode are changed through
    /// its descriptor, because the account could replace the file.
    ///
    /// # Errors
    /// Fails if a system call fails, or the file was replaced.
    pub fn listen_in_shared(path: &Path, group: Option<u32>) -> Result<Self> {
        let call_error = |error: io::Error| Error::file(path, error);
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(call_error(error)),
            _ => {}
        }
        let bind_socket = || -> io::Result<(OwnedFd, Stat)> {
            let socket = packet_socket()?;
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            bind(&socket, &SocketAddrUnix::new(path)?)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(CWD, path, flags, Mode::empty())?;
            let stat = fstat(&file)?;
            let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
            if !is_socket || stat.st_uid != rustix::process::geteuid().as_raw() {
                return Err(io::Error::other("another account has replaced it"));
            }
            if let Some(group) = group {
                let group = Some(Gid::from_raw(group));
                chownat(&file, "", None, group, AtFlags::EMPTY_PATH)?;
                // fchmod(2) does not accept an O_PATH descriptor. This link refers to the opened file.
                let link = format!("/proc/self/fd/{}", file.as_raw_fd());
                fs::set_permissions(link, Permissions::from_mode(SOCKET_MODE))?;
            }
            listen(&socket, BACKLOG)?;
            Ok((socket, stat))
        };
        let (socket, stat) = bind_socket().map_err(call_error)?;
        Ok(Self {
            path: path.to_owned(),
            socket,
            file: (stat.st_dev, stat.st_ino),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// Replies to the first message on each connection, one connection after another. Blocks until [`Self::stop`] is
    /// called. `limit` is the maximum time that a client has to send its message.
    pub fn serve(&self, limit: Duration, respond: impl Fn(&Channel, Peer, &[u8]) -> Vec<u8>) {
        while !self.is_stopped.load(Ordering::Relaxed) {
            let Ok((channel, peer)) = self.accept() else {
                std::thread::sleep(ERROR_PAUSE);
                continue;
            };
            if channel.set_receive_timeout(Some(limit)).is_err() {
                continue;
            }
            if let Ok(Some(message)) = channel.receive() {
                // The client may have closed the connection.
                let _ = channel.send(&respond(&channel, peer, &message.bytes), &[]);
            }
        }
    }

    /// Ends [`Self::serve`] and rejects connections. Does not remove the file.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Returns whether the name still refers to this socket.
    pub fn has_name(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.file)
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// Fails if the open-file limit is reached, or a system call fails.
    pub fn accept(&self) -> Result<(Channel, Peer)> {
        let call_error = |errno: Errno| Error::file(&self.path, errno);
        let socket = loop {
            match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                accepted => break accepted.map_err(call_error)?,
            }
        };
        let peer = peer_of(&socket).map_err(call_error)?;
        Ok((socket.into(), peer))
    }
}

/// Creates a stream socket that listens at `path`, nonblocking and with mode 0600 from the start: bind(2) gives the
/// file the mode of the socket (net/unix/af_unix.c). In a directory that another account can write to, setting the mode
/// afterwards could change a different file.
///
/// # Errors
/// Fails if there is a file at `path`, or the directory cannot be written.
pub fn create_private_listener(path: &Path, backlog: i32) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, backlog)?;
    Ok(socket.into())
}

/// Connects to the socket at `path`. The returned peer is the listening process.
///
/// # Errors
/// Fails if no process listens at `path`, or this process is not allowed to connect.
pub fn connect_to_service(path: &Path) -> Result<(Channel, Peer)> {
    let open_connection = || -> io::Result<(Channel, Peer)> {
        let socket = packet_socket()?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let peer = peer_of(&socket)?;
        Ok((socket.into(), peer))
    };
    open_connection().map_err(|error| Error::file(path, error))
}

impl Channel {
    /// Limits how long [`Self::receive`] waits; `None` = no limit.
    ///
    /// # Errors
    /// Fails if setsockopt(2) fails.
    pub fn set_receive_timeout(&self, limit: Option<Duration>) -> Result<()> {
        set_socket_timeout(self, Timeout::Recv, limit)
            .map_err(|errno| Error::call("SO_RCVTIMEO", "socket", errno))
    }
}

/// Creates or checks the directory: only root and the group can enter it, and only root can write to it.
fn prepare_directory(directory: &Path, group: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(directory)?;
    let process_user = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != process_user || metadata.mode() & 0o022 != 0 {
        return Err(io::Error::other(
            "it must be owned by root and not writable by others",
        ));
    }
    chown(directory, None, Some(group))?;
    fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_is_private_from_the_start() {
        let path = std::env::temp_dir().join(format!("weir-private-socket-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let listener = create_private_listener(&path, 1).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let would_block = listener.accept().unwrap_err().kind();
        assert_eq!(would_block, io::ErrorKind::WouldBlock);
        let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn socket_in_a_shared_directory_replies_until_it_is_stopped() {
        let path = std::env::temp_dir().join(format!("weir-shared-socket-{}", std::process::id()));
        let own_group = rustix::process::getegid().as_raw();
        for (group, mode) in [(None, 0o600), (Some(own_group), 0o660)] {
            // Another account may have created a different file with this name.
            let _ = fs::remove_file(&path);
            std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
            let socket = ServiceSocket::listen_in_shared(&path, group).unwrap();
            let metadata = fs::symlink_metadata(&path).unwrap();
            assert_eq!((metadata.mode() & 0o777, metadata.gid()), (mode, own_group));
            assert!(socket.has_name());
            std::thread::scope(|scope| {
                let service = scope.spawn(|| {
                    let limit = Duration::from_secs(5);
                    socket.serve(limit, |_, peer, bytes| {
                        assert_eq!(peer.process, std::process::id());
                        bytes.to_ascii_uppercase()
                    });
                });
                for _ in 0..2 {
                    let (client, _) = connect_to_service(&path).unwrap();
                    client
                        .set_receive_timeout(Some(Duration::from_secs(5)))
                        .unwrap();
                    client.send(b"asked", &[]).unwrap();
                    assert_eq!(client.receive().unwrap().unwrap().bytes, b"ASKED");
                }
                socket.stop();
                service.join().unwrap();
            });
            assert!(connect_to_service(&path).is_err());
            fs::remove_file(&path).unwrap();
            assert!(!socket.has_name());
        }
    }

    #[test]
    fn both_ends_identify_the_peer_and_the_socket_is_private() {
        let directory = std::env::temp_dir().join(format!("weir-service-{}", std::process::id()));
        let path = directory.join("socket");
        let group = rustix::process::getegid().as_raw();
        // An old socket is replaced.
        drop(ServiceSocket::listen(&path, group).unwrap());
        let listener = ServiceSocket::listen(&path, group).unwrap();
        let (client_end, service) = connect_to_service(&path).unwrap();
        let (service_end, client) = listener.accept().unwrap();
        let own = Peer {
            process: std::process::id(),
            user: rustix::process::geteuid().as_raw(),
        };
        assert_eq!([service, client], [own, own]);
        client_end.send(b"asked", &[]).unwrap();
        assert_eq!(service_end.receive().unwrap().unwrap().bytes, b"asked");
        service_end
            .set_receive_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        assert!(service_end.receive().is_err(), "expected a timeout");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!([mode(&directory), mode(&path)], [0o750, 0o660]);
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        assert!(ServiceSocket::listen(&path, group).is_err());
        fs::remove_dir_all(&directory).unwrap();
        assert!(connect_to_service(&path).is_err());
    }
}
