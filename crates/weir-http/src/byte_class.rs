//! Classifies the bytes that tokens, targets, field values and hosts may contain (RFC 9110, RFC 3986).
//!
//! RFC 9110 defines tokens in section 5.6.2 and field values in section 5.5. RFC 3986 section 2 defines the characters
//! of URIs.

use std::net::Ipv6Addr;

/// The classes of each byte, as bits.
static CLASS: [u8; 256] = classes();

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const TARGET: u8 = 4;
const HOST: u8 = 8;
/// Every byte except `_`.
const NOT_UNDERSCORE: u8 = 16;

const fn classes() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut index = 0usize;
    while index < 256 {
        let byte = index as u8;
        let alphanumeric = byte.is_ascii_alphanumeric();
        if alphanumeric || is_one_of(byte, b"!#$%&'*+-.^_`|~") {
            table[index] |= TOKEN;
        }
        // VCHAR, SP, HTAB and obs-text; never CR, LF or NUL.
        if byte == b'\t' || (byte >= 0x20 && byte != 0x7f) {
            table[index] |= VALUE;
        }
        // Visible ASCII without `#`: a fragment is never sent.
        if byte > 0x20 && byte < 0x7f && byte != b'#' {
            table[index] |= TARGET;
        }
        // `reg-name` (RFC 3986 section 3.2.2) without `%`, which is checked separately, and without `,`, which
        // separates the values of repeated fields.
        if alphanumeric || is_one_of(byte, b"-._~!$&'()*+;=") {
            table[index] |= HOST;
        }
        if byte != b'_' {
            table[index] |= NOT_UNDERSCORE;
        }
        index += 1;
    }
    table
}

const fn is_one_of(byte: u8, set: &[u8]) -> bool {
    let mut index = 0;
    while index < set.len() {
        if set[index] == byte {
            return true;
        }
        index += 1;
    }
    false
}

/// Returns the classes that contain all bytes of the text.
fn common_classes(text: &[u8]) -> u8 {
    text.iter()
        .fold(u8::MAX, |seen, byte| seen & CLASS[usize::from(*byte)])
}

fn has_class(text: &[u8], class: u8) -> bool {
    common_classes(text) & class == class
}

/// Returns whether a field name contains a `_`, or `None` if the name is not a token.
pub(crate) fn contains_underscore(text: &[u8]) -> Option<bool> {
    let classes = common_classes(text);
    (!text.is_empty() && classes & TOKEN != 0).then_some(classes & NOT_UNDERSCORE == 0)
}

/// Returns whether the text is a token (method or field name): one or more `tchar`.
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && has_class(text, TOKEN)
}

/// Returns whether the byte is a `tchar`.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & TOKEN != 0
}

/// Returns whether the text is valid in a field value, including surrounding whitespace.
pub(crate) fn is_value(text: &[u8]) -> bool {
    // Checks sixteen bytes at a time, without the table. The last sixteen bytes may overlap the preceding ones.
    let is_value_chunk = |chunk: &[u8; 16]| {
        let is_other = |byte: u8| (byte < 0x20) & (byte != b'\t') | (byte == 0x7f);
        !chunk
            .iter()
            .fold(false, |found, byte| found | is_other(*byte))
    };
    match text.last_chunk::<16>() {
        None => has_class(text, VALUE),
        Some(last) => {
            let (chunks, _) = text.as_chunks::<16>();
            is_value_chunk(last) && chunks.iter().all(is_value_chunk)
        }
    }
}

/// Returns whether the byte is valid in a field value.
pub(crate) fn is_value_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & VALUE != 0
}

/// Returns whether the text is valid as a request target.
pub(crate) fn is_target(text: &[u8]) -> bool {
    !text.is_empty() && has_class(text, TARGET)
}

/// Returns whether the text is `uri-host [":" port]` (RFC 9110 section 7.2): a name, an IPv4 address or an IPv6 address
/// in brackets, and a port of at most 65535. User information, zones, future address forms, and escapes of anything but
/// letters, digits, `-._~` and non-ASCII bytes are rejected, because servers disagree on their meaning.
pub(crate) fn is_authority(text: &[u8]) -> bool {
    if let [b'[', rest @ ..] = text {
        let Some(end) = rest.iter().position(|byte| *byte == b']') else {
            return false;
        };
        let address = std::str::from_utf8(&rest[..end]).map(str::parse::<Ipv6Addr>);
        return matches!(address, Ok(Ok(_))) && is_port_part(&rest[end + 1..]);
    }
    // One pass checks the name and finds its end.
    let mut offset = 0;
    while let Some(byte) = text.get(offset) {
        match byte {
            _ if CLASS[usize::from(*byte)] & HOST != 0 => offset += 1,
            b'%' if escapes_name_byte(&text[offset + 1..]) => offset += 3,
            b':' => return offset > 0 && is_port_part(&text[offset..]),
            _ => return false,
        }
    }
    offset > 0
}

