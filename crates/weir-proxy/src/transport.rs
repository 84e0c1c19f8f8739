//! What stands between a connection's socket and those who read and write it.
//!
//! A transport takes octets and gives octets. It may have taken some that the socket has not ([`Transport::holds`]): then
//! nothing more is written until an event says that the socket takes more, and a write of nothing sends what is held.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::context::Ready;
use crate::socket::{self, Read, Written};

/// See the module.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: OwnedFd,
}

impl Transport {
    /// The socket as it is.
    pub(crate) const fn plain(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Reads, and notes in `ready` whether there may be more. `into` has room for at least 64 KiB.
    pub(crate) fn read(&mut self, ready: &mut Ready, into: &mut [u8]) -> Read {
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
        socket::write(&self.socket, octets)
    }

    /// Two parts at once.
    pub(crate) fn write_both(&mut self, first: &[u8], second: &[u8]) -> Written {
        socket::write_both(&self.socket, first, second)
    }

    /// Whether it took octets that are still to be sent.
    pub(crate) const fn holds(&self) -> bool {
        false
    }

    /// Tells the other side that no more will be sent.
    pub(crate) fn finish(&mut self) {
        socket::finish(&self.socket);
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
