//! What is compared, and how much worse than the better peer Weir may be.

use std::collections::BTreeMap;

use super::proxy::Kind;

/// Weir may have this multiple of the better peer's value.
pub(crate) const FACTOR: f64 = 1.2;
/// Descriptors above the start that say nothing: idle connections to the server.
pub(crate) const DESCRIPTOR_FLOOR: u64 = 32;

/// A measured quantity; for all of them less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    /// Milliseconds of CPU for each second of attack.
    Cpu,
    /// MiB above the start, at most.
    Memory,
    /// Above the start, at most.
    Descriptors,
    /// Requests of the attackers at the server after they have gone.
    Left,
    /// 99th percentile of the other clients, in milliseconds.
    Latency,
    /// Seconds until the other clients and the descriptors are as before.
    Recovery,
}

impl Column {
    pub(crate) const ALL: [Column; 6] = [
        Column::Cpu,
        Column::Memory,
        Column::Descriptors,
        Column::Left,
        Column::Latency,
        Column::Recovery,
    ];

    /// Its name in JSON.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Column::Cpu => "cpu_ms_per_second",
            Column::Memory => "memory_mib",
            Column::Descriptors => "descriptors",
            Column::Left => "requests_left",
            Column::Latency => "p99_ms",
            Column::Recovery => "recovery_seconds",
        }
    }

    /// Its heading.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Column::Cpu => "CPU ms/s",
            Column::Memory => "memory MiB",
            Column::Descriptors => "descriptors",
            Column::Left => "left",
            Column::Latency => "p99 ms",
            Column::Recovery => "recovery s",
        }
    }

    /// A difference to the better peer below which it is noise.
    pub(crate) fn floor(self) -> f64 {
        match self {
            Column::Cpu => 10.0,
            Column::Memory => 4.0,
            Column::Descriptors => DESCRIPTOR_FLOOR as f64,
            Column::Left => 0.0,
            Column::Latency => 5.0,
            Column::Recovery => 0.2,
        }
    }

    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Column::Cpu | Column::Descriptors | Column::Left => format!("{value:.0}"),
            Column::Memory | Column::Latency => format!("{value:.1}"),
            Column::Recovery => format!("{value:.2}"),
        }
    }

    /// One value for several rounds: the median, and the worst of what must be 0.
    pub(crate) fn summary(self, values: &[f64]) -> f64 {
        if self == Column::Left {
            return values.iter().copied().fold(0.0, f64::max);
        }
        median(values)
    }

    /// Whether `weir` is worse than allowed, compared with these peers. Without peers only requests left can be judged.
    pub(crate) fn is_violated(self, weir: f64, peers: &[f64]) -> bool {
        let best = peers.iter().copied().reduce(f64::min);
        match (self, best) {
            // Where every peer leaves requests behind, there is no rule.
            (Column::Left, best) => weir > 0.0 && best.is_none_or(|best| best == 0.0),
            (_, Some(best)) => weir > best * FACTOR && weir > best + self.floor(),
            (_, None) => false,
        }
    }
}

/// The middle value; of an even number the mean of the two in the middle.
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

/// The columns in which Weir is worse than allowed; none where Weir was not measured.
pub(crate) fn violations(values: &BTreeMap<&'static str, Vec<f64>>) -> Vec<Column> {
    let Some(weir) = values.get(Kind::Weir.name()) else {
        return Vec::new();
    };
    let peers = |column: Column| -> Vec<f64> {
        let others = values
            .iter()
            .filter(|(name, _)| **name != Kind::Weir.name());
        others.map(|(_, values)| values[column as usize]).collect()
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
    fn median_is_the_middle() {
        assert_eq!(median(&[9.0, 1.0, 5.0, 4.0, 100.0]), 5.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn better_peer_counts_times_a_fifth_more() {
        for (weir, is_violated) in [(50.0, false), (120.0, false), (121.0, true)] {
            assert_eq!(Column::Cpu.is_violated(weir, &[100.0, 300.0]), is_violated);
        }
        // Twice the better peer, and still noise.
        assert!(!Column::Cpu.is_violated(8.0, &[4.0, 300.0]));
        assert!(Column::Latency.is_violated(8.0, &[2.0, 30.0]));
        assert!(!Column::Latency.is_violated(8.0, &[]));
    }

    #[test]
    fn requests_are_left_only_where_every_peer_leaves_some() {
        assert!(Column::Left.is_violated(1.0, &[0.0, 900.0]));
        assert!(!Column::Left.is_violated(1.0, &[3.0, 900.0]));
        assert!(!Column::Left.is_violated(0.0, &[0.0]));
        assert!(Column::Left.is_violated(1.0, &[]));
        // A single bad round is not hidden by four good ones.
        assert_eq!(Column::Left.summary(&[0.0, 0.0, 7.0, 0.0, 0.0]), 7.0);
        assert_eq!(Column::Cpu.summary(&[0.0, 0.0, 7.0, 0.0, 0.0]), 0.0);
    }

    #[test]
    fn each_violated_column_is_named() {
        let row = |values: [f64; 6]| values.to_vec();
        let values = BTreeMap::from([
            ("weir", row([200.0, 1.0, 10.0, 3.0, 2.0, 0.1])),
            ("haproxy", row([100.0, 9.0, 10.0, 0.0, 2.0, 0.1])),
            ("nginx", row([400.0, 9.0, 10.0, 8.0, 2.0, 0.1])),
        ]);
        assert_eq!(violations(&values), [Column::Cpu, Column::Left]);
        assert!(violations(&BTreeMap::new()).is_empty());
    }
}
