//! Receives a request's body before a server is selected, so that slow clients occupy no server connection.
//!
//! Only bodies of known length are collected: other bodies may be part of an exchange in which each side waits for the
//! other. Only the start of a long body is collected; the rest is forwarded as it arrives.

use weir_http::Request;
use weir_select::Replay;

use super::record::Timer;
use super::state::Phase;
use super::{Session, Step};
use crate::context::{Context, HEAD_BUFFER_BYTES};
use crate::slab::Key;
use crate::socket::Read;

/// Number of body bytes after which a server is selected even if more bytes follow.
const MAX_COLLECTED: u64 = 16 << 10;

impl Session {
    /// Connects to a server immediately, or starts to collect the body first.
    pub(super) fn collect_or_connect(
        &mut self,
        key: Key,
        cx: &mut Context,
        request: &Request,
    ) -> Step {
        if self.request.exchange.request_done() || !self.may_collect(request) || self.is_collected()
        {
            self.set_replay(request.method.is_idempotent() && self.request.exchange.request_done());
            return self.connect(key, cx);
        }
        self.set_replay(request.method.is_idempotent());
        self.phase = Phase::Collect;
        let ms = self.timeouts().client;
        self.set_deadline(key, cx, ms);
        Step::Continue
    }

    const fn set_replay(&mut self, allowed: bool) {
        self.request.selection.set_replay(if allowed {
            Replay::Allowed
        } else {
            Replay::Forbidden
        });
    }

    /// Returns whether the body may be collected: the service buffers requests, the body has a known length, and the
    /// client sends it without waiting for the server.
    fn may_collect(&self, request: &Request) -> bool {
        self.local.service.request_buffering
            && self.request.exchange.request_remaining().is_some()
            && !request.expects_continue
    }

    fn is_collected(&self) -> bool {
        self.request.exchange.request_done()
            || self.request.exchange.request_content() >= MAX_COLLECTED
    }

    /// Reads the body until enough of it has been received.
    pub(super) fn collect(&mut self, key: Key, cx: &mut Context) -> Step {
        if !self.ready.readable {
            return Step::Pending;
        }
        let mut scratch = std::mem::take(&mut cx.scratch);
        let read = self
            .transport
            .read(&mut self.ready, &mut scratch[..HEAD_BUFFER_BYTES]);
        let step = match read {
            Read::Some(bytes) => self.add_content(key, cx, &scratch[..bytes]),
            Read::Blocked => Step::Pending,
            // No server has received the request yet.
            Read::End | Read::Broken => Step::Close,
        };
        cx.scratch = scratch;
        step
    }

    fn add_content(&mut self, key: Key, cx: &mut Context, bytes: &[u8]) -> Step {
        let request_step = match self.receive(key, cx, bytes) {
            Ok(request_step) => request_step,
            Err(step) => return step,
        };
        self.to_server
            .bytes
            .extend_from_slice(&bytes[..request_step.forward_len]);
        self.copy_content(
            cx,
            [&bytes[..request_step.forward_len], &request_step.trailers],
        );
        if self.is_collected() {
            if !self.request.exchange.request_done() {
                self.request.selection.set_replay(Replay::Forbidden);
            }
            self.stop_timer(Timer::Request);
            return self.connect(key, cx);
        }
        let ms = self.timeouts().client;
        self.set_deadline(key, cx, ms);
        Step::Continue
    }
}
