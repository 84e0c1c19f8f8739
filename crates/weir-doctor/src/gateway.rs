//! Reports a server's default gateways that have one of the server's VIPs.
//!
//! Linux drops an IPv4 packet whose source is one of its own addresses (`fib_validate_source` in
//! net/ipv4/fib_frontend.c), so such a gateway does not forward the server's replies. It forwards IPv6 packets with
//! these sources, so IPv6 VIPs are not examined.
//!
//! A machine can have several link-layer addresses: a virtual router has its own (RFC 9568 section 7.3). Whether the
//! machine with a VIP's link-layer address also has the gateway's address is therefore tested with an echo request.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use weir_netlink::{Link, NetState, Netlink, RouteKind};
use weir_wire::{Icmpv4Message, Icmpv6Message, MacAddr, Packet, Transport};

use crate::Diagnosis;
use crate::claimant::{Claim, ETHERTYPE_IPV6, TIMEOUT, claims_on, query_all, sender_on};

/// A documentation address (RFC 5737), which has no route of its own. Packets to it use the default route, and a
/// machine that replies to queries for it replies for any address (proxy ARP).
const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

/// Time limit for replies of machines with proxy ARP, which Linux delays by up to 0.8 s (`proxy_delay`).
const PROXY_TIMEOUT: Duration = Duration::from_secs(1);

/// TTL of echo requests: a machine that does not have the destination address does not forward them.
const ECHO_TTL: u8 = 1;
/// Identifier of echo requests.
const ECHO_ID: u16 = 0x5745;

const ETHERTYPE_IPV4: u16 = 0x0800;

/// Reports default gateways that are the machine that replies to queries for a VIP. Waits for replies, up to the time
/// limit, for each gateway.
///
/// # Errors
/// Fails if the network state cannot be read.
pub async fn gateways_with_vips(
    vips: &BTreeSet<IpAddr>,
    netlink: &Netlink,
) -> Result<Vec<Diagnosis>, weir_netlink::Error> {
    let state = netlink.read_tables().await?;
    let mut gateways: BTreeMap<(u32, IpAddr), BTreeSet<IpAddr>> = BTreeMap::new();
    for vip in vips.iter().filter(|vip| vip.is_ipv4()) {
        let is_local = state.addresses.iter().any(|address| address.ip == *vip);
        // With policy rules, replies from the VIP can use a different gateway.
        let source = is_local.then_some(*vip);
        let route = netlink.route_get(REMOTE, source, 0).await?;
        let next_hops = route.next_hops.iter();
        for next_hop in next_hops.filter(|_| route.kind == RouteKind::Unicast) {
            if let Some(gateway) = next_hop.gateway {
                let key = (next_hop.ifindex, gateway);
                gateways.entry(key).or_default().insert(*vip);
            }
        }
    }
    let mut findings = Vec::new();
    for ((ifindex, gateway), routed_vips) in gateways {
        let Some(link) = state.links.get(&ifindex) else {
            continue;
        };
        let queried = routed_vips.iter().copied().chain([gateway]);
        // An IPv4 route can have an IPv6 gateway (RFC 5549).
        let (v4, v6): (Vec<_>, Vec<_>) = queried.partition(IpAddr::is_ipv4);
        let mut claims = claims_on(link, (&state, vips), &v4, TIMEOUT);
        claims.extend(claims_on(link, (&state, vips), &v6, TIMEOUT));
        claims.extend(claims_by_echo(link, (&state, vips), gateway, &claims));
        let gateway_vips = vips_on(gateway, &routed_vips, &claims);
        if gateway_vips.is_empty() {
            continue;
        }
        claims.extend(claims_on(link, (&state, vips), &[REMOTE], PROXY_TIMEOUT));
        let is_proxy = !vips_on(gateway, &[REMOTE].into(), &claims).is_empty();
        findings.extend((!is_proxy).then(|| diagnosis(gateway, &gateway_vips)));
    }
    Ok(findings)
}

/// Returns the `vips` for which a link-layer address replied that also replied for the gateway.
fn vips_on(gateway: IpAddr, vips: &BTreeSet<IpAddr>, claims: &BTreeSet<Claim>) -> BTreeSet<IpAddr> {
    let is_on_gateway = |vip: &IpAddr| {
        let mut vip_claims = claims.iter().filter(|(address, _)| address == vip);
        vip_claims.any(|(_, mac)| claims.contains(&(gateway, mac.clone())))
    };
    vips.iter().copied().filter(is_on_gateway).collect()
}

/// Returns a claim of the gateway's address for each link-layer address in `claims` whose machine replies to an echo
/// request to the gateway.
fn claims_by_echo(
    link: &Link,
    (state, vips): (&NetState, &BTreeSet<IpAddr>),
    gateway: IpAddr,
    claims: &BTreeSet<Claim>,
) -> BTreeSet<Claim> {
    let unresolved_claims = claims
        .iter()
        .filter(|(_, mac)| !claims.contains(&(gateway, mac.clone())));
    let targets: BTreeSet<&String> = unresolved_claims.map(|(_, mac)| mac).collect();
    let targets: Vec<&String> = targets.into_iter().collect();
    let sender = sender_on(link, (state, vips), gateway.is_ipv4());
    let (Some(mac), Some(sender), false) = (link.mac, sender, targets.is_empty()) else {
        return BTreeSet::new();
    };
    let mac = MacAddr::new(mac.octets());
    let requests = (0..).zip(&targets).filter_map(|(seq, target)| {
        let packet = Packet::ethernet(mac, parse_mac(target)?).ip(sender, gateway);
        Some(packet.ttl(ECHO_TTL).echo_request(ECHO_ID, seq).build())
    });
    let ethertype = match gateway {
        IpAddr::V4(_) => ETHERTYPE_IPV4,
        IpAddr::V6(_) => ETHERTYPE_IPV6,
    };
    let replies = query_all((link.index, ethertype), requests, TIMEOUT, &|frame| {
        let seq = parse_echo_reply(frame, gateway, sender)?;
        let target = targets.get(usize::from(seq))?;
        Some((gateway, (*target).clone()))
    });
    replies.unwrap_or_default()
}

