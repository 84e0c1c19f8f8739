//! Defines the expected type and size of every shared map, and checks maps against them.
//!
//! The loader does not check the maps that it opens, and would use a map that is too small. Every map is therefore
//! compared with this table before it is adopted and after it is created.

use weir_abi::{
    Addr, BUCKET_SLOTS, Bucket, Budget, CLIENT_SLOTS, Client, Cost, Cursor, Dest, Device, Element,
    Filter, FlowCold, Fragment, FragmentKey, HINTS, HOPS_PER_DEST, Hints, Hop,
    LATENCY_REASON_COUNT, LATENCY_RINGS, LATENCY_SLOTS_LOG2, LatencyFlow, LatencyRing, Listener,
    Live, Locality, LocalityKey, MARKS_ROWS, MacRow, Marks, Probe, ProbeKey, REASON_COUNT,
    SYNC_BATCH, SYNC_RINGS, Service, Settings, Socket, SocketClient, SocketClientKey, SocketKey,
    SocketListener, SweepPublic, SyncFlow, SyncRing, Traffic, Vip,
};

use crate::error::{Error, Result};
use crate::layout::Sizes;
use crate::sys::MapInfo;

/// A group of maps that are handled alike when a size or the ABI changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Maps that user space writes and packets read; they refer to each other and are replaced together.
    Routing,
    /// Counts and caches that packets write; each map is kept if it fits.
    Counts,
    /// The flow table: kept if layout and size match, otherwise migrated.
    Flows,
}

/// The values of `enum bpf_map_type` that Weir uses.
const HASH: u32 = 1;
pub(crate) const ARRAY: u32 = 2;
const PERCPU_ARRAY: u32 = 6;
const LRU_HASH: u32 = 9;
const LPM_TRIE: u32 = 11;
/// The flags `BPF_F_NO_PREALLOC` and `BPF_F_MMAPABLE`.
const NO_PREALLOC: u32 = 1;
const MMAPABLE: u32 = 1 << 10;
/// Size in bytes of `struct bpf_timer`, which is at the end of the value of `weir_sweeps`.
const TIMER_SIZE: usize = 16;

/// Maximum number of concurrent probes through a service's path.
const MAX_PROBES: u32 = 4_096;

/// The expected properties of a shared map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapSpec {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    kind: u32,
    key_size: u32,
    value_size: u32,
    flags: u32,
    entries: fn(&Sizes) -> u32,
}

const fn mapped<T>(name: &'static str, group: Group, entries: fn(&Sizes) -> u32) -> MapSpec {
    MapSpec {
        name,
        group,
        kind: ARRAY,
        key_size: 4,
        value_size: size_of::<T>() as u32,
        flags: MMAPABLE,
        entries,
    }
}

const fn per_cpu<T>(name: &'static str, entries: fn(&Sizes) -> u32) -> MapSpec {
    let value_size = size_of::<T>() as u32;
    MapSpec {
        name,
        group: Group::Counts,
        kind: PERCPU_ARRAY,
        key_size: 4,
        value_size,
        flags: 0,
        entries,
    }
}

const fn hash<K, V>(
    name: &'static str,
    group: Group,
    kind: u32,
    flags: u32,
    entries: fn(&Sizes) -> u32,
) -> MapSpec {
    MapSpec {
        name,
        group,
        kind,
        key_size: size_of::<K>() as u32,
        value_size: size_of::<V>() as u32,
        flags,
        entries,
    }
}

/// All maps that the programs share and that outlive the programs.
pub(crate) const MAPS: &[MapSpec] = &[
    hash::<Addr, Vip>("weir_vips", Group::Routing, HASH, NO_PREALLOC, |sizes| {
        sizes.vips
    }),
    hash::<Listener, u32>(
        "weir_listeners",
        Group::Routing,
        HASH,
        NO_PREALLOC,
        |sizes| sizes.listeners,
    ),
    hash::<u32, Device>("weir_devices", Group::Routing, HASH, NO_PREALLOC, |sizes| {
        sizes.devices
    }),
    mapped::<Service>("weir_services", Group::Routing, |sizes| sizes.services),
    mapped::<Element>("weir_tables", Group::Routing, |sizes| sizes.elements),
    mapped::<Cursor>("weir_cursors", Group::Routing, |sizes| sizes.services),
    mapped::<Dest>("weir_dests", Group::Routing, |sizes| sizes.dests),
    mapped::<Hop>("weir_hops", Group::Routing, |sizes| {
        sizes.dests * HOPS_PER_DEST
    }),
    mapped::<Settings>("weir_settings", Group::Routing, |_| 1),
    mapped::<Filter>("weir_filters", Group::Routing, |_| 1),
    mapped::<MacRow>("weir_macs", Group::Counts, |_| MacRow::COUNT),
    mapped::<Live>("weir_live", Group::Counts, Sizes::live_rows),
    mapped::<Marks>("weir_marks", Group::Counts, |_| MARKS_ROWS),
    mapped::<Client>("weir_clients", Group::Counts, |_| CLIENT_SLOTS),
    mapped::<Cost>("weir_costs", Group::Counts, |sizes| sizes.dests),
    mapped::<LatencyFlow>("weir_latency_flows", Group::Counts, |_| {
        1 << LATENCY_SLOTS_LOG2
    }),
    mapped::<LatencyRing>("weir_latency_rings", Group::Counts, |_| LATENCY_RINGS),
    mapped::<SyncRing>("weir_sync_rings", Group::Counts, |_| SYNC_RINGS),
    mapped::<SyncFlow>("weir_sync_batch", Group::Counts, |_| SYNC_BATCH),
    per_cpu::<u64>("weir_latency_counts", |_| LATENCY_REASON_COUNT),
    per_cpu::<Traffic>("weir_traffic", |sizes| sizes.dests),
    per_cpu::<u64>("weir_reasons", |_| REASON_COUNT),
    per_cpu::<Budget>("weir_budgets", |_| 1),
    hash::<LocalityKey, Locality>("weir_localities", Group::Counts, LRU_HASH, 0, |sizes| {
        sizes.vips
    }),
    hash::<FragmentKey, Fragment>("weir_fragments", Group::Counts, LRU_HASH, 0, |sizes| {
        sizes.fragments
    }),
    hash::<ProbeKey, Probe>("weir_probes", Group::Counts, LRU_HASH, 0, |_| MAX_PROBES),
    MapSpec {
        name: "weir_sweeps",
        group: Group::Counts,
        kind: ARRAY,
        key_size: 4,
        value_size: (size_of::<SweepPublic>() + TIMER_SIZE) as u32,
        flags: 0,
        entries: |_| 1,
    },
    mapped::<Bucket>("weir_flows", Group::Flows, Sizes::buckets),
    mapped::<Hints>("weir_hints", Group::Flows, |sizes| {
        sizes.buckets().div_ceil(HINTS)
    }),
    mapped::<FlowCold>("weir_flows_cold", Group::Flows, |sizes| {
        sizes.buckets() * BUCKET_SLOTS
    }),
];

