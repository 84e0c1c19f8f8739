//! How a router distributes flows over the directors (RFC 2992).

use serde::Serialize;
use weir_sched::hash::mix_64;

/// Buckets of a resilient group. Switches have hundreds to thousands; with fewer than 32 per director, shares differ.
const BUCKETS: usize = 4096;

/// How the router selects one of several next hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Router {
    /// The hash is compared with regions of equal size, as Linux does for multipath routes. A change moves the borders.
    Threshold,
    /// A table of buckets. A change only moves the buckets that it has to: resilient hashing of switches, and next hop
    /// groups of type `resilient` on Linux.
    Resilient,
}

impl Router {
    /// Both, in the order of the tables.
    pub const ALL: [Self; 2] = [Self::Threshold, Self::Resilient];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threshold => "plain ECMP",
            Self::Resilient => "resilient ECMP",
        }
    }
}

/// The share of flows that get another director when the last one of equal regions is removed, or one is added behind
/// it (RFC 2992, section 2). Both numbers are at least 1 and differ by at most 1.
#[must_use]
pub fn moved_by_last(before: u32, after: u32) -> f64 {
    let (few, many) = (before.min(after).max(1), before.max(after).max(1));
    let border = |number: u32, of: u32| f64::from(number) / f64::from(of);
    let kept = (0..few).map(|number| {
        let begin = border(number, few).max(border(number, many));
        let end = border(number + 1, few).min(border(number + 1, many));
        (end - begin).max(0.0)
    });
    1.0 - kept.sum::<f64>()
}

/// The directors that the router knows, and which flows each of them gets.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    router: Router,
    /// In the router's order, which is that of their addresses.
    directors: Vec<u32>,
    /// Owner of each bucket of a resilient group.
    buckets: Vec<u32>,
}

impl Spread {
    /// Distributes flows over these directors, of which there must be at least one.
    pub(crate) fn new(router: Router, directors: u32) -> Self {
        let mut spread = Self {
            router,
            directors: (0..directors).collect(),
            buckets: Vec::new(),
        };
        // Addresses have no relation to the order in which directors were installed.
        spread.directors.sort_by_key(|&id| mix_64(u64::from(id)));
        spread.buckets = spread
            .directors
            .iter()
            .copied()
            .cycle()
            .take(BUCKETS)
            .collect();
        spread
    }

    /// The director of a flow with this hash.
    pub(crate) fn director(&self, hash: u32) -> u32 {
        let table = match self.router {
            Router::Threshold => &self.directors,
            Router::Resilient => &self.buckets,
        };
        table[((u64::from(hash) * table.len() as u64) >> 32) as usize]
    }

    /// Adds a director.
    pub(crate) fn add(&mut self, id: u32) {
        let at = self
            .directors
            .partition_point(|&other| mix_64(u64::from(other)) < mix_64(u64::from(id)));
        self.directors.insert(at, id);
        for _ in 0..BUCKETS / self.directors.len() {
            if let Some(owner) = self.owner_with_most(id)
                && let Some(bucket) = self.buckets.iter_mut().find(|bucket| **bucket == owner)
            {
                *bucket = id;
            }
        }
    }

    /// Removes the director at `position` in the router's order, unless it is the last one.
    pub(crate) fn remove(&mut self, position: usize) {
        if self.directors.len() < 2 {
            return;
        }
        let gone = self.directors.remove(position % self.directors.len());
        let mut heirs = self.directors.iter().cycle();
        for bucket in self.buckets.iter_mut().filter(|bucket| **bucket == gone) {
            if let Some(&heir) = heirs.next() {
                *bucket = heir;
            }
        }
    }

    fn owner_with_most(&self, except: u32) -> Option<u32> {
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

    /// The share of hashes that another director gets after `change`.
    fn moved(router: Router, change: impl Fn(&mut Spread)) -> f64 {
        let before = Spread::new(router, 8);
        let mut after = before.clone();
        change(&mut after);
        let hashes = (0..20_000u64).map(|number| mix_64(number) as u32);
        let count = hashes
            .filter(|&hash| before.director(hash) != after.director(hash))
            .count();
        count as f64 / 20_000.0
    }

    #[test]
    fn resilient_group_moves_only_what_it_has_to() {
        let added = moved(Router::Resilient, |spread| spread.add(8));
        assert!((added - 1.0 / 9.0).abs() < 0.01, "{added}");
        let removed = moved(Router::Resilient, |spread| spread.remove(3));
        assert!((removed - 1.0 / 8.0).abs() < 0.01, "{removed}");
    }

    /// RFC 2992 section 2: between a quarter and a half.
    #[test]
    fn regions_move_a_quarter_to_a_half() {
        let added = moved(Router::Threshold, |spread| spread.add(8));
        assert!((0.25..=0.51).contains(&added), "{added}");
        let removed = moved(Router::Threshold, |spread| spread.remove(3));
        assert!((0.25..=0.51).contains(&removed), "{removed}");
    }

    #[test]
    fn last_region_moves_half_of_the_flows() {
        for directors in 1..64 {
            let added = moved_by_last(directors, directors + 1);
            assert!((added - 0.5).abs() < 1e-9, "{directors}: {added}");
            let removed = moved_by_last(directors + 1, directors);
            assert!((removed - added).abs() < 1e-9, "{directors}");
        }
        assert!(moved_by_last(4, 4).abs() < 1e-9);
    }

    #[test]
    fn each_director_gets_its_share() {
        for router in Router::ALL {
            let mut spread = Spread::new(router, 8);
            spread.add(8);
            spread.remove(0);
            for &id in &spread.directors {
                let hashes = (0..20_000u64).map(|number| mix_64(number) as u32);
                let count = hashes.filter(|&hash| spread.director(hash) == id).count();
                assert!((2_000..3_000).contains(&count), "{router:?} {id}: {count}");
            }
        }
    }

    #[test]
    fn last_director_remains() {
        for router in Router::ALL {
            let mut spread = Spread::new(router, 2);
            spread.remove(0);
            spread.remove(0);
            assert_eq!(spread.directors.len(), 1);
            assert_eq!(spread.director(7), spread.directors[0]);
        }
    }
}
