//! Tests whether the servers of `direct` services accept connections to the VIP. The test sends a SYN for the VIP to
//! the server's MAC address, as the dataplane does when it forwards a client's SYN. It reads replies from a packet
//! socket, because the VIP may also be an address of this machine. Connections that the test opens are reset
//! immediately.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use weir_model::{Desired, Forward, Ports, Protocol};
use weir_netlink::{NetState, ResolvedPath, resolve};
use weir_sys::FrameSocket;
use weir_wire::{MacAddr, Packet, TcpFlags};

use crate::Diagnosis;

/// Timeout for replies. A SYN without a reply is retransmitted once, after half of this time.
const TIMEOUT: Duration = Duration::from_millis(600);

/// Maximum number of probes per run, to limit the load. Each probe sends at most two SYNs.
const MAX_PROBES: usize = 256;

/// Source port of the first probe; each probe uses a different port. The ports are above the kernel's default range of
/// ephemeral ports (`ip_local_port_range`).
const FIRST_PORT: u16 = 61_000;

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
        Packet::ethernet(self.source_mac, self.destination_mac)
            .ip(self.source.ip(), self.vip.ip())
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

/// Reports servers that do not accept connections to the VIP. Servers in `down` are skipped.
pub(crate) fn unreachable_vips(
    desired: &Desired,
    state: &NetState,
    down: &[String],
) -> Vec<Diagnosis> {
    let probes = probes(desired, state, down);
    let mut by_device: BTreeMap<(u32, bool), Vec<&SynProbe>> = BTreeMap::new();
    for probe in &probes {
        let key = (probe.device, probe.vip.is_ipv4());
        by_device.entry(key).or_default().push(probe);
    }
    let mut findings = Vec::new();
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
        let replies = probes.iter().zip(replies);
        findings.extend(replies.filter_map(|(probe, reply)| diagnosis(probe, reply)));
    }
    findings
}

fn diagnosis(probe: &SynProbe, reply: Option<Reply>) -> Option<Diagnosis> {
    let SynProbe {
        service,
        server,
        vip,
        source,
        ..
    } = probe;
    let (observation, consequence, fix) = match reply {
        Some(Reply::Accepted { .. }) => return None,
        Some(Reply::Refused) => (
            format!("server {server} of {service} refuses connections to {vip}"),
            "no socket is listening on the VIP: clients of this server are rejected",
            format!(
                "on that server: start the application, and let it listen on {vip} or on all addresses"
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
fn probes(desired: &Desired, state: &NetState, down: &[String]) -> Vec<SynProbe> {
    let mut probes = Vec::new();
    for service in &desired.services {
        let pool = desired.pool(&service.pool);
        for server in pool.into_iter().flat_map(|pool| &pool.servers) {
            let is_direct = server.forward_in(service) == Forward::Direct;
            if !is_direct || down.contains(&server.name) {
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
                let probe = probe(path, state, vip, FIRST_PORT + number.min(4000));
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
/// replies arrive on another device, or if the source address or a MAC address is unknown.
fn probe(path: &ResolvedPath, state: &NetState, vip: SocketAddr, port: u16) -> Option<SynProbe> {
    if path.local || path.vlan.is_some() || path.ifindex != path.device {
        return None;
    }
    let source = state.addresses.iter().find(|address| {
        let matches = address.ifindex == path.device && address.ip.is_ipv4() == vip.is_ipv4();
        let link_local =
            matches!(address.ip, IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80);
        matches && address.ip != vip.ip() && !address.tentative && !link_local
    })?;
    let mac = |mac: weir_netlink::MacAddr| MacAddr::new(mac.octets());
    Some(SynProbe {
        service: String::new(),
        server: vip.ip(),
        vip,
        source: SocketAddr::new(source.ip, port),
        source_mac: mac(path.smac?),
        destination_mac: mac(path.mac?),
        device: path.ifindex,
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
