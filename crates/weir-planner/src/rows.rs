//! Plans the rows of one service as plain values; [`super::row_set`] aggregates the rows of all services.
//!
//! Rows are a function of the desired state, the allocation and the network state. weir-engine determines next hops and
//! the order in which rows are written.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_abi::{
    Addr, Be16, DEST_LIVE, DEST_LOCAL, DEST_RESCHEDULE, DEST_RESET, DEST_SNAT, DEST_STRICT,
    DEST_USABLE, Dest, Range, SERVICE_DROP_NO_SERVER, SERVICE_ONE_PACKET, SERVICE_SNAT,
    SERVICE_STRICT, Settings, TUNNEL_CSUM, TUNNEL_REMCSUM, VIP_ECHO, VIP_SILENT, VIP_SNAT, Vip,
    ticks_from,
};
use weir_flow::{abi_forward, abi_tunnel};
use weir_model::{
    Family, Forward, Indexed, NoServer, Ports, Protocol, Server, Service, Sharing, Snat,
    TunnelChecksum,
};

use crate::Result;
use crate::allocation::{DestSlot, Removal, ServiceSlot, configured_server, staged_server};
use crate::extent::{Rule, Tables, tables};
use crate::mark::{self, Pair};
use crate::policy::{self, RemovedFlags, Template};

/// Maximum number of ICMP errors that each CPU sends per second. The kernel's limit is also 1000 per second
/// (`icmp_msgs_per_sec`).
const MAX_REJECTS_PER_SECOND: u32 = 1_000;

/// The network state that rows depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkState {
    /// The director's own addresses.
    pub local_addresses: BTreeSet<IpAddr>,
    /// The source address of the director's own packets, by server.
    pub sources: BTreeMap<IpAddr, IpAddr>,
    /// Whether to take next hops to clients from the clients' packets: an interface has forwarding disabled, so the
    /// kernel returns no routes for packets from it.
    pub learn_clients: bool,
    /// Whether XDP runs on an interface that receives packets with partial checksums.
    pub xdp_receives_partial_checksums: bool,
    /// The devices through which marked packets reach the data plane.
    pub mark_devices: Option<Pair>,
    /// Whether free memory is below `amemthresh`.
    pub memory_is_low: bool,
}

/// A service's row, without the positions of its tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRow {
    /// `SERVICE_*` flags.
    pub flags: u32,
    /// SNAT source addresses.
    pub snat_addresses: Vec<Addr>,
    /// First and last SNAT source port.
    pub snat_ports: (u16, u16),
    /// DSCP value for L3DSR.
    pub dscp: u8,
    /// Persistence template: timeout, prefix lengths and scope.
    pub template: Template,
    /// Row generation.
    pub generation: u32,
    /// The scheduler's tables.
    pub tables: Tables,
}

/// A VIP's row, without the position of its ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VipRow {
    /// `VIP_*` flags.
    pub flags: u32,
    /// Service row for all other TCP ports; 0 = none.
    pub any_tcp: u32,
    /// Service row for all other UDP ports; 0 = none.
    pub any_udp: u32,
    /// Port ranges, sorted by protocol and first port.
    pub ranges: Vec<Range>,
}

impl ServiceRow {
    /// Converts the row to its BPF map value. `extent` and `snat_at` are the indices of the first elements of its
    /// tables and of its SNAT source addresses.
    #[must_use]
    pub fn to_record(&self, extent: u32, snat_at: u32) -> weir_abi::Service {
        weir_abi::Service {
            flags: self.flags,
            extent,
            snat_at,
            snat_len: self.snat_addresses.len() as u16,
            snat_port_first: self.snat_ports.0,
            snat_port_last: self.snat_ports.1,
            dscp: self.dscp,
            generation: self.generation,
            template_ticks: self.template.ticks,
            template_prefix4: self.template.prefix4,
            template_prefix6: self.template.prefix6,
            template_scope: self.template.scope,
            ..weir_abi::Service::ZERO
        }
    }
}

