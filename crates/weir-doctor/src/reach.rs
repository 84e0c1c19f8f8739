//! Tests whether the servers of `direct` services accept connections to the VIP.
//!
//! The test sends a SYN for the VIP to the server's MAC address, as the data plane does when it forwards a client's
//! SYN. It reads replies from a packet socket, because the VIP may also be an address of this machine. Connections that
//! the test opens are reset immediately.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use weir_model::{Desired, Forward, Ports, Protocol};
use weir_netlink::{NetState, ResolvedPath, resolve};
use weir_sys::FrameSocket;
use weir_wire::{MacAddr, Packet, TcpFlags};

use crate::Diagnosis;
use crate::interface::network_of;
use crate::server_path::vips_of_servers;

/// Timeout for replies. A SYN without a reply is retransmitted once, after half of this time.
const TIMEOUT: Duration = Duration::from_millis(600);

/// Maximum number of probes per run, to limit the load. Each probe sends at most two SYNs.
const MAX_PROBES: usize = 256;

/// Source port of the first probe; each probe uses a different port. The ports are above the kernel's default range of
/// ephemeral ports (`ip_local_port_range`).
const FIRST_PORT: u16 = 61_000;

/// TTL of probes that pass a router. The router may forward a probe to the server. If it returns the probe to this
/// machine, Weir drops it, because a packet with a TTL of 1 is not forwarded.
const ROUTED_TTL: u8 = 2;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

/// A SYN to a server.
#[derive(Clone, Debug)]
struct SynProbe {
    service: String,
    server: IpAddr,
    /// The VIP and its port.
    vip: SocketAddr,
    /// This machine's address and port.
    source: SocketAddr,
    source_mac: MacAddr,
    destination_mac: MacAddr,
    /// The index of the device that sends the SYN.
    device: u32,
    /// The router on the path to the server.
    router: Option<IpAddr>,
}

/// The server's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    /// A SYN-ACK; `seq` is the sequence number for the RST.
    Accepted {
        seq: u32,
    },
    Refused,
}

impl SynProbe {
    fn frame(&self, flags: TcpFlags, seq: u32) -> Vec<u8> {
        let packet = Packet::ethernet(self.source_mac, self.destination_mac)
            .ip(self.source.ip(), self.vip.ip());
        let packet = match self.router {
            Some(_) => packet.ttl(ROUTED_TTL),
            None => packet,
        };
        packet
            .tcp(self.source.port(), self.vip.port())
            .flags(flags)
            .seq(seq)
            .build()
    }

    fn parse_reply(&self, frame: &[u8]) -> Option<Reply> {
        let parsed = Packet::parse(frame).ok()?;
        let tuple = parsed.five_tuple()?;
        let endpoints = (
            SocketAddr::new(tuple.src, tuple.sport),
            SocketAddr::new(tuple.dst, tuple.dport),
        );
        if endpoints != (self.vip, self.source) {
            return None;
        }
        let header = parsed.tcp()?;
        if header.flags.contains(TcpFlags::RST) {
            return Some(Reply::Refused);
        }
        let syn_ack = TcpFlags::SYN | TcpFlags::ACK;
        let seq = header.ack;
        header
            .flags
            .contains(syn_ack)
            .then_some(Reply::Accepted { seq })
    }
}

/// Reports servers that do not accept connections to the VIP. Servers in `down` are not probed; only routers on their
/// paths are reported. Servers in `disconnected` are skipped.
pub(crate) fn unreachable_vips(
    desired: &Desired,
    state: &NetState,
    down: &[String],
    disconnected: &[String],
) -> Vec<Diagnosis> {
    let skipped: HashSet<&str> = down
        .iter()
        .chain(disconnected)
        .map(String::as_str)
        .collect();
    let probes = probes(desired, state, &skipped);
    let mut by_device: BTreeMap<(u32, bool), Vec<&SynProbe>> = BTreeMap::new();
    for probe in &probes {
        let key = (probe.device, probe.vip.is_ipv4());
        by_device.entry(key).or_default().push(probe);
    }
    let mut findings = down_routed_servers(desired, state, down, disconnected);
    for ((device, is_ipv4), probes) in by_device {
        // If frames cannot be sent on the device, for example without CAP_NET_RAW, its probes are skipped.
        let ethertype = if is_ipv4 {
            ETHERTYPE_IPV4
        } else {
            ETHERTYPE_IPV6
        };
        let Ok(replies) = send_probes(device, ethertype, &probes) else {
            continue;
        };
        for (probe, reply) in probes.iter().zip(replies) {
            let finding = diagnosis(probe, reply);
            // A service can have several listeners.
            findings.extend(finding.filter(|it| !findings.contains(it)));
        }
    }
    findings
}

