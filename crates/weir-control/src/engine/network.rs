//! The network around the director, as the data plane needs it: next hops, devices, interfaces to attach to.
//!
//! Keeps a picture of links, addresses, neighbours and the kernel's routes to the servers, and computes rows from it. What
//! changes the network (managed neighbours, added addresses) is reported, so that it can be undone; remembering that is
//! [`super::state`]'s matter.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_abi::{
    DEVICE_REDIRECT, DEVICE_SEND, Device, HOP_READY, HOP_REDIRECT, HOP_SEND, HOP_STATIC,
    HOP_VLAN_KEEP, HOPS_PER_DEST, Hop, HopParts, TICK_SHIFT,
};
use weir_dataplane::XdpMode;
use weir_model::{Desired, Indexed, Node};
use weir_netlink::{
    Change, Event, Link, Lookup, Managed, NetState, Netlink, Resolved, RouteKind, Sysctl, resolve,
};
use weir_sys::{Clock, now_ns};
use weir_wire::MacAddr;

use super::mark::{MarkWay, Pair};
use super::rows::Surroundings;
use super::way::Ways;
use super::{Error, Result};

/// Addresses whose routes lead to the default gateways: documentation prefixes, never anyone's own.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1)),
];

/// The picture, and the handle that it is taken with.
#[derive(Debug)]
pub(super) struct Network {
    netlink: Netlink,
    state: NetState,
    servers: BTreeSet<IpAddr>,
    ways: Ways,
    /// The device that has each of the director's addresses.
    holders: BTreeMap<IpAddr, u32>,
    /// Neighbours that the kernel was asked to keep resolved.
    managed: BTreeSet<(u32, IpAddr)>,
    /// Drivers that accept packets of other devices' programs, now.
    transmits: BTreeMap<u32, bool>,
    /// Where XDP runs.
    pub(super) attached: BTreeMap<u32, XdpMode>,
    /// The devices of marked packets.
    pub(super) marks: Option<Pair>,
    /// Less is free than `amemthresh` says.
    pub(super) memory_is_short: bool,
}

/// What came of taking up servers.
#[derive(Debug)]
pub(super) struct Update {
    /// Servers whose rows may be others now.
    pub(super) servers: BTreeSet<IpAddr>,
    /// The whole picture was taken anew.
    pub(super) whole: bool,
}

/// The rows of a server's next hops.
pub(super) type Hops = [Hop; HOPS_PER_DEST as usize];

/// Next hops of servers in turn: what goes by the routers of the one before goes as that does.
pub(super) struct HopsOfMany<'a> {
    network: &'a Network,
    last: Option<(&'a Lookup, Hops)>,
}

impl HopsOfMany<'_> {
    /// The next hops of a server.
    pub(super) fn to(&mut self, server: IpAddr) -> Hops {
        let found = self.network.state.lookups.get(&server);
        if let (Some(found), Some((last, hops))) = (found, &self.last)
            && (found.kind, &found.legs) == (last.kind, &last.legs)
        {
            return *hops;
        }
        let hops = self.network.hops(server);
        let by_routers = |it: &&Lookup| it.legs.iter().all(|leg| leg.gateway.is_some());
        self.last = found.filter(by_routers).map(|found| (found, hops));
        hops
    }
}

impl Network {
    /// The network of the calling thread's namespace.
    ///
    /// # Errors
    /// No netlink socket can be had.
    pub(super) fn open() -> Result<Self> {
        Ok(Self {
            netlink: Netlink::open()?,
            state: NetState::default(),
            servers: BTreeSet::new(),
            ways: Ways::default(),
            holders: BTreeMap::new(),
            managed: BTreeSet::new(),
            transmits: BTreeMap::new(),
            attached: BTreeMap::new(),
            marks: None,
            memory_is_short: false,
        })
    }

    /// The handle.
    pub(super) fn netlink(&self) -> &Netlink {
        &self.netlink
    }

