//! Builds multicast advertisements that are sent from the virtual MAC address, as complete Ethernet frames.

use std::net::IpAddr;

use weir_vrrp::{HOP_LIMIT, PROTOCOL};
use weir_wire::{MacAddr, checksum};

/// IPv4 TOS and IPv6 traffic class: class selector 6, as in keepalived.
const TRAFFIC_CLASS: u8 = 0xc0;

/// Returns the Ethernet frame of a packet to a multicast group. `source` and `group` must be of the same address
/// family.
pub(crate) fn multicast(source: IpAddr, group: IpAddr, mac: MacAddr, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let mut frame = Vec::with_capacity(54 + payload.len());
    match (source, group) {
        (IpAddr::V4(source), IpAddr::V4(group)) => {
            let [_, second, third, fourth] = group.octets();
            // RFC 1112 section 6.4.
            frame.extend([1, 0, 0x5e, second & 0x7f, third, fourth]);
            frame.extend(mac.octets());
            frame.extend([8, 0]);
            let mut header = [0_u8; 20];
            header[0] = 0x45;
            header[1] = TRAFFIC_CLASS;
            header[2..4].copy_from_slice(&(20 + length).to_be_bytes());
            header[8] = HOP_LIMIT;
            header[9] = PROTOCOL;
            header[12..16].copy_from_slice(&source.octets());
            header[16..].copy_from_slice(&group.octets());
            let sum = checksum::checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(header);
        }
        (IpAddr::V6(source), IpAddr::V6(group)) => {
            let group_bytes = group.octets();
            // RFC 2464 section 7.
            frame.extend([0x33, 0x33]);
            frame.extend(&group_bytes[12..]);
            frame.extend(mac.octets());
            frame.extend([0x86, 0xdd]);
            frame.extend([0x60 | (TRAFFIC_CLASS >> 4), TRAFFIC_CLASS << 4, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([PROTOCOL, HOP_LIMIT]);
            frame.extend(source.octets());
            frame.extend(group_bytes);
        }
        _ => {}
    }
    frame.extend(payload);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_frame_has_valid_header_for_ipv4_and_ipv6() {
        let mac = MacAddr::new([0, 0, 0x5e, 0, 1, 51]);
        let frame = |source: &str, group: &str| {
            multicast(
                source.parse().unwrap(),
                group.parse().unwrap(),
                mac,
                b"abcd",
            )
        };
        let v4 = frame("10.0.0.3", "224.0.0.18");
        assert_eq!(v4[..6], [1, 0, 0x5e, 0, 0, 18]);
        assert_eq!(v4[6..12], mac.octets());
        assert_eq!(checksum::checksum(&v4[14..34]), 0);
        assert_eq!(v4.len(), 14 + 20 + 4);
        let v6 = frame("fe80::1", "ff02::12");
        assert_eq!(v6[..6], [0x33, 0x33, 0, 0, 0, 0x12]);
        assert_eq!(v6[14..22], [0x6c, 0, 0, 0, 0, 4, PROTOCOL, 255]);
        assert_eq!(v6.len(), 14 + 40 + 4);
    }
}
