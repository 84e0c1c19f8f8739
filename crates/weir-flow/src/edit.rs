//! Edits the addresses, ports, TTL, DSCP, VLAN tags and MAC addresses of a frame, and updates its checksums.
//!
//! Checksums are updated incrementally (RFC 1624), so a wrong checksum stays wrong by the same amount.

use weir_abi::Addr;
use weir_wire::checksum::{udp_checksum_field, update_u16};
use weir_wire::{EtherType, IpProtocol};

use crate::family::Family;
use crate::parse::{Layout, PacketClass};

/// The new addresses and ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Translation {
    pub(crate) src: Addr,
    pub(crate) dst: Addr,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
}

pub(crate) fn read_u16(frame: &[u8], offset: usize) -> u16 {
    let byte = |offset: usize| frame.get(offset).copied().unwrap_or(0);
    u16::from_be_bytes([byte(offset), byte(offset + 1)])
}

pub(crate) fn write_u16(frame: &mut [u8], offset: usize, value: u16) {
    if let Some(field) = frame.get_mut(offset..offset + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// A checksum that is updated incrementally.
struct IncrementalChecksum(u16);

impl IncrementalChecksum {
    fn update(&mut self, old: &[u8], new: &[u8]) {
        for (old, new) in old.chunks(2).zip(new.chunks(2)) {
            self.0 = update_u16(self.0, read_u16(old, 0), read_u16(new, 0));
        }
    }
}

/// Returns the TTL or hop limit; 0 if the frame is too short.
pub(crate) fn ttl(frame: &[u8], layout: &Layout) -> u8 {
    let offset = match layout.family {
        Family::V4 => layout.l3 + 8,
        Family::V6 => layout.l3 + 7,
    };
    frame.get(offset).copied().unwrap_or(0)
}

/// Decrements the TTL or hop limit, which must be above 1.
pub(crate) fn decrement_ttl(frame: &mut [u8], layout: &Layout) {
    let l3 = layout.l3;
    match layout.family {
        Family::V4 => {
            let old = read_u16(frame, l3 + 8);
            let new = old.wrapping_sub(0x0100);
            write_u16(frame, l3 + 8, new);
            let checksum = update_u16(read_u16(frame, l3 + 10), old, new);
            write_u16(frame, l3 + 10, checksum);
        }
        Family::V6 => {
            let old = read_u16(frame, l3 + 6);
            write_u16(frame, l3 + 6, old.wrapping_sub(1));
        }
    }
}

/// Replaces the six DSCP bits, and keeps the two ECN bits (RFC 2474, RFC 3168).
pub(crate) fn set_dscp(frame: &mut [u8], layout: &Layout, dscp: u8) {
    let l3 = layout.l3;
    let old = read_u16(frame, l3);
    match layout.family {
        Family::V4 => {
            let new = old & 0xff03 | u16::from(dscp) << 2;
            write_u16(frame, l3, new);
            let checksum = update_u16(read_u16(frame, l3 + 10), old, new);
            write_u16(frame, l3 + 10, checksum);
        }
        Family::V6 => write_u16(frame, l3, old & 0xf03f | u16::from(dscp) << 6),
    }
}

fn address_bytes(family: Family, src: Addr, dst: Addr) -> Vec<u8> {
    let prefix_len = match family {
        Family::V4 => 12,
        Family::V6 => 0,
    };
    let mut bytes = src.octets()[prefix_len..].to_vec();
    bytes.extend_from_slice(&dst.octets()[prefix_len..]);
    bytes
}

/// Writes new addresses, and new ports if the packet has ports.
pub(crate) fn translate(frame: &mut [u8], layout: &Layout, translation: &Translation) {
    let old = address_bytes(layout.family, layout.src, layout.dst);
    let new = address_bytes(layout.family, translation.src, translation.dst);
    let offset = match layout.family {
        Family::V4 => layout.l3 + 12,
        Family::V6 => layout.l3 + 8,
    };
    if let Some(field) = frame.get_mut(offset..offset + new.len()) {
        field.copy_from_slice(&new);
    }
    if layout.family == Family::V4 {
        let mut header = IncrementalChecksum(read_u16(frame, layout.l3 + 10));
        header.update(&old, &new);
        write_u16(frame, layout.l3 + 10, header.0);
    }
    if layout.class == PacketClass::FragmentLater {
        return;
    }
    let checksum_offset = match layout.protocol {
        IpProtocol::TCP => layout.l4 + 16,
        IpProtocol::UDP => layout.l4 + 6,
        _ => return,
    };
    let before = read_u16(frame, checksum_offset);
    let mut transport = IncrementalChecksum(before);
    transport.update(&old, &new);
    for (port_offset, port) in [(0, translation.sport), (2, translation.dport)] {
        let field = layout.l4 + port_offset;
        transport.update(&read_u16(frame, field).to_be_bytes(), &port.to_be_bytes());
        write_u16(frame, field, port);
    }
    let after = match (layout.protocol, before) {
        // Zero means no checksum: keep it.
        (IpProtocol::UDP, 0) => 0,
        (IpProtocol::UDP, _) => udp_checksum_field(transport.0),
        _ => transport.0,
    };
    write_u16(frame, checksum_offset, after);
}

/// Replaces the VLAN tags, of which there are at most two, with `vlan`; 0 = untagged.
pub(crate) fn retag(frame: &mut Vec<u8>, vlan: u16) {
    let mut tags = 0;
    while tags < 2 && EtherType(read_u16(frame, 12 + tags * 4)).is_vlan() {
        tags += 1;
    }
    frame.drain(12..12 + tags * 4);
    if vlan != 0 {
        let [high, low] = vlan.to_be_bytes();
        frame.splice(12..12, [0x81, 0x00, high, low]);
    }
}

/// Writes the frame's destination and source MAC addresses.
pub(crate) fn set_macs(frame: &mut [u8], dmac: [u8; 6], smac: [u8; 6]) {
    for (offset, mac) in [(0, dmac), (6, smac)] {
        if let Some(field) = frame.get_mut(offset..offset + 6) {
            field.copy_from_slice(&mac);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use weir_wire::Packet;

    const MACS: ([u8; 6], [u8; 6]) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);

    fn assert_edited_frame(src: &str, dst: &str, new_src: &str, new_dst: &str) {
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
            let translation = Translation {
                src: ip(new_src).into(),
                dst: ip(new_dst).into(),
                sport: 2000,
                dport: 8080,
            };
            decrement_ttl(&mut frame, &layout);
            set_dscp(&mut frame, &layout, 63);
            translate(&mut frame, &layout, &translation);
            assert_eq!(frame, build(new_src, new_dst, (2000, 8080), 63, 63));
        }
    }

    #[test]
    fn translated_packet_equals_one_built_with_new_addresses() {
        assert_edited_frame("192.0.2.1", "192.0.2.10", "10.0.0.1", "10.0.0.5");
        assert_edited_frame("2001:db8::1", "2001:db8::10", "fd00::1", "fd00:0:1::5");
    }

    #[test]
    fn udp_packet_without_checksum_stays_without_checksum() {
        let link = || Packet::ethernet(MACS.0.into(), MACS.1.into());
        let udp = |src: [u8; 4], ports: (u16, u16)| {
            let ip = link().ipv4(src.into(), [192, 0, 2, 10].into());
            ip.udp(ports.0, ports.1)
                .payload(b"odd")
                .zero_udp_checksum()
                .build()
        };
        let mut frame = udp([192, 0, 2, 1], (1000, 53));
        let layout = crate::parse(&frame).unwrap();
        let translation = Translation {
            src: IpAddr::from([10, 0, 0, 1]).into(),
            dst: layout.dst,
            sport: 2000,
            dport: 54,
        };
        translate(&mut frame, &layout, &translation);
        assert_eq!(frame, udp([10, 0, 0, 1], (2000, 54)));
    }

    #[test]
    fn later_fragment_has_no_ports_to_translate() {
        let fragment = |src: [u8; 4]| {
            let ip = Packet::ethernet(MACS.0.into(), MACS.1.into())
                .ipv4(src.into(), [192, 0, 2, 10].into());
            ip.id(7)
                .fragment(1480, false)
                .raw(IpProtocol::TCP, &[7; 40])
                .build()
        };
        let mut frame = fragment([192, 0, 2, 1]);
        let layout = crate::parse(&frame).unwrap();
        let translation = Translation {
            src: IpAddr::from([10, 0, 0, 1]).into(),
            dst: layout.dst,
            sport: 2000,
            dport: 54,
        };
        translate(&mut frame, &layout, &translation);
        assert_eq!(frame, fragment([10, 0, 0, 1]));
    }

    #[test]
    fn ttl_is_decremented_and_macs_are_replaced() {
        for (src, dst) in [("192.0.2.1", "192.0.2.10"), ("2001:db8::1", "2001:db8::10")] {
            let ip = |text: &str| text.parse::<IpAddr>().unwrap();
            let packet = Packet::ethernet(MACS.0.into(), MACS.1.into()).ip(ip(src), ip(dst));
            let mut frame = packet.ttl(9).udp(1, 2).build();
            let layout = crate::parse(&frame).unwrap();
            assert_eq!(ttl(&frame, &layout), 9);
            decrement_ttl(&mut frame, &layout);
            assert_eq!(ttl(&frame, &layout), 8);
            let after_macs = frame[12..].to_vec();
            set_macs(&mut frame, [7; 6], [8; 6]);
            assert_eq!(
                (&frame[..6], &frame[6..12], &frame[12..]),
                (&[7; 6][..], &[8; 6][..], &after_macs[..])
            );
        }
    }

    #[test]
    fn retag_replaces_all_tags() {
        let untagged = Packet::ethernet(MACS.0.into(), MACS.1.into());
        let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let plain = untagged.clone().ipv4(src, dst).udp(1, 2).build();
        let tagged = untagged.clone().vlan(7).ipv4(src, dst).udp(1, 2).build();
        let double_tagged = untagged
            .service_vlan(3)
            .vlan(4)
            .ipv4(src, dst)
            .udp(1, 2)
            .build();
        for frame in [&plain, &tagged, &double_tagged] {
            let mut frame = frame.clone();
            retag(&mut frame, 7);
            assert_eq!(frame, tagged);
            retag(&mut frame, 0);
            assert_eq!(frame, plain);
        }
    }

    #[test]
    fn translated_udp_checksum_of_zero_is_written_as_all_ones() {
        let udp = |src: [u8; 4], sport: u16| {
            Packet::ethernet(MACS.0.into(), MACS.1.into())
                .ipv4(src.into(), [192, 0, 2, 10].into())
                .udp(sport, 53)
                .payload(b"odd")
                .build()
        };
        // The source port completes the sum to 0xffff, whose complement is zero (RFC 768).
        let sport = read_u16(&udp([10, 0, 0, 1], 0), 14 + 20 + 6);
        let expected = udp([10, 0, 0, 1], sport);
        assert_eq!(read_u16(&expected, 14 + 20 + 6), 0xffff);
        let mut frame = udp([192, 0, 2, 1], 1000);
        let layout = crate::parse(&frame).unwrap();
        let translation = Translation {
            src: IpAddr::from([10, 0, 0, 1]).into(),
            dst: layout.dst,
            sport,
            dport: 53,
        };
        translate(&mut frame, &layout, &translation);
        assert_eq!(frame, expected);
    }
}
