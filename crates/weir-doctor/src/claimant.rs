//! Finds other machines on the director's segments that answer for a VIP, by ARP requests and neighbour solicitations.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use weir_model::{Desired, Forward};
use weir_netlink::{Link, NetState, resolve};
use weir_sys::FrameSocket;
use weir_wire::{ArpOperation, ArpPacket, MacAddr, NeighbourMessage, Packet};

use crate::Diagnosis;

/// Time limit of answers.
const TIMEOUT: Duration = Duration::from_millis(300);

const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Offsets after the Ethernet header: the ICMPv6 message of an answer, and the next header field.
const MESSAGE: usize = 14 + 40;
const NEXT_HEADER: usize = 14 + 6;
const ICMPV6: u8 = 58;

/// An answer that only this machine should have given: the VIP, and the link address of the machine that gave it.
type Claim = (IpAddr, String);

/// Other machines that answer for a VIP of a layer 4 service. Of VIPs that are `moving` and are not here, that is the
/// active director.
pub(crate) fn claimants(
    desired: &Desired,
    state: &NetState,
    moving: &BTreeSet<IpAddr>,
) -> Vec<Diagnosis> {
    let vips = &listeners(desired);
    let servers = servers(desired, state);
    let mut found = Vec::new();
    let usable = |link: &&Link| link.up && link.carrier && !link.loopback;
    for link in state.links.values().filter(usable) {
        let Some(mac) = link.mac.map(|mac| MacAddr::new(mac.octets())) else {
            continue;
        };
        for is_ipv4 in [true, false] {
            let asked: Vec<IpAddr> = vips
                .iter()
                .copied()
                .filter(|vip| vip.is_ipv4() == is_ipv4)
                .collect();
            // Segments without the networks of these addresses are asked too: AnyIP and misplaced VIPs answer there.
            let sender = state.addresses.iter().find_map(|address| {
                let own = address.ifindex == link.index && address.ip.is_ipv4() == is_ipv4;
                (own && !vips.contains(&address.ip) && !address.tentative).then_some(address.ip)
            });
            let Some(sender) = sender.filter(|_| !asked.is_empty()) else {
                continue;
            };
            let ethertype = if is_ipv4 {
                ETHERTYPE_ARP
            } else {
                ETHERTYPE_IPV6
            };
            let question = |vip| question(mac, sender, vip);
            // Without the right to send frames nothing is found.
            let claims = ask(link.index, ethertype, &asked, &question, &|frame| {
                answer(frame, mac).filter(|(vip, _)| asked.contains(vip))
            });
            for (vip, other) in claims.unwrap_or_default() {
                let server = servers.get(&other).copied();
                let here = state.addresses.iter().any(|address| address.ip == vip);
                match server {
                    None if moving.contains(&vip) && here => {
                        found.push(both_active(&link.name, vip, &other));
                    }
                    None if moving.contains(&vip) => {}
                    _ => found.push(diagnosis(desired, &link.name, vip, (&other, server))),
                }
            }
        }
    }
    found
}

/// The VIPs of layer 4 services.
pub(crate) fn listeners(desired: &Desired) -> BTreeSet<IpAddr> {
    let services = desired.services.iter();
    let addressed = services.filter(|service| service.forward.handles_packets());
    let listeners = addressed.flat_map(|service| &service.listen);
    listeners.map(|listener| listener.address).collect()
}

/// Servers on this machine's segments, by link address.
fn servers(desired: &Desired, state: &NetState) -> BTreeMap<String, IpAddr> {
    let servers = desired.pools.iter().flat_map(|pool| &pool.servers);
    let mut found = BTreeMap::new();
    for server in servers.map(|server| server.address) {
        let ways = resolve(server, state).into_iter();
        let direct = ways.filter(|way| way.gateway.is_none());
        found.extend(direct.filter_map(|way| Some((way.mac?.to_string(), server))));
    }
    found
}

/// The forward that a server must be prepared for; `None` = none, since its packets carry its own address.
fn preparation(desired: &Desired, vip: IpAddr, server: IpAddr) -> Option<Forward> {
    desired.services.iter().find_map(|service| {
        let listens = service.listen.iter().any(|it| it.address == vip);
        let mut servers = desired.pool(&service.pool)?.servers.iter();
        let server = servers.find(|it| it.address == server && listens)?;
        Some(server.forward_in(service)).filter(|it| *it != Forward::Nat)
    })
}

