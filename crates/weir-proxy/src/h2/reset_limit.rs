//! Limits stream resets per client network and per service, across all workers and connections.
//!
//! A stream that the client resets costs the client two frames and the service a request (CVE-2023-44487). So does a
//! stream that Weir resets because of the client's errors (CVE-2025-8671). A limit per connection does not help,
//! because connections are cheap. A network is one IPv4 address or one IPv6 /64; a single client can use all addresses
//! of a /64 at no cost. A network over its limit cannot open streams for [`PENALTY_S`] seconds. While the service is
//! over its own limit, new streams are refused only for networks that have reset streams recently. Only resets access
//! the table; while no limit is exceeded, a new stream needs only one atomic load.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_select::limit::{Table, join, split};

/// Burst size: a network may send this many seconds' worth of resets at once.
const BURST_S: u64 = 10;
/// How long a network over its limit is refused, in seconds.
const PENALTY_S: u64 = 10;
/// The service's limit, as a multiple of a network's limit.
const SERVICE_FACTOR: u64 = 100;
/// Minimum time that a service over its limit refuses streams, in seconds.
const SERVICE_PENALTY_S: u64 = 1;
/// Maximum number of networks that are tracked.
const TABLE_SLOTS: usize = 1 << 14;
/// Time units per second, for networks and for the service.
const UNITS_PER_S: u64 = 1 << 16;
const SERVICE_UNITS_PER_S: u64 = 1_000_000_000;

/// The stream reset budgets for a service and for each client network.
#[derive(Debug)]
pub(crate) struct ResetLimit {
    /// For each network, the time at which its allowance is full again. Created by the first reset.
    networks: OnceLock<Table>,
    /// Randomly keyed, so that clients cannot choose addresses that share a row.
    hasher: RandomState,
    /// Time units between two resets.
    interval: u64,
    service_interval: u64,
    /// The time at which the allowance of the whole service is full again.
    service: AtomicU64,
    /// Time until which a network or the service may be over its limit, in milliseconds.
    alert_until: AtomicU64,
}

/// Whether a new stream is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Served,
    /// No: the service is over its limit, and this network has reset streams recently.
    Refused,
    /// No: the network is over its limit.
    Blocked,
}

impl ResetLimit {
    /// Creates a limit of `per_second` resets for each network. Returns `None` for 0, which means no limit.
    pub(crate) fn new(per_second: u32) -> Option<Self> {
        let rate = u64::from(per_second);
        (rate > 0).then(|| Self {
            networks: OnceLock::new(),
            hasher: RandomState::new(),
            interval: (UNITS_PER_S / rate).max(1),
            service_interval: (SERVICE_UNITS_PER_S / (rate * SERVICE_FACTOR)).max(1),
            service: AtomicU64::new(0),
            alert_until: AtomicU64::new(0),
        })
    }

    fn key(&self, client: IpAddr) -> u64 {
        match client.to_canonical() {
            IpAddr::V4(address) => self.hasher.hash_one(address.to_bits()),
            IpAddr::V6(address) => self.hasher.hash_one((address.to_bits() >> 64) as u64),
        }
    }

    /// Counts resets by a client. Returns whether its network is over its limit. `exempt` is true if the client is a
    /// trusted proxy: its resets come from many clients, and count only toward the service's limit.
    pub(super) fn count(&self, client: IpAddr, exempt: bool, resets: u64, now_ms: u64) -> bool {
        self.count_service(resets, now_ms);
        if exempt {
            return false;
        }
        let is_over = self.count_network(self.key(client), resets, now_ms);
        if is_over {
            let until = now_ms + (BURST_S + PENALTY_S) * 1_000;
            self.alert_until.fetch_max(until, Ordering::Relaxed);
        }
        is_over
    }

