//! Limits stream resets per client network and per service, across all workers and connections.
//!
//! A reset stream costs its client two frames and the service a request (CVE-2023-44487), and so does a stream that the
//! client makes this side reset (CVE-2025-8671). A limit per connection does not bound that, because connections are
//! free. A network is one IPv4 address or one IPv6 /64, which one client can use at no cost.
//!
//! A network over its limit gets no streams for [`PENALTY_S`] seconds. While the service is over its own limit, new
//! streams are refused to networks that reset some recently, and to no other client. Only resets touch the table; a new
//! stream costs one load as long as no limit is exceeded.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_select::limit::{Table, join, split};

/// Resets that a network may make at once, in seconds of its rate.
const BURST_S: u64 = 10;
/// How long a network over its limit is refused.
const PENALTY_S: u64 = 10;
/// The service's limit, in limits of one network.
const NETWORKS: u64 = 100;
/// Minimum time for which a service over its limit refuses streams.
const SERVICE_PENALTY_S: u64 = 1;
/// Networks that are tracked at the same time.
const PLACES: usize = 1 << 14;
/// Units of time in a second, for networks and for the service.
const UNITS: u64 = 1 << 16;
const FINE: u64 = 1_000_000_000;

/// The budget of stream resets of a service, and of each client network.
#[derive(Debug)]
pub(crate) struct ResetLimit {
    /// By network, the time until which its resets are used up; made by the first reset.
    networks: OnceLock<Table>,
    /// Clients must not be able to choose addresses that share a row.
    hasher: RandomState,
    /// Units between two resets.
    interval: u64,
    service_interval: u64,
    /// The same for the service as a whole.
    service: AtomicU64,
    /// Time in milliseconds until which a network or the service may be over its limit.
    alert_until: AtomicU64,
}

/// Whether a new stream is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Served,
    /// The service is over its limit, and this network has reset streams recently.
    Refused,
    /// The network is over its limit.
    Blocked,
}

