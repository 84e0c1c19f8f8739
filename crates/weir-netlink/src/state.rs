//! Reads and updates the network state that next hops are computed from.
//!
//! [`Netlink::state`] reads the state, and [`NetState::apply`] updates it with the events of a [`crate::Watch`]. From
//! the state, [`resolve`] computes the device, the tag and the MAC addresses of frames for a server without I/O. The
//! state contains the kernel's route lookup for each server instead of routes, because policy rules and VRFs also
//! determine the result.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::{Address, Event, Link, Lookup, MacAddr, Neighbor, Netlink, NextHop, Result, RouteKind};

/// Maximum number of tags: XDP can push one 802.1Q tag.
const MAX_TAGS: usize = 1;

/// Links, addresses, neighbors, and the route lookups for servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetState {
    /// Devices by index.
    pub links: BTreeMap<u32, Link>,
    /// Addresses of all devices.
    pub addresses: Vec<Address>,
    /// Route lookups by server.
    pub lookups: BTreeMap<IpAddr, Lookup>,
    /// Neighbors by device and address.
    pub neighbors: BTreeMap<(u32, IpAddr), Neighbor>,
}

/// A resolved path to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPath {
    /// The device that transmits the frames: the lower device of a VLAN device, otherwise [`ResolvedPath::device`].
    /// [`Netlink::xdp_features`] returns whether XDP can transmit on it.
    pub ifindex: u32,
    /// The device of the route and of the neighbor entry.
    pub device: u32,
    /// The 802.1Q tag to push, 0 to 4095; `None` = untagged, or tags that only the kernel's VLAN device can push
    /// (802.1ad, two tags, a lower device in another namespace).
    pub vlan: Option<u16>,
    /// The router; `None` = the server is on the segment.
    pub gateway: Option<IpAddr>,
    /// The destination MAC address; `None` = not resolved.
    pub mac: Option<MacAddr>,
    /// The source MAC address; `None` = the device has no Ethernet address.
    pub smac: Option<MacAddr>,
    /// Maximum size of a layer 3 packet, in bytes: the minimum of the route's, the device's and the lower device's MTU.
    pub mtu: u32,
    /// The weight among several paths.
    pub weight: u32,
    /// Whether the server is this machine, so no packet is sent.
    pub local: bool,
}

/// Returns the paths to `server`, in the route's order. The result is empty if there is no lookup for the server, the
/// server is unreachable, or the devices of all next hops are missing or down.
pub fn resolve(server: IpAddr, state: &NetState) -> Vec<ResolvedPath> {
    let Some(lookup) = state.lookups.get(&server) else {
        return Vec::new();
    };
    let local = match lookup.kind {
        RouteKind::Unicast => false,
        RouteKind::Local => true,
        _ => return Vec::new(),
    };
    let path = |next_hop| resolve_next_hop(server, next_hop, local, state);
    lookup.next_hops.iter().filter_map(path).collect()
}

fn resolve_next_hop(
    server: IpAddr,
    next_hop: &NextHop,
    local: bool,
    state: &NetState,
) -> Option<ResolvedPath> {
    let device = state.links.get(&next_hop.ifindex).filter(|link| link.up)?;
    let (lowest, vlan) = lowest_device_and_tag(device, state);
    let neighbor_ip = next_hop.gateway.unwrap_or(server);
    let neighbor = state.neighbors.get(&(device.index, neighbor_ip));
    // A tag does not reduce the packet size: the MTU of the lower device applies to both.
    let device_mtu = device.mtu.min(lowest.mtu);
    Some(ResolvedPath {
        ifindex: lowest.index,
        device: device.index,
        vlan,
        gateway: next_hop.gateway,
        mac: neighbor.and_then(Neighbor::usable_mac).filter(|_| !local),
        smac: device.mac,
        mtu: next_hop
            .mtu
            .map_or(device_mtu, |limit| limit.min(device_mtu)),
        weight: next_hop.weight,
        local,
    })
}

