//! Weights that follow the latency, for schedulers that compute tables or sequences from weights.
//!
//! A new weight changes where new flows go, so that weights move in few and small steps: a server's part of its weight
//! approaches what its latency deserves by a fraction in each round, and is published in steps of five percent.

use std::collections::BTreeMap;

/// A server's smallest part of its weight, in percent: without flows there would be no samples.
pub const FLOOR_PERCENT: u32 = 5;
/// Published parts are multiples of this.
const STEP_PERCENT: f64 = 5.0;
/// How far a part approaches its target in a round.
const APPROACH: f64 = 0.3;
/// How far a server without recent samples recovers in a round.
const RECOVERY: f64 = 0.05;
/// Estimates below this are equal: they are shorter than the noise of the network.
const LEAST_US: f64 = 100.0;
/// Differences from the best server below this are noise, absolute and as a part.
const BAND_US: f64 = 500.0;
const BAND: f64 = 1.25;

/// The parts of the servers of one service. Call [`Self::observe`] once per second.
#[derive(Clone, Debug, Default)]
pub struct Adaptation {
    parts: BTreeMap<String, f64>,
    published: BTreeMap<String, u32>,
}

impl Adaptation {
    /// Applies the servers' latencies in microseconds; `None` = no recent samples. Returns the percentages of the
    /// weights if one changed; servers that are not listed keep all of their weight.
    pub fn observe(&mut self, servers: &[(&str, Option<f64>)]) -> Option<BTreeMap<String, u32>> {
        let fresh = servers.iter().filter_map(|(_, us)| *us);
        let best = fresh.fold(f64::INFINITY, f64::min).max(LEAST_US);
        self.parts
            .retain(|name, _| servers.iter().any(|(server, _)| server == name));
        let mut published = BTreeMap::new();
        for (name, us) in servers {
            let part = self.parts.entry((*name).to_owned()).or_insert(1.0);
            match us {
                Some(us) if *us > (best * BAND).max(best + BAND_US) => {
                    *part += APPROACH * (best / us - *part);
                }
                Some(_) => *part += APPROACH * (1.0 - *part),
                None => *part += RECOVERY,
            }
            *part = part.clamp(f64::from(FLOOR_PERCENT) / 100.0, 1.0);
            let percent = part_percent(*part, self.published.get(*name).copied());
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

/// The nearest step; the one before, unless the part is further away from it than a step.
fn part_percent(part: f64, before: Option<u32>) -> u32 {
    let percent = part * 100.0;
    let before = before.unwrap_or(100);
    if (percent - f64::from(before)).abs() < STEP_PERCENT * 0.8 {
        return before;
    }
    let nearest = (percent / STEP_PERCENT).round() * STEP_PERCENT;
    (nearest as u32).clamp(FLOOR_PERCENT, 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(adaptation: &mut Adaptation, us: [Option<f64>; 3], count: u32) -> (Vec<u32>, u32) {
        let servers = [("a", us[0]), ("b", us[1]), ("c", us[2])];
        let changes = (0..count).filter(|_| adaptation.observe(&servers).is_some());
        let changes = changes.count() as u32;
        let percent = |(name, _): &(&str, _)| adaptation.published.get(*name).copied();
        let now = servers.iter().map(|it| percent(it).unwrap_or(100));
        (now.collect(), changes)
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
        let well = [Some(1_000.0), Some(1_100.0), Some(1_000.0)];
        assert_eq!(rounds(&mut adaptation, well, 20).0, [100; 3]);
    }

    #[test]
    fn noise_changes_nothing() {
        let mut adaptation = Adaptation::default();
        for round in 0..100 {
            let noise = f64::from(round % 7) * 40.0;
            let us = [Some(1_000.0 + noise), Some(1_240.0 - noise), Some(1_100.0)];
            assert_eq!(rounds(&mut adaptation, us, 1), (vec![100; 3], 0));
        }
    }

    #[test]
    fn floor_remains_and_server_without_samples_recovers() {
        let mut adaptation = Adaptation::default();
        let slow = [Some(1_000.0), Some(1_000.0), Some(900_000.0)];
        assert_eq!(rounds(&mut adaptation, slow, 40).0[2], FLOOR_PERCENT);
        let unknown = [Some(1_000.0), Some(1_000.0), None];
        assert_eq!(rounds(&mut adaptation, unknown, 25).0, [100; 3]);
    }

    #[test]
    fn overloaded_server_finds_its_share_without_oscillation() {
        // The latency of the third server grows with its share of the flows.
        let mut adaptation = Adaptation::default();
        let mut percents = Vec::new();
        for _ in 0..200 {
            let part = f64::from(adaptation.published.get("c").copied().unwrap_or(100)) / 100.0;
            let share = part / (2.0 + part);
            let third = 1_000.0 + 20_000.0 * share;
            rounds(
                &mut adaptation,
                [Some(1_000.0), Some(1_000.0), Some(third)],
                1,
            );
            percents.push(adaptation.published.get("c").copied().unwrap_or(100));
        }
        let end = &percents[50..];
        let (least, most) = (end.iter().min(), end.iter().max());
        assert!(
            most.zip(least)
                .is_some_and(|(most, least)| most - least <= 5),
            "{end:?}"
        );
        assert!(end[0] < 60, "{end:?}");
    }

    #[test]
    fn removed_server_is_forgotten() {
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
    }
}
