//! What a session waits for, how long, and what becomes of it when that does not come.

use weir_select::{Failure, Fault, QueueExit};

use super::state::Phase;
use super::{Outcome, Session, Step, bulk};
use crate::context::Context;
use crate::slab::Key;

impl Session {
    /// Moves the deadline.
    pub(super) fn wait(&mut self, key: Key, cx: &mut Context, ms: u64) {
        let at = (cx.now + ms).min(self.request.deadline_ms);
        cx.wheel.set(&mut self.deadline, key, at);
    }

    /// Its deadline is over.
    pub(crate) fn expire(&mut self, key: Key, cx: &mut Context) -> Outcome {
        let over = cx.now >= self.request.deadline_ms;
        let moved = match &self.phase {
            Phase::PeekSni => self.lead(key, cx, None),
            Phase::Preamble => Step::Close,
            Phase::Head if self.input.is_empty() => Step::Close,
            Phase::Queue(_) => {
                self.step_out();
                let output = self.request.selection.handle_queue_exit(if over {
                    QueueExit::TotalTimeout
                } else {
                    QueueExit::QueueTimeout
                });
                self.execute(output, key, cx)
            }
            Phase::Head => self.refuse(key, cx, 408),
            Phase::Collect => self.fail(key, cx, if over { 504 } else { 408 }),
            Phase::Connect if over => self.fail_server(key, cx, Failure::TotalTimeoutConnecting),
            Phase::Connect => self.fail_server(key, cx, Failure::ConnectTimeout),
            // Of an interim response, too.
            Phase::Exchange if self.request.exchange.is_answered() || self.owes() => {
                let client = self.waits_for_client(cx);
                if !client {
                    self.judge(cx, Some(Fault::Broken));
                }
                self.blame(if client { *b"cD" } else { *b"sD" });
                Step::Close
            }
            Phase::Exchange if self.waits_for_client(cx) => {
                self.fail(key, cx, if over { 504 } else { 408 })
            }
            Phase::Exchange if over => self.fail_server(key, cx, Failure::TotalTimeout),
            Phase::Exchange => self.fail_server(key, cx, Failure::ResponseTimeout),
            Phase::Tunnel(_) => {
                // Where both are silent, it is the client that is expected to speak.
                let server = self.is_stuck_up(cx) && !self.owes();
                self.blame(if server { *b"sD" } else { *b"cD" });
                Step::Close
            }
            Phase::Handshake => {
                self.blame(*b"cR");
                Step::Close
            }
            Phase::Linger(_) => Step::Close,
        };
        self.go_on(moved, key, cx)
    }

    /// Whether it is the client that is to take or to give something; what the server does not take is the server's
    /// matter.
    pub(super) fn waits_for_client(&self, cx: &Context) -> bool {
        self.owes() || !self.request.exchange.request_done() && !self.is_stuck_up(cx)
    }

    /// Whether the server has not taken all that is for it.
    fn is_stuck_up(&self, cx: &Context) -> bool {
        let upstream = cx.upstreams.get(self.server);
        !self.to_server.is_sent()
            || bulk::holds(&self.up)
            || upstream.is_some_and(|upstream| upstream.transport.holds())
    }

    /// Whether the client has not taken all that is for it.
    pub(super) fn owes(&self) -> bool {
        !self.to_client.bytes.is_empty() || self.transport.holds() || bulk::holds(&self.down)
    }
}
