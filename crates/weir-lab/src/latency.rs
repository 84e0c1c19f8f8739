//! How long requests took, as shares: what clients of an experiment saw when something was done to their balancer.

/// The shares that tables show, in parts of all requests.
pub(crate) const SHOWN: [f64; 5] = [0.5, 0.95, 0.99, 0.9999, 1.0];

/// A distribution of latencies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    /// `(share, milliseconds)`: this part of the requests took no longer. Both ascend; the last share is 1.
    points: Vec<(f64, f64)>,
}

impl Latency {
    /// From points in any order, of several sources: what a finer one and a coarser one say of neighbouring shares may
    /// cross by a rounding, and is made to ascend.
    pub(crate) fn new(mut points: Vec<(f64, f64)>) -> Self {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by(|a, b| a.0 == b.0);
        let mut highest = 0.0_f64;
        for (_, milliseconds) in &mut points {
            highest = highest.max(*milliseconds);
            *milliseconds = highest;
        }
        Latency { points }
    }

    /// What this share of the requests took no longer than, in milliseconds.
    pub fn at(&self, share: f64) -> f64 {
        let reached = self.points.iter().find(|point| point.0 >= share);
        reached
            .or(self.points.last())
            .map_or(0.0, |(_, milliseconds)| *milliseconds)
    }

    /// All points.
    pub(crate) fn points(&self) -> &[(f64, f64)] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_cross_by_a_rounding_ascend() {
        let latency = Latency::new(vec![(1.0, 9.0), (0.99, 2.4), (0.999, 2.0), (0.5, 1.0)]);
        assert_eq!(
            latency.points(),
            [(0.5, 1.0), (0.99, 2.4), (0.999, 2.4), (1.0, 9.0)]
        );
        assert_eq!(
            [0.1, 0.5, 0.9999, 1.0].map(|s| latency.at(s)),
            [1.0, 1.0, 9.0, 9.0]
        );
        assert_eq!(Latency::default().at(0.5), 0.0);
    }
}
