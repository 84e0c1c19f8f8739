//! A request's content before a server is chosen, so that a client that sends it slowly occupies no connection to a
//! server.
//!
//! Only content of a known length is waited for: other content may be half of a conversation, in which each side waits
//! for the other. What is kept is bounded; the rest of a longer body goes on as it comes.

use weir_http::Request;
use weir_select::Replay;

use super::record::Part;
use super::state::Phase;
use super::{Session, Step};
use crate::context::{Context, HEAD_ROOM};
use crate::slab::Key;
use crate::socket::Read;

/// Octets of content after which a server is chosen though there are more to come.
const COLLECTED_MAX: u64 = 16 << 10;

impl Session {
    /// Goes on to a server, at once or when the request's content is there.
    pub(super) fn proceed(&mut self, key: Key, cx: &mut Context, request: &Request) -> Step {
        if self.request.exchange.request_done() || !self.may_collect(request) || self.is_collected()
        {
            self.set_replay(request.method.is_idempotent() && self.request.exchange.request_done());
            return self.connect(key, cx);
        }
        self.set_replay(request.method.is_idempotent());
        self.phase = Phase::Collect;
        let ms = self.local.service.timeouts.client;
        self.wait(key, cx, ms);
        Step::Continue
    }

    const fn set_replay(&mut self, allowed: bool) {
        self.request.selection.set_replay(if allowed {
            Replay::Allowed
        } else {
            Replay::Forbidden
        });
    }

    /// Whether the client sends its content whatever the server does.
    fn may_collect(&self, request: &Request) -> bool {
        self.local.service.request_buffering
            && self.request.exchange.request_remaining().is_some()
            && !request.expects_continue
    }

    fn is_collected(&self) -> bool {
        self.request.exchange.request_done()
            || self.request.exchange.request_content() >= COLLECTED_MAX
    }

    /// Reads content until there is enough of it.
    pub(super) fn collect(&mut self, key: Key, cx: &mut Context) -> Step {
        if !self.ready.readable {
            return Step::Pending;
        }
        let mut scratch = std::mem::take(&mut cx.scratch);
        let found = self
            .transport
            .read(&mut self.ready, &mut scratch[..HEAD_ROOM]);
        let moved = match found {
            Read::Some(octets) => self.add_content(key, cx, &scratch[..octets]),
            Read::Blocked => Step::Pending,
            // No server has the request yet.
            Read::End | Read::Broken => Step::Close,
        };
        cx.scratch = scratch;
        moved
    }

    fn add_content(&mut self, key: Key, cx: &mut Context, octets: &[u8]) -> Step {
        let upload = match self.receive(key, cx, octets) {
            Ok(upload) => upload,
            Err(moved) => return moved,
        };
        self.to_server
            .bytes
            .extend_from_slice(&octets[..upload.forward]);
        if self.is_collected() {
            if !self.request.exchange.request_done() {
                self.request.selection.set_replay(Replay::Forbidden);
            }
            self.mark(Part::Request);
            return self.connect(key, cx);
        }
        let ms = self.local.service.timeouts.client;
        self.wait(key, cx, ms);
        Step::Continue
    }
}
