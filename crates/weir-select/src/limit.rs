//! Limits each client's request rate and requests in progress, with fixed-size tables that all workers share.
//!
//! A table is a 4-way set-associative array of atomic entries: each key maps to one row (set) of four entries. An entry
//! consists of a tag, which is part of the client key's hash, and a value. If a new client's row is full, a
//! rate limit replaces the client that is least ahead of its rate, and a concurrency limit does not count the new
//! client, so a full table rejects fewer requests, never more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_model::finalize_64;

/// Number of entries in a table, a power of two.
const ENTRIES: usize = 1 << 16;
/// Number of entries in a route's table, a power of two. It is smaller because there can be many routes.
const ROUTE_ENTRIES: usize = 1 << 13;
/// Number of entries in a row.
const ROW_ENTRIES: usize = 4;
/// Number of time units per second.
const UNITS_PER_SECOND: u64 = 1 << 16;

/// A table of entries, each of which consists of a tag and a value.
#[derive(Debug)]
pub struct Table(Box<[AtomicU64]>);

impl Table {
    /// Creates an empty table. `entries` must be a nonzero multiple of 4.
    pub fn new(entries: usize) -> Self {
        Self((0..entries).map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns the row of a key, and the key's tag, which is never 0.
    pub fn row(&self, key: u64) -> (&[AtomicU64], u32) {
        let hash = finalize_64(key);
        let row = (hash as usize % (self.0.len() / ROW_ENTRIES)) * ROW_ENTRIES;
        (&self.0[row..row + ROW_ENTRIES], (hash >> 32) as u32 | 1)
    }
}

/// Returns an entry's tag and value.
pub const fn split(entry: u64) -> (u32, u32) {
    ((entry >> 32) as u32, entry as u32)
}

/// Returns an entry with this tag and value.
pub const fn join(tag: u32, value: u32) -> u64 {
    (tag as u64) << 32 | value as u64
}

/// Limits the request rate with the generic cell rate algorithm (ITU-T I.371). An entry's value is the theoretical
/// arrival time of the client's next request.
#[derive(Debug)]
pub struct RateLimit {
    table: Table,
    /// Time between two requests, in time units (see [`UNITS_PER_SECOND`]).
    interval: u64,
    /// Maximum time that a client may be ahead of its rate, in time units.
    burst: u64,
}

impl RateLimit {
    /// Limits each client to `per_second` requests per second, and to `burst` requests at once after a pause.
    pub fn new(per_second: u32, burst: u32) -> Self {
        Self::with_interval(
            UNITS_PER_SECOND / u64::from(per_second.max(1)),
            burst,
            ENTRIES,
        )
    }

    /// Like [`new`](Self::new), but for a service's limit, in requests per minute. `burst` is limited as in
    /// [`for_route`](Self::for_route).
    pub fn for_service(per_minute: u32, burst: u32) -> Self {
        Self::with_interval(
            60 * UNITS_PER_SECOND / u64::from(per_minute.max(1)),
            burst,
            ENTRIES,
        )
    }

    /// Like [`new`](Self::new), but for a route's limit, in requests per minute and with a smaller table. `burst` must
    /// not exceed the number of requests that the rate allows in nine hours, because arrival times wrap.
    pub fn for_route(per_minute: u32, burst: u32) -> Self {
        let interval = 60 * UNITS_PER_SECOND / u64::from(per_minute.max(1));
        Self::with_interval(interval, burst, ROUTE_ENTRIES)
    }

    fn with_interval(interval: u64, burst: u32, entries: usize) -> Self {
        let interval = interval.max(1);
        Self {
            table: Table::new(entries),
            interval,
            burst: interval * u64::from(burst.max(1)),
        }
    }

    /// Returns whether a request from a client at `now_ns` is within the client's rate. If so, the request is counted.
    pub fn admit(&self, key: u64, now_ns: u64) -> bool {
        let now = Self::to_units(now_ns);
        let (row, tag) = self.table.row(key);
        loop {
            let entries = row
                .iter()
                .map(|entry| (entry, entry.load(Ordering::Relaxed)));
            // The client's entry, else a free entry, else the entry of the client that is least ahead of its rate.
            let chosen = entries.min_by_key(|(_, entry)| match split(*entry) {
                (entry_tag, _) if entry_tag == tag => (0, 0),
                (0, _) => (1, 0),
                (_, due) => (2, self.units_ahead(due, now)),
            });
            let Some((cell, entry)) = chosen else {
                return true;
            };
            let ahead = match split(entry) {
                (entry_tag, due) if entry_tag == tag => self.units_ahead(due, now),
                _ => 0,
            };
            if ahead + self.interval > self.burst {
                return false;
            }
            let due = now.wrapping_add((ahead + self.interval) as u32);
            let new = join(tag, due);
            if cell
                .compare_exchange_weak(entry, new, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
        }
    }

    /// Returns the number of seconds until another request is within the client's rate, rounded up; at least 1.
    pub(crate) fn wait_s(&self, key: u64, now_ns: u64) -> u32 {
        let now = Self::to_units(now_ns);
        let (row, tag) = self.table.row(key);
        let entries = row.iter().map(|entry| split(entry.load(Ordering::Relaxed)));
        let client_entry = entries.into_iter().find(|(entry_tag, _)| *entry_tag == tag);
        let ahead = client_entry.map_or(0, |(_, due)| self.units_ahead(due, now));
        let wait = (ahead + self.interval).saturating_sub(self.burst);
        u32::try_from(wait.div_ceil(UNITS_PER_SECOND))
            .unwrap_or(u32::MAX)
            .max(1)
    }

    /// Converts a time to units; the result wraps.
    const fn to_units(now_ns: u64) -> u32 {
        (now_ns as u128 * UNITS_PER_SECOND as u128 / 1_000_000_000) as u32
    }

    /// Returns how far a client is ahead of its rate, in units. No client can be further ahead than the burst, so a
    /// larger difference means that `due` is in the past: the subtraction has wrapped.
    fn units_ahead(&self, due: u32, now: u32) -> u64 {
        let ahead = u64::from(due.wrapping_sub(now));
        if ahead > self.burst { 0 } else { ahead }
    }
}

/// Limits the number of requests in progress, for each client or in total.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    table: Table,
    limit: u32,
}

/// Counts a request as in progress until this value is dropped.
#[derive(Debug)]
pub struct Slot {
    limit: Arc<ConcurrencyLimit>,
    key: u64,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.limit.release(self.key);
    }
}

/// The result of [`ConcurrencyLimit::admit`].
#[derive(Debug)]
pub enum Admission {
    /// The request is counted.
    Counted(Slot),
    /// The client's row has no free entry: the request is allowed, but not counted.
    Uncounted,
    /// The client has the maximum number of requests in progress.
    Rejected,
}

impl ConcurrencyLimit {
    /// Limits each client to `limit` requests in progress.
    pub fn new(limit: u32) -> Self {
        Self {
            table: Table::new(ENTRIES),
            limit,
        }
    }

