//! Limits per client: request rate, and requests in progress, counted over all workers in tables of fixed size.
//!
//! A table is a 4-way set-associative array of atomic entries; an entry has a tag, which is a part of the hash of the
//! client's key, and a value. A client whose row is full replaces the client that was idle longest. If no entry of the
//! row may be replaced, the client is not counted: a full table limits less, never more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_model::finalize_64;

/// Entries of a table, a power of two.
const ENTRIES: usize = 1 << 16;
/// Entries of a table of a route, of which there may be many; a power of two.
const ENTRIES_OF_ROUTE: usize = 1 << 13;
/// Entries of a row.
const WAYS: usize = 4;
/// Units of time in a second.
const UNITS: u64 = 1 << 16;

/// Entries of tag and value.
#[derive(Debug)]
pub struct Table(Box<[AtomicU64]>);

impl Table {
    /// An empty table; `entries` is a multiple of 4, and not 0.
    pub fn new(entries: usize) -> Self {
        Self((0..entries).map(|_| AtomicU64::new(0)).collect())
    }

    /// The row of a key, and the key's tag, which is never 0.
    pub fn row(&self, key: u64) -> (&[AtomicU64], u32) {
        let mixed = finalize_64(key);
        let row = (mixed as usize % (self.0.len() / WAYS)) * WAYS;
        (&self.0[row..row + WAYS], (mixed >> 32) as u32 | 1)
    }
}

/// Tag and value of an entry.
pub const fn split(entry: u64) -> (u32, u32) {
    ((entry >> 32) as u32, entry as u32)
}

/// An entry of tag and value.
pub const fn join(tag: u32, value: u32) -> u64 {
    (tag as u64) << 32 | value as u64
}

/// Request rate: the generic cell rate algorithm (ITU-T I.371). An entry's value is the theoretical arrival time of the
/// client's next request.
#[derive(Debug)]
pub struct Rate {
    table: Table,
    /// Units between two requests, and how far ahead of its theoretical arrival time a client may be.
    interval: u64,
    burst: u64,
}

impl Rate {
    /// Limits each client to `per_second` requests per second, and to `burst` requests at once after a pause.
    pub fn new(per_second: u32, burst: u32) -> Self {
        Self::with_interval(UNITS / u64::from(per_second.max(1)), burst, ENTRIES)
    }

    /// Limits of a service: as [`new`](Self::new), with requests per minute. `burst` is limited as that of a route.
    pub fn of_service(per_minute: u32, burst: u32) -> Self {
        Self::with_interval(60 * UNITS / u64::from(per_minute.max(1)), burst, ENTRIES)
    }

    /// Limits of a route: as [`new`](Self::new), with requests per minute and a smaller table. `burst` is at most what
    /// the rate allows in nine hours, because arrival times wrap.
    pub fn of_route(per_minute: u32, burst: u32) -> Self {
        let interval = 60 * UNITS / u64::from(per_minute.max(1));
        Self::with_interval(interval, burst, ENTRIES_OF_ROUTE)
    }

    fn with_interval(interval: u64, burst: u32, entries: usize) -> Self {
        let interval = interval.max(1);
        Self {
            table: Table::new(entries),
            interval,
            burst: interval * u64::from(burst.max(1)),
        }
    }

    /// Whether a request of the client at `now_ns` is within its rate; if so, it is counted.
    pub fn allows(&self, key: u64, now_ns: u64) -> bool {
        let now = Self::units(now_ns);
        let (row, tag) = self.table.row(key);
        loop {
            let found = row
                .iter()
                .map(|entry| (entry, entry.load(Ordering::Relaxed)));
            // The client's own entry, else a free one, else the one that was idle longest.
            let chosen = found.min_by_key(|(_, entry)| match split(*entry) {
                (its, _) if its == tag => (0, 0),
                (0, _) => (1, 0),
                (_, due) => (2, self.ahead(due, now)),
            });
            let Some((place, entry)) = chosen else {
                return true;
            };
            let ahead = match split(entry) {
                (its, due) if its == tag => self.ahead(due, now),
                _ => 0,
            };
            if ahead + self.interval > self.burst {
                return false;
            }
            let due = now.wrapping_add((ahead + self.interval) as u32);
            let new = join(tag, due);
            if place
                .compare_exchange_weak(entry, new, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
        }
    }

    /// Seconds until a request of the client would be within its rate, rounded up; at least 1.
    pub(crate) fn wait_s(&self, key: u64, now_ns: u64) -> u32 {
        let now = Self::units(now_ns);
        let (row, tag) = self.table.row(key);
        let entries = row.iter().map(|entry| split(entry.load(Ordering::Relaxed)));
        let own = entries.into_iter().find(|(its, _)| *its == tag);
        let ahead = own.map_or(0, |(_, due)| self.ahead(due, now));
        let wait = (ahead + self.interval).saturating_sub(self.burst);
        u32::try_from(wait.div_ceil(UNITS))
            .unwrap_or(u32::MAX)
            .max(1)
    }

    /// The time in units, which wraps.
    const fn units(now_ns: u64) -> u32 {
        (now_ns as u128 * UNITS as u128 / 1_000_000_000) as u32
    }

    /// How far a client is ahead of its rate. No client gets further ahead than the burst, so a larger number is an old
    /// entry whose time has wrapped.
    fn ahead(&self, due: u32, now: u32) -> u64 {
        let ahead = u64::from(due.wrapping_sub(now));
        if ahead > self.burst { 0 } else { ahead }
    }
}

/// Requests in progress.
#[derive(Debug)]
pub struct Concurrent {
    table: Table,
    limit: u32,
}

/// A request that is counted as in progress until this is dropped.
#[derive(Debug)]
pub struct Slot {
    limit: Arc<Concurrent>,
    key: u64,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.limit.release(self.key);
    }
}

