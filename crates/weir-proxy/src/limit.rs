//! How much one client may ask: requests in a time, and requests at once, counted for all workers together in tables of
//! a fixed size.
//!
//! A table is an array of numbers that are compared and exchanged: a part of a hash of the client's key, and what is
//! known of it. A key has four places where it may stand. A client that finds all of them taken by others takes that of
//! the one that was silent longest, or, where none of them may be forgotten, goes uncounted: a table that is full
//! limits less, never more.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::balance::mix;

/// Places, as a power of two; four make a row.
const PLACES: usize = 1 << 16;
const WAYS: usize = 4;
/// Units of time in a second.
const UNITS: u64 = 1 << 16;

#[derive(Debug)]
pub(crate) struct Table(Box<[AtomicU64]>);

impl Table {
    /// Of so many places, a multiple of [`WAYS`].
    pub(crate) fn new(places: usize) -> Self {
        Self((0..places).map(|_| AtomicU64::new(0)).collect())
    }

    /// The places where a key may stand, and what stands there if it does; never 0.
    pub(crate) fn row(&self, key: u64) -> (&[AtomicU64], u32) {
        let mixed = mix(key);
        let row = (mixed as usize % (self.0.len() / WAYS)) * WAYS;
        (&self.0[row..row + WAYS], (mixed >> 32) as u32 | 1)
    }
}

pub(crate) const fn split(entry: u64) -> (u32, u32) {
    ((entry >> 32) as u32, entry as u32)
}

pub(crate) const fn join(tag: u32, value: u32) -> u64 {
    (tag as u64) << 32 | value as u64
}

/// Requests in a time: the generic cell rate algorithm (ITU-T I.371), by the time at which a client that went on at the
/// allowed rate would ask next.
#[derive(Debug)]
pub(crate) struct Rate {
    table: Table,
    /// Units between two requests, and how far ahead a client may be.
    interval: u64,
    burst: u64,
}

impl Rate {
    /// So many requests a second, and so many at once after a silence.
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let interval = (UNITS / u64::from(per_second.max(1))).max(1);
        Self {
            table: Table::new(PLACES),
            interval,
            burst: interval * u64::from(burst.max(1)),
        }
    }

    /// Whether a request of that client at `now_ns` is within its rate; if so it counts.
    pub(crate) fn allows(&self, key: u64, now_ns: u64) -> bool {
        let now = (u128::from(now_ns) * u128::from(UNITS) / 1_000_000_000) as u32;
        let (row, tag) = self.table.row(key);
        loop {
            let found = row
                .iter()
                .map(|place| (place, place.load(Ordering::Relaxed)));
            // Its own place, else a free one, else that of the one whose time is longest past.
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

    /// How far a client is ahead of its rate. No client gets further than the burst, so what says more is older than
    /// the numbers reach.
    fn ahead(&self, due: u32, now: u32) -> u64 {
        let ahead = u64::from(due.wrapping_sub(now));
        if ahead > self.burst { 0 } else { ahead }
    }
}

/// Requests at once.
#[derive(Debug)]
pub(crate) struct Concurrent {
    table: Table,
    most: u32,
}

/// What became of a request that wants to be one of several at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It counts until it is [given back](Concurrent::give_back).
    Counted(u64),
    /// The table has no room to count it.
    Uncounted,
    Refused,
}

impl Concurrent {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            table: Table::new(PLACES),
            most,
        }
    }

    pub(crate) fn admit(&self, key: u64) -> Admission {
        let (row, tag) = self.table.row(key);
        loop {
            let found = row
                .iter()
                .map(|place| (place, place.load(Ordering::Acquire)));
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
            if count >= self.most {
                return Admission::Refused;
            }
            let new = join(tag, count + 1);
            if place
                .compare_exchange_weak(entry, new, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return Admission::Counted(key);
            }
        }
    }

    /// One that was counted is over.
    pub(crate) fn give_back(&self, key: u64) {
        let (row, tag) = self.table.row(key);
        for place in row {
            let less = |entry| match split(entry) {
                (its, count) if its == tag && count > 0 => Some(join(tag, count - 1)),
                _ => None,
            };
            if place
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, less)
                .is_ok()
            {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_client_gets_its_burst_and_then_its_rate() {
        let rate = Rate::new(10, 5);
        let start = 7 * SECOND;
        let allowed = (0..20).filter(|_| rate.allows(1, start)).count();
        assert_eq!(allowed, 5);
        // Ten seconds of fifty requests each.
        let allowed = (0..500)
            .filter(|step| rate.allows(1, start + step * SECOND / 50))
            .count();
        assert!((95..=101).contains(&allowed), "{allowed}");
        assert!(rate.allows(2, start), "another client has its own");
        // After a silence longer than the numbers reach it has no debts.
        assert!(rate.allows(1, start + 40_000 * SECOND));
    }

    #[test]
    fn workers_share_what_they_count() {
        let rate = std::sync::Arc::new(Rate::new(1, 1_000));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let rate = std::sync::Arc::clone(&rate);
                std::thread::spawn(move || (0..2_000).filter(|_| rate.allows(9, SECOND)).count())
            })
            .collect();
        let allowed: usize = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum();
        assert_eq!(allowed, 1_000);
    }

    #[test]
    fn a_full_table_forgets_who_was_silent_longest() {
        let rate = Rate::new(1, 1);
        for client in 0..500_000 {
            assert!(rate.allows(client, client), "a newcomer is never refused");
        }
    }

    #[test]
    fn so_many_at_once_and_no_more() {
        let limit = Concurrent::new(2);
        assert_eq!(limit.admit(1), Admission::Counted(1));
        assert_eq!(limit.admit(1), Admission::Counted(1));
        assert_eq!(limit.admit(1), Admission::Refused);
        assert_eq!(limit.admit(2), Admission::Counted(2));
        limit.give_back(1);
        assert_eq!(limit.admit(1), Admission::Counted(1));
    }
}
