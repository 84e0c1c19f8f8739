//! Formats durations as text. `weir-config` parses them.

use std::time::Duration;

/// Units and their lengths in milliseconds, ascending.
pub const DURATION_UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Formats a duration in the largest unit that divides it, as in the configuration. Durations below one millisecond are
/// `0s`.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let matches = |(_, size): &(&str, u64)| millis.is_multiple_of(u128::from(*size));
    let (unit, size) = DURATION_UNITS
        .into_iter()
        .rev()
        .find(matches)
        .unwrap_or(DURATION_UNITS[0]);
    format!("{}{unit}", millis / u128::from(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_dividing_unit_is_used() {
        for (millis, text) in [
            (0, "0s"),
            (1, "1ms"),
            (1500, "1500ms"),
            (90_000, "90s"),
            (7_200_000, "2h"),
            (86_400_000, "1d"),
            (90_000_000, "25h"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(format_duration(Duration::from_nanos(999_999)), "0s");
    }
}
