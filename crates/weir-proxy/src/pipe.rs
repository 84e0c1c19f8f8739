//! Pipes that splice a body from one socket to another inside the kernel, without copying.

use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::descriptor::{Held, TABLE, Use};
use crate::socket::{self, Read, Written};

/// Smallest remaining body that is spliced: below this, copying is as fast as two calls and a pipe.
pub(crate) const SPLICE_MIN: u64 = 64 << 10;
/// Capacity of a pipe: the largest that the kernel grants without privileges.
const PIPE_ROOM: usize = 1 << 20;
/// Empty pipes that a worker keeps, two descriptors each. Few suffice, because a session has a pipe only while a body
/// is transferred.
const SPARE_MAX: usize = 16;

/// One pipe and its fill level.
#[derive(Debug)]
pub(crate) struct Pipe {
    into: OwnedFd,
    out: OwnedFd,
    held: usize,
    _counts: Held,
}

impl Pipe {
    fn new() -> rustix::io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Fails if the user's limit for all pipes is used up; a smaller pipe works too.
        let _ = fcntl_setpipe_size(&into, PIPE_ROOM);
        Ok(Self {
            into,
            out,
            held: 0,
            _counts: Held::new(Use::Pipe),
        })
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Splices up to `most` bytes from a socket into the pipe.
    pub(crate) fn fill(&mut self, from: &OwnedFd, most: u64) -> Read {
        let most = usize::try_from(most).unwrap_or(PIPE_ROOM).min(PIPE_ROOM);
        let read = socket::splice(from, &self.into, most);
        if let Read::Some(bytes) = read {
            self.held += bytes;
        }
        read
    }

    /// Splices the pipe's content to a socket; if fewer bytes are returned, an event follows when there is room.
    pub(crate) fn drain(&mut self, to: &OwnedFd) -> Written {
        match socket::splice(&self.out, to, self.held) {
            Read::Some(bytes) => {
                self.held -= bytes.min(self.held);
                Written::Some(bytes)
            }
            Read::Blocked => Written::Some(0),
            Read::End | Read::Broken => Written::Broken,
        }
    }
}

/// A worker's empty pipes.
#[derive(Debug, Default)]
pub(crate) struct Pipes(Vec<Pipe>);

impl Pipes {
    /// An empty one; none when descriptors are short: what a pipe would carry can be copied.
    pub(crate) fn take(&mut self) -> Option<Pipe> {
        self.0.pop().or_else(|| {
            let room = TABLE.has_room_for_pipe();
            room.then(|| Pipe::new().ok()).flatten()
        })
    }

    /// Closes those that nothing uses.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns a pipe. One that still contains bytes is closed, because they must never reach another client.
    pub(crate) fn give(&mut self, pipe: Option<Pipe>) {
        if let Some(pipe) = pipe
            && pipe.is_empty()
            && self.0.len() < SPARE_MAX
        {
            self.0.push(pipe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipe_with_content_is_not_reused() {
        let mut pipes = Pipes::default();
        let mut pipe = pipes.take().expect("a pipe");
        let (from, to) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK,
            None,
        )
        .expect("sockets");
        assert_eq!(socket::write(&from, b"hello"), Written::Some(5));
        assert_eq!(pipe.fill(&to, 100), Read::Some(5));
        pipes.give(Some(pipe));
        assert!(pipes.0.is_empty());
        let empty = pipes.take();
        pipes.give(empty);
        assert_eq!(pipes.0.len(), 1);
    }
}
