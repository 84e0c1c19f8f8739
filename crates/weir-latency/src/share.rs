//! Shares for `least-time`: weight per latency, relative to the best server of the service.

use weir_abi::{COST_EXPLORE, COST_SHARE_MAX};

/// What is known about a server's latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Known {
    /// Microseconds, from recent samples.
    Fresh(f64),
    /// Never measured, and in use for a short time only.
    New,
    /// No recent samples.
    Stale,
}

/// A server that takes new flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Server {
    /// Effective weight, above 0.
    pub weight: u32,
    /// Its latency.
    pub known: Known,
}

/// Estimates below this are equal: they are shorter than the noise of the network.
const LEAST_US: f64 = 100.0;
/// Differences from the best server below this are noise.
const BAND_US: f64 = 250.0;
/// The same as a part of the best server's latency.
const BAND: f64 = 1.2;

/// The shares of a service's servers, 1 to [`COST_SHARE_MAX`].
///
/// Servers whose latency is close to the best one's count as equal to it, so that noise moves no flows. Servers without
/// recent samples get the floor, new ones the mean. Without any recent sample the shares are the weights.
#[must_use]
pub fn shares(servers: &[Server]) -> Vec<u32> {
    let fresh = servers.iter().filter_map(|server| match server.known {
        Known::Fresh(us) => Some(us.max(LEAST_US)),
        _ => None,
    });
    let (mut best, mut sum, mut count) = (f64::INFINITY, 0.0, 0_u32);
    for us in fresh {
        best = best.min(us);
        sum += us;
        count += 1;
    }
    let (best, mean) = if count == 0 {
        (1.0, 1.0)
    } else {
        (best, sum / f64::from(count))
    };
    let per_latency = |server: &Server| {
        let us = match server.known {
            Known::Fresh(us) if us.max(LEAST_US) > (best * BAND).max(best + BAND_US) => us,
            Known::Fresh(_) => best,
            Known::New => mean,
            Known::Stale if count == 0 => best,
            Known::Stale => return 0.0,
        };
        1.0 / weir_sched::least_time::cost(us, 0, server.weight)
    };
    let raw: Vec<f64> = servers.iter().map(per_latency).collect();
    let most = raw.iter().copied().fold(0.0, f64::max);
    let heaviest = servers.iter().map(|server| server.weight).max();
    let heaviest = f64::from(heaviest.unwrap_or(1).max(1));
    let scale = |(server, raw): (&Server, &f64)| {
        let floor = f64::from(server.weight) / heaviest / f64::from(COST_EXPLORE);
        let share = (raw / most.max(f64::MIN_POSITIVE)).max(floor);
        (share * f64::from(COST_SHARE_MAX)).round().max(1.0) as u32
    };
    servers.iter().zip(&raw).map(scale).collect()
}

#[cfg(test)]
mod tests;
