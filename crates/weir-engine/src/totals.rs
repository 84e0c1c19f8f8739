//! Totals of servers and services, read from the maps.

use weir_abi::{Live, Traffic};
use weir_dataplane::Maps;
use weir_planner::allocation::ServiceSlot;

use crate::error::Result;
use crate::snapshot::Totals;

/// A server row's totals.
pub(crate) fn totals(maps: &Maps, dest: u32) -> Result<Totals> {
    Ok(summed(&maps.live(dest)?, &maps.traffic(dest)?))
}

/// The totals of a server row's counters.
pub(crate) fn summed(live: &Live, traffic: &Traffic) -> Totals {
    Totals {
        connections: live.total,
        stateless: live.stateless,
        packets_in: traffic.packets_in,
        packets_out: traffic.packets_out,
        bytes_in: traffic.bytes_in,
        bytes_out: traffic.bytes_out,
    }
}

/// A service's totals, including removed servers.
pub(crate) fn sum(maps: &Maps, slot: &ServiceSlot) -> Result<Totals> {
    let mut sum = slot.retired;
    for dest in &slot.dests {
        sum = sum.plus(totals(maps, dest.id)?);
    }
    Ok(sum)
}
