//! Builds frames that request the link-layer address of an IP address, and parses the replies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{ArpOperation, ArpPacket, EtherType, MacAddr, NeighborMessage, Packet};

/// Offset of the ICMPv6 message in a frame without VLAN tags or extension headers.
const ICMPV6_OFFSET: usize = 14 + 40;
/// Offset of IPv6's next header field in a frame.
const NEXT_HEADER_OFFSET: usize = 14 + 6;
const ICMPV6: u8 = 58;

/// Returns the frame that requests the link-layer address of `target` from the machines on a segment: an ARP request,
/// or a neighbor solicitation (RFC 4861 section 4.3). `mac` and `sender` are the addresses of the interface that sends
/// it. The sender of an ARP request can be 0.0.0.0 (RFC 5227 section 1.1, "ARP Probe"). Returns `None` if the
/// addresses have different families.
#[must_use]
pub fn address_query(mac: MacAddr, sender: IpAddr, target: IpAddr) -> Option<Vec<u8>> {
    match (sender, target) {
        (IpAddr::V4(sender), IpAddr::V4(target)) => Some(arp_request(mac, sender, target)),
        (IpAddr::V6(sender), IpAddr::V6(target)) => {
            let [.., a, b, c] = target.octets();
            // RFC 4291 section 2.7.1 and RFC 2464 section 7.
            let [high, low] = [u16::from(a) | 0xff00, u16::from_be_bytes([b, c])];
            let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low);
            let frame = Packet::ethernet(mac, MacAddr::new([0x33, 0x33, 0xff, a, b, c]));
            let message = NeighborMessage::Solicitation {
                target,
                source_mac: Some(mac),
            };
            Some(frame.ipv6(sender, group).neighbor(&message).build())
        }
        _ => None,
    }
}

fn arp_request(mac: MacAddr, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    Packet::ethernet(mac, MacAddr::BROADCAST).arp(&ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: mac,
        sender,
        target_mac: MacAddr::ZERO,
        target,
    })
}

/// Returns the IP address in an ARP reply or neighbor advertisement and the link-layer address of the machine that sent
/// it; `None` for other frames, and for frames with VLAN tags. The tag of a VLAN interface has already been removed
/// from the frames that the interface receives.
#[must_use]
pub fn address_claim(frame: &[u8]) -> Option<(IpAddr, MacAddr)> {
    let ethertype = EtherType(u16::from_be_bytes(frame.get(12..14)?.try_into().ok()?));
    if ethertype == EtherType::ARP {
        let packet = ArpPacket::parse(frame.get(14..)?).ok()?;
        let is_reply = packet.operation == ArpOperation::Reply;
        return is_reply.then_some((packet.sender.into(), packet.sender_mac));
    }
    if ethertype != EtherType::IPV6 || *frame.get(NEXT_HEADER_OFFSET)? != ICMPV6 {
        return None;
    }
    let source: [u8; 6] = frame.get(6..12)?.try_into().ok()?;
    match NeighborMessage::parse(frame.get(ICMPV6_OFFSET..)?) {
        Ok(NeighborMessage::Advertisement { target, .. }) => {
            Some((target.into(), MacAddr::new(source)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EthernetView;

    const MAC: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 7]);
    const OTHER: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 9]);

    #[test]
    fn queries_are_sent_to_broadcast_or_solicited_node_address() {
        let query = |sender: &str, target: &str| {
            address_query(MAC, sender.parse().unwrap(), target.parse().unwrap())
        };
        let arp = query("0.0.0.0", "192.0.2.10").unwrap();
        let view = EthernetView::new(&arp).unwrap();
        assert_eq!((view.dst(), view.src()), (MacAddr::BROADCAST, MAC));
        let packet = ArpPacket::parse(view.payload()).unwrap();
        assert_eq!(packet.operation, ArpOperation::Request);
        assert_eq!(
            (packet.sender, packet.target),
            ([0; 4].into(), [192, 0, 2, 10].into())
        );
        let solicitation = query("fe80::1", "2001:db8::12:3456").unwrap();
        let view = EthernetView::new(&solicitation).unwrap();
        assert_eq!(
            view.dst(),
            MacAddr::new([0x33, 0x33, 0xff, 0x12, 0x34, 0x56])
        );
        let group: Ipv6Addr = "ff02::1:ff12:3456".parse().unwrap();
        assert_eq!(view.payload()[24..40], group.octets());
        assert_eq!(query("0.0.0.0", "2001:db8::1"), None);
    }

    #[test]
    fn only_replies_are_claims() {
        let (address, own) = (Ipv4Addr::new(192, 0, 2, 10), Ipv4Addr::new(192, 0, 2, 1));
        let arp = |operation| {
            Packet::ethernet(OTHER, MAC).arp(&ArpPacket {
                operation,
                sender_mac: OTHER,
                sender: address,
                target_mac: MAC,
                target: own,
            })
        };
        assert_eq!(
            address_claim(&arp(ArpOperation::Reply)),
            Some((address.into(), OTHER))
        );
        assert_eq!(address_claim(&arp(ArpOperation::Request)), None);
        let target: Ipv6Addr = "2001:db8::10".parse().unwrap();
        let neighbor = |message: &NeighborMessage| {
            let frame = Packet::ethernet(OTHER, MAC).ipv6(target, "fe80::1".parse().unwrap());
            frame.neighbor(message).build()
        };
        let advertisement = neighbor(&NeighborMessage::Advertisement {
            target,
            target_mac: Some(OTHER),
            router: false,
            solicited: true,
            overrides: true,
        });
        assert_eq!(address_claim(&advertisement), Some((target.into(), OTHER)));
        let solicitation = neighbor(&NeighborMessage::Solicitation {
            target,
            source_mac: Some(OTHER),
        });
        assert_eq!(address_claim(&solicitation), None);
        for length in 0..advertisement.len() - 9 {
            assert_eq!(
                address_claim(&advertisement[..length]),
                None,
                "{length} bytes"
            );
        }
    }
}
