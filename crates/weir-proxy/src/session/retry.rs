//! Retries requests after an unwanted response, or if there is no response.

use weir_http::Exchange;
use weir_select::{Failure, Replay, UnwantedResponse};

use super::{Session, Step};
use crate::context::Context;
use crate::slab::Key;

impl Session {
    /// Prepares for the first bytes of a response. If the response may cause a retry, returns the state of the exchange
    /// before these bytes. Otherwise releases the buffered request.
    #[inline]
    pub(super) fn snapshot_for_retry(
        &mut self,
        cx: &mut Context,
        is_first: bool,
    ) -> Option<Exchange> {
        let may_retry = is_first
            && self.request.selection.replay() == Replay::Allowed
            && self.retry_policy().needs_response;
        if may_retry {
            return Some(self.request.exchange.clone());
        }
        self.release_buffered_request(cx);
        None
    }

    fn release_buffered_request(&mut self, cx: &mut Context) {
        self.request.selection.set_replay(Replay::Forbidden);
        if self.to_server.is_sent() {
            cx.recycle(self.to_server.take());
        }
    }

    /// Retries the request if the response is unwanted. `step` is the result of parsing the response; `None` =
    /// malformed.
    pub(super) fn retry_unwanted(
        &mut self,
        key: Key,
        cx: &mut Context,
        snapshot: Exchange,
        step: Option<&weir_http::ResponseStep>,
    ) -> Option<Step> {
        let is_answered = self.request.exchange.is_answered();
        let unwanted = match step {
            None => Some(UnwantedResponse::Malformed),
            Some(_) => {
                is_answered.then(|| UnwantedResponse::Status(self.request.exchange.status()))
            }
        };
        let verdict = unwanted.and_then(|response| {
            self.decide(cx, |selection, context| {
                selection.handle_unwanted(response, context)
            })
        });
        if let Some(verdict) = verdict {
            self.request.exchange = snapshot;
            return Some(self.apply_verdict(key, cx, verdict));
        }
        // The response, even an interim one, is forwarded to the client, so the request can no longer be retried.
        if is_answered || step.is_some_and(|step| step.consumed > 0) {
            self.release_buffered_request(cx);
        }
        None
    }

    /// Handles a server that closed the connection before its response head was complete.
    pub(super) fn handle_server_loss(&mut self, key: Key, cx: &mut Context) -> Step {
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
