//! The packet around a packet on its way to a tunnel server.
//!
//! Headers come from weir-wire's builders; what this module decides is their content: TTL and traffic class of the inner
//! packet (RFC 6040, entrance), DF, the GUE source port that spreads flows.

use core::net::IpAddr;

use weir_abi::{Dest, TUNNEL_CSUM, TUNNEL_REMCSUM, Tunnel};
use weir_wire::{Encapsulation, EtherType, GueChecksum, Packet};

use crate::edit::{set_word, ttl};
use crate::parse::{Family, Layout};

/// Bytes that the tunnel to this server adds to an IP packet.
pub(crate) fn overhead(dest: &Dest) -> usize {
    let ip = if dest.family == 4 { 20 } else { 40 };
    let flag = |flag: u8, with: usize, without: usize| {
        if dest.tunnel_flags & flag != 0 {
            with
        } else {
            without
        }
    };
    ip + match Tunnel::from_number(dest.tunnel) {
        Some(Tunnel::Gue) => 8 + flag(TUNNEL_REMCSUM, 12, 4),
        Some(Tunnel::Gre) => flag(TUNNEL_CSUM, 8, 4),
        Some(Tunnel::Ipip) | None => 0,
    }
}

fn encapsulation(dest: &Dest, hash: u64) -> Encapsulation {
    let csum = dest.tunnel_flags & TUNNEL_CSUM != 0;
    match Tunnel::from_number(dest.tunnel) {
        Some(Tunnel::Gue) => Encapsulation::Gue {
            sport: 0xc000 | (hash & 0x3fff) as u16,
            dport: dest.tunnel_port.get(),
            checksum: match (dest.tunnel_flags & TUNNEL_REMCSUM != 0, csum) {
                (true, _) => GueChecksum::Remote,
                (false, true) => GueChecksum::Full,
                (false, false) => GueChecksum::None,
            },
        },
        Some(Tunnel::Gre) => Encapsulation::Gre { checksum: csum },
        Some(Tunnel::Ipip) | None => Encapsulation::Ipip,
    }
}

fn traffic_class(frame: &[u8], layout: &Layout) -> u8 {
    let first = crate::edit::word(frame, layout.l3);
    match layout.family {
        Family::V4 => first as u8,
        Family::V6 => (first >> 4) as u8,
    }
}

/// Puts the outer headers in front of the IP packet; the frame's own header and tags stay, and so does what follows the IP
/// packet in the frame.
pub(crate) fn push(frame: &mut Vec<u8>, layout: &Layout, dest: &Dest, hash: u64) {
    let (l3, end) = (layout.l3, layout.l3 + layout.ip_len);
    let inner = frame.get(l3..end).unwrap_or_default().to_vec();
    let outer = Packet::ip(dest.tunnel_source.to_ip(), dest.addr.to_ip())
        .ttl(ttl(frame, layout))
        .tos(traffic_class(frame, layout))
        .dont_fragment();
    let mut outer = outer.encapsulate(encapsulation(dest, hash), &inner);
    let (kind, v6) = match dest.addr.to_ip() {
        IpAddr::V4(_) => (EtherType::IPV4, false),
        IpAddr::V6(_) => (EtherType::IPV6, true),
    };
    if v6 {
        // The flow label spreads flows where routers look no deeper (RFC 6438).
        let label = (hash >> 44) as u32 & 0xf_ffff;
        let first = crate::edit::word(&outer, 0) & 0xfff0 | (label >> 16) as u16;
        set_word(&mut outer, 0, first);
        set_word(&mut outer, 2, label as u16);
    }
    set_word(frame, l3 - 2, kind.0);
    frame.splice(l3..end.min(frame.len()), outer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use weir_abi::{Be16, Forward};

    fn dest(tunnel: Tunnel, flags: u8, to: &str, from: &str) -> Dest {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        Dest {
            addr: ip(to).into(),
            tunnel_source: ip(from).into(),
            forward: Forward::Tunnel as u8,
            tunnel: tunnel as u8,
            tunnel_flags: flags,
            tunnel_port: Be16::new(6080),
            family: if ip(to).is_ipv4() { 4 } else { 6 },
            ..Dest::default()
        }
    }

    #[test]
    fn the_inner_packet_survives_every_tunnel() {
        let frame = Packet::ethernet([2, 0, 0, 0, 0, 1].into(), [2, 0, 0, 0, 0, 2].into())
            .vlan(3)
            .ipv4([198, 51, 100, 1].into(), [192, 0, 2, 10].into())
            .ttl(9)
            .tos(0xb9)
            .tcp(1000, 80)
            .payload(b"hello")
            .build();
        let layout = crate::parse(&frame).unwrap();
        for (to, from) in [("10.0.0.5", "10.0.0.1"), ("fd00::5", "fd00::1")] {
            for (tunnel, flags) in [
                (Tunnel::Ipip, 0),
                (Tunnel::Gre, 0),
                (Tunnel::Gre, TUNNEL_CSUM),
                (Tunnel::Gue, 0),
                (Tunnel::Gue, TUNNEL_CSUM),
                (Tunnel::Gue, TUNNEL_REMCSUM),
            ] {
                let dest = dest(tunnel, flags, to, from);
                let mut out = frame.clone();
                push(&mut out, &layout, &dest, 0xabcd_ef01_2345_6789);
                assert_eq!(
                    out.len(),
                    frame.len() + overhead(&dest),
                    "{tunnel:?} {flags}"
                );
                let parsed = Packet::parse(&out).unwrap();
                let outer = parsed.ip().unwrap();
                assert_eq!((outer.ttl(), outer.tos()), (9, 0xb9));
                let inner = parsed.inner().unwrap();
                assert_eq!(inner.ports(), Some((1000, 80)));
                assert_eq!(out[..12], frame[..12]);
            }
        }
    }
}
