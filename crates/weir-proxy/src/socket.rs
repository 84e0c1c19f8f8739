//! The few calls that the workers make on sockets, with what they mean in an edge-triggered loop. Another way of doing
//! I/O would replace this file.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType,
    sockopt,
};
use rustix::pipe::SpliceFlags;

/// Connections that may wait for a worker to accept them, as far as `net.core.somaxconn` lets it.
const BACKLOG: i32 = 65_535;

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// That many bytes; fewer than there was room for means that there are no more now.
    Some(usize),
    /// Nothing now; an event will tell.
    Blocked,
    /// The other side sends no more.
    End,
    /// The connection is broken.
    Broken,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// That many bytes; fewer than given means that an event will tell when to go on.
    Some(usize),
    /// The connection is broken.
    Broken,
}

fn flags() -> SocketFlags {
    SocketFlags::NONBLOCK | SocketFlags::CLOEXEC
}

fn stream(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    rustix::net::socket_with(family, SocketType::STREAM, flags(), None)
}

/// A listening socket that shares its address with others of this process.
pub(crate) fn listen(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let socket = bind(address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The same without a client that could come.
pub(crate) fn bind(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let socket = stream(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // What is accepted inherits it.
    sockopt::set_tcp_nodelay(&socket, true)?;
    // A VIP that another machine holds at present may come here later.
    let _ = sockopt::set_ip_freebind(&socket, true);
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// The next client, if there is one.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    loop {
        match rustix::net::acceptfrom_with(listener, flags()) {
            Ok((client, address)) => {
                let address = address.and_then(|any| SocketAddr::try_from(any).ok());
                return address
                    .map(|address| (client, address))
                    .ok_or(Errno::AFNOSUPPORT);
            }
            // The client was gone before it was accepted.
            Err(Errno::CONNABORTED | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Begins to connect.
pub(crate) fn connect(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let socket = stream(address)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Whether that was said by the other side or on the way there, and is not a want of this machine's own.
pub(crate) const fn is_answer(error: Errno) -> bool {
    matches!(
        error,
        Errno::CONNREFUSED | Errno::CONNRESET | Errno::HOSTUNREACH | Errno::NETUNREACH
    )
}

/// Whether a connection that was begun stands.
pub(crate) fn is_connected(socket: impl AsFd) -> bool {
    matches!(sockopt::socket_error(socket), Ok(Ok(())))
}

pub(crate) fn read(socket: &OwnedFd, into: &mut [u8]) -> Read {
    take(socket, into)
}

/// Looks at what there is and leaves it there.
pub(crate) fn peek(socket: impl AsFd, into: &mut [u8]) -> Read {
    received(rustix::net::recv(socket, into, RecvFlags::PEEK))
}

/// Reads past what stands above the socket, which is still in its beginnings.
pub(crate) fn take(socket: impl AsFd, into: &mut [u8]) -> Read {
    received(rustix::net::recv(socket, into, RecvFlags::empty()))
}

fn received(found: rustix::io::Result<(usize, usize)>) -> Read {
    match found {
        Ok((0, _)) => Read::End,
        Ok((bytes, _)) => Read::Some(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Read::Blocked,
        Err(_) => Read::Broken,
    }
}

/// Where the other side connected to.
pub(crate) fn own_address(socket: impl AsFd) -> Option<SocketAddr> {
    rustix::net::getsockname(socket)
        .ok()
        .and_then(|any| SocketAddr::try_from(any).ok())
}

/// Whether an idle connection is as silent as it should be.
pub(crate) fn is_silent(socket: impl AsFd) -> bool {
    let mut byte = [0u8; 1];
    let found = rustix::net::recv(socket, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    matches!(found, Err(Errno::AGAIN))
}

pub(crate) fn write(socket: impl AsFd, bytes: &[u8]) -> Written {
    written(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))
}

/// Moves bytes between a socket and a pipe without looking at them.
pub(crate) fn splice(from: impl AsFd, to: impl AsFd, most: usize) -> Read {
    let how = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    match rustix::pipe::splice(from, None, to, None, most, how) {
        Ok(0) => Read::End,
        Ok(bytes) => Read::Some(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Read::Blocked,
        Err(_) => Read::Broken,
    }
}

/// Two parts in one call.
pub(crate) fn write_both(socket: &OwnedFd, first: &[u8], second: &[u8]) -> Written {
    let parts = [IoSlice::new(first), IoSlice::new(second)];
    let mut nothing = SendAncillaryBuffer::default();
    written(rustix::net::sendmsg(
        socket,
        &parts,
        &mut nothing,
        SendFlags::NOSIGNAL,
    ))
}

fn written(result: rustix::io::Result<usize>) -> Written {
    match result {
        Ok(bytes) => Written::Some(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Written::Some(0),
        Err(_) => Written::Broken,
    }
}

/// Tells the other side that no more will be sent.
pub(crate) fn finish(socket: &OwnedFd) {
    // A connection that is broken already needs no end.
    let _ = rustix::net::shutdown(socket, Shutdown::Write);
}

/// What a connection is registered for, edge-triggered.
const EVENTS: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

/// Registers for everything; rarely changed afterwards.
pub(crate) fn watch(epoll: &OwnedFd, socket: impl AsFd, token: u64) -> rustix::io::Result<()> {
    epoll::add(epoll, socket, EventData::new_u64(token), EVENTS)
}

/// What was registered so is about something else from now on; what is ready is told again.
pub(crate) fn rewatch(epoll: &OwnedFd, socket: impl AsFd, token: u64) -> rustix::io::Result<()> {
    epoll::modify(epoll, socket, EventData::new_u64(token), EVENTS)
}

/// No events for incoming data until [`rewatch`]: a client that floods a paused connection does not wake the worker.
pub(crate) fn suspend_reading(
    epoll: &OwnedFd,
    socket: impl AsFd,
    token: u64,
) -> rustix::io::Result<()> {
    let events = EVENTS.difference(EventFlags::IN);
    epoll::modify(epoll, socket, EventData::new_u64(token), events)
}

/// Registers for as long as there is something to read.
pub(crate) fn watch_level(
    epoll: &OwnedFd,
    socket: impl AsFd,
    token: u64,
) -> rustix::io::Result<()> {
    epoll::add(epoll, socket, EventData::new_u64(token), EventFlags::IN)
}

/// Ends it; closing would too, if nobody else held the descriptor.
pub(crate) fn unwatch(epoll: &OwnedFd, socket: impl AsFd) {
    // It is watched, or there is nothing to end.
    let _ = epoll::delete(epoll, socket);
}