    /// Takes the picture anew, for the servers of a configuration and those of removed ones that still have flows. Answers
    /// the servers whose rows may be others now.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) async fn take(&mut self, servers: BTreeSet<IpAddr>) -> Result<BTreeSet<IpAddr>> {
        let asked = servers.iter().copied().chain(ELSEWHERE);
        let state = self.netlink.state(asked).await?;
        let former = std::mem::replace(&mut self.state, state);
        let changed = servers
            .iter()
            .filter(|server| former.lookups.get(server) != self.state.lookups.get(server))
            .copied()
            .collect();
        self.servers = servers;
        self.managed.clear();
        self.index();
        let links: Vec<u32> = self.state.links.keys().copied().collect();
        self.ask_drivers(&links).await?;
        Ok(changed)
    }

    /// Takes up servers that it does not know yet. The routes of the others are asked for again only when devices or addresses
    /// changed: a route that changes alone is told by the watch.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) async fn update(&mut self, servers: impl Iterator<Item = IpAddr>) -> Result<Update> {
        let came: BTreeSet<IpAddr> = servers.filter(|it| !self.servers.contains(it)).collect();
        let tables = self.netlink.tables().await?;
        if !self.state.leads_as(&tables) {
            let servers = self.servers.union(&came).copied().collect();
            return Ok(Update {
                servers: self.take(servers).await?,
                whole: true,
            });
        }
        let asked: Vec<IpAddr> = came.iter().copied().collect();
        let found = self.netlink.route_get_each(&asked).await?;
        let lookups = std::mem::take(&mut self.state.lookups);
        self.state = NetState { lookups, ..tables };
        self.state.lookups.extend(asked.into_iter().zip(found));
        for server in &came {
            self.ways.add(*server, &self.state);
        }
        self.servers.extend(&came);
        Ok(Update {
            servers: came,
            whole: false,
        })
    }

    /// Forgets servers that nothing leads to any more.
    pub(super) fn forget(&mut self, servers: impl Iterator<Item = IpAddr>) {
        for server in servers {
            if self.servers.remove(&server) {
                self.ways.remove(server, &self.state);
                self.state.lookups.remove(&server);
            }
        }
    }

    /// What follows from the picture.
    fn index(&mut self) {
        self.ways = Ways::new(self.servers.iter(), &self.state);
        self.index_addresses();
    }

    fn index_addresses(&mut self) {
        let known = self.state.addresses.iter().rev();
        self.holders = known.map(|known| (known.ip, known.ifindex)).collect();
    }

    async fn ask_drivers(&mut self, links: &[u32]) -> Result<()> {
        for ifindex in links {
            // A device that went meanwhile sends nothing; a kernel that cannot say is not relied upon.
            let features = self.netlink.xdp_features(*ifindex).await.ok().flatten();
            self.transmits.insert(
                *ifindex,
                features.is_some_and(|features| features.transmit()),
            );
        }
        Ok(())
    }

    /// Asks the drivers of devices in use again: what veth says depends on its peer. Answers whether anything changed.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) async fn refresh_drivers(&mut self) -> Result<bool> {
        let before = self.transmits.clone();
        let mut used: BTreeSet<u32> = self.attached.keys().copied().collect();
        used.extend(self.ways.ports());
        let used: Vec<u32> = used.into_iter().collect();
        self.ask_drivers(&used).await?;
        Ok(self.transmits != before)
    }

    /// Brings the picture up to date; answers whether routes may have changed, so that it must be taken anew.
    pub(super) fn follow(&mut self, event: &Event) -> bool {
        let moved = self.state.apply(event);
        match event {
            // When routes moved too, the picture is taken anew, and all of this with it.
            Event::Link { .. } if !moved => self.index(),
            Event::Address { .. } => self.index_addresses(),
            _ => {}
        }
        moved
    }

    /// What the rows of these servers depend on.
    pub(super) fn surroundings(&self, servers: impl Iterator<Item = IpAddr>) -> Surroundings {
        let mut around = Surroundings {
            learn_clients: self.learns_clients(),
            marks: self.marks,
            memory_is_short: self.memory_is_short,
            ..Surroundings::default()
        };
        for server in servers {
            let Some(found) = self.state.lookups.get(&server) else {
                continue;
            };
            if found.kind == RouteKind::Local {
                around.local.insert(server);
            }
            if let Some(source) = found.prefsrc {
                around.sources.insert(server, source);
            }
        }
        around
    }

    /// Takes note of where XDP runs, the devices of marked packets aside.
    pub(super) fn set_attached(&mut self, mut attached: BTreeMap<u32, XdpMode>) {
        attached.retain(|ifindex, _| self.marks.is_none_or(|pair| pair.exit != *ifindex));
        self.attached = attached;
    }

    /// Takes note of the devices of marked packets, if both are there.
    pub(super) fn adopt_marks(&mut self, way: Option<&MarkWay>) {
        self.marks = way.and_then(|way| {
            Some(Pair {
                entry: self.index_of(&way.entry)?,
                exit: self.index_of(&way.exit)?,
            })
        });
    }

    /// Whether next hops towards clients are learned from their packets.
    pub(super) fn learns_clients(&self) -> bool {
        self.attached.keys().any(|ifindex| !self.forwards(*ifindex))
    }

    /// Whether the kernel would forward what comes in there; where it does not, it tells packets no routes.
    fn forwards(&self, ifindex: u32) -> bool {
        let Some(link) = self.state.links.get(&ifindex) else {
            return true;
        };
        // IPv4 comes first in their order.
        let families: BTreeSet<bool> = [self.servers.first(), self.servers.last()]
            .into_iter()
            .flatten()
            .map(IpAddr::is_ipv6)
            .collect();
        families.into_iter().all(|ipv6| {
            let sysctl = Sysctl::of_device(ipv6, &link.name, "forwarding");
            let value = sysctl.and_then(|sysctl| self.netlink.sysctl(&sysctl));
            // Without an answer the safe side is to learn.
            value.is_ok_and(|value| value != "0")
        })
    }

    /// Whether an address is on one of the director's devices, and on which.
    pub(super) fn holder(&self, address: IpAddr) -> Option<u32> {
        self.holders.get(&address).copied()
    }

    /// The device of that name.
    pub(super) fn index_of(&self, name: &str) -> Option<u32> {
        self.state
            .links
            .values()
            .find(|link| link.name == name)
            .map(|link| link.index)
    }

    /// The name of a device.
    pub(super) fn name_of(&self, ifindex: u32) -> Option<&str> {
        self.state
            .links
            .get(&ifindex)
            .map(|link| link.name.as_str())
    }

    /// The Ethernet address of a device.
    pub(super) fn mac_of(&self, ifindex: u32) -> Option<MacAddr> {
        let mac = self.state.links.get(&ifindex)?.mac?;
        Some(MacAddr::new(mac.octets()))
    }

    /// A device and those that it gets its packets from: ports of a bridge or bond, what VLANs and macvlans stand on.
    pub(super) fn below(&self, ifindex: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::from([ifindex]);
        let mut open = vec![ifindex];
        while let Some(at) = open.pop() {
            let ports = self.state.links.values();
            let ports = ports.filter(|link| link.master == Some(at));
            let own = self.state.links.get(&at);
            // A veth's other end is a port of somebody else, not what it stands on.
            let lower = own
                .filter(|link| !redirects(link))
                .and_then(|link| link.lower);
            for below in ports.map(|link| link.index).chain(lower) {
                if self.state.links.contains_key(&below) && found.insert(below) {
                    open.push(below);
                }
            }
        }
        found
    }

    /// Where XDP shall run: the interfaces of the configuration, or those that lead to servers, VIPs and elsewhere.
    ///
    /// # Errors
    /// An interface of the configuration is not there.
    pub(super) fn interfaces(&self, desired: &Indexed) -> Result<BTreeSet<u32>> {
        let Node {
            interfaces,
            vip_interface,
            ..
        } = &desired.node;
        if let Some(names) = interfaces {
            let index = |name: &String| {
                self.index_of(name)
                    .ok_or_else(|| Error::NoInterface { name: name.clone() })
            };
            return names.iter().map(index).collect();
        }
        let elsewhere = ELSEWHERE
            .into_iter()
            .flat_map(|ip| resolve(ip, &self.state))
            .map(|way| way.ifindex);
        let mut found: BTreeSet<u32> = elsewhere.chain(self.ways.ports()).collect();
        let ours = |ip: &IpAddr| desired.listening(*ip).len() > 0 || self.servers.contains(ip);
        let held = self.holders.iter().filter(|(ip, _)| ours(ip));
        found.extend(held.map(|(_, ifindex)| *ifindex));
        found.extend(
            vip_interface
                .as_deref()
                .and_then(|name| self.index_of(name)),
        );
        found.retain(|ifindex| {
            self.state
                .links
                .get(ifindex)
                .is_some_and(|link| link.up && !link.loopback)
        });
        Ok(found)
    }

    /// The interface that VIPs are added to, where the configuration wants that.
    ///
    /// # Errors
    /// It is not there.
    pub(super) fn vip_interface(&self, desired: &Desired) -> Result<Option<u32>> {
        let Some(name) = &desired.node.vip_interface else {
            return Ok(None);
        };
        match self.index_of(name) {
            Some(ifindex) => Ok(Some(ifindex)),
            None => Err(Error::NoInterface { name: name.clone() }),
        }
    }

    /// The port below a device and the tag to push there, where XDP can push it.
    fn port_of<'a>(&'a self, link: &'a Link) -> (&'a Link, u16) {
        let Some(vlan) = link.vlan.filter(|vlan| !vlan.service_tag) else {
            return (link, 0);
        };
        let lower = vlan.lower.and_then(|lower| self.state.links.get(&lower));
        lower
            .filter(|lower| lower.vlan.is_none())
            .map_or((link, 0), |lower| (lower, vlan.id))
    }

    /// Whether packets may be sent there by XDP, whatever device they came from.
    fn sends(&self, port: &Link) -> bool {
        // From the device of marked packets comes what no generic program has.
        let generic = !self.attached.is_empty()
            && self.marks.is_none()
            && self.attached.values().all(|mode| *mode == XdpMode::Generic);
        port.mac.is_some() && (generic || self.transmits.get(&port.index).copied().unwrap_or(false))
    }

    /// The rows of devices.
    pub(super) fn devices(&self) -> BTreeMap<u32, Device> {
        let row = |link: &Link| {
            let (port, vlan) = self.port_of(link);
            Device {
                flags: if self.sends(port) { DEVICE_SEND } else { 0 }
                    | if redirects(port) { DEVICE_REDIRECT } else { 0 },
                port: port.index,
                vlan: u32::from(vlan),
                mtu: link.mtu.min(port.mtu),
            }
        };
        self.state
            .links
            .values()
            .filter(|link| link.up)
            .map(|link| (link.index, row(link)))
            .collect()
    }

    /// The next hops of a server; rows are zero while there is no way.
    pub(super) fn hops(&self, server: IpAddr) -> Hops {
        let ways: Vec<Resolved> = resolve(server, &self.state)
            .into_iter()
            .filter(|way| !way.local)
            .collect();
        let mut hops = [Hop::ZERO; HOPS_PER_DEST as usize];
        for (hop, way) in hops.iter_mut().zip(shares(&ways)) {
            *hop = self.hop(&ways[way]);
        }
        hops
    }

    /// Those of many servers, one after the other.
    pub(super) const fn hops_of_many(&self) -> HopsOfMany<'_> {
        HopsOfMany {
            network: self,
            last: None,
        }
    }

    fn hop(&self, way: &Resolved) -> Hop {
        let sends = self
            .state
            .links
            .get(&way.ifindex)
            .is_some_and(|port| self.sends(port));
        let ready = way.mac.is_some() && way.smac.is_some();
        let mut flags = HOP_STATIC;
        flags |= if sends { HOP_SEND } else { 0 };
        let veth = self.state.links.get(&way.ifindex).is_some_and(redirects);
        flags |= if veth { HOP_REDIRECT } else { 0 };
        flags |= if ready { HOP_READY } else { 0 };
        let only_port = self.attached.len() == 1 && self.attached.contains_key(&way.ifindex);
        HopParts {
            // The tc program resolves on the route's device what XDP cannot send.
            ifindex: if sends && ready {
                way.ifindex
            } else {
                way.device
            },
            flags,
            mtu: u16::try_from(way.mtu).unwrap_or(u16::MAX),
            dmac: way.mac.map_or([0; 6], |mac| mac.octets()),
            smac: way.smac.map_or([0; 6], |mac| mac.octets()),
            // One port and no tag of its own: packets go back into the VLAN that they came from.
            vlan: way
                .vlan
                .unwrap_or(if only_port { HOP_VLAN_KEEP } else { 0 }),
            renewed: tick(),
        }
        .into()
    }

    /// Servers that are reached by a neighbour.
    pub(super) fn servers_behind(&self, device: u32, neighbour: IpAddr) -> Vec<IpAddr> {
        self.ways.behind(device, neighbour).collect()
    }

    /// Has the kernel resolve the ways to servers that it was not asked about yet, and keep them so; answers what was not
    /// kept so before, and whether there was anything to ask.
    pub(super) async fn manage_neighbours(&mut self) -> (Vec<(u32, IpAddr)>, bool) {
        let wanted: BTreeSet<(u32, IpAddr)> = self.ways.neighbours().collect();
        let mut added = Vec::new();
        let new: Vec<(u32, IpAddr)> = wanted.difference(&self.managed).copied().collect();
        for (device, neighbour) in &new {
            match self.netlink.ensure_managed(*device, *neighbour).await {
                Ok(Managed::Added) => added.push((*device, *neighbour)),
                Ok(_) => {}
                // The kernel resolves it when a packet goes there, as ever.
                Err(error) => tracing::warn!(%error, "a server's neighbour is not kept resolved"),
            }
        }
        self.managed = wanted;
        (added, !new.is_empty())
    }

    /// Takes up what the neighbour table says of the ways to servers by now; answers whether all are resolved.
    ///
    /// # Errors
    /// The table cannot be read.
    pub(super) async fn look_at_neighbours(&mut self) -> Result<bool> {
        let neighbours = self.netlink.neighbours().await?;
        self.state.neighbours = neighbours
            .into_iter()
            .map(|entry| ((entry.ifindex, entry.ip), entry))
            .collect();
        let resolved = |neighbour| {
            let known = self.state.neighbours.get(&neighbour);
            known.is_some_and(|known| known.usable_mac().is_some())
        };
        Ok(self.ways.neighbours().all(resolved))
    }

    /// Adds an address to a device; answers whether it was missing.
    ///
    /// # Errors
    /// No such device, or the kernel refuses.
    pub(super) async fn add_address(&self, ifindex: u32, address: IpAddr) -> Result<bool> {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        Ok(self.netlink.add_address(ifindex, address, prefix).await? == Change::Made)
    }

    /// Takes an address off a device; one that is not there is no error.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn remove_address(&self, ifindex: u32, address: IpAddr) -> Result<()> {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        self.netlink
            .remove_address(ifindex, address, prefix)
            .await?;
        Ok(())
    }
}

