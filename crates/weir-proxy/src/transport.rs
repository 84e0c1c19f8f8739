//! What stands between a connection's socket and those who read and write it: nothing, TLS, or a stream pipe of an HTTP/2
//! connection, which has a socket with others.
//!
//! A transport takes bytes and gives bytes. It may have taken some that the socket has not ([`Transport::holds`]):
//! then nothing more is written until an event says that the socket takes more, and a write of nothing sends what is
//! held.

use std::os::fd::OwnedFd;

use rustix::io;

use crate::context::Ready;
use crate::descriptor::{Held, Use};
use crate::h2::{PipeState, StreamPipeEnd};
use crate::socket::{self, Read, Written};
use crate::tls::{Channel, Handshake};

/// See the module.
#[derive(Debug)]
pub(crate) struct Transport {
    kind: Kind,
    /// Its descriptor counts.
    held: Option<Held>,
}

#[derive(Debug)]
enum Kind {
    Plain(OwnedFd),
    Secure(OwnedFd, Box<Channel>),
    Stream(StreamPipeEnd),
}

impl Transport {
    const fn new(kind: Kind) -> Self {
        Self { kind, held: None }
    }

    /// The socket as it is.
    pub(crate) const fn plain(socket: OwnedFd) -> Self {
        Self::new(Kind::Plain(socket))
    }

    /// TLS over the socket.
    pub(crate) fn secure(socket: OwnedFd, channel: Channel) -> Self {
        Self::new(Kind::Secure(socket, Box::new(channel)))
    }

    /// Counts its descriptor as a client's, or a server's, as long as it lives.
    pub(crate) fn counted(mut self, of: Use) -> Self {
        self.held = Some(Held::new(of));
        self
    }

    /// A socket and the TLS over it, if any, as [`into_own`](Self::into_own) took them apart.
    pub(crate) fn own(socket: OwnedFd, channel: Option<Box<Channel>>) -> Self {
        Self::new(match channel {
            Some(channel) => Kind::Secure(socket, channel),
            None => Kind::Plain(socket),
        })
    }

    /// The socket and the TLS over it, if it has a socket of its own: for another thread.
    pub(crate) fn into_own(self) -> Option<(OwnedFd, Option<Box<Channel>>)> {
        match self.kind {
            Kind::Plain(socket) => Some((socket, None)),
            Kind::Secure(socket, channel) => Some((socket, Some(channel))),
            Kind::Stream(_) => None,
        }
    }

    /// A stream of an HTTP/2 connection.
    pub(crate) const fn stream(end: StreamPipeEnd) -> Self {
        Self::new(Kind::Stream(end))
    }

    /// Whether it is a stream of an HTTP/2 connection.
    pub(crate) const fn is_stream(&self) -> bool {
        matches!(self.kind, Kind::Stream(_))
    }

    /// The socket, if there is nothing over it.
    pub(crate) fn into_plain(self) -> Option<OwnedFd> {
        match self.kind {
            Kind::Plain(socket) => Some(socket),
            Kind::Secure(..) | Kind::Stream(_) => None,
        }
    }

    /// Whether nobody on the way can read what is sent.
    pub(crate) fn is_secure(&self) -> bool {
        match &self.kind {
            Kind::Plain(_) => false,
            Kind::Secure(..) => true,
            Kind::Stream(end) => end.is_secure(),
        }
    }

    /// The socket under it, if it has one of its own: for what goes before everything else.
    pub(crate) const fn socket(&self) -> Option<&OwnedFd> {
        match &self.kind {
            Kind::Plain(socket) | Kind::Secure(socket, _) => Some(socket),
            Kind::Stream(_) => None,
        }
    }

    /// Takes back what [`Transport::watch`] did.
    pub(crate) fn unwatch(&self, epoll: &OwnedFd) {
        if let Some(socket) = self.socket() {
            socket::unwatch(epoll, socket);
        }
    }

    /// Registers its socket, if it has one, for everything; see [`socket::watch`].
    pub(crate) fn watch(&self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        self.socket()
            .map_or(Ok(()), |socket| socket::watch(epoll, socket, token))
    }

    /// Its events are about something else from now on.
    pub(crate) fn rewatch(&self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        self.socket()
            .map_or(Ok(()), |socket| socket::rewatch(epoll, socket, token))
    }

    /// No events for incoming data until [`Transport::rewatch`].
    pub(crate) fn suspend_reading(&self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        self.socket().map_or(Ok(()), |socket| {
            socket::suspend_reading(epoll, socket, token)
        })
    }

    /// Whether a connection that was begun stands.
    pub(crate) fn is_connected(&self) -> bool {
        self.socket().is_none_or(socket::is_connected)
    }

    /// Whether an idle connection is as silent as it should be.
    pub(crate) fn is_silent(&self) -> bool {
        self.socket().is_some_and(socket::is_silent)
    }

