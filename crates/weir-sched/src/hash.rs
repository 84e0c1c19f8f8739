//! Implements the hash functions of the hashing schedulers, which are identical to the kernel's.
//!
//! They do not resist attacks: IPVS uses fixed keys, so a client that can choose its address can choose its server. All
//! values are in host byte order; [`fold`] converts from network byte order.

use std::net::IpAddr;

pub use weir_model::mix_64;

/// Returns the 8-bit multiplicative hash of `value`: `hash_32(value, 8)` of include/linux/hash.h.
#[must_use]
pub const fn hash_32_to_8(value: u32) -> u8 {
    const GOLDEN_RATIO_32: u32 = 0x61C8_8647;
    (value.wrapping_mul(GOLDEN_RATIO_32) >> 24) as u8
}

/// Computes `hsiphash_1u32` of lib/siphash.c on a 64-bit machine: SipHash-1-3 of four bytes, truncated to 32 bits. Both
/// halves of the key are `key`, as in `mh`.
#[must_use]
pub const fn hsiphash_1u32(value: u32, key: u64) -> u32 {
    let mut state = [
        0x736f_6d65_7073_6575 ^ key,
        0x646f_7261_6e64_6f6d ^ key,
        0x6c79_6765_6e65_7261 ^ key,
        0x7465_6462_7974_6573 ^ key,
    ];
    // The only block is the last one, with the length in the top byte and the word in the low bytes.
    let block = (4 << 56) + value as u64;
    state[3] ^= block;
    state = sip_round(state);
    state[0] ^= block;
    state[2] ^= 0xff;
    state = sip_round(sip_round(sip_round(state)));
    (state[0] ^ state[1] ^ state[2] ^ state[3]) as u32
}

const fn sip_round([mut v0, mut v1, mut v2, mut v3]: [u64; 4]) -> [u64; 4] {
    v0 = v0.wrapping_add(v1);
    v2 = v2.wrapping_add(v3);
    v1 = v1.rotate_left(13) ^ v0;
    v3 = v3.rotate_left(16) ^ v2;
    v0 = v0.rotate_left(32).wrapping_add(v3);
    v2 = v2.wrapping_add(v1);
    v3 = v3.rotate_left(21) ^ v0;
    v1 = v1.rotate_left(17) ^ v2;
    [v0, v1, v2.rotate_left(32), v3]
}

/// Returns the random number with index `n` for a `seed` other than 0. The data plane uses these numbers if it is
/// configured to be predictable, so that sequences of `twos` and `p2c` can be reproduced.
#[must_use]
pub const fn seeded_draw(seed: u32, n: u32) -> u32 {
    (mix_64(((seed as u64) << 32) + n as u64) >> 32) as u32
}

/// Returns an address as a 32-bit word for hashing schedulers: IPv4 unchanged, IPv6 as the XOR of its four words.
#[must_use]
pub fn fold(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(v4) => u32::from(v4),
        IpAddr::V6(v6) => {
            let bits = u128::from(v6);
            (bits >> 96) as u32 ^ (bits >> 64) as u32 ^ (bits >> 32) as u32 ^ bits as u32
        }
    }
}

#[cfg(test)]
mod tests;
