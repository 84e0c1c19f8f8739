//! What a probe found out.

/// Whether a probe says anything, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server answered as expected.
    Passed,
    /// It did not.
    Failed,
    /// The probe could not be made, for reasons of the director's own (no descriptor, no port): it says nothing of the
    /// server and changes nothing.
    Unknown,
}

/// A weight that a check brings with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// In place of the configured weight, 0 to 65535.
    Weight(u32),
    /// Of the configured weight, 0 to 100 and above.
    Percent(u32),
    /// No new flows, by the server's own word.
    Drain,
}

impl Said {
    /// The weight that follows from `base`. A share above zero never becomes zero.
    pub fn apply(self, base: u32) -> u32 {
        match self {
            Self::Weight(_) | Self::Percent(_) if base == 0 => 0,
            Self::Weight(weight) => weight.min(weir_model::MAX_WEIGHT),
            Self::Percent(0) | Self::Drain => 0,
            Self::Percent(percent) => share(base, percent, 100),
        }
    }
}

/// `part` of `whole`, of `base`: rounded, at least 1, at most the largest weight.
pub(crate) fn share(base: u32, part: u32, whole: u32) -> u32 {
    let (base, part, whole) = (u64::from(base), u64::from(part), u64::from(whole));
    let rounded = (base * part + whole / 2) / whole.max(1);
    let most = u64::from(weir_model::MAX_WEIGHT);
    u32::try_from(rounded.clamp(1, most)).unwrap_or(weir_model::MAX_WEIGHT)
}

/// The result of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Passed, failed or neither.
    pub verdict: Verdict,
    /// What was seen, in a few words: `http 200`, `connection refused`.
    pub note: String,
    /// A weight that the answer brings.
    pub said: Option<Said>,
}

impl Outcome {
    /// As expected.
    pub fn passed(note: impl Into<String>) -> Self {
        Self::new(Verdict::Passed, note)
    }

    /// Not as expected.
    pub fn failed(note: impl Into<String>) -> Self {
        Self::new(Verdict::Failed, note)
    }

    /// Says nothing of the server.
    pub fn unknown(note: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, note)
    }

    fn new(verdict: Verdict, note: impl Into<String>) -> Self {
        Self {
            verdict,
            note: note.into(),
            said: None,
        }
    }

    /// With a weight.
    #[must_use]
    pub fn saying(self, said: Said) -> Self {
        Self {
            said: Some(said),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_that_a_check_brings() {
        assert_eq!(Said::Percent(50).apply(3), 2);
        assert_eq!(Said::Percent(1).apply(3), 1, "a share is never nothing");
        assert_eq!(Said::Percent(0).apply(3), 0);
        assert_eq!(Said::Percent(200).apply(40_000), 65_535);
        assert_eq!(Said::Weight(7).apply(3), 7);
        assert_eq!(Said::Weight(7).apply(0), 0, "an operator's 0 stands");
        assert_eq!(Said::Drain.apply(9), 0);
    }
}
