//! Determines a request's client, and which header fields about the client are accepted from it.
//!
//! The fields are `X-Forwarded-…`, `X-Real-IP` and `Forwarded`. The rules are those of the route or of the service.

use std::net::SocketAddr;

use weir_http::route::client_address;
use weir_http::{Client, ClientEdit, Field, Name, mark_untrusted};
use weir_model::{ClientFields, Forwarded};

use super::Session;
use crate::plan::Service;

impl Session {
    /// Returns a request's client: the address that a trusted proxy sent, or the connection's source address. The port
    /// is always that of the connection.
    #[inline]
    pub(super) fn client_of(&self, service: &Service, head: &[u8], fields: &[Field]) -> SocketAddr {
        let is_trusted = || {
            let mut trusted = service.trusted.iter();
            trusted.any(|network| network.contains(self.peer.ip()))
        };
        let sent_address = service
            .client_ip_header
            .as_ref()
            .filter(|_| is_trusted())
            .and_then(|name| client_address(head, fields, name, &service.client_ip_skipped));
        sent_address.map_or(self.peer, |address| {
            SocketAddr::new(address, self.peer.port())
        })
    }

    /// Returns the data about the client for forwarding fields, unless they are disabled.
    pub(super) fn forwarded_client(&self) -> Option<Client> {
        let service = &self.local.service;
        let address = self.peer.ip();
        (service.forwarded != Forwarded::Off).then(|| Client {
            address,
            secure: self.transport.is_secure(),
            trusted: service
                .trusted
                .iter()
                .any(|network| network.contains(address)),
            forwarded: service.forwarded,
        })
    }

    /// Returns the route's or the service's rules for fields about the client, if they apply to this client.
    pub(super) fn client_edit<'a>(&self, service: &'a Service) -> Option<ClientEdit<'a>> {
        let rules = self.client_rules(service, self.request.route)?;
        Some(ClientEdit {
            rules,
            address: self.peer.ip(),
            client: self.client.ip(),
            secure: self.transport.is_secure(),
            port: self.listen_port(),
        })
    }

    /// Returns a route's rules, or the service's rules if there is no route or the route has none. Returns `None` if
    /// they are empty or do not apply to this client.
    fn client_rules<'a>(
        &self,
        service: &'a Service,
        route: Option<usize>,
    ) -> Option<&'a ClientFields> {
        let (rules, except) = match route.and_then(|index| service.client_rules_of(index)) {
            Some(route_rules) => (&route_rules.rules, &route_rules.except),
            None => (&service.x_forwarded, &service.x_forwarded_except),
        };
        let address = self.peer.ip();
        let is_excepted = || except.iter().any(|network| network.contains(address));
        (!rules.is_empty() && !is_excepted()).then_some(rules)
    }

    /// Marks the fields that this client is not allowed to set. `route` is `None` while no route is selected.
    #[inline]
    pub(super) fn mark_untrusted(
        &self,
        service: &Service,
        route: Option<usize>,
        head: &[u8],
        fields: &mut [Field],
    ) {
        let mut names = fields.iter().map(|field| field.name);
        if names.any(|name| matches!(name, Name::ForwardedFor | Name::Forwarded)) {
            let client = self.forwarded_client();
            let removes_others = client.is_some_and(|client| !client.trusted);
            mark_untrusted(
                head,
                fields,
                self.client_rules(service, route),
                removes_others,
            );
        }
    }
}