impl VipRow {
    /// Converts the row to its BPF map value. `ranges_at` is the index of the first element of its ranges.
    #[must_use]
    pub fn to_record(&self, ranges_at: u32) -> Vip {
        Vip {
            flags: self.flags,
            any_tcp: self.any_tcp,
            any_udp: self.any_udp,
            ranges_at,
            ranges_len: self.ranges.len() as u32,
            ..Vip::ZERO
        }
    }

    /// Merges another service's contribution into the row.
    pub fn merge(&mut self, other: &Self) {
        self.flags |= other.flags;
        self.any_tcp = self.any_tcp.max(other.any_tcp);
        self.any_udp = self.any_udp.max(other.any_udp);
        self.ranges.extend(&other.ranges);
    }
}

/// An exact listener: address, port and protocol number. See [`mark::listener`] for marks.
pub type ListenerKey = (IpAddr, u16, u8);

/// Converts an exact listener to its BPF map key.
#[must_use]
pub fn listener_key((address, port, proto): ListenerKey) -> weir_abi::Listener {
    weir_abi::Listener {
        addr: address.into(),
        port: Be16::new(port),
        proto,
        ..weir_abi::Listener::ZERO
    }
}

/// The rows of one service, and its contributions to shared rows.
#[derive(Debug, Default)]
pub struct ServiceRows {
    /// The service's row, by row number; empty if the service was removed.
    pub services: BTreeMap<u32, ServiceRow>,
    /// Its servers' rows, by row number.
    pub dests: BTreeMap<u32, Dest>,
    /// Upper and lower connection thresholds, by server row.
    pub thresholds: BTreeMap<u32, (u32, u32)>,
    /// New flags for its removed servers' rows, by row number.
    pub removed_flags: BTreeMap<u32, RemovedFlags>,
    /// Service rows, by exact listener.
    pub listeners: BTreeMap<ListenerKey, u32>,
    /// The service's contribution to each VIP's row.
    pub vips: BTreeMap<IpAddr, VipRow>,
    /// Addresses to which clients send packets.
    pub destinations: BTreeSet<IpAddr>,
    /// Addresses of servers whose replies pass through the director, and of removed servers.
    pub sources: BTreeSet<IpAddr>,
    /// Whether one of the service's `nat` servers has one of the director's addresses.
    pub local_nat: bool,
}

/// Plans the rows of a service.
///
/// # Errors
/// Fails if the service's tables cannot be built.
pub fn service_rows(
    desired: &Indexed,
    name: &str,
    slot: &ServiceSlot,
    network: &NetworkState,
    dest_rows: u32,
) -> Result<ServiceRows> {
    let mut service_rows = ServiceRows::default();
    if let Some(service) = desired.service(name) {
        service_rows.add_dests(desired, service, slot, network, dest_rows);
        service_rows.add_service(desired, service, slot, network, dest_rows)?;
        service_rows.add_listeners(desired, service, slot.row);
    }
    let strict = desired
        .service(name)
        .is_some_and(|service| service.strict_ipvs);
    for dest in &slot.dests {
        // The row of a server that another version of the configuration contains is written completely.
        let removed = dest
            .removed
            .filter(|_| !service_rows.dests.contains_key(&dest.id));
        if let Some(removal) = removed {
            let flags = policy::removed_flags(removal, strict, &desired.ipvs);
            service_rows.removed_flags.insert(dest.id, flags);
            // With `nat`, replies for its remaining flows still pass through the director.
            service_rows.sources.insert(dest.address);
            service_rows.local_nat |= network.local_addresses.contains(&dest.address);
        }
    }
    service_rows
        .destinations
        .extend(service_rows.vips.keys().chain(&slot.addresses));
    Ok(service_rows)
}

/// Returns the `DEST_*` flags for flows to a removed or failed server.
fn flow_end_flags(removal: Removal) -> u8 {
    match removal {
        Removal::Keep => 0,
        Removal::Reset => DEST_RESET,
        Removal::Reschedule => DEST_RESCHEDULE,
    }
}

