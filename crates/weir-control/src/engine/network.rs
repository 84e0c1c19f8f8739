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
use weir_model::{Desired, Node};
use weir_netlink::{
    Change, Event, Link, Managed, NetState, Netlink, Resolved, RouteKind, Sysctl, resolve,
};
use weir_sys::{Clock, now_ns};
use weir_wire::MacAddr;

use super::rows::Surroundings;
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
    /// Drivers that accept packets of other devices' programs, now.
    transmits: BTreeMap<u32, bool>,
    /// Where XDP runs.
    pub(super) attached: BTreeMap<u32, XdpMode>,
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
            transmits: BTreeMap::new(),
            attached: BTreeMap::new(),
        })
    }

    /// The handle.
    pub(super) fn netlink(&self) -> &Netlink {
        &self.netlink
    }

    /// Takes the picture anew, for the servers of a configuration and those of removed ones that still have flows.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) async fn take(&mut self, servers: BTreeSet<IpAddr>) -> Result<()> {
        self.state = self
            .netlink
            .state(servers.iter().copied().chain(ELSEWHERE))
            .await?;
        self.servers = servers;
        let links: Vec<u32> = self.state.links.keys().copied().collect();
        self.ask_drivers(&links).await
    }

    /// Takes the picture of the same servers anew.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) async fn retake(&mut self) -> Result<()> {
        self.take(self.servers.clone()).await
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
        used.extend(
            self.servers
                .iter()
                .flat_map(|server| resolve(*server, &self.state))
                .map(|way| way.ifindex),
        );
        let used: Vec<u32> = used.into_iter().collect();
        self.ask_drivers(&used).await?;
        Ok(self.transmits != before)
    }

    /// Brings the picture up to date; answers whether routes may have changed, so that it must be taken anew.
    pub(super) fn follow(&mut self, event: &Event) -> bool {
        self.state.apply(event)
    }

    /// What the rows of servers depend on.
    pub(super) fn surroundings(&self) -> Surroundings {
        let lookups = self.state.lookups.iter();
        Surroundings {
            local: lookups
                .clone()
                .filter(|(_, found)| found.kind == RouteKind::Local)
                .map(|(ip, _)| *ip)
                .collect(),
            sources: lookups
                .filter_map(|(ip, found)| Some((*ip, found.prefsrc?)))
                .collect(),
            learn_clients: self.attached.keys().any(|ifindex| !self.forwards(*ifindex)),
        }
    }

    /// Whether the kernel would forward what comes in there; where it does not, it tells packets no routes.
    fn forwards(&self, ifindex: u32) -> bool {
        let Some(link) = self.state.links.get(&ifindex) else {
            return true;
        };
        let families = self
            .servers
            .iter()
            .map(IpAddr::is_ipv6)
            .collect::<BTreeSet<_>>();
        families.into_iter().all(|ipv6| {
            let sysctl = Sysctl::of_device(ipv6, &link.name, "forwarding");
            let value = sysctl.and_then(|sysctl| self.netlink.sysctl(&sysctl));
            // Without an answer the safe side is to learn.
            value.is_ok_and(|value| value != "0")
        })
    }

    /// Whether an address is on one of the director's devices, and on which.
    pub(super) fn holder(&self, address: IpAddr) -> Option<u32> {
        self.state
            .addresses
            .iter()
            .find(|known| known.ip == address)
            .map(|known| known.ifindex)
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
    pub(super) fn interfaces(&self, desired: &Desired) -> Result<BTreeSet<u32>> {
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
        let towards = self.servers.iter().copied().chain(ELSEWHERE);
        let mut found: BTreeSet<u32> = towards
            .flat_map(|ip| resolve(ip, &self.state))
            .map(|way| way.ifindex)
            .collect();
        let vips = desired.services.iter().flat_map(|service| &service.listen);
        let held = vips
            .map(|listener| listener.address)
            .chain(self.servers.iter().copied());
        found.extend(held.filter_map(|address| self.holder(address)));
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
        let generic = !self.attached.is_empty()
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
    pub(super) fn hops(&self, server: IpAddr) -> [Hop; HOPS_PER_DEST as usize] {
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
        let by = |server: &IpAddr| {
            let ways = resolve(*server, &self.state);
            ways.iter()
                .any(|way| way.device == device && way.gateway.unwrap_or(*server) == neighbour)
        };
        self.servers.iter().copied().filter(by).collect()
    }

    /// Has the kernel resolve the way to every server and keep it so; answers what was not kept so before.
    pub(super) async fn manage_neighbours(&self) -> Vec<(u32, IpAddr)> {
        let mut wanted = BTreeSet::new();
        for server in &self.servers {
            for way in resolve(*server, &self.state) {
                if !way.local && way.smac.is_some() {
                    wanted.insert((way.device, way.gateway.unwrap_or(*server)));
                }
            }
        }
        let mut added = Vec::new();
        for (device, neighbour) in wanted {
            match self.netlink.ensure_managed(device, neighbour).await {
                Ok(Managed::Added) => added.push((device, neighbour)),
                Ok(_) => {}
                // The kernel resolves it when a packet goes there, as ever.
                Err(error) => tracing::warn!(%error, "a server's neighbour is not kept resolved"),
            }
        }
        added
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
        let unresolved = |way: &Resolved| !way.local && way.smac.is_some() && way.mac.is_none();
        Ok(!self
            .servers
            .iter()
            .flat_map(|server| resolve(*server, &self.state))
            .any(|way| unresolved(&way)))
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
