//! A socket and the octets in memory that stand for it: what both kinds of HTTP/2 connections do with them.

use std::cell::RefCell;
use std::rc::Rc;

use super::census::Census;
use super::upgrade::settings_end;
use super::wire::{Wire, WireEnd};
use crate::context::Ready;
use crate::socket::{Read, Written};
use crate::transport::Transport;

/// Octets that are read before they are understood, and that a buffer may keep when it is empty.
const INBOX_MAX: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) transport: Transport,
    pub(super) ready: Ready,
    wire: Rc<RefCell<Wire>>,
    sent: usize,
    /// A frame that goes behind the other side's settings, and what came until these are there.
    behind: Vec<u8>,
    early: Vec<u8>,
    /// Of a client's frames.
    census: Option<Census>,
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
            behind,
            early: Vec::new(),
            census,
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
        if self.behind.is_empty() {
            return wire.put(octets);
        }
        self.early.extend_from_slice(octets);
        if let Some(end) = settings_end(&self.early) {
            let (settings, rest) = self.early.split_at(end);
            wire.put(settings);
            wire.put(&std::mem::take(&mut self.behind));
            wire.put(rest);
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

    /// Whether the other side sends no more.
    pub(super) fn is_ended(&self) -> bool {
        self.wire.borrow().ended
    }

    fn has_room(&self) -> bool {
        self.wire.borrow().unread() + self.early.len() < INBOX_MAX
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
            self.sent = 0;
        } else if self.sent > INBOX_MAX {
            wire.outbox.drain(..self.sent);
            self.sent = 0;
        }
        true
    }

    /// Reads what came; whether something did.
    pub(super) fn take_in(&mut self, scratch: &mut [u8]) -> bool {
        let mut came = false;
        while self.ready.readable && !self.is_ended() && self.has_room() {
            match self
                .transport
                .read(&mut self.ready, &mut scratch[..INBOX_MAX])
            {
                Read::Some(octets) => self.put(&scratch[..octets]),
                Read::Blocked => break,
                Read::End | Read::Broken => self.wire.borrow_mut().ended = true,
            }
            came = true;
        }
        came
    }
}
