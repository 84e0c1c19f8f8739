//! Announces addresses: gratuitous ARP (RFC 9568 section 6.4.2), unsolicited neighbour advertisements (RFC 4861
//! section 7.2.6).

use std::net::{IpAddr, Ipv6Addr};

use weir_sys::FrameSocket;
use weir_wire::{ArpOperation, ArpPacket, MacAddr, NeighbourMessage, Packet};

/// Frames per address and announcement, as keepalived's `garp_master_repeat`.
const REPEAT: usize = 5;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddr = MacAddr::new([0x33, 0x33, 0, 0, 0, 1]);
/// Shortest frame on Ethernet, without its checksum.
const FRAME_LEAST: usize = 60;

/// Announces each address once per frame of the burst.
pub(crate) fn send(socket: &FrameSocket, ifindex: u32, mac: MacAddr, addresses: &[IpAddr]) {
    for _ in 0..REPEAT {
        for address in addresses {
            if let Err(error) = socket.send(ifindex, &frame(*address, mac)) {
                tracing::warn!(%address, %error, "failed to announce an address");
                return;
            }
        }
    }
}

fn frame(address: IpAddr, mac: MacAddr) -> Vec<u8> {
    let mut frame = match address {
        IpAddr::V4(address) => Packet::ethernet(mac, MacAddr::BROADCAST).arp(&ArpPacket {
            operation: ArpOperation::Request,
            sender_mac: mac,
            sender: address,
            target_mac: MacAddr::BROADCAST,
            target: address,
        }),
        IpAddr::V6(address) => Packet::ethernet(mac, ALL_NODES_MAC)
            .ipv6(address, ALL_NODES)
            .neighbour(&NeighbourMessage::Advertisement {
                target: address,
                target_mac: Some(mac),
                router: false,
                solicited: false,
                overrides: true,
            })
            .build(),
    };
    if frame.len() < FRAME_LEAST {
        frame.resize(FRAME_LEAST, 0);
    }
    frame
}

#[cfg(test)]
mod tests {
    use weir_wire::{EtherType, EthernetView};

    use super::*;

    #[test]
    fn frames_are_gratuitous() {
        let mac = MacAddr::new([2, 0, 0, 0, 0, 7]);
        let four = frame("192.0.2.10".parse().unwrap(), mac);
        let view = EthernetView::new(&four).unwrap();
        assert_eq!(
            (view.dst(), view.ethertype()),
            (MacAddr::BROADCAST, EtherType::ARP)
        );
        let packet = ArpPacket::parse(view.payload()).unwrap();
        assert_eq!((packet.sender, packet.sender_mac), (packet.target, mac));
        let six = frame("2001:db8::10".parse().unwrap(), mac);
        let view = EthernetView::new(&six).unwrap();
        let message = NeighbourMessage::parse(&view.payload()[40..]).unwrap();
        let NeighbourMessage::Advertisement {
            overrides,
            solicited,
            ..
        } = message
        else {
            panic!("{message:?}")
        };
        assert!(overrides && !solicited);
    }
}
