//! Defines the results of probes.

/// Verdict of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server responded as expected.
    Passed,
    /// The server did not respond as expected.
    Failed,
    /// The probe could not run because of a problem on the director (no free descriptor or port). The result is
    /// ignored.
    Unknown,
}

/// A weight that a probe reports, for example the probe of an agent check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ReportedWeight {
    /// A weight from 0 to 65535, which replaces the configured weight unless that is 0.
    Weight(u32),
    /// Percentage of the configured weight; may exceed 100.
    Percent(u32),
    /// The server asks to be drained: it gets no new flows.
    Drain,
}

impl ReportedWeight {
    /// Returns the weight that results from `base`. A `base` of 0 stays 0; any other `base` never results in 0 with a
    /// percentage above zero.
    pub fn apply(self, base: u32) -> u32 {
        match self {
            Self::Weight(_) | Self::Percent(_) if base == 0 => 0,
            Self::Weight(weight) => weight.min(weir_model::MAX_WEIGHT),
            Self::Percent(0) | Self::Drain => 0,
            Self::Percent(percent) => scale(base, percent, 100),
        }
    }
}

/// Returns `base * part / whole`, rounded: at least 1, at most the maximum weight.
pub(crate) fn scale(base: u32, part: u32, whole: u32) -> u32 {
    let (base, part, whole) = (u64::from(base), u64::from(part), u64::from(whole));
    let rounded = (base * part + whole / 2) / whole.max(1);
    let max_weight = u64::from(weir_model::MAX_WEIGHT);
    u32::try_from(rounded.clamp(1, max_weight)).unwrap_or(weir_model::MAX_WEIGHT)
}

/// Result of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Passed, failed or unknown.
    pub verdict: Verdict,
    /// Short description: `http 200`, `connection refused`.
    pub note: String,
    /// The weight that the response reports.
    pub weight: Option<ReportedWeight>,
}

impl Outcome {
    /// Returns the outcome of a passed probe.
    pub fn passed(note: impl Into<String>) -> Self {
        Self::new(Verdict::Passed, note)
    }

    /// Returns the outcome of a failed probe.
    pub fn failed(note: impl Into<String>) -> Self {
        Self::new(Verdict::Failed, note)
    }

    /// Returns the outcome of a probe that could not run.
    pub fn unknown(note: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, note)
    }

    fn new(verdict: Verdict, note: impl Into<String>) -> Self {
        Self {
            verdict,
            note: note.into(),
            weight: None,
        }
    }

    /// Adds a reported weight.
    #[must_use]
    pub fn with_weight(self, weight: ReportedWeight) -> Self {
        Self {
            weight: Some(weight),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_weights_replace_or_scale_the_base() {
        assert_eq!(ReportedWeight::Percent(50).apply(3), 2);
        assert_eq!(
            ReportedWeight::Percent(1).apply(3),
            1,
            "a percentage above zero never results in zero"
        );
        assert_eq!(ReportedWeight::Percent(0).apply(3), 0);
        assert_eq!(ReportedWeight::Percent(200).apply(40_000), 65_535);
        assert_eq!(ReportedWeight::Weight(7).apply(3), 7);
        assert_eq!(
            ReportedWeight::Weight(7).apply(0),
            0,
            "an operator's 0 is kept"
        );
        assert_eq!(ReportedWeight::Drain.apply(9), 0);
    }
}
