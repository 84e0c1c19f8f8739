//! VIPs that a server's own packets may carry as their source: answers to these packets go to the director.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_netlink::{Address, Netlink, RouteKind};

use crate::Diagnosis;

/// Hosts behind the default route (RFC 5737, RFC 3849); nothing is sent to them.
const REMOTE: [&str; 2] = ["198.51.100.1", "2001:db8:ffff:ffff::1"];

/// Most routes that are looked up.
const MAX_LOOKUPS: usize = 64;

/// VIPs on `lo` that the kernel chooses, or may choose, as a source.
///
/// # Errors
/// The routes cannot be read.
pub async fn vip_sources(
    vips: &BTreeSet<IpAddr>,
    addresses: &[Address],
    loopback: impl Fn(u32) -> bool,
    netlink: &Netlink,
) -> Result<Vec<Diagnosis>, weir_netlink::Error> {
    let held = |address: &&Address| vips.contains(&address.ip) && loopback(address.ifindex);
    let mut found: Vec<Diagnosis> = addresses
        .iter()
        .filter(held)
        .filter_map(not_deprecated)
        .collect();
    let destinations = destinations(netlink).await?;
    let lookups = netlink.route_get_each(&destinations).await?;
    let mut reported = BTreeSet::new();
    for (destination, lookup) in destinations.iter().zip(lookups) {
        let Some(vip) = lookup.prefsrc.filter(|source| vips.contains(source)) else {
            continue;
        };
        if lookup.kind == RouteKind::Unicast && reported.insert(vip) {
            found.push(taken(vip, *destination));
        }
    }
    Ok(found)
}

/// IPv6 may choose any address that is not deprecated. IPv4 chooses one of `lo` only where the interface has none; the
/// lookups find that.
fn not_deprecated(address: &Address) -> Option<Diagnosis> {
    let (vip, prefix) = (address.ip, address.prefix);
    (vip.is_ipv6() && !address.quiet).then(|| {
        Diagnosis::new(
            format!("the VIP {vip} on lo is not deprecated"),
            "this machine may choose it as the source of its own connections; their answers go to the director",
        )
        .fix(format!(
            "ip -6 addr change {vip}/{prefix} dev lo preferred_lft 0"
        ))
    })
}

fn taken(vip: IpAddr, destination: IpAddr) -> Diagnosis {
    Diagnosis::new(
        format!("packets of this machine to {destination} have the VIP {vip} as their source"),
        "their answers go to the director: the interface that they leave by has no address of its own to choose, or a \
         route names the VIP as its source (src)",
    )
}

/// One destination for each route.
async fn destinations(netlink: &Netlink) -> Result<Vec<IpAddr>, weir_netlink::Error> {
    let routes = netlink.routes().await?;
    let leading = |it: &&weir_netlink::Route| {
        it.kind == RouteKind::Unicast && !it.destination.is_multicast() && it.prefix > 0
    };
    let within = routes
        .iter()
        .filter(leading)
        .map(|route| second(route.destination, route.prefix));
    let remote = REMOTE.iter().filter_map(|text| text.parse().ok());
    Ok(remote.chain(within).take(MAX_LOOKUPS).collect())
}

/// An address of a prefix that is neither its network's nor, most often, the machine's.
fn second(first: IpAddr, prefix: u8) -> IpAddr {
    match first {
        IpAddr::V4(v4) if prefix < 31 => IpAddr::V4((v4.to_bits() | 2).into()),
        IpAddr::V6(v6) if prefix < 127 => IpAddr::V6((v6.to_bits() | 2).into()),
        single => single,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_address_of_each_prefix() {
        let of = |text: &str, prefix| second(text.parse().unwrap(), prefix).to_string();
        assert_eq!(of("10.0.0.0", 24), "10.0.0.2");
        assert_eq!(of("10.0.0.7", 32), "10.0.0.7");
        assert_eq!(of("2001:db8::", 64), "2001:db8::2");
        assert_eq!(of("2001:db8::9", 128), "2001:db8::9");
    }
}
