//! Parses sizes that consist of an integer and a unit, such as `"64KiB"`. Numbers without a unit are not parsed here.

use crate::unit;

/// Units in bytes, ascending.
const UNITS: [(&str, u64); 4] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Parses a size with a unit. Returns the number of bytes, or the reason why the text is invalid.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    unit::parse(text, &UNITS, "the size is too large")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_parsed() {
        for (text, bytes) in [
            ("0B", 0),
            ("100B", 100),
            ("64KiB", 65_536),
            ("10 MiB", 10_485_760),
            ("3GiB", 3_221_225_472),
        ] {
            assert_eq!(parse(text), Ok(bytes));
        }
    }

    #[test]
    fn invalid_amounts_are_rejected() {
        for text in [
            "",
            "KiB",
            "5",
            "1.5KiB",
            "-1B",
            "10m",
            "10MB",
            "18446744073709551615GiB",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
