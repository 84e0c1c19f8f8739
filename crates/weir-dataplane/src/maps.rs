//! Reads and writes the shared maps. Writes follow the order that packets rely on.
//!
//! A packet never treats a partly written next hop as ready; an address that stays in the filter always matches; a
//! service's extent changes atomically. The caller is responsible for the contents of rows.

use std::mem::offset_of;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_abi::{
    Addr, Budget, Client, Cost, Cursor, Dest, Device, Element, Filter, Fragment, FragmentKey,
    HOP_REDIRECT, HOP_SEND, HOPS_PER_DEST, Hop, HopParts, LatencyRing, Listener, Live, Locality,
    LocalityKey, MacRow, Probe, ProbeKey, REASON_COUNT, Range, Service, Settings, SweepPublic,
    SyncFlow, SyncRing, Traffic, Vip,
};

use crate::error::{Context, Error, Result};
use crate::extent::Extent;
use crate::flows::FlowTable;
use crate::mmap::Mapped;
use crate::pod::{self, Pod};
use crate::sys::{self, Access};
use crate::table::{PerCpu, Table};

/// The table of probes through a service's forwarding method; all running probes share it.
pub type ProbeTable = Arc<Table<ProbeKey, Probe>>;

/// Handles of all shared maps.
#[derive(Debug)]
pub struct Maps {
    /// Service and SNAT addresses.
    pub vips: Table<Addr, Vip>,
    /// Service rows by exact listener.
    pub listeners: Table<Listener, u32>,
    /// Devices by ifindex, with their XDP capabilities.
    pub devices: Table<u32, Device>,
    /// Servers by destination address, for `lblc` and `lblcr`.
    pub localities: Table<LocalityKey, Locality>,
    /// Probes through a service's forwarding method; the programs fill in the results.
    pub probes: ProbeTable,
    /// Records of fragmented datagrams.
    pub fragments: Table<FragmentKey, Fragment>,
    /// Service rows.
    pub services: Mapped<Service>,
    /// Extents: scheduler headers, lists, hash tables, SNAT addresses and port ranges.
    pub elements: Mapped<Element>,
    /// Scheduler state, one row per service.
    pub cursors: Mapped<Cursor>,
    /// Server rows.
    pub dests: Mapped<Dest>,
    /// Next hops, [`HOPS_PER_DEST`] per server row.
    pub hops: Mapped<Hop>,
    /// Next hops toward clients.
    pub clients: Mapped<Client>,
    /// Flow counts: server rows, then pool rows.
    pub live: Mapped<Live>,
    /// Packets and bytes, one per server row.
    pub traffic: PerCpu<Traffic>,
    /// Counters by reason.
    pub reasons: PerCpu<u64>,
    /// Windows of the SYN and reject budgets.
    pub budgets: PerCpu<Budget>,
    /// Published server costs, by server row.
    pub costs: Mapped<Cost>,
    /// Samples of the latency estimator.
    pub latency_rings: Mapped<LatencyRing>,
    /// Entry indexes of flows whose state has changed.
    pub sync_rings: Mapped<SyncRing>,
    /// Flows from a peer that are being inserted.
    pub sync_batch: Mapped<SyncFlow>,
    /// Counters of the latency estimator.
    pub latency_counts: PerCpu<u64>,
    /// The flow table.
    pub flows: FlowTable,
    pub(crate) macs: Mapped<MacRow>,
    settings: Mapped<Settings>,
    filters: Mapped<Filter>,
    sweeps: std::os::fd::OwnedFd,
}

