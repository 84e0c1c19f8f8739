//! Recovers the row allocation from pinned maps if the state file is lost.
//!
//! Services are identified by their listeners or marks, servers by address and port within a service. A server that
//! has a row but is not in the configuration becomes a removed server: its flows continue, and the row is not reused
//! while they exist.

use std::collections::BTreeMap;

use weir_abi::{DEST_LIVE, Dest, Extent, Listener, Member};
use weir_dataplane::Maps;
use weir_model::{Indexed, Ports, Protocol, Service};
use weir_planner::allocation::{Allocation, DestSlot, Removal, ServiceSlot, StoredStart};
use weir_planner::scheduler::number;
use weir_planner::{Totals, mark};

use crate::error::Result;
use crate::write::listener;

/// Recovers the allocation from the maps.
///
/// # Errors
/// Fails if the maps cannot be read.
pub(crate) fn recover_allocation(
    maps: &Maps,
    desired: &Indexed,
    dest_rows: u32,
    now_ms: u64,
) -> Result<Allocation> {
    let mut allocation = Allocation::default();
    let mut dests_by_row: BTreeMap<u32, Vec<(u32, Dest)>> = BTreeMap::new();
    for id in 1..maps.dests.entries() {
        let dest = maps.dests.get(id)?;
        if dest.flags & DEST_LIVE != 0 {
            allocation.last_generation = allocation.last_generation.max(dest.generation);
            dests_by_row
                .entry(dest.service)
                .or_default()
                .push((id, dest));
        }
    }
    for service in &desired.services {
        let Some(row) = find_row(maps, service)? else {
            continue;
        };
        let Some(dests) = dests_by_row.remove(&row) else {
            continue;
        };
        let slot = recover_slot(maps, desired, service, row, dests, now_ms)?;
        allocation.last_generation = allocation.last_generation.max(slot.generation);
        allocation.services.insert(service.name.clone(), slot);
    }
    for (row, dests) in dests_by_row {
        let mut slot = empty_slot(row, maps.services.get(row)?.generation);
        slot.removed = true;
        slot.addresses = maps
            .vips
            .keys()?
            .into_iter()
            .map(|addr| addr.to_ip())
            .collect();
        slot.dests = dests
            .iter()
            .map(|(id, dest)| dest_slot(*id, dest, 0, now_ms))
            .collect();
        allocation.services.insert(format!("(row {row})"), slot);
    }
    // Shared counters are not recovered: they are reallocated, and start with the sums of the per-server counters.
    debug_assert!(allocation.dests().all(|(_, dest)| dest.id < dest_rows));
    Ok(allocation)
}

