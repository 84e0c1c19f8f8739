//! Reports firewall rules that drop client packets or the replies to them.
//!
//! If a VIP has more than one port, and the rules do not drop all its packets, they are evaluated for each port on
//! which a program listens. Firewalls drop packets for some of these ports deliberately, such as SSH's. A blocked port
//! is therefore reported only if the program listens on the VIP itself, if the port is in the VIP's port range and the
//! range is small, or if the firewall lets clients reach none of the ports. A large range, such as 1-65535, was not
//! chosen port by port, so a port in it need not be one that clients use.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weir_doctor::firewall::{self, Drop, INBOUND, OUTBOUND, Packet, PacketFilter, Ruleset, Side};
use weir_doctor::{Diagnosis, conntrack};

use crate::desired::DesiredState;
use crate::entry::Entry;
use crate::listener::accepts;

/// Maximum number of a VIP's ports that can be reported.
const MAX_PORTS: usize = 64;

/// Maximum number of ports in a range whose ports all certainly belong to the VIP.
const MAX_CERTAIN_PORTS: u16 = 64;

/// The port of SSH, which is rarely a service behind a VIP.
const SSH: u16 = 22;

const CONSEQUENCE: &str = "clients of this server receive no reply";
/// The consequence if it is not known whether clients use the port.
const UNCERTAIN_CONSEQUENCE: &str = "the firewall blocks every port of the VIP on which a program listens, except SSH \
                                     if it is open: clients that use one of these ports receive no reply; on other \
                                     ports of the VIP, no program listens";

/// Reports rules that drop packets of the VIPs. `listeners` contains the local addresses of listening TCP sockets.
pub(crate) fn dropped_packets(
    desired: &DesiredState,
    rules: &Ruleset,
    listeners: &[SocketAddr],
) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    for entry in &desired.entries {
        let port = single_port(entry);
        for direction in Direction::BOTH {
            let drop = direction.find_drop(entry, port, rules);
            findings.extend(match drop {
                Some(drop) => vec![direction.diagnosis(entry, port.as_slice(), &drop, CONSEQUENCE)],
                None if port.is_none() => dropped_ports(entry, direction, rules, listeners),
                None => Vec::new(),
            });
        }
        let syn = Direction::FromClient.packet(entry, port);
        if rules.find_drop(syn, INBOUND).is_none() {
            findings.extend(conntrack::missing_pickup(rules, syn));
        }
    }
    findings
}

/// Returns the VIP's port if it has only one.
fn single_port(entry: &Entry) -> Option<u16> {
    entry
        .ports
        .and_then(|(first, last)| (first == last).then_some(first))
}

/// Reports rules that drop the packets of some ports of a VIP, with one finding for all ports of a rule.
fn dropped_ports(
    entry: &Entry,
    direction: Direction,
    rules: &Ruleset,
    listeners: &[SocketAddr],
) -> Vec<Diagnosis> {
    let mut ports = listening_ports(entry, listeners);
    let passes = |port: u16| {
        let mut directions = Direction::BOTH.into_iter();
        !directions.any(|it| it.find_drop(entry, Some(port), rules).is_some())
    };
    let is_closed = !ports.iter().any(|(port, _)| *port != SSH && passes(*port));
    ports.truncate(MAX_PORTS);
    ports.sort_unstable();
    let mut dropped: Vec<(Drop, bool, Vec<u16>)> = Vec::new();
    for (port, is_vip_port) in ports {
        let drop = direction.find_drop(entry, Some(port), rules);
        let is_reported = is_vip_port || is_closed && port != SSH;
        let Some(drop) = drop.filter(|_| is_reported) else {
            continue;
        };
        let mut groups = dropped.iter_mut();
        match groups.find(|group| (&group.0, group.1) == (&drop, is_vip_port)) {
            Some((_, _, ports)) => ports.push(port),
            None => dropped.push((drop, is_vip_port, vec![port])),
        }
    }
    let diagnosis = |(drop, is_vip_port, ports): (Drop, bool, Vec<u16>)| {
        if is_vip_port {
            return direction.diagnosis(entry, &ports, &drop, CONSEQUENCE);
        }
        let mut finding = direction.diagnosis(entry, &ports, &drop, UNCERTAIN_CONSEQUENCE);
        let condition = match ports.len() {
            1 => "if clients must reach this port",
            _ => "omit the ports that clients must not reach",
        };
        finding.fix = finding.fix.map(|fix| format!("{condition}: {fix}"));
        finding
    };
    dropped.into_iter().map(diagnosis).collect()
}

