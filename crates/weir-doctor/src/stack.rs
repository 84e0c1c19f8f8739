//! Reports firewall rules and conntrack states that drop packets in the director's network stack.
//!
//! XDP or tc handles packets of layer 4 services before any firewall. The network stack handles packets of proxy
//! services, packets selected by a firewall mark, and the director's own packets to servers, which are probes and proxy
//! connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_model::{Check, Desired, Family, Pool, Protocol, Service};
use weir_netlink::{NetState, Netlink, Sysctl};

use crate::firewall::{
    self, Drop, FORWARDED, INBOUND, OUTBOUND, Packet, PacketFilter, Ruleset, Side, Tracking,
};
use crate::{Diagnosis, conntrack};

/// Reports rules, settings and conntrack states that drop packets.
pub(crate) fn dropped_packets(
    desired: &Desired,
    netlink: &Netlink,
    state: &NetState,
) -> Vec<Diagnosis> {
    let servers = contacted_servers(desired);
    let has_marks = desired
        .services
        .iter()
        .any(|service| !service.marks.is_empty());
    let mut findings = Vec::new();
    if has_marks || !servers.is_empty() || !desired.proxies.is_empty() {
        findings.extend(conntrack::nearly_full_table());
    }
    findings.extend(marks_without_forwarding(desired, netlink, state));
    let firewall::Firewall { rules, unreadable } = firewall::read();
    findings.extend(unreadable);
    findings.extend(proxied_packets(desired, &rules));
    findings.extend(marked_packets(desired, &rules));
    findings.extend(server_packets(&servers, &rules));
    findings
}

/// Reports dropped packets of proxy services.
fn proxied_packets(desired: &Desired, rules: &Ruleset) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    for proxy in &desired.proxies {
        for listener in &proxy.listen {
            let (vip, port) = (listener.ip(), listener.port());
            let mut syn = Packet::syn(vip, Some(port));
            let mut reply = Packet::reply(vip, Some(port));
            let is_wildcard = vip.is_unspecified();
            let filter = |side| {
                PacketFilter::all(vip.is_ipv4(), side, Some(port))
                    .with_addresses((!is_wildcard).then_some(vip))
            };
            if is_wildcard {
                (syn.destination, reply.source) = (None, None);
            }
            let name = &proxy.name;
            if let Some(drop) = rules.find_drop(syn, INBOUND) {
                findings.push(firewall::diagnosis(
                    &drop,
                    &format!("client packets for {listener}"),
                    &format!(
                        "clients of the proxy service {name} receive no reply; unlike packets of layer 4 services, \
                         their packets pass through the network stack"
                    ),
                    &filter(Side::Destination),
                ));
            }
            if let Some(drop) = rules.find_drop(reply, OUTBOUND) {
                findings.push(firewall::diagnosis(
                    &drop,
                    &format!("replies from {listener}"),
                    &format!("clients of the proxy service {name} receive no reply"),
                    &filter(Side::Source),
                ));
            }
        }
    }
    findings
}

/// Reports firewall mark services of a family for which no device forwards packets.
fn marks_without_forwarding(
    desired: &Desired,
    netlink: &Netlink,
    state: &NetState,
) -> Vec<Diagnosis> {
    let families = [
        (Family::V4, "net.ipv4.ip_forward"),
        (Family::V6, "net.ipv6.conf.all.forwarding"),
    ];
    let forwards = |family: Family| {
        let mut links = state.links.values().filter(|link| !link.loopback);
        links.any(|link| {
            let sysctl = Sysctl::for_device(family == Family::V6, &link.name, "forwarding").ok();
            let value = sysctl.and_then(|sysctl| netlink.sysctl(&sysctl).ok());
            value.is_none_or(|value| value != "0")
        })
    };
    let mut findings = Vec::new();
    for (family, key) in families {
        let has_mark = |service: &&Service| service.marks.iter().any(|it| it.family == family);
        let Some(service) = desired.services.iter().find(has_mark) else {
            continue;
        };
        if !forwards(family) {
            let name = &service.name;
            findings.push(
                Diagnosis::new(
                    format!("{family} forwarding is disabled on this machine"),
                    format!(
                        "clients of the service {name} receive no reply: packets with a mark are routed to Weir's \
                         mark device, which requires forwarding"
                    ),
                )
                .fix(format!("sysctl -w {key}=1")),
            );
        }
    }
    findings
}

