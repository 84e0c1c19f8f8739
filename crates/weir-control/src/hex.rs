//! Encodes and decodes tokens, keys and hashes in hexadecimal.

/// Encodes each byte as two lower-case digits.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes exactly `N` bytes; `None` = the text has a different length or is not hexadecimal.
pub(crate) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let value = |digit: u8| {
        let value = char::from(digit).to_digit(16)?;
        u8::try_from(value).ok()
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_other_text_is_rejected() {
        assert_eq!(encode(&[0, 0x1f, 0xa0]), "001fa0");
        assert_eq!(decode("001fA0"), Some([0, 0x1f, 0xa0]));
        for wrong in ["001fa", "001fa0a0", "001fg0", "+01fa0", "00é0"] {
            assert_eq!(decode::<3>(wrong), None, "{wrong}");
        }
    }
}
