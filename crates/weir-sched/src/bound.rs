//! Implements bounded load for hashing schedulers: a new flow that hashes to a server at its bound goes to another
//! server.
//!
//! The algorithm is from Mirrokni, Thorup and Zadimoghaddam (SODA 2018).
//!
//! A server's share is the fraction of the active flows, including the new flow, that corresponds to its weight. A
//! server is busy if one more flow would exceed `percent` percent of its share, rounded up. With 100 percent or more,
//! at least one server is not busy.

use crate::{Counts, Member};

/// The load bound of a service, and the totals of its servers with a weight above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    percent: u32,
    active: u64,
    weight: u64,
}

impl Bound {
    /// Returns the bound for a service's members. Members with weight 0 are ignored; overloaded members are counted.
    pub fn new(percent: u32, members: &[Member], counts: &dyn Fn(u32) -> Counts) -> Self {
        let weighted = || members.iter().filter(|member| member.weight > 0);
        Self {
            percent,
            active: weighted()
                .map(|member| u64::from(counts(member.slot).active))
                .sum(),
            weight: weighted().map(|member| u64::from(member.weight)).sum(),
        }
    }

    /// Returns whether a server with this weight and number of active flows is busy, so that its next flow goes to
    /// another server.
    #[must_use]
    pub fn is_busy(&self, weight: u32, active: u32) -> bool {
        let scaled_load = u64::from(active)
            .wrapping_mul(100)
            .wrapping_mul(self.weight);
        let scaled_bound = u64::from(self.percent)
            .wrapping_mul(self.active + 1)
            .wrapping_mul(u64::from(weight));
        scaled_load >= scaled_bound
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(weights: &[u32]) -> Vec<Member> {
        (1..)
            .zip(weights)
            .map(|(seq, &weight)| Member {
                seq,
                dest: seq,
                weight,
                slot: seq - 1,
                usable: true,
            })
            .collect()
    }

    #[test]
    fn bounds_are_weighted_and_rounded_up() {
        // 10 active flows and a new one: the bounds, from 11 × 1.25 flows, are 3.4, 6.9 and 3.4.
        let members = members(&[1, 2, 1, 0]);
        let counts = [4, 3, 3, 90].map(|active| Counts {
            active,
            inactive: 1000,
        });
        let bound = Bound::new(125, &members, &|slot| counts[slot as usize]);
        assert!(
            !bound.is_busy(1, 3),
            "a fourth flow is within 3.4 rounded up"
        );
        assert!(bound.is_busy(1, 4));
        assert!(!bound.is_busy(2, 6));
        assert!(bound.is_busy(2, 7));
    }

    proptest! {
        #[test]
        fn at_least_one_server_is_not_busy(
            servers in prop::collection::vec((1_u32..1000, 0_u32..100_000), 1..40),
            percent in 100_u32..1000,
        ) {
            let weights: Vec<u32> = servers.iter().map(|server| server.0).collect();
            let counts = |slot: u32| Counts { active: servers[slot as usize].1, inactive: 0 };
            let bound = Bound::new(percent, &members(&weights), &counts);
            prop_assert!(servers.iter().any(|&(weight, active)| !bound.is_busy(weight, active)));
        }

        #[test]
        fn server_stays_within_the_load_bound(
            weights in prop::collection::vec(1_u32..10, 1..10),
            owners in prop::collection::vec(any::<prop::sample::Index>(), 1..300),
            percent in 100_u32..200,
        ) {
            let members = members(&weights);
            let mut active = vec![0_u32; weights.len()];
            for owner in owners {
                let counts = |slot: u32| Counts { active: active[slot as usize], inactive: 0 };
                let bound = Bound::new(percent, &members, &counts);
                let first = owner.index(weights.len());
                let mut order = (first..weights.len()).chain(0..first);
                let chosen = order.find(|&index| !bound.is_busy(weights[index], active[index])).unwrap();
                active[chosen] += 1;
            }
            let (total, weight) = (active.iter().sum::<u32>(), weights.iter().sum::<u32>());
            for (index, &active) in active.iter().enumerate() {
                let fraction = f64::from(weights[index]) / f64::from(weight);
                let bound = f64::from(percent) / 100.0 * f64::from(total) * fraction;
                prop_assert!(f64::from(active) <= bound.ceil() + 1e-9, "{active} of {bound}");
            }
        }
    }
}