/// Returns the router on the first path to a server, if all paths pass through routers.
pub(crate) fn router(server: IpAddr, state: &NetState) -> Option<IpAddr> {
    let paths = resolve(server, state);
    let is_routed = paths.iter().all(|path| path.gateway.is_some());
    paths.first().filter(|_| is_routed)?.gateway
}

/// Reports servers of `direct` services that are down and behind a router.
fn down_routed_servers(
    desired: &Desired,
    state: &NetState,
    down: &[String],
    disconnected: &[String],
) -> Vec<Diagnosis> {
    let is_examined = |name| down.contains(name) && !disconnected.contains(name);
    let mut findings = Vec::new();
    for service in &desired.services {
        let pool = desired.pool(&service.pool);
        for server in pool.into_iter().flat_map(|pool| &pool.servers) {
            if server.forward_in(service) == Forward::Direct && is_examined(&server.name) {
                let router = router(server.address, state);
                findings.extend(
                    router.map(|router| routed_server(&service.name, server.address, router)),
                );
            }
        }
    }
    findings
}

/// Reports a server of a `direct` service behind a router.
pub(crate) fn routed_server(service: &str, server: IpAddr, router: IpAddr) -> Diagnosis {
    Diagnosis::new(
        format!(
            "server {server} of {service} is reached through the router {router}, but `direct` needs a server on a \
             network that this director is connected to"
        ),
        "the packets keep the VIP as their destination, so the router sends them along its route to the VIP, usually \
         back to this director: clients of this server time out",
    )
    .fix(
        "use `tunnel` or `l3dsr`, which work through routers; or connect the server to a network of this director, and \
         configure its address there",
    )
}

fn diagnosis(probe: &SynProbe, reply: Option<Reply>) -> Option<Diagnosis> {
    let SynProbe {
        service,
        server,
        vip,
        source,
        router,
        ..
    } = probe;
    if let (Some(router), None) = (router, reply) {
        return Some(routed_server(service, *server, *router));
    }
    let (observation, consequence, fix) = match reply {
        Some(Reply::Accepted { .. }) => return None,
        Some(Reply::Refused) => (
            format!("server {server} of {service} refuses connections to {vip}"),
            "no socket is listening on the VIP: clients of this server are rejected",
            format!(
                "on that server: start the application, or configure it to listen on {vip} or on all addresses"
            ),
        ),
        None => (
            format!(
                "server {server} of {service} does not reply to a SYN for {vip} from {}",
                source.ip()
            ),
            "it does not have the VIP, its firewall or rp_filter drops the packet, or its reply is lost: clients of \
             this server time out",
            format!(
                "on that server: if it does not have the VIP, run weir real-server up --forward direct --vip {}; then \
                 run weir real-server doctor",
                vip.ip()
            ),
        ),
    };
    Some(Diagnosis::new(observation, consequence).fix(fix))
}

/// Returns a probe for each `direct` server and TCP port of a service, at most [`MAX_PROBES`].
fn probes(desired: &Desired, state: &NetState, skipped: &HashSet<&str>) -> Vec<SynProbe> {
    let vips = vips_of_servers(desired);
    let mut probes = Vec::new();
    for service in &desired.services {
        let pool = desired.pool(&service.pool);
        for server in pool.into_iter().flat_map(|pool| &pool.servers) {
            let is_direct = server.forward_in(service) == Forward::Direct;
            if !is_direct || skipped.contains(server.name.as_str()) {
                continue;
            }
            let paths = resolve(server.address, state);
            for listener in &service.listen {
                let (Protocol::Tcp, Ports::One(port)) = (listener.protocol, listener.ports) else {
                    continue;
                };
                let vip = SocketAddr::new(listener.address, port);
                let number = u16::try_from(probes.len()).unwrap_or(u16::MAX);
                let Some(path) = paths.first().filter(|_| probes.len() < MAX_PROBES) else {
                    continue;
                };
                let port = FIRST_PORT + number.min(4000);
                let probe = probe((server.address, path), (state, &vips), vip, port);
                probes.extend(probe.map(|probe| SynProbe {
                    service: service.name.clone(),
                    server: server.address,
                    ..probe
                }));
            }
        }
    }
    probes
}

