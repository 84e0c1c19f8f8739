//! Models how a router distributes flows across the directors (RFC 2992).

use serde::Serialize;
use weir_sched::hash::mix_64;

/// Number of buckets in a resilient group. Switches have hundreds to thousands; with fewer than 32 per director, shares
/// are uneven.
const BUCKETS: usize = 4096;

/// How the router selects one of several next hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Router {
    /// Each next hop has a region of the hash space, all of equal size, as in multipath routes on Linux. A change moves
    /// the boundaries.
    Threshold,
    /// A table of buckets. A change reassigns as few buckets as possible, as in the resilient hashing of switches and
    /// in `resilient` next hop groups on Linux.
    Resilient,
}

impl Router {
    /// Both kinds, in the order of the result tables.
    pub const ALL: [Self; 2] = [Self::Threshold, Self::Resilient];

    /// Returns the router's name in result tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threshold => "plain ECMP",
            Self::Resilient => "resilient ECMP",
        }
    }
}

/// Returns the share of flows that move to a different director when the last of several equal regions is removed, or a
/// region is added after it (RFC 2992, section 2). `before` and `after` are the numbers of directors; both are at least
/// 1 and differ by at most 1.
#[must_use]
pub fn share_moved_by_last_region(before: u32, after: u32) -> f64 {
    let (few, many) = (before.min(after).max(1), before.max(after).max(1));
    let boundary = |number: u32, regions: u32| f64::from(number) / f64::from(regions);
    let unmoved_shares = (0..few).map(|number| {
        let begin = boundary(number, few).max(boundary(number, many));
        let end = boundary(number + 1, few).min(boundary(number + 1, many));
        (end - begin).max(0.0)
    });
    1.0 - unmoved_shares.sum::<f64>()
}

/// The directors that are next hops of the router, and the flows that each of them receives.
#[derive(Debug, Clone)]
pub(crate) struct NextHops {
    router: Router,
    /// Director numbers, in the order of the directors' addresses.
    directors: Vec<u32>,
    /// The director of each bucket in a resilient group.
    buckets: Vec<u32>,
}

impl NextHops {
    /// Distributes flows over this many directors, which must be at least 1.
    pub(crate) fn new(router: Router, directors: u32) -> Self {
        let mut next_hops = Self {
            router,
            directors: (0..directors).collect(),
            buckets: Vec::new(),
        };
        // Addresses have no relation to the order in which directors were installed.
        next_hops.directors.sort_by_key(|&id| mix_64(u64::from(id)));
        next_hops.buckets = next_hops
            .directors
            .iter()
            .copied()
            .cycle()
            .take(BUCKETS)
            .collect();
        next_hops
    }

    /// Returns the director of a flow with this hash.
    pub(crate) fn director(&self, hash: u32) -> u32 {
        let table = match self.router {
            Router::Threshold => &self.directors,
            Router::Resilient => &self.buckets,
        };
        table[((u64::from(hash) * table.len() as u64) >> 32) as usize]
    }

    /// Adds a director, which takes over buckets from the directors with the most buckets.
    pub(crate) fn add(&mut self, id: u32) {
        let index = self
            .directors
            .partition_point(|&other| mix_64(u64::from(other)) < mix_64(u64::from(id)));
        self.directors.insert(index, id);
        for _ in 0..BUCKETS / self.directors.len() {
            if let Some(owner) = self.director_with_most_buckets(id)
                && let Some(bucket) = self.buckets.iter_mut().find(|bucket| **bucket == owner)
            {
                *bucket = id;
            }
        }
    }

    /// Removes the director at `position` (modulo the number of directors) in the router's order, unless it is the only
    /// one.
    pub(crate) fn remove(&mut self, position: usize) {
        if self.directors.len() < 2 {
            return;
        }
        let removed_id = self.directors.remove(position % self.directors.len());
        let mut successors = self.directors.iter().cycle();
        for bucket in self
            .buckets
            .iter_mut()
            .filter(|bucket| **bucket == removed_id)
        {
            if let Some(&successor) = successors.next() {
                *bucket = successor;
            }
        }
    }

