//! Sizes as they are written: a whole number and a unit, `"64KiB"`, `"10MiB"`; a number alone counts octets.

use crate::unit;

/// Units and their octets, the smallest first.
const UNITS: [(&str, u64); 4] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Octets, or what is wrong with the text.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    unit::parse(text, &UNITS, "it is larger than any memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read() {
        for (text, octets) in [
            ("0B", 0),
            ("100B", 100),
            ("64KiB", 65_536),
            ("10 MiB", 10_485_760),
            ("3GiB", 3_221_225_472),
        ] {
            assert_eq!(parse(text), Ok(octets));
        }
    }

    #[test]
    fn anything_else_is_refused() {
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
