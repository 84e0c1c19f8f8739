//! Implements the `least-time` scheduler, which selects the server with the lowest cost.
//!
//! The cost is the time to the first byte, multiplied by the requests in progress plus one and divided by the weight.

use super::{Criteria, is_candidate};
use crate::Server;

/// Returns the index of the server with the lowest cost. A server without a measurement is assumed to have half the
/// mean latency of the others, so it gets requests.
pub(super) fn pick<S: Server>(servers: &[S], criteria: &Criteria) -> Option<usize> {
    let latency = |index: usize| servers[index].load().latency_us(criteria.now_ms);
    let (mut sum, mut measured_count) = (0_u64, 0_u64);
    for latency_us in (0..servers.len())
        .map(latency)
        .filter(|latency_us| *latency_us > 0)
    {
        sum += latency_us;
        measured_count += 1;
    }
    let mean = sum.checked_div(measured_count).unwrap_or(1).max(1);
    let cost = |index: usize| {
        let load = servers[index].load();
        let latency_us = match latency(index) {
            0 => mean.div_ceil(2),
            latency_us => latency_us,
        };
        weir_sched::least_time::cost(latency_us as f64, load.active(), load.weight())
    };
    (0..servers.len())
        .filter(|index| is_candidate(servers, *index, criteria.tried))
        .min_by(|a, b| cost(*a).total_cmp(&cost(*b)))
}
