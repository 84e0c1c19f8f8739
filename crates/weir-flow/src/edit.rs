//! Changes to a frame: addresses, ports, TTL, DSCP with the checksums that cover them, tags and MACs.
//!
//! Every change to covered bytes goes through [`Checked`], which updates the checksum by the difference (RFC 1624), so that
//! a wrong one stays wrong by as much as before.

use weir_abi::Addr;
use weir_wire::checksum::{udp_field, update_u16};
use weir_wire::{EtherType, IpProtocol};

use crate::parse::{Cold, Family, Layout};

/// What a packet's addresses and ports become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Translation {
    pub(crate) src: Addr,
    pub(crate) dst: Addr,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
}

pub(crate) fn word(frame: &[u8], at: usize) -> u16 {
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    u16::from_be_bytes([byte(at), byte(at + 1)])
}

pub(crate) fn set_word(frame: &mut [u8], at: usize, value: u16) {
    if let Some(place) = frame.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// A checksum under change.
struct Checked(u16);

impl Checked {
    fn changed(&mut self, old: &[u8], new: &[u8]) {
        for (old, new) in old.chunks(2).zip(new.chunks(2)) {
            self.0 = update_u16(self.0, word(old, 0), word(new, 0));
        }
    }
}

/// TTL or hop limit.
pub(crate) fn ttl(frame: &[u8], layout: &Layout) -> u8 {
    let at = match layout.family {
        Family::V4 => layout.l3 + 8,
        Family::V6 => layout.l3 + 7,
    };
    frame.get(at).copied().unwrap_or(0)
}

/// One less. The caller has seen that it is above 1.
pub(crate) fn decrement_ttl(frame: &mut [u8], layout: &Layout) {
    let l3 = layout.l3;
    match layout.family {
        Family::V4 => {
            let old = word(frame, l3 + 8);
            let new = old.wrapping_sub(0x0100);
            set_word(frame, l3 + 8, new);
            let checksum = update_u16(word(frame, l3 + 10), old, new);
            set_word(frame, l3 + 10, checksum);
        }
        Family::V6 => {
            let old = word(frame, l3 + 6);
            set_word(frame, l3 + 6, old.wrapping_sub(1));
        }
    }
}

/// Replaces the six bits of DSCP; the two of ECN stay (RFC 2474, RFC 3168).
pub(crate) fn set_dscp(frame: &mut [u8], layout: &Layout, dscp: u8) {
    let l3 = layout.l3;
    let old = word(frame, l3);
    match layout.family {
        Family::V4 => {
            let new = old & 0xff03 | u16::from(dscp) << 2;
            set_word(frame, l3, new);
            let checksum = update_u16(word(frame, l3 + 10), old, new);
            set_word(frame, l3 + 10, checksum);
        }
        Family::V6 => set_word(frame, l3, old & 0xf03f | u16::from(dscp) << 6),
    }
}

fn octets(family: Family, src: Addr, dst: Addr) -> Vec<u8> {
    let skipped = match family {
        Family::V4 => 12,
        Family::V6 => 0,
    };
    let mut both = src.octets()[skipped..].to_vec();
    both.extend_from_slice(&dst.octets()[skipped..]);
    both
}

/// Writes addresses, and ports where the packet has them.
pub(crate) fn translate(frame: &mut [u8], layout: &Layout, to: &Translation) {
    let old = octets(layout.family, layout.src, layout.dst);
    let new = octets(layout.family, to.src, to.dst);
    let at = match layout.family {
        Family::V4 => layout.l3 + 12,
        Family::V6 => layout.l3 + 8,
    };
    if let Some(place) = frame.get_mut(at..at + new.len()) {
        place.copy_from_slice(&new);
    }
    if layout.family == Family::V4 {
        let mut header = Checked(word(frame, layout.l3 + 10));
        header.changed(&old, &new);
        set_word(frame, layout.l3 + 10, header.0);
    }
    if layout.cold == Cold::FragmentLater {
        return;
    }
    let at = match layout.protocol {
        IpProtocol::TCP => layout.l4 + 16,
        IpProtocol::UDP => layout.l4 + 6,
        _ => return,
    };
    let before = word(frame, at);
    let mut transport = Checked(before);
    transport.changed(&old, &new);
    for (offset, port) in [(0, to.sport), (2, to.dport)] {
        let place = layout.l4 + offset;
        transport.changed(&word(frame, place).to_be_bytes(), &port.to_be_bytes());
        set_word(frame, place, port);
    }
    let after = match (layout.protocol, before) {
        // No checksum stays none.
        (IpProtocol::UDP, 0) => 0,
        (IpProtocol::UDP, _) => udp_field(transport.0),
        _ => transport.0,
    };
    set_word(frame, at, after);
}

/// Gives the frame exactly the tag `vlan`, or none when it is 0.
pub(crate) fn retag(frame: &mut Vec<u8>, vlan: u16) {
    let mut tags = 0;
    while tags < 2 && EtherType(word(frame, 12 + tags * 4)).is_vlan() {
        tags += 1;
    }
    frame.drain(12..12 + tags * 4);
    if vlan != 0 {
        let [high, low] = vlan.to_be_bytes();
        frame.splice(12..12, [0x81, 0x00, high, low]);
    }
}

/// Writes destination and source of the frame.
pub(crate) fn set_macs(frame: &mut [u8], dmac: [u8; 6], smac: [u8; 6]) {
    for (at, mac) in [(0, dmac), (6, smac)] {
        if let Some(place) = frame.get_mut(at..at + 6) {
            place.copy_from_slice(&mac);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use weir_wire::Packet;

    const MACS: ([u8; 6], [u8; 6]) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);

    fn check(src: &str, dst: &str, new_src: &str, new_dst: &str) {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for udp in [false, true] {
            let build = |src: &str, dst: &str, ports: (u16, u16), ttl: u8, dscp: u8| {
                let packet = Packet::ethernet(MACS.0.into(), MACS.1.into())
                    .ip(ip(src), ip(dst))
                    .ttl(ttl)
                    .tos(dscp << 2 | 1);
                if udp {
                    packet.udp(ports.0, ports.1).payload(b"odd").build()
                } else {
                    packet.tcp(ports.0, ports.1).payload(b"odd").build()
                }
            };
            let mut frame = build(src, dst, (1000, 80), 64, 0);
            let layout = crate::parse(&frame).unwrap();
            let to = Translation {
                src: ip(new_src).into(),
                dst: ip(new_dst).into(),
                sport: 2000,
                dport: 8080,
            };
            decrement_ttl(&mut frame, &layout);
            set_dscp(&mut frame, &layout, 63);
            translate(&mut frame, &layout, &to);
            assert_eq!(frame, build(new_src, new_dst, (2000, 8080), 63, 63));
        }
    }

    #[test]
    fn a_translated_packet_is_the_one_that_would_be_built() {
        check("192.0.2.1", "192.0.2.10", "10.0.0.1", "10.0.0.5");
        check("2001:db8::1", "2001:db8::10", "fd00::1", "fd00:0:1::5");
    }

    #[test]
    fn tags_are_replaced() {
        let untagged = Packet::ethernet(MACS.0.into(), MACS.1.into());
        let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let plain = untagged.clone().ipv4(src, dst).udp(1, 2).build();
        let tagged = untagged.clone().vlan(7).ipv4(src, dst).udp(1, 2).build();
        let twice = untagged
            .service_vlan(3)
            .vlan(4)
            .ipv4(src, dst)
            .udp(1, 2)
            .build();
        for frame in [&plain, &tagged, &twice] {
            let mut frame = frame.clone();
            retag(&mut frame, 7);
            assert_eq!(frame, tagged);
            retag(&mut frame, 0);
            assert_eq!(frame, plain);
        }
    }
}
