//! One stream's octets between an HTTP/2 connection and whoever speaks HTTP/1 on its behalf: two bounded buffers, and
//! the marks that say who has to go on.

use std::cell::RefCell;
use std::rc::Rc;

use crate::context::Ready;
use crate::slab::Key;
use crate::socket::{Read, Written};

/// Octets that wait in each direction; a side that is slow makes the other one wait.
pub(crate) const STRAND_MAX: usize = 32 << 10;

/// As long as the stream has taken no content, which clients with a window of zero never do: a response of 16 KiB with
/// its head.
const STRAND_START: usize = 18 << 10;

/// Less is not worth a read.
const READ_MIN: usize = 2 << 10;

/// Room for most heads, so that making one takes one piece of memory.
const HEAD_USUAL: usize = 512;

/// Connections that have something to do, as an event's 64 bits.
pub(crate) type Bell = Rc<RefCell<Vec<u64>>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Strand {
    /// From the connection's stream; this much of it is read.
    inward: Vec<u8>,
    read: usize,
    /// Nothing more comes from there.
    pub(crate) inward_ended: bool,
    /// To the connection's stream.
    pub(crate) outward: Vec<u8>,
    /// Bytes that `outward` takes: more than [`STRAND_MAX`] only while a longer head is put together.
    outward_max: usize,
    /// Nothing more goes there.
    pub(crate) outward_ended: bool,
    /// The HTTP/1 side could not write all that it had.
    pub(crate) full: bool,
    /// The stream stands, or is over.
    pub(crate) state: StrandState,
    /// The HTTP/1 side is gone.
    pub(crate) left: bool,
    /// Whose HTTP/1 side it is.
    pub(crate) owner: Owner,
    /// Nobody on the way can read what is sent.
    pub(crate) secure: bool,
    bell: Bell,
    /// The HTTP/2 connection.
    token: u64,
}

/// Who speaks HTTP/1 over a strand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// No session serves it yet. A stream that ends before one does never gets one: see
    /// [`Errand::Serve`](super::Errand).
    Pending,
    /// The session that serves a client's stream.
    Session(Key),
    /// A server's connection, which a session has.
    Server(Key),
}

/// Whether a stream can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StrandState {
    /// Its connection is not there yet.
    Begun,
    Open,
    Over,
    /// Its connection takes no more streams, and has sent nothing of this one.
    Declined,
}

impl Strand {
    pub(crate) fn new(bell: &Bell, token: u64, secure: bool, state: StrandState) -> Self {
        Self {
            inward: Vec::new(),
            read: 0,
            inward_ended: false,
            outward: Vec::new(),
            outward_max: STRAND_START,
            outward_ended: false,
            full: false,
            state,
            left: false,
            owner: Owner::Pending,
            secure,
            bell: Rc::clone(bell),
            token,
        }
    }

    /// Whether nothing goes either way any more.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, StrandState::Over | StrandState::Declined)
    }

    /// Whether the HTTP/1 side has taken enough for more to be put in.
    pub(crate) const fn has_room(&self) -> bool {
        self.inward.len() - self.read < STRAND_MAX
    }

    /// Where the stream's octets are put.
    pub(crate) fn inward(&mut self) -> &mut Vec<u8> {
        if self.read == self.inward.len() {
            self.inward.clear();
            self.read = 0;
        }
        if self.inward.capacity() == 0 {
            self.inward.reserve(HEAD_USUAL);
        }
        &mut self.inward
    }

    /// The head that goes out is not complete: one that fills the room gets more. Whoever sends it has limited its
    /// length.
    pub(super) const fn await_head(&mut self) {
        if self.outward.len() >= self.outward_max {
            self.outward_max *= 2;
        }
    }

    /// The head that goes out had this length and is dealt with.
    pub(super) fn take_head(&mut self, length: usize) {
        self.outward.drain(..length);
        self.outward_max = STRAND_START;
    }

    /// The stream takes content.
    pub(super) const fn widen(&mut self) {
        self.outward_max = STRAND_MAX;
    }

    /// Whether the HTTP/1 side waits for room that is there now; true once.
    pub(super) const fn makes_room(&mut self) -> bool {
        let makes = self.full && self.outward.len() < self.outward_max;
        self.full &= !makes;
        makes
    }

    fn ring(&self) {
        let mut bell = self.bell.borrow_mut();
        if bell.last() != Some(&self.token) {
            bell.push(self.token);
        }
    }
}

/// The HTTP/1 side.
#[derive(Debug)]
pub(crate) struct StrandEnd(pub(crate) Rc<RefCell<Strand>>);

impl StrandEnd {
    pub(crate) fn read(&self, ready: &mut Ready, into: &mut [u8]) -> Read {
        let strand = &mut *self.0.borrow_mut();
        let octets = (strand.inward.len() - strand.read).min(into.len());
        if octets == 0 {
            if strand.inward_ended || strand.is_over() {
                return Read::End;
            }
            ready.readable = false;
            return Read::Blocked;
        }
        let end = strand.read + octets;
        into[..octets].copy_from_slice(&strand.inward[strand.read..end]);
        strand.read = end;
        if end == strand.inward.len() {
            strand.inward = Vec::new();
            strand.read = 0;
            ready.readable = strand.inward_ended;
        }
        if !strand.inward_ended {
            strand.ring();
        }
        Read::Some(octets)
    }

    pub(crate) fn write(&self, parts: &[&[u8]]) -> Written {
        let strand = &mut *self.0.borrow_mut();
        if strand.is_over() {
            return Written::Broken;
        }
        let mut written = 0;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let room = strand.outward_max.saturating_sub(strand.outward.len());
        strand.outward.reserve(total.min(room));
        for part in parts {
            let room = strand.outward_max.saturating_sub(strand.outward.len());
            let octets = room.min(part.len());
            strand.outward.extend_from_slice(&part[..octets]);
            written += octets;
            if octets < part.len() {
                strand.full = true;
                break;
            }
        }
        strand.ring();
        Written::Some(written)
    }

    /// How much is worth reading for it: what it has no room for would wait in a second buffer.
    pub(crate) fn worth_reading(&self) -> usize {
        let strand = self.0.borrow();
        let room = strand.outward_max.saturating_sub(strand.outward.len());
        room.max(READ_MIN)
    }

    pub(crate) fn finish(&self) {
        let strand = &mut *self.0.borrow_mut();
        strand.outward_ended = true;
        strand.ring();
    }

    pub(crate) fn state(&self) -> StrandState {
        self.0.borrow().state
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.0.borrow().secure
    }
}

impl Drop for StrandEnd {
    fn drop(&mut self) {
        // It is borrowed only where a defect unwinds, and then its connection goes too.
        if let Ok(mut strand) = self.0.try_borrow_mut() {
            strand.left = true;
            strand.ring();
        }
    }
}
