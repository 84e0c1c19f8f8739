//! Adapts weights to latencies, for schedulers that compute tables or sequences from weights.
//!
//! A changed weight moves new flows to other servers. Weights therefore change rarely and in small steps: each server
//! uses a fraction of its weight, and in each round this fraction approaches a target that depends on the server's
//! latency. The fraction is published in steps of five percent.

use std::collections::BTreeMap;

/// Minimum percentage of its weight that a server uses: without flows, there would be no samples.
pub const FLOOR_PERCENT: u32 = 5;
/// Published percentages are multiples of this number.
const STEP_PERCENT: f64 = 5.0;
/// In each round, a server's fraction moves toward its target by this fraction of the difference.
const APPROACH_RATIO: f64 = 0.3;
/// In each round, the fraction of a server without recent samples increases by this amount.
const RECOVERY_STEP: f64 = 0.05;
/// Latencies below this number of microseconds are treated as equal, because network noise exceeds them.
const LATENCY_MIN_US: f64 = 100.0;
/// Differences from the best server's latency below these limits are noise: in microseconds, and as a ratio.
const NOISE_BAND_US: f64 = 500.0;
const NOISE_BAND_RATIO: f64 = 1.25;

/// The fraction of its weight that each server in a service uses. Call [`Self::observe`] once per second.
#[derive(Clone, Debug, Default)]
pub struct Adaptation {
    fractions: BTreeMap<String, f64>,
    published: BTreeMap<String, u32>,
}

impl Adaptation {
    /// Applies the servers' latencies, in microseconds; `None` = no recent samples. Returns the percentages of the
    /// weights if any of them has changed; servers that are not in the map keep their full weight.
    pub fn observe(&mut self, servers: &[(&str, Option<f64>)]) -> Option<BTreeMap<String, u32>> {
        let recent = servers.iter().filter_map(|(_, us)| *us);
        let best = recent.fold(f64::INFINITY, f64::min).max(LATENCY_MIN_US);
        self.fractions
            .retain(|name, _| servers.iter().any(|(server, _)| server == name));
        let mut published = BTreeMap::new();
        for (name, us) in servers {
            let fraction = self.fractions.entry((*name).to_owned()).or_insert(1.0);
            match us {
                Some(us) if *us > (best * NOISE_BAND_RATIO).max(best + NOISE_BAND_US) => {
                    *fraction += APPROACH_RATIO * (best / us - *fraction);
                }
                Some(_) => *fraction += APPROACH_RATIO * (1.0 - *fraction),
                None => *fraction += RECOVERY_STEP,
            }
            *fraction = fraction.clamp(f64::from(FLOOR_PERCENT) / 100.0, 1.0);
            let percent = published_percent(*fraction, self.published.get(*name).copied());
            if percent < 100 {
                published.insert((*name).to_owned(), percent);
            }
        }
        if published == self.published {
            return None;
        }
        self.published = published;
        Some(self.published.clone())
    }
}

