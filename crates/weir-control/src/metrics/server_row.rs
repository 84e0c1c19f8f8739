//! Services and servers with their labels.

use super::text::{Prepared, prepare};
use crate::status::{ProxiedServer, Report, Server, Service};

pub(super) type ServerLabels<'a> = [(&'static str, &'a str); 3];

/// A server with its labels as text.
pub(super) struct ServerRow<'a> {
    pub(super) labels: Prepared,
    pub(super) server: &'a Server,
    /// Whether series without information are written too: a pool may have thousands of servers.
    pub(super) full: bool,
}

impl<'a> ServerRow<'a> {
    pub(super) fn new(labels: &ServerLabels<'_>, server: &'a Server) -> Self {
        Self {
            labels: prepare(labels),
            server,
            full: server
                .proxy
                .as_ref()
                .is_none_or(|proxied| proxied.exchanges.times.has_buckets()),
        }
    }

    pub(super) const fn proxied(&self) -> Option<&'a ProxiedServer> {
        self.server.proxy.as_ref()
    }
}

/// Every server of every service.
pub(super) fn all_servers(report: &Report) -> impl Iterator<Item = (ServerLabels<'_>, &Server)> {
    report.services.iter().flat_map(|service| {
        let [label, (name, own)] = of_service(service);
        service.servers.iter().map(move |server| {
            let pool = (name, server.pool.as_deref().unwrap_or(own));
            ([label, pool, ("server", server.address.as_str())], server)
        })
    })
}

/// The labels of a service.
pub(super) fn of_service(service: &Service) -> [(&'static str, &str); 2] {
    [("service", &service.name), ("pool", &service.pool)]
}