    /// Returns the director with the most buckets, ignoring `except`.
    fn director_with_most_buckets(&self, except: u32) -> Option<u32> {
        let count = |id: u32| self.buckets.iter().filter(|bucket| **bucket == id).count();
        self.directors
            .iter()
            .copied()
            .filter(|&id| id != except)
            .max_by_key(|&id| count(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the share of hashes whose director differs after `change`.
    fn moved_share(router: Router, change: impl Fn(&mut NextHops)) -> f64 {
        let before = NextHops::new(router, 8);
        let mut after = before.clone();
        change(&mut after);
        let hashes = (0..20_000u64).map(|number| mix_64(number) as u32);
        let count = hashes
            .filter(|&hash| before.director(hash) != after.director(hash))
            .count();
        count as f64 / 20_000.0
    }

    #[test]
    fn resilient_group_moves_minimum_share_of_flows() {
        let added_share = moved_share(Router::Resilient, |next_hops| next_hops.add(8));
        assert!((added_share - 1.0 / 9.0).abs() < 0.01, "{added_share}");
        let removed_share = moved_share(Router::Resilient, |next_hops| next_hops.remove(3));
        assert!((removed_share - 1.0 / 8.0).abs() < 0.01, "{removed_share}");
    }

    /// RFC 2992 section 2: between a quarter and a half.
    #[test]
    fn threshold_moves_a_quarter_to_a_half_of_the_flows() {
        let added_share = moved_share(Router::Threshold, |next_hops| next_hops.add(8));
        assert!((0.25..=0.51).contains(&added_share), "{added_share}");
        let removed_share = moved_share(Router::Threshold, |next_hops| next_hops.remove(3));
        assert!((0.25..=0.51).contains(&removed_share), "{removed_share}");
    }

    #[test]
    fn last_region_moves_half_of_the_flows() {
        for directors in 1..64 {
            let added_share = share_moved_by_last_region(directors, directors + 1);
            assert!(
                (added_share - 0.5).abs() < 1e-9,
                "{directors}: {added_share}"
            );
            let removed_share = share_moved_by_last_region(directors + 1, directors);
            assert!((removed_share - added_share).abs() < 1e-9, "{directors}");
        }
        assert!(share_moved_by_last_region(4, 4).abs() < 1e-9);
    }

    #[test]
    fn each_director_gets_its_share() {
        for router in Router::ALL {
            let mut next_hops = NextHops::new(router, 8);
            next_hops.add(8);
            next_hops.remove(0);
            for &id in &next_hops.directors {
                let hashes = (0..20_000u64).map(|number| mix_64(number) as u32);
                let count = hashes
                    .filter(|&hash| next_hops.director(hash) == id)
                    .count();
                assert!((2_000..3_000).contains(&count), "{router:?} {id}: {count}");
            }
        }
    }

    #[test]
    fn directors_stay_in_the_order_of_their_addresses() {
        for count in 1..20 {
            let mut next_hops = NextHops::new(Router::Threshold, count);
            next_hops.add(count);
            let order = NextHops::new(Router::Threshold, count + 1).directors;
            assert_eq!(next_hops.directors, order, "{count}");
            for position in [0, count as usize, 2 * count as usize + 3] {
                let mut next_hops = next_hops.clone();
                next_hops.remove(position);
                let mut remaining = order.clone();
                remaining.remove(position % order.len());
                assert_eq!(next_hops.directors, remaining, "{count} {position}");
            }
        }
    }

    #[test]
    fn last_director_is_not_removed() {
        for router in Router::ALL {
            let mut next_hops = NextHops::new(router, 2);
            next_hops.remove(0);
            next_hops.remove(0);
            assert_eq!(next_hops.directors.len(), 1);
            assert_eq!(next_hops.director(7), next_hops.directors[0]);
        }
    }
}