impl Maps {
    /// Opens the pinned maps of a state directory and of a flow directory.
    pub(crate) fn open(state: &Path, flows: &Path, access: Access) -> Result<Self> {
        let open = |name: &str| {
            let path = state.join(name);
            sys::open_pin(&path, access).at(&path)
        };
        Ok(Self {
            vips: Table::new("weir_vips", open("weir_vips")?)?,
            listeners: Table::new("weir_listeners", open("weir_listeners")?)?,
            devices: Table::new("weir_devices", open("weir_devices")?)?,
            localities: Table::new("weir_localities", open("weir_localities")?)?,
            probes: Arc::new(Table::new("weir_probes", open("weir_probes")?)?),
            fragments: Table::new("weir_fragments", open("weir_fragments")?)?,
            services: Mapped::open("weir_services", state, access)?,
            elements: Mapped::open("weir_tables", state, access)?,
            cursors: Mapped::open("weir_cursors", state, access)?,
            dests: Mapped::open("weir_dests", state, access)?,
            hops: Mapped::open("weir_hops", state, access)?,
            clients: Mapped::open("weir_clients", state, access)?,
            live: Mapped::open("weir_live", state, access)?,
            traffic: PerCpu::new("weir_traffic", open("weir_traffic")?)?,
            reasons: PerCpu::new("weir_reasons", open("weir_reasons")?)?,
            budgets: PerCpu::new("weir_budgets", open("weir_budgets")?)?,
            costs: Mapped::open("weir_costs", state, access)?,
            latency_rings: Mapped::open("weir_latency_rings", state, access)?,
            sync_rings: Mapped::open("weir_sync_rings", state, access)?,
            sync_batch: Mapped::open("weir_sync_batch", state, access)?,
            latency_counts: PerCpu::new("weir_latency_counts", open("weir_latency_counts")?)?,
            flows: FlowTable::open(flows, access)?,
            macs: Mapped::open("weir_macs", state, access)?,
            settings: Mapped::open("weir_settings", state, access)?,
            filters: Mapped::open("weir_filters", state, access)?,
            sweeps: open("weir_sweeps")?,
        })
    }

    /// Sets the first element of a service's extent atomically. A packet that uses the new extent also sees all
    /// previous writes.
    ///
    /// # Errors
    /// Fails if the row is outside the map, or the map was opened read-only.
    pub fn set_extent(&self, service: u32, extent: u32) -> Result<()> {
        self.services
            .store_u32(service, offset_of!(Service, extent), extent)
    }

    /// Writes one of a server's next hops. Packets that read a partly written next hop take the slow path.
    ///
    /// # Errors
    /// Fails if the row is outside the map, `slot` is not below [`HOPS_PER_DEST`], or the map was opened read-only.
    pub fn set_hop(&self, dest: u32, slot: u32, hop: &Hop) -> Result<()> {
        let index = hop_index(dest, slot)?;
        self.hops.store_u64(index, offset_of!(Hop, link), 0)?;
        self.hops
            .store_u64(index, offset_of!(Hop, dmac), hop.dmac)?;
        self.hops
            .store_u64(index, offset_of!(Hop, smac), hop.smac)?;
        self.hops
            .store_u64(index, offset_of!(Hop, renewed), hop.renewed)?;
        self.hops.store_u64(index, offset_of!(Hop, link), hop.link)
    }

    /// Returns one of a server's next hops.
    ///
    /// # Errors
    /// Fails if the row is outside the map, or `slot` is not below [`HOPS_PER_DEST`].
    pub fn hop(&self, dest: u32, slot: u32) -> Result<Hop> {
        self.hops.get(hop_index(dest, slot)?)
    }