/// Creates a probe for a path. Returns `None` if the server is this machine, if the path has a VLAN tag, because
/// replies arrive on a different device, or if the source address or a MAC address is unknown. Addresses in `vips` are
/// not used as the source, because the server may have them too.
fn probe(
    (server, path): (IpAddr, &ResolvedPath),
    (state, vips): (&NetState, &BTreeSet<IpAddr>),
    vip: SocketAddr,
    port: u16,
) -> Option<SynProbe> {
    if path.local || path.vlan.is_some() || path.ifindex != path.device {
        return None;
    }
    let usable = state.addresses.iter().filter(|address| {
        let matches = address.ifindex == path.device && address.ip.is_ipv4() == vip.is_ipv4();
        let link_local =
            matches!(address.ip, IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80);
        let is_usable = !address.tentative && !address.destination_only;
        matches && is_usable && !vips.contains(&address.ip) && !link_local
    });
    // An address in the server's network, rather than a VIP of an earlier configuration.
    let neighbor = path.gateway.unwrap_or(server);
    let source = usable.min_by_key(|address| !network_of(address).contains(neighbor))?;
    let mac = |mac: weir_netlink::MacAddr| MacAddr::new(mac.octets());
    Some(SynProbe {
        service: String::new(),
        server: vip.ip(),
        vip,
        source: SocketAddr::new(source.ip, port),
        source_mac: mac(path.smac?),
        destination_mac: mac(path.mac?),
        device: path.ifindex,
        router: path.gateway,
    })
}

/// Sends the probes, and returns the reply to each, or `None` if there is no reply in time.
///
/// # Errors
/// Fails if frames cannot be sent on the device.
fn send_probes(
    device: u32,
    ethertype: u16,
    probes: &[&SynProbe],
) -> Result<Vec<Option<Reply>>, weir_sys::Error> {
    let socket = FrameSocket::open_listener(device, ethertype)?;
    let mut replies = vec![None; probes.len()];
    let mut frame = [0; 256];
    for _ in 0..2 {
        for probe in pending(probes, &replies) {
            socket.send(device, &probe.frame(TcpFlags::SYN, 1))?;
        }
        let deadline = Instant::now() + TIMEOUT / 2;
        while pending(probes, &replies).next().is_some() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                break;
            }
            let Some(length) = socket.receive_within(&mut frame, remaining)? else {
                break;
            };
            let frame = frame.get(..length).unwrap_or_default();
            for (probe, reply) in probes.iter().zip(&mut replies) {
                let Some(received) = probe.parse_reply(frame) else {
                    continue;
                };
                if let Reply::Accepted { seq } = received {
                    socket.send(device, &probe.frame(TcpFlags::RST, seq))?;
                }
                *reply = Some(received);
            }
        }
    }
    Ok(replies)
}

/// Returns the probes that have no reply yet.
fn pending<'a>(
    probes: &'a [&SynProbe],
    replies: &'a [Option<Reply>],
) -> impl Iterator<Item = &'a SynProbe> {
    let pairs = probes.iter().zip(replies);
    pairs
        .filter(|(_, reply)| reply.is_none())
        .map(|(probe, _)| *probe)
}

#[cfg(test)]
pub(crate) mod tests {
    use weir_config::{Host, parse};
    use weir_netlink::{Address, Link, Lookup, Neighbor, NeighborState, NextHop, RouteKind};

    use super::*;

