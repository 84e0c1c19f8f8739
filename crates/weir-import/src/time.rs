//! Parses times in the formats of other programs, and formats them for weir.toml.

use std::time::Duration;

/// Names of units and their lengths, in a common base unit.
pub(crate) type Units = [(&'static str, u64)];

/// Formats milliseconds for weir.toml.
pub(crate) fn format_millis(millis: u64) -> String {
    weir_config::show_duration(Duration::from_millis(millis))
}

/// Parses one or more integers with units, and returns their sum in the base unit. The unit `""` applies to a number
/// without a unit. Returns `None` if the text is invalid.
pub(crate) fn parse_sum(text: &str, units: &Units) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() || text.is_empty() {
        let is_digit = |c: char| c.is_ascii_digit();
        let (number, tail) = rest.split_at(rest.find(|c| !is_digit(c)).unwrap_or(rest.len()));
        let (unit, tail) = tail.split_at(tail.find(is_digit).unwrap_or(tail.len()));
        let (_, length) = units.iter().find(|(name, _)| *name == unit.trim())?;
        let amount = number.parse::<u64>().ok()?.checked_mul(*length)?;
        total = total.checked_add(amount)?;
        rest = tail;
    }
    Some(total)
}

/// Parses decimal seconds such as `1.5`, and returns milliseconds, rounded up. Decimals after the sixth are ignored.
/// Returns `None` if the text is invalid.
pub(crate) fn parse_decimal_seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty()
        || !is_number(whole)
        || !is_number(fraction)
        || whole.len() > 9
    {
        return None;
    }
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut micros = 0;
    for index in 0..6 {
        let digit = fraction
            .as_bytes()
            .get(index)
            .map_or(0, |byte| u64::from(byte - b'0'));
        micros = micros * 10 + digit;
    }
    Some(whole * 1000 + u64::div_ceil(micros, 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_seconds_are_parsed() {
        for (text, millis) in [
            ("3", Some(3000)),
            ("0.5", Some(500)),
            (".25", Some(250)),
            ("1.0001", Some(1001)),
            ("", None),
            (".", None),
            ("-1", None),
            ("1s", None),
            ("99999999999", None),
            ("999999999", Some(999_999_999_000)),
            ("1000000000", None),
            ("1.", Some(1000)),
            ("2.1234", Some(2124)),
            ("0.0000009", Some(0)),
            ("+5", None),
            ("1.5x", None),
            ("1.5.5", None),
        ] {
            assert_eq!(parse_decimal_seconds(text), millis, "{text}");
        }
    }

    #[test]
    fn milliseconds_are_formatted_with_a_unit() {
        for (millis, expected) in [(0, "0s"), (500, "500ms"), (1000, "1s"), (1500, "1500ms")] {
            assert_eq!(format_millis(millis), expected);
        }
    }

    #[test]
    fn numbers_with_units_are_summed() {
        let units: &Units = &[("ms", 1), ("s", 1000), ("", 1000), ("w", 604_800_000)];
        for (text, millis) in [
            ("75", Some(75_000)),
            ("2s500ms", Some(2500)),
            ("2s 500ms", Some(2500)),
            ("1s2", Some(3000)),
            ("", None),
            ("s", None),
            ("soon", None),
            ("-1s", None),
            ("1d", None),
            ("9999999999999999999w", None),
            ("18446744073709551615ms1ms", None),
        ] {
            assert_eq!(parse_sum(text, units), millis, "{text}");
        }
    }
}
