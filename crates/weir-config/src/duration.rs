//! Durations: an integer and a unit, `"500ms"`, `"2s"`, `"5m"`, `"1h"`, `"1d"`.

use std::time::Duration;

use crate::unit;

/// Units in milliseconds, ascending.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Parses a duration.
///
/// # Errors
/// The reason why the text is not a duration.
pub fn parse(text: &str) -> Result<Duration, String> {
    unit::parse(text, &UNITS, "duration too large").map(Duration::from_millis)
}

/// Formats a duration in the largest unit that divides it.
pub fn show(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |size: u64| millis >= size && millis.is_multiple_of(size);
    match UNITS.into_iter().rev().find(|(_, size)| fits(*size)) {
        Some((unit, size)) => format!("{}{unit}", millis / size),
        None if millis == 0 => "0s".to_owned(),
        None => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_parses_and_formats() {
        for (text, millis) in [
            ("500ms", 500),
            ("2s", 2000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
        assert_eq!(show(Duration::ZERO), "0s");
    }

    #[test]
    fn invalid_amounts_are_rejected() {
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
