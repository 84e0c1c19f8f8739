//! What one client may ask for, and by which connection.

use weir_http::{Field, Framing, Method, Request, RequestPath, route};
use weir_model::HashKey;
use weir_sys::{Clock, now_ns};

use super::Session;
use super::choice::{hash_of, hash_of_client};
use crate::limit::Admission;

impl Session {
    /// Whether a request is within its client's limits; the status of the refusal if not.
    pub(super) fn admit(
        &mut self,
        target: &RequestPath<'_>,
        head: &[u8],
        request: &Request,
        fields: &[Field],
    ) -> Option<u16> {
        let service = &self.local.service;
        let octets = match request.framing {
            Framing::Length(octets) => octets,
            // What came with the head counts too.
            _ => self.exchange.request_content(),
        };
        if self.is_too_long(octets) {
            return Some(413);
        }
        if service.rate.is_none() && service.concurrent.is_none() {
            return None;
        }
        let key = match &service.limit_key {
            HashKey::Source => hash_of_client(self.peer),
            key => hash_of(key, self.peer, target, head, fields),
        };
        if let Some(rate) = &service.rate
            && !rate.allows(key, now_ns(Clock::Monotonic))
        {
            return Some(429);
        }
        match service.concurrent.as_ref().map(|limit| limit.admit(key)) {
            Some(Admission::Refused) => return Some(429),
            Some(Admission::Counted(key)) => self.counted = Some(key),
            Some(Admission::Uncounted) | None => {}
        }
        None
    }

    /// Whether the request is for a host that must not be asked for by this connection.
    pub(super) fn is_misdirected(&self, head: &[u8], request: &Request, fields: &[Field]) -> bool {
        let Some(rule) = &self.local.service.misdirect else {
            return false;
        };
        // The target of CONNECT is no host that is served here.
        if !self.transport.is_secure() || request.method == Method::Connect {
            return false;
        }
        let asked = self.asked_host.as_deref().or(self.transport.asked());
        let host = request.host_in(head, fields).unwrap_or_default();
        rule.rejects(route::without_port(host), asked)
    }

    /// Whether a body of so many octets is longer than allowed.
    pub(super) fn is_too_long(&self, octets: u64) -> bool {
        let most = self.local.service.body_most;
        most > 0 && octets > most
    }

    /// It is not under way any more.
    pub(super) fn uncount(&mut self) {
        if let Some(key) = self.counted.take()
            && let Some(limit) = &self.local.service.concurrent
        {
            limit.give_back(key);
        }
    }
}
