//! Checks a request's host against the TLS server name, by the rules of [`crate::misdirect`].

use weir_http::{Field, Method, Request, route};
use weir_select::route::HostCheck;

use super::Session;

impl Session {
    /// Returns whether the request's host is allowed on this connection.
    pub(super) fn check_host(&self, head: &[u8], request: &Request, fields: &[Field]) -> HostCheck {
        let Some(rule) = &self.local.service.misdirect else {
            return HostCheck::Allowed;
        };
        // The target of CONNECT is not a host of this service.
        if !self.transport.is_secure() || request.method == Method::Connect {
            return HostCheck::Allowed;
        }
        let stream_sni = self
            .stream_tls
            .as_ref()
            .and_then(|tls| tls.server_name.as_deref());
        let sni = stream_sni.or(self.transport.sni());
        let host = request.host_in(head, fields).unwrap_or_default();
        if rule.rejects(route::strip_port(host), sni) {
            HostCheck::Misdirected
        } else {
            HostCheck::Allowed
        }
    }
}
