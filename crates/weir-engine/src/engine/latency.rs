//! Reads the data plane's latency samples and publishes the shares of servers for `least-time`.
//!
//! The samples are read every few milliseconds, which also refreshes the timestamp of the costs. If the daemon stops,
//! the costs become stale, and the data plane treats `least-time` like `lc`. The fraction of sampled flows adapts to
//! the traffic: all flows at low packet rates, and always at least one in 64.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use weir_abi::{
    COST_SHARE_MAX, Cost, LATENCY_METHOD_CONNECT, LATENCY_METHOD_TIMESTAMPS, LATENCY_REASONS,
    LatencyReason, LatencySample,
};
use weir_dataplane::{Maps, RingPositions};
use weir_latency::adapt::Adaptation;
use weir_latency::share::{LatencyEstimate, Server, shares};
use weir_latency::{Method, Statistics, Summary};
use weir_model::SchedulerKind;
use weir_planner::allocation::{DestSlot, ServiceSlot};

use super::Engine;
use crate::error::Result;

/// Interval at which shares are published while a service uses `least-time`.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(10);
/// Interval between reads while no service uses `least-time`.
const READ_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum ratio of idle time to work. It limits the CPU time of very large configurations.
const PAUSE_FACTOR: u32 = 20;
/// Time after which a new server without samples gets only the minimum share.
const NEW_SERVER_NS: u64 = 2_000_000_000;
/// Interval between adaptations of the fraction of sampled flows.
const ADAPT_INTERVAL_NS: u64 = 100_000_000;
/// If fewer packets per second are sampled, more flows are sampled. A sample costs 60 ns.
const LOW_PACKET_RATE: u64 = 20_000;
/// If more packets per second are sampled, fewer flows are sampled.
const HIGH_PACKET_RATE: u64 = 100_000;
/// Number of flows out of 65536 to sample: all of them.
const ALL_FLOWS: u32 = 65_536;
/// Minimum number of flows out of 65536 to sample: one in 64.
const MIN_SAMPLED_FLOWS: u32 = 1_024;

/// Latency statistics of one server in one service.
#[derive(Debug)]
struct ServerLatency {
    generation: u32,
    by_timestamps: Statistics,
    by_gaps: Statistics,
    by_connect: Statistics,
    /// Numbers of responses within and above `max_latency`.
    limit_counts: (u64, u64),
}

impl ServerLatency {
    fn new(generation: u32) -> Self {
        Self {
            generation,
            by_timestamps: Statistics::new(Method::Timestamps),
            by_gaps: Statistics::new(Method::Gaps),
            by_connect: Statistics::new(Method::Connect),
            limit_counts: (0, 0),
        }
    }

    fn statistics(&mut self, method: u32) -> &mut Statistics {
        match method {
            LATENCY_METHOD_TIMESTAMPS => &mut self.by_timestamps,
            LATENCY_METHOD_CONNECT => &mut self.by_connect,
            _ => &mut self.by_gaps,
        }
    }

    /// Returns the statistics with the most recent samples. If both are recent, prefers TCP timestamps. Falls back to
    /// the connect times of local clients: a service with only local clients has no client packets, unless
    /// `balance_own` is enabled.
    fn preferred(&self, now_ns: u64) -> &Statistics {
        if self.by_timestamps.total() == 0 && self.by_gaps.total() == 0 {
            return &self.by_connect;
        }
        if self.by_timestamps.average_us(now_ns).is_some()
            || self.by_timestamps.last_ns() >= self.by_gaps.last_ns()
        {
            &self.by_timestamps
        } else {
            &self.by_gaps
        }
    }

    fn latency_estimate(&self, now_ns: u64) -> LatencyEstimate {
        match self.preferred(now_ns).average_us(now_ns) {
            Some(us) => LatencyEstimate::Fresh(us),
            None => LatencyEstimate::Stale,
        }
    }
}

/// Collects latency samples and computes the shares of servers.
#[derive(Debug, Default)]
pub(super) struct LatencyMonitor {
    positions: Option<RingPositions>,
    samples: Vec<LatencySample>,
    servers: HashMap<u32, ServerLatency>,
    /// Time at which each server of a `least-time` service was first seen, in nanoseconds.
    first_seen_ns: HashMap<u32, u64>,
    /// `max_latency` limits by server row, in nanoseconds.
    limits: BTreeMap<u32, i64>,
    /// State of the services with weights that follow the latency, and the time of the last adjustment.
    pub(super) adaptations: HashMap<String, Adaptation>,
    pub(super) adjusted_ns: u64,
    /// Time in nanoseconds and number of sampled packets at the last adaptation.
    last_adaptation: (u64, u64),
}

