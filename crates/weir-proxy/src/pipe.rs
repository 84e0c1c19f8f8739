//! Splices bodies from one socket to another through a kernel pipe, without copying.

use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::descriptor::{DescriptorGuard, DescriptorUse, TABLE};
use crate::socket::{self, Read, Written};

/// Minimum remaining size of a body that is spliced, in bytes. Below this, copying is as fast as two system calls and a
/// pipe.
pub(crate) const MIN_SPLICE: u64 = 64 << 10;
/// Capacity of a pipe in bytes: the largest that the kernel grants to unprivileged processes by default.
const PIPE_BYTES: usize = 1 << 20;
/// Maximum number of empty pipes that a worker keeps, with two descriptors each. A few are enough: a session has a pipe
/// only while a body is transferred.
const MAX_SPARE: usize = 16;

/// A pipe, and the number of bytes in it.
#[derive(Debug)]
pub(crate) struct Pipe {
    write_end: OwnedFd,
    read_end: OwnedFd,
    length: usize,
    _counts: DescriptorGuard,
}

impl Pipe {
    fn new() -> rustix::io::Result<Self> {
        let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Fails if the user's limit for all pipes is exhausted; a smaller pipe works too.
        let _ = fcntl_setpipe_size(&write_end, PIPE_BYTES);
        Ok(Self {
            write_end,
            read_end,
            length: 0,
            _counts: DescriptorGuard::new(DescriptorUse::Pipe),
        })
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Splices at most `max` bytes from a socket into the pipe.
    pub(crate) fn fill(&mut self, source: &OwnedFd, max: u64) -> Read {
        let max = usize::try_from(max).unwrap_or(PIPE_BYTES).min(PIPE_BYTES);
        let read = socket::splice(source, &self.write_end, max);
        if let Read::Some(bytes) = read {
            self.length += bytes;
        }
        read
    }

    /// Splices the pipe's content to a socket. If it returns fewer bytes than the pipe contains, an event follows when
    /// the socket has room.
    pub(crate) fn drain(&mut self, destination: &OwnedFd) -> Written {
        match socket::splice(&self.read_end, destination, self.length) {
            Read::Some(bytes) => {
                self.length -= bytes.min(self.length);
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
    /// Returns an empty pipe, or `None` if descriptors are scarce; the caller then copies the data.
    pub(crate) fn take(&mut self) -> Option<Pipe> {
        self.0.pop().or_else(|| {
            let has_room = TABLE.has_room_for_pipe();
            has_room.then(|| Pipe::new().ok()).flatten()
        })
    }

    /// Closes all unused pipes.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Keeps an empty pipe for reuse, unless there are already [`MAX_SPARE`]. A pipe that still contains bytes is
    /// closed, because they must never reach another client.
    pub(crate) fn put_back(&mut self, pipe: Option<Pipe>) {
        if let Some(pipe) = pipe
            && pipe.is_empty()
            && self.0.len() < MAX_SPARE
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
        let mut pipe = pipes.take().expect("create pipe");
        let (from, to) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK,
            None,
        )
        .expect("create socket pair");
        assert_eq!(socket::write(&from, b"hello"), Written::Some(5));
        assert_eq!(pipe.fill(&to, 100), Read::Some(5));
        pipes.put_back(Some(pipe));
        assert!(pipes.0.is_empty());
        let empty = pipes.take();
        pipes.put_back(empty);
        assert_eq!(pipes.0.len(), 1);
    }
}
