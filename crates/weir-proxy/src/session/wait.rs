//! What a session waits for, how long, and what becomes of it when that does not come.

use weir_select::{Failure, Fault, QueueExit};

use super::{Fate, Moved, Phase, Session, bulk};
use crate::context::Context;
use crate::slab::Key;

impl Session {
    /// Moves the deadline.
    pub(super) fn wait(&mut self, key: Key, cx: &mut Context, ms: u64) {
        let at = (cx.now + ms).min(self.until);
        cx.wheel.set(&mut self.deadline, key, at);
    }

    /// Its deadline is over.
    pub(crate) fn expire(&mut self, key: Key, cx: &mut Context) -> Fate {
        let over = cx.now >= self.until;
        let moved = match self.phase {
            Phase::Overhears => self.lead(key, cx, None),
            Phase::Preamble => Moved::Ends,
            Phase::Request if self.input.is_empty() => Moved::Ends,
            Phase::Queue => {
                self.step_out();
                let output = self.selection.handle_queue_exit(if over {
                    QueueExit::TotalTimeout
                } else {
                    QueueExit::QueueTimeout
                });
                self.execute(output, key, cx)
            }
            Phase::Request => self.refuse(key, cx, 408),
            Phase::Collect => self.fail(key, cx, if over { 504 } else { 408 }),
            Phase::Connect if over => self.fail_server(key, cx, Failure::TotalTimeoutConnecting),
            Phase::Connect => self.fail_server(key, cx, Failure::ConnectTimeout),
            // Of an interim response, too.
            Phase::Exchange if self.exchange.is_answered() || self.owes() => {
                let client = self.waits_for_client(cx);
                if !client {
                    self.judge(cx, Some(Fault::Broken));
                }
                self.blame(if client { *b"cD" } else { *b"sD" });
                Moved::Ends
            }
            Phase::Exchange if self.waits_for_client(cx) => {
                self.fail(key, cx, if over { 504 } else { 408 })
            }
            Phase::Exchange if over => self.fail_server(key, cx, Failure::TotalTimeout),
            Phase::Exchange => self.fail_server(key, cx, Failure::ResponseTimeout),
            Phase::Tunnel => {
                // Where both are silent, it is the client that is expected to speak.
                let server = self.is_stuck_up(cx) && !self.owes();
                self.blame(if server { *b"sD" } else { *b"cD" });
                Moved::Ends
            }
            Phase::Handshake => {
                self.blame(*b"cR");
                Moved::Ends
            }
            Phase::Farewell => Moved::Ends,
        };
        self.go_on(moved, key, cx)
    }

    /// Whether it is the client that is to take or to give something; what the server does not take is the server's
    /// matter.
    pub(super) fn waits_for_client(&self, cx: &Context) -> bool {
        self.owes() || !self.exchange.request_done() && !self.is_stuck_up(cx)
    }

    /// Whether the server has not taken all that is for it.
    fn is_stuck_up(&self, cx: &Context) -> bool {
        let upstream = cx.upstreams.get(self.server);
        self.sent < self.request.len()
            || bulk::holds(&self.up)
            || upstream.is_some_and(|upstream| upstream.transport.holds())
    }

    /// Whether the client has not taken all that is for it.
    pub(super) fn owes(&self) -> bool {
        !self.stuck.is_empty() || self.transport.holds() || bulk::holds(&self.down)
    }
}
