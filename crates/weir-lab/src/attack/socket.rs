//! Provides non-blocking sockets and edge-triggered epoll for the attacker, the prober and the server.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

/// Maximum number of events per wait.
const MAX_EVENTS: usize = 1024;

/// An event on a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// The token under which the socket was registered.
    pub(crate) token: u64,
    /// The socket is readable, or the peer has closed the connection.
    pub(crate) readable: bool,
    /// The connection is established, or the socket is writable again.
    pub(crate) writable: bool,
    /// The peer has closed or reset the connection.
    pub(crate) closed: bool,
}

/// An epoll set.
pub(crate) struct Poll {
    epoll: OwnedFd,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    /// Registers a socket for all events, edge-triggered. Closing the socket removes it from the set.
    pub(crate) fn add(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, socket, data, flags)?)
    }

    /// Waits for events, for at most `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> io::Result<Vec<Event>> {
        // rustix's events can contain pointers and are not `Send`, so the buffer is not a field.
        let mut buffer: Vec<epoll::Event> = Vec::with_capacity(MAX_EVENTS);
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        let spare = rustix::buffer::spare_capacity(&mut buffer);
        match epoll::wait(&self.epoll, spare, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let event = |event: &epoll::Event| {
            let flags = event.flags;
            Event {
                token: event.data.u64(),
                readable: flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP),
                writable: flags.contains(epoll::EventFlags::OUT),
                closed: flags.intersects(
                    epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR,
                ),
            }
        };
        Ok(buffer.iter().map(event).collect())
    }
}

/// Starts a connection from a loopback address.
pub(crate) fn connect(source: Ipv4Addr, target: SocketAddrV4) -> io::Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        flags,
        Some(ipproto::TCP),
    )?;
    rustix::net::bind(&socket, &SocketAddrV4::new(source, 0))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &target) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(errno) => Err(errno.into()),
    }
}

/// Closes a connection with a reset instead of a FIN.
pub(crate) fn reset(socket: TcpStream) {
    // If the option cannot be set, the socket closes with a FIN. The attack does not depend on the reset.
    let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
    drop(socket);
}

/// Reads until the socket has no more data. Returns `false` if the peer has closed the connection or the read failed.
pub(crate) fn drain(socket: &mut TcpStream, mut handle_data: impl FnMut(&[u8])) -> bool {
    let mut buffer = [0; 16 << 10];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return false,
            Ok(length) => handle_data(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

/// Writes as much of `pending` as the socket accepts, and removes it from `pending`. Returns `false` if the connection
/// is broken.
pub(crate) fn flush(socket: &mut TcpStream, pending: &mut Vec<u8>) -> bool {
    let mut sent = 0;
    let is_open = loop {
        if sent == pending.len() {
            break true;
        }
        match socket.write(&pending[sent..]) {
            Ok(0) => break false,
            Ok(length) => sent += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error.kind() == io::ErrorKind::WouldBlock,
        }
    };
    pending.drain(..sent);
    is_open
}
