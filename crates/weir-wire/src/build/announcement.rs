//! Builds frames that announce an address to all neighbors.

use std::net::{IpAddr, Ipv6Addr};

use crate::{ArpOperation, ArpPacket, MacAddr, NeighborMessage, Packet};

/// The link's all-nodes multicast group, and the group's Ethernet address.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddr = MacAddr::new([0x33, 0x33, 0, 0, 0, 1]);

/// Minimum length of an Ethernet frame, in bytes, without its frame check sequence.
const MIN_FRAME_LEN: usize = 60;

/// Returns a frame that announces `address` at `mac` to all neighbors: a gratuitous ARP request (RFC 5227 section 3,
/// RFC 9568 section 6.4.2), or an unsolicited neighbor advertisement (RFC 4861 section 7.2.6).
#[must_use]
pub fn announcement_frame(address: IpAddr, mac: MacAddr) -> Vec<u8> {
    let mut frame = match address {
        IpAddr::V4(address) => Packet::ethernet(mac, MacAddr::BROADCAST).arp(&ArpPacket {
            operation: ArpOperation::Request,
            sender_mac: mac,
            sender: address,
            target_mac: MacAddr::ZERO,
            target: address,
        }),
        IpAddr::V6(address) => Packet::ethernet(mac, ALL_NODES_MAC)
            .ipv6(address, ALL_NODES)
            .neighbor(&NeighborMessage::Advertisement {
                target: address,
                target_mac: Some(mac),
                router: false,
                solicited: false,
                overrides: true,
            })
            .build(),
    };
    frame.resize(frame.len().max(MIN_FRAME_LEN), 0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EtherType, EthernetView};

    const MAC: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 7]);

    #[test]
    fn ipv4_announcement_is_a_gratuitous_arp_request() {
        let frame = announcement_frame("192.0.2.10".parse().unwrap(), MAC);
        let view = EthernetView::new(&frame).unwrap();
        assert_eq!(
            (view.dst(), view.src(), view.ethertype()),
            (MacAddr::BROADCAST, MAC, EtherType::ARP)
        );
        let packet = ArpPacket::parse(view.payload()).unwrap();
        assert_eq!(packet.operation, ArpOperation::Request);
        assert_eq!(
            (packet.sender, packet.target),
            (packet.target, packet.sender)
        );
        assert_eq!(packet.sender_mac, MAC);
        // Ethernet's minimum of 64 bytes, without the frame check sequence.
        assert_eq!(frame.len(), 60);
        assert_eq!(frame[42..], [0; 18]);
    }

    #[test]
    fn ipv6_announcement_overrides_neighbor_entries() {
        let frame = announcement_frame("2001:db8::10".parse().unwrap(), MAC);
        let view = EthernetView::new(&frame).unwrap();
        assert_eq!((view.dst(), view.src()), (ALL_NODES_MAC, MAC));
        assert_eq!(frame.len(), 14 + 40 + 32);
        // Receivers require a hop limit of 255.
        assert_eq!(view.payload()[7], 255);
        let message = NeighborMessage::parse(&view.payload()[40..]).unwrap();
        assert_eq!(
            message,
            NeighborMessage::Advertisement {
                target: "2001:db8::10".parse().unwrap(),
                target_mac: Some(MAC),
                router: false,
                solicited: false,
                overrides: true,
            }
        );
    }
}