    /// Like [`new`](Self::new), but with the smaller table for a route.
    pub fn for_route(limit: u32) -> Self {
        Self {
            table: Table::new(ROUTE_ENTRIES),
            limit,
        }
    }

    /// Limits the total number of requests in progress of all clients. Callers must use the same key for all clients.
    pub fn total(limit: u32) -> Self {
        Self {
            table: Table::new(ROW_ENTRIES),
            limit,
        }
    }

    /// Counts a request from a client if it is within the limit.
    pub fn admit(self: &Arc<Self>, key: u64) -> Admission {
        let (row, tag) = self.table.row(key);
        loop {
            let entries = row
                .iter()
                .map(|entry| (entry, entry.load(Ordering::Acquire)));
            let chosen = entries.min_by_key(|(_, entry)| match split(*entry) {
                (entry_tag, count) if entry_tag == tag && count > 0 => 0,
                (_, 0) => 1,
                _ => 2,
            });
            let Some((cell, entry)) = chosen else {
                return Admission::Uncounted;
            };
            let count = match split(entry) {
                (entry_tag, count) if entry_tag == tag => count,
                (_, 0) => 0,
                _ => return Admission::Uncounted,
            };
            if count >= self.limit {
                return Admission::Rejected;
            }
            let new = join(tag, count + 1);
            if cell
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
            let decrement = |entry| match split(entry) {
                (entry_tag, count) if entry_tag == tag && count > 0 => Some(join(tag, count - 1)),
                _ => None,
            };
            if entry
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, decrement)
                .is_ok()
            {
                return;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "test threads")]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn client_may_send_a_burst_and_is_then_limited_to_its_rate() {
        let rate = RateLimit::new(10, 5);
        let start = 7 * SECOND;
        let allowed = (0..20).filter(|_| rate.admit(1, start)).count();
        assert_eq!(allowed, 5);
        // Fifty requests per second for ten seconds.
        let allowed = (0..500)
            .filter(|step| rate.admit(1, start + step * SECOND / 50))
            .count();
        assert!((95..=101).contains(&allowed), "{allowed}");
        assert!(rate.admit(2, start), "each client has its own limit");
        // After a pause of more than half the clock's range, the client's burst is available again.
        assert!(rate.admit(1, start + 40_000 * SECOND));
    }