/// Returns the row that one of the service's listeners or marks refers to.
fn find_row(maps: &Maps, service: &Service) -> Result<Option<u32>> {
    for listener in &service.listen {
        let proto = listener.protocol.number();
        let row = match listener.ports {
            Ports::One(port) => {
                let key = Listener {
                    addr: listener.address.into(),
                    port: port.into(),
                    proto,
                    ..Listener::ZERO
                };
                maps.listeners.get(&key)?
            }
            Ports::Range(first, last) => match maps.vips.get(&listener.address.into())? {
                Some(vip) => {
                    let ranges = maps.ranges(&vip)?;
                    let is_same = |range: &&weir_abi::Range| {
                        (range.proto, range.first, range.last) == (proto, first, last)
                    };
                    ranges.iter().find(is_same).map(|range| range.service)
                }
                None => None,
            },
            Ports::Any => {
                maps.vips
                    .get(&listener.address.into())?
                    .map(|vip| match listener.protocol {
                        Protocol::Tcp => vip.any_tcp,
                        Protocol::Udp => vip.any_udp,
                    })
            }
        };
        if let Some(row) = row.filter(|row| *row != 0) {
            return Ok(Some(row));
        }
    }
    for mark in &service.marks {
        if let Some(row) = maps.listeners.get(&listener(mark::listener(mark)))? {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

fn empty_slot(row: u32, generation: u32) -> ServiceSlot {
    ServiceSlot {
        row,
        generation,
        scheduler: String::new(),
        start: StoredStart {
            generation: 0,
            last_seq: 0,
            pass_weight: 0,
            max_weight: 0,
            step: 1,
        },
        last_seq: 0,
        dests: Vec::new(),
        retired: Totals::default(),
        removed: false,
        addresses: std::collections::BTreeSet::new(),
        marks: std::collections::BTreeSet::new(),
        agreed: weir_planner::allocation::GroupServerVersions::default(),
    }
}

fn recover_slot(
    maps: &Maps,
    desired: &Indexed,
    service: &Service,
    row: u32,
    dests: Vec<(u32, Dest)>,
    now_ms: u64,
) -> Result<ServiceSlot> {
    let service_row = maps.services.get(row)?;
    let mut slot = empty_slot(row, service_row.generation);
    let header: Option<Extent> = match service_row.extent {
        0 => None,
        offset => maps.elements_as(offset, 1)?.into_iter().next(),
    };
    let members: Vec<Member> = match &header {
        Some(header) => maps.elements_as(header.list_at, header.list_len)?,
        None => Vec::new(),
    };
    let kind = desired
        .pool(&service.pool)
        .map(|pool| pool.l4_scheduler().kind);
    if let (Some(header), Some(kind)) = (&header, kind)
        && number(kind).is_some_and(|number| header.scheduler == number as u32)
    {
        slot.scheduler = kind.as_str().to_owned();
        slot.start = StoredStart {
            generation: header.generation,
            last_seq: header.start_seq,
            pass_weight: header.start_weight,
            max_weight: header.max_weight,
            step: header.gcd,
        };
    }
    for (id, dest) in &dests {
        let member = members.iter().find(|member| member.dest == *id);
        let mut recovered_dest =
            dest_slot(*id, dest, member.map_or(0, |member| member.weight), now_ms);
        recovered_dest.seq = member.map_or(0, |member| member.seq);
        let servers = desired
            .pool(&service.pool)
            .map(|pool| (&pool.servers, &pool.sorry));
        let has_port = |port: Option<u16>| dest.port.get() == 0 || port == Some(dest.port.get());
        if let Some((servers, sorry)) = servers {
            let is_same = |server: &&weir_model::Server| {
                server.address == recovered_dest.address && has_port(server.port)
            };
            let server = servers.iter().find(is_same).map(|server| (server, false));
            if let Some((server, sorry)) =
                server.or_else(|| sorry.iter().find(is_same).map(|server| (server, true)))
            {
                (
                    recovered_dest.port,
                    recovered_dest.sorry,
                    recovered_dest.removed,
                ) = (server.port, sorry, None);
                recovered_dest.name.clone_from(&server.name);
            }
        }
        slot.dests.push(recovered_dest);
    }
    slot.dests.sort_by_key(|dest| dest.seq);
    // Unusable servers are not in the list, so their order is unknown: they are sorted first.
    let unlisted = slot.dests.iter().filter(|dest| dest.seq == 0).count() as u32;
    if unlisted > 0 {
        for (index, dest) in slot.dests.iter_mut().enumerate() {
            dest.seq = index as u32 + 1;
        }
    }
    slot.last_seq = slot.dests.iter().map(|dest| dest.seq).max().unwrap_or(0);
    Ok(slot)
}

fn dest_slot(id: u32, dest: &Dest, weight: u32, now_ms: u64) -> DestSlot {
    let address = dest.addr.to_ip();
    DestSlot {
        id,
        generation: dest.generation,
        name: address.to_string(),
        address,
        port: Some(dest.port.get()).filter(|port| *port != 0),
        sorry: false,
        seq: 0,
        weight,
        effective: weight,
        base: weight,
        quiesced: false,
        down: false,
        last_weight: weight,
        shared: None,
        removed: Some(Removal::Keep),
        failed: None,
        staged: false,
        since_ms: now_ms,
    }
}
