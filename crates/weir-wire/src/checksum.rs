//! Computes the Internet checksum (RFC 1071) with pseudo headers, and updates it incrementally (RFC 1624).
//!
//! Sums are computed over 16-bit words in network order; the checksum field contains the complement. Packets whose
//! checksum field contains a partial sum for offload (CHECKSUM_PARTIAL) are not supported, except for GUE remote
//! checksum offload ([`crate::RemoteChecksum`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::protocol::IpProtocol;

/// A running ones' complement sum. Added pieces can have odd lengths: the next piece then continues in the middle of a
/// word.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    total: u64,
    half_word: bool,
}

impl Sum {
    /// Returns an empty sum.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            total: 0,
            half_word: false,
        }
    }

    /// Adds bytes, as if all added bytes were contiguous.
    #[must_use]
    pub fn bytes(mut self, mut bytes: &[u8]) -> Self {
        if self.half_word
            && let Some((&low, rest)) = bytes.split_first()
        {
            self.total += u64::from(low);
            self.half_word = false;
            bytes = rest;
        }
        let (words, last) = bytes.as_chunks::<2>();
        // A packet has at most 2^15 words, so 64 bits never overflow before a fold.
        self.total += words
            .iter()
            .map(|&word| u64::from(u16::from_be_bytes(word)))
            .sum::<u64>();
        if let [high] = last {
            self.total += u64::from(*high) << 8;
            self.half_word = true;
        }
        Self {
            total: u64::from(fold(self.total)),
            ..self
        }
    }

    /// Adds a 16-bit field.
    #[must_use]
    pub fn word(self, value: u16) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Returns the sum folded to 16 bits, not complemented.
    #[must_use]
    pub const fn folded(self) -> u16 {
        fold(self.total)
    }

    /// Returns the value for the checksum field, which must have been zero in the summed bytes.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.folded()
    }

    /// Returns whether the checksum is correct, if the summed bytes include the checksum field.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.folded() == 0xffff
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the loop ends when the value has 16 bits"
)]
const fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Returns the checksum of bytes whose checksum field is zero.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::new().bytes(bytes).checksum()
}

/// Returns the sum of the pseudo header of TCP and UDP over IPv4 (RFC 768, RFC 9293 section 3.1). `length` is the
/// length in bytes of the TCP segment or UDP datagram, including its header.
#[must_use]
pub fn pseudo_header_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, length: usize) -> Sum {
    Sum::new()
        .bytes(&src.octets())
        .bytes(&dst.octets())
        .word(u16::from(protocol.0))
        .bytes(&length_word(length))
}

/// Returns the sum of the pseudo header over IPv6 (RFC 8200 section 8.1). `protocol` is the upper-layer protocol, even
/// if extension headers precede it; `length` is the length in bytes of its header and data.
#[must_use]
pub fn pseudo_header_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, length: usize) -> Sum {
    Sum::new()
        .bytes(&src.octets())
        .bytes(&dst.octets())
        .bytes(&length_word(length))
        .word(u16::from(protocol.0))
}

/// Returns the sum of the pseudo header for the address family of `src` and `dst`. If the families differ, which does
/// not happen in a packet, the IPv4 address is used as an IPv4-mapped IPv6 address.
#[must_use]
pub fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: IpProtocol, length: usize) -> Sum {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => pseudo_header_v4(src, dst, protocol, length),
        (src, dst) => pseudo_header_v6(mapped(src), mapped(dst), protocol, length),
    }
}

/// Returns the address as an IPv6 address; IPv4 becomes `::ffff:a.b.c.d`.
pub(crate) fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn length_word(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

/// Returns the checksum after a covered 16-bit field was changed from `old` to `new` (RFC 1624, equation 3).
///
/// A wrong checksum remains wrong by the same amount. The field must be aligned to 16 bits in the covered bytes.
#[must_use]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// Updates a checksum like [`update_u16`], for a 32-bit field, such as an IPv4 address.
#[must_use]
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    !fold(!checksum as u64 + words(!old as u128) + words(new as u128))
}

/// Updates a checksum like [`update_u16`], for a 128-bit field, such as an IPv6 address.
#[must_use]
pub const fn update_u128(checksum: u16, old: u128, new: u128) -> u16 {
    !fold(!checksum as u64 + words(!old) + words(new))
}

/// Updates a checksum like [`update_u16`], for an address that it covers, directly or in a pseudo header. `old` and
/// `new` can differ in family.
#[must_use]
pub fn update_address(checksum: u16, old: IpAddr, new: IpAddr) -> u16 {
    let bits = |address| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    update_u128(checksum, bits(old), bits(new))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "each word is masked to 16 bits"
)]
const fn words(value: u128) -> u64 {
    let mut total = 0;
    let mut shift = 0;
    while shift < 128 {
        total += (value >> shift) as u64 & 0xffff;
        shift += 16;
    }
    total
}

