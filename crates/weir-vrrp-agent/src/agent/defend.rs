//! Announces the addresses of active virtual routers for which another machine replies or has stopped replying.

use std::collections::BTreeMap;
use std::time::Instant;

use weir_defense::{EventKind, SegmentAddress, View};
use weir_sys::FrameSocket;
use weir_wire::MacAddr;

use super::Agent;
use super::port::Port;
use crate::announce;

/// How to announce an address: the link address, and the number of frames after a conflict.
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
            // A virtual router can have a link address of its own.
            own_macs: owned.values().map(|(mac, _)| *mac).collect(),
            ..View::default()
        };
        // The sockets stay open while a virtual router is on the interface, active or not.
        for attachment in self.ports.iter().filter_map(Port::attachment) {
            self.network.describe_segment(attachment.ifindex, &mut view);
        }
        for (ifindex, _) in owned.keys() {
            if !view.interfaces.contains_key(ifindex) {
                self.network.describe_segment(*ifindex, &mut view);
            }
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
