//! When a response makes the session send the request to another server, or keeps it from that.

use weir_http::{Exchange, Step};
use weir_select::{Failure, Replay, Unwanted};

use super::{Moved, Session};
use crate::context::Context;
use crate::slab::Key;

impl Session {
    /// Bytes of a response were received. The request is dropped, unless they may turn out to cause a retry: then this
    /// is the exchange as it was before them.
    #[inline]
    pub(super) fn remember(&mut self, cx: &mut Context, first: bool) -> Option<Exchange> {
        let may_retry = first
            && self.selection.replay() == Replay::Allowed
            && self.local.service.retry.needs_response;
        if may_retry {
            return Some(self.exchange.clone());
        }
        self.forget_request(cx);
        None
    }

    fn forget_request(&mut self, cx: &mut Context) {
        self.selection.set_replay(Replay::Forbidden);
        if self.sent == self.request.len() {
            self.sent = 0;
            cx.recycle(std::mem::take(&mut self.request));
        }
    }

    /// Whether the response that began causes a retry, and what follows. `step` is the result of parsing it, `None` if
    /// it is malformed.
    pub(super) fn repeat_after(
        &mut self,
        key: Key,
        cx: &mut Context,
        before: Exchange,
        step: Option<&Step>,
    ) -> Option<Moved> {
        let answered = self.exchange.is_answered();
        let unwanted = match step {
            None => Some(Unwanted::Malformed),
            Some(_) => answered.then(|| Unwanted::Status(self.exchange.status())),
        };
        let verdict = unwanted.and_then(|response| {
            self.decide(cx, |selection, env| {
                selection.handle_unwanted(response, env)
            })
        });
        if let Some(verdict) = verdict {
            self.exchange = before;
            return Some(self.apply(key, cx, verdict));
        }
        // An interim response is sent to the client.
        if answered || step.is_some_and(|step| step.consumed > 0) {
            self.forget_request(cx);
        }
        None
    }

    /// The server closed the connection before a complete response head.
    pub(super) fn server_broke(&mut self, key: Key, cx: &mut Context) -> Moved {
        let upstream = cx.upstreams.get(self.server);
        let failure = upstream.map_or(
            Failure::Lost {
                reused: false,
                head_started: false,
            },
            |upstream| Failure::Lost {
                reused: upstream.served > 0,
                head_started: !upstream.input.is_empty(),
            },
        );
        self.fail_server(key, cx, failure)
    }
}