impl ServiceRows {
    fn add_dests(
        &mut self,
        desired: &Indexed,
        service: &Service,
        slot: &ServiceSlot,
        network: &NetworkState,
        dest_rows: u32,
    ) {
        for dest in &slot.dests {
            let server = match dest.removed {
                None => configured_server(desired, service, dest),
                Some(_) => staged_server(desired, service, dest),
            };
            let Some(server) = server else {
                continue;
            };
            let forward = server.forward_in(service);
            let row = Dest {
                policy: policy::policy(dest, &desired.ipvs),
                ..dest_row(service, slot.row, dest, server, network, dest_rows)
            };
            if forward == Forward::Nat {
                self.sources.insert(dest.address);
                self.local_nat |= row.flags & DEST_LOCAL != 0;
            }
            self.thresholds
                .insert(dest.id, (server.max_connections, server.min_connections));
            self.dests.insert(dest.id, row);
        }
    }

    fn add_service(
        &mut self,
        desired: &Indexed,
        service: &Service,
        slot: &ServiceSlot,
        network: &NetworkState,
        dest_rows: u32,
    ) -> Result<()> {
        let pool = desired.pool(&service.pool);
        let mut flags = 0;
        if pool.is_some_and(|pool| pool.no_server == NoServer::Drop) {
            flags |= SERVICE_DROP_NO_SERVER;
        }
        if service.strict_ipvs {
            flags |= SERVICE_STRICT;
        }
        if service.one_packet {
            flags |= SERVICE_ONE_PACKET;
        }
        let mut snat_addresses = BTreeSet::new();
        if let Some(configured_snat) = &service.snat {
            flags |= SERVICE_SNAT;
            snat_addresses = snat_sources(configured_snat, service, slot, network);
            for address in &snat_addresses {
                self.vips.entry(*address).or_default().flags |= VIP_SNAT;
            }
        }
        let rule = rule(desired, service, dest_rows);
        let tables = tables(&service.name, slot, &rule)?;
        for (dest, place) in tables.positions() {
            if let Some(row) = self.dests.get_mut(&dest) {
                row.place = place;
            }
        }
        let row = ServiceRow {
            flags,
            snat_addresses: snat_addresses.into_iter().map(Addr::from).collect(),
            snat_ports: service
                .snat
                .as_ref()
                .map_or((0, 0), |snat| snat_ports(desired, snat)),
            dscp: if service.forward == Forward::L3dsr {
                service.dscp
            } else {
                0
            },
            template: policy::template(service),
            generation: slot.generation,
            tables,
        };
        self.services.insert(slot.row, row);
        Ok(())
    }

    fn add_listeners(&mut self, desired: &Indexed, service: &Service, row: u32) {
        // Packets to a socket service's VIP are passed to the kernel; its listeners are in a separate map
        // (`crate::socket`).
        if !service.forward.handles_packets() {
            return;
        }
        for listener in &service.listen {
            let vip = self.vips.entry(listener.address).or_default();
            vip.flags |= VIP_ECHO;
            if !desired.accepts(listener.address) {
                vip.flags |= VIP_SILENT;
            }
            let proto = listener.protocol.number();
            match (listener.ports, listener.protocol) {
                (Ports::One(port), _) => {
                    self.listeners.insert((listener.address, port, proto), row);
                }
                (Ports::Range(first, last), _) => {
                    vip.ranges.push(Range {
                        first,
                        last,
                        proto,
                        service: row,
                        ..Range::ZERO
                    });
                }
                (Ports::Any, Protocol::Tcp) => vip.any_tcp = row,
                (Ports::Any, Protocol::Udp) => vip.any_udp = row,
            }
        }
        for mark in &service.marks {
            self.listeners.insert(mark::listener(mark), row);
        }
    }
}

/// Returns the inputs for a service's tables, except its servers.
pub fn rule(desired: &Indexed, service: &Service, dest_rows: u32) -> Rule {
    let pool = desired.pool(&service.pool);
    let scheduler = pool.map(weir_model::Pool::l4_scheduler);
    let port = match service.listen.as_slice() {
        [listener] => match listener.ports {
            Ports::One(port) => port,
            Ports::Range(..) | Ports::Any => 0,
        },
        _ => 0,
    };
    Rule {
        scheduler: scheduler.unwrap_or(weir_model::Scheduler::L4_DEFAULT),
        strict: service.strict_ipvs,
        port,
        dest_rows,
        is_tree_disabled: desired.sharing(&service.pool) == Sharing::Many,
        in_group: desired.cluster.is_some(),
        has_second_hop: pool.is_some_and(|pool| desired.has_second_hop(service, pool)),
    }
}

