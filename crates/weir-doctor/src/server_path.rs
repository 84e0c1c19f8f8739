//! Examines the paths to servers and back: link addresses, and the routes of replies with `nat`.

use std::net::{IpAddr, SocketAddr};

use weir_model::Desired;
use weir_netlink::{NetState, resolve};

use crate::{ServerReport, claimant, interface};

/// Returns whether the link address for packets to a server is unknown.
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

/// Returns the fix that routes a server's replies through this machine.
pub(crate) fn return_route_fix(
    service: &str,
    server: &ServerReport,
    (desired, state): (&Desired, &NetState),
) -> String {
    let address = parse_ip(&server.address);
    let gateway = address.and_then(|server| local_address_near(server, desired, state));
    let gateway = gateway.map(|gateway| gateway.to_string());
    let gateway = gateway.unwrap_or_else(|| "DIRECTOR".to_owned());
    let family = match address {
        Some(IpAddr::V6(_)) => "-6 ",
        _ => "",
    };
    format!(
        "on the server: ip {family}route replace default via {gateway}; for clients on its own segment, a route to \
         them via {gateway}; or `snat = true` in {}",
        weir_config::header(&["service", service])
    )
}

/// Parses a server's address, with or without a port.
pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    let with_port = text.parse::<SocketAddr>().map(|address| address.ip());
    text.parse().or(with_port).ok()
}

/// Returns this machine's address in a server's network.
fn local_address_near(server: IpAddr, desired: &Desired, state: &NetState) -> Option<IpAddr> {
    let vips = claimant::layer_4_vips(desired);
    let mut addresses = state.addresses.iter();
    let address = addresses.find(|address| {
        !vips.contains(&address.ip) && interface::network_of(address).contains(server)
    });
    address.map(|address| address.ip)
}