/// Parses the link-layer address of a claim.
fn parse_mac(text: &str) -> Option<MacAddr> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().ok()?;
    Some(MacAddr::new(bytes.try_into().ok()?))
}

/// Returns the sequence number in the gateway's reply to an echo request.
fn parse_echo_reply(frame: &[u8], gateway: IpAddr, sender: IpAddr) -> Option<u16> {
    let parsed = Packet::parse(frame).ok()?;
    let packet = parsed.ip()?;
    let (id, seq) = match &packet.transport {
        Transport::Icmp4 {
            message: Icmpv4Message::EchoReply { id, seq },
            ..
        }
        | Transport::Icmp6 {
            message: Icmpv6Message::EchoReply { id, seq },
            ..
        } => (*id, *seq),
        _ => return None,
    };
    ((packet.src(), packet.dst(), id) == (gateway, sender, ECHO_ID)).then_some(seq)
}

/// Reports a gateway that has these VIPs.
fn diagnosis(gateway: IpAddr, vips: &BTreeSet<IpAddr>) -> Diagnosis {
    let (noun, source) = match vips.len() {
        1 => ("VIP", "the VIP"),
        _ => ("VIPs", "a VIP"),
    };
    let vips: Vec<String> = vips.iter().map(ToString::to_string).collect();
    Diagnosis::new(
        format!(
            "the default gateway {gateway} is the director, which has the {noun} {}: it drops replies whose source is \
             {source}",
            vips.join(", ")
        ),
        "clients behind that gateway time out",
    )
    .fix(
        "use another router as the default gateway of this machine (ip route replace default via ROUTER), or use \
         `nat` for the service",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATEWAY: &str = "10.0.0.1";
    const VIP: &str = "10.0.0.10";
    const OTHER_VIP: &str = "10.0.0.11";
    const DIRECTOR: &str = "02:00:00:00:00:01";
    const ROUTER: &str = "02:00:00:00:00:09";

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("address is valid")
    }

    /// Returns the VIPs on the gateway according to these replies.
    fn find_vips(claims: &[(&str, &str)]) -> Vec<String> {
        let claims = claims.iter();
        let claims = claims.map(|(address, mac)| (ip(address), (*mac).to_owned()));
        let vips = BTreeSet::from([ip(VIP), ip(OTHER_VIP)]);
        let gateway_vips = vips_on(ip(GATEWAY), &vips, &claims.collect());
        gateway_vips.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn vips_with_the_gateways_link_layer_address_are_on_the_gateway() {
        assert_eq!(find_vips(&[(GATEWAY, DIRECTOR), (VIP, DIRECTOR)]), [VIP]);
        let both = [
            (GATEWAY, DIRECTOR),
            (VIP, DIRECTOR),
            (OTHER_VIP, DIRECTOR),
            (OTHER_VIP, ROUTER),
        ];
        assert_eq!(find_vips(&both), [VIP, OTHER_VIP]);
        for claims in [
            &[][..],
            &[(GATEWAY, DIRECTOR)],
            &[(VIP, DIRECTOR)],
            &[(GATEWAY, ROUTER), (VIP, DIRECTOR), (OTHER_VIP, DIRECTOR)],
        ] {
            assert!(find_vips(claims).is_empty(), "{claims:?}");
        }
    }

    #[test]
    fn echo_reply_from_the_gateway_identifies_the_request() {
        let (sender, other) = (ip("10.0.0.5"), ip("10.0.0.9"));
        let frame = |from, to, id, seq| {
            let packet = Packet::ethernet(MacAddr::ZERO, MacAddr::ZERO).ip(from, to);
            packet.echo_reply(id, seq).build()
        };
        let seq = |frame: &[u8]| parse_echo_reply(frame, ip(GATEWAY), sender);
        assert_eq!(seq(&frame(ip(GATEWAY), sender, ECHO_ID, 3)), Some(3));
        assert_eq!(seq(&frame(other, sender, ECHO_ID, 3)), None);
        assert_eq!(seq(&frame(ip(GATEWAY), other, ECHO_ID, 3)), None);
        assert_eq!(seq(&frame(ip(GATEWAY), sender, 1, 3)), None);
        // A router that does not have the gateway's address reports that the TTL was exceeded.
        let request = Packet::ip(sender, ip(GATEWAY)).echo_request(ECHO_ID, 3);
        let exceeded = Packet::ethernet(MacAddr::ZERO, MacAddr::ZERO).ip(ip(GATEWAY), sender);
        assert_eq!(seq(&exceeded.time_exceeded(&request.build()).build()), None);
        assert_eq!(parse_mac(ROUTER).unwrap().to_string(), ROUTER);
    }

    #[test]
    fn finding_names_the_gateway_and_its_vips() {
        let text = |vips: &[&str]| {
            let vips = vips.iter().map(|vip| ip(vip)).collect();
            diagnosis(ip(GATEWAY), &vips).observation
        };
        assert_eq!(
            text(&[VIP]),
            "the default gateway 10.0.0.1 is the director, which has the VIP 10.0.0.10: it drops replies whose source \
             is the VIP"
        );
        let both = text(&[VIP, OTHER_VIP]);
        assert!(both.contains("the VIPs 10.0.0.10, 10.0.0.11: it"), "{both}");
    }
}
