//! Computes the shares for `least-time`.
//!
//! A server's share is its weight divided by a power of the latency, relative to the service's best server.

use weir_abi::{COST_EXPLORE, COST_SHARE_MAX};

/// The estimated latency of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LatencyEstimate {
    /// Latency in microseconds, from recent samples.
    Fresh(f64),
    /// Not measured yet: the server was put into use only recently.
    New,
    /// There are no recent samples.
    Stale,
}

/// A server that accepts new flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Server {
    /// Effective weight, above 0.
    pub weight: u32,
    /// Estimated latency.
    pub latency: LatencyEstimate,
}

/// Latencies below this number of microseconds are treated as equal, because network noise exceeds them.
const LATENCY_MIN_US: f64 = 100.0;
/// Differences from the best server's latency below this number of microseconds are noise.
const NOISE_BAND_US: f64 = 250.0;
/// The same limit as a ratio to the best server's latency.
const NOISE_BAND_RATIO: f64 = 1.1;
/// Exponent of the latency. Only two random servers are compared for each flow, so the shares must decrease faster than
/// the latency increases: with exponent 1, a server that handles one request at a time gets more simultaneous requests
/// than with the proxy, which compares all servers. With exponent 2, equal servers do not remain equal. The simulator
/// in tests/simulation.rs tests this.
const LATENCY_EXPONENT: f64 = 1.5;

/// Returns the shares of a service's servers, 1 to [`COST_SHARE_MAX`].
///
/// Servers whose latency is close to that of the best server are treated as equal to it, so that noise does not change
/// the distribution of flows. Above this limit, the share decreases continuously. Servers without recent samples
/// receive the minimum share; new servers are treated as if they had the mean latency. If no server has recent samples,
/// the shares are proportional to the weights.
#[must_use]
pub fn shares(servers: &[Server]) -> Vec<u32> {
    let recent = servers.iter().filter_map(|server| match server.latency {
        LatencyEstimate::Fresh(us) => Some(us.max(LATENCY_MIN_US)),
        _ => None,
    });
    let (mut best, mut sum, mut count) = (f64::INFINITY, 0.0, 0_u32);
    for us in recent {
        best = best.min(us);
        sum += us;
        count += 1;
    }
    let (best, mean) = if count == 0 {
        (1.0, 1.0)
    } else {
        (best, sum / f64::from(count))
    };
    let limit = (best * NOISE_BAND_RATIO).max(best + NOISE_BAND_US);
    let raw_share = |server: &Server| {
        let us = match server.latency {
            LatencyEstimate::Fresh(us) => us,
            LatencyEstimate::New => mean,
            LatencyEstimate::Stale if count == 0 => best,
            LatencyEstimate::Stale => return 0.0,
        };
        f64::from(server.weight) * (limit / us.max(limit)).powf(LATENCY_EXPONENT)
    };
    let raw: Vec<f64> = servers.iter().map(raw_share).collect();
    let max = raw.iter().copied().fold(0.0, f64::max);
    let max_weight = servers.iter().map(|server| server.weight).max();
    let max_weight = f64::from(max_weight.unwrap_or(1).max(1));
    let scale = |(server, raw): (&Server, &f64)| {
        let floor = f64::from(server.weight) / max_weight / f64::from(COST_EXPLORE);
        let share = (raw / max.max(f64::MIN_POSITIVE)).max(floor);
        (share * f64::from(COST_SHARE_MAX)).round().max(1.0) as u32
    };
    servers.iter().zip(&raw).map(scale).collect()
}

#[cfg(test)]
mod tests;
