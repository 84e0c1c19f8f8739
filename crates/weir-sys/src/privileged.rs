//! Opens files and sockets and runs programs for an unprivileged process, with the help of a privileged process.
//!
//! An unprivileged process registers a [`PrivilegedHelper`] once. Most functions of this module first try with the
//! privileges of the process, and send a request to the helper if the kernel denies access; [`read_untrusted`] and
//! [`bind_stream`] use the helper first. Without a helper, they only make the system calls. They open no file through
//! another account's link (`guarded_path`).

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::guarded_path;
use crate::untrusted_file::{self, Owner};

/// A program that the helper runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A health check program, run under the account in its configuration.
    Check {
        /// Program and arguments.
        command: Vec<String>,
        /// The account.
        user: String,
        /// The server.
        address: IpAddr,
        /// The server's port, if it has one.
        port: Option<u16>,
    },
    /// A pool's notification program.
    Notify {
        /// Program and arguments.
        command: Vec<String>,
        /// The pool.
        pool: String,
        /// The server, or empty.
        server: String,
        /// The service, or empty.
        service: String,
        /// The previous state.
        from: String,
        /// The new state.
        to: String,
        /// The reason.
        reason: String,
    },
    /// A notifier's program. The helper takes the program, arguments and account from its configuration.
    Notifier {
        /// The notifier.
        notifier: String,
        /// One line for each change of state, without control characters.
        lines: Vec<String>,
        /// Number of changes that were omitted.
        lost: u64,
    },
}

/// A callback that is called when a program exits. Its argument is the exit code, `None` if a signal killed the
/// program, or the error if the program could not be run.
pub type ExitCallback = Box<dyn FnOnce(io::Result<Option<i32>>) + Send>;

/// A process that opens files and sockets and runs programs for this process, if the helper's policy permits this. The
/// error of a rejected request has the kind [`io::ErrorKind::PermissionDenied`].
pub trait PrivilegedHelper: fmt::Debug + Send + Sync {
    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// Fails if the kernel or the helper's policy rejects the request.
    fn open(&self, path: &Path) -> io::Result<File>;

    /// Opens a file for appending, and creates it if it is missing.
    ///
    /// # Errors
    /// See [`Self::open`].
    fn append(&self, path: &Path) -> io::Result<File>;

    /// Lists a directory; `None` if the path is not a directory.
    ///
    /// # Errors
    /// See [`Self::open`].
    fn list(&self, path: &Path) -> io::Result<Option<Vec<PathBuf>>>;

    /// Reads a file like [`untrusted_file::read`].
    ///
    /// # Errors
    /// Returns the reason, without the path.
    fn read_untrusted(&self, path: &Path, owner: Owner, max_bytes: u64) -> Result<String, String>;

    /// Binds a TCP socket; see [`bind_stream`].
    ///
    /// # Errors
    /// See [`Self::open`].
    fn bind_stream(&self, address: SocketAddr) -> io::Result<OwnedFd>;

    /// Opens a relayed socket for echo requests ([`PingSocket::Relayed`]).
    ///
    /// # Errors
    /// See [`Self::open`].
    fn ping_socket(&self, target: &PingTarget) -> io::Result<OwnedFd>;

    /// Checks whether root's configuration permits sections with this digest (`weir_helper::section_digest`).
    ///
    /// # Errors
    /// Fails if the configuration does not permit the sections, or the helper cannot be reached.
    fn permits_sections(&self, digest: u64) -> io::Result<()>;

    /// Runs a program. Returns a number for [`Self::kill`].
    ///
    /// # Errors
    /// Fails if the helper cannot be reached.
    fn run(&self, program: &Program, on_exit: ExitCallback) -> io::Result<u64>;

    /// Kills a program and its process group.
    fn kill(&self, number: u64);
}

static HELPER: OnceLock<Box<dyn PrivilegedHelper>> = OnceLock::new();

/// Registers the helper of this process; later calls have no effect.
pub fn set_helper(helper: Box<dyn PrivilegedHelper>) {
    let _ = HELPER.set(helper);
}

/// Returns the registered helper.
pub fn helper() -> Option<&'static dyn PrivilegedHelper> {
    HELPER.get().map(AsRef::as_ref)
}

/// Returns the helper if access was denied, because the helper may have access.
fn helper_for(error: &io::Error) -> Option<&'static dyn PrivilegedHelper> {
    match error.kind() {
        io::ErrorKind::PermissionDenied => helper(),
        _ => None,
    }
}

/// Opens a file for reading.
///
/// # Errors
/// Fails if the kernel and the helper reject the request.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::empty())
}

/// Opens a file for reading. Opening a pipe does not block.
///
/// # Errors
/// See [`open`].
pub fn open_nonblocking(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::NONBLOCK)
}

fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
    match guarded_path::open(path, flags) {
        Err(error) => match helper_for(&error) {
            Some(helper) => helper.open(path),
            None => Err(error),
        },
        opened => opened,
    }
}

/// Reads a whole file.
///
/// # Errors
/// See [`open`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file for appending, and creates it if it is missing.
///
/// # Errors
/// See [`open`].
pub fn append(path: &Path) -> io::Result<File> {
    match guarded_path::append(path) {
        Err(error) => match helper_for(&error) {
            Some(helper) => helper.append(path),
            None => Err(error),
        },
        opened => opened,
    }
}

