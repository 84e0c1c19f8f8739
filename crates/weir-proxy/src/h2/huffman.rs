//! Decodes the Huffman code of HPACK (RFC 7541 appendix B).
//!
//! The code is canonical: codes of the same length are consecutive in the order of their symbols. The lengths therefore
//! define all codes.

/// Length of each byte's code, in bits.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6,
    6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8,
    13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15,
    11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23,
    23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26,
    26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21,
    22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27,
    27, 26,
];
/// Length of the end-of-string code in bits. Strings must not contain this code.
const END_LENGTH: usize = 30;
const MAX_CODE_BITS: usize = 30;
/// Codes up to this length are decoded with one table lookup: letters, digits and common characters of paths.
const LOOKUP_BITS: usize = 8;

struct Codes {
    /// For each length: the first code, the index of its first symbol, and the number of symbols.
    first_code: [u32; MAX_CODE_BITS + 1],
    first_symbol: [u16; MAX_CODE_BITS + 1],
    symbol_count: [u16; MAX_CODE_BITS + 1],
    /// Symbols, ordered by code length and value.
    symbols: [u8; 256],
    /// Symbol and code length for the next eight bits; length 0 = the code is longer.
    short: [(u8, u8); 1 << LOOKUP_BITS],
}

static CODES: Codes = codes();

const fn codes() -> Codes {
    let mut all = Codes {
        first_code: [0; MAX_CODE_BITS + 1],
        first_symbol: [0; MAX_CODE_BITS + 1],
        symbol_count: [0; MAX_CODE_BITS + 1],
        symbols: [0; 256],
        short: [(0, 0); 1 << LOOKUP_BITS],
    };
    let (mut code, mut index, mut length) = (0u32, 0usize, 1usize);
    while length <= MAX_CODE_BITS {
        code <<= 1;
        all.first_code[length] = code;
        all.first_symbol[length] = index as u16;
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as usize == length {
                all.symbols[index] = symbol as u8;
                if length <= LOOKUP_BITS {
                    let mut suffix = 0;
                    while suffix < 1 << (LOOKUP_BITS - length) {
                        let bits = (code as usize) << (LOOKUP_BITS - length) | suffix;
                        all.short[bits] = (symbol as u8, length as u8);
                        suffix += 1;
                    }
                }
                all.symbol_count[length] += 1;
                index += 1;
                code += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    // The end-of-string code is the last one of its length.
    assert!(index == 256 && code as usize == (1 << END_LENGTH) - 1);
    all
}

/// Appends the decoded string. Returns `None` if it is malformed.
pub(super) fn decode(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut bytes = text.iter();
    // The low `bit_count` bits of `bits` are not decoded yet.
    let (mut bits, mut bit_count) = (0u64, 0usize);
    loop {
        while bit_count <= 32 {
            let Some(byte) = bytes.next() else { break };
            bits = bits << 8 | u64::from(*byte);
            bit_count += 8;
        }
        let next = if bit_count >= LOOKUP_BITS {
            bits >> (bit_count - LOOKUP_BITS)
        } else {
            // Pad with ones, the start of the end-of-string code.
            (((bits & ((1 << bit_count) - 1)) + 1) << (LOOKUP_BITS - bit_count)) - 1
        };
        let (symbol, length) = CODES.short[(next & 0xff) as usize];
        if length > 0 && usize::from(length) <= bit_count {
            out.push(symbol);
            bit_count -= usize::from(length);
            continue;
        }
        if bit_count < LOOKUP_BITS {
            // Valid padding is less than a byte of ones.
            return (next & 0xff == 0xff).then_some(());
        }
        let (symbol, length) = decode_long(bits, bit_count)?;
        out.push(symbol);
        bit_count -= length;
    }
}

/// Returns the symbol of a code that is longer than [`LOOKUP_BITS`], and the length of the code.
fn decode_long(bits: u64, bit_count: usize) -> Option<(u8, usize)> {
    (LOOKUP_BITS + 1..=MAX_CODE_BITS.min(bit_count)).find_map(|length| {
        let code = (bits >> (bit_count - length)) as u32 & ((1 << length) - 1);
        let nth = code.checked_sub(CODES.first_code[length])?;
        let symbol = usize::from(CODES.first_symbol[length]) + nth as usize;
        (nth < u32::from(CODES.symbol_count[length])).then(|| (CODES.symbols[symbol], length))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes a string as a peer would.
    pub(in crate::h2) fn encode(text: &[u8]) -> Vec<u8> {
        let (mut out, mut bits, mut bit_count) = (Vec::new(), 0u64, 0usize);
        for byte in text {
            let length = usize::from(LENGTHS[usize::from(*byte)]);
            let begin = usize::from(CODES.first_symbol[length]);
            let symbols = &CODES.symbols[begin..begin + usize::from(CODES.symbol_count[length])];
            let nth = symbols
                .iter()
                .position(|symbol| symbol == byte)
                .expect("every byte has a code");
            bits = bits << length | (u64::from(CODES.first_code[length]) + nth as u64);
            bit_count += length;
            while bit_count >= 8 {
                out.push((bits >> (bit_count - 8)) as u8);
                bit_count -= 8;
            }
            bits &= (1 << bit_count) - 1;
        }
        if bit_count > 0 {
            out.push((((bits + 1) << (8 - bit_count)) - 1) as u8);
        }
        out
    }

    /// Examples from RFC 7541, appendices C.4 and C.6.
    #[test]
    fn rfc_7541_examples_are_decoded() {
        for (code, text) in [
            (
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ][..],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (
                &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf],
                "custom-value",
            ),
            (
                &[
                    0x9d, 0x29, 0xad, 0x17, 0x18, 0x63, 0xc7, 0x8f, 0x0b, 0x97, 0xc8, 0xe9, 0xae,
                    0x82, 0xae, 0x43, 0xd3,
                ],
                "https://www.example.com",
            ),
            (&[], ""),
        ] {
            let mut out = Vec::new();
            assert_eq!(decode(code, &mut out), Some(()), "{text}");
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }

    #[test]
    fn invalid_padding_is_rejected() {
        // Padding with zeros, a whole byte of padding, and the end-of-string code.
        for malformed in [
            &[0x1e, 0x00][..],
            &[0x07, 0xff],
            &[0xff, 0xff, 0xff, 0xff],
            &[0xff],
            &[0x18],
        ] {
            assert_eq!(decode(malformed, &mut Vec::new()), None, "{malformed:x?}");
        }
    }

    proptest! {
        #[test]
        fn encoded_string_decodes_to_itself(text in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut out = Vec::new();
            prop_assert_eq!(decode(&encode(&text), &mut out), Some(()));
            prop_assert_eq!(out, text);
        }
    }
}
