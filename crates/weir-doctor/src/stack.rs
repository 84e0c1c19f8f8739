//! Firewall rules and conntrack of the director that drop traffic which passes through its network stack. XDP handles
//! packets of layer 4 services before any firewall; the stack handles clients of proxy services, packets selected by a
//! firewall mark, and what the director itself sends to servers: probes and the proxy's connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_model::{Check, Desired, Family, Pool, Protocol};

use crate::firewall::{
    self, Drop, End, INBOUND, OUTBOUND, PASSING, Packet, Ruleset, Tracking, Which,
};
use crate::{Diagnosis, conntrack};

/// Reports rules and conntrack states that drop those packets.
pub(crate) fn obstacles(desired: &Desired) -> Vec<Diagnosis> {
    let servers = contacted_servers(desired);
    let marks = desired.services.iter().any(|it| !it.marks.is_empty());
    let mut found = Vec::new();
    if marks || !servers.is_empty() || !desired.proxies.is_empty() {
        found.extend(conntrack::full());
    }
    let firewall::Firewall { rules, unseen } = firewall::read();
    found.extend(unseen);
    found.extend(clients(desired, &rules));
    found.extend(marked(desired, &rules));
    found.extend(to_servers(&servers, &rules));
    found
}

/// Packets of clients of proxy services.
fn clients(desired: &Desired, rules: &Ruleset) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for proxy in &desired.proxies {
        for listener in &proxy.listen {
            let (vip, port) = (listener.ip(), listener.port());
            let mut syn = Packet::syn(vip, Some(port));
            let mut answer = Packet::answer(vip, Some(port));
            let every = vip.is_unspecified();
            let which =
                |end| Which::all(vip.is_ipv4(), end, Some(port)).of((!every).then_some(vip));
            if every {
                (syn.destination, answer.source) = (None, None);
            }
            let name = &proxy.name;
            if let Some(drop) = rules.drops(syn, INBOUND) {
                found.push(firewall::diagnosis(
                    &drop,
                    &format!("clients' packets for {listener}"),
                    &format!(
                        "clients of the proxy service {name} get no answer; unlike those of layer 4 services their \
                         packets go through the stack"
                    ),
                    &which(End::Destination),
                ));
            }
            if let Some(drop) = rules.drops(answer, OUTBOUND) {
                found.push(firewall::diagnosis(
                    &drop,
                    &format!("answers of {listener}"),
                    &format!("clients of the proxy service {name} get no answer"),
                    &which(End::Source),
                ));
            }
        }
    }
    found
}

/// Packets selected by a firewall mark pass the forward chains, and conntrack sees one direction only.
fn marked(desired: &Desired, rules: &Ruleset) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for service in &desired.services {
        for mark in &service.marks {
            let first = Packet {
                mark: Some(mark.mark.get()),
                ..Packet::of(mark.family == Family::V4)
            };
            let which = Which::marked(mark.family == Family::V4, mark.mark.get());
            let name = &service.name;
            if let Some(drop) = rules.drops(first, PASSING) {
                found.push(firewall::diagnosis(
                    &drop,
                    &format!("packets of {mark}"),
                    &format!("clients of the service {name} get no answer: packets with a mark pass the forward \
                     chains"),
                    &which,
                ));
            } else if let Some(drop) = rules.drops(first.later(Tracking::Invalid), PASSING) {
                found.push(firewall::diagnosis(
                    &drop,
                    &format!("packets of {mark} after a connection's first"),
                    &format!(
                        "conntrack does not see the servers' answers here and calls all but the first packet of a \
                         client of {name} invalid: connections are never established"
                    ),
                    &which,
                ));
            }
        }
    }
    found
}

/// Servers that the director itself connects to, and their ports.
fn contacted_servers(desired: &Desired) -> BTreeSet<(IpAddr, Option<u16>)> {
    let ports = desired.check_ports();
    let mut contacted = BTreeSet::new();
    let proxied = |pool: &Pool| {
        let mut proxies = desired.proxies.iter();
        proxies.any(|it| it.pools().contains(&pool.name.as_str()))
    };
    for pool in &desired.pools {
        let proxied = proxied(pool);
        for server in pool.servers.iter().chain(&pool.sorry) {
            if proxied {
                contacted.insert((server.address, server.port));
            }
            let by_tcp = |check: &&Check| check.probe.protocol() == Some(Protocol::Tcp);
            for check in pool.checks_of(server).iter().filter(by_tcp) {
                let address = check.target.address.unwrap_or(server.address);
                let port = check.port(server, ports.get(pool.name.as_str()).copied());
                contacted.insert((address, port));
            }
        }
    }
    contacted
}

/// One finding for all servers that one rule blocks.
fn to_servers(servers: &BTreeSet<(IpAddr, Option<u16>)>, rules: &Ruleset) -> Vec<Diagnosis> {
    let mut outbound: BTreeMap<String, (Drop, BTreeSet<IpAddr>)> = BTreeMap::new();
    let mut inbound = outbound.clone();
    let note = |to: &mut BTreeMap<_, (Drop, BTreeSet<IpAddr>)>, drop: Option<Drop>, server| {
        let Some(drop) = drop else { return };
        let key = format!("{drop:?} {}", IpAddr::is_ipv4(&server));
        to.entry(key)
            .or_insert_with(|| (drop, BTreeSet::new()))
            .1
            .insert(server);
    };
    for (server, port) in servers {
        note(
            &mut outbound,
            rules.drops(Packet::syn(*server, *port), OUTBOUND),
            *server,
        );
        note(
            &mut inbound,
            rules.drops(Packet::answer(*server, *port), INBOUND),
            *server,
        );
    }
    let why = "probes of this machine and the proxy's connections fail, so these servers are down";
    let finding = |(drop, servers): &(Drop, BTreeSet<IpAddr>), what: &str, end| {
        let some = match servers.iter().collect::<Vec<_>>().as_slice() {
            [one] => one.to_string(),
            [first, rest @ ..] => format!("{first} and {} more servers", rest.len()),
            [] => String::new(),
        };
        let is_ipv4 = servers.first().is_some_and(IpAddr::is_ipv4);
        let which = Which::all(is_ipv4, end, None).of(servers.iter().copied());
        firewall::diagnosis(drop, &format!("{what} {some}"), why, &which)
    };
    let outbound = outbound.values();
    let outbound = outbound.map(|it| finding(it, "packets to", End::Destination));
    let inbound = inbound.values();
    outbound
        .chain(inbound.map(|it| finding(it, "answers of", End::Source)))
        .collect()
}
