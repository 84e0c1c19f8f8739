//! Caches the state of the host's network, and computes next hops, devices and interfaces from it.
//!
//! The cache contains links, addresses, neighbors and the kernel's routes to servers. Changes to the network (managed
//! neighbors, added addresses) are returned to the caller, which can then record and revert them.

mod frame_address;
mod hop;
mod interface;
mod last_mac;
mod mode;
mod neighbor;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_dataplane::Mode;
use weir_netlink::{Event, NetState, Netlink, RouteKind, Sysctl, XdpFeatures};
use weir_planner::mark::Pair;
use weir_planner::rows::NetworkState;

use crate::error::Result;
use crate::mark_routing::MarkRouting;
use crate::route_index::RouteIndex;
use last_mac::LastMacs;

pub(crate) use self::hop::{Hops, tick};
pub(crate) use self::last_mac::NextHopChange;
pub(crate) use self::mode::Plan;
pub use self::mode::is_paravirtual;

/// Destinations that are routed through the default gateways: addresses in documentation prefixes, which no network
/// uses.
const DEFAULT_ROUTE_PROBES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1)),
];

/// The cached view and its netlink socket.
#[derive(Debug)]
pub(crate) struct Network {
    netlink: Netlink,
    state: NetState,
    servers: BTreeSet<IpAddr>,
    routes: RouteIndex,
    /// The device of each local address.
    address_devices: BTreeMap<IpAddr, u32>,
    /// Addresses that their former owner has handed over, with their prefix lengths.
    handed_over: BTreeMap<(u32, IpAddr), u8>,
    /// Whether addresses have changed since [`Network::clear_address_change`].
    addresses_changed: bool,
    /// Neighbors that the kernel keeps resolved for Weir.
    managed: BTreeSet<(u32, IpAddr)>,
    /// The last known MAC addresses of next hops whose entries have changed.
    last_macs: LastMacs,
    /// Current XDP features of each device's driver, by interface index.
    xdp_features: BTreeMap<u32, XdpFeatures>,
    /// Devices that the packet path is attached to, and its mode on each of them.
    pub(crate) attached: BTreeMap<u32, Mode>,
    /// Devices that the packet path is about to be attached to.
    expected: BTreeSet<u32>,
    /// Devices that native XDP is about to be attached to.
    expected_native: BTreeSet<u32>,
    /// The veth pair for marked packets.
    pub(crate) mark_devices: Option<Pair>,
    /// Whether free memory is below `amemthresh`.
    pub(crate) memory_is_low: bool,
}

/// The result of adding servers.
#[derive(Debug)]
pub(crate) struct Update {
    /// Servers whose rows may have changed.
    pub(crate) servers: BTreeSet<IpAddr>,
    /// Whether the whole view was refreshed.
    pub(crate) is_full_refresh: bool,
}

impl Network {
    /// Opens a netlink socket in the calling thread's network namespace. The cache is empty.
    ///
    /// # Errors
    /// Fails if the socket cannot be opened.
    pub(crate) fn open() -> Result<Self> {
        Ok(Self {
            netlink: Netlink::open()?,
            state: NetState::default(),
            servers: BTreeSet::new(),
            routes: RouteIndex::default(),
            address_devices: BTreeMap::new(),
            handed_over: BTreeMap::new(),
            addresses_changed: false,
            managed: BTreeSet::new(),
            last_macs: LastMacs::default(),
            xdp_features: BTreeMap::new(),
            attached: BTreeMap::new(),
            expected: BTreeSet::new(),
            expected_native: BTreeSet::new(),
            mark_devices: None,
            memory_is_low: false,
        })
    }

    /// Returns the netlink socket.
    pub(crate) fn netlink(&self) -> &Netlink {
        &self.netlink
    }

    /// Refreshes the view, for the servers of a configuration and removed servers that still have flows. Returns the
    /// servers whose rows may have changed.
    ///
    /// # Errors
    /// Fails if a table cannot be read.
    pub(crate) async fn refresh(&mut self, servers: BTreeSet<IpAddr>) -> Result<BTreeSet<IpAddr>> {
        let destinations = servers.iter().copied().chain(DEFAULT_ROUTE_PROBES);
        let state = self.netlink.state(destinations).await?;
        let previous = std::mem::replace(&mut self.state, state);
        let changed = servers
            .iter()
            .filter(|server| previous.lookups.get(server) != self.state.lookups.get(server))
            .copied()
            .collect();
        self.servers = servers;
        self.managed.clear();
        self.rebuild_indexes();
        let links: Vec<u32> = self.state.links.keys().copied().collect();
        self.query_drivers(&links).await?;
        Ok(changed)
    }

    /// Looks up the routes to new servers. Looks up the routes to all other servers again only if devices or addresses
    /// have changed: other route changes cause events.
    ///
    /// # Errors
    /// Fails if a table cannot be read.
    pub(crate) async fn update(&mut self, servers: impl Iterator<Item = IpAddr>) -> Result<Update> {
        let added: BTreeSet<IpAddr> = servers.filter(|it| !self.servers.contains(it)).collect();
        let tables = self.netlink.read_tables().await?;
        if !self.state.has_same_links_and_addresses(&tables) {
            let servers = self.servers.union(&added).copied().collect();
            return Ok(Update {
                servers: self.refresh(servers).await?,
                is_full_refresh: true,
            });
        }
        let destinations: Vec<IpAddr> = added.iter().copied().collect();
        let new_lookups = self.netlink.route_get_each(&destinations).await?;
        let lookups = std::mem::take(&mut self.state.lookups);
        self.state = NetState { lookups, ..tables };
        self.state
            .lookups
            .extend(destinations.into_iter().zip(new_lookups));
        for server in &added {
            self.routes.add(*server, &self.state);
        }
        self.servers.extend(&added);
        Ok(Update {
            servers: added,
            is_full_refresh: false,
        })
    }

