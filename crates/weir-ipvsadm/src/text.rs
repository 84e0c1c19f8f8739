//! Parses numbers and addresses as strtol(3) and inet_aton(3) do.

use std::net::Ipv4Addr;

/// Parses a decimal number from `min` to `max`, with optional leading whitespace and sign. Returns `None` if the number
/// is out of range or followed by other characters.
pub(crate) fn parse_number(text: &str, min: i64, max: i64) -> Option<i64> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    let value: i64 = text.parse().ok()?;
    (min..=max).contains(&value).then_some(value)
}

/// Parses an IPv4 address of one to four parts. Each part is decimal, octal (`0…`) or hexadecimal (`0x…`); the last
/// part fills the remaining bytes. Whitespace and any text after it are ignored.
pub(crate) fn inet_aton(text: &str) -> Option<Ipv4Addr> {
    let text = text
        .find([' ', '\t', '\n', '\u{b}', '\u{c}', '\r'])
        .map_or(text, |end| &text[..end]);
    let parts: Vec<u64> = text.split('.').map(parse_part).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    let last_bytes = 4usize.checked_sub(first.len())? as u32;
    if last_bytes == 0 || *last >= 1 << (8 * last_bytes) || first.iter().any(|part| *part > 255) {
        return None;
    }
    let high = first.iter().enumerate();
    let high: u64 = high.map(|(index, part)| part << (24 - 8 * index)).sum();
    Some(Ipv4Addr::from((high + last) as u32))
}

fn parse_part(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    if digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, radix)
        .ok()
        .filter(|value| *value <= u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_like_strtol() {
        for (text, value) in [
            ("7", Some(7)),
            ("+7", Some(7)),
            (" 07", Some(7)),
            ("-1", Some(-1)),
            ("100", Some(100)),
            ("101", None),
            ("", None),
            ("+", None),
            ("-", None),
            ("+-7", None),
            ("7 ", None),
            ("7x", None),
            ("0x7", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse_number(text, -5, 100), value, "{text:?}");
        }
    }

    #[test]
    fn addresses_are_parsed_like_inet_aton() {
        for (text, address) in [
            ("10.0.0.1", Some([10, 0, 0, 1])),
            ("10.1", Some([10, 0, 0, 1])),
            ("10.1.258", Some([10, 1, 1, 2])),
            ("64", Some([0, 0, 0, 64])),
            ("0x7f.1", Some([127, 0, 0, 1])),
            ("010.0.0.1", Some([8, 0, 0, 1])),
            ("0.0.0.0", Some([0; 4])),
            ("10.0.0.1 x", Some([10, 0, 0, 1])),
            ("", None),
            ("10.0.0.256", None),
            ("256.1", None),
            ("1.2.3.4.5", None),
            ("08.0.0.1", None),
            ("1..2", None),
            ("host", None),
            ("4294967296", None),
        ] {
            assert_eq!(inet_aton(text), address.map(Ipv4Addr::from), "{text:?}");
        }
    }
}
