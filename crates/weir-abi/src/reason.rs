//! Defines the reasons for dropping, passing or counting packets, and the latency estimator's counters. They are
//! generated from `bpf/abi/weir_reasons.h` and `bpf/abi/weir_latency_reasons.h`.

include!(concat!(env!("OUT_DIR"), "/generated.rs"));

/// Label and description of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonInfo {
    /// The reason.
    pub reason: Reason,
    /// The metric's label.
    pub label: &'static str,
    /// The description.
    pub text: &'static str,
}

/// A number without a reason in this build; a newer data plane may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownReason(
    /// The number.
    pub u32,
);

impl Reason {
    /// Returns the index into `weir_reasons`.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Returns the metric's label.
    pub const fn label(self) -> &'static str {
        REASONS[self as usize].label
    }

    /// Returns the description.
    pub const fn text(self) -> &'static str {
        REASONS[self as usize].text
    }
}

impl TryFrom<u32> for Reason {
    type Error = UnknownReason;

    fn try_from(number: u32) -> Result<Self, UnknownReason> {
        let index = usize::try_from(number).map_err(|_| UnknownReason(number))?;
        REASONS
            .get(index)
            .map(|info| info.reason)
            .ok_or(UnknownReason(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REASON_COUNT;

    #[test]
    fn reasons_are_in_order_of_number() {
        for (number, info) in (0u32..).zip(REASONS) {
            assert_eq!(info.reason.number(), number);
            assert_eq!(Reason::try_from(number), Ok(info.reason));
            assert!(!info.text.is_empty());
        }
        assert_eq!(Reason::PassNotOurs.label(), "pass_not_ours");
        assert_eq!(Reason::DropTtl.number(), 14);
    }

    #[test]
    fn quotes_in_text_are_preserved() {
        assert!(Reason::DropNoServer.text().contains("no_server = \"drop\""));
    }

    #[test]
    fn labels_are_unique_and_numbers_fit_the_map() {
        let mut labels: Vec<_> = REASONS.iter().map(|info| info.label).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), REASONS.len());
        assert!(REASONS.len() <= REASON_COUNT as usize);
        assert_eq!(
            Reason::try_from(REASON_COUNT),
            Err(UnknownReason(REASON_COUNT))
        );
    }
}
