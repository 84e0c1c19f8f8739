//! Represents the distribution of request latencies.

/// The quantiles shown in tables.
pub(crate) const TABLE_QUANTILES: [f64; 5] = [0.5, 0.95, 0.99, 0.9999, 1.0];

/// A latency distribution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    /// Pairs `(quantile, milliseconds)`: the fraction `quantile` of the requests took at most this time. Both values
    /// are in ascending order; the last quantile is 1.
    points: Vec<(f64, f64)>,
}

impl Latency {
    /// Creates a distribution from points in any order and from several sources. Corrects times that do not ascend
    /// because the sources round differently.
    pub(crate) fn new(mut points: Vec<(f64, f64)>) -> Self {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by(|a, b| a.0 == b.0);
        let mut max_ms = 0.0_f64;
        for (_, milliseconds) in &mut points {
            max_ms = max_ms.max(*milliseconds);
            *milliseconds = max_ms;
        }
        Latency { points }
    }

    /// Returns a quantile in milliseconds: the maximum time that this fraction of the requests took.
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        let point = self.points.iter().find(|point| point.0 >= quantile);
        point
            .or(self.points.last())
            .map_or(0.0, |(_, milliseconds)| *milliseconds)
    }

    /// Returns all points.
    pub(crate) fn points(&self) -> &[(f64, f64)] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_differences_between_sources_are_corrected() {
        let latency = Latency::new(vec![(1.0, 9.0), (0.99, 2.4), (0.999, 2.0), (0.5, 1.0)]);
        assert_eq!(
            latency.points(),
            [(0.5, 1.0), (0.99, 2.4), (0.999, 2.4), (1.0, 9.0)]
        );
        assert_eq!(
            [0.1, 0.5, 0.9999, 1.0].map(|quantile| latency.quantile_ms(quantile)),
            [1.0, 1.0, 9.0, 9.0]
        );
        assert_eq!(Latency::default().quantile_ms(0.5), 0.0);
    }
}