/// Returns the source port range that this director uses. Directors with `[sync]` divide the ports: a director learns
/// which ports the others use only after a delay, and can receive a flow from a peer at any time.
fn snat_ports(desired: &Indexed, snat: &Snat) -> (u16, u16) {
    match &desired.sync {
        // A range that cannot be divided is a configuration error. In that case, flows are dropped with
        // `drop_no_place`.
        Some(sync) => sync.own_ports(snat.ports).unwrap_or((1, 0)),
        None => snat.ports,
    }
}

/// Returns the SNAT source addresses in the service's address family: the configured addresses, or, if none are
/// configured, the source addresses of the director's own packets to the servers.
fn snat_sources(
    configured_snat: &Snat,
    service: &Service,
    slot: &ServiceSlot,
    network: &NetworkState,
) -> BTreeSet<IpAddr> {
    let family = service.family();
    let matches_family =
        |address: &IpAddr| family.is_none_or(|family| Family::of(*address) == family);
    if !configured_snat.addresses.is_empty() {
        return configured_snat
            .addresses
            .iter()
            .copied()
            .filter(matches_family)
            .collect();
    }
    let servers = slot.dests.iter().map(|dest| dest.address);
    servers
        .filter_map(|server| network.sources.get(&server).copied())
        .filter(matches_family)
        .collect()
}

fn dest_row(
    service: &Service,
    service_row: u32,
    dest: &DestSlot,
    server: &Server,
    network: &NetworkState,
    dest_rows: u32,
) -> Dest {
    let (forward, tunnel) = (server.forward_in(service), server.tunnel_in(service));
    let mut flags = DEST_LIVE | dest.failed.map_or(0, flow_end_flags);
    let mut set_if = |flag: u8, condition: bool| flags |= if condition { flag } else { 0 };
    set_if(DEST_USABLE, dest.effective > 0);
    set_if(DEST_LOCAL, network.local_addresses.contains(&dest.address));
    set_if(DEST_STRICT, service.strict_ipvs);
    set_if(DEST_SNAT, forward == Forward::Nat && service.snat.is_some());
    let source = network
        .sources
        .get(&dest.address)
        .filter(|_| forward == Forward::Tunnel);
    Dest {
        addr: dest.address.into(),
        tunnel_source: source.map_or(Addr::ZERO, |source| (*source).into()),
        service: service_row,
        live: dest.shared.map_or(dest.id, |row| dest_rows + row),
        port: Be16::new(dest.port.filter(|_| forward.rewrites_port()).unwrap_or(0)),
        forward: abi_forward(forward) as u8,
        flags,
        tunnel: abi_tunnel(tunnel.kind) as u8,
        tunnel_flags: match tunnel.checksum {
            TunnelChecksum::None => 0,
            TunnelChecksum::Full => TUNNEL_CSUM,
            TunnelChecksum::Remote => TUNNEL_REMCSUM,
        },
        tunnel_port: Be16::new(tunnel.port),
        dscp: if forward == Forward::L3dsr {
            service.dscp
        } else {
            0
        },
        family: if dest.address.is_ipv4() { 4 } else { 6 },
        generation: dest.generation,
        ..Dest::ZERO
    }
}

/// Returns the data plane settings, without the flags that depend on the servers and the network.
pub fn settings(desired: &Indexed) -> Settings {
    let weir_model::Timeouts { tcp, tcp_fin, udp } = desired.timeouts;
    let ipvs = &desired.ipvs;
    Settings {
        timeouts: weir_flow::timeout::Timeouts { tcp, tcp_fin, udp }.ticks(),
        syn_budget: desired.node.syn_budget,
        reject_budget: MAX_REJECTS_PER_SECOND,
        flags: policy::ipvs_settings(&desired.ipvs) | policy::probe_flags(desired),
        untracked_ticks: ticks_from(tcp),
        lblc_expiration: ticks_from(ipvs.lblc_expiration),
        lblcr_expiration: ticks_from(ipvs.lblcr_expiration),
        ..Settings::ZERO
    }
}
