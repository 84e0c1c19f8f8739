//! Defines a flow's tuple and its keyed hash. [`crate::slot`] maps the hash to flow table slots.
//!
//! The hash is SipHash-1-3 (Aumasson and Bernstein, 2012) of a fixed number of words per family. The family, in the
//! last word, replaces the length byte of the original. The functions must return the same values as bpf/lib/hash.h.

use weir_abi::{Addr, FlowCold};
use weir_model::GOLDEN_64;

use crate::family::Family;

/// One direction of a flow: the addresses and ports in its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Source address.
    pub src: Addr,
    /// Destination address.
    pub dst: Addr,
    /// Source port, host order.
    pub sport: u16,
    /// Destination port, host order.
    pub dport: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Address family of the packets. The addresses do not imply it, because an IPv6 packet can contain IPv4-mapped
    /// addresses.
    pub family: Family,
}

impl Tuple {
    /// Returns the tuple of packets in the other direction, without translation.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            sport: self.dport,
            dport: self.sport,
            ..self
        }
    }

    /// Returns the tuple in a cold record of the flow table.
    #[must_use]
    pub fn from_cold(cold: &FlowCold) -> Self {
        let family = if cold.family == 4 {
            Family::V4
        } else {
            Family::V6
        };
        Self {
            src: cold.src,
            dst: cold.dst,
            sport: cold.sport.get(),
            dport: cold.dport.get(),
            protocol: cold.proto,
            family,
        }
    }
}

/// A flow table's secret key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FlowHashKey([u64; 2]);

impl core::fmt::Debug for FlowHashKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FlowHashKey")
    }
}

impl FlowHashKey {
    /// Creates a key from the two words that the loader passes to the programs.
    #[must_use]
    pub const fn new(secret: [u64; 2]) -> Self {
        Self(secret)
    }

    /// Returns the hash of a tuple.
    #[must_use]
    pub fn hash(&self, tuple: &Tuple) -> u64 {
        let last_word = ports_and_protocol(tuple);
        let mut sip = Sip::new(self.0);
        match tuple.family {
            Family::V4 => {
                sip.add_word((tuple.src.lo >> 32) + (tuple.dst.lo & 0xffff_ffff_0000_0000));
                sip.add_word(last_word + (4 << 56));
            }
            Family::V6 => {
                for word in [tuple.src.hi, tuple.src.lo, tuple.dst.hi, tuple.dst.lo] {
                    sip.add_word(word);
                }
                sip.add_word(last_word + (6 << 56));
            }
        }
        sip.finish()
    }
}

/// Returns both ports, in network order, and the protocol as one word. The most significant byte is 0.
fn ports_and_protocol(tuple: &Tuple) -> u64 {
    let network_order = |port: u16| u64::from(u16::from_ne_bytes(port.to_be_bytes()));
    network_order(tuple.sport)
        + (network_order(tuple.dport) << 16)
        + (u64::from(tuple.protocol) << 32)
}

/// The state of SipHash.
struct Sip([u64; 4]);

