//! Examines the paths to servers and back: link-layer addresses, and the routes of replies with `nat`.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use weir_model::{Desired, Forward, Server, Service};
use weir_netlink::{NetState, resolve};

use crate::{ServerReport, claimant, interface};

/// Returns whether the link-layer address for packets to a server is unknown.
pub(crate) fn is_unresolved(server: IpAddr, state: &NetState) -> bool {
    let paths = resolve(server, state);
    !paths.is_empty() && paths.iter().all(|path| !path.local && path.mac.is_none())
}

/// Returns whether a server's replies must pass through this machine: `nat` without source rewriting.
pub(crate) fn replies_must_pass_director(
    service: &str,
    server: &ServerReport,
    desired: &Desired,
) -> bool {
    let service = desired.service(service);
    server.forward == "nat" && service.is_none_or(|service| service.snat.is_none())
}

/// Returns the fix that makes a server's replies pass through this machine.
pub(crate) fn return_route_fix(
    service: &str,
    server: &ServerReport,
    (desired, state): (&Desired, &NetState),
) -> String {
    let address = parse_ip(&server.address);
    let header = weir_config::header(&["service", service]);
    if let Some(other) = address.and_then(|server| service_with_direct_replies(server, desired)) {
        return format!(
            "set `snat = true` in {header}; as the server's default gateway, this machine would drop the replies of \
             {}, whose source is the VIP",
            other.name
        );
    }
    let gateway = address.and_then(|server| local_address_near(server, desired, state));
    let gateway = gateway.map(|gateway| gateway.to_string());
    let gateway = gateway.unwrap_or_else(|| "DIRECTOR".to_owned());
    let family = match address {
        Some(IpAddr::V6(_)) => "-6 ",
        _ => "",
    };
    format!(
        "on the server: ip {family}route replace default via {gateway}; for clients on its own segment, a route to \
         them via {gateway}; or `snat = true` in {header}"
    )
}

/// Returns a service with an IPv4 VIP for which the server replies directly to clients.
fn service_with_direct_replies(server: IpAddr, desired: &Desired) -> Option<&Service> {
    desired.services.iter().find(|service| {
        let pool = desired.pool(&service.pool).into_iter();
        let mut servers = pool.flat_map(|pool| &pool.servers);
        has_ipv4_vip(service)
            && servers.any(|it| it.address == server && replies_directly(it, service))
    })
}

/// Returns whether a service has an IPv4 VIP. Linux drops IPv4 packets from its own addresses that arrive from the
/// network, but forwards such IPv6 packets.
pub(crate) fn has_ipv4_vip(service: &Service) -> bool {
    let mut listeners = service.listen.iter();
    listeners.any(|listener| listener.address.is_ipv4())
}

/// Returns whether a server has the service's VIP, and sends replies from it to clients.
fn replies_directly(server: &Server, service: &Service) -> bool {
    match server.forward_in(service) {
        Forward::Direct | Forward::Tunnel | Forward::L3dsr => true,
        Forward::Nat | Forward::Socket => false,
    }
}

/// Returns the VIPs that servers have too.
pub(crate) fn vips_of_servers(desired: &Desired) -> BTreeSet<IpAddr> {
    let has_servers_with_vip = |service: &&Service| {
        let pool = desired.pool(&service.pool).into_iter();
        let mut servers = pool.flat_map(|pool| &pool.servers);
        servers.any(|server| replies_directly(server, service))
    };
    let services = desired.services.iter().filter(has_servers_with_vip);
    let listeners = services.flat_map(|service| &service.listen);
    listeners.map(|listener| listener.address).collect()
}

/// Parses a server's address, with or without a port.
pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    let with_port = text.parse::<SocketAddr>().map(|address| address.ip());
    text.parse().or(with_port).ok()
}

/// Returns an address of this machine, other than a VIP, in a server's network.
fn local_address_near(server: IpAddr, desired: &Desired, state: &NetState) -> Option<IpAddr> {
    let vips = claimant::layer_4_vips(desired);
    let mut addresses = state.addresses.iter();
    let address = addresses.find(|address| {
        !vips.contains(&address.ip) && interface::network_of(address).contains(server)
    });
    address.map(|address| address.ip)
}

#[cfg(test)]
mod tests {
    use weir_config::{Host, parse};

    use super::*;

    /// The director drops packets whose source is the VIP.
    #[test]
    fn director_is_not_the_gateway_of_servers_that_reply_from_a_vip() {
        let nat = "[pool.web]\nservers = [\"10.0.0.5\"]\n[service.web]\nlisten = [\"10.0.0.10:80\"]\n\
                   forward = \"nat\"\npool = \"web\"\n";
        let other_service =
            "[service.other]\nlisten = [\"10.0.0.11:80\"]\nforward = \"direct\"\npool = \"web\"\n";
        let server = ServerReport {
            address: "10.0.0.5:80".to_owned(),
            forward: "nat".to_owned(),
            ..ServerReport::default()
        };
        for (text, is_gateway) in [
            (nat.to_owned(), true),
            (format!("{nat}{other_service}"), false),
        ] {
            let desired = parse(&text, &Host::default()).unwrap().desired;
            let fix = return_route_fix("web", &server, (&desired, &NetState::default()));
            assert_eq!(fix.contains("route replace default"), is_gateway, "{fix}");
            assert_eq!(fix.contains("the replies of other"), !is_gateway, "{fix}");
            assert!(fix.contains("`snat = true` in [service.web]"), "{fix}");
        }
    }
}
