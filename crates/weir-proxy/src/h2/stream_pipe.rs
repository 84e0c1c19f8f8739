//! One stream's bytes between an HTTP/2 connection and whoever speaks HTTP/1 on its behalf: two bounded buffers, and
//! the marks that say who has to go on.

use std::cell::RefCell;
use std::rc::Rc;

use crate::context::Ready;
use crate::slab::Key;
use crate::socket::{Read, Written};

/// Bytes that wait in each direction; a side that is slow makes the other one wait.
pub(crate) const PIPE_MAX: usize = 32 << 10;

/// As long as the stream has taken no content, which clients with a window of zero never do: a response of 16 KiB with
/// its head.
const PIPE_START: usize = 18 << 10;

/// Less is not worth a read.
const READ_MIN: usize = 2 << 10;

/// Room for most heads, so that making one takes one piece of memory.
const HEAD_USUAL: usize = 512;

/// Connections that have something to do, as an event's 64 bits.
pub(crate) type Wakeups = Rc<RefCell<Vec<u64>>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct StreamPipe {
    /// From the connection's stream; this much of it is read.
    inbound: Vec<u8>,
    read: usize,
    /// Nothing more comes from there.
    pub(crate) inbound_ended: bool,
    /// To the connection's stream.
    pub(crate) outbound: Vec<u8>,
    /// Bytes that `outbound` takes: more than [`PIPE_MAX`] only while a longer head is put together.
    outbound_max: usize,
    /// Nothing more goes there.
    pub(crate) outbound_ended: bool,
    /// The HTTP/1 side could not write all that it had.
    pub(crate) full: bool,
    /// The stream stands, or is over.
    pub(crate) state: PipeState,
    /// The HTTP/1 side is gone.
    pub(crate) detached: bool,
    /// Whose HTTP/1 side it is.
    pub(crate) owner: Owner,
    /// Nobody on the way can read what is sent.
    pub(crate) secure: bool,
    wakeups: Wakeups,
    /// The HTTP/2 connection.
    token: u64,
}

/// Who speaks HTTP/1 over a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// No session serves it yet. A stream that ends before one does never gets one: see
    /// [`Action::Serve`](super::Action).
    Pending,
    /// The session that serves a client's stream.
    Session(Key),
    /// A server's connection, which a session has.
    Server(Key),
}

/// Whether a stream can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipeState {
    /// Its connection is not there yet.
    Connecting,
    Open,
    Closed,
    /// Its connection takes no more streams, and has sent nothing of this one.
    Refused,
}

impl StreamPipe {
    pub(crate) fn new(wakeups: &Wakeups, token: u64, secure: bool, state: PipeState) -> Self {
        Self {
            inbound: Vec::new(),
            read: 0,
            inbound_ended: false,
            outbound: Vec::new(),
            outbound_max: PIPE_START,
            outbound_ended: false,
            full: false,
            state,
            detached: false,
            owner: Owner::Pending,
            secure,
            wakeups: Rc::clone(wakeups),
            token,
        }
    }

    /// Whether nothing goes either way any more.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, PipeState::Closed | PipeState::Refused)
    }

    /// Whether the HTTP/1 side has taken enough for more to be put in.
    pub(crate) const fn has_room(&self) -> bool {
        self.inbound.len() - self.read < PIPE_MAX
    }

    /// Where the stream's bytes are put.
    pub(crate) fn inbound(&mut self) -> &mut Vec<u8> {
        if self.read == self.inbound.len() {
            self.inbound.clear();
            self.read = 0;
        }
        if self.inbound.capacity() == 0 {
            self.inbound.reserve(HEAD_USUAL);
        }
        &mut self.inbound
    }

    /// The head that goes out is not complete: one that fills the room gets more. Whoever sends it has limited its
    /// length.
    pub(super) const fn await_head(&mut self) {
        if self.outbound.len() >= self.outbound_max {
            self.outbound_max *= 2;
        }
    }

    /// The head that goes out had this length and is dealt with.
    pub(super) fn take_head(&mut self, length: usize) {
        self.outbound.drain(..length);
        self.outbound_max = PIPE_START;
    }

    /// The stream takes content.
    pub(super) const fn widen(&mut self) {
        self.outbound_max = PIPE_MAX;
    }

    /// Whether the HTTP/1 side waits for room that is there now; true once.
    pub(super) const fn makes_room(&mut self) -> bool {
        let makes = self.full && self.outbound.len() < self.outbound_max;
        self.full &= !makes;
        makes
    }

    fn wake(&self) {
        let mut wakeups = self.wakeups.borrow_mut();
        if wakeups.last() != Some(&self.token) {
            wakeups.push(self.token);
        }
    }
}

/// The HTTP/1 side.
#[derive(Debug)]
pub(crate) struct StreamPipeEnd(pub(crate) Rc<RefCell<StreamPipe>>);

impl StreamPipeEnd {
    pub(crate) fn read(&self, ready: &mut Ready, into: &mut [u8]) -> Read {
        let pipe = &mut *self.0.borrow_mut();
        let bytes = (pipe.inbound.len() - pipe.read).min(into.len());
        if bytes == 0 {
            if pipe.inbound_ended || pipe.is_over() {
                return Read::End;
            }
            ready.readable = false;
            return Read::Blocked;
        }
        let end = pipe.read + bytes;
        into[..bytes].copy_from_slice(&pipe.inbound[pipe.read..end]);
        pipe.read = end;
        if end == pipe.inbound.len() {
            pipe.inbound = Vec::new();
            pipe.read = 0;
            ready.readable = pipe.inbound_ended;
        }
        if !pipe.inbound_ended {
            pipe.wake();
        }
        Read::Some(bytes)
    }

    pub(crate) fn write(&self, parts: &[&[u8]]) -> Written {
        let pipe = &mut *self.0.borrow_mut();
        if pipe.is_over() {
            return Written::Broken;
        }
        let mut written = 0;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let room = pipe.outbound_max.saturating_sub(pipe.outbound.len());
        pipe.outbound.reserve(total.min(room));
        for part in parts {
            let room = pipe.outbound_max.saturating_sub(pipe.outbound.len());
            let bytes = room.min(part.len());
            pipe.outbound.extend_from_slice(&part[..bytes]);
            written += bytes;
            if bytes < part.len() {
                pipe.full = true;
                break;
            }
        }
        pipe.wake();
        Written::Some(written)
    }

    /// How much is worth reading for it: what it has no room for would wait in a second buffer.
    pub(crate) fn worth_reading(&self) -> usize {
        let pipe = self.0.borrow();
        let room = pipe.outbound_max.saturating_sub(pipe.outbound.len());
        room.max(READ_MIN)
    }

    pub(crate) fn finish(&self) {
        let pipe = &mut *self.0.borrow_mut();
        pipe.outbound_ended = true;
        pipe.wake();
    }

    pub(crate) fn state(&self) -> PipeState {
        self.0.borrow().state
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.0.borrow().secure
    }
}

impl Drop for StreamPipeEnd {
    fn drop(&mut self) {
        // It is borrowed only where a defect unwinds, and then its connection goes too.
        if let Ok(mut pipe) = self.0.try_borrow_mut() {
            pipe.detached = true;
            pipe.wake();
        }
    }
}
