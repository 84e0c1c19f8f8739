//! Converts rows of services and servers to names that all directors share, and names back to rows. Also defines the
//! state and the counters of flow synchronization.

use std::net::IpAddr;
use std::time::Duration;

use foldhash::fast::RandomState;
use weir_abi::{
    SYNC_BUSY, SYNC_CONFLICT, SYNC_FULL, SYNC_GONE, SYNC_INSERTED, SYNC_OLDER, SYNC_UPDATED,
    Settings, TEMPLATE_PORT,
};
use weir_dataplane::SyncPositions;
use weir_model::{Family, Indexed, Ports, SchedulerKind};
use weir_planner::allocation::DestSlot;
use weir_planner::policy::template;
use weir_sync::ServiceId;

use super::sync_removed::RemovedServers;
use super::sync_source::SourceAddresses;
use super::unknown_servers::UnknownServers;
use crate::stored_state::EngineState;

/// A hash map with a fast hasher, because every synchronized flow needs lookups. The keys come only from the
/// configuration and other directors.
pub(super) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// Number of entries between the prefetch of an entry and its use. When its record is in the CPU cache, the record of
/// the reverse direction is prefetched too.
pub(super) const PREFETCH_DISTANCE: usize = 4;

/// Names of the service in a row.
#[derive(Clone, Debug)]
pub(super) struct ServiceNames {
    /// One of its listeners or marks; `None` = the service was removed from the configuration.
    pub(super) id: Option<ServiceId>,
    /// A listener with one port, which only this service has.
    pub(super) listener: Option<(u8, IpAddr, u16)>,
    /// Whether its flows have a firewall mark.
    pub(super) has_mark: bool,
    /// Scope of persistence: `TEMPLATE_*`.
    pub(super) scope: u8,
    /// Whether a peer can compute the server of a flow that it has no entry for: with `maglev` and without persistence.
    pub(super) is_computed: bool,
}

/// Name of the server in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerName {
    pub(super) generation: u32,
    pub(super) address: IpAddr,
    /// 0 = the port that the client uses.
    pub(super) port: u16,
}

/// The names of this director's services, and their rows.
#[derive(Debug, Default)]
pub(super) struct SyncIndex {
    pub(super) services: HashMap<u32, ServiceNames>,
    pub(super) servers: HashMap<u32, ServerName>,
    exact: HashMap<(u8, IpAddr, u16), u32>,
    any: HashMap<(u8, IpAddr), u32>,
    ranges: Vec<(u8, IpAddr, u16, u16, u32)>,
    marks: HashMap<(u32, u8), u32>,
    dests: HashMap<(u32, IpAddr, u16), (u32, u32)>,
}

fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

impl SyncIndex {
    /// Creates the index for a configuration with its allocated rows.
    pub(super) fn new(desired: &Indexed, state: &EngineState) -> Self {
        let mut index = Self::default();
        for service in desired
            .services
            .iter()
            .filter(|it| it.forward.handles_packets())
        {
            let Some(slot) = state.allocation.services.get(&service.name) else {
                continue;
            };
            let (mut id, mut first) = (None, None);
            for listener in &service.listen {
                let proto = listener.protocol.number();
                let port = match listener.ports {
                    Ports::One(port) => {
                        let key = (proto, listener.address, port);
                        index.exact.insert(key, slot.row);
                        first = first.or(Some(key));
                        port
                    }
                    Ports::Range(first, last) => {
                        index
                            .ranges
                            .push((proto, listener.address, first, last, slot.row));
                        first
                    }
                    Ports::Any => {
                        index.any.insert((proto, listener.address), slot.row);
                        0
                    }
                };
                id = id.or(Some(ServiceId::Listener(proto, listener.address, port)));
            }
            for mark in &service.marks {
                let key = (mark.mark.get(), family_number(mark.family));
                index.marks.insert(key, slot.row);
                id = id.or(Some(ServiceId::Mark(key.0, key.1)));
            }
            let scheduler = desired
                .pool(&service.pool)
                .map(|pool| pool.l4_scheduler().kind);
            index.services.insert(
                slot.row,
                ServiceNames {
                    id,
                    listener: first,
                    has_mark: !service.marks.is_empty(),
                    scope: template(service).scope,
                    is_computed: scheduler == Some(SchedulerKind::Maglev)
                        && service.persistence.is_none(),
                },
            );
            index.add_servers(&slot.dests);
            for dest in &slot.dests {
                let port = dest.port.unwrap_or(0);
                let key = (slot.row, dest.address, port);
                if dest.removed.is_none() {
                    index.dests.insert(key, (dest.id, dest.generation));
                } else {
                    index.dests.entry(key).or_insert((dest.id, dest.generation));
                }
            }
        }
        index.add_removed(state);
        index
    }

    /// Adds the services that were renamed or removed, because their flows continue. Peers find their service by the
    /// VIP and the port.
    fn add_removed(&mut self, state: &EngineState) {
        let slots = state.allocation.services.values();
        for slot in slots.filter(|slot| slot.removed) {
            self.add_servers(&slot.dests);
            let names = ServiceNames {
                id: None,
                listener: None,
                has_mark: false,
                scope: TEMPLATE_PORT,
                is_computed: false,
            };
            self.services.insert(slot.row, names);
        }
    }