/// Reports two directors with a VIP that only the active one should have.
fn both_active(device: &str, vip: IpAddr, other: &str) -> Diagnosis {
    Diagnosis::new(
        format!("{other} on {device} has the VIP {vip} too: two directors are active"),
        "clients and routers send their packets to the one that answered last",
    )
    .fix(
        "let the directors' messages pass between them (VRRP: IP protocol 112 to 224.0.0.18 or the unicast peers; \
         Pacemaker: Corosync's ports)",
    )
}

fn diagnosis(
    desired: &Desired,
    device: &str,
    vip: IpAddr,
    (other, server): (&str, Option<IpAddr>),
) -> Diagnosis {
    let asked = if vip.is_ipv4() {
        "ARP"
    } else {
        "neighbour solicitations"
    };
    let (who, host) = match server {
        Some(server) => (
            format!("server {server} ({other})"),
            format!("server {server}"),
        ),
        None => (other.to_owned(), "that machine".to_owned()),
    };
    // The kernel answers for an address of the receiving interface whatever arp_ignore is: remove it from there first.
    let mut fix = format!(
        "on {host}: ip addr del {vip} dev eth0, or whichever of its interfaces but lo has it"
    );
    if let Some(forward) = server.and_then(|server| preparation(desired, vip, server)) {
        fix += &format!(
            "; then weir real-server up --forward {forward} --vip {vip}, which puts it on lo, where the server does \
             not answer for it"
        );
    }
    Diagnosis::new(
        format!("{who} on {device} answers {asked} for the VIP {vip}"),
        "clients and routers that get its answer first send their packets there, past the director",
    )
    .fix(fix)
}

fn question(mac: MacAddr, sender: IpAddr, vip: IpAddr) -> Option<Vec<u8>> {
    match (sender, vip) {
        (IpAddr::V4(sender), IpAddr::V4(target)) => {
            Some(Packet::ethernet(mac, MacAddr::BROADCAST).arp(&ArpPacket {
                operation: ArpOperation::Request,
                sender_mac: mac,
                sender,
                target_mac: MacAddr::ZERO,
                target,
            }))
        }
        (IpAddr::V6(sender), IpAddr::V6(target)) => {
            let [.., a, b, c] = target.octets();
            // RFC 4291 section 2.7.1 and RFC 2464 section 7.
            let [high, low] = [u16::from(a) | 0xff00, u16::from_be_bytes([b, c])];
            let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low);
            let frame = Packet::ethernet(mac, MacAddr::new([0x33, 0x33, 0xff, a, b, c]));
            let message = NeighbourMessage::Solicitation {
                target,
                source_mac: Some(mac),
            };
            Some(frame.ipv6(sender, group).neighbour(&message).build())
        }
        _ => None,
    }
}

/// The address that another machine claims in a frame, and its link address.
fn answer(frame: &[u8], own: MacAddr) -> Option<Claim> {
    if let Ok(packet) = ArpPacket::parse(frame.get(14..)?)
        && packet.operation == ArpOperation::Reply
    {
        let other = packet.sender_mac != own;
        return other.then(|| (packet.sender.into(), packet.sender_mac.to_string()));
    }
    if *frame.get(NEXT_HEADER)? != ICMPV6 {
        return None;
    }
    let source: [u8; 6] = frame.get(6..12)?.try_into().ok()?;
    match NeighbourMessage::parse(frame.get(MESSAGE..)?) {
        Ok(NeighbourMessage::Advertisement { target, .. }) if MacAddr::new(source) != own => {
            Some((target.into(), MacAddr::new(source).to_string()))
        }
        _ => None,
    }
}

fn ask(
    ifindex: u32,
    ethertype: u16,
    vips: &[IpAddr],
    question: &dyn Fn(IpAddr) -> Option<Vec<u8>>,
    claim: &dyn Fn(&[u8]) -> Option<Claim>,
) -> Result<BTreeSet<Claim>, weir_sys::Error> {
    let socket = FrameSocket::listening(ifindex, ethertype)?;
    for frame in vips.iter().filter_map(|vip| question(*vip)) {
        socket.send(ifindex, &frame)?;
    }
    let (until, mut frame) = (Instant::now() + TIMEOUT, [0; 128]);
    let mut claims = BTreeSet::new();
    loop {
        let remaining = until.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Ok(claims);
        }
        let Some(length) = socket.receive_within(&mut frame, remaining)? else {
            return Ok(claims);
        };
        claims.extend(frame.get(..length).and_then(claim));
    }
}
