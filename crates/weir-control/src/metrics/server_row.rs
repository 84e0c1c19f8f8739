//! Builds the labels of services and servers, and pairs servers with their rendered labels.

use super::text::{RenderedLabels, render_labels};
use crate::status::{ProxyServerDetails, Report, Server, Service};

pub(super) type ServerLabels<'a> = [(&'static str, &'a str); 3];

/// A server with its rendered labels.
pub(super) struct ServerRow<'a> {
    pub(super) labels: RenderedLabels,
    pub(super) server: &'a Server,
    /// Whether empty series are also written. By default, they are omitted for proxied servers, because a pool can have
    /// thousands of servers.
    pub(super) is_full: bool,
}

impl<'a> ServerRow<'a> {
    pub(super) fn new(labels: &ServerLabels<'_>, server: &'a Server) -> Self {
        Self {
            labels: render_labels(labels),
            server,
            is_full: server
                .proxy
                .as_ref()
                .is_none_or(|proxied| proxied.exchanges.times.has_buckets()),
        }
    }

    pub(super) const fn proxied(&self) -> Option<&'a ProxyServerDetails> {
        self.server.proxy.as_ref()
    }
}

/// Returns every server of every service, with its labels.
pub(super) fn all_servers(report: &Report) -> impl Iterator<Item = (ServerLabels<'_>, &Server)> {
    report.services.iter().flat_map(|service| {
        let [label, (name, service_pool)] = service_labels(service);
        service.servers.iter().map(move |server| {
            let pool = (name, server.pool.as_deref().unwrap_or(service_pool));
            ([label, pool, ("server", server.address.as_str())], server)
        })
    })
}

/// Returns a service's labels.
pub(super) fn service_labels(service: &Service) -> [(&'static str, &str); 2] {
    [("service", &service.name), ("pool", &service.pool)]
}