impl LatencyMonitor {
    fn read(&mut self, maps: &Maps, now_ns: u64) -> Result<()> {
        let Some(positions) = &mut self.positions else {
            self.positions = Some(maps.latency_positions()?);
            return Ok(());
        };
        self.samples.clear();
        maps.latency_samples(positions, &mut self.samples)?;
        self.samples
            .sort_by_key(|sample| (sample.dest, sample.method));
        for group in self
            .samples
            .chunk_by(|a, b| (a.dest, a.method) == (b.dest, b.method))
        {
            let (dest, method) = (group[0].dest, group[0].method);
            let Ok(row) = maps.dests.get(dest) else {
                continue;
            };
            let server = self.servers.entry(dest);
            let server = server.or_insert_with(|| ServerLatency::new(row.generation));
            if server.generation != row.generation {
                *server = ServerLatency::new(row.generation);
            }
            let statistics = server.statistics(method);
            let ns: Vec<i64> = group.iter().map(|sample| sample.ns).collect();
            statistics.add(&ns, now_ns);
            if let Some(limit) = self.limits.get(&dest) {
                let above = ns.iter().filter(|ns| *ns > limit).count() as u64;
                server.limit_counts.0 += ns.len() as u64 - above;
                server.limit_counts.1 += above;
            }
        }
        Ok(())
    }

    /// Returns the numbers of responses of a server within and above `max_latency`.
    pub(super) fn limit_counts(&self, dest: u32, generation: u32) -> (u64, u64) {
        let server = self.servers.get(&dest);
        let server = server.filter(|server| server.generation == generation);
        server.map_or((0, 0), |server| server.limit_counts)
    }

    /// Returns a server's latency in microseconds; `None` without recent samples.
    pub(super) fn average_us(&self, dest: u32, generation: u32, now_ns: u64) -> Option<f64> {
        let server = self.servers.get(&dest);
        let server = server.filter(|server| server.generation == generation)?;
        server.preferred(now_ns).average_us(now_ns)
    }

    fn latency_estimate(&self, dest: u32, generation: u32, now_ns: u64) -> LatencyEstimate {
        match self.servers.get(&dest) {
            Some(server) if server.generation == generation => server.latency_estimate(now_ns),
            _ => {
                let since = self.first_seen_ns.get(&dest).copied().unwrap_or(now_ns);
                if now_ns.saturating_sub(since) < NEW_SERVER_NS {
                    LatencyEstimate::New
                } else {
                    LatencyEstimate::Stale
                }
            }
        }
    }

    /// Publishes the shares of one service.
    fn publish(&mut self, maps: &Maps, slot: &ServiceSlot, now_ns: u64) -> Result<()> {
        let usable: Vec<_> = weir_planner::extent::usable_servers(slot);
        let servers: Vec<Server> = usable
            .iter()
            .map(|dest| Server {
                weight: dest.effective,
                latency: self.latency_estimate(dest.id, dest.generation, now_ns),
            })
            .collect();
        for ((dest, server), share) in usable.iter().zip(&servers).zip(shares(&servers)) {
            self.first_seen_ns.entry(dest.id).or_insert(now_ns);
            let latency_us = match server.latency {
                LatencyEstimate::Fresh(us) => us.max(0.0) as u32,
                LatencyEstimate::New | LatencyEstimate::Stale => 0,
            };
            maps.set_cost(dest.id, Cost { share, latency_us })?;
        }
        Ok(())
    }

    /// Returns the number of flows out of 65536 to sample. `current` is the current number.
    fn adapt(&mut self, maps: &Maps, current: u32, now_ns: u64) -> Result<u32> {
        let (last_ns, last_packets) = self.last_adaptation;
        let elapsed = now_ns.saturating_sub(last_ns);
        if elapsed < ADAPT_INTERVAL_NS {
            return Ok(current);
        }
        let packets = maps.latency_reasons()?[LatencyReason::Packets as usize];
        self.last_adaptation = (now_ns, packets);
        if last_ns == 0 {
            return Ok(MIN_SAMPLED_FLOWS);
        }
        let rate = packets.saturating_sub(last_packets) * 1_000_000_000 / elapsed;
        Ok(match rate {
            ..LOW_PACKET_RATE => (current * 2).clamp(MIN_SAMPLED_FLOWS, ALL_FLOWS),
            LOW_PACKET_RATE..HIGH_PACKET_RATE => current,
            _ => (current / 2).max(MIN_SAMPLED_FLOWS),
        })
    }

