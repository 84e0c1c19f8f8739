//! Implements the `hash` scheduler: weighted rendezvous hashing with bounded load.
//!
//! The request's hash and a server's seed determine a time for each server. The times are exponentially distributed,
//! with the weight as the rate. The server with the earliest time is selected; servers that have reached their bound
//! are skipped unless all have. Adding or removing a server moves only that server's share of the requests.

use weir_model::finalize_64;

use super::{Criteria, is_candidate};
use crate::{Pool, Server};

pub(super) fn pick<S: Server>(pool: &Pool<'_, S>, criteria: &Criteria) -> Option<usize> {
    let servers = pool.primary();
    let weight = |index: usize| f64::from(servers[index].load().weight());
    let active = |index: usize| f64::from(servers[index].load().active());
    let sum = |value: &dyn Fn(usize) -> f64| (0..servers.len()).map(value).sum::<f64>();
    let bound = pool.scheduler.max_load_percent.map(|percent| {
        // This request counts as if it were already in progress.
        f64::from(percent) / 100.0 * (sum(&active) + 1.0) / sum(&weight).max(1.0)
    });
    let time = |index: usize| {
        // This formula must not change: clients must keep their servers during an upgrade.
        let hash = finalize_64(criteria.hash ^ servers[index].hash_seed());
        // A number in (0, 1) with 53 bits, the precision of a double.
        let unit = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        -unit.ln() / weight(index)
    };
    let is_within_bound = |index: usize| {
        bound.is_none_or(|bound| active(index) + 1.0 <= (bound * weight(index)).ceil())
    };
    let earliest = |accepts: &dyn Fn(usize) -> bool| {
        (0..servers.len())
            .filter(|index| is_candidate(servers, *index, criteria.tried) && accepts(*index))
            .min_by(|a, b| time(*a).total_cmp(&time(*b)))
    };
    earliest(&is_within_bound).or_else(|| earliest(&|_| true))
}