/// Whether XDP_TX fails to wake the receiver: `WEIR_DEVICE_REDIRECT` in weir_abi.h.
fn redirects(port: &Link) -> bool {
    port.kind.as_deref() == Some("veth")
}

/// Which way each row of a server takes: shares in proportion to the ways' weights, as even as rows allow.
fn shares(ways: &[Resolved]) -> Vec<usize> {
    let total: i64 = ways.iter().map(|way| i64::from(way.weight.max(1))).sum();
    let mut credit = vec![0i64; ways.len()];
    let mut chosen = Vec::new();
    for _ in 0..HOPS_PER_DEST {
        for (credit, way) in credit.iter_mut().zip(ways) {
            *credit += i64::from(way.weight.max(1));
        }
        // The first of equals, so that a single way and equal ways come out in the route's order.
        let Some(best) = (0..ways.len()).max_by_key(|way| (credit[*way], std::cmp::Reverse(*way)))
        else {
            break;
        };
        credit[best] -= total;
        chosen.push(best);
    }
    chosen
}

/// The data plane's tick.
pub(super) fn tick() -> u32 {
    (now_ns(Clock::MonotonicCoarse) >> TICK_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(ifindex: u32, weight: u32) -> Resolved {
        Resolved {
            ifindex,
            device: ifindex,
            vlan: None,
            gateway: None,
            mac: None,
            smac: None,
            mtu: 1500,
            weight,
            local: false,
        }
    }

    #[test]
    fn rows_go_by_weight() {
        assert_eq!(shares(&[]), [0usize; 0]);
        assert_eq!(shares(&[way(1, 1)]), [0, 0, 0, 0]);
        assert_eq!(shares(&[way(1, 1), way(2, 1)]), [0, 1, 0, 1]);
        let three_to_one = shares(&[way(1, 3), way(2, 1)]);
        assert_eq!(three_to_one.iter().filter(|way| **way == 0).count(), 3);
    }
}
