//! The network around the director, as the data plane needs it: next hops, devices, interfaces to attach to.
//!
//! Keeps a picture of links, addresses, neighbours and the kernel's routes to the servers, and computes rows from it.
//! What changes the network (managed neighbours, added addresses) is reported, so that it can be undone; remembering
//! that is [`super::state`]'s matter.

mod hop;
mod interface;
mod mode;
mod neighbour;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_dataplane::Mode;
use weir_netlink::{Event, NetState, Netlink, RouteKind, Sysctl, XdpFeatures};
use weir_planner::mark::Pair;
use weir_planner::rows::Surroundings;

use super::Result;
use super::mark::MarkRouting;
use super::route_index::RouteIndex;

pub(super) use self::hop::{Hops, tick};
pub(super) use self::mode::Plan;

/// Addresses whose routes lead to the default gateways: documentation prefixes, never anyone's own.
const DEFAULT_ROUTE_PROBES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1)),
];

/// The picture, and the handle that it is taken with.
#[derive(Debug)]
pub(super) struct Network {
    netlink: Netlink,
    state: NetState,
    servers: BTreeSet<IpAddr>,
    routes: RouteIndex,
    /// The device that has each of the director's addresses.
    holders: BTreeMap<IpAddr, u32>,
    /// Neighbours that the kernel was asked to keep resolved.
    managed: BTreeSet<(u32, IpAddr)>,
    /// What drivers can do for XDP, now.
    drivers: BTreeMap<u32, XdpFeatures>,
    /// Where the packet path runs, and how.
    pub(super) attached: BTreeMap<u32, Mode>,
    /// Where native XDP is about to be attached.
    expected_native: BTreeSet<u32>,
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
            routes: RouteIndex::default(),
            holders: BTreeMap::new(),
            managed: BTreeSet::new(),
            drivers: BTreeMap::new(),
            attached: BTreeMap::new(),
            expected_native: BTreeSet::new(),
            marks: None,
            memory_is_short: false,
        })
    }

    /// The handle.
    pub(super) fn netlink(&self) -> &Netlink {
        &self.netlink
    }

    /// Takes the picture anew, for the servers of a configuration and those of removed ones that still have flows.
    /// Answers the servers whose rows may be others now.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) async fn refresh(&mut self, servers: BTreeSet<IpAddr>) -> Result<BTreeSet<IpAddr>> {
        let asked = servers.iter().copied().chain(DEFAULT_ROUTE_PROBES);
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

    /// Takes up servers that it does not know yet. The routes of the others are asked for again only when devices or
    /// addresses changed: a route that changes alone is told by the watch.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) async fn update(&mut self, servers: impl Iterator<Item = IpAddr>) -> Result<Update> {
        let came: BTreeSet<IpAddr> = servers.filter(|it| !self.servers.contains(it)).collect();
        let tables = self.netlink.tables().await?;
        if !self.state.leads_as(&tables) {
            let servers = self.servers.union(&came).copied().collect();
            return Ok(Update {
                servers: self.refresh(servers).await?,
                whole: true,
            });
        }
        let asked: Vec<IpAddr> = came.iter().copied().collect();
        let found = self.netlink.route_get_each(&asked).await?;
        let lookups = std::mem::take(&mut self.state.lookups);
        self.state = NetState { lookups, ..tables };
        self.state.lookups.extend(asked.into_iter().zip(found));
        for server in &came {
            self.routes.add(*server, &self.state);
        }
        self.servers.extend(&came);
        Ok(Update {
            servers: came,
            whole: false,
        })
    }

    /// Knows these servers and no others.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) async fn retain_servers(&mut self, servers: BTreeSet<IpAddr>) -> Result<()> {
        let gone: Vec<IpAddr> = self.servers.difference(&servers).copied().collect();
        self.forget(gone.into_iter());
        if self.servers != servers {
            self.update(servers.into_iter()).await?;
        }
        Ok(())
    }

    /// Forgets servers that nothing leads to any more.
    pub(super) fn forget(&mut self, servers: impl Iterator<Item = IpAddr>) {
        for server in servers {
            if self.servers.remove(&server) {
                self.routes.remove(server, &self.state);
                self.state.lookups.remove(&server);
            }
        }
    }

    /// What follows from the picture.
    fn index(&mut self) {
        self.routes = RouteIndex::new(self.servers.iter(), &self.state);
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
            let features = features.unwrap_or(XdpFeatures { bits: 0 });
            self.drivers.insert(*ifindex, features);
        }
        Ok(())
    }

    /// Asks the drivers of devices in use again: what veth says depends on its peer. Answers whether anything changed.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) async fn refresh_drivers(&mut self) -> Result<bool> {
        let before = self.drivers.clone();
        let mut used: BTreeSet<u32> = self.attached.keys().copied().collect();
        used.extend(self.routes.ports());
        let used: Vec<u32> = used.into_iter().collect();
        self.ask_drivers(&used).await?;
        Ok(self.drivers != before)
    }

    /// Brings the picture up to date; answers whether routes may have changed, so that it must be taken anew.
    pub(super) fn handle_event(&mut self, event: &Event) -> bool {
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
            leaves_unfinished: self.leaves_unfinished(),
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

    /// Takes note of where the path runs, the devices of marked packets aside.
    pub(super) fn set_attached(&mut self, mut attached: BTreeMap<u32, Mode>) {
        attached.retain(|ifindex, _| self.marks.is_none_or(|pair| pair.exit != *ifindex));
        self.attached = attached;
        self.expected_native.clear();
    }

    /// Takes note of the devices of marked packets, if both are there.
    pub(super) fn adopt_marks(&mut self, way: Option<&MarkRouting>) {
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
}
