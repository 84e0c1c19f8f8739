//! Notes devices on which tunnel packets leave no room for the largest packets of clients.
//!
//! This needs no action in most networks: the director rejects such a packet with an ICMP error, and the client sends
//! smaller ones. Only the servers, which can reduce the size of TCP segments, and the clients' networks determine
//! whether connections stall. Both are unknown here, so this is not a problem that `weir doctor` can find.

use std::collections::BTreeMap;

use weir_model::{Desired, Family, Forward, Service};
use weir_netlink::{NetState, resolve};

use crate::Diagnosis;

/// The MTU of most clients, in bytes.
const CLIENT_MTU: u32 = 1500;

/// Lengths of the IP and TCP headers without options, in bytes, which the maximum segment size does not include.
const IPV4_TCP_HEADERS: u32 = 40;
const IPV6_TCP_HEADERS: u32 = 60;

/// The smallest limits on a device, in bytes.
#[derive(Clone, Copy)]
struct Limits {
    /// MTU of the path to the server.
    mtu: u32,
    /// Largest packet of a client.
    packet: u32,
    /// Largest TCP segment of a client.
    segment: u32,
}

/// Notes devices on which a client's full-size packet does not fit with the outer headers.
pub(crate) fn small_mtus(desired: &Desired, state: &NetState) -> Vec<Diagnosis> {
    let mut devices: BTreeMap<u32, Limits> = BTreeMap::new();
    for service in &desired.services {
        let pool = desired.pool(&service.pool).into_iter();
        let servers = pool.flat_map(|pool| pool.servers.iter().chain(&pool.sorry));
        for server in servers.filter(|it| it.forward_in(service) == Forward::Tunnel) {
            let overhead = server
                .tunnel_in(service)
                .overhead(Family::of(server.address));
            let paths = resolve(server.address, state).into_iter();
            for path in paths.filter(|path| !path.local) {
                let packet = path.mtu.saturating_sub(overhead);
                let limits = Limits {
                    mtu: path.mtu,
                    packet,
                    segment: packet.saturating_sub(tcp_headers(service)),
                };
                let smallest = devices.entry(path.device).or_insert(limits);
                if limits.segment < smallest.segment {
                    *smallest = limits;
                }
            }
        }
    }
    let small_limits = devices
        .iter()
        .filter(|(_, limits)| limits.packet < CLIENT_MTU);
    let notes = small_limits.filter_map(|(device, limits)| {
        let link = state.links.get(device)?;
        Some(note(&link.name, limits))
    });
    notes.collect()
}

/// Returns the length of the headers of a client's TCP segment.
fn tcp_headers(service: &Service) -> u32 {
    let mut listeners = service.listen.iter().map(|listener| listener.family());
    let mut marks = service.marks.iter().map(|mark| mark.family);
    if listeners.any(|it| it == Family::V6) || marks.any(|it| it == Family::V6) {
        IPV6_TCP_HEADERS
    } else {
        IPV4_TCP_HEADERS
    }
}