    fn count_service(&self, resets: u64, now_ms: u64) {
        let now = now_ms * 1_000_000;
        let burst = BURST_S * SERVICE_UNITS_PER_S;
        let cost = resets.saturating_mul(self.service_interval);
        let add = |due: u64| {
            let ahead = due.saturating_sub(now).saturating_add(cost);
            Some(
                now + match ahead > burst {
                    true => burst + SERVICE_PENALTY_S * SERVICE_UNITS_PER_S,
                    false => ahead,
                },
            )
        };
        let order = Ordering::Relaxed;
        let previous = self.service.fetch_update(order, order, add);
        let ahead = previous
            .unwrap_or(0)
            .saturating_sub(now)
            .saturating_add(cost);
        if ahead > burst {
            let until = now_ms + SERVICE_PENALTY_S * 1_000;
            self.alert_until.fetch_max(until, Ordering::Relaxed);
        }
    }

    fn count_network(&self, key: u64, resets: u64, now_ms: u64) -> bool {
        let now = units(now_ms);
        let burst = BURST_S * UNITS_PER_S;
        let table = self.networks.get_or_init(|| Table::new(TABLE_SLOTS));
        let (row, tag) = table.row(key);
        loop {
            let found = row.iter().map(|slot| (slot, slot.load(Ordering::Relaxed)));
            // The network's slot, else a free slot, else the slot of the network that has used the least of its
            // allowance.
            let chosen = found.min_by_key(|(_, entry)| match split(*entry) {
                (owner, _) if owner == tag => (0, 0),
                (0, _) => (1, 0),
                (_, due) => (2, time_until(due, now)),
            });
            let Some((slot, entry)) = chosen else {
                return false;
            };
            let before = match split(entry) {
                (owner, due) if owner == tag => time_until(due, now),
                _ => 0,
            };
            let after = before.saturating_add(resets.saturating_mul(self.interval));
            let is_over = after > burst;
            let after = if is_over {
                burst + PENALTY_S * UNITS_PER_S
            } else {
                after
            };
            let new = join(tag, now.wrapping_add(after as u32));
            if slot
                .compare_exchange_weak(entry, new, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                return is_over;
            }
        }
    }

    /// Returns the part of its allowance that a client's network has used, in time units.
    fn used_allowance(&self, client: IpAddr, now_ms: u64) -> u64 {
        let Some(table) = self.networks.get() else {
            return 0;
        };
        let now = units(now_ms);
        let (row, tag) = table.row(self.key(client));
        let used_units = |slot: &AtomicU64| match split(slot.load(Ordering::Relaxed)) {
            (owner, due) if owner == tag => Some(time_until(due, now)),
            _ => None,
        };
        row.iter().find_map(used_units).unwrap_or(0)
    }

    /// Returns whether a network or the service may be over its limit.
    pub(super) fn is_alert(&self, now_ms: u64) -> bool {
        now_ms < self.alert_until.load(Ordering::Relaxed)
    }

    /// Returns whether a new stream from this client is accepted.
    pub(super) fn verdict_for(&self, client: IpAddr, exempt: bool, now_ms: u64) -> Verdict {
        if exempt || !self.is_alert(now_ms) {
            return Verdict::Served;
        }
        let used = self.used_allowance(client, now_ms);
        let service = self.service.load(Ordering::Relaxed);
        let is_over = service.saturating_sub(now_ms * 1_000_000) > BURST_S * SERVICE_UNITS_PER_S;
        match used {
            used if used > BURST_S * UNITS_PER_S => Verdict::Blocked,
            1.. if is_over => Verdict::Refused,
            _ => Verdict::Served,
        }
    }
}

const fn units(now_ms: u64) -> u32 {
    (now_ms as u128 * UNITS_PER_S as u128 / 1_000) as u32
}

