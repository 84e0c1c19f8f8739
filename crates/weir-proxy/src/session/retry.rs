//! Sending a request to another server because of what the first one said, or did not say.

use weir_http::{Exchange, Step};
use weir_model::RetryCondition;

use super::{Moved, Session};
use crate::context::Context;
use crate::plan::Fault;
use crate::slab::Key;

/// Connections of servers that may have no room for a request, before it goes to another server as from one that is
/// down.
const DECLINED_MAX: u8 = 2;

impl Session {
    /// Whether the request may go to another server, which is then counted.
    fn may_repeat(&self, cx: &Context) -> bool {
        self.replayable
            && self.attempts < self.local.service.retries
            && self.others_are_left()
            && self.local.budget.spend(cx.now)
    }

    /// Whether a server is usable that was not tried, the present one being so.
    pub(super) fn others_are_left(&self) -> bool {
        let mut tried = self.tried;
        tried.add(self.place);
        let targets = self.local.service.pools.get(self.pool);
        targets.is_some_and(|targets| targets.has_others(tried))
    }

    /// Octets of a response came. The request is forgotten, unless they may turn out to be a reason to repeat it: then
    /// this is the exchange as it was before them.
    #[inline]
    pub(super) fn remember(&mut self, cx: &mut Context, first: bool) -> Option<Exchange> {
        if first && self.replayable && self.local.service.retry_reads {
            return Some(self.exchange.clone());
        }
        self.forget_request(cx);
        None
    }

    fn forget_request(&mut self, cx: &mut Context) {
        self.replayable = false;
        if self.sent == self.request.len() {
            self.sent = 0;
            cx.recycle(std::mem::take(&mut self.request));
        }
    }

    /// Whether the response that began is a reason to ask another server, and one is asked. `step` is what came of it,
    /// `None` if it is malformed.
    pub(super) fn repeat_after(
        &mut self,
        key: Key,
        cx: &mut Context,
        before: Exchange,
        step: Option<&Step>,
    ) -> Option<Moved> {
        let retry = &self.local.service.retry;
        let answered = self.exchange.is_answered();
        let fault = match step {
            None if retry.has(RetryCondition::Malformed) => Some(Fault::Broken),
            Some(_) if answered && retry.has_status(self.exchange.status()) => Some(Fault::Status),
            _ => None,
        };
        if let Some(fault) = fault.filter(|_| self.may_repeat(cx)) {
            self.exchange = before;
            self.sent = 0;
            return Some(self.try_another(key, cx, fault, 502));
        }
        // An interim response is on its way to the client.
        if answered || step.is_some_and(|step| step.consumed > 0) {
            self.forget_request(cx);
        }
        None
    }

    /// The HTTP/2 connection had no room for the request, of which nothing was sent: another connection, or another
    /// server. A server that declines again and again is of no use now.
    pub(super) fn go_elsewhere(&mut self, key: Key, cx: &mut Context) -> Moved {
        if self.declined >= DECLINED_MAX {
            return self.try_another(key, cx, Fault::Unreached, 503);
        }
        self.declined += 1;
        self.leave_server(cx, false);
        self.connect(key, cx)
    }

    /// The response did not begin in time.
    pub(super) fn wait_no_longer(&mut self, key: Key, cx: &mut Context, over: bool) -> Moved {
        let listed = self.local.service.retry.has(RetryCondition::Timeout);
        if listed && !over && self.may_repeat(cx) {
            self.sent = 0;
            return self.try_another(key, cx, Fault::Broken, 504);
        }
        self.judge(cx, Some(Fault::Broken));
        self.fail(key, cx, 504)
    }

    /// The server ended before its response was told from nothing. A waiting connection may just have been closed by
    /// it: that is nobody's failure, and a new one is tried. What cannot be sent twice without harm is answered.
    pub(super) fn server_broke(&mut self, key: Key, cx: &mut Context) -> Moved {
        let upstream = cx.upstreams.get(self.server);
        let (served, spoke) = upstream.map_or((0, false), |upstream| {
            (upstream.served, !upstream.input.is_empty())
        });
        if served > 0 && !spoke && !self.fresh && self.replayable {
            self.sent = 0;
            self.leave_server(cx, false);
            self.fresh = true;
            return self.connect(key, cx);
        }
        let condition = if spoke {
            RetryCondition::Malformed
        } else {
            RetryCondition::Empty
        };
        if self.local.service.retry.has(condition) && self.may_repeat(cx) {
            self.sent = 0;
            return self.try_another(key, cx, Fault::Broken, 502);
        }
        if served == 0 || spoke || self.fresh {
            self.judge(cx, Some(Fault::Broken));
        }
        self.fail(key, cx, 502)
    }
}
