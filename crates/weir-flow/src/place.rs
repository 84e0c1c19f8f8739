//! The places of a flow table: in which buckets a hash may lie, in which order they are tried, and how the home marks them.
//!
//! The rules are bpf/lib/bucket.h's. Here they serve the reference model, which takes and gives places as the data plane does,
//! and the tests that walk a table.

use weir_abi::{BUCKET_SLOTS, Bucket, SPILL_PAIRS, STASH_PAIRS};

use crate::key::{GOLDEN_64, scaled};

/// Position of the bits of a hash that say which pair is tried first, and which bucket of a pair.
const PAIR_SHIFT: u32 = 8;
const SIDE_SHIFT: u32 = 12;
/// Bits of a mark.
const MARK_BITS: u32 = 4;

/// How many buckets are home to hashes, and how many are the stash behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    homes: u32,
    stash: u32,
}

impl Geometry {
    /// Of a table of `buckets` buckets.
    #[must_use]
    pub const fn of(buckets: u32) -> Self {
        let homes = Bucket::homes(buckets);
        Self {
            homes,
            stash: buckets - homes,
        }
    }

    /// Number of home buckets.
    #[must_use]
    pub const fn homes(self) -> u32 {
        self.homes
    }

    const fn stash_pairs(self) -> u32 {
        self.stash.div_ceil(2)
    }
}

/// Where a hash may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The fingerprint, 44 bits.
    pub tag: u64,
    /// The bucket that is looked at first.
    pub home: u32,
    first: u32,
    side: u32,
    geometry: Geometry,
}

/// How a home bucket counts an entry that lies elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It lies at home.
    None,
    /// What it adds to [`Bucket::spilled`].
    Spilled(u64),
    /// What it adds to [`Bucket::stashed`].
    Stashed(u32),
}

impl Placement {
    /// In a table of this shape.
    #[must_use]
    pub const fn of(hash: u64, geometry: Geometry) -> Self {
        Self {
            tag: hash & ((1 << 44) - 1),
            home: scaled(hash, geometry.homes),
            first: (hash >> PAIR_SHIFT) as u32 % SPILL_PAIRS,
            side: (hash >> SIDE_SHIFT) as u32 & 1,
            geometry,
        }
    }

    /// The buckets in the order in which they are tried, and how the home marks each.
    pub fn steps(self) -> impl Iterator<Item = (u32, Mark)> {
        let steps = |pairs: u32| (0..2 * pairs).map(move |step| (step / 2, self.side ^ step & 1));
        let spilled = steps(SPILL_PAIRS).filter_map(move |(step, side)| self.spill(step, side));
        let stashed = steps(STASH_PAIRS).filter_map(move |(pair, side)| self.stash(pair, side));
        std::iter::once((self.home, Mark::None))
            .chain(spilled)
            .chain(stashed)
    }

    fn spill(self, step: u32, side: u32) -> Option<(u32, Mark)> {
        let pair = (self.first + step) % SPILL_PAIRS;
        let bucket = (self.home ^ pair << 1) & !1 | side;
        let exists = bucket < self.geometry.homes && bucket != self.home;
        exists.then_some((bucket, Mark::Spilled(1 << (pair * MARK_BITS))))
    }

    fn stash(self, pair: u32, side: u32) -> Option<(u32, Mark)> {
        let Geometry { homes, stash } = self.geometry;
        let pairs = self.geometry.stash_pairs();
        if pair >= pairs {
            return None;
        }
        let first = scaled(u64::from(self.home).wrapping_mul(GOLDEN_64), pairs);
        let bucket = homes + (first + pair) % pairs * 2 + side;
        let exists = bucket < homes + stash;
        exists.then_some((bucket, Mark::Stashed(1 << (pair * MARK_BITS))))
    }
}

/// Which places are taken.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    geometry: Geometry,
    /// A bit for each slot.
    taken: Vec<u8>,
}

impl Places {
    /// All free, in a table of `buckets` buckets.
    pub(crate) fn new(buckets: u32) -> Self {
        Self {
            geometry: Geometry::of(buckets),
            taken: vec![0; buckets as usize],
        }
    }

    /// Takes a place for a hash; `None` = all of its buckets are full.
    pub(crate) fn take(&mut self, hash: u64) -> Option<u32> {
        Placement::of(hash, self.geometry)
            .steps()
            .find_map(|(bucket, _)| {
                let slots = self.taken.get_mut(bucket as usize)?;
                let slot = slots.trailing_ones();
                (slot < BUCKET_SLOTS).then(|| {
                    *slots |= 1 << slot;
                    bucket * BUCKET_SLOTS + slot
                })
            })
    }

    /// Gives a place back.
    pub(crate) fn give(&mut self, place: u32) {
        if let Some(slots) = self.taken.get_mut((place / BUCKET_SLOTS) as usize) {
            *slots &= !(1 << (place % BUCKET_SLOTS));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(GOLDEN_64);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        }
    }

    fn all_taken(places: &Places, bucket: u32) -> bool {
        places.taken[bucket as usize].count_ones() == BUCKET_SLOTS
    }

    /// A nat flow's two places.
    fn take_both(places: &mut Places, random: &mut Random) -> Option<(u32, u32)> {
        let reverse = places.take(random.next())?;
        let Some(forward) = places.take(random.next()) else {
            places.give(reverse);
            return None;
        };
        Some((reverse, forward))
    }

