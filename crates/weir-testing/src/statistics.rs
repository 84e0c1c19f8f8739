//! Computes statistics for tests of random choices.

use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Returns the probability that a sample from the distribution `shares` deviates at least as much as `observed`
/// (Pearson's chi-squared test). `shares` need not be normalized.
///
/// # Panics
/// A server with share 0 was chosen, or no share is above 0.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub fn p_value(observed: &[u64], shares: &[f64]) -> f64 {
    let total = observed.iter().sum::<u64>() as f64;
    let total_share = shares.iter().sum::<f64>();
    let mut deviation = 0.0;
    for (observed, share) in observed.iter().zip(shares) {
        if *share == 0.0 {
            assert_eq!(*observed, 0, "an excluded server was chosen");
            continue;
        }
        let expected = total * share / total_share;
        deviation += (*observed as f64 - expected).powi(2) / expected;
    }
    match shares.iter().filter(|share| **share > 0.0).count() {
        // There is only one server, so every sample agrees with the shares.
        1 => 1.0,
        servers => {
            let distribution = ChiSquared::new((servers - 1) as f64);
            distribution.expect("a share is above 0").sf(deviation)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likely_and_unlikely_samples_are_distinguished() {
        let shares = [1.0, 1.0, 0.0];
        assert!(p_value(&[500, 500, 0], &shares) > 0.99);
        // 3.84 is the 95th percentile for one degree of freedom.
        let p = p_value(&[531, 469, 0], &shares);
        assert!((0.04..0.06).contains(&p), "{p}");
        assert!(p_value(&[600, 400, 0], &shares) < 1e-9);
        assert_eq!(p_value(&[7, 0], &[2.0, 0.0]), 1.0);
    }

    #[test]
    #[should_panic(expected = "an excluded server was chosen")]
    fn choice_of_an_excluded_server_panics() {
        let _ = p_value(&[1, 1], &[1.0, 0.0]);
    }
}
