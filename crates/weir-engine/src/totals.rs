//! Reads the totals of servers and services from the maps.

use weir_abi::{Live, Traffic};
use weir_dataplane::Maps;
use weir_planner::allocation::ServiceSlot;

use crate::error::Result;
use crate::snapshot::Totals;

/// Returns a server row's totals.
pub(crate) fn totals(maps: &Maps, dest: u32) -> Result<Totals> {
    Ok(combine_counters(&maps.live(dest)?, &maps.traffic(dest)?))
}

/// Combines the counters of a server row into its totals.
pub(crate) fn combine_counters(live: &Live, traffic: &Traffic) -> Totals {
    Totals {
        connections: live.total,
        stateless: live.stateless,
        packets_in: traffic.packets_in,
        packets_out: traffic.packets_out,
        bytes_in: traffic.bytes_in,
        bytes_out: traffic.bytes_out,
    }
}

/// Returns a service's totals, including removed servers.
pub(crate) fn sum(maps: &Maps, slot: &ServiceSlot) -> Result<Totals> {
    let mut sum = slot.retired;
    for dest in &slot.dests {
        sum = sum.plus(totals(maps, dest.id)?);
    }
    Ok(sum)
}
