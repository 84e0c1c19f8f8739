//! `hash`: weighted rendezvous hashing with bounded load.
//!
//! Each server draws a time from the request's hash and its own seed, exponentially distributed with its weight as
//! rate; the earliest one is chosen. A server over its share of the load is skipped. Adding or removing a server moves
//! only its own share of the requests.

use weir_model::finalize_64;

use super::{Criteria, is_candidate};
use crate::{Pool, Server};

pub(super) fn pick<S: Server>(pool: &Pool<'_, S>, criteria: &Criteria) -> Option<usize> {
    let servers = pool.primary();
    let weight = |index: usize| f64::from(servers[index].load().weight());
    let active = |index: usize| f64::from(servers[index].load().active());
    let sum = |of: &dyn Fn(usize) -> f64| (0..servers.len()).map(of).sum::<f64>();
    let bound = pool.scheduler.max_load_percent.map(|percent| {
        // As if this request were already in progress.
        f64::from(percent) / 100.0 * (sum(&active) + 1.0) / sum(&weight).max(1.0)
    });
    let time = |index: usize| {
        // Clients keep their servers over an upgrade only as long as this stays the same.
        let mixed = finalize_64(criteria.hash ^ servers[index].hash_seed());
        // 53 bits, the precision of a double; never 0.
        let unit = ((mixed >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
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