/// Follows VLAN devices to their lowest device. Returns the device itself if XDP cannot push the tags.
fn lowest_device_and_tag<'a>(device: &'a Link, state: &'a NetState) -> (&'a Link, Option<u16>) {
    let mut lowest = device;
    let mut tags = Vec::new();
    while let Some(vlan) = lowest.vlan {
        let lower = vlan.lower.and_then(|index| state.links.get(&index));
        let Some(lower) = lower.filter(|_| !vlan.service_tag && tags.len() < MAX_TAGS) else {
            return (device, None);
        };
        tags.push(vlan.id);
        lowest = lower;
    }
    (lowest, tags.first().copied())
}

impl NetState {
    /// Returns whether `other` has the same devices and addresses. If so, the route lookups are valid for both states,
    /// unless routes were changed.
    pub fn has_same_links_and_addresses(&self, other: &Self) -> bool {
        let addresses = |state: &Self| -> BTreeSet<(u32, IpAddr, u8)> {
            let addresses = state.addresses.iter();
            addresses
                .map(|address| (address.ifindex, address.ip, address.prefix))
                .collect()
        };
        self.links == other.links && addresses(self) == addresses(other)
    }

    /// Updates the state. Returns whether route lookups may have changed. If so, the lookups, or after [`Event::Lost`]
    /// the complete state, must be read again.
    pub fn apply(&mut self, event: &Event) -> bool {
        match event {
            Event::Link { link, removed } => {
                if *removed {
                    self.links.remove(&link.index);
                    self.neighbors
                        .retain(|(ifindex, _), _| *ifindex != link.index);
                    return true;
                }
                let before = self.links.insert(link.index, link.clone());
                // Only these properties affect routes.
                before.is_none_or(|before| {
                    (before.up, before.carrier, before.master)
                        != (link.up, link.carrier, link.master)
                })
            }
            Event::Address { address, removed } => {
                let is_same = |entry: &Address| {
                    (entry.ifindex, entry.ip, entry.prefix)
                        == (address.ifindex, address.ip, address.prefix)
                };
                self.addresses.retain(|entry| !is_same(entry));
                if !removed {
                    self.addresses.push(address.clone());
                }
                true
            }
            Event::Neighbor { neighbor, removed } => {
                let key = (neighbor.ifindex, neighbor.ip);
                if *removed {
                    self.neighbors.remove(&key);
                } else {
                    self.neighbors.insert(key, neighbor.clone());
                }
                false
            }
            Event::Route { .. } | Event::Lost => true,
        }
    }
}

impl NetState {
    /// Returns a device and the devices that it receives packets from: the ports of a bridge or bond, the lower devices
    /// of VLANs and macvlans.
    pub fn devices_below(&self, ifindex: u32) -> BTreeSet<u32> {
        let mut devices = BTreeSet::from([ifindex]);
        let mut queue = vec![ifindex];
        while let Some(index) = queue.pop() {
            let ports = self.links.values();
            let ports = ports.filter(|link| link.master == Some(index));
            let device = self.links.get(&index);
            // The peer of a veth is not its lower device.
            let lower = device
                .filter(|link| link.kind.as_deref() != Some("veth"))
                .and_then(|link| link.lower);
            for below in ports.map(|link| link.index).chain(lower) {
                if self.links.contains_key(&below) && devices.insert(below) {
                    queue.push(below);
                }
            }
        }
        devices
    }
}

impl Netlink {
    /// Reads the state with a route lookup for each server.
    ///
    /// # Errors
    /// Fails if a table cannot be read.
    pub async fn state(&self, servers: impl IntoIterator<Item = IpAddr>) -> Result<NetState> {
        let mut state = self.read_tables().await?;
        let servers: Vec<IpAddr> = servers.into_iter().collect();
        let lookups = self.route_get_each(&servers).await?;
        state.lookups = servers.into_iter().zip(lookups).collect();
        Ok(state)
    }