    fn add_servers(&mut self, dests: &[DestSlot]) {
        for dest in dests {
            let name = ServerName {
                generation: dest.generation,
                address: dest.address,
                port: dest.port.unwrap_or(0),
            };
            self.servers.insert(dest.id, name);
        }
    }

    /// Returns whether a packet without a mark is for this service.
    pub(super) fn is_for(&self, row: u32, packet: (u8, IpAddr, u16)) -> bool {
        let service = self.services.get(&row);
        service.is_some_and(|it| it.listener == Some(packet))
            || self.service_at(packet.0, packet.1, packet.2) == Some(row)
    }

    /// Returns the service row for a packet without a mark.
    pub(super) fn service_at(&self, proto: u8, vip: IpAddr, port: u16) -> Option<u32> {
        if let Some(row) = self.exact.get(&(proto, vip, port)) {
            return Some(*row);
        }
        let mut ranges = self.ranges.iter();
        let range = ranges.find(|(range_proto, address, first, last, _)| {
            (*range_proto, *address) == (proto, vip) && (*first..=*last).contains(&port)
        });
        let any = || self.any.get(&(proto, vip)).copied();
        range.map(|(.., row)| *row).or_else(any)
    }

    /// Returns the row of the service with an ID that a peer sent.
    pub(super) fn service(&self, id: ServiceId) -> Option<u32> {
        match id {
            ServiceId::Listener(proto, address, port) => self.service_at(proto, address, port),
            ServiceId::Mark(mark, family) => self.marks.get(&(mark, family)).copied(),
        }
    }

    /// Returns the row and generation of a server.
    pub(super) fn server(&self, service: u32, address: IpAddr, port: u16) -> Option<(u32, u32)> {
        self.dests.get(&(service, address, port)).copied()
    }
}

/// Number of records from peers by result, and number of overwritten changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncCounts {
    /// New flows and templates.
    pub inserted: u64,
    /// Records that updated an existing flow.
    pub updated: u64,
    /// Records that are older than the last packet of their flow at this director.
    pub older: u64,
    /// Records with the tuple of a different live flow.
    pub conflict: u64,
    /// Records for which no slot was free.
    pub full: u64,
    /// Records that were not inserted because their bucket stayed locked.
    pub busy: u64,
    /// Records with a server row that was just freed, or that cannot have such a flow.
    pub gone: u64,
    /// Records for a service that this director does not have.
    pub unknown_service: u64,
    /// Records for a server that the service does not have on this director.
    pub unknown_server: u64,
    /// Records with values that are invalid for a flow.
    pub invalid: u64,
    /// Changes that were overwritten before they were read; the walk finds their flows.
    pub overwritten: u64,
}

impl SyncCounts {
    /// Returns the labels and numbers of the results of records.
    pub fn results(&self) -> [(&'static str, u64); 10] {
        [
            ("inserted", self.inserted),
            ("updated", self.updated),
            ("older", self.older),
            ("conflict", self.conflict),
            ("full", self.full),
            ("busy", self.busy),
            ("gone", self.gone),
            ("unknown_service", self.unknown_service),
            ("unknown_server", self.unknown_server),
            ("invalid", self.invalid),
        ]
    }

    pub(super) fn count(&mut self, result: u8) {
        let counter = match result {
            SYNC_INSERTED => &mut self.inserted,
            SYNC_UPDATED => &mut self.updated,
            SYNC_OLDER => &mut self.older,
            SYNC_CONFLICT => &mut self.conflict,
            SYNC_FULL => &mut self.full,
            SYNC_BUSY => &mut self.busy,
            _ => &mut self.gone,
        };
        debug_assert!(result <= SYNC_GONE);
        *counter += 1;
    }
}

/// The state of flow synchronization in the engine.
#[derive(Debug, Default)]
pub(super) struct Synchronizer {
    /// Whether synchronization is enabled; `None` = not set since the engine was opened.
    pub(super) enabled: Option<bool>,
    pub(super) positions: Option<SyncPositions>,
    /// For each entry, the tick of the last packet that was reported to the peers; 0 = none.
    pub(super) sent_ticks: Vec<u32>,
    pub(super) index: SyncIndex,
    /// Revision and generation that `index` was built for.
    pub(super) index_version: Option<(u64, u32)>,
    pub(super) settings: Settings,
    /// The next bucket of the walk.
    pub(super) walk_bucket: u32,
    /// Time at which the walk was last continued.
    pub(super) walked_at: Duration,
    /// Number of buckets to visit soon because `maglev` tables have changed: peers may compute different servers for
    /// the flows in these buckets.
    pub(super) recheck_buckets: u32,
    pub(super) counts: SyncCounts,
    /// Ring buffer of the entries to export next.
    pub(super) prefetched: [u32; PREFETCH_DISTANCE],
    pub(super) prefetched_at: usize,
    pub(super) sources: SourceAddresses,
    pub(super) removed: RemovedServers,
    pub(super) unknown: UnknownServers,
}