    /// Removes servers that no longer exist.
    fn retain(&mut self, present: &HashSet<u32>) {
        self.servers.retain(|dest, _| present.contains(dest));
        self.first_seen_ns.retain(|dest, _| present.contains(dest));
    }
}

impl Engine {
    /// Reads samples and publishes costs. Returns the time until the next call.
    ///
    /// # Errors
    /// Fails if a map cannot be read or written.
    pub fn publish_latency(&mut self) -> Result<Duration> {
        let started = std::time::Instant::now();
        let mut monitor = std::mem::take(&mut self.latency);
        let published = self.publish_with(&mut monitor);
        self.latency = monitor;
        let interval = published?;
        Ok(interval.max(started.elapsed() * PAUSE_FACTOR))
    }

    fn publish_with(&mut self, monitor: &mut LatencyMonitor) -> Result<Duration> {
        let now_ns = weir_sys::now_ns(weir_sys::Clock::Monotonic);
        let maps = self.plane.maps();
        monitor.limits = self.latency_limits();
        monitor.read(maps, now_ns)?;
        let mut interval = READ_INTERVAL;
        // Without estimates, the costs become stale, and `least-time` behaves like `lc`.
        let services = self.least_time_services();
        for service in services.filter(|_| self.desired.node.latency) {
            interval = PUBLISH_INTERVAL;
            monitor.publish(maps, service, now_ns)?;
        }
        if interval == PUBLISH_INTERVAL {
            maps.refresh_costs_timestamp(now_ns)?;
        }
        let current = self.rows.settings.latency_sample;
        let sampling_rate = if self.desired.services.is_empty() || !self.desired.node.latency {
            0
        } else {
            monitor.adapt(maps, current, now_ns)?
        };
        if sampling_rate != current {
            maps.set_latency_sampling_rate(sampling_rate)?;
            self.rows.settings.latency_sample = sampling_rate;
        }
        Ok(interval)
    }

    fn least_time_services(&self) -> impl Iterator<Item = &ServiceSlot> {
        self.desired.services.iter().filter_map(|service| {
            let scheduler = self.desired.pool(&service.pool)?.l4_scheduler();
            (scheduler.kind == SchedulerKind::LeastTime)
                .then(|| self.state.allocation.services.get(&service.name))?
        })
    }

    /// Removes the statistics of servers that no longer exist.
    pub(super) fn remove_stale_latencies(&mut self) {
        if self.latency.servers.is_empty() && self.latency.first_seen_ns.is_empty() {
            return;
        }
        let slots = self.state.allocation.services.values();
        let present = slots.flat_map(|slot| slot.dests.iter().map(|dest| dest.id));
        self.latency.retain(&present.collect());
    }

    /// Returns the latency of a server in a service; `None` without samples.
    pub(super) fn latency_of(&self, dest: u32, generation: u32) -> Option<Summary> {
        let now_ns = weir_sys::now_ns(weir_sys::Clock::Monotonic);
        let server = self.latency.servers.get(&dest);
        let server = server.filter(|server| server.generation == generation)?;
        server.preferred(now_ns).summary()
    }

    /// Formats the values that `least-time` compares; empty for a server without a published latency.
    pub(super) fn explain_latency(&self, dest: &DestSlot, active: u64) -> Result<String> {
        let cost = self.plane.maps().costs.get(dest.id)?;
        if cost.latency_us == 0 {
            return Ok(String::new());
        }
        let ms = f64::from(cost.latency_us) / 1_000.0;
        let share = f64::from(cost.share) / f64::from(COST_SHARE_MAX);
        let total = (active as f64 + 1.0) / share.max(f64::MIN_POSITIVE);
        let percent = share * 100.0;
        Ok(format!(
            ", latency {ms:.3} ms, cost {total:.2}, share {percent:.0} % of the largest"
        ))
    }

    /// Returns the estimator's counters: label, description and count.
    pub(super) fn latency_counters(&self) -> Result<Vec<(&'static str, &'static str, u64)>> {
        let counts = self.plane.maps().latency_reasons()?;
        let labeled_counts = LATENCY_REASONS.iter().zip(counts);
        Ok(labeled_counts
            .map(|((_, label, text), count)| (*label, *text, count))
            .collect())
    }
}
