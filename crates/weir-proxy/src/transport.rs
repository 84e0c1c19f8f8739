//! What stands between a connection's socket and those who read and write it: nothing, or TLS.
//!
//! A transport takes octets and gives octets. It may have taken some that the socket has not ([`Transport::holds`]): then
//! nothing more is written until an event says that the socket takes more, and a write of nothing sends what is held.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::context::Ready;
use crate::socket::{self, Read, Written};
use crate::tls::{Channel, Handshake};

/// See the module.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: OwnedFd,
    tls: Option<Box<Channel>>,
}

impl Transport {
    /// The socket as it is.
    pub(crate) const fn plain(socket: OwnedFd) -> Self {
        Self { socket, tls: None }
    }

    /// TLS over the socket.
    pub(crate) fn secure(socket: OwnedFd, channel: Channel) -> Self {
        Self {
            socket,
            tls: Some(Box::new(channel)),
        }
    }

    /// The socket, if there is nothing over it.
    pub(crate) fn into_plain(self) -> Option<OwnedFd> {
        self.tls.is_none().then_some(self.socket)
    }

    /// Whether nobody on the way can read what is sent.
    pub(crate) const fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Goes on with what comes before any octet; with a plain socket nothing does.
    pub(crate) fn handshake(&mut self, ready: &mut Ready) -> Handshake {
        match &mut self.tls {
            None => Handshake::Done,
            Some(channel) => channel.handshake(&self.socket, ready),
        }
    }

    /// The host that a client of TLS asked for.
    pub(crate) fn asked(&self) -> Option<&str> {
        self.tls.as_ref()?.asked.as_deref()
    }

    /// Why TLS broke, if it did.
    pub(crate) fn error(&self) -> Option<&rustls::Error> {
        self.tls.as_ref()?.error.as_ref()
    }

    /// Reads, and notes in `ready` whether there may be more. `into` has room for at least 64 KiB.
    pub(crate) fn read(&mut self, ready: &mut Ready, into: &mut [u8]) -> Read {
        if let Some(channel) = &mut self.tls {
            return channel.read(&self.socket, ready, into);
        }
        let found = socket::read(&self.socket, into);
        match found {
            Read::Some(octets) => ready.after_read(octets, into.len()),
            Read::Blocked => ready.readable = false,
            Read::End | Read::Broken => {}
        }
        found
    }

    /// Takes as much as it can.
    pub(crate) fn write(&mut self, octets: &[u8]) -> Written {
        match &mut self.tls {
            None => socket::write(&self.socket, octets),
            Some(channel) => channel.write(&self.socket, &[octets]),
        }
    }

    /// Two parts at once.
    pub(crate) fn write_both(&mut self, first: &[u8], second: &[u8]) -> Written {
        match &mut self.tls {
            None => socket::write_both(&self.socket, first, second),
            Some(channel) => channel.write(&self.socket, &[first, second]),
        }
    }

    /// The socket, where it carries just what is read and written here, so that octets may pass by.
    pub(crate) const fn bare(&self) -> Option<&OwnedFd> {
        // A transport that has more than a socket has to say here when the socket is all there is to it.
        let Self { socket, tls } = self;
        match tls {
            None => Some(socket),
            Some(_) => None,
        }
    }

    /// Whether it took octets that are still to be sent.
    pub(crate) fn holds(&self) -> bool {
        self.tls.as_ref().is_some_and(|channel| channel.holds())
    }

    /// Before it is closed: says that nothing was cut off, as far as there are words for it.
    pub(crate) fn part(&mut self) {
        if let Some(channel) = &mut self.tls {
            channel.part(&self.socket);
        }
    }

    /// Tells the other side that no more will be sent.
    pub(crate) fn finish(&mut self) {
        match &mut self.tls {
            None => socket::finish(&self.socket),
            Some(channel) => channel.finish(&self.socket),
        }
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