/// Returns the percentage to publish: the previous one if the fraction is close to it, otherwise the nearest step.
fn published_percent(fraction: f64, previous: Option<u32>) -> u32 {
    let percent = fraction * 100.0;
    let previous = previous.unwrap_or(100);
    if (percent - f64::from(previous)).abs() < STEP_PERCENT * 0.8 {
        return previous;
    }
    let nearest = (percent / STEP_PERCENT).round() * STEP_PERCENT;
    (nearest as u32).clamp(FLOOR_PERCENT, 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies the latencies `count` times. Returns the servers' percentages and the number of changes.
    fn rounds(adaptation: &mut Adaptation, us: [Option<f64>; 3], count: u32) -> (Vec<u32>, u32) {
        let servers = [("a", us[0]), ("b", us[1]), ("c", us[2])];
        let changes = (0..count).filter(|_| adaptation.observe(&servers).is_some());
        let changes = changes.count() as u32;
        let percent = |(name, _): &(&str, _)| adaptation.published.get(*name).copied();
        let percents = servers.iter().map(|server| percent(server).unwrap_or(100));
        (percents.collect(), changes)
    }

    #[test]
    fn slow_server_loses_weight_in_steps_and_regains_it() {
        let mut adaptation = Adaptation::default();
        let slow = [Some(1_000.0), Some(1_000.0), Some(4_000.0)];
        let (first, _) = rounds(&mut adaptation, slow, 1);
        assert_eq!(first, [100, 100, 80]);
        let (percent, changes) = rounds(&mut adaptation, slow, 20);
        assert_eq!(percent[..2], [100, 100]);
        assert!((25..=30).contains(&percent[2]), "{percent:?}");
        assert!(changes < 10, "{changes}");
        let recovered = [Some(1_000.0), Some(1_100.0), Some(1_000.0)];
        assert_eq!(rounds(&mut adaptation, recovered, 20).0, [100; 3]);
    }

    #[test]
    fn noise_does_not_change_weights() {
        let mut adaptation = Adaptation::default();
        for round in 0..100 {
            let noise = f64::from(round % 7) * 40.0;
            let us = [Some(1_000.0 + noise), Some(1_240.0 - noise), Some(1_100.0)];
            assert_eq!(rounds(&mut adaptation, us, 1), (vec![100; 3], 0));
        }
    }

    #[test]
    fn weight_stays_above_the_floor_and_recovers_without_samples() {
        let mut adaptation = Adaptation::default();
        let slow = [Some(1_000.0), Some(1_000.0), Some(900_000.0)];
        assert_eq!(rounds(&mut adaptation, slow, 40).0[2], FLOOR_PERCENT);
        let unknown = [Some(1_000.0), Some(1_000.0), None];
        assert_eq!(rounds(&mut adaptation, unknown, 25).0, [100; 3]);
    }

    #[test]
    fn weight_of_overloaded_server_does_not_oscillate() {
        // The latency of the third server grows with its share of the flows.
        let mut adaptation = Adaptation::default();
        let mut percents = Vec::new();
        for _ in 0..200 {
            let fraction = f64::from(adaptation.published.get("c").copied().unwrap_or(100)) / 100.0;
            let share = fraction / (2.0 + fraction);
            let third = 1_000.0 + 20_000.0 * share;
            rounds(
                &mut adaptation,
                [Some(1_000.0), Some(1_000.0), Some(third)],
                1,
            );
            percents.push(adaptation.published.get("c").copied().unwrap_or(100));
        }
        let end = &percents[50..];
        let (min, max) = (end.iter().min(), end.iter().max());
        assert!(
            max.zip(min).is_some_and(|(max, min)| max - min <= 5),
            "{end:?}"
        );
        assert!(end[0] < 60, "{end:?}");
    }

    #[test]
    fn server_loses_weight_only_if_its_latency_exceeds_the_noise_band() {
        // The latencies of two servers, and the published percentage of the second one.
        for (best, us, expected) in [
            // 500 us.
            (1_000.0, 1_500.0, 100),
            (1_000.0, 1_501.0, 90),
            // A quarter.
            (4_000.0, 5_000.0, 100),
            (4_000.0, 5_001.0, 95),
            // Latencies below 100 us count as 100 us.
            (40.0, 600.0, 100),
            (40.0, 601.0, 75),
        ] {
            let servers = [Some(best), Some(us), None];
            let (percents, _) = rounds(&mut Adaptation::default(), servers, 1);
            assert_eq!(percents[..2], [100, expected], "{best} {us}");
        }
    }

    #[test]
    fn weight_recovers_gradually() {
        let slow = [Some(1_000.0), Some(1_000.0), Some(4_000.0)];
        let recovered = [Some(1_000.0); 3];
        let unknown = [Some(1_000.0), Some(1_000.0), None];
        for (us, expected) in [
            // 30 % of the difference in each round.
            (recovered, [50, 65, 75]),
            // 5 % of the weight in each round.
            (unknown, [30, 35, 40]),
        ] {
            let mut adaptation = Adaptation::default();
            assert_eq!(rounds(&mut adaptation, slow, 40).0[2], 25);
            let actual = [(); 3].map(|()| rounds(&mut adaptation, us, 1).0[2]);
            assert_eq!(actual, expected);
        }
    }

    #[test]
    fn published_percentage_changes_in_steps_with_hysteresis() {
        for (fraction, previous, expected) in [
            (0.961, None, 100),
            (0.96, None, 95),
            (0.861, Some(90), 90),
            (0.86, Some(90), 85),
            (0.939, Some(90), 90),
            (0.94, Some(90), 95),
            (0.5, Some(90), 50),
            (0.01, Some(90), FLOOR_PERCENT),
        ] {
            let actual = published_percent(fraction, previous);
            assert_eq!(actual, expected, "{fraction} {previous:?}");
        }
    }

    #[test]
    fn state_of_removed_server_is_discarded() {
        let mut adaptation = Adaptation::default();
        for _ in 0..10 {
            adaptation.observe(&[("a", Some(1_000.0)), ("b", Some(9_000.0))]);
        }
        assert!(adaptation.published.contains_key("b"));
        assert_eq!(
            adaptation.observe(&[("a", Some(1_000.0))]),
            Some(BTreeMap::new())
        );
        assert_eq!(adaptation.observe(&[("a", Some(1_000.0))]), None);
        // When it is added again, it starts with its full weight.
        let added = [("a", Some(1_000.0)), ("b", Some(4_000.0))];
        let expected = BTreeMap::from([("b".to_owned(), 80)]);
        assert_eq!(adaptation.observe(&added), Some(expected));
    }
}
