//! Stores service totals for the last 15 minutes, for the charts on the dashboard.
//!
//! The director records a point every [`INTERVAL`], or less often if reading the totals takes long. Memory is bounded,
//! because points are recorded only for the sum of all services and for each of the first [`MAX_SERVICES`] services.
//! Points survive reloads, but not a restart of the process. The caller passes the time, so this module does not read a
//! clock.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_proxy::times::Stage;

use crate::snapshot::{ProxyStatus, ServiceStatus, Snapshot};

/// Minimum interval between two points.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// Recording takes at most 1/`CPU_SHARE` of one CPU's time, unless that would require more than [`MAX_INTERVAL`].
pub(crate) const CPU_SHARE: u32 = 200;

/// Maximum interval between two points.
pub(crate) const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// How long points are kept.
const RETENTION: Duration = Duration::from_secs(15 * 60);

/// Maximum number of services that have their own points.
const MAX_SERVICES: usize = 100;

/// The totals for one service, or for all services together, at one point in time. The totals of the proxy's exchanges
/// start at zero when the process starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPoint {
    /// The time, in milliseconds since 1970.
    pub at_ms: u64,
    /// Number of client flows or connections.
    pub connections: u64,
    /// Number of completed requests; at layer 4, number of flows.
    pub requests: u64,
    /// Number of failed requests of all kinds.
    pub failures: u64,
    /// Number of bytes from and to clients.
    pub bytes: u64,
    /// Current number of connected clients, or of active flows.
    pub active: u64,
    /// Number of response times by bucket, as in `exchanges.times.response.buckets` in the status document; empty at
    /// layer 4.
    pub response: Vec<u64>,
}

impl HistoryPoint {
    fn layer4(service: &ServiceStatus) -> Self {
        let totals = &service.totals;
        Self {
            connections: totals.connections,
            requests: totals.connections,
            bytes: totals.bytes_in.wrapping_add(totals.bytes_out),
            active: service
                .servers
                .iter()
                .map(|server| server.active_connections)
                .sum(),
            ..Self::default()
        }
    }

    fn proxy(proxy: &ProxyStatus) -> Self {
        let numbers = &proxy.numbers;
        Self {
            connections: numbers.connections,
            requests: numbers.results.ended,
            failures: numbers.results.errors.iter().sum(),
            bytes: numbers.bytes_in.wrapping_add(numbers.bytes_out),
            active: numbers.clients,
            response: numbers.results.stages[Stage::Response as usize]
                .counts
                .to_vec(),
            ..Self::default()
        }
    }

    fn add(&mut self, other: &Self) {
        for (sum, count) in [
            (&mut self.connections, other.connections),
            (&mut self.requests, other.requests),
            (&mut self.failures, other.failures),
            (&mut self.bytes, other.bytes),
            (&mut self.active, other.active),
        ] {
            *sum = sum.wrapping_add(count);
        }
        if self.response.len() < other.response.len() {
            self.response.resize(other.response.len(), 0);
        }
        for (sum, count) in self.response.iter_mut().zip(&other.response) {
            *sum = sum.wrapping_add(*count);
        }
    }
}

/// The response to `GET /v1/history`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryReport {
    /// The director's current time, in milliseconds since 1970.
    pub now_ms: u64,
    /// The points, oldest first; empty for a service that does not have its own points.
    pub points: Vec<HistoryPoint>,
}

/// The points from the last 15 minutes, for all services together and for individual services.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Points of all services together.
    all: VecDeque<HistoryPoint>,
    /// Points of individual services, with their names.
    services: Vec<(String, VecDeque<HistoryPoint>)>,
}

impl History {
    /// Adds the services' totals at `now`, the time since 1970. The services must be in file order.
    pub(crate) fn record(&mut self, snapshot: &Snapshot, now: Duration) {
        let at_ms = millis(now);
        let oldest = at_ms.saturating_sub(millis(RETENTION));
        let layer4 = snapshot.services.iter();
        let layer4 = layer4.map(|service| (service.name.as_str(), HistoryPoint::layer4(service)));
        let proxies = snapshot.proxies.iter();
        let proxies =
            proxies.map(|proxy| (proxy.numbers.name.as_str(), HistoryPoint::proxy(proxy)));
        let mut all = HistoryPoint {
            at_ms,
            ..HistoryPoint::default()
        };
        for (index, (name, point)) in layer4.chain(proxies).enumerate() {
            all.add(&point);
            if index < MAX_SERVICES {
                self.add(name, HistoryPoint { at_ms, ..point }, oldest);
            }
        }
        push(&mut self.all, all, oldest);
        // A removed service did not get a new point.
        self.services
            .retain(|(_, points)| points.back().is_some_and(|last| last.at_ms == at_ms));
    }