impl Sip {
    const fn new([k0, k1]: [u64; 2]) -> Self {
        Self([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    const fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }

    const fn add_word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.0[0] ^= word;
    }

    const fn finish(mut self) -> u64 {
        self.0[2] ^= 0xff;
        self.round();
        self.round();
        self.round();
        let [a, b, c, d] = self.0;
        a ^ b ^ c ^ d
    }
}

/// Returns the hash of a flow for `maglev`: unkeyed, so directors with the same servers choose the same server.
#[must_use]
pub fn steer_hash(tuple: &Tuple) -> u64 {
    let fold = |addr: &Addr| addr.lo ^ addr.hi.rotate_left(29);
    let last_word = ports_and_protocol(tuple);
    let mix =
        |word: u64, shift: u32, multiplier: u64| (word ^ word >> shift).wrapping_mul(multiplier);
    let mut hash = mix(fold(&tuple.src), 32, GOLDEN_64);
    hash = mix(hash ^ fold(&tuple.dst), 32, MIXING_64);
    hash = mix(hash ^ last_word, 32, GOLDEN_64);
    hash = mix(hash, 29, MIXING_64);
    hash ^ hash >> 32
}

/// The first multiplier of SplitMix64's finalizer.
const MIXING_64: u64 = 0xbf58_476d_1ce4_e5b9;

/// Scales the upper half of `hash` to 0…`range`−1.
pub(crate) const fn scale(hash: u64, range: u32) -> u32 {
    (((hash >> 32) * range as u64) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;

    fn tuple(src: &str, dst: &str, ports: (u16, u16)) -> Tuple {
        let [src, dst] = [src, dst].map(|text| text.parse::<IpAddr>().unwrap());
        Tuple {
            src: src.into(),
            dst: dst.into(),
            sport: ports.0,
            dport: ports.1,
            protocol: 6,
            family: if dst.is_ipv4() {
                Family::V4
            } else {
                Family::V6
            },
        }
    }

    #[test]
    fn hash_depends_on_every_field() {
        let key = FlowHashKey::new([1, 2]);
        let base = tuple("192.0.2.1", "192.0.2.10", (1000, 80));
        let other_tuples = [
            Tuple {
                sport: 1001,
                ..base
            },
            Tuple { dport: 81, ..base },
            Tuple {
                protocol: 17,
                ..base
            },
            tuple("192.0.2.2", "192.0.2.10", (1000, 80)),
            tuple("192.0.2.1", "192.0.2.11", (1000, 80)),
            Tuple {
                family: Family::V6,
                ..base
            },
            base.reversed(),
        ];
        for other in other_tuples {
            assert_ne!(key.hash(&base), key.hash(&other), "{other:?}");
        }
        assert_ne!(key.hash(&base), FlowHashKey::new([1, 3]).hash(&base));
    }

    /// The values come from an independent implementation; bpf/lib/hash.h computes the same ones.
    #[test]
    fn hashes_have_known_values() {
        let key = FlowHashKey::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        for (src, dst, keyed, steered) in [
            (
                "192.0.2.1",
                "192.0.2.10",
                0x1d35_9d95_2ee7_d760,
                0x8b19_29bd_0b44_6cdb,
            ),
            (
                "2001:db8::1",
                "2001:db8::10",
                0x4ff5_61d9_70ca_6c7b,
                0x38db_c5e8_b70b_a09a,
            ),
        ] {
            let tuple = tuple(src, dst, (1000, 80));
            assert_eq!(
                (key.hash(&tuple), steer_hash(&tuple)),
                (keyed, steered),
                "{src}"
            );
        }
        for (hash, range, expected) in [
            (0, 10, 0),
            (u64::MAX, 10, 9),
            (1 << 63, 10, 5),
            (0x3fff_ffff_ffff_ffff, 4, 0),
            (0x4000_0000_0000_0000, 4, 1),
            (u64::MAX, 1, 0),
        ] {
            assert_eq!(scale(hash, range), expected, "{hash:x} {range}");
        }
        assert_eq!(
            format!("{key:?}"),
            "FlowHashKey",
            "the key must not be shown"
        );
    }

    #[test]
    fn tuple_is_reversed_and_read_from_cold_record() {
        for (src, dst) in [("192.0.2.1", "192.0.2.10"), ("2001:db8::1", "2001:db8::10")] {
            let forward = tuple(src, dst, (1000, 80));
            assert_eq!(forward.reversed(), tuple(dst, src, (80, 1000)));
            let cold = FlowCold {
                src: forward.src,
                dst: forward.dst,
                sport: weir_abi::Be16::new(1000),
                dport: weir_abi::Be16::new(80),
                proto: 6,
                family: if forward.family == Family::V4 { 4 } else { 6 },
                ..FlowCold::default()
            };
            assert_eq!(Tuple::from_cold(&cold), forward);
        }
    }

    #[test]
    fn hashes_are_spread_over_buckets() {
        let key = FlowHashKey::new([3, 4]);
        let mut counts = [0u32; 16];
        for port in 0..1600 {
            let hash = key.hash(&tuple("2001:db8::1", "2001:db8::2", (port, 80)));
            counts[scale(hash, 16) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (50..200).contains(count)),
            "{counts:?}"
        );
    }
}
