//! Sets deadlines, and handles expired deadlines.

use weir_select::{Failure, Fault, QueueExit};

use super::state::Phase;
use super::{Outcome, Session, Step, bulk};
use crate::context::Context;
use crate::slab::Key;

impl Session {
    /// Sets the deadline to `timeout_ms` milliseconds from now, but not after the request's deadline.
    pub(super) fn set_deadline(&mut self, key: Key, cx: &mut Context, timeout_ms: u64) {
        let at_ms = (cx.now + timeout_ms).min(self.request.deadline_ms);
        cx.wheel.set(&mut self.deadline, key, at_ms);
    }

    /// Handles an expired deadline.
    pub(crate) fn expire(&mut self, key: Key, cx: &mut Context) -> Outcome {
        let is_total_timeout = cx.now >= self.request.deadline_ms;
        let step = match &self.phase {
            Phase::PeekSni => self.connect_by_server_name(key, cx, None),
            Phase::Preamble => Step::Close,
            Phase::Verify(..) => {
                self.phase = Phase::Head;
                self.reject(key, cx, 503)
            }
            Phase::File(transfer) if transfer.is_answered() => {
                self.set_termination(*b"cD");
                Step::Close
            }
            Phase::File(_) => self.fail(key, cx, 504),
            Phase::Head if self.input.is_empty() => Step::Close,
            Phase::Queue(_) => {
                self.leave_queue();
                let output = self
                    .request
                    .selection
                    .handle_queue_exit(if is_total_timeout {
                        QueueExit::TotalTimeout
                    } else {
                        QueueExit::QueueTimeout
                    });
                self.execute(output, key, cx)
            }
            Phase::Head => self.reject(key, cx, 408),
            Phase::Collect => self.fail(key, cx, if is_total_timeout { 504 } else { 408 }),
            Phase::Connect if is_total_timeout => {
                self.fail_server(key, cx, Failure::TotalTimeoutConnecting)
            }
            Phase::Connect => self.fail_server(key, cx, Failure::ConnectTimeout),
            // Part of a final or interim response was forwarded or is buffered.
            Phase::Exchange
                if self.request.exchange.is_answered() || self.has_unsent_to_client() =>
            {
                let is_client_slow = self.is_client_slow(cx);
                if !is_client_slow {
                    self.record_result(cx, Some(Fault::BadResponse));
                }
                self.set_termination(if is_client_slow { *b"cD" } else { *b"sD" });
                Step::Close
            }
            Phase::Exchange if self.is_client_slow(cx) => {
                self.fail(key, cx, if is_total_timeout { 504 } else { 408 })
            }
            Phase::Exchange if is_total_timeout => self.fail_server(key, cx, Failure::TotalTimeout),
            Phase::Exchange => self.fail_server(key, cx, Failure::ResponseTimeout),
            Phase::Tunnel(_) => {
                // Unless only the server is slow to receive, the timeout is attributed to the client.
                let is_server_slow = self.is_server_slow(cx) && !self.has_unsent_to_client();
                self.set_termination(if is_server_slow { *b"sD" } else { *b"cD" });
                Step::Close
            }
            Phase::Handshake => {
                self.set_termination(*b"cR");
                Step::Close
            }
            Phase::Linger(_) => Step::Close,
        };
        self.run(step, key, cx)
    }

    /// Returns whether the exchange is waiting for the client: the client has not accepted everything that is buffered
    /// for it, or the request is incomplete and the server has accepted everything that is buffered for it.
    pub(super) fn is_client_slow(&self, cx: &Context) -> bool {
        self.has_unsent_to_client()
            || !self.request.exchange.request_done() && !self.is_server_slow(cx)
    }

    /// Returns whether the server has not accepted everything that is buffered for it.
    fn is_server_slow(&self, cx: &Context) -> bool {
        let upstream = cx.upstreams.get(self.server);
        !self.to_server.is_sent()
            || bulk::has_content(&self.up)
            || upstream.is_some_and(|upstream| upstream.transport.has_unsent())
    }

    /// Returns whether the client has not accepted everything that is buffered for it.
    pub(super) fn has_unsent_to_client(&self) -> bool {
        !self.to_client.bytes.is_empty()
            || self.transport.has_unsent()
            || bulk::has_content(&self.down)
    }
}
