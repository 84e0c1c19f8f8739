//! Tests whether servers of `direct` services answer for their VIP: sends a SYN for the VIP to the server's link
//! address, as the director does with a client's, and reads the answer from a packet socket, because the local stack
//! has the VIP itself. Connections that are opened this way are reset at once.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use weir_model::{Desired, Forward, Ports, Protocol};
use weir_netlink::{NetState, Resolved, resolve};
use weir_sys::FrameSocket;
use weir_wire::{MacAddr, Packet, TcpFlags};

use crate::Diagnosis;

/// Time limit of answers; a lost SYN is repeated once, after half of it.
const TIMEOUT: Duration = Duration::from_millis(600);

/// Most SYNs that are sent, to limit the load.
const MAX_PROBES: usize = 256;

/// Source ports, one for each SYN; outside the kernel's range (`ip_local_port_range`).
const FIRST_PORT: u16 = 61_000;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// A SYN to a server.
#[derive(Clone, Debug)]
struct SynProbe {
    service: String,
    server: IpAddr,
    /// The VIP and its port.
    vip: SocketAddr,
    /// Of this machine.
    source: SocketAddr,
    from: MacAddr,
    to: MacAddr,
    device: u32,
}

/// The server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Accepted { seq: u32 },
    Refused,
}

impl SynProbe {
    fn frame(&self, flags: TcpFlags, seq: u32) -> Vec<u8> {
        Packet::ethernet(self.from, self.to)
            .ip(self.source.ip(), self.vip.ip())
            .tcp(self.source.port(), self.vip.port())
            .flags(flags)
            .seq(seq)
            .build()
    }

    fn answer(&self, frame: &[u8]) -> Option<Answer> {
        let parsed = Packet::parse(frame).ok()?;
        let tuple = parsed.five_tuple()?;
        let ends = (
            SocketAddr::new(tuple.src, tuple.sport),
            SocketAddr::new(tuple.dst, tuple.dport),
        );
        if ends != (self.vip, self.source) {
            return None;
        }
        let header = parsed.tcp()?;
        if header.flags.contains(TcpFlags::RST) {
            return Some(Answer::Refused);
        }
        let both = TcpFlags::SYN | TcpFlags::ACK;
        let seq = header.ack;
        header
            .flags
            .contains(both)
            .then_some(Answer::Accepted { seq })
    }
}

/// Servers that do not accept packets for the VIP. Those in `down` are skipped.
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
    let mut found = Vec::new();
    for ((device, is_ipv4), probes) in by_device {
        // Without the right to send frames nothing is found.
        let ethertype = if is_ipv4 { IPV4 } else { IPV6 };
        let Ok(answers) = ask(device, ethertype, &probes) else {
            continue;
        };
        let answers = probes.iter().zip(answers);
        found.extend(answers.filter_map(|(probe, answer)| diagnosis(probe, answer)));
    }
    found
}

fn diagnosis(probe: &SynProbe, answer: Option<Answer>) -> Option<Diagnosis> {
    let SynProbe {
        service,
        server,
        vip,
        source,
        ..
    } = probe;
    let (seen, why) = match answer {
        Some(Answer::Accepted { .. }) => return None,
        Some(Answer::Refused) => (
            format!("server {server} of {service} refuses connections to {vip}"),
            "no socket listens there on the VIP: clients that are sent to it are refused",
        ),
        None => (
            format!(
                "server {server} of {service} does not answer a SYN for {vip} from {}",
                source.ip()
            ),
            "it does not have the VIP, its firewall or rp_filter drops the packet, or its answer is lost: clients \
             that are sent to it time out",
        ),
    };
    Some(Diagnosis::new(seen, why).fix("on that server: weir real-server doctor"))
}

fn probes(desired: &Desired, state: &NetState, down: &[String]) -> Vec<SynProbe> {
    let mut probes = Vec::new();
    for service in &desired.services {
        let pool = desired.pool(&service.pool);
        for server in pool.into_iter().flat_map(|pool| &pool.servers) {
            let is_direct = server.forward_in(service) == Forward::Direct;
            if !is_direct || down.contains(&server.name) {
                continue;
            }
            let ways = resolve(server.address, state);
            for listener in &service.listen {
                let (Protocol::Tcp, Ports::One(port)) = (listener.protocol, listener.ports) else {
                    continue;
                };
                let vip = SocketAddr::new(listener.address, port);
                let number = u16::try_from(probes.len()).unwrap_or(u16::MAX);
                let Some(way) = ways.first().filter(|_| probes.len() < MAX_PROBES) else {
                    continue;
                };
                let probe = probe(way, state, vip, FIRST_PORT + number.min(4000));
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

/// A probe over one path; none over tagged ones, whose answers arrive on another device.
fn probe(way: &Resolved, state: &NetState, vip: SocketAddr, port: u16) -> Option<SynProbe> {
    if way.local || way.vlan.is_some() || way.ifindex != way.device {
        return None;
    }
    let own = state.addresses.iter().find(|address| {
        let here = address.ifindex == way.device && address.ip.is_ipv4() == vip.is_ipv4();
        let link_local =
            matches!(address.ip, IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80);
        here && address.ip != vip.ip() && !address.tentative && !link_local
    })?;
    let mac = |mac: weir_netlink::MacAddr| MacAddr::new(mac.octets());
    Some(SynProbe {
        service: String::new(),
        server: vip.ip(),
        vip,
        source: SocketAddr::new(own.ip, port),
        from: mac(way.smac?),
        to: mac(way.mac?),
        device: way.ifindex,
    })
}

fn ask(
    device: u32,
    ethertype: u16,
    probes: &[&SynProbe],
) -> Result<Vec<Option<Answer>>, weir_sys::Error> {
    let socket = FrameSocket::listening(device, ethertype)?;
    let mut answers = vec![None; probes.len()];
    let mut frame = [0; 256];
    for _ in 0..2 {
        for probe in open(probes, &answers) {
            socket.send(device, &probe.frame(TcpFlags::SYN, 1))?;
        }
        let until = Instant::now() + TIMEOUT / 2;
        while open(probes, &answers).next().is_some() {
            let remaining = until.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                break;
            }
            let Some(length) = socket.receive_within(&mut frame, remaining)? else {
                break;
            };
            let frame = frame.get(..length).unwrap_or_default();
            for (probe, answer) in probes.iter().zip(&mut answers) {
                let Some(received) = probe.answer(frame) else {
                    continue;
                };
                if let Answer::Accepted { seq } = received {
                    socket.send(device, &probe.frame(TcpFlags::RST, seq))?;
                }
                *answer = Some(received);
            }
        }
    }
    Ok(answers)
}

/// Probes without an answer yet.
fn open<'a>(
    probes: &'a [&SynProbe],
    answers: &'a [Option<Answer>],
) -> impl Iterator<Item = &'a SynProbe> {
    let both = probes.iter().zip(answers);
    both.filter(|(_, answer)| answer.is_none())
        .map(|(probe, _)| *probe)
}