/// Maximum numbers of listeners for clients on this machine, of sockets, and of persistent clients.
const MAX_SOCKET_LISTENERS: u32 = 65_536;
const MAX_SOCKETS: u32 = 1 << 20;
const MAX_SOCKET_CLIENTS: u32 = 16_384;

/// The maps of the cgroup programs, which exist only while a service needs them; see [`crate::socket`].
pub(crate) const SOCKET_MAPS: &[MapSpec] = &[
    hash::<SocketListener, u32>(
        "weir_socket_listeners",
        Group::Counts,
        LPM_TRIE,
        NO_PREALLOC,
        |_| MAX_SOCKET_LISTENERS,
    ),
    hash::<SocketKey, Socket>("weir_sockets", Group::Counts, HASH, NO_PREALLOC, |_| {
        MAX_SOCKETS
    }),
    hash::<SocketClientKey, SocketClient>(
        "weir_socket_clients",
        Group::Counts,
        LRU_HASH,
        0,
        |_| MAX_SOCKET_CLIENTS,
    ),
];

impl MapSpec {
    /// Returns the number of entries for these sizes.
    pub(crate) fn entries(&self, sizes: &Sizes) -> u32 {
        (self.entries)(sizes)
    }

    /// Compares a map with the expected properties.
    pub(crate) fn check(&self, sizes: &Sizes, found: &MapInfo) -> Result<()> {
        self.check_shape(found)?;
        self.compare("max_entries", self.entries(sizes), found.max_entries)
    }

    /// Compares a map with the expected properties except for the number of entries.
    pub(crate) fn check_shape(&self, found: &MapInfo) -> Result<()> {
        self.compare("type", self.kind, found.kind)?;
        self.compare("key size", self.key_size, found.key_size)?;
        self.compare("value size", self.value_size, found.value_size)?;
        self.compare("flags", self.flags, found.flags)
    }

    fn compare(&self, attribute: &'static str, expected: u32, found: u32) -> Result<()> {
        if expected == found {
            return Ok(());
        }
        Err(Error::MapMismatch {
            name: self.name.to_owned(),
            attribute,
            expected,
            found,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_rejects_map_with_different_properties() {
        let spec = &MAPS[0];
        let sizes = Sizes::default();
        let good = MapInfo {
            kind: spec.kind,
            id: 1,
            key_size: spec.key_size,
            value_size: spec.value_size,
            max_entries: spec.entries(&sizes),
            flags: spec.flags,
        };
        assert!(spec.check(&sizes, &good).is_ok());
        for (attribute, bad) in [
            ("type", MapInfo { kind: 2, ..good }),
            (
                "key size",
                MapInfo {
                    key_size: 4,
                    ..good
                },
            ),
            (
                "value size",
                MapInfo {
                    value_size: 8,
                    ..good
                },
            ),
            ("flags", MapInfo { flags: 0, ..good }),
            (
                "max_entries",
                MapInfo {
                    max_entries: good.max_entries / 2,
                    ..good
                },
            ),
        ] {
            match spec.check(&sizes, &bad) {
                Err(Error::MapMismatch {
                    attribute: found, ..
                }) => assert_eq!(found, attribute),
                other => panic!("{attribute}: {other:?}"),
            }
        }
    }

    #[test]
    fn default_sizes_use_less_than_118_mib() {
        let sizes = Sizes::default();
        let bytes: u64 = MAPS
            .iter()
            .filter(|spec| spec.kind == ARRAY || spec.kind == PERCPU_ARRAY)
            .map(|spec| {
                let cpus = if spec.kind == PERCPU_ARRAY { 2 } else { 1 };
                u64::from(spec.entries(&sizes)) * u64::from(spec.value_size) * cpus
            })
            .sum();
        assert!(bytes < 118 << 20, "{} MiB", bytes >> 20);
    }
}