/// Returns the time from `now` until `due`. The clock wraps: a time further ahead than any allowance is in the past.
fn time_until(due: u32, now: u32) -> u64 {
    let ahead = u64::from(due.wrapping_sub(now));
    if ahead > (BURST_S + PENALTY_S) * UNITS_PER_S {
        0
    } else {
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: u64 = 1_000_000;

    fn v4(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn only_network_over_its_limit_is_blocked_temporarily() {
        let resets = ResetLimit::new(100).expect("limit is not 0");
        assert!(!resets.count(v4(1), false, 1_000, START_MS));
        assert_eq!(resets.verdict_for(v4(1), false, START_MS), Verdict::Served);
        assert!(resets.count(v4(1), false, 2, START_MS));
        assert_eq!(
            resets.verdict_for(v4(1), false, START_MS + 9_900),
            Verdict::Blocked
        );
        assert_eq!(resets.verdict_for(v4(2), false, START_MS), Verdict::Served);
        assert_eq!(
            resets.verdict_for(v4(1), false, START_MS + 10_100),
            Verdict::Served
        );
        assert_eq!(resets.verdict_for(v4(1), true, START_MS), Verdict::Served);
    }

    #[test]
    fn resets_within_rate_never_exceed_limit() {
        let resets = ResetLimit::new(100).expect("limit is not 0");
        for second in 0..1_000 {
            assert!(!resets.count(v4(1), false, 99, START_MS + second * 1_000));
        }
    }

    #[test]
    fn ipv6_addresses_with_the_same_64_bit_prefix_share_a_limit() {
        let resets = ResetLimit::new(100).expect("limit is not 0");
        let client = |text: &str| text.parse::<IpAddr>().expect("parse address");
        for host in 0..11 {
            let _ = resets.count(
                client(&format!("2001:db8:1:2::{host:x}")),
                false,
                100,
                START_MS,
            );
        }
        assert_eq!(
            resets.verdict_for(client("2001:db8:1:2::77"), false, START_MS),
            Verdict::Blocked
        );
        assert_eq!(
            resets.verdict_for(client("2001:db8:1:3::1"), false, START_MS),
            Verdict::Served
        );
        // An IPv4-mapped address counts as IPv4.
        assert!(resets.count(v4(1), false, 2_000, START_MS));
        assert_eq!(
            resets.verdict_for(client("::ffff:192.0.2.1"), false, START_MS),
            Verdict::Blocked
        );
        assert_eq!(
            resets.verdict_for(client("::ffff:192.0.2.2"), false, START_MS),
            Verdict::Served
        );
    }

    #[test]
    fn service_over_its_limit_refuses_only_networks_that_reset_streams() {
        let resets = ResetLimit::new(100).expect("limit is not 0");
        for last in 0..200 {
            assert!(!resets.count(v4(last), false, 900, START_MS));
        }
        assert_eq!(resets.verdict_for(v4(3), false, START_MS), Verdict::Refused);
        assert_eq!(
            resets.verdict_for(v4(250), false, START_MS),
            Verdict::Served
        );
        // Resets from trusted proxies count toward the service's limit too.
        assert!(!resets.count(v4(251), true, 900, START_MS));
        assert_eq!(
            resets.verdict_for(v4(251), false, START_MS),
            Verdict::Served
        );
        assert_eq!(
            resets.verdict_for(v4(3), false, START_MS + 1_100),
            Verdict::Served
        );
    }

    #[test]
    fn workers_share_counts() {
        let resets = std::sync::Arc::new(ResetLimit::new(100).expect("limit is not 0"));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let resets = std::sync::Arc::clone(&resets);
                let count = move || {
                    (0..1_000)
                        .filter(|_| resets.count(v4(1), false, 1, START_MS))
                        .count()
                };
                std::thread::spawn(count)
            })
            .collect();
        let rejected_count: usize = threads
            .into_iter()
            .map(|thread| thread.join().expect("join thread"))
            .sum();
        // The interval is rounded down to a whole unit, so a few more resets are allowed.
        assert!(
            (2_990..=3_000).contains(&rejected_count),
            "{rejected_count}"
        );
    }

    #[test]
    fn new_networks_are_never_blocked_when_table_is_full() {
        let resets = ResetLimit::new(100).expect("limit is not 0");
        for network in 0..200_000u128 {
            let client = std::net::Ipv6Addr::from_bits(network << 64);
            assert!(
                !resets.count(client.into(), false, 1, START_MS),
                "a new network is never blocked"
            );
        }
    }
}
