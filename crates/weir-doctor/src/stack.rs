//! What the director's own network stack must let through. XDP takes the packets of layer 4 services before any
//! firewall sees them; through the stack go the clients of proxy services, packets that a firewall mark brings, and all
//! that the director sends to servers itself: probes and the proxy's connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_model::{Check, Desired, Family, Pool, Protocol};

use crate::firewall::{
    self, Drop, End, INBOUND, OUTBOUND, PASSING, Packet, Ruleset, Tracking, Which,
};
use crate::{Diagnosis, conntrack};

/// What firewall and conntrack do to those packets.
pub(crate) fn obstacles(desired: &Desired) -> Vec<Diagnosis> {
    let servers = asked_servers(desired);
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

/// Clients of proxy services.
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
                        "clients of the proxy service {name} get no answer; unlike those of layer 4 services their packets \
                         go through the stack"
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

/// What a firewall mark brings passes the chains of forwarded packets, and conntrack sees one direction of it.
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
                    &format!("clients of the service {name} are not answered: what has a mark is led through the chains of forwarded packets"),
                    &which,
                ));
            } else if let Some(drop) = rules.drops(first.later(Tracking::Invalid), PASSING) {
                found.push(firewall::diagnosis(
                    &drop,
                    &format!("packets of {mark} behind a connection's first"),
                    &format!(
                        "the servers' answers do not pass conntrack here, so that it calls all but the first packet of a client \
                         of {name} invalid: connections are never established"
                    ),
                    &which,
                ));
            }
        }
    }
    found
}

/// Servers that the director itself connects to, and at which port.
fn asked_servers(desired: &Desired) -> BTreeSet<(IpAddr, Option<u16>)> {
    let ports = desired.check_ports();
    let mut asked = BTreeSet::new();
    let proxied = |pool: &Pool| {
        let mut proxies = desired.proxies.iter();
        proxies.any(|it| it.pools().contains(&pool.name.as_str()))
    };
    for pool in &desired.pools {
        let proxied = proxied(pool);
        for server in pool.servers.iter().chain(&pool.sorry) {
            if proxied {
                asked.insert((server.address, server.port));
            }
            let by_tcp = |check: &&Check| check.probe.protocol() == Some(Protocol::Tcp);
            for check in pool.checks_of(server).iter().filter(by_tcp) {
                let address = check.target.address.unwrap_or(server.address);
                let port = check.port(server, ports.get(pool.name.as_str()).copied());
                asked.insert((address, port));
            }
        }
    }
    asked
}

/// One finding for all servers that one rule cuts off.
fn to_servers(servers: &BTreeSet<(IpAddr, Option<u16>)>, rules: &Ruleset) -> Vec<Diagnosis> {
    let mut there: BTreeMap<String, (Drop, BTreeSet<IpAddr>)> = BTreeMap::new();
    let mut back = there.clone();
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
            &mut there,
            rules.drops(Packet::syn(*server, *port), OUTBOUND),
            *server,
        );
        note(
            &mut back,
            rules.drops(Packet::answer(*server, *port), INBOUND),
            *server,
        );
    }
    let why =
        "probes of this machine, and the proxy's connections, fail: it calls these servers down";
    let told = |(drop, servers): &(Drop, BTreeSet<IpAddr>), what: &str, end| {
        let some = match servers.iter().collect::<Vec<_>>().as_slice() {
            [one] => one.to_string(),
            [first, rest @ ..] => format!("{first} and {} more servers", rest.len()),
            [] => String::new(),
        };
        let is_ipv4 = servers.first().is_some_and(IpAddr::is_ipv4);
        let which = Which::all(is_ipv4, end, None).of(servers.iter().copied());
        firewall::diagnosis(drop, &format!("{what} {some}"), why, &which)
    };
    let there = there.values();
    let there = there.map(|it| told(it, "what is sent to", End::Destination));
    let back = back.values();
    there
        .chain(back.map(|it| told(it, "answers of", End::Source)))
        .collect()
}