    /// Adds and removes servers so that exactly these remain.
    ///
    /// # Errors
    /// Fails if a table cannot be read.
    pub(crate) async fn retain_servers(&mut self, servers: BTreeSet<IpAddr>) -> Result<()> {
        let unused: Vec<IpAddr> = self.servers.difference(&servers).copied().collect();
        self.remove_servers(unused.into_iter());
        if self.servers != servers {
            self.update(servers.into_iter()).await?;
        }
        Ok(())
    }

    /// Removes servers that are no longer used.
    pub(crate) fn remove_servers(&mut self, servers: impl Iterator<Item = IpAddr>) {
        for server in servers {
            if self.servers.remove(&server) {
                for unused in self.routes.remove(server, &self.state) {
                    self.last_macs.remove(unused);
                }
                self.state.lookups.remove(&server);
            }
        }
    }

    /// Rebuilds the indexes.
    fn rebuild_indexes(&mut self) {
        self.routes = RouteIndex::new(self.servers.iter(), &self.state);
        self.index_addresses();
    }

    fn index_addresses(&mut self) {
        let addresses = self.state.addresses.iter().rev();
        self.address_devices = addresses.map(|it| (it.ip, it.ifindex)).collect();
        let handed_over = self.state.addresses.iter().filter(|it| it.handed_over);
        self.handed_over = handed_over
            .map(|it| ((it.ifindex, it.ip), it.prefix))
            .collect();
        self.addresses_changed = true;
    }

    async fn query_drivers(&mut self, links: &[u32]) -> Result<()> {
        for ifindex in links {
            // A removed device sends nothing. If the kernel cannot report features, assume none.
            let features = self.netlink.xdp_features(*ifindex).await.ok().flatten();
            let features = features.unwrap_or(XdpFeatures { bits: 0 });
            self.xdp_features.insert(*ifindex, features);
        }
        Ok(())
    }

    /// Queries the drivers of used devices again: the features of a veth device depend on its peer. Returns whether any
    /// features changed.
    ///
    /// # Errors
    /// Returns no error at present: a device whose features cannot be read is treated as a device without features.
    pub(crate) async fn refresh_drivers(&mut self) -> Result<bool> {
        let previous = self.xdp_features.clone();
        let mut devices: BTreeSet<u32> = self.attached.keys().copied().collect();
        devices.extend(self.routes.ports());
        let devices: Vec<u32> = devices.into_iter().collect();
        self.query_drivers(&devices).await?;
        Ok(self.xdp_features != previous)
    }

    /// Applies an event. Returns whether routes may have changed and a refresh is necessary.
    pub(crate) fn handle_event(&mut self, event: &Event) -> bool {
        let routes_changed = self.state.apply(event);
        match event {
            // If routes have changed too, the refresh rebuilds the indexes.
            Event::Link { .. } if !routes_changed => self.rebuild_indexes(),
            Event::Address { .. } => self.index_addresses(),
            Event::Link { .. } | Event::Route { .. } | Event::Neighbor { .. } | Event::Lost => {}
        }
        routes_changed
    }

    /// Returns the network state that the rows of these servers depend on.
    pub(crate) fn network_state(&self, servers: impl Iterator<Item = IpAddr>) -> NetworkState {
        let mut network_state = NetworkState {
            learn_clients: self.learns_clients(),
            xdp_receives_partial_checksums: self.xdp_receives_partial_checksums(),
            mark_devices: self.mark_devices,
            memory_is_low: self.memory_is_low,
            ..NetworkState::default()
        };
        for server in servers {
            let Some(lookup) = self.state.lookups.get(&server) else {
                continue;
            };
            if lookup.kind == RouteKind::Local {
                network_state.local_addresses.insert(server);
            }
            if let Some(source) = lookup.prefsrc {
                network_state.sources.insert(server, source);
            }
        }
        network_state
    }

    /// Records where the packet path is attached, except on the exit device for marked packets.
    pub(crate) fn set_attached(&mut self, mut attached: BTreeMap<u32, Mode>) {
        attached.retain(|ifindex, _| self.mark_devices.is_none_or(|pair| pair.exit != *ifindex));
        self.attached = attached;
        self.expected.clear();
        self.expected_native.clear();
    }

    /// Records the veth pair for marked packets if both devices exist.
    pub(crate) fn adopt_marks(&mut self, routing: Option<&MarkRouting>) {
        self.mark_devices = routing.and_then(|routing| {
            Some(Pair {
                entry: self.index_of(&routing.entry)?,
                exit: self.index_of(&routing.exit)?,
            })
        });
    }

    /// Returns whether the data plane must take next hops toward clients from their packets.
    pub(crate) fn learns_clients(&self) -> bool {
        self.attached
            .keys()
            .any(|ifindex| !self.kernel_forwards(*ifindex))
    }

    /// Returns whether the kernel forwards packets from this device. If not, the kernel returns no routes for these
    /// packets.
    fn kernel_forwards(&self, ifindex: u32) -> bool {
        let Some(link) = self.state.links.get(&ifindex) else {
            return true;
        };
        // IPv4 addresses sort before IPv6 addresses.
        let families: BTreeSet<bool> = [self.servers.first(), self.servers.last()]
            .into_iter()
            .flatten()
            .map(IpAddr::is_ipv6)
            .collect();
        families.into_iter().all(|ipv6| {
            let sysctl = Sysctl::for_device(ipv6, &link.name, "forwarding");
            let value = sysctl.and_then(|sysctl| self.netlink.sysctl(&sysctl));
            // If the value is unreadable, assume that the kernel does not forward; this is safe in both cases.
            value.is_ok_and(|value| value != "0")
        })
    }
}
