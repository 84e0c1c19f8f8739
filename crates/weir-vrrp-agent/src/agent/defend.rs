//! Announces the addresses of active virtual routers for which another machine replies or has stopped replying.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use weir_defense::{EventKind, SegmentAddress, View};
use weir_model::VirtualRouter;
use weir_sys::FrameSocket;
use weir_wire::MacAddr;

use super::Agent;
use super::port::Port;
use crate::announce;
use crate::link::Network;

/// How to announce an address: the MAC address, and the number of frames after a conflict.
type Announcement = (MacAddr, u32);

impl Agent {
    /// Finds other machines that reply for the addresses of active virtual routers, and announces these addresses.
    pub(super) fn defend_addresses(&mut self) {
        let now = Instant::now();
        if !self.defense.is_due(now) {
            return;
        }
        let owned = self.announced_addresses();
        let mut view = View {
            addresses: owned.keys().copied().collect(),
            // A virtual router can have its own MAC address.
            own_macs: owned.values().map(|(mac, _)| *mac).collect(),
            ..View::default()
        };
        let attachments = self.ports.iter().filter_map(Port::attachment);
        let advert_interfaces = attachments.map(|attachment| attachment.ifindex);
        for ifindex in interfaces(&self.settings, &self.network, advert_interfaces) {
            self.network.describe_segment(ifindex, &mut view);
        }
        for event in self.defense.tick(&view, FrameSocket::open_listener, now) {
            let (ifindex, address) = event.address;
            let mut links = self.network.links.iter();
            let link = links.find(|link| link.index == ifindex);
            event.log(link.map_or("", |link| link.name.as_str()));
            if let (true, Some((mac, repeat))) = (event.must_announce(), owned.get(&event.address))
            {
                let repeat = match event.kind {
                    EventKind::Ended => *repeat,
                    EventKind::Started { .. } | EventKind::Continues => 1,
                };
                announce::send(&self.frames, ifindex, *mac, &[address], repeat);
            }
        }
    }

    /// Returns the addresses of active virtual routers that are on their interfaces.
    fn announced_addresses(&self) -> BTreeMap<SegmentAddress, Announcement> {
        let routers = self.settings.iter().enumerate();
        let active = routers.filter(|(index, _)| self.is_active(*index));
        let mut owned = BTreeMap::new();
        for (index, settings) in active {
            let repeat = settings.announcements.repeat;
            for ((ifindex, mac), address) in self.present_addresses(index) {
                owned.insert((ifindex, address), (mac, repeat));
            }
        }
        owned
    }
}

/// Returns the interfaces of all virtual routers, active or not. The sockets on them stay open: closing many sockets
/// when a virtual router becomes inactive would delay the advertisements of the others. `advert_interfaces` are the
/// interfaces on which the virtual routers send advertisements.
fn interfaces(
    routers: &[VirtualRouter],
    network: &Network,
    advert_interfaces: impl Iterator<Item = u32>,
) -> BTreeSet<u32> {
    let others = routers.iter().flat_map(|router| &router.other_interfaces);
    let others = others.filter_map(|other| network.index_of(&other.interface));
    advert_interfaces.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::tests::{link, router};

    #[test]
    fn interfaces_of_inactive_routers_are_kept() {
        let router = router(
            "addresses = [\"10.0.0.10/24\"]\nexcluded_addresses = [\"10.9.0.10/24\", \"10.8.0.10/24\"]\n\
             other_interfaces = [{ interface = \"side\", addresses = [\"10.9.0.10\"] }, \
             { interface = \"absent\", addresses = [\"10.8.0.10\"] }]",
        );
        let links = vec![link(2, "eth0"), link(3, "side"), link(4, "unused")];
        let network = Network::new(links, Vec::new());
        let actual = interfaces(&[router.clone(), router], &network, [2, 2].into_iter());
        assert_eq!(actual, [2, 3].into());
    }
}
