//! Finds services and servers with GRE tunnels with checksums, for which the data plane drops packets that consist of
//! many segments.

use weir_model::{Desired, Forward, Server, Service, Tunnel, TunnelChecksum, TunnelKind};

/// Returns the services that send packets to a server through a GRE tunnel with checksums.
pub(crate) fn services_with_gre_checksum(desired: &Desired) -> impl Iterator<Item = &Service> {
    let servers = desired.pools.iter();
    let servers = servers.flat_map(|pool| pool.servers.iter().chain(&pool.sorry));
    let server_tunnels = servers.filter_map(|server| server.tunnel);
    let services = desired.services.iter();
    // Most configurations contain no such tunnel. In these, the pools of the services need not be searched.
    let is_used = services
        .clone()
        .map(|service| service.tunnel)
        .chain(server_tunnels)
        .any(has_gre_checksum);
    services
        .filter(move |service| is_used && gre_checksum_servers(desired, service).next().is_some())
}

fn has_gre_checksum(tunnel: Tunnel) -> bool {
    (tunnel.kind, tunnel.checksum) == (TunnelKind::Gre, TunnelChecksum::Full)
}

/// Returns the servers to which a service sends packets through a GRE tunnel with checksums.
pub(crate) fn gre_checksum_servers<'a>(
    desired: &'a Desired,
    service: &'a Service,
) -> impl Iterator<Item = &'a Server> {
    let pool = desired.pool(&service.pool).into_iter();
    let servers = pool.flat_map(|pool| pool.servers.iter().chain(&pool.sorry));
    servers.filter(|server| {
        server.forward_in(service) == Forward::Tunnel && has_gre_checksum(server.tunnel_in(service))
    })
}