    /// Sets [`HOP_SEND`] and [`HOP_REDIRECT`] of the next hops toward clients to the value that `flags` returns for
    /// their device; `None` = unchanged. Without IP forwarding, the data plane takes these next hops from a flow's
    /// first packet and keeps them.
    ///
    /// # Errors
    /// Fails if the map was opened read-only.
    pub fn set_client_flags(&self, flags: impl Fn(u32) -> Option<u8>) -> Result<()> {
        const MASK: u64 = ((HOP_SEND | HOP_REDIRECT) as u64) << 16;
        let offset = offset_of!(Client, hop) + offset_of!(Hop, link);
        for index in 0..self.clients.entries() {
            let link = self.clients.atomic_u64(index, offset)?;
            let old = link.load(Ordering::Acquire);
            let parts = HopParts::from(Hop {
                link: old,
                ..Hop::ZERO
            });
            let Some(flags) = flags(parts.ifindex).filter(|_| old != 0) else {
                continue;
            };
            let new = old & !MASK | u64::from(flags) << 16 & MASK;
            // If a packet has just replaced the link value, the new value already has the current flags.
            let _ = link.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the run-time settings.
    ///
    /// # Errors
    /// Never fails: the map has one element.
    pub fn settings(&self) -> Result<Settings> {
        self.settings.get(0)
    }

    /// Replaces the settings word by word. A packet can be processed with a mix of old and new settings.
    ///
    /// # Errors
    /// Fails if the map was opened read-only.
    pub fn set_settings(&self, settings: &Settings) -> Result<()> {
        for (position, word) in pod::bytes(settings).chunks_exact(4).enumerate() {
            if let Some(word) = pod::from_bytes(word) {
                self.settings.store_u32(0, position * 4, word)?;
            }
        }
        Ok(())
    }

    /// Returns the address filter.
    ///
    /// # Errors
    /// Never fails: the map has one element.
    pub fn filter(&self) -> Result<Filter> {
        self.filters.get(0)
    }

    /// Replaces the address filter word by word. All bits of an address are in one word, so an address in both the old
    /// and the new filter always matches. Call it before the listeners of a new address are added, and after the
    /// listeners of an old address are removed.
    ///
    /// # Errors
    /// Fails if the map was opened read-only.
    pub fn set_filter(&self, filter: &Filter) -> Result<()> {
        for (position, word) in pod::bytes(filter).chunks_exact(8).enumerate() {
            if let Some(word) = pod::from_bytes(word) {
                self.filters.store_u64(0, position * 8, word)?;
            }
        }
        Ok(())
    }

    /// Writes values into the elements starting at `first`, padded to whole elements. Returns the number of elements
    /// used.
    ///
    /// # Errors
    /// Fails if the values do not fit in the map, or the map was opened read-only.
    pub fn set_elements<T: Pod>(&self, first: u32, values: &[T]) -> Result<u32> {
        let elements = elements_of(values);
        self.elements.set_all(first, &elements)?;
        Ok(elements.len() as u32)
    }

    /// Returns a row with flow counts.
    ///
    /// # Errors
    /// Fails if the row is outside the map.
    pub fn live(&self, row: u32) -> Result<Live> {
        self.live.get(row)
    }

    /// Returns a server's packets and bytes, summed over all CPUs.
    ///
    /// # Errors
    /// Fails if the row is outside the map.
    pub fn traffic(&self, dest: u32) -> Result<Traffic> {
        Ok(sum_traffic(&self.traffic.get(dest)?))
    }

    /// Returns the packets and bytes of every server row, with few system calls.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn all_traffic(&self) -> Result<Vec<Traffic>> {
        sums_of_traffic(&self.traffic)
    }

    /// Returns the counters summed over all CPUs, by reason number.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn reasons(&self) -> Result<Vec<u64>> {
        let mut sums = vec![0u64; REASON_COUNT as usize];
        self.reasons.for_each(|reason, values| {
            if let Some(sum) = sums.get_mut(reason as usize) {
                *sum = values.iter().copied().fold(0, u64::wrapping_add);
            }
        })?;
        Ok(sums)
    }

    /// Sets the thresholds of the server whose counts are in `row`. As in the kernel (ip_vs_ctl.c,
    /// `__ip_vs_update_dest`), a higher threshold makes an overloaded server available immediately. Returns whether
    /// this happened.
    ///
    /// # Errors
    /// Fails if the row is outside the map, or the map was opened read-only.
    pub fn set_thresholds(&self, row: u32, upper: u32, lower: u32) -> Result<bool> {
        let before = self.live(row)?;
        if (before.upper, before.lower) == (upper, lower) {
            return Ok(false);
        }
        self.live.store_u32(row, offset_of!(Live, lower), lower)?;
        self.live.store_u32(row, offset_of!(Live, upper), upper)?;
        let raised = upper == 0 || upper > before.upper;
        if raised {
            self.live.store_u32(row, offset_of!(Live, overloaded), 0)?;
        }
        Ok(raised && before.overloaded != 0)
    }

    /// Resets a server row's counts and traffic before the row is reused for another server.
    ///
    /// # Errors
    /// Fails if the row is outside the map, or the map was opened read-only.
    pub fn reset_counts(&self, dest: u32) -> Result<()> {
        self.live.set(dest, &Live::ZERO)?;
        self.traffic.reset(dest)
    }