    #[test]
    fn request_after_the_wait_is_allowed() {
        let rates = [(1, 1), (1, 3), (7, 2), (30, 1), (90, 1), (6_000, 10)];
        let limits = rates.into_iter().flat_map(|(per_minute, burst)| {
            let for_route = RateLimit::for_route(per_minute, burst);
            let for_service = RateLimit::for_service(per_minute, burst);
            [(per_minute, for_route), (per_minute, for_service)]
        });
        for (per_minute, rate) in limits {
            let mut now = 5 * SECOND + 123_456_789;
            for _ in 0..20 {
                while rate.admit(1, now) {
                    now += 1_000_000;
                }
                let wait = u64::from(rate.wait_s(1, now));
                let interval = 60_u64.div_ceil(u64::from(per_minute));
                assert!((1..=interval).contains(&wait), "{per_minute}/m: {wait}");
                if wait > 1 {
                    assert!(!rate.admit(1, now + (wait - 1) * SECOND));
                }
                now += wait * SECOND;
                assert!(rate.admit(1, now), "{per_minute}/m: {wait}");
            }
        }
        assert_eq!(
            RateLimit::for_route(1, 1).wait_s(2, SECOND),
            1,
            "an unknown client"
        );
    }

    /// An entry with the tag 0 is free.
    #[test]
    fn tag_is_never_zero() {
        let table = Table::new(ROW_ENTRIES);
        // Keys with the hashes 5 and 2^32 + 4.
        for key in [0x2200_cd8b_5039_1bc6, 0x977c_9685_33ab_7714] {
            let hash = finalize_64(key);
            assert!(hash >> 32 < 2, "{hash:#x}");
            assert_eq!(table.row(key).1, 1);
        }
    }

    /// Clients in different rows must not use each other's entries.
    #[test]
    fn rows_do_not_overlap() {
        let table = Table::new(4 * ROW_ENTRIES);
        let starts: std::collections::BTreeSet<usize> = (0..100)
            .map(|key| {
                let (row, _) = table.row(key);
                assert_eq!(row.len(), ROW_ENTRIES);
                let is_first = |entry: &AtomicU64| std::ptr::eq(entry, &raw const row[0]);
                table.0.iter().position(is_first).unwrap()
            })
            .collect();
        assert_eq!(starts.into_iter().collect::<Vec<_>>(), [0, 4, 8, 12]);
    }

    #[test]
    fn threads_share_one_rate() {
        let rate = RateLimit::new(1, 1_000);
        let allowed = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let accepted_count = (0..2_000).filter(|_| rate.admit(9, SECOND)).count();
                    allowed.fetch_add(accepted_count, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(allowed.into_inner(), 1_000);
    }

    #[test]
    fn clients_in_the_same_row_have_their_own_rates() {
        let rate = RateLimit::with_interval(UNITS_PER_SECOND, 1, ROW_ENTRIES);
        for expected in [true, false] {
            for client in 1..=4 {
                assert_eq!(rate.admit(client, SECOND), expected, "{client}");
            }
        }
    }

    #[test]
    fn new_client_is_not_rejected_if_its_row_is_full() {
        let rate = RateLimit::new(1, 1);
        for client in 0..500_000 {
            assert!(rate.admit(client, client), "a new client must be admitted");
        }
    }

    fn admit(limit: &Arc<ConcurrencyLimit>, key: u64) -> Slot {
        match limit.admit(key) {
            Admission::Counted(slot) => slot,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn dropped_slots_can_be_used_again() {
        let limit = Arc::new(ConcurrencyLimit::new(2));
        let first = admit(&limit, 1);
        let _second = admit(&limit, 1);
        assert!(matches!(limit.admit(1), Admission::Rejected));
        let _other = admit(&limit, 2);
        drop(first);
        let _third = admit(&limit, 1);
        assert!(matches!(limit.admit(1), Admission::Rejected));
    }

    #[test]
    fn new_client_is_not_counted_if_all_clients_in_the_row_are_active() {
        let limit = Arc::new(ConcurrencyLimit {
            table: Table::new(ROW_ENTRIES),
            limit: 1,
        });
        let slots: Vec<Slot> = (1..=4).map(|key| admit(&limit, key)).collect();
        assert!(matches!(limit.admit(5), Admission::Uncounted));
        assert!(matches!(limit.admit(4), Admission::Rejected));
        drop(slots);
        admit(&limit, 5);
    }

    #[test]
    fn released_slot_does_not_change_other_clients_in_the_row() {
        let limit = Arc::new(ConcurrencyLimit::total(1));
        let first = admit(&limit, 1);
        drop(admit(&limit, 2));
        assert!(matches!(limit.admit(1), Admission::Rejected));
        let _second = admit(&limit, 2);
        drop(first);
        assert!(matches!(limit.admit(2), Admission::Rejected));
    }

    /// Two workers that admit a client's requests at the same time can use two entries of the row.
    #[test]
    fn entry_with_requests_takes_precedence_over_an_unused_entry_of_the_same_client() {
        let limit = Arc::new(ConcurrencyLimit::total(1));
        let (row, tag) = limit.table.row(1);
        row[0].store(join(tag, 0), Ordering::Relaxed);
        row[1].store(join(tag, 1), Ordering::Relaxed);
        assert!(matches!(limit.admit(1), Admission::Rejected));
        limit.release(1);
        assert_eq!(split(row[1].load(Ordering::Relaxed)), (tag, 0));
        let _slot = admit(&limit, 1);
        assert!(matches!(limit.admit(1), Admission::Rejected));
    }
}