impl ResetLimit {
    /// A limit of `per_second` resets for each network. Returns `None` for 0, which means no limit.
    pub(crate) fn new(per_second: u32) -> Option<Self> {
        let rate = u64::from(per_second);
        (rate > 0).then(|| Self {
            networks: OnceLock::new(),
            hasher: RandomState::new(),
            interval: (UNITS / rate).max(1),
            service_interval: (FINE / (rate * NETWORKS)).max(1),
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

    /// Counts resets of a client. Returns whether its network is over its limit. `exempt` = the client is a proxy in
    /// front, whose resets come from many clients: they count only towards the service's limit.
    pub(super) fn count(&self, client: IpAddr, exempt: bool, resets: u64, now_ms: u64) -> bool {
        self.count_service(resets, now_ms);
        if exempt {
            return false;
        }
        let over = self.count_network(self.key(client), resets, now_ms);
        if over {
            let until = now_ms + (BURST_S + PENALTY_S) * 1_000;
            self.alert_until.fetch_max(until, Ordering::Relaxed);
        }
        over
    }

    fn count_service(&self, resets: u64, now_ms: u64) {
        let now = now_ms * 1_000_000;
        let burst = BURST_S * FINE;
        let cost = resets.saturating_mul(self.service_interval);
        let add = |due: u64| {
            let ahead = due.saturating_sub(now).saturating_add(cost);
            Some(
                now + match ahead > burst {
                    true => burst + SERVICE_PENALTY_S * FINE,
                    false => ahead,
                },
            )
        };
        let order = Ordering::Relaxed;
        let added = self.service.fetch_update(order, order, add);
        let ahead = added.unwrap_or(0).saturating_sub(now).saturating_add(cost);
        if ahead > burst {
            let until = now_ms + SERVICE_PENALTY_S * 1_000;
            self.alert_until.fetch_max(until, Ordering::Relaxed);
        }
    }

    fn count_network(&self, key: u64, resets: u64, now_ms: u64) -> bool {
        let now = units(now_ms);
        let burst = BURST_S * UNITS;
        let table = self.networks.get_or_init(|| Table::new(PLACES));
        let (row, tag) = table.row(key);
        loop {
            let found = row
                .iter()
                .map(|place| (place, place.load(Ordering::Relaxed)));
            // The network's own row, or a free one, or that of the network with the fewest resets.
            let chosen = found.min_by_key(|(_, entry)| match split(*entry) {
                (its, _) if its == tag => (0, 0),
                (0, _) => (1, 0),
                (_, due) => (2, ahead(due, now)),
            });
            let Some((place, entry)) = chosen else {
                return false;
            };
            let before = match split(entry) {
                (its, due) if its == tag => ahead(due, now),
                _ => 0,
            };
            let after = before.saturating_add(resets.saturating_mul(self.interval));
            let over = after > burst;
            let after = if over {
                burst + PENALTY_S * UNITS
            } else {
                after
            };
            let new = join(tag, now.wrapping_add(after as u32));
            if place
                .compare_exchange_weak(entry, new, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                return over;
            }
        }
    }

    /// How much of its allowance a client's network has used, in units of time.
    fn used(&self, client: IpAddr, now_ms: u64) -> u64 {
        let Some(table) = self.networks.get() else {
            return 0;
        };
        let now = units(now_ms);
        let (row, tag) = table.row(self.key(client));
        let own = |place: &AtomicU64| match split(place.load(Ordering::Relaxed)) {
            (its, due) if its == tag => Some(ahead(due, now)),
            _ => None,
        };
        row.iter().find_map(own).unwrap_or(0)
    }

    /// Whether a network or the service may be over its limit.
    pub(super) fn is_alert(&self, now_ms: u64) -> bool {
        now_ms < self.alert_until.load(Ordering::Relaxed)
    }

    /// Whether a new stream of that client is accepted.
    pub(super) fn verdict_for(&self, client: IpAddr, exempt: bool, now_ms: u64) -> Verdict {
        if exempt || !self.is_alert(now_ms) {
            return Verdict::Served;
        }
        let used = self.used(client, now_ms);
        let service = self.service.load(Ordering::Relaxed);
        let over = service.saturating_sub(now_ms * 1_000_000) > BURST_S * FINE;
        match used {
            used if used > BURST_S * UNITS => Verdict::Blocked,
            1.. if over => Verdict::Refused,
            _ => Verdict::Served,
        }
    }
}

const fn units(now_ms: u64) -> u32 {
    (now_ms as u128 * UNITS as u128 / 1_000) as u32
}

/// The clock wraps: a time further ahead than any allowance is in the past.
fn ahead(due: u32, now: u32) -> u64 {
    let ahead = u64::from(due.wrapping_sub(now));
    if ahead > (BURST_S + PENALTY_S) * UNITS {
        0
    } else {
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_000_000;

    fn v4(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn network_over_its_limit_is_blocked_for_a_while_and_no_other_is() {
        let resets = ResetLimit::new(100).expect("a limit");
        assert!(!resets.count(v4(1), false, 1_000, START));
        assert_eq!(resets.verdict_for(v4(1), false, START), Verdict::Served);
        assert!(resets.count(v4(1), false, 2, START));
        assert_eq!(
            resets.verdict_for(v4(1), false, START + 9_900),
            Verdict::Blocked
        );
        assert_eq!(resets.verdict_for(v4(2), false, START), Verdict::Served);
        assert_eq!(
            resets.verdict_for(v4(1), false, START + 10_100),
            Verdict::Served
        );
        assert_eq!(resets.verdict_for(v4(1), true, START), Verdict::Served);
    }

    #[test]
    fn resets_within_the_rate_are_never_too_many() {
        let resets = ResetLimit::new(100).expect("a limit");
        for second in 0..1_000 {
            assert!(!resets.count(v4(1), false, 99, START + second * 1_000));
        }
    }

    #[test]
    fn ipv6_networks_are_64_bits_wide() {
        let resets = ResetLimit::new(100).expect("a limit");
        let client = |text: &str| text.parse::<IpAddr>().expect("an address");
        for host in 0..11 {
            let _ = resets.count(
                client(&format!("2001:db8:1:2::{host:x}")),
                false,
                100,
                START,
            );
        }
        assert_eq!(
            resets.verdict_for(client("2001:db8:1:2::77"), false, START),
            Verdict::Blocked
        );
        assert_eq!(
            resets.verdict_for(client("2001:db8:1:3::1"), false, START),
            Verdict::Served
        );
        // An IPv4-mapped address counts as IPv4.
        assert!(resets.count(v4(1), false, 2_000, START));
        assert_eq!(
            resets.verdict_for(client("::ffff:192.0.2.1"), false, START),
            Verdict::Blocked
        );
        assert_eq!(
            resets.verdict_for(client("::ffff:192.0.2.2"), false, START),
            Verdict::Served
        );
    }

    #[test]
    fn service_over_its_limit_refuses_only_networks_that_reset() {
        let resets = ResetLimit::new(100).expect("a limit");
        for last in 0..200 {
            assert!(!resets.count(v4(last), false, 900, START));
        }
        assert_eq!(resets.verdict_for(v4(3), false, START), Verdict::Refused);
        assert_eq!(resets.verdict_for(v4(250), false, START), Verdict::Served);
        // Resets of proxies in front count towards the service's limit too.
        assert!(!resets.count(v4(251), true, 900, START));
        assert_eq!(resets.verdict_for(v4(251), false, START), Verdict::Served);
        assert_eq!(
            resets.verdict_for(v4(3), false, START + 1_100),
            Verdict::Served
        );
    }

    #[test]
    fn workers_share_counts() {
        let resets = std::sync::Arc::new(ResetLimit::new(100).expect("a limit"));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let resets = std::sync::Arc::clone(&resets);
                let count = move || {
                    (0..1_000)
                        .filter(|_| resets.count(v4(1), false, 1, START))
                        .count()
                };
                std::thread::spawn(count)
            })
            .collect();
        let over: usize = threads
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .sum();
        // The interval is rounded down to a whole unit, so a few more resets are allowed.
        assert!((2_990..=3_000).contains(&over), "{over}");
    }

    #[test]
    fn memory_use_is_constant_for_any_clients() {
        let resets = ResetLimit::new(100).expect("a limit");
        for network in 0..200_000u128 {
            let client = std::net::Ipv6Addr::from_bits(network << 64);
            assert!(
                !resets.count(client.into(), false, 1, START),
                "a newcomer is never blocked"
            );
        }
    }
}
