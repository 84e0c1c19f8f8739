//! Rows of next hops and of devices.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weir_abi::{
    DEVICE_REDIRECT, DEVICE_SEND, Device, HOP_READY, HOP_REDIRECT, HOP_SEND, HOP_STATIC,
    HOP_VLAN_KEEP, HOPS_PER_DEST, Hop, HopParts, TICK_SHIFT,
};
use weir_dataplane::Mode;
use weir_netlink::{Link, Lookup, Resolved, resolve};
use weir_sys::{Clock, now_ns};

use super::Network;

/// The rows of a server's next hops.
pub(in crate::engine) type Hops = [Hop; HOPS_PER_DEST as usize];

/// Next hops of servers in turn: what goes by the routers of the one before goes as that does.
pub(in crate::engine) struct HopsOfMany<'a> {
    network: &'a Network,
    last: Option<(&'a Lookup, Hops)>,
}

impl HopsOfMany<'_> {
    /// The next hops of a server.
    pub(in crate::engine) fn to(&mut self, server: IpAddr) -> Hops {
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
        // Every packet that XDP has comes from a generic program; that of marked packets' device is none.
        let has = |wanted| self.attached.values().any(|mode| *mode == wanted);
        let generic = has(Mode::Generic) && !has(Mode::Native) && self.marks.is_none();
        let driver = self.drivers.get(&port.index);
        port.mac.is_some() && (generic || driver.is_some_and(|features| features.transmit()))
    }

    /// The rows of devices.
    pub(in crate::engine) fn devices(&self) -> BTreeMap<u32, Device> {
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
    pub(in crate::engine) fn hops(&self, server: IpAddr) -> Hops {
        let routes: Vec<Resolved> = resolve(server, &self.state)
            .into_iter()
            .filter(|way| !way.local)
            .collect();
        let mut hops = [Hop::ZERO; HOPS_PER_DEST as usize];
        for (hop, way) in hops.iter_mut().zip(shares(&routes)) {
            *hop = self.hop(&routes[way]);
        }
        hops
    }

    /// Those of many servers, one after the other.
    pub(in crate::engine) const fn hops_of_many(&self) -> HopsOfMany<'_> {
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
}

/// Whether XDP_TX fails to wake the receiver: `WEIR_DEVICE_REDIRECT` in weir_abi.h.
pub(super) fn redirects(port: &Link) -> bool {
    port.kind.as_deref() == Some("veth")
}

/// Which way each row of a server takes: shares in proportion to the routes' weights, as even as rows allow.
fn shares(routes: &[Resolved]) -> Vec<usize> {
    let total: i64 = routes.iter().map(|way| i64::from(way.weight.max(1))).sum();
    let mut credit = vec![0i64; routes.len()];
    let mut chosen = Vec::new();
    for _ in 0..HOPS_PER_DEST {
        for (credit, way) in credit.iter_mut().zip(routes) {
            *credit += i64::from(way.weight.max(1));
        }
        // The first of equals, so that a single way and equal routes come out in the route's order.
        let Some(best) =
            (0..routes.len()).max_by_key(|way| (credit[*way], std::cmp::Reverse(*way)))
        else {
            break;
        };
        credit[best] -= total;
        chosen.push(best);
    }
    chosen
}

/// The data plane's tick.
pub(in crate::engine) fn tick() -> u32 {
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
