//! Wraps the workers' system calls on sockets, and converts their results for an edge-triggered event loop.
//!
//! A different I/O interface would require changes only in this file.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};
use rustix::pipe::SpliceFlags;

/// Requested length of the accept queue. `net.core.somaxconn` limits it.
const BACKLOG: i32 = 65_535;

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// Number of bytes read. Fewer than the buffer size means that no more bytes are available now.
    Some(usize),
    /// No bytes are available now; an event follows.
    Blocked,
    /// The peer has finished sending.
    End,
    /// The connection is broken.
    Broken,
}

/// Result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// Number of bytes written. If fewer than given, an event follows when there is room.
    Some(usize),
    /// The connection is broken.
    Broken,
}

fn flags() -> SocketFlags {
    SocketFlags::NONBLOCK | SocketFlags::CLOEXEC
}

fn open_stream(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    rustix::net::socket_with(family, SocketType::STREAM, flags(), None)
}

/// Opens a listening socket that shares its address with other sockets of this process.
pub(crate) fn listen(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let socket = bind(address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Opens and binds a socket without listening.
pub(crate) fn bind(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    weir_sys::privileged::bind_stream(address)
}

/// Accepts the next client. Fails with `EAGAIN` if no client is waiting.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    loop {
        match rustix::net::acceptfrom_with(listener, flags()) {
            Ok((client, address)) => {
                let address = address.and_then(|address| SocketAddr::try_from(address).ok());
                return address
                    .map(|address| (client, address))
                    .ok_or(Errno::AFNOSUPPORT);
            }
            // The client disconnected before it was accepted.
            Err(Errno::CONNABORTED | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Starts a connection to a TCP server.
pub(crate) fn connect(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let socket = open_stream(address)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Connects to a Unix socket. This never blocks: it fails immediately if the server's accept queue is full.
pub(crate) fn connect_unix(path: &str) -> rustix::io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags(), None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Ok(socket),
        // The server does not accept connections fast enough, or the socket file does not exist.
        Err(Errno::AGAIN | Errno::NOENT) => Err(Errno::CONNREFUSED),
        Err(error) => Err(error),
    }
}

/// Returns whether the error was caused by the peer or the network, rather than by a lack of resources on this host.
pub(crate) const fn is_peer_error(error: Errno) -> bool {
    matches!(
        error,
        Errno::CONNREFUSED | Errno::CONNRESET | Errno::HOSTUNREACH | Errno::NETUNREACH
    )
}

/// Returns whether a connection attempt has succeeded.
pub(crate) fn is_connected(socket: impl AsFd) -> bool {
    matches!(sockopt::socket_error(socket), Ok(Ok(())))
}

pub(crate) fn read(socket: &OwnedFd, buffer: &mut [u8]) -> Read {
    take(socket, buffer)
}

/// Reads without consuming the bytes.
pub(crate) fn peek(socket: impl AsFd, buffer: &mut [u8]) -> Read {
    convert_read(rustix::net::recv(socket, buffer, RecvFlags::PEEK))
}

/// Reads and consumes bytes.
pub(crate) fn take(socket: impl AsFd, buffer: &mut [u8]) -> Read {
    convert_read(rustix::net::recv(socket, buffer, RecvFlags::empty()))
}

fn convert_read(result: rustix::io::Result<(usize, usize)>) -> Read {
    match result {
        Ok((0, _)) => Read::End,
        Ok((bytes, _)) => Read::Some(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Read::Blocked,
        Err(_) => Read::Broken,
    }
}

/// Returns the local address of the connection.
pub(crate) fn local_address(socket: impl AsFd) -> Option<SocketAddr> {
    rustix::net::getsockname(socket)
        .ok()
        .and_then(|address| SocketAddr::try_from(address).ok())
}

/// Returns whether an idle connection is open and has no input.
pub(crate) fn is_silent(socket: impl AsFd) -> bool {
    let mut byte = [0u8; 1];
    let result = rustix::net::recv(socket, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    matches!(result, Err(Errno::AGAIN))
}

pub(crate) fn write(socket: impl AsFd, bytes: &[u8]) -> Written {
    convert_written(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))
}

/// Writes the last bytes before [`finish`], which then sends these bytes and the FIN in one segment.
pub(crate) fn write_last(socket: impl AsFd, bytes: &[u8]) -> Written {
    let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
    convert_written(rustix::net::send(socket, bytes, flags))
}

/// Splices bytes between a socket and a pipe.
pub(crate) fn splice(source: impl AsFd, destination: impl AsFd, max: usize) -> Read {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    match rustix::pipe::splice(source, None, destination, None, max, flags) {
        Ok(0) => Read::End,
        Ok(bytes) => Read::Some(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Read::Blocked,
        Err(_) => Read::Broken,
    }
}

/// Writes two slices with one call.
pub(crate) fn write_both(socket: &OwnedFd, first: &[u8], second: &[u8]) -> Written {
    let parts = [IoSlice::new(first), IoSlice::new(second)];
    let mut control = SendAncillaryBuffer::default();
    convert_written(rustix::net::sendmsg(
        socket,
        &parts,
        &mut control,
        SendFlags::NOSIGNAL,
    ))
}

fn convert_written(result: rustix::io::Result<usize>) -> Written {
    match result {
        Ok(bytes) => Written::Some(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Written::Some(0),
        Err(_) => Written::Broken,
    }
}

/// Shuts down the write direction.
pub(crate) fn finish(socket: &OwnedFd) {
    // Fails only if the connection is already broken.
    let _ = rustix::net::shutdown(socket, Shutdown::Write);
}

/// Shuts down both directions. The owner of the connection is notified as if the peer had closed it.
pub(crate) fn shut_down(socket: &OwnedFd) {
    // Fails only if there is no connection.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Edge-triggered connection events.
const EVENTS: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

/// Registers a socket for all events. The registration rarely changes afterwards.
pub(crate) fn watch(epoll: &OwnedFd, socket: impl AsFd, token: u64) -> rustix::io::Result<()> {
    epoll::add(epoll, socket, EventData::new_u64(token), EVENTS)
}

/// Registers a writable socket for all events except write events, which the kernel would report immediately.
pub(crate) fn watch_reading(
    epoll: &OwnedFd,
    socket: impl AsFd,
    token: u64,
) -> rustix::io::Result<()> {
    let events = EVENTS.difference(EventFlags::OUT);
    epoll::add(epoll, socket, EventData::new_u64(token), events)
}

/// Changes the token and enables all events. The kernel then reports pending readiness again.
pub(crate) fn rewatch(epoll: &OwnedFd, socket: impl AsFd, token: u64) -> rustix::io::Result<()> {
    epoll::modify(epoll, socket, EventData::new_u64(token), EVENTS)
}

/// Disables events for incoming data until [`rewatch`], so that a client that floods a paused connection does not wake
/// the worker.
pub(crate) fn suspend_reading(
    epoll: &OwnedFd,
    socket: impl AsFd,
    token: u64,
) -> rustix::io::Result<()> {
    let events = EVENTS.difference(EventFlags::IN);
    epoll::modify(epoll, socket, EventData::new_u64(token), events)
}

/// Registers a socket for level-triggered read events.
pub(crate) fn watch_level(
    epoll: &OwnedFd,
    socket: impl AsFd,
    token: u64,
) -> rustix::io::Result<()> {
    epoll::add(epoll, socket, EventData::new_u64(token), EventFlags::IN)
}

/// Removes a socket from epoll. Closing the socket is not sufficient if the descriptor was duplicated.
pub(crate) fn unwatch(epoll: &OwnedFd, socket: impl AsFd) {
    // Fails only if the socket is not registered.
    let _ = epoll::delete(epoll, socket);
}