    /// Returns the sweep's counters.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn sweep(&self) -> Result<SweepPublic> {
        use std::os::fd::AsFd;
        let info = sys::map_info(self.sweeps.as_fd())
            .during("read the properties of map", || "weir_sweeps".to_owned())?;
        let mut value = vec![0u8; info.value_size as usize];
        let found = read_first(&self.sweeps, &mut value);
        found.during("read map", || "weir_sweeps".to_owned())?;
        pod::from_bytes(&value).ok_or(Error::Index {
            map: "weir_sweeps",
            index: 0,
            entries: 1,
        })
    }

    /// Returns the extents that a service row refers to, which can overlap.
    ///
    /// # Errors
    /// Fails if the row is outside the map, or refers to elements outside their map.
    pub fn extents_of(&self, service: &Service) -> Result<Vec<Extent>> {
        let mut runs = vec![(service.snat_at, u32::from(service.snat_len))];
        if service.extent != 0 {
            runs.push((service.extent, HEADER_ELEMENTS));
            let header = self.elements.get_all(service.extent, HEADER_ELEMENTS)?;
            if let Some(header) = pod::from_bytes::<weir_abi::Extent>(pod::slice_bytes(&header)) {
                runs.push((header.list_at, header.list_len));
                runs.push((header.hash_at, header.hash_len.div_ceil(4)));
                runs.push((header.spread_at, header.spread_len.div_ceil(4)));
                runs.push((header.former_at, header.former_len.div_ceil(4)));
                runs.push((header.tree_at, header.tree_width / 4));
            }
        }
        let used = runs
            .into_iter()
            .filter(|(at, length)| *at != 0 && *length != 0);
        Ok(used.map(|(at, length)| Extent { at, length }).collect())
    }

    /// Returns the port ranges of a VIP.
    ///
    /// # Errors
    /// Fails if the VIP refers to elements outside the map.
    pub fn ranges(&self, vip: &Vip) -> Result<Vec<Range>> {
        let elements = self.elements.get_all(vip.ranges_at, vip.ranges_len)?;
        Ok(elements
            .iter()
            .filter_map(|element| pod::from_bytes(pod::bytes(element)))
            .collect())
    }

    /// Returns `count` values of `T` starting at element `first`, as written by [`Self::set_elements`].
    ///
    /// # Errors
    /// Fails if the values are outside the map.
    pub fn elements_as<T: Pod>(&self, first: u32, count: u32) -> Result<Vec<T>> {
        let bytes = count as usize * size_of::<T>();
        let elements = self
            .elements
            .get_all(first, bytes.div_ceil(size_of::<Element>()) as u32)?;
        let values = pod::slice_bytes(&elements).chunks_exact(size_of::<T>());
        Ok(values
            .take(count as usize)
            .filter_map(pod::from_bytes)
            .collect())
    }
}

/// Number of elements in an extent header.
const HEADER_ELEMENTS: u32 = (size_of::<weir_abi::Extent>() / size_of::<Element>()) as u32;

#[allow(unsafe_code, reason = "the buffer is sized by the map's information")]
fn read_first(map: &std::os::fd::OwnedFd, value: &mut [u8]) -> std::io::Result<Option<()>> {
    use std::os::fd::AsFd;
    // SAFETY: an array's key has four bytes; the value has the size reported by the kernel.
    unsafe { sys::lookup(map.as_fd(), pod::bytes(&0u32), value) }
}

fn hop_index(dest: u32, slot: u32) -> Result<u32> {
    match dest.checked_mul(HOPS_PER_DEST) {
        Some(first) if slot < HOPS_PER_DEST => Ok(first + slot),
        _ => Err(Error::Index {
            map: "weir_hops",
            index: slot,
            entries: HOPS_PER_DEST,
        }),
    }
}

/// Returns the packets and bytes of every row, summed over all CPUs.
pub(crate) fn sums_of_traffic(traffic: &PerCpu<Traffic>) -> Result<Vec<Traffic>> {
    let mut rows = vec![Traffic::ZERO; traffic.entries() as usize];
    traffic.for_each(|row, values| {
        if let Some(sum) = rows.get_mut(row as usize) {
            *sum = sum_traffic(values);
        }
    })?;
    Ok(rows)
}

fn sum_traffic(values: &[Traffic]) -> Traffic {
    values.iter().fold(Traffic::ZERO, |sum, value| Traffic {
        packets_in: sum.packets_in.wrapping_add(value.packets_in),
        bytes_in: sum.bytes_in.wrapping_add(value.bytes_in),
        packets_out: sum.packets_out.wrapping_add(value.packets_out),
        bytes_out: sum.bytes_out.wrapping_add(value.bytes_out),
    })
}

/// Packs values into elements, and pads the last element with zeros.
pub fn elements_of<T: Pod>(values: &[T]) -> Vec<Element> {
    let bytes = pod::slice_bytes(values);
    bytes
        .chunks(size_of::<Element>())
        .map(|chunk| {
            let mut whole = [0u8; size_of::<Element>()];
            whole[..chunk.len()].copy_from_slice(chunk);
            pod::from_bytes(&whole).unwrap_or_default()
        })
        .collect()
}

/// Waits until every packet that is currently in the data plane has left it.
///
/// Programs run in RCU read-side critical sections, and membarrier(2) on all CPUs waits until these end. If the call
/// fails (nohz_full), this function sleeps for a second instead.
#[allow(unsafe_code, reason = "membarrier(2) has no safe wrapper")]
pub fn wait_for_packets() {
    const GLOBAL: libc::c_long = 1;
    // SAFETY: membarrier(2) takes no pointers.
    if unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } != 0 {
        std::thread::sleep(Duration::from_secs(1));
    }
}
