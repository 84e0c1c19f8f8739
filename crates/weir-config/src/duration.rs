//! Parses durations. A duration is an integer and a unit: `"500ms"`, `"2s"`, `"5m"`, `"1h"`, `"1d"`.

use std::time::Duration;

use weir_model::DURATION_UNITS;

use crate::unit;

/// Parses a duration.
///
/// # Errors
/// Returns the reason why the text is not a duration.
pub fn parse(text: &str) -> Result<Duration, String> {
    unit::parse(text, &DURATION_UNITS, "the duration is too large").map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use weir_model::format_duration;

    use super::*;

    #[test]
    fn every_unit_is_parsed_and_formatted() {
        for (text, millis) in [
            ("500ms", 500),
            ("2s", 2000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
            assert_eq!(format_duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(format_duration(Duration::ZERO), "0s");
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in [
            "",
            "s",
            "5",
            "1.5s",
            "-1s",
            "5 weeks",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
