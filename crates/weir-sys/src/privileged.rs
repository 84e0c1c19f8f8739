//! Opens files and sockets and runs programs for an unprivileged process, with the help of a privileged one.
//!
//! An unprivileged process registers a [`PrivilegedHelper`] once. The functions of this module first try with the
//! privileges of the process, and send a request to the helper if the kernel denies access. Without a helper they are
//! plain system calls. No link of another account is followed (`guarded_path`).

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::guarded_path;
use crate::untrusted_file::{self, Owner};

/// A program that the helper runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The program of a health check, as the account of its configuration.
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
    /// The notification program of a pool.
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
    /// The program of a notifier. Program, arguments and account are those of the helper's configuration.
    Notifier {
        /// The notifier.
        notifier: String,
        /// A line for each change of state, without control characters.
        lines: Vec<String>,
        /// Number of changes that were omitted.
        lost: u64,
    },
}

/// Called when a program ends, with its exit code, `None` if a signal killed it, or the error if it could not be run.
pub type OnEnd = Box<dyn FnOnce(io::Result<Option<i32>>) + Send>;

/// A process that opens files and sockets and runs programs for this process, if its policy permits it. The error of a
/// rejected request has the kind [`io::ErrorKind::PermissionDenied`].
pub trait PrivilegedHelper: fmt::Debug + Send + Sync {
    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// The kernel or the helper's policy rejects the request.
    fn open(&self, path: &Path) -> io::Result<File>;

    /// Opens a file for appending, and creates it if it is missing.
    ///
    /// # Errors
    /// The same as for [`Self::open`].
    fn append(&self, path: &Path) -> io::Result<File>;

    /// Lists a directory; `None` if the path is another kind of file.
    ///
    /// # Errors
    /// The same as for [`Self::open`].
    fn list(&self, path: &Path) -> io::Result<Option<Vec<PathBuf>>>;

    /// Reads a file like [`untrusted_file::read`].
    ///
    /// # Errors
    /// Returns the reason, without the path.
    fn read_untrusted(&self, path: &Path, owner: Owner, max_bytes: u64) -> Result<String, String>;

    /// Binds a TCP socket; see [`bind_stream`].
    ///
    /// # Errors
    /// The same as for [`Self::open`].
    fn bind_stream(&self, address: SocketAddr) -> io::Result<OwnedFd>;

    /// Opens a raw ICMP socket for echo requests.
    ///
    /// # Errors
    /// The same as for [`Self::open`].
    fn ping_socket(&self, is_ipv6: bool) -> io::Result<OwnedFd>;

    /// Checks whether root's configuration permits sections with this digest (`weir_helper::section_digest`).
    ///
    /// # Errors
    /// The configuration does not permit the sections, or the helper cannot be reached.
    fn permits_sections(&self, digest: u64) -> io::Result<()>;

    /// Runs a program. Returns a number for [`Self::kill`].
    ///
    /// # Errors
    /// The helper cannot be reached.
    fn run(&self, program: &Program, on_end: OnEnd) -> io::Result<u64>;

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
/// The kernel and the helper reject the request.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::empty())
}

/// Opens a file for reading. Opening a pipe does not block.
///
/// # Errors
/// The same as for [`open`].
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
/// The same as for [`open`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file for appending, and creates it if it is missing.
///
/// # Errors
/// The same as for [`open`].
pub fn append(path: &Path) -> io::Result<File> {
    match guarded_path::append(path) {
        Err(error) => match helper_for(&error) {
            Some(helper) => helper.append(path),
            None => Err(error),
        },
        opened => opened,
    }
}

/// Returns the entries of a directory; `None` if the path is another kind of file.
///
/// # Errors
/// The same as for [`open`].
pub fn list(path: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    match list_directly(path) {
        Err(error) => match helper_for(&error) {
            Some(helper) => helper.list(path),
            None => Err(error),
        },
        listed => listed,
    }
}

/// Like [`list`], but without the helper.
///
/// # Errors
/// The kernel rejects the request.
pub fn list_directly(path: &Path) -> io::Result<Option<Vec<PathBuf>>> {
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
/// directory that this process cannot search looks like a missing file.
///
/// # Errors
/// Returns the reason, without the path.
pub fn read_untrusted(path: &Path, owner: Owner, max_bytes: u64) -> Result<String, String> {
    match helper() {
        Some(helper) => helper.read_untrusted(path, owner, max_bytes),
        None => untrusted_file::read(path, owner, max_bytes),
    }
}

/// Binds a nonblocking TCP socket that shares its address with other sockets of the same user (SO_REUSEPORT) and may
/// have an address that this machine currently lacks (IP_FREEBIND). If there is a helper, it binds all sockets, so that
/// their user is the same. If the helper rejects a request, this process binds the socket itself.
///
/// # Errors
/// The kernel rejects the request.
pub fn bind_stream(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    if let Some(Ok(socket)) = helper().map(|helper| helper.bind_stream(address)) {
        return Ok(socket);
    }
    bind_stream_directly(address)
}

/// Like [`bind_stream`], but without the helper.
///
/// # Errors
/// The kernel rejects the request.
pub fn bind_stream_directly(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
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

/// Opens a raw ICMP socket for echo requests.
///
/// # Errors
/// The process lacks `CAP_NET_RAW`, and the helper rejects the request.
pub fn ping_socket(is_ipv6: bool) -> io::Result<OwnedFd> {
    match ping_socket_directly(is_ipv6) {
        Err(error) => match helper_for(&error) {
            Some(helper) => helper.ping_socket(is_ipv6),
            None => Err(error),
        },
        opened => opened,
    }
}

/// Like [`ping_socket`], but without the helper.
///
/// # Errors
/// The kernel rejects the request.
pub fn ping_socket_directly(is_ipv6: bool) -> io::Result<OwnedFd> {
    let protocol = if is_ipv6 {
        ipproto::ICMPV6
    } else {
        ipproto::ICMP
    };
    let flags = SocketFlags::CLOEXEC;
    let opened = rustix::net::socket_with(family(is_ipv6), SocketType::RAW, flags, Some(protocol))?;
    Ok(opened)
}

const fn family(is_ipv6: bool) -> AddressFamily {
    if is_ipv6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    }
}

/// Returns whether a path is absolute and has no `.` or `..`, so that a policy can compare it as text.
pub fn is_plain(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let mut parts = bytes.split(|byte| *byte == b'/');
    path.is_absolute() && parts.all(|part| part != b"." && part != b"..")
}