/// Returns the value for the UDP checksum field: zero means "no checksum", so a computed zero is sent as all ones (RFC
/// 768).
#[must_use]
pub const fn udp_checksum_field(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sum_equals_rfc1071_example() {
        let sum = Sum::new().bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), 0xddf2);
        assert_eq!(sum.checksum(), 0x220d);
    }

    #[test]
    fn update_equals_rfc1624_example_where_equation_2_fails() {
        // Equation 2 gives 0xffff here; equation 3 must give zero.
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn odd_length_pieces_are_contiguous() {
        let contiguous = Sum::new().bytes(&[1, 2, 3, 4, 5]).folded();
        assert_eq!(
            Sum::new()
                .bytes(&[1])
                .bytes(&[])
                .bytes(&[2, 3])
                .bytes(&[4, 5])
                .folded(),
            contiguous
        );
        assert_eq!(contiguous, 0x0102 + 0x0304 + 0x0500);
    }

    #[test]
    fn udp_zero_checksum_is_sent_as_all_ones() {
        assert_eq!(udp_checksum_field(0), 0xffff);
        assert_eq!(udp_checksum_field(0x1234), 0x1234);
    }

    /// Generates bytes with a nonzero byte outside the fields that a test changes. Real packets have one (the version,
    /// the protocol), and only all-zero bytes make 0x0000 and 0xffff ambiguous.
    fn covered_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 32..96).prop_map(|mut bytes| {
            bytes[0] |= 0x40;
            bytes
        })
    }

    proptest! {
        #[test]
        fn sum_does_not_depend_on_splits(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            cuts in prop::collection::vec(0usize..300, 0..4),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let split = cuts.windows(2).fold(Sum::new(), |sum, pair| sum.bytes(&bytes[pair[0]..pair[1]]));
            prop_assert_eq!(split.folded(), Sum::new().bytes(&bytes).folded());
        }

        #[test]
        fn incremental_update_equals_recomputed_checksum(
            bytes in covered_bytes(),
            word in 1usize..8,
            v16: u16,
            v32: u32,
            v128: u128,
        ) {
            let offset = word * 2;
            let before = checksum(&bytes);
            let changed = |new: &[u8]| {
                let mut after = bytes.clone();
                after[offset..offset + new.len()].copy_from_slice(new);
                checksum(&after)
            };
            let old = u16::from_be_bytes(bytes[offset..offset + 2].try_into().unwrap());
            prop_assert_eq!(update_u16(before, old, v16), changed(&v16.to_be_bytes()));
            let old = u32::from_be_bytes(bytes[offset..offset + 4].try_into().unwrap());
            prop_assert_eq!(update_u32(before, old, v32), changed(&v32.to_be_bytes()));
            let old = u128::from_be_bytes(bytes[offset..offset + 16].try_into().unwrap());
            prop_assert_eq!(update_u128(before, old, v128), changed(&v128.to_be_bytes()));
        }

        #[test]
        fn update_address_equals_recomputed_checksum(
            old in any::<IpAddr>(), new in any::<IpAddr>(), sport in 1u16..,
        ) {
            let checksum = |address: IpAddr| match address {
                IpAddr::V4(v4) => Sum::new().word(sport).bytes(&v4.octets()).checksum(),
                IpAddr::V6(v6) => Sum::new().word(sport).bytes(&v6.octets()).checksum(),
            };
            prop_assert_eq!(update_address(checksum(old), old, new), checksum(new));
        }

        #[test]
        fn wrong_checksum_keeps_its_error(bytes in covered_bytes(), error in 1u16..0xffff, new: u32) {
            let correct = checksum(&bytes);
            let wrong = !fold(u64::from(!correct) + u64::from(error));
            let old = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
            let correct = update_u32(correct, old, new);
            prop_assert_eq!(update_u32(wrong, old, new), !fold(u64::from(!correct) + u64::from(error)));
        }

        #[test]
        fn pseudo_header_sum_equals_sum_of_bytes(src: u128, dst: u128, protocol: u8, length: u16) {
            let mut bytes = src.to_be_bytes().to_vec();
            bytes.extend(dst.to_be_bytes());
            bytes.extend(u32::from(length).to_be_bytes());
            bytes.extend([0, 0, 0, protocol]);
            let sum = pseudo_header(
                IpAddr::V6(src.into()), IpAddr::V6(dst.into()), IpProtocol(protocol), usize::from(length));
            prop_assert_eq!(sum.folded(), Sum::new().bytes(&bytes).folded());
        }
    }
}
