//! Reports VIPs that the kernel can use as the source address of a machine's own packets.
//!
//! On a server, replies to such packets go to the director. On a director, servers that also have the VIP do not reply
//! to such packets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_model::{Desired, Server};
use weir_netlink::{Address, NetState, Netlink, RouteKind};

use crate::Diagnosis;
use crate::server_path::vips_of_servers;

/// Documentation addresses (RFC 5737, RFC 3849) for default route lookups. Nothing is sent to them.
const REMOTE_ADDRESSES: [&str; 2] = ["198.51.100.1", "2001:db8:ffff:ffff::1"];

/// Maximum number of route lookups.
const MAX_LOOKUPS: usize = 64;

/// Reports VIPs on `lo` that the kernel selects or can select as a source address.
///
/// # Errors
/// Fails if the routes cannot be read.
pub async fn vip_sources(
    vips: &BTreeSet<IpAddr>,
    addresses: &[Address],
    loopback: impl Fn(u32) -> bool,
    netlink: &Netlink,
) -> Result<Vec<Diagnosis>, weir_netlink::Error> {
    let is_vip_on_loopback =
        |address: &&Address| vips.contains(&address.ip) && loopback(address.ifindex);
    let mut findings: Vec<Diagnosis> = addresses
        .iter()
        .filter(is_vip_on_loopback)
        .filter_map(usable_as_source)
        .collect();
    let destinations = destinations(netlink).await?;
    let lookups = netlink.route_get_each(&destinations).await?;
    let mut reported_vips = BTreeSet::new();
    for (destination, lookup) in destinations.iter().zip(lookups) {
        let Some(vip) = lookup.prefsrc.filter(|source| vips.contains(source)) else {
            continue;
        };
        if lookup.kind == RouteKind::Unicast && reported_vips.insert(vip) {
            findings.push(selected_source(vip, *destination));
        }
    }
    Ok(findings)
}

/// Reports an IPv6 VIP that is not deprecated, because the kernel can select it. The kernel selects an IPv4 address on
/// `lo` only if the outgoing interface has no address, which the route lookups show.
fn usable_as_source(address: &Address) -> Option<Diagnosis> {
    let (vip, prefix) = (address.ip, address.prefix);
    (vip.is_ipv6() && !address.destination_only).then(|| {
        Diagnosis::new(
            format!("the VIP {vip} on lo is not deprecated"),
            "this machine may select it as the source of its own connections; the replies go to the director",
        )
        .fix(format!(
            "ip -6 addr change {vip}/{prefix} dev lo preferred_lft 0"
        ))
    })
}

/// Reports the director's IPv6 VIPs that servers have too and that the kernel selects as the source of packets to
/// servers. Weir adds IPv6 VIPs as deprecated addresses, except virtual addresses with a network's prefix length. Other
/// programs and earlier versions of Weir might not.
pub(crate) fn director_sources(desired: &Desired, state: &NetState) -> Vec<Diagnosis> {
    let vips = vips_of_servers(desired);
    let servers = desired.pools.iter().flat_map(|pool| &pool.servers);
    let servers: BTreeSet<IpAddr> = servers.filter_map(Server::ip).collect();
    let is_source = |vip: IpAddr| {
        // There are lookups for peers too.
        let mut lookups = state.lookups.iter().filter(|it| servers.contains(it.0));
        lookups.any(|(_, it)| it.kind == RouteKind::Unicast && it.prefsrc == Some(vip))
    };
    let addresses = state.addresses.iter().filter(|address| {
        let is_vip = address.ip.is_ipv6() && vips.contains(&address.ip);
        is_vip && !address.destination_only && is_source(address.ip)
    });
    addresses
        .map(|address| {
            let (vip, prefix) = (address.ip, address.prefix);
            let device = state.links.get(&address.ifindex);
            let device = device.map_or("INTERFACE", |link| &link.name);
            Diagnosis::new(
                format!("packets from this director to its servers have the VIP {vip} as their source"),
                "servers that also have the VIP do not reply: connections of the proxy and of `snat`, and checks of \
                 other programs, time out",
            )
            .fix(match desired.is_vrrp_address(vip) && prefix < 128 {
                true => format!("write {vip} in [vrrp] without /{prefix}, so that Weir adds it with prefix length 128"),
                false => format!("ip -6 addr change {vip}/{prefix} dev {device} preferred_lft 0"),
            })
        })
        .collect()
}

/// Reports a VIP that the kernel selects as the source address of packets to `destination`.
fn selected_source(vip: IpAddr, destination: IpAddr) -> Diagnosis {
    let is_example = REMOTE_ADDRESSES.contains(&destination.to_string().as_str());
    let to = match is_example {
        true => format!("other networks, for example {destination},"),
        false => destination.to_string(),
    };
    Diagnosis::new(
        format!("packets from this machine to {to} have the VIP {vip} as their source"),
        "the replies go to the director. Either the outgoing interface has no other address, or the route has the VIP \
         as its source (src)",
    )
    .fix(format!(
        "`ip route get {destination}` shows the interface, and `ip route show` the route: add an address of this \
         machine to the interface, or remove `src {vip}` from the route"
    ))
}

/// Returns the destinations to look up: the remote addresses, and one in the network of each route.
async fn destinations(netlink: &Netlink) -> Result<Vec<IpAddr>, weir_netlink::Error> {
    let routes = netlink.routes().await?;
    let is_unicast = |route: &&weir_netlink::Route| {
        route.kind == RouteKind::Unicast && !route.destination.is_multicast() && route.prefix > 0
    };
    let in_networks = routes
        .iter()
        .filter(is_unicast)
        .map(|route| host_in_network(route.destination, route.prefix));
    let remote = REMOTE_ADDRESSES.iter().filter_map(|text| text.parse().ok());
    Ok(remote.chain(in_networks).take(MAX_LOOKUPS).collect())
}

/// Returns an address in a network that is usually neither the network address nor the machine's address. If the
/// network has only one or two addresses, returns the network address.
fn host_in_network(network: IpAddr, prefix: u8) -> IpAddr {
    match network {
        IpAddr::V4(v4) if prefix < 31 => IpAddr::V4((v4.to_bits() | 2).into()),
        IpAddr::V6(v6) if prefix < 127 => IpAddr::V6((v6.to_bits() | 2).into()),
        host => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_addresses_are_named_as_examples() {
        let vip = [10, 0, 0, 10].into();
        let finding = selected_source(vip, REMOTE_ADDRESSES[0].parse().unwrap()).to_string();
        assert!(
            finding.contains("to other networks, for example 198.51.100.1, have"),
            "{finding}"
        );
        let finding = selected_source(vip, [10, 1, 0, 2].into());
        assert!(
            finding.observation.contains("to 10.1.0.2 have"),
            "{finding}"
        );
        let fix = finding.fix.expect("a fix");
        assert!(
            fix.contains("remove `src 10.0.0.10` from the route"),
            "{fix}"
        );
    }

    #[test]
    fn host_is_in_network() {
        let host = |text: &str, prefix| host_in_network(text.parse().unwrap(), prefix).to_string();
        assert_eq!(host("10.0.0.0", 24), "10.0.0.2");
        assert_eq!(host("10.0.0.7", 32), "10.0.0.7");
        assert_eq!(host("2001:db8::", 64), "2001:db8::2");
        assert_eq!(host("2001:db8::9", 128), "2001:db8::9");
    }
}