    /// Reads the state without route lookups.
    ///
    /// # Errors
    /// Fails if a table cannot be read.
    pub async fn read_tables(&self) -> Result<NetState> {
        let links = self.links().await?;
        let neighbors = self.neighbors().await?;
        Ok(NetState {
            links: links.into_iter().map(|link| (link.index, link)).collect(),
            addresses: self.addresses().await?,
            lookups: BTreeMap::new(),
            neighbors: neighbors
                .into_iter()
                .map(|entry| ((entry.ifindex, entry.ip), entry))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NeighborState, Vlan};

    const SERVER: &str = "10.0.0.5";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn mac(last: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, last])
    }

    fn link(index: u32, mtu: u32, vlan: Option<Vlan>) -> Link {
        Link {
            index,
            name: format!("eth{index}"),
            kind: vlan.map(|_| "vlan".to_owned()),
            mac: Some(mac(index as u8)),
            mtu,
            up: true,
            carrier: true,
            loopback: false,
            master: None,
            lower: None,
            vlan,
        }
    }

    fn tag(id: u16, lower: u32) -> Option<Vlan> {
        Some(Vlan {
            id,
            service_tag: false,
            lower: Some(lower),
        })
    }

    fn next_hop(ifindex: u32, gateway: Option<&str>) -> NextHop {
        NextHop {
            ifindex,
            gateway: gateway.map(ip),
            weight: 1,
            mtu: None,
        }
    }

    fn state(links: Vec<Link>, kind: RouteKind, next_hops: Vec<NextHop>) -> NetState {
        let lookup = Lookup {
            kind,
            prefsrc: None,
            next_hops,
        };
        NetState {
            links: links.into_iter().map(|link| (link.index, link)).collect(),
            lookups: BTreeMap::from([(ip(SERVER), lookup)]),
            ..NetState::default()
        }
    }

    fn set_neighbor(
        state: &mut NetState,
        ifindex: u32,
        address: &str,
        last: u8,
        neighbor_state: NeighborState,
    ) {
        let neighbor = Neighbor {
            ifindex,
            ip: ip(address),
            mac: Some(mac(last)),
            state: neighbor_state,
            managed: true,
        };
        let event = Event::Neighbor {
            neighbor,
            removed: false,
        };
        assert!(!state.apply(&event));
    }

    #[test]
    fn server_on_segment_is_the_neighbor() {
        let mut state = state(
            vec![link(2, 1500, None)],
            RouteKind::Unicast,
            vec![next_hop(2, None)],
        );
        assert_eq!(resolve(ip(SERVER), &state)[0].mac, None);
        set_neighbor(&mut state, 2, SERVER, 0x55, NeighborState::Reachable);
        let expected = ResolvedPath {
            ifindex: 2,
            device: 2,
            vlan: None,
            gateway: None,
            mac: Some(mac(0x55)),
            smac: Some(mac(2)),
            mtu: 1500,
            weight: 1,
            local: false,
        };
        assert_eq!(resolve(ip(SERVER), &state), [expected]);
        set_neighbor(&mut state, 2, SERVER, 0x55, NeighborState::Failed);
        assert_eq!(resolve(ip(SERVER), &state)[0].mac, None);
    }

    #[test]
    fn vlan_device_becomes_lowest_device_and_tag() {
        let links = vec![link(2, 1500, None), link(9, 1500, tag(100, 2))];
        let mut state = state(
            links,
            RouteKind::Unicast,
            vec![next_hop(9, Some("10.9.0.1"))],
        );
        set_neighbor(&mut state, 9, "10.9.0.1", 0x99, NeighborState::Stale);
        set_neighbor(&mut state, 2, "10.9.0.1", 0x22, NeighborState::Stale);
        let path = &resolve(ip(SERVER), &state)[0];
        assert_eq!((path.ifindex, path.device, path.vlan), (2, 9, Some(100)));
        assert_eq!((path.mac, path.smac), (Some(mac(0x99)), Some(mac(9))));
    }

