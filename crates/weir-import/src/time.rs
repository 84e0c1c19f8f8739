//! Times in the formats of other programs and of weir.toml.

/// Formats milliseconds in the largest unit that divides them.
pub(crate) fn format_millis(millis: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    if millis == 0 {
        return "0s".to_owned();
    }
    let fits = |(_, size): &&(&str, u64)| millis.is_multiple_of(*size);
    let (unit, size) = UNITS.iter().find(fits).unwrap_or(&UNITS[3]);
    format!("{}{unit}", millis / size)
}

/// Parses decimal seconds, `1.5`, to milliseconds, rounded up. `None` = invalid.
pub(crate) fn decimal_seconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || !digits(whole) || !digits(part) || whole.len() > 9 {
        return None;
    }
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut micros = 0;
    for at in 0..6 {
        let digit = part
            .as_bytes()
            .get(at)
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
        ] {
            assert_eq!(decimal_seconds(text), millis, "{text}");
        }
    }

    #[test]
    fn largest_dividing_unit_is_used() {
        assert_eq!(format_millis(0), "0s");
        assert_eq!(format_millis(1500), "1500ms");
        assert_eq!(format_millis(90_000), "90s");
        assert_eq!(format_millis(7_200_000), "2h");
    }
}