/// Result of [`Concurrent::admit`].
#[derive(Debug)]
pub enum Admission {
    /// The request is counted.
    Counted(Slot),
    /// The table has no free entry to count it.
    Uncounted,
    /// The client has too many requests in progress.
    Rejected,
}

impl Concurrent {
    /// Limits each client to `limit` requests in progress.
    pub fn new(limit: u32) -> Self {
        Self {
            table: Table::new(ENTRIES),
            limit,
        }
    }

    /// As [`new`](Self::new), with the smaller table of a route.
    pub fn of_route(limit: u32) -> Self {
        Self {
            table: Table::new(ENTRIES_OF_ROUTE),
            limit,
        }
    }

    /// Limits the requests in progress of all clients together, which have one key.
    pub fn one(limit: u32) -> Self {
        Self {
            table: Table::new(WAYS),
            limit,
        }
    }

    /// Counts a request of a client, if it is within the limit.
    pub fn admit(self: &Arc<Self>, key: u64) -> Admission {
        let (row, tag) = self.table.row(key);
        loop {
            let found = row
                .iter()
                .map(|entry| (entry, entry.load(Ordering::Acquire)));
            let chosen = found.min_by_key(|(_, entry)| match split(*entry) {
                (its, count) if its == tag && count > 0 => 0,
                (_, 0) => 1,
                _ => 2,
            });
            let Some((place, entry)) = chosen else {
                return Admission::Uncounted;
            };
            let count = match split(entry) {
                (its, count) if its == tag => count,
                (_, 0) => 0,
                _ => return Admission::Uncounted,
            };
            if count >= self.limit {
                return Admission::Rejected;
            }
            let new = join(tag, count + 1);
            if place
                .compare_exchange_weak(entry, new, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return Admission::Counted(Slot {
                    limit: Arc::clone(self),
                    key,
                });
            }
        }
    }

    fn release(&self, key: u64) {
        let (row, tag) = self.table.row(key);
        for entry in row {
            let less = |entry| match split(entry) {
                (its, count) if its == tag && count > 0 => Some(join(tag, count - 1)),
                _ => None,
            };
            if entry
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, less)
                .is_ok()
            {
                return;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "threads of tests")]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn client_gets_its_burst_and_then_its_rate() {
        let rate = Rate::new(10, 5);
        let start = 7 * SECOND;
        let allowed = (0..20).filter(|_| rate.allows(1, start)).count();
        assert_eq!(allowed, 5);
        // Ten seconds of fifty requests each.
        let allowed = (0..500)
            .filter(|step| rate.allows(1, start + step * SECOND / 50))
            .count();
        assert!((95..=101).contains(&allowed), "{allowed}");
        assert!(rate.allows(2, start), "each client has its own");
        // After a pause longer than the time wraps it has its burst again.
        assert!(rate.allows(1, start + 40_000 * SECOND));
    }

    #[test]
    fn request_after_the_wait_is_allowed() {
        for (per_minute, burst) in [(1, 1), (1, 3), (7, 2), (30, 1), (90, 1), (6_000, 10)] {
            let rate = Rate::of_route(per_minute, burst);
            let mut now = 5 * SECOND + 123_456_789;
            for _ in 0..20 {
                while rate.allows(1, now) {
                    now += 1_000_000;
                }
                let wait = u64::from(rate.wait_s(1, now));
                let interval = 60_u64.div_ceil(u64::from(per_minute));
                assert!((1..=interval).contains(&wait), "{per_minute}/m: {wait}");
                if wait > 1 {
                    assert!(!rate.allows(1, now + (wait - 1) * SECOND));
                }
                now += wait * SECOND;
                assert!(rate.allows(1, now), "{per_minute}/m: {wait}");
            }
        }
        assert_eq!(
            Rate::of_route(1, 1).wait_s(2, SECOND),
            1,
            "an unknown client"
        );
    }

    #[test]
    fn threads_share_one_rate() {
        let rate = Rate::new(1, 1_000);
        let allowed = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let own = (0..2_000).filter(|_| rate.allows(9, SECOND)).count();
                    allowed.fetch_add(own, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(allowed.into_inner(), 1_000);
    }

    #[test]
    fn full_row_replaces_the_longest_idle_client() {
        let rate = Rate::new(1, 1);
        for client in 0..500_000 {
            assert!(
                rate.allows(client, client),
                "a new client is never rejected"
            );
        }
    }

    fn admit(limit: &Arc<Concurrent>, key: u64) -> Slot {
        match limit.admit(key) {
            Admission::Counted(slot) => slot,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn slots_are_returned_when_dropped() {
        let limit = Arc::new(Concurrent::new(2));
        let first = admit(&limit, 1);
        let _second = admit(&limit, 1);
        assert!(matches!(limit.admit(1), Admission::Rejected));
        let _other = admit(&limit, 2);
        drop(first);
        let _third = admit(&limit, 1);
        assert!(matches!(limit.admit(1), Admission::Rejected));
    }

    #[test]
    fn full_row_of_active_clients_counts_no_other_client() {
        let limit = Arc::new(Concurrent {
            table: Table::new(WAYS),
            limit: 1,
        });
        let slots: Vec<Slot> = (1..=4).map(|key| admit(&limit, key)).collect();
        assert!(matches!(limit.admit(5), Admission::Uncounted));
        assert!(matches!(limit.admit(4), Admission::Rejected));
        drop(slots);
        admit(&limit, 5);
    }
}