/// Returns the entries of a directory; `None` if the path is not a directory.
///
/// # Errors
/// See [`open`].
pub fn list(path: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    match list_without_helper(path) {
        Err(error) => match helper_for(&error) {
            Some(helper) => helper.list(path),
            None => Err(error),
        },
        listed => listed,
    }
}

/// Lists a directory like [`list`], but without the helper.
///
/// # Errors
/// Fails if the kernel rejects the request.
pub fn list_without_helper(path: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(None);
    }
    let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
    entries.collect::<io::Result<_>>().map(Some)
}

/// Returns whether a file exists.
pub fn exists(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(_) => true,
        Err(error) => helper_for(&error).is_some_and(|helper| helper.open(path).is_ok()),
    }
}

/// Reads a file like [`untrusted_file::read`]. If there is a helper, the helper reads the file, because a file in a
/// directory that this process cannot search appears to be missing.
///
/// # Errors
/// Returns the reason, without the path.
pub fn read_untrusted(path: &Path, owner: Owner, max_bytes: u64) -> Result<String, String> {
    match helper() {
        Some(helper) => helper.read_untrusted(path, owner, max_bytes),
        None => untrusted_file::read(path, owner, max_bytes),
    }
}

/// Binds a nonblocking TCP socket. The socket can share its address with other sockets of the same user (SO_REUSEPORT),
/// and the address need not currently exist on this machine (IP_FREEBIND). If there is a helper, it binds all sockets,
/// so all of them have the same owner. If the helper rejects a request, this process binds the socket itself.
///
/// # Errors
/// Fails if the kernel rejects the request.
pub fn bind_stream(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    if let Some(Ok(socket)) = helper().map(|helper| helper.bind_stream(address)) {
        return Ok(socket);
    }
    bind_stream_without_helper(address)
}

/// Binds a TCP socket like [`bind_stream`], but without the helper.
///
/// # Errors
/// Fails if the kernel rejects the request.
pub fn bind_stream_without_helper(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = family(address.is_ipv6());
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Accepted sockets inherit the setting.
    sockopt::set_tcp_nodelay(&socket, true)?;
    // The VIP may currently be on another machine.
    let _ = sockopt::set_ip_freebind(&socket, true);
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// The target of echo requests, and the path to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingTarget {
    /// The target.
    pub to: IpAddr,
    /// The source address; `None` = the kernel selects one.
    pub from: Option<IpAddr>,
    /// Whether the kernel selects a different source address if this machine does not have `from`.
    pub is_optional: bool,
    /// The interface to use; `None` = the kernel selects one.
    pub interface: Option<String>,
}

/// A nonblocking socket that sends echo requests to one target and receives the replies.
#[derive(Debug)]
pub enum PingSocket {
    /// A raw ICMP socket of this process. A raw socket can send any IP packet from any source, so an unprivileged
    /// process never gets one.
    Raw(OwnedFd),
    /// A socket connected to the helper, which owns the raw socket and forwards only echo requests and replies. A
    /// packet of [`PING_ERROR_BYTES`] bytes is an error ([`ping_error`]). End of file means that the helper has exited.
    Relayed(OwnedFd),
}

/// Length of an error packet of a relayed socket, in bytes; ICMP messages are longer.
pub const PING_ERROR_BYTES: usize = 4;

/// Returns the error in a packet of a relayed socket; `None` = the packet is a reply.
pub fn ping_error(packet: &[u8]) -> Option<io::Error> {
    let errno = <[u8; PING_ERROR_BYTES]>::try_from(packet).ok()?;
    Some(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
}

/// Opens a socket for echo requests.
///
/// # Errors
/// Fails if the process lacks `CAP_NET_RAW` and the helper rejects the request, or if the target cannot be reached.
pub fn ping_socket(target: &PingTarget) -> io::Result<PingSocket> {
    match ping_socket_without_helper(target) {
        Err(error) => match helper_for(&error) {
            Some(helper) => helper.ping_socket(target).map(PingSocket::Relayed),
            None => Err(error),
        },
        opened => opened.map(PingSocket::Raw),
    }
}

/// Opens a raw ICMP socket for echo requests, without the helper. The socket is connected, so the kernel delivers only
/// packets and ICMP errors from the target.
///
/// # Errors
/// Fails if the kernel rejects the request, or the target cannot be reached.
pub fn ping_socket_without_helper(target: &PingTarget) -> io::Result<OwnedFd> {
    let (domain, protocol) = match target.to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    if let Some(interface) = &target.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    if let Some(from) = target.from {
        match socket.bind(&SocketAddr::new(from, 0).into()) {
            Err(error) if target.is_optional && error.kind() == io::ErrorKind::AddrNotAvailable => {
            }
            bound => bound?,
        }
    }
    socket.connect(&SocketAddr::new(target.to, 0).into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

const fn family(is_ipv6: bool) -> AddressFamily {
    if is_ipv6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    }
}

/// Returns whether a path is absolute and contains no `.` or `..`, so a policy can compare it as text.
pub fn is_normalized(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let mut parts = bytes.split(|byte| *byte == b'/');
    path.is_absolute() && parts.all(|part| part != b"." && part != b"..")
}