/// Reports dropped packets of firewall mark services. They traverse the forward chains, and conntrack sees only one
/// direction.
fn marked_packets(desired: &Desired, rules: &Ruleset) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    for service in &desired.services {
        for mark in &service.marks {
            let first = Packet {
                mark: Some(mark.mark.get()),
                ..Packet::any_syn(mark.family == Family::V4)
            };
            let filter = PacketFilter::marked(mark.family == Family::V4, mark.mark.get());
            let name = &service.name;
            if let Some(drop) = rules.find_drop(first, FORWARDED) {
                findings.push(firewall::diagnosis(
                    &drop,
                    &format!("packets with {mark}"),
                    &format!("clients of the service {name} receive no reply: packets with a mark traverse the \
                         forward chains"),
                    &filter,
                ));
            } else if let Some(drop) = rules.find_drop(first.ack(Tracking::Invalid), FORWARDED) {
                findings.push(firewall::diagnosis(
                    &drop,
                    &format!("packets with {mark} after the first packet of a connection"),
                    &format!(
                        "conntrack does not see server replies here and considers all packets of {name} except the \
                         first of each connection invalid: connections are never established"
                    ),
                    &filter,
                ));
            }
        }
    }
    findings
}

/// Returns the servers and ports that the director itself connects to.
fn contacted_servers(desired: &Desired) -> BTreeSet<(IpAddr, Option<u16>)> {
    let ports = desired.check_ports();
    let mut targets = BTreeSet::new();
    let is_proxied = |pool: &Pool| {
        let mut proxies = desired.proxies.iter();
        proxies.any(|proxy| proxy.pools().contains(&pool.name.as_str()))
    };
    for pool in &desired.pools {
        let is_proxied = is_proxied(pool);
        let all = pool.servers.iter().chain(&pool.sorry);
        for server in all.filter(|server| server.ip().is_some()) {
            if is_proxied {
                targets.insert((server.address, server.port));
            }
            let uses_tcp = |check: &&Check| check.probe.protocol() == Some(Protocol::Tcp);
            for check in pool.checks_of(server).iter().filter(uses_tcp) {
                let address = check.target.address.unwrap_or(server.address);
                let port = check.port(server, ports.get(pool.name.as_str()).copied());
                targets.insert((address, port));
            }
        }
    }
    targets
}

/// Reports dropped packets to and from servers, with one finding for each rule.
fn server_packets(servers: &BTreeSet<(IpAddr, Option<u16>)>, rules: &Ruleset) -> Vec<Diagnosis> {
    let mut outbound: BTreeMap<String, (Drop, BTreeSet<IpAddr>)> = BTreeMap::new();
    let mut inbound = outbound.clone();
    let add =
        |drops_by_rule: &mut BTreeMap<_, (Drop, BTreeSet<IpAddr>)>, drop: Option<Drop>, server| {
            let Some(drop) = drop else { return };
            let key = format!("{drop:?} {}", IpAddr::is_ipv4(&server));
            drops_by_rule
                .entry(key)
                .or_insert_with(|| (drop, BTreeSet::new()))
                .1
                .insert(server);
        };
    for (server, port) in servers {
        add(
            &mut outbound,
            rules.find_drop(Packet::syn(*server, *port), OUTBOUND),
            *server,
        );
        add(
            &mut inbound,
            rules.find_drop(Packet::reply(*server, *port), INBOUND),
            *server,
        );
    }
    let consequence =
        "probes from this machine and proxy connections fail, so these servers are down";
    let finding = |(drop, servers): &(Drop, BTreeSet<IpAddr>), direction: &str, side| {
        let names = match servers.iter().collect::<Vec<_>>().as_slice() {
            [server] => server.to_string(),
            [first, others @ ..] => format!("{first} and {} more", others.len()),
            [] => String::new(),
        };
        let is_ipv4 = servers.first().is_some_and(IpAddr::is_ipv4);
        let filter = PacketFilter::all(is_ipv4, side, None).with_addresses(servers.iter().copied());
        firewall::diagnosis(drop, &format!("{direction} {names}"), consequence, &filter)
    };
    let outbound = outbound.values();
    let outbound = outbound.map(|entry| finding(entry, "packets to", Side::Destination));
    let inbound = inbound.values();
    outbound
        .chain(inbound.map(|entry| finding(entry, "replies from", Side::Source)))
        .collect()
}
