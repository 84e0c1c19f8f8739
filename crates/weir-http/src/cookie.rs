//! Finds cookies and query parameters, and computes the signature that identifies a server in a stickiness cookie.

use std::ops::Range;

use crate::byte_class::trim;

/// Returns the range of the value of the cookie `name` within a `Cookie` field value.
pub fn find(value: &[u8], name: &[u8]) -> Option<Range<usize>> {
    let mut offset = 0;
    for pair in value.split(|byte| *byte == b';') {
        let start = offset;
        offset += pair.len() + 1;
        let Some(equals) = pair.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        if trim(&pair[..equals]) == name {
            return Some(start + equals + 1..start + pair.len());
        }
    }
    None
}

/// Returns the field's value without the cookie whose value is at `range`; empty if there is no other cookie.
pub fn value_without(value: &[u8], range: &Range<usize>) -> Vec<u8> {
    let start = value[..range.start]
        .iter()
        .rposition(|byte| *byte == b';')
        .map_or(0, |index| index + 1);
    let before = trim(&value[..start.saturating_sub(1)]);
    let after = value.get(range.end + 1..).map_or(&b""[..], trim);
    let separator: &[u8] = if before.is_empty() || after.is_empty() {
        b""
    } else {
        b"; "
    };
    [before, separator, after].concat()
}

/// Returns the value of the first parameter `name` in a query; empty if the parameter has no value.
pub fn parameter<'a>(query: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    parameters(query, name).next()
}

/// Returns the values of all parameters `name` in a query.
pub fn parameters<'a>(query: &'a [u8], name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    query.split(|byte| *byte == b'&').filter_map(move |pair| {
        let equals = pair.iter().position(|byte| *byte == b'=');
        let (key, value) = equals.map_or((pair, &pair[pair.len()..]), |offset| {
            (&pair[..offset], &pair[offset + 1..])
        });
        (key == name).then_some(value)
    })
}

/// Returns a keyed hash of `server` as sixteen hexadecimal digits; the hash cannot be computed without `secret`.
pub fn sign(secret: &[u8], server: &str) -> [u8; 16] {
    let key = (
        siphash((0x7765_6972, 0x7374_6963), secret),
        siphash((0x6b79_0000, 0x636f_6f6b), secret),
    );
    let value = siphash(key, server.as_bytes());
    let mut text = [0; 16];
    for (index, digit) in text.iter_mut().enumerate() {
        let nibble = (value >> (60 - 4 * index)) as usize & 0xf;
        *digit = b"0123456789abcdef"[nibble];
    }
    text
}

/// Computes SipHash-2-4 (Aumasson and Bernstein).
pub fn siphash((k0, k1): (u64, u64), input: &[u8]) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, tail) = input.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word);
        v[3] ^= word;
        rounds(&mut v, 2);
        v[0] ^= word;
    }
    // The remaining bytes, and the length of the input modulo 256.
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    last[7] = input.len() as u8;
    let last = u64::from_le_bytes(last);
    v[3] ^= last;
    rounds(&mut v, 2);
    v[0] ^= last;
    v[2] ^= 0xff;
    rounds(&mut v, 4);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn rounds(v: &mut [u64; 4], count: usize) {
    for _ in 0..count {
        v[0] = v[0].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_found_by_their_full_name_and_removed() {
        let value = b"a=1; SRV=x=y;b=2;  c ; SRV=later";
        let range = find(value, b"SRV").unwrap();
        assert_eq!(&value[range.clone()], b"x=y");
        assert_eq!(value_without(value, &range), b"a=1; b=2;  c ; SRV=later");
        assert_eq!(find(value, b"RV"), None);
        assert_eq!(find(value, b"c"), None);
        let alone = b"SRV=1";
        assert_eq!(value_without(alone, &find(alone, b"SRV").unwrap()), b"");
        let last = b"a=1; SRV=1";
        assert_eq!(value_without(last, &find(last, b"SRV").unwrap()), b"a=1");
        let first = b"SRV=1; a=1";
        assert_eq!(value_without(first, &find(first, b"SRV").unwrap()), b"a=1");
    }

    #[test]
    fn parameter_values_may_be_empty() {
        assert_eq!(parameter(b"a=1&b&c=", b"a"), Some(&b"1"[..]));
        assert_eq!(parameter(b"a=1&b&c=", b"b"), Some(&b""[..]));
        assert_eq!(parameter(b"a=1&b&c=", b"d"), None);
    }

    #[test]
    fn siphash_matches_the_authors_test_vectors() {
        // The key is 00…0f; the inputs are empty and 00…0e.
        let key = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let input: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash(key, &input), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn signature_is_a_hash_in_hexadecimal() {
        let key = (
            siphash((0x7765_6972_u64, 0x7374_6963), b"a"),
            siphash((0x6b79_0000, 0x636f_6f6b), b"a"),
        );
        let expected = format!("{:016x}", siphash(key, b"10.0.0.5"));
        assert_eq!(sign(b"a", "10.0.0.5"), expected.as_bytes());
    }

    #[test]
    fn signatures_differ_by_secret_and_server() {
        assert_ne!(sign(b"a", "10.0.0.5"), sign(b"b", "10.0.0.5"));
        assert_ne!(sign(b"a", "10.0.0.5"), sign(b"a", "10.0.0.6"));
    }
}
