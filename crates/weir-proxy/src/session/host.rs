//! Whether a connection may be used for a request's host.

use weir_http::{Field, Method, Request, route};
use weir_select::route::HostCheck;

use super::Session;

impl Session {
    /// Checks the request's host against the server name of the TLS connection.
    pub(super) fn check_host(&self, head: &[u8], request: &Request, fields: &[Field]) -> HostCheck {
        let Some(rule) = &self.local.service.misdirect else {
            return HostCheck::Allowed;
        };
        // The target of CONNECT is not a host that is served here.
        if !self.transport.is_secure() || request.method == Method::Connect {
            return HostCheck::Allowed;
        }
        let of_stream = self
            .stream_tls
            .as_ref()
            .and_then(|tls| tls.server_name.as_deref());
        let sni = of_stream.or(self.transport.sni());
        let host = request.host_in(head, fields).unwrap_or_default();
        if rule.rejects(route::without_port(host), sni) {
            HostCheck::Misdirected
        } else {
            HostCheck::Allowed
        }
    }
}