    /// Fills a table with nat flows to `percent` of its places, then replaces all of them ten times, the oldest or any.
    /// Returns how many were refused.
    fn refused(buckets: u32, percent: u32, oldest_first: bool) -> usize {
        let mut random = Random(buckets.into());
        let mut places = Places::new(buckets);
        let count = (buckets * BUCKET_SLOTS * percent / 200) as usize;
        let mut flows = Vec::new();
        let mut refused = 0;
        for turn in 0..11 * count {
            if turn >= count {
                let index = match oldest_first {
                    true => turn % count,
                    false => (random.next() % count as u64) as usize,
                };
                let (reverse, forward) = flows.swap_remove(index);
                places.give(reverse);
                places.give(forward);
                let last = loop {
                    match take_both(&mut places, &mut random) {
                        Some(both) => break both,
                        None => refused += 1,
                    }
                };
                flows.push(last);
                let end = flows.len() - 1;
                flows.swap(index, end);
                continue;
            }
            match take_both(&mut places, &mut random) {
                Some(both) => flows.push(both),
                None => refused += 1,
            }
        }
        refused
    }

    #[test]
    fn no_nat_flow_is_refused_at_90_percent_after_ten_turnovers() {
        for buckets in [32, 64, 150, 1000, 4096] {
            for oldest_first in [false, true] {
                assert_eq!(refused(buckets, 90, oldest_first), 0, "{buckets} buckets");
            }
        }
    }

    #[test]
    fn every_place_of_a_page_is_reached() {
        let mut places = Places::new(32);
        let mut random = Random(1);
        let taken: HashSet<u32> = (0..32 * BUCKET_SLOTS)
            .map(|_| places.take(random.next()).unwrap())
            .collect();
        assert_eq!(taken.len(), 224);
        assert_eq!(places.take(random.next()), None);
    }

    proptest! {
        #[test]
        fn steps_lie_in_the_table_and_differ(hash: u64, buckets in 1u32..5000) {
            let geometry = Geometry::of(buckets);
            let placement = Placement::of(hash, geometry);
            let mut seen = HashSet::new();
            for (bucket, mark) in placement.steps() {
                prop_assert!(bucket < buckets && seen.insert(bucket), "{bucket}");
                prop_assert_eq!(matches!(mark, Mark::Stashed(_)), bucket >= geometry.homes());
            }
            prop_assert!(placement.home < geometry.homes() && placement.tag < 1 << 44);
        }

        /// A reader that knows the home's marks alone finds every entry, and finds no place given twice.
        #[test]
        fn marks_lead_to_every_entry(
            buckets in 1u32..200,
            steps in prop::collection::vec((any::<u64>(), 0u8..8), 1..2000),
        ) {
            let geometry = Geometry::of(buckets);
            let mut places = Places::new(buckets);
            let mut held: Vec<(u64, u32)> = Vec::new();
            let mut marks: HashMap<u32, (u64, u32)> = HashMap::new();
            // Few homes, so that they fill up.
            for (random, action) in steps {
                if action == 0 && !held.is_empty() {
                    let (hash, place) = held.swap_remove(random as usize % held.len());
                    places.give(place);
                    add(&mut marks, hash, place, geometry, -1);
                    continue;
                }
                let hash = random & 0x0fff_ffff_ffff_ffff;
                let Some(place) = places.take(hash) else {
                    let placement = Placement::of(hash, geometry);
                    prop_assert!(placement.steps().all(|(bucket, _)| all_taken(&places, bucket)));
                    continue;
                };
                prop_assert!(held.iter().all(|(_, other)| *other != place));
                add(&mut marks, hash, place, geometry, 1);
                held.push((hash, place));
            }
            for (hash, place) in &held {
                let placement = Placement::of(*hash, geometry);
                let (spilled, stashed) = marks.get(&placement.home).copied().unwrap_or_default();
                let looked_at = placement.steps().filter(|(_, mark)| match mark {
                    Mark::None => true,
                    Mark::Spilled(one) => spilled & (one * 15) != 0,
                    Mark::Stashed(one) => stashed & (one * 15) != 0,
                });
                let buckets: Vec<u32> = looked_at.map(|(bucket, _)| bucket).collect();
                prop_assert!(buckets.contains(&(place / BUCKET_SLOTS)), "{hash:x} {place}");
            }
            for (hash, place) in held.drain(..) {
                add(&mut marks, hash, place, geometry, -1);
            }
            prop_assert!(marks.values().all(|marks| *marks == (0, 0)));
        }
    }

    /// Adds an entry to its home's marks or takes it out, as the data plane does: a sum that carries would be seen at the end.
    fn add(
        marks: &mut HashMap<u32, (u64, u32)>,
        hash: u64,
        place: u32,
        geometry: Geometry,
        by: i8,
    ) {
        let placement = Placement::of(hash, geometry);
        let (_, mark) = placement
            .steps()
            .find(|(bucket, _)| *bucket == place / BUCKET_SLOTS)
            .expect("a bucket of its own");
        let (spilled, stashed) = marks.entry(placement.home).or_default();
        match mark {
            Mark::None => {}
            Mark::Spilled(one) => {
                *spilled = spilled.wrapping_add_signed(i64::from(by) * one.cast_signed());
            }
            Mark::Stashed(one) => {
                *stashed = stashed.wrapping_add_signed(i32::from(by) * one.cast_signed());
            }
        }
    }
}