    #[test]
    fn vlan_device_is_used_for_tags_that_xdp_cannot_push() {
        let double_tagged = vec![
            link(2, 1500, None),
            link(9, 1500, tag(100, 2)),
            link(10, 1500, tag(200, 9)),
        ];
        let mut service_tagged = link(10, 1500, tag(200, 2));
        service_tagged.vlan.as_mut().unwrap().service_tag = true;
        let in_other_namespace = link(10, 1500, tag(200, 77));
        for links in [
            double_tagged,
            vec![link(2, 1500, None), service_tagged],
            vec![in_other_namespace],
        ] {
            let state = state(links, RouteKind::Unicast, vec![next_hop(10, None)]);
            let path = &resolve(ip(SERVER), &state)[0];
            assert_eq!((path.ifindex, path.device, path.vlan), (10, 10, None));
        }
    }

    #[test]
    fn vlan_device_cycle_terminates() {
        let links = vec![link(9, 1500, tag(1, 10)), link(10, 1500, tag(2, 9))];
        let state = state(links, RouteKind::Unicast, vec![next_hop(9, None)]);
        assert_eq!(resolve(ip(SERVER), &state)[0].ifindex, 9);
    }

    #[test]
    fn minimum_mtu_is_used() {
        let links = vec![link(2, 1400, None), link(9, 1500, tag(100, 2))];
        let mut limited = next_hop(9, None);
        let plain = state(links.clone(), RouteKind::Unicast, vec![limited.clone()]);
        assert_eq!(resolve(ip(SERVER), &plain)[0].mtu, 1400);
        limited.mtu = Some(1280);
        let state = state(links, RouteKind::Unicast, vec![limited]);
        assert_eq!(resolve(ip(SERVER), &state)[0].mtu, 1280);
    }

    #[test]
    fn paths_on_down_devices_are_skipped() {
        let mut down = link(3, 1500, None);
        down.up = false;
        let next_hops = vec![
            next_hop(2, Some("10.1.0.1")),
            next_hop(3, Some("10.2.0.1")),
            next_hop(4, None),
        ];
        let state = state(
            vec![link(2, 1500, None), down],
            RouteKind::Unicast,
            next_hops,
        );
        let paths = resolve(ip(SERVER), &state);
        assert_eq!(paths.len(), 1);
        assert_eq!(paths[0].gateway, Some(ip("10.1.0.1")));
    }

    #[test]
    fn local_server_has_no_mac_and_unreachable_server_no_path() {
        let mut local = state(
            vec![link(1, 65536, None)],
            RouteKind::Local,
            vec![next_hop(1, None)],
        );
        set_neighbor(&mut local, 1, SERVER, 1, NeighborState::NoArp);
        let path = &resolve(ip(SERVER), &local)[0];
        assert!(path.local && path.mac.is_none());
        let unreachable = state(vec![link(1, 65536, None)], RouteKind::Unreachable, vec![]);
        assert!(resolve(ip(SERVER), &unreachable).is_empty());
        assert!(resolve(ip("10.0.0.6"), &unreachable).is_empty());
    }

    #[test]
    fn events_report_whether_routes_may_have_changed() {
        let mut state = state(
            vec![link(2, 1500, None)],
            RouteKind::Unicast,
            vec![next_hop(2, None)],
        );
        let mut changed = link(2, 9000, None);
        let event = |link: &Link, removed| Event::Link {
            link: link.clone(),
            removed,
        };
        assert!(!state.apply(&event(&changed, false)));
        assert_eq!(resolve(ip(SERVER), &state)[0].mtu, 9000);
        changed.carrier = false;
        assert!(state.apply(&event(&changed, false)));
        set_neighbor(&mut state, 2, SERVER, 5, NeighborState::Reachable);
        assert!(state.apply(&event(&changed, true)));
        assert!(state.links.is_empty() && state.neighbors.is_empty());
        assert!(state.apply(&Event::Lost));
    }
}
