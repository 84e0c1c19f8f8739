//! A socket and the octets in memory that stand for it: what both kinds of HTTP/2 connections do with them.

use std::cell::RefCell;
use std::rc::Rc;

use super::census::Census;
use super::fields::Fields;
use super::upgrade::settings_end;
use super::wire::{Wire, WireEnd};
use crate::context::Ready;
use crate::socket::{Read, Written};
use crate::transport::Transport;

/// Octets that are read before they are understood, and that a buffer may keep when it is empty.
const INBOX_MAX: usize = 64 << 10;

/// Octets that are read at once from a client whose idle frames are too many. With TLS the rest of a record, 16 KiB and
/// more, has to fit in addition.
const SLOW_ROOM: usize = 2 << 10;
const SLOW_ROOM_TLS: usize = 20 << 10;
/// The pause behind each of these reads: so much more than [`Census`] forgives is read that who goes on is ended in a
/// few seconds.
const PAUSE_MS: u64 = 200;

/// See the module.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) transport: Transport,
    pub(super) ready: Ready,
    wire: Rc<RefCell<Wire>>,
    sent: usize,
    /// Of the outbox, what the frame counter has seen.
    counted: usize,
    /// A frame that goes behind the other side's settings, and what came until these are there.
    behind: Vec<u8>,
    early: Vec<u8>,
    /// Of a client's frames.
    census: Option<Census>,
    /// Nothing is read until then.
    paused_until: u64,
    /// Of what a client sends: takes errors of fields for errors of their streams.
    fields: Option<Box<Fields>>,
}

impl Line {
    /// `input` was read from it before; `behind` goes behind the other side's settings.
    pub(super) fn new(
        transport: Transport,
        ready: Ready,
        input: &[u8],
        behind: Vec<u8>,
        census: Option<Census>,
    ) -> Self {
        let mut line = Self {
            transport,
            ready,
            wire: Rc::default(),
            sent: 0,
            counted: 0,
            behind,
            early: Vec::new(),
            fields: census.is_some().then(|| Box::new(Fields::new())),
            census,
            paused_until: 0,
        };
        line.put(input);
        line
    }

    /// Hands on what came.
    fn put(&mut self, octets: &[u8]) {
        if let Some(census) = &mut self.census {
            census.read(octets);
        }
        let wire = &mut *self.wire.borrow_mut();
        let fields = &mut self.fields;
        let mut put = |wire: &mut Wire, bytes: &[u8]| match fields {
            Some(fields) => fields.pass(bytes, |bytes| wire.put(bytes)),
            None => wire.put(bytes),
        };
        if self.behind.is_empty() {
            return put(wire, octets);
        }
        self.early.extend_from_slice(octets);
        if let Some(end) = settings_end(&self.early) {
            let (settings, rest) = self.early.split_at(end);
            put(wire, settings);
            wire.put(&std::mem::take(&mut self.behind));
            put(wire, rest);
            self.early = Vec::new();
        }
    }

    /// The connection's end.
    pub(super) fn end(&self) -> WireEnd {
        WireEnd(Rc::clone(&self.wire))
    }

    /// Whether a client's frames ask for nothing, and are too many.
    pub(super) fn is_flooded(&mut self, now_ms: u64) -> bool {
        let census = self.census.as_mut();
        census.is_some_and(|census| census.is_flood(now_ms))
    }

    /// Streams that this side reset because of what the client sent, since the last call.
    pub(super) fn provoked_resets(&mut self) -> u64 {
        let census = self.census.as_mut();
        census.map_or(0, Census::take_provoked)
    }

    /// Whether the other side sends no more.
    pub(super) fn is_ended(&self) -> bool {
        self.wire.borrow().ended
    }

    fn has_room(&self) -> bool {
        let held = self.fields.as_ref().map_or(0, |fields| fields.held());
        self.wire.borrow().unread() + self.early.len() + held < INBOX_MAX.max(held + 1)
    }

    /// Reads what nobody will understand any more; whether the other side may still send.
    pub(super) fn discard(&mut self, scratch: &mut [u8]) -> bool {
        while self.ready.readable {
            match self.transport.read(&mut self.ready, scratch) {
                Read::Some(_) => {}
                Read::Blocked => return true,
                Read::End | Read::Broken => return false,
            }
        }
        true
    }

    /// Sends frames; whether the connection stands.
    pub(super) fn flush(&mut self) -> bool {
        let wire = &mut *self.wire.borrow_mut();
        if let Some(census) = &mut self.census {
            census.sent(&wire.outbox[self.counted..]);
            self.counted = wire.outbox.len();
        }
        while self.ready.writable && (self.sent < wire.outbox.len() || self.transport.holds()) {
            let rest = &wire.outbox[self.sent..];
            match self.transport.write(rest) {
                Written::Broken => return false,
                Written::Some(octets) => {
                    self.ready.writable = octets == rest.len() && !self.transport.holds();
                    self.sent += octets;
                }
            }
        }
        if self.sent == wire.outbox.len() {
            if wire.outbox.capacity() > INBOX_MAX {
                // Memory only while it is needed.
                wire.outbox = Vec::new();
            } else {
                wire.outbox.clear();
            }
            (self.sent, self.counted) = (0, 0);
        } else if self.sent > INBOX_MAX {
            wire.outbox.drain(..self.sent);
            self.counted = self.counted.saturating_sub(self.sent);
            self.sent = 0;
        }
        true
    }

    /// Until when nothing is read, where reading pauses. The end of a client that has gone is always looked for.
    pub(super) fn paused_until(&self, now_ms: u64) -> Option<u64> {
        let pauses = now_ms < self.paused_until && !self.ready.ended;
        pauses.then_some(self.paused_until)
    }

    /// Whether no octet waits for the socket.
    pub(super) fn is_flushed(&self) -> bool {
        self.wire.borrow().outbox.is_empty() && !self.transport.holds()
    }

    /// How much is read at once.
    fn room(&self) -> usize {
        let slowed = self.census.as_ref().is_some_and(Census::is_slowed);
        match slowed && !self.ready.ended {
            false => INBOX_MAX,
            true if self.transport.is_secure() => SLOW_ROOM_TLS,
            true => SLOW_ROOM,
        }
    }

    /// Pauses if there were idle frames, and too many.
    fn pace(&mut self, now_ms: u64) {
        if self.census.as_mut().is_some_and(Census::take_pause) {
            self.paused_until = now_ms + PAUSE_MS;
        }
    }

    /// Reads what came; whether something did.
    pub(super) fn take_in(&mut self, scratch: &mut [u8], now_ms: u64) -> bool {
        let mut came = false;
        while self.ready.readable
            && !self.is_ended()
            && self.has_room()
            && self.paused_until(now_ms).is_none()
        {
            let room = self.room();
            match self.transport.read(&mut self.ready, &mut scratch[..room]) {
                Read::Some(octets) => {
                    self.put(&scratch[..octets]);
                    self.pace(now_ms);
                }
                Read::Blocked => break,
                Read::End | Read::Broken => self.wire.borrow_mut().ended = true,
            }
            came = true;
        }
        came
    }
}