    /// Whether it is a stream that its HTTP/2 connection had no room for.
    pub(crate) fn is_declined(&self) -> bool {
        match &self.kind {
            Kind::Plain(_) | Kind::Secure(..) => false,
            Kind::Stream(end) => end.state() == PipeState::Refused,
        }
    }

    /// Goes on with what comes before any byte.
    pub(crate) fn handshake(&mut self, ready: &mut Ready) -> Handshake {
        match &mut self.kind {
            Kind::Plain(_) => Handshake::Done,
            Kind::Secure(socket, channel) => channel.handshake(socket, ready),
            Kind::Stream(end) => match end.state() {
                PipeState::Connecting => Handshake::Waits,
                PipeState::Open => Handshake::Done,
                PipeState::Closed | PipeState::Refused => Handshake::Failed,
            },
        }
    }

    const fn channel(&self) -> Option<&Channel> {
        match &self.kind {
            Kind::Secure(_, channel) => Some(channel),
            Kind::Plain(_) | Kind::Stream(_) => None,
        }
    }

    /// The protocol that both sides agreed on in the TLS handshake.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.channel()?.protocol()
    }

    /// The host that a client of TLS asked for.
    pub(crate) fn asked(&self) -> Option<&str> {
        self.channel()?.asked.as_deref()
    }

    /// Why TLS broke, if it did.
    pub(crate) fn error(&self) -> Option<&rustls::Error> {
        self.channel()?.error.as_ref()
    }

    /// Reads, and notes in `ready` whether there may be more. `into` has room for at least 64 KiB.
    pub(crate) fn read(&mut self, ready: &mut Ready, into: &mut [u8]) -> Read {
        let socket = match &mut self.kind {
            Kind::Plain(socket) => socket,
            Kind::Secure(socket, channel) => return channel.read(socket, ready, into),
            Kind::Stream(end) => return end.read(ready, into),
        };
        let found = socket::read(socket, into);
        match found {
            Read::Some(bytes) => ready.after_read(bytes, into.len()),
            Read::Blocked => ready.readable = false,
            Read::End | Read::Broken => {}
        }
        found
    }

    /// Whether TLS says that the other side sends no more, which may be known before the socket's own end is.
    pub(crate) fn is_closed(&mut self, ready: &mut Ready) -> bool {
        match &mut self.kind {
            Kind::Secure(socket, channel) => channel.is_closed(socket, ready),
            Kind::Plain(_) | Kind::Stream(_) => false,
        }
    }

    /// Reads what nobody will look at, also where TLS has failed.
    pub(crate) fn discard(&mut self, ready: &mut Ready, into: &mut [u8]) -> Read {
        let Kind::Secure(socket, channel) = &mut self.kind else {
            return self.read(ready, into);
        };
        if channel.error.is_none() {
            return channel.read(socket, ready, into);
        }
        let found = socket::read(socket, into);
        match found {
            Read::Some(bytes) => ready.after_read(bytes, into.len()),
            Read::Blocked => ready.readable = false,
            Read::End | Read::Broken => {}
        }
        found
    }

    /// Takes as much as it can.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Written {
        match &mut self.kind {
            Kind::Plain(socket) => socket::write(socket, bytes),
            Kind::Secure(socket, channel) => channel.write(socket, &[bytes]),
            Kind::Stream(end) => end.write(&[bytes]),
        }
    }

    /// Two parts at once.
    pub(crate) fn write_both(&mut self, first: &[u8], second: &[u8]) -> Written {
        match &mut self.kind {
            Kind::Plain(socket) => socket::write_both(socket, first, second),
            Kind::Secure(socket, channel) => channel.write(socket, &[first, second]),
            Kind::Stream(end) => end.write(&[first, second]),
        }
    }

    /// The socket, where it carries just what is read and written here, so that bytes may pass by.
    pub(crate) const fn bare(&self) -> Option<&OwnedFd> {
        match &self.kind {
            Kind::Plain(socket) => Some(socket),
            Kind::Secure(..) | Kind::Stream(_) => None,
        }
    }

    /// Up to how many bytes are worth reading to be written here.
    pub(crate) fn worth_reading(&self) -> usize {
        match &self.kind {
            Kind::Plain(_) | Kind::Secure(..) => usize::MAX,
            Kind::Stream(end) => end.worth_reading(),
        }
    }

    /// Whether it took bytes that are still to be sent.
    pub(crate) fn holds(&self) -> bool {
        self.channel().is_some_and(Channel::holds)
    }

    /// Before it is closed: says that nothing was cut off, as far as there are words for it.
    pub(crate) fn part(&mut self) {
        match &mut self.kind {
            Kind::Plain(_) => {}
            Kind::Secure(socket, channel) => channel.part(socket),
            Kind::Stream(end) => end.finish(),
        }
    }

    /// Tells the other side that no more will be sent.
    pub(crate) fn finish(&mut self) {
        match &mut self.kind {
            Kind::Plain(socket) => socket::finish(socket),
            Kind::Secure(socket, channel) => channel.finish(socket),
            Kind::Stream(end) => end.finish(),
        }
    }
}