    fn add(&mut self, name: &str, point: HistoryPoint, oldest: u64) {
        match self.services.iter_mut().find(|(known, _)| known == name) {
            Some((_, points)) => push(points, point, oldest),
            None => self
                .services
                .push((name.to_owned(), VecDeque::from([point]))),
        }
    }

    /// Returns the points for one service, or for all services together.
    pub(crate) fn report(&self, service: Option<&str>, now: Duration) -> HistoryReport {
        let points = match service {
            None => Some(&self.all),
            Some(name) => {
                let service_points = self.services.iter().find(|(known, _)| known == name);
                service_points.map(|(_, points)| points)
            }
        };
        HistoryReport {
            now_ms: millis(now),
            points: points.into_iter().flatten().cloned().collect(),
        }
    }
}

fn push(points: &mut VecDeque<HistoryPoint>, point: HistoryPoint, oldest: u64) {
    points.push_back(point);
    // If the clock was set back, points with later times remain at the front. They are removed when there are more than
    // `points_max` points.
    let points_max = (RETENTION.as_secs() / INTERVAL.as_secs()) as usize + 1;
    while points.len() > points_max || points.front().is_some_and(|first| first.at_ms < oldest) {
        points.pop_front();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::director;

    const START: Duration = Duration::from_secs(1_795_201_200);

    #[test]
    fn points_contain_totals_of_each_service_and_of_all() {
        let mut history = History::default();
        let mut snapshot = director();
        history.record(&snapshot, START);
        snapshot.services[0].totals.connections += 7;
        history.record(&snapshot, START + INTERVAL);
        let name = snapshot.services[0].name.clone();
        let of_service = history.report(Some(&name), START + INTERVAL);
        assert_eq!(of_service.points.len(), 2);
        assert_eq!(
            of_service.points[1].requests,
            of_service.points[0].requests + 7,
            "{of_service:?}"
        );
        assert_eq!(of_service.points[1].at_ms, of_service.now_ms);
        let all = history.report(None, START + INTERVAL);
        let sum: u64 = snapshot
            .services
            .iter()
            .map(|service| service.totals.connections)
            .sum();
        assert_eq!(all.points[1].connections, sum);
        assert!(history.report(Some("unknown"), START).points.is_empty());
    }

    #[test]
    fn points_and_services_are_bounded() {
        let mut history = History::default();
        let mut snapshot = director();
        let first = snapshot.services[0].clone();
        snapshot.services = (0..MAX_SERVICES + 20)
            .map(|n| ServiceStatus {
                name: format!("s{n}"),
                ..first.clone()
            })
            .collect();
        for n in 0..400 {
            history.record(&snapshot, START + INTERVAL * n);
        }
        assert_eq!(history.services.len(), MAX_SERVICES);
        let all = history.report(None, START + INTERVAL * 400);
        assert_eq!(all.points.len(), 181);
        let span = all.points[180].at_ms - all.points[0].at_ms;
        assert_eq!(span, millis(RETENTION));
        assert_eq!(
            all.points[0].connections,
            first.totals.connections * (MAX_SERVICES as u64 + 20)
        );
        // The clock was set back.
        for n in 0..400 {
            history.record(&snapshot, START - INTERVAL * 1000 + INTERVAL * n);
        }
        assert_eq!(history.report(None, START).points.len(), 181);
    }

    #[test]
    fn points_of_removed_service_are_removed() {
        let mut history = History::default();
        let mut snapshot = director();
        history.record(&snapshot, START);
        let removed = snapshot.services.remove(0).name;
        history.record(&snapshot, START + INTERVAL);
        assert!(history.report(Some(&removed), START).points.is_empty());
        assert_eq!(history.report(None, START).points.len(), 2);
    }
}
