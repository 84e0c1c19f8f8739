//! Parses and formats link rates as `tc` does (`10mbit`, `10240kbit`, `1gbit`): bits per second with decimal prefixes.
//! Rejects byte rates, so that a typing error cannot cause a factor of eight.

use std::fmt;
use std::str::FromStr;

/// A link rate in bits per second, at least 64 kbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

/// Minimum rate. At a lower rate, a single full-sized frame takes longer than the shaper's queue allows.
const MIN_BITS_PER_SECOND: u64 = 64_000;
/// Maximum rate. At a higher rate, tbf's 32-bit byte counters and two CPUs are not sufficient.
const MAX_BITS_PER_SECOND: u64 = 100_000_000_000;

impl Rate {
    /// The rate in the original report: `tbf rate 10240kbit`.
    pub const ORIGINAL_REPORT: Rate = Rate(10_240_000);

    /// A rate that two CPUs can saturate on several hosts at the same time with pages of several kilobytes.
    pub const PAGES: Rate = Rate(60_000_000);

    /// Returns the rate in bits per second.
    pub fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns the rate in megabits per second, for axes and tables.
    pub fn megabits_per_second(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the size of the token bucket, in bytes: one full-sized frame at the report's 10 Mbit/s, as in the report
    /// (`burst 1540`), and half a millisecond of data at higher rates, so that the timer need not fire for each frame.
    pub(crate) fn burst_bytes(self) -> u64 {
        (self.0 / 8 / 2000).max(1540)
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.trim().to_ascii_lowercase();
        let split = lower
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(lower.len());
        let (number, unit) = lower.split_at(split);
        let factor = match unit {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            "" => {
                return Err(format!(
                    "\"{text}\" has no unit; examples: 10mbit, 10240kbit, 1gbit"
                ));
            }
            other => {
                return Err(format!(
                    "unknown unit \"{other}\" in \"{text}\"; use kbit, mbit or gbit"
                ));
            }
        };
        let value: f64 = number
            .parse()
            .map_err(|_| format!("\"{text}\" is not a rate; example: 10mbit"))?;
        let bits = (value * factor).round();
        if !(MIN_BITS_PER_SECOND as f64..=MAX_BITS_PER_SECOND as f64).contains(&bits) {
            return Err(format!("\"{text}\" is out of range: 64kbit to 100gbit"));
        }
        Ok(Rate(bits as u64))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits % 1_000_000_000 == 0 => write!(f, "{}gbit", bits / 1_000_000_000),
            bits if bits % 1_000_000 == 0 => write!(f, "{}mbit", bits / 1_000_000),
            bits if bits % 1_000 == 0 => write!(f, "{}kbit", bits / 1_000),
            bits => write!(f, "{bits}bit"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_are_parsed_as_tc_parses_them() {
        for (text, bits) in [
            ("10mbit", 10_000_000),
            ("10240kbit", 10_240_000),
            ("1gbit", 1_000_000_000),
            (" 2.5Mbit", 2_500_000),
        ] {
            assert_eq!(
                text.parse::<Rate>().map(Rate::bits_per_second),
                Ok(bits),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_rate_is_rejected_with_reason() {
        for (text, part) in [
            ("10", "no unit"),
            ("10mbps", "unknown unit \"mbps\""),
            ("mbit", "not a rate"),
            ("1.2.3mbit", "not a rate"),
            ("1kbit", "out of range"),
            ("-5mbit", "unknown unit"),
            ("999999gbit", "out of range"),
        ] {
            let error = text.parse::<Rate>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn burst_at_report_rate_is_one_frame() {
        assert_eq!(Rate::ORIGINAL_REPORT.burst_bytes(), 1540);
    }

    proptest! {
        #[test]
        fn printed_rate_parses_to_same_value(bits in MIN_BITS_PER_SECOND..MAX_BITS_PER_SECOND) {
            let rate = Rate(bits);
            // All rates are far below 2^53, so a double represents them exactly.
            prop_assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate));
        }
    }
}
