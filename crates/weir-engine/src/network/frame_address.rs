//! Determines the destination MAC addresses of frames that are for this host.

use std::collections::BTreeSet;

use weir_netlink::Link;

use super::Network;
use super::hop::is_veth;

/// Kinds of devices that deliver packets to a process or guest, not to the stack.
const FOREIGN_KINDS: [&str; 2] = ["ipvtap", "macvtap"];

impl Network {
    /// Returns, for each device with the packet path, the MAC addresses of frames that are for this host: the device's
    /// own address, the addresses of the devices below it, because the kernel accepts them for it, and the addresses of
    /// the devices above it, because they receive packets through it. Skips devices without a MAC address.
    pub(crate) fn frame_addresses(&self) -> BTreeSet<(u32, [u8; 6])> {
        let devices = self.attached.keys().chain(&self.expected);
        let devices: BTreeSet<u32> = devices.copied().collect();
        let mut found = BTreeSet::new();
        for device in devices {
            if self.mac_of(device).is_none() {
                continue;
            }
            let related = self
                .devices_below(device)
                .into_iter()
                .chain(self.devices_above(device));
            let macs = related.filter_map(|it| self.state.links.get(&it)?.mac);
            found.extend(macs.map(|mac| (device, mac.octets())));
        }
        found
    }

    /// Returns the devices that receive packets through a device: its bridge or bond, VLANs and macvlans, and those
    /// above them.
    fn devices_above(&self, ifindex: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut queue = vec![ifindex];
        while let Some(device) = queue.pop() {
            let master = self.state.links.get(&device).and_then(|link| link.master);
            let uppers = self.state.links.values();
            let uppers = uppers.filter(|link| {
                link.lower == Some(device) && self.receives(link)
                    || is_open_vswitch(link)
                        && self.state.links.get(&device).is_some_and(is_open_vswitch)
            });
            for above in uppers.map(|link| link.index).chain(master) {
                if self.state.links.contains_key(&above) && found.insert(above) {
                    queue.push(above);
                }
            }
        }
        found
    }

    /// Returns whether a device receives packets from its lower device for the stack. A device that is not up yet
    /// counts: its first packet may arrive before the event that reports it as up. A device that is up but has no
    /// carrier although its lower device has one (`protodown`) does not count: FRR's vrrpd sets this flag on the device
    /// of a virtual router while the router is not active.
    fn receives(&self, link: &Link) -> bool {
        let lower = link.lower.and_then(|lower| self.state.links.get(&lower));
        let is_held_down = link.up && !link.carrier && lower.is_some_and(|lower| lower.carrier);
        let kind = link.kind.as_deref().unwrap_or_default();
        !is_veth(link) && !is_held_down && !FOREIGN_KINDS.contains(&kind)
    }
}

/// Returns whether the device is a port of Open vSwitch, which uses one master device for the ports of all its bridges.
/// A bridge's own device is not related to that master.
fn is_open_vswitch(link: &Link) -> bool {
    link.kind.as_deref() == Some("openvswitch")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_netlink::MacAddr;

    fn link(index: u32, kind: &str, mac: u8) -> Link {
        Link {
            index,
            name: format!("d{index}"),
            kind: (!kind.is_empty()).then(|| kind.to_owned()),
            mac: Some(MacAddr([2, 0, 0, 0, 0, mac])),
            mtu: 1500,
            up: true,
            carrier: true,
            loopback: false,
            master: None,
            lower: None,
            vlan: None,
        }
    }

    fn upper_link(index: u32, kind: &str, mac: u8, lower: u32) -> Link {
        Link {
            lower: Some(lower),
            ..link(index, kind, mac)
        }
    }

    /// Returns the last bytes of the addresses that device 1 accepts.
    fn accepted(links: Vec<Link>) -> Vec<u8> {
        let mut network = Network::open().expect("open a netlink socket");
        network.state.links = links.into_iter().map(|link| (link.index, link)).collect();
        network.expected.insert(1);
        let found = network.frame_addresses();
        assert!(found.iter().all(|(device, _)| *device == 1));
        found.iter().map(|(_, mac)| mac[5]).collect()
    }

    #[tokio::test]
    async fn frame_addresses_include_devices_above_and_below() {
        let below_veth = upper_link(1, "veth", 1, 9);
        assert_eq!(accepted(vec![below_veth, link(9, "veth", 9)]), [1]);
        let port = Link {
            master: Some(3),
            ..link(1, "", 1)
        };
        let links = vec![
            port,
            upper_link(2, "vlan", 2, 1),
            link(3, "bridge", 3),
            upper_link(4, "macvlan", 4, 3),
            upper_link(5, "macvtap", 5, 1),
            link(6, "", 6),
        ];
        assert_eq!(accepted(links), [1, 2, 3, 4]);
        let links = vec![
            upper_link(1, "vlan", 1, 2),
            link(2, "", 2),
            upper_link(3, "vlan", 3, 2),
        ];
        assert_eq!(accepted(links), [1, 2]);
        let links = vec![
            Link {
                master: Some(2),
                ..link(1, "", 1)
            },
            link(2, "openvswitch", 2),
            link(3, "openvswitch", 3),
        ];
        assert_eq!(accepted(links), [1, 2, 3]);
    }

    #[tokio::test]
    async fn macvlan_of_inactive_virtual_router_is_excluded() {
        let mut router = upper_link(2, "macvlan", 2, 1);
        assert_eq!(accepted(vec![link(1, "", 1), router.clone()]), [1, 2]);
        // FRR sets `protodown`.
        router.carrier = false;
        assert_eq!(accepted(vec![link(1, "", 1), router.clone()]), [1]);
        // The device was just created.
        router.up = false;
        assert_eq!(accepted(vec![link(1, "", 1), router.clone()]), [1, 2]);
        // The interface has no carrier, but may regain it at any time.
        router.up = true;
        let interface = Link {
            carrier: false,
            ..link(1, "", 1)
        };
        assert_eq!(accepted(vec![interface, router]), [1, 2]);
    }
}
