//! VIPs on the director's own interface: added when missing, announced, and taken back when nothing needs them any more.
//!
//! An address that was found present is never touched. One that Weir added stays while the configuration or a live flow
//! needs it. Announcements (gratuitous ARP, RFC 5227 section 3; unsolicited neighbour advertisements, RFC 4861 section 7.2.6)
//! are hints that may be lost, so they are repeated with the seconds' upkeep.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use weir_sys::FrameSocket;
use weir_wire::{ArpOperation, ArpPacket, MacAddr, NeighbourMessage, Packet};

use super::{Engine, Result};

/// As many as RFC 4861 allows (`MAX_NEIGHBOR_ADVERTISEMENT`).
const ANNOUNCEMENTS: u32 = 3;

/// Looking for flows of an address walks the flow table: not every second.
const WITHDRAWING: Duration = Duration::from_secs(5);

/// All nodes of the link, and the group's Ethernet address.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddr = MacAddr::new([0x33, 0x33, 0, 0, 0, 1]);

/// Shortest frame on Ethernet, without its checksum.
const FRAME_LEAST: usize = 60;

/// An address that neighbours are still to be told of.
#[derive(Debug)]
pub(super) struct Announcement {
    ifindex: u32,
    address: IpAddr,
    left: u32,
}

impl Engine {
    /// Adds the VIPs that are missing, where the configuration wants that.
    pub(super) async fn add_vips(&mut self) -> Result<()> {
        let (Some(name), Some(ifindex)) = (
            self.desired.node.vip_interface.clone(),
            self.network.vip_interface(&self.desired)?,
        ) else {
            return Ok(());
        };
        let missing: Vec<IpAddr> = self
            .desired
            .addresses()
            .filter(|vip| self.network.holder(*vip).is_none())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let known = &mut self.memory.undo.addresses;
        let before: BTreeSet<(String, IpAddr)> = known.iter().cloned().collect();
        let new = missing.iter().map(|vip| (name.clone(), *vip));
        known.extend(new.filter(|entry| !before.contains(entry)));
        // Remembered first: a death in between leaves an entry too many, not an address that nobody knows of.
        self.remember_undo()?;
        for vip in missing {
            let entry = (name.clone(), vip);
            if self.network.add_address(ifindex, vip).await? {
                self.announcements.push(Announcement {
                    ifindex,
                    address: vip,
                    left: ANNOUNCEMENTS,
                });
            } else if !before.contains(&entry) {
                self.memory.undo.addresses.retain(|there| *there != entry);
            }
        }
        self.look_at_network().await
    }

    /// Takes back added VIPs that belong elsewhere by now, and those that neither the configuration nor a flow needs.
    pub(super) async fn withdraw_vips(&mut self) -> Result<()> {
        let interface = self.desired.node.vip_interface.clone();
        let elsewhere = |name: &String| interface.as_ref() != Some(name);
        let mut lost: BTreeSet<IpAddr> = BTreeSet::new();
        for (name, address) in &self.memory.undo.addresses {
            if elsewhere(name) || self.desired.listening(*address).len() == 0 {
                lost.insert(*address);
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        let unneeded = self.without_flows(&lost);
        self.withdrawn = Instant::now();
        let gone: Vec<(String, IpAddr)> = self
            .memory
            .undo
            .addresses
            .iter()
            .filter(|(name, address)| {
                lost.contains(address) && (elsewhere(name) || unneeded.contains(address))
            })
            .cloned()
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        for (name, address) in &gone {
            if let Some(ifindex) = self.network.index_of(name) {
                self.network.remove_address(ifindex, *address).await?;
            }
            self.announcements
                .retain(|announcement| announcement.address != *address);
            self.memory
                .undo
                .addresses
                .retain(|entry| entry != &(name.clone(), *address));
        }
        self.remember_undo()?;
        self.look_at_network().await
    }

    /// The same, at its own pace.
    pub(super) async fn withdraw_vips_in_time(&mut self) -> Result<()> {
        if self.withdrawn.elapsed() < WITHDRAWING {
            return Ok(());
        }
        self.withdraw_vips().await
    }

    fn without_flows(&self, addresses: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let mut idle = addresses.clone();
        for flow in self.plane.maps().flows.walk() {
            if idle.is_empty() {
                break;
            }
            idle.remove(&flow.cold.dst.to_ip());
        }
        idle
    }

    /// Tells the neighbours once of each address that is due.
    pub(super) fn announce(&mut self) -> Result<()> {
        if self.announcements.is_empty() {
            return Ok(());
        }
        let socket = self.network.netlink().inside(FrameSocket::open)??;
        for announcement in &mut self.announcements {
            announcement.left -= 1;
            let Some(mac) = self.network.mac_of(announcement.ifindex) else {
                // The loopback and tunnels have no neighbours to tell.
                announcement.left = 0;
                continue;
            };
            let frame = frame(announcement.address, mac);
            if let Err(error) = socket.send(announcement.ifindex, &frame) {
                let address = announcement.address;
                tracing::warn!(%address, %error, "the address is not announced");
            }
        }
        self.announcements
            .retain(|announcement| announcement.left > 0);
        Ok(())
    }
}

/// What tells every neighbour that `address` is at `mac`.
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
    fn an_ipv4_address_is_asked_for_by_its_owner() {
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
    fn an_ipv6_address_overrides_what_neighbours_know() {
        let frame = frame("2001:db8::10".parse().unwrap(), MAC);
        let view = EthernetView::new(&frame).unwrap();
        assert_eq!((view.dst(), view.src()), (ALL_NODES_MAC, MAC));
        // Hop limit 255 is what receivers insist on.
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
