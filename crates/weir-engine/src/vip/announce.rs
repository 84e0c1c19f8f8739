//! Announces addresses to the neighbours: gratuitous ARP (RFC 5227 section 3), unsolicited neighbour advertisements
//! (RFC 4861 section 7.2.6). These are hints that may be lost, so they are repeated.

use std::net::{IpAddr, Ipv6Addr};

use weir_netlink::Netlink;
use weir_sys::FrameSocket;
use weir_wire::{ArpOperation, ArpPacket, MacAddr, NeighbourMessage, Packet};

/// As many as RFC 4861 allows (`MAX_NEIGHBOR_ADVERTISEMENT`).
const ANNOUNCEMENTS: u32 = 3;

/// All nodes of the link, and the group's Ethernet address.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddr = MacAddr::new([0x33, 0x33, 0, 0, 0, 1]);

/// Shortest frame on Ethernet, without its checksum.
const FRAME_LEAST: usize = 60;

#[derive(Debug)]
struct Announcement {
    ifindex: u32,
    address: IpAddr,
    left: u32,
}

/// Addresses with outstanding announcements.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    due: Vec<Announcement>,
}

impl Announcements {
    /// Schedules announcements of an address of a device.
    pub(crate) fn add(&mut self, ifindex: u32, address: IpAddr) {
        self.due.push(Announcement {
            ifindex,
            address,
            left: ANNOUNCEMENTS,
        });
    }

    /// Whether no announcement is due.
    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Stops announcing an address.
    pub(crate) fn forget(&mut self, address: IpAddr) {
        self.due.retain(|it| it.address != address);
    }

    /// Sends one announcement for each due address; `mac_of` returns the MAC address of a device.
    ///
    /// # Errors
    /// A packet socket cannot be opened.
    pub(crate) fn send(
        &mut self,
        netlink: &Netlink,
        mac_of: impl Fn(u32) -> Option<MacAddr>,
    ) -> weir_netlink::Result<()> {
        if self.due.is_empty() {
            return Ok(());
        }
        let socket = netlink.inside(FrameSocket::open)??;
        for announcement in &mut self.due {
            announcement.left -= 1;
            let Some(mac) = mac_of(announcement.ifindex) else {
                // The loopback and tunnels have no neighbours.
                announcement.left = 0;
                continue;
            };
            let frame = frame(announcement.address, mac);
            if let Err(error) = socket.send(announcement.ifindex, &frame) {
                let address = announcement.address;
                tracing::warn!(%address, %error, "failed to announce an address");
            }
        }
        self.due.retain(|announcement| announcement.left > 0);
        Ok(())
    }
}

/// A frame that announces `address` at `mac` to all neighbours.
fn frame(address: IpAddr, mac: MacAddr) -> Vec<u8> {
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

    const MAC: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 7]);

    #[test]
    fn ipv4_announcement_is_a_gratuitous_arp_request() {
        let frame = frame("192.0.2.10".parse().unwrap(), MAC);
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
    }

    #[test]
    fn ipv6_announcement_overrides_neighbour_entries() {
        let frame = frame("2001:db8::10".parse().unwrap(), MAC);
        let view = EthernetView::new(&frame).unwrap();
        assert_eq!((view.dst(), view.src()), (ALL_NODES_MAC, MAC));
        // Receivers require hop limit 255.
        assert_eq!(view.payload()[7], 255);
        let message = NeighbourMessage::parse(&view.payload()[40..]).unwrap();
        assert_eq!(
            message,
            NeighbourMessage::Advertisement {
                target: "2001:db8::10".parse().unwrap(),
                target_mac: Some(MAC),
                router: false,
                solicited: false,
                overrides: true,
            }
        );
    }
}