fn note(device: &str, limits: &Limits) -> Diagnosis {
    let Limits {
        mtu,
        packet,
        segment,
    } = *limits;
    let sufficient = CLIENT_MTU + (mtu - packet);
    Diagnosis::note(
        format!(
            "tunnel packets on {device} (MTU {mtu}) have room for client packets of at most {packet} bytes"
        ),
        format!(
            "a client with an MTU of {CLIENT_MTU} receives an ICMP error for its first larger packet, and then sends \
             smaller ones; uploads stall only if the client's network drops ICMP errors"
        ),
    )
    .fix(format!(
        "only for such clients: an MTU of {sufficient} on the whole path, if the network supports it (here: ip link \
         set {device} mtu {sufficient}); or smaller segments (on each server: ip route change default via ROUTER \
         advmss {segment})"
    ))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use weir_config::{Host, parse};
    use weir_netlink::{Link, Lookup, NextHop, RouteKind};

    use super::*;

    const SERVERS: [&str; 2] = ["10.1.0.5", "fd00:1::5"];

    /// Returns the state of a machine that reaches the servers through a device with this MTU.
    fn state(mtu: u32, route_mtu: Option<u32>) -> NetState {
        let link = Link {
            index: 2,
            name: "eth0".to_owned(),
            kind: None,
            mac: None,
            mtu,
            up: true,
            carrier: true,
            loopback: false,
            master: None,
            lower: None,
            vlan: None,
        };
        let lookup = Lookup {
            kind: RouteKind::Unicast,
            prefsrc: None,
            next_hops: vec![NextHop {
                ifindex: 2,
                gateway: None,
                weight: 1,
                mtu: route_mtu,
            }],
        };
        let addresses = SERVERS.map(|server| server.parse::<IpAddr>().unwrap());
        NetState {
            links: [(2, link)].into(),
            lookups: addresses.map(|server| (server, lookup.clone())).into(),
            ..NetState::default()
        }
    }

    fn notes(server: &str, keys: &str, state: &NetState) -> Vec<String> {
        let text =
            format!("[pool.p]\nservers = [\"{server}\"]\n[service.s]\npool = \"p\"\n{keys}\n");
        let desired = parse(&text, &Host::default()).unwrap().desired;
        let findings = small_mtus(&desired, state);
        assert!(
            findings.iter().all(|finding| finding.is_note),
            "{findings:?}"
        );
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn device_without_room_is_reported_in_a_note_with_its_limits() {
        let v4 = "listen = [\"192.0.2.1:80\"]\nforward = \"tunnel\"";
        let v6 = "listen = [\"[2001:db8::1]:80\"]\nforward = \"tunnel\"\ntunnel = \"gue\"";
        for (server, keys, mtu, route_mtu, packet, fixes) in [
            (
                SERVERS[0],
                v4,
                1500,
                None,
                1480,
                ["mtu 1520", "advmss 1440"],
            ),
            (
                SERVERS[0],
                v4,
                9000,
                Some(1400),
                1380,
                ["mtu 1520", "advmss 1340"],
            ),
            (
                SERVERS[1],
                v6,
                1500,
                None,
                1448,
                ["mtu 1552", "advmss 1388"],
            ),
        ] {
            let notes_on_device = notes(server, keys, &state(mtu, route_mtu));
            let [note] = &notes_on_device[..] else {
                panic!("{notes_on_device:?}")
            };
            let smallest = route_mtu.unwrap_or(mtu);
            let observation = format!("note: tunnel packets on eth0 (MTU {smallest})");
            assert!(note.starts_with(&observation), "{note}");
            assert!(note.contains(&format!("at most {packet} bytes")), "{note}");
            assert!(fixes.iter().all(|fix| note.contains(fix)), "{note}");
        }
    }

    #[test]
    fn overhead_depends_on_each_servers_tunnel() {
        let text = "[pool.p]\nservers = [{ address = \"10.1.0.5\", tunnel = \"gue\" }]\n[service.s]\npool = \"p\"\n\
                    listen = [\"192.0.2.1:80\"]\nforward = \"tunnel\"\n";
        let desired = parse(text, &Host::default()).unwrap().desired;
        let findings = small_mtus(&desired, &state(1500, None));
        let [note] = &findings[..] else {
            panic!("{findings:?}")
        };
        // The IPv4, UDP and GUE headers have 20 + 8 + 4 bytes.
        let note = note.to_string();
        assert!(note.contains("at most 1468 bytes"), "{note}");
    }

    #[test]
    fn devices_with_room_and_other_forwarding_methods_have_no_note() {
        let tunnel = "listen = [\"192.0.2.1:80\"]\nforward = \"tunnel\"";
        let direct = "listen = [\"192.0.2.1:80\"]\nforward = \"direct\"";
        assert_eq!(notes(SERVERS[0], tunnel, &state(1519, None)).len(), 1);
        assert!(notes(SERVERS[0], tunnel, &state(1520, None)).is_empty());
        assert!(notes(SERVERS[0], direct, &state(1500, None)).is_empty());
    }
}