    const SERVER: &str = "10.9.0.2";
    const ROUTER: &str = "10.0.0.254";

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("address is valid")
    }

    /// Returns the state of a machine with the address 10.0.0.1 and a route to [`SERVER`]. `mac` is the next hop's MAC
    /// address.
    pub(crate) fn state(gateway: Option<IpAddr>, mac: Option<[u8; 6]>) -> NetState {
        let link = Link {
            index: 2,
            name: "eth0".to_owned(),
            kind: None,
            mac: weir_netlink::MacAddr::from_slice(&[2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            up: true,
            carrier: true,
            loopback: false,
            master: None,
            lower: None,
            vlan: None,
        };
        let address = Address {
            ifindex: 2,
            ip: ip("10.0.0.1"),
            prefix: 24,
            label: None,
            tentative: false,
            duplicate: false,
            destination_only: false,
            handed_over: false,
        };
        let next_hop = NextHop {
            ifindex: 2,
            gateway,
            weight: 1,
            mtu: None,
        };
        let lookup = Lookup {
            kind: RouteKind::Unicast,
            prefsrc: None,
            next_hops: vec![next_hop],
        };
        let neighbor = Neighbor {
            ifindex: 2,
            ip: gateway.unwrap_or(ip(SERVER)),
            mac: mac.and_then(|mac| weir_netlink::MacAddr::from_slice(&mac)),
            state: NeighborState::Reachable,
            managed: false,
        };
        NetState {
            links: [(2, link)].into(),
            addresses: vec![address],
            lookups: [(ip(SERVER), lookup)].into(),
            neighbors: [((2, neighbor.ip), neighbor)].into(),
        }
    }

    fn desired() -> Desired {
        let text = format!(
            "[pool.web]\nservers = [\"{SERVER}\"]\n[service.web]\nlisten = [\"10.0.0.10:80\"]\nforward = \
             \"direct\"\npool = \"web\"\n"
        );
        parse(&text, &Host::default()).unwrap().desired
    }

    #[test]
    fn silent_server_behind_a_router_is_reported_with_the_router() {
        for (gateway, ttl, observation) in [
            (
                Some(ip(ROUTER)),
                2,
                "is reached through the router 10.0.0.254",
            ),
            (None, 64, "does not reply to a SYN for 10.0.0.10:80"),
        ] {
            let state = state(gateway, Some([2, 0, 0, 0, 0, 9]));
            let probes = probes(&desired(), &state, &HashSet::new());
            let [probe] = probes.as_slice() else {
                panic!("{probes:?}");
            };
            let frame = probe.frame(TcpFlags::SYN, 1);
            assert_eq!(frame[14 + 8], ttl, "{observation}");
            let text = diagnosis(probe, None).expect("a finding").to_string();
            assert!(text.contains(observation), "{text}");
            let has_command = text.contains("weir real-server up");
            assert_eq!(has_command, gateway.is_none(), "{text}");
            let reply = Some(Reply::Accepted { seq: 1 });
            assert_eq!(diagnosis(probe, reply), None);
        }
    }

    #[test]
    fn server_that_is_down_behind_a_router_is_reported_without_a_probe() {
        let count = |gateway, down: &[String], disconnected: &[String]| {
            let state = state(gateway, Some([2, 0, 0, 0, 0, 9]));
            let diagnoses = unreachable_vips(&desired(), &state, down, disconnected);
            let is_router = |it: &&Diagnosis| it.observation.contains("through the router");
            diagnoses.iter().filter(is_router).count()
        };
        let down = [SERVER.to_owned()];
        assert_eq!(count(Some(ip(ROUTER)), &down, &[]), 1);
        assert_eq!(count(Some(ip(ROUTER)), &down, &down), 0);
        assert_eq!(count(None, &down, &[]), 0);
    }

    #[test]
    fn source_is_a_local_address_in_the_servers_network() {
        let mut state = state(Some(ip(ROUTER)), Some([2, 0, 0, 0, 0, 9]));
        let own_address = state.addresses[0].clone();
        let with = |text: &str, prefix, destination_only| Address {
            ip: ip(text),
            prefix,
            destination_only,
            ..own_address.clone()
        };
        // A VIP of the configuration, one of an earlier configuration, and a deprecated address.
        state.addresses = vec![
            with("10.0.0.10", 24, false),
            with("10.0.0.30", 32, false),
            with("10.0.0.31", 24, true),
            own_address.clone(),
        ];
        let probes = probes(&desired(), &state, &HashSet::new());
        assert_eq!(probes[0].source.ip(), own_address.ip);
    }
}