/// Returns whether the text begins with two hexadecimal digits that encode a byte allowed in a name.
fn escapes_name_byte(text: &[u8]) -> bool {
    let [high, low, ..] = text else { return false };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let (Some(high), Some(low)) = (digit(high), digit(low)) else {
        return false;
    };
    let byte = (high * 16 + low) as u8;
    !byte.is_ascii() || byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Returns whether the text is empty or a colon and an optional port (RFC 3986 section 3.2.3).
fn is_port_part(text: &[u8]) -> bool {
    let [b':', digits @ ..] = text else {
        return text.is_empty();
    };
    let port = digits.iter().try_fold(0u32, |port, byte| {
        let port = byte
            .is_ascii_digit()
            .then(|| port * 10 + u32::from(byte - b'0'))?;
        (port <= 65_535).then_some(port)
    });
    port.is_some()
}

/// Returns the text without leading and trailing spaces and tabs.
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = text
        .iter()
        .position(|byte| !is_blank(byte))
        .unwrap_or(text.len());
    let end = text
        .iter()
        .rposition(|byte| !is_blank(byte))
        .map_or(start, |index| index + 1);
    &text[start..end]
}

/// Returns the non-empty members of a comma-separated list, trimmed.
pub(crate) fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(trim)
        .filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_class_contains_line_terminators_or_nul() {
        for byte in [b'\r', b'\n', 0] {
            let text = [b'a', byte];
            assert!(
                !is_token(&text) && !is_value(&text) && !is_target(&text) && !is_authority(&text)
            );
        }
    }

    #[test]
    fn authority_is_a_host_with_an_optional_port() {
        for good in [
            "b",
            "b.example",
            "b_c.example",
            "b.example.",
            "b:80",
            "b:",
            "b:0",
            "b:65535",
            "b:00080",
            "10.0.0.1",
            "10.0.0.1:80",
            "[::1]",
            "[::1]:8080",
            "[2001:db8::1]:",
            "b%41",
            "%41b",
            "b%c3%a9",
            "a!$&'()*+;=b",
            "xn--bcher-kva.example",
        ] {
            assert!(is_authority(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":80",
            "b:99999",
            "b:65536",
            "b:x",
            "b:-1",
            "b:+1",
            "b: 1",
            "b:1:2",
            "b,c",
            "b%00",
            "b%0a",
            "b%2f",
            "b%40",
            "b%",
            "b%4",
            "b%zz",
            "bc%41/",
            "[::1",
            "::1",
            "[::1]x",
            "[::1]80",
            "[::1%25eth0]",
            "[v1.a]",
            "[]",
            "[10.0.0.1]",
            "a@b",
            "a:b@c",
            "b/",
            "b?",
            "b#",
            "b c",
            "b\t",
            "b\\",
            "b\"",
            "<b>",
            "b^",
            "b`",
            "{b}",
            "b|",
            "b\u{e9}",
        ] {
            assert!(!is_authority(bad.as_bytes()), "{bad:?}");
        }
    }

    #[test]
    fn each_byte_of_a_value_is_checked_at_every_position() {
        for len in 1..50 {
            for position in 0..len {
                for byte in 0..=u8::MAX {
                    let mut text = vec![b'a'; len];
                    text[position] = byte;
                    assert_eq!(is_value(&text), is_value_byte(byte), "{byte} in {text:?}");
                }
            }
        }
        assert!(is_value(b""));
        for length in [1, 15, 16, 17, 32, 40] {
            assert!(!is_value(&vec![b'\n'; length]), "{length} line feeds");
        }
    }

    #[test]
    fn underscores_are_reported_only_for_valid_names() {
        assert_eq!(contains_underscore(b"X-Forwarded-For"), Some(false));
        assert_eq!(contains_underscore(b"X_Forwarded_For"), Some(true));
        assert_eq!(contains_underscore(b"_"), Some(true));
        assert_eq!(contains_underscore(b"a_ b"), None);
        assert_eq!(contains_underscore(b""), None);
    }

    #[test]
    fn trim_removes_surrounding_whitespace() {
        assert_eq!(trim(b" \t a b\t "), b"a b");
        assert_eq!(trim(b" \t"), b"");
    }

    #[test]
    fn empty_members_are_skipped() {
        let found: Vec<&[u8]> = members(b", close ,,keep-alive,").collect();
        assert_eq!(found, [b"close".as_slice(), b"keep-alive"]);
    }
}
