//! Computes next-hop rows and device rows from the cached network state.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weir_abi::{
    DEVICE_REDIRECT, DEVICE_SEND, Device, HOP_READY, HOP_REDIRECT, HOP_SEND, HOP_STATIC,
    HOP_VLAN_KEEP, HOPS_PER_DEST, Hop, HopParts, TICK_SHIFT,
};
use weir_dataplane::Mode;
use weir_netlink::{Link, Lookup, ResolvedPath, resolve};
use weir_sys::{Clock, now_ns};

use super::Network;

/// The rows of a server's next hops.
pub(crate) type Hops = [Hop; HOPS_PER_DEST as usize];

/// Computes the next hops of servers in sequence, and reuses them for consecutive servers with the same routers.
pub(crate) struct HopBatch<'a> {
    network: &'a Network,
    last: Option<(&'a Lookup, Hops)>,
}

impl HopBatch<'_> {
    /// Returns the next hops of a server.
    pub(crate) fn hops_to(&mut self, server: IpAddr) -> Hops {
        let found = self.network.state.lookups.get(&server);
        if let (Some(found), Some((last, hops))) = (found, &self.last)
            && (found.kind, &found.next_hops) == (last.kind, &last.next_hops)
        {
            return *hops;
        }
        let hops = self.network.hops(server);
        let uses_routers = |it: &&Lookup| it.next_hops.iter().all(|hop| hop.gateway.is_some());
        self.last = found.filter(uses_routers).map(|found| (found, hops));
        hops
    }
}

impl Network {
    /// Returns the physical port of a device, and the VLAN tag that XDP must push; 0 = none.
    fn port_of<'a>(&'a self, link: &'a Link) -> (&'a Link, u16) {
        let Some(vlan) = link.vlan.filter(|vlan| !vlan.service_tag) else {
            return (link, 0);
        };
        let lower = vlan.lower.and_then(|lower| self.state.links.get(&lower));
        lower
            .filter(|lower| lower.vlan.is_none())
            .map_or((link, 0), |lower| (lower, vlan.id))
    }

    /// Returns whether XDP can send packets through this port, regardless of the device that received them.
    fn can_send(&self, port: &Link) -> bool {
        // Generic XDP can send through any port, but native XDP cannot. The device for marked packets runs native XDP.
        let has_mode = |wanted| self.attached.values().any(|mode| *mode == wanted);
        let generic =
            has_mode(Mode::Generic) && !has_mode(Mode::Native) && self.mark_devices.is_none();
        let features = self.xdp_features.get(&port.index);
        port.mac.is_some() && (generic || features.is_some_and(|it| it.can_transmit()))
    }

    /// Returns the rows of the devices that are up, by index.
    pub(crate) fn devices(&self) -> BTreeMap<u32, Device> {
        let row = |link: &Link| {
            let (port, vlan) = self.port_of(link);
            Device {
                flags: if self.can_send(port) { DEVICE_SEND } else { 0 }
                    | if is_veth(port) { DEVICE_REDIRECT } else { 0 },
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

    /// Returns the next hops of a server; rows are zero if there is no route, or only a local one.
    pub(crate) fn hops(&self, server: IpAddr) -> Hops {
        let routes: Vec<ResolvedPath> = resolve(server, &self.state)
            .into_iter()
            .filter(|route| !route.local)
            .collect();
        let mut hops = [Hop::ZERO; HOPS_PER_DEST as usize];
        for (hop, route) in hops.iter_mut().zip(assign_routes(&routes)) {
            *hop = self.hop(&routes[route]);
        }
        hops
    }

    /// Returns a [`HopBatch`], for the next hops of many servers.
    pub(crate) const fn hop_batch(&self) -> HopBatch<'_> {
        HopBatch {
            network: self,
            last: None,
        }
    }

    fn hop(&self, route: &ResolvedPath) -> Hop {
        let can_send = self
            .state
            .links
            .get(&route.ifindex)
            .is_some_and(|port| self.can_send(port));
        let ready = route.mac.is_some() && route.smac.is_some();
        let mut flags = HOP_STATIC;
        flags |= if can_send { HOP_SEND } else { 0 };
        let veth = self.state.links.get(&route.ifindex).is_some_and(is_veth);
        flags |= if veth { HOP_REDIRECT } else { 0 };
        flags |= if ready { HOP_READY } else { 0 };
        let only_port = self.attached.len() == 1 && self.attached.contains_key(&route.ifindex);
        HopParts {
            // If XDP cannot send the packet, the tc program resolves the neighbor on the route's device.
            ifindex: if can_send && ready {
                route.ifindex
            } else {
                route.device
            },
            flags,
            mtu: u16::try_from(route.mtu).unwrap_or(u16::MAX),
            dmac: route.mac.map_or([0; 6], |mac| mac.octets()),
            smac: route.smac.map_or([0; 6], |mac| mac.octets()),
            // If there is only one port and the route has no VLAN tag, packets return to the VLAN that they arrived on.
            vlan: route
                .vlan
                .unwrap_or(if only_port { HOP_VLAN_KEEP } else { 0 }),
            renewed: tick(),
        }
        .into()
    }
}

/// Returns whether a device is a veth, on which XDP_TX does not wake the receiver; see `WEIR_DEVICE_REDIRECT` in
/// weir_abi.h.
pub(super) fn is_veth(port: &Link) -> bool {
    port.kind.as_deref() == Some("veth")
}

/// Assigns a route to each of a server's next-hop rows, in proportion to the routes' weights and as evenly as possible.
fn assign_routes(routes: &[ResolvedPath]) -> Vec<usize> {
    let total: i64 = routes
        .iter()
        .map(|route| i64::from(route.weight.max(1)))
        .sum();
    let mut credit = vec![0i64; routes.len()];
    let mut chosen = Vec::new();
    for _ in 0..HOPS_PER_DEST {
        for (credit, route) in credit.iter_mut().zip(routes) {
            *credit += i64::from(route.weight.max(1));
        }
        // Choose the first of several equal routes, to keep the order of routes.
        let Some(best) =
            (0..routes.len()).max_by_key(|route| (credit[*route], std::cmp::Reverse(*route)))
        else {
            break;
        };
        credit[best] -= total;
        chosen.push(best);
    }
    chosen
}

/// Returns the data plane's current tick.
pub(crate) fn tick() -> u32 {
    (now_ns(Clock::MonotonicCoarse) >> TICK_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(ifindex: u32, weight: u32) -> ResolvedPath {
        ResolvedPath {
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
    fn rows_follow_route_weights() {
        assert_eq!(assign_routes(&[]), [0usize; 0]);
        assert_eq!(assign_routes(&[route(1, 1)]), [0, 0, 0, 0]);
        assert_eq!(assign_routes(&[route(1, 1), route(2, 1)]), [0, 1, 0, 1]);
        let three_to_one = assign_routes(&[route(1, 3), route(2, 1)]);
        assert_eq!(three_to_one.iter().filter(|route| **route == 0).count(), 3);
    }
}