/// Returns the ports on which a socket accepts connections to the VIP, and whether the port certainly belongs to the
/// VIP: the socket listens on the VIP itself, or the VIP has a small range with this port. These ports are first.
fn listening_ports(entry: &Entry, listeners: &[SocketAddr]) -> Vec<(u16, bool)> {
    let (first, last) = entry.ports_or_all();
    let is_own_address = |local: &SocketAddr| {
        // If the VIP is not on `lo`, clients' packets are addressed to one of the server's own addresses.
        let ip = local.ip();
        !entry.role.needs_loopback_vip() && !ip.is_loopback() && ip.is_ipv4() == entry.vip.is_ipv4()
    };
    let candidates = listeners
        .iter()
        .filter(|local| accepts(**local, entry.vip) || is_own_address(local))
        .filter(|local| (first..=last).contains(&local.port()));
    let is_small_range = entry.ports.is_some() && last - first < MAX_CERTAIN_PORTS;
    let mut ports = BTreeMap::new();
    for local in candidates {
        let is_vip_port = is_small_range || local.ip() == entry.vip;
        *ports.entry(local.port()).or_default() |= is_vip_port;
    }
    let mut ports: Vec<(u16, bool)> = ports.into_iter().collect();
    ports.sort_by_key(|(port, is_vip_port)| (!is_vip_port, *port));
    ports
}

/// The direction of packets.
#[derive(Clone, Copy)]
enum Direction {
    FromClient,
    ToClient,
}

impl Direction {
    const BOTH: [Self; 2] = [Self::FromClient, Self::ToClient];

    /// Returns the first packet in this direction, from or to `port` of the VIP; `None` = the port is unknown.
    fn packet(self, entry: &Entry, port: Option<u16>) -> Packet {
        let mut packet = match self {
            Self::FromClient => Packet::syn(entry.vip, port),
            Self::ToClient => Packet::reply(entry.vip, port),
        };
        // If the VIP need not be on `lo`, packets are addressed to the server's own address.
        if !entry.role.needs_loopback_vip() {
            (packet.source, packet.destination) = (None, None);
        }
        packet
    }

    fn find_drop(self, entry: &Entry, port: Option<u16>, rules: &Ruleset) -> Option<Drop> {
        let hooks = match self {
            Self::FromClient => INBOUND,
            Self::ToClient => OUTBOUND,
        };
        rules.find_drop(self.packet(entry, port), hooks)
    }

    /// Reports dropped packets of these ports; no ports = all ports.
    fn diagnosis(self, entry: &Entry, ports: &[u16], drop: &Drop, consequence: &str) -> Diagnosis {
        let vip = match ports {
            [] => entry.to_string(),
            [port] => Entry {
                ports: Some((*port, *port)),
                ..*entry
            }
            .to_string(),
            ports => {
                let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
                format!("{entry} (ports {})", ports.join(", "))
            }
        };
        let (packets, side) = match self {
            Self::FromClient => (format!("client packets for {vip}"), Side::Destination),
            Self::ToClient => (format!("replies from {vip}"), Side::Source),
        };
        let address = entry.role.needs_loopback_vip().then_some(entry.vip);
        let filter = PacketFilter::all(entry.vip.is_ipv4(), side, None)
            .with_addresses(address)
            .with_ports(ports.iter().copied());
        firewall::diagnosis(drop, &packets, consequence, &filter)
    }
}

#[cfg(test)]
mod tests;
