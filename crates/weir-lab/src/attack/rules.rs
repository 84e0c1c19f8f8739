//! Defines the measured quantities, and the limit for Weir's value of each, relative to the better peer.

use std::collections::BTreeMap;

use super::proxy::Kind;

/// Maximum ratio of Weir's value to the better peer's value.
pub(crate) const FACTOR: f64 = 1.2;
/// Number of additional descriptors that count as idle connections to the server and are ignored.
pub(crate) const DESCRIPTOR_FLOOR: u64 = 32;

/// A measured quantity; lower is better for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    /// CPU time in milliseconds per second of attack.
    Cpu,
    /// Maximum increase in memory, in MiB.
    Memory,
    /// Maximum increase in the number of descriptors.
    Descriptors,
    /// Attackers' requests that remain at the server after the attack.
    Remaining,
    /// 99th percentile of the other clients' latency, in milliseconds.
    Latency,
    /// Time until the other clients' latency and the number of descriptors return to the baseline, in seconds.
    Recovery,
}

impl Column {
    pub(crate) const ALL: [Column; 6] = [
        Column::Cpu,
        Column::Memory,
        Column::Descriptors,
        Column::Remaining,
        Column::Latency,
        Column::Recovery,
    ];

    /// Returns the column's name in JSON.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Column::Cpu => "cpu_ms_per_second",
            Column::Memory => "memory_mib",
            Column::Descriptors => "descriptors",
            Column::Remaining => "requests_left",
            Column::Latency => "p99_ms",
            Column::Recovery => "recovery_seconds",
        }
    }

    /// Returns the column's heading in the table.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Column::Cpu => "CPU ms/s",
            Column::Memory => "memory MiB",
            Column::Descriptors => "descriptors",
            Column::Remaining => "remaining",
            Column::Latency => "p99 ms",
            Column::Recovery => "recovery s",
        }
    }

    /// Returns the largest difference from the better peer that counts as noise.
    pub(crate) fn floor(self) -> f64 {
        match self {
            Column::Cpu => 10.0,
            Column::Memory => 4.0,
            Column::Descriptors => DESCRIPTOR_FLOOR as f64,
            Column::Remaining => 0.0,
            Column::Latency => 5.0,
            Column::Recovery => 0.2,
        }
    }

    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Column::Cpu | Column::Descriptors | Column::Remaining => format!("{value:.0}"),
            Column::Memory | Column::Latency => format!("{value:.1}"),
            Column::Recovery => format!("{value:.2}"),
        }
    }

    /// Returns the summary of several rounds: the median, or the maximum for a value that must be 0.
    pub(crate) fn summary(self, values: &[f64]) -> f64 {
        if self == Column::Remaining {
            return values.iter().copied().fold(0.0, f64::max);
        }
        median(values)
    }

    /// Returns whether Weir's value exceeds its limit. Without peers, only remaining requests are checked.
    pub(crate) fn is_violated(self, weir: f64, peers: &[f64]) -> bool {
        let best = peers.iter().copied().reduce(f64::min);
        match (self, best) {
            // If requests remain with every peer, there is no limit.
            (Column::Remaining, best) => weir > 0.0 && best.is_none_or(|best| best == 0.0),
            (_, Some(best)) => weir > best * FACTOR && weir > best + self.floor(),
            (_, None) => false,
        }
    }
}

/// Returns the median; for an even number of values, the mean of the two middle ones.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => f64::NAN,
        Some(value) if sorted.len() % 2 == 1 => *value,
        Some(value) => (value + sorted[middle - 1]) / 2.0,
    }
}

/// Returns the columns in which Weir exceeds its limit; empty if Weir was not measured.
pub(crate) fn violations(values: &BTreeMap<&'static str, Vec<f64>>) -> Vec<Column> {
    let Some(weir) = values.get(Kind::Weir.name()) else {
        return Vec::new();
    };
    let peers = |column: Column| -> Vec<f64> {
        let peer_values = values
            .iter()
            .filter(|(name, _)| **name != Kind::Weir.name());
        peer_values
            .map(|(_, values)| values[column as usize])
            .collect()
    };
    Column::ALL
        .into_iter()
        .filter(|&column| column.is_violated(weir[column as usize], &peers(column)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median(&[9.0, 1.0, 5.0, 4.0, 100.0]), 5.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn limit_is_twenty_percent_above_better_peer() {
        for (weir, is_violated) in [(50.0, false), (120.0, false), (121.0, true)] {
            assert_eq!(Column::Cpu.is_violated(weir, &[100.0, 300.0]), is_violated);
        }
        // Twice the better peer's value, but within the noise.
        assert!(!Column::Cpu.is_violated(8.0, &[4.0, 300.0]));
        assert!(Column::Latency.is_violated(8.0, &[2.0, 30.0]));
        assert!(!Column::Latency.is_violated(8.0, &[]));
    }

    #[test]
    fn remaining_requests_are_allowed_only_if_every_peer_has_some() {
        assert!(Column::Remaining.is_violated(1.0, &[0.0, 900.0]));
        assert!(!Column::Remaining.is_violated(1.0, &[3.0, 900.0]));
        assert!(!Column::Remaining.is_violated(0.0, &[0.0]));
        assert!(Column::Remaining.is_violated(1.0, &[]));
        // Four good rounds do not hide a bad one.
        assert_eq!(Column::Remaining.summary(&[0.0, 0.0, 7.0, 0.0, 0.0]), 7.0);
        assert_eq!(Column::Cpu.summary(&[0.0, 0.0, 7.0, 0.0, 0.0]), 0.0);
    }

    #[test]
    fn each_violated_column_is_returned() {
        let row = |values: [f64; 6]| values.to_vec();
        let values = BTreeMap::from([
            ("weir", row([200.0, 1.0, 10.0, 3.0, 2.0, 0.1])),
            ("haproxy", row([100.0, 9.0, 10.0, 0.0, 2.0, 0.1])),
            ("nginx", row([400.0, 9.0, 10.0, 8.0, 2.0, 0.1])),
        ]);
        assert_eq!(violations(&values), [Column::Cpu, Column::Remaining]);
        assert!(violations(&BTreeMap::new()).is_empty());
    }
}
