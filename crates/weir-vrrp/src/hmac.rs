//! Signs and verifies packets with keepalived's authentication trailer (`auth_hmac`).
//!
//! keepalived 2.4.2 and later support it (draft-cassen-vrrp-auth-hmac). The trailer follows the message. It has 28
//! bytes, with a sequence number derived from the time, and an HMAC-SHA256 truncated to 128 bits.
//!
//! The HMAC covers a pseudo header (family, version, router ID, source), the message with a zero checksum, the trailer
//! up to the HMAC, and 16 zero bytes. It does not cover the destination, so all unicast peers receive the same trailer.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::packet::{IgnoreReason, TRAILER_BYTES, Version};

const HMAC_BYTES: usize = 16;
/// Length of the trailer before the HMAC: type, key ID, reserved, sequence number.
const PREFIX_BYTES: usize = TRAILER_BYTES - HMAC_BYTES;
const TYPE_SHA256: u8 = 1;
const BLOCK_BYTES: usize = 64;
/// Byte range of the checksum in the message.
const CHECKSUM_RANGE: std::ops::Range<usize> = 6..8;
/// Maximum number of senders whose last sequence number is stored; a new sender replaces the least recent one.
const MAX_SENDERS: usize = 16;

/// Permitted length of a key, in bytes.
pub const HMAC_KEY_BYTES: std::ops::RangeInclusive<usize> = 32..=64;

/// A key. `Debug` does not print its value.
#[derive(Clone, PartialEq, Eq)]
pub struct HmacKey {
    /// Key ID in packets.
    pub id: u8,
    /// Key value, 32 to 64 bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for HmacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HmacKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Whether the trailer is sent and required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HmacMode {
    /// Sends the trailer and requires it.
    #[default]
    Enforce,
    /// Sends the trailer, and accepts packets without one.
    Permissive,
    /// Does not send the trailer, and accepts packets without one.
    ReceiveOnly,
}

/// Settings of the authentication trailer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HmacConfig {
    /// Accepted keys.
    pub keys: Vec<HmacKey>,
    /// ID of the key that signs packets.
    pub signing_key_id: u8,
    /// Whether the trailer is sent and required.
    pub mode: HmacMode,
    /// Maximum difference between the sender's clock and this director's.
    pub window: Duration,
}

/// Signs and verifies the packets of one virtual router.
#[derive(Debug)]
pub(crate) struct Hmac {
    config: HmacConfig,
    /// The last sequence number sent.
    last_sent: u64,
    /// The last sequence number from each sender; the most recent sender is last.
    last_received: Vec<(IpAddr, u64)>,
}

/// Fields of the pseudo header that the HMAC covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PseudoHeader {
    pub(crate) version: Version,
    pub(crate) vrid: u8,
    pub(crate) source: IpAddr,
}

/// Returns whether sequence number `a` is after `b` (RFC 1982).
const fn is_after(a: u64, b: u64) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// Returns the sequence number for a time: seconds in the upper 32 bits, then a 16-bit fraction and a 16-bit counter,
/// which is zero.
fn sequence_from_time(unix: Duration) -> u64 {
    let fraction = (u64::from(unix.subsec_nanos()) << 16) / 1_000_000_000;
    (unix.as_secs() << 32) | (fraction << 16)
}

/// Returns the difference between a time and the time of a sequence number in whole seconds, computed modulo 2^32.
fn seconds_between(unix: Duration, sequence: u64) -> u64 {
    let now = (unix.as_secs() & u64::from(u32::MAX)) as u32;
    let sent = (sequence >> 32) as u32;
    u64::from(now.wrapping_sub(sent).cast_signed().unsigned_abs())
}

impl Hmac {
    pub(crate) const fn new(config: HmacConfig) -> Self {
        Self {
            config,
            last_sent: 0,
            last_received: Vec::new(),
        }
    }

    /// Replaces the settings; sequence numbers continue.
    pub(crate) fn configure(&mut self, config: HmacConfig) {
        self.config = config;
    }

    /// Returns the trailer for a message, or no bytes in receive-only mode. `unix` is the time since 1970.
    pub(crate) fn trailer(
        &mut self,
        message: &[u8],
        pseudo_header: PseudoHeader,
        unix: Duration,
    ) -> Vec<u8> {
        if self.config.mode == HmacMode::ReceiveOnly {
            return Vec::new();
        }
        let clock = sequence_from_time(unix);
        // After the clock has been set back by more than the window, receivers would reject the old sequence if it
        // continued.
        let is_outside_window =
            seconds_between(unix, self.last_sent) > self.config.window.as_secs();
        self.last_sent = if is_after(clock, self.last_sent) || is_outside_window {
            clock
        } else {
            self.last_sent.wrapping_add(1)
        };
        let mut trailer = vec![TYPE_SHA256, self.config.signing_key_id, 0, 0];
        trailer.extend(self.last_sent.to_be_bytes());
        let key = self
            .config
            .keys
            .iter()
            .find(|key| key.id == self.config.signing_key_id);
        // If the key is not configured, the HMAC is zero, and every receiver rejects it.
        let hmac = key.map_or([0; HMAC_BYTES], |key| {
            hmac_sha256(&key.bytes, message, &trailer, pseudo_header)
        });
        trailer.extend(hmac);
        trailer
    }

    /// Verifies a packet. `trailer` is empty if the packet has none. `unix` is the time since 1970.
    pub(crate) fn verify(
        &mut self,
        message: &[u8],
        trailer: &[u8],
        pseudo_header: PseudoHeader,
        unix: Duration,
    ) -> Result<(), IgnoreReason> {
        if trailer.is_empty() {
            return match self.config.mode {
                HmacMode::Enforce => Err(IgnoreReason::Authentication),
                HmacMode::Permissive | HmacMode::ReceiveOnly => Ok(()),
            };
        }
        let (Some((prefix, hmac)), [TYPE_SHA256, id, 0, 0, ..]) =
            (trailer.split_at_checked(PREFIX_BYTES), trailer)
        else {
            return Err(IgnoreReason::Authentication);
        };
        let sequence = prefix[4..]
            .iter()
            .fold(0_u64, |all, byte| (all << 8) | u64::from(*byte));
        let window = self.config.window.as_secs();
        // The time is checked before the HMAC, so that an old replayed packet does not cost a hash computation.
        if seconds_between(unix, sequence) > window {
            return Err(IgnoreReason::Replay);
        }
        let key = self.config.keys.iter().find(|key| key.id == *id);
        let expected = key.map(|key| hmac_sha256(&key.bytes, message, prefix, pseudo_header));
        if !expected.is_some_and(|expected| is_equal(&expected, hmac)) {
            return Err(IgnoreReason::Authentication);
        }
        let index = self
            .last_received
            .iter()
            .position(|(source, _)| *source == pseudo_header.source);
        if let Some(index) = index {
            let (_, last) = self.last_received.remove(index);
            let is_in_window = seconds_between(unix, last) <= window;
            if is_in_window && !is_after(sequence, last) {
                self.last_received.push((pseudo_header.source, last));
                return Err(IgnoreReason::Replay);
            }
        } else if self.last_received.len() == MAX_SENDERS {
            self.last_received.remove(0);
        }
        self.last_received.push((pseudo_header.source, sequence));
        Ok(())
    }
}

/// Compares two HMACs in constant time, so that the duration does not reveal the position of the first difference.
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let differences = left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b));
    left.len() == right.len() && differences == 0
}

/// Returns the truncated HMAC-SHA256 (RFC 2104).
fn hmac_sha256(
    key: &[u8],
    message: &[u8],
    prefix: &[u8],
    pseudo_header: PseudoHeader,
) -> [u8; HMAC_BYTES] {
    let mut block = [0_u8; BLOCK_BYTES];
    if key.len() > BLOCK_BYTES {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut pseudo_bytes = [0_u8; 20];
    pseudo_bytes[0] = if pseudo_header.source.is_ipv6() { 6 } else { 4 };
    pseudo_bytes[1] = pseudo_header.version.number();
    pseudo_bytes[2] = pseudo_header.vrid;
    match pseudo_header.source {
        IpAddr::V4(source) => pseudo_bytes[4..8].copy_from_slice(&source.octets()),
        IpAddr::V6(source) => pseudo_bytes[4..].copy_from_slice(&source.octets()),
    }
    let inner = Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x36))
        .chain_update(pseudo_bytes)
        .chain_update(message.get(..CHECKSUM_RANGE.start).unwrap_or_default())
        .chain_update([0; CHECKSUM_RANGE.end - CHECKSUM_RANGE.start])
        .chain_update(message.get(CHECKSUM_RANGE.end..).unwrap_or_default())
        .chain_update(prefix)
        .chain_update([0; HMAC_BYTES])
        .finalize();
    let outer = Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x5c))
        .chain_update(inner)
        .finalize();
    let mut truncated = [0; HMAC_BYTES];
    truncated.copy_from_slice(&outer[..HMAC_BYTES]);
    truncated
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIX: Duration = Duration::from_secs(1_764_000_000);
    const MESSAGE: [u8; 12] = [0x31, 51, 200, 1, 0, 100, 0xfb, 0xb5, 10, 77, 0, 100];

    fn pseudo_header() -> PseudoHeader {
        PseudoHeader {
            version: Version::V3,
            vrid: 51,
            source: "10.77.0.1".parse().unwrap(),
        }
    }

    fn hmac(mode: HmacMode) -> Hmac {
        let key = |id| HmacKey {
            id,
            bytes: vec![id; 32],
        };
        Hmac::new(HmacConfig {
            keys: vec![key(1), key(2)],
            signing_key_id: 2,
            mode,
            window: Duration::from_secs(5),
        })
    }

    #[test]
    fn trailer_is_accepted_once_and_in_order() {
        let (mut sender, mut receiver) = (hmac(HmacMode::Enforce), hmac(HmacMode::Enforce));
        let first = sender.trailer(&MESSAGE, pseudo_header(), UNIX);
        let second = sender.trailer(&MESSAGE, pseudo_header(), UNIX);
        assert_eq!(first.len(), TRAILER_BYTES);
        let mut verify =
            |trailer: &[u8], unix| receiver.verify(&MESSAGE, trailer, pseudo_header(), unix);
        assert_eq!(verify(&second, UNIX), Ok(()));
        assert_eq!(verify(&second, UNIX), Err(IgnoreReason::Replay));
        assert_eq!(verify(&first, UNIX), Err(IgnoreReason::Replay));
        assert_eq!(verify(&[], UNIX), Err(IgnoreReason::Authentication));
        let late_time = UNIX + Duration::from_secs(6);
        assert_eq!(verify(&second, late_time), Err(IgnoreReason::Replay));
    }

    #[test]
    fn every_byte_except_the_checksum_is_authenticated() {
        let mut sender = hmac(HmacMode::Enforce);
        let trailer = sender.trailer(&MESSAGE, pseudo_header(), UNIX);
        for index in 0..MESSAGE.len() {
            let mut changed_message = MESSAGE;
            changed_message[index] ^= 1;
            let result =
                hmac(HmacMode::Enforce).verify(&changed_message, &trailer, pseudo_header(), UNIX);
            assert_eq!(
                result.is_ok(),
                CHECKSUM_RANGE.contains(&index),
                "byte {index}"
            );
        }
        for index in 0..TRAILER_BYTES {
            let mut changed_trailer = trailer.clone();
            changed_trailer[index] ^= 1;
            let result =
                hmac(HmacMode::Enforce).verify(&MESSAGE, &changed_trailer, pseudo_header(), UNIX);
            assert!(result.is_err(), "byte {index} of the trailer");
        }
        let mut changed_twice = trailer.clone();
        for byte in &mut changed_twice[PREFIX_BYTES..PREFIX_BYTES + 2] {
            *byte ^= 1;
        }
        let mut longer = trailer.clone();
        longer.push(0);
        for changed_trailer in [&changed_twice[..], &longer, &trailer[..TRAILER_BYTES - 1]] {
            let result =
                hmac(HmacMode::Enforce).verify(&MESSAGE, changed_trailer, pseudo_header(), UNIX);
            assert_eq!(result, Err(IgnoreReason::Authentication));
        }
        let other_source = PseudoHeader {
            source: "10.77.0.2".parse().unwrap(),
            ..pseudo_header()
        };
        let result = hmac(HmacMode::Enforce).verify(&MESSAGE, &trailer, other_source, UNIX);
        assert_eq!(result, Err(IgnoreReason::Authentication));
    }

    #[test]
    fn permissive_and_receive_only_modes_accept_unsigned_packets() {
        let mut receive_only = hmac(HmacMode::ReceiveOnly);
        assert!(
            receive_only
                .trailer(&MESSAGE, pseudo_header(), UNIX)
                .is_empty()
        );
        assert_eq!(
            receive_only.verify(&MESSAGE, &[], pseudo_header(), UNIX),
            Ok(())
        );
        let mut permissive = hmac(HmacMode::Permissive);
        assert_eq!(
            permissive.verify(&MESSAGE, &[], pseudo_header(), UNIX),
            Ok(())
        );
        let trailer = permissive.trailer(&MESSAGE, pseudo_header(), UNIX);
        assert_eq!(
            receive_only.verify(&MESSAGE, &trailer, pseudo_header(), UNIX),
            Ok(())
        );
    }

    #[test]
    fn sequence_follows_clock_that_is_set_back() {
        let mut sender = hmac(HmacMode::Enforce);
        sender.trailer(&MESSAGE, pseudo_header(), UNIX + Duration::from_secs(3600));
        let trailer = sender.trailer(&MESSAGE, pseudo_header(), UNIX);
        let result = hmac(HmacMode::Enforce).verify(&MESSAGE, &trailer, pseudo_header(), UNIX);
        assert_eq!(result, Ok(()));
    }

    fn sequence_of(trailer: &[u8]) -> u64 {
        u64::from_be_bytes(*trailer[4..].first_chunk().unwrap())
    }

    #[test]
    fn sequence_contains_seconds_and_a_binary_fraction() {
        for (unix, expected) in [
            (Duration::new(5, 0), 5 << 32),
            (Duration::new(5, 500_000_000), 5 << 32 | 0x8000_0000),
            (Duration::new(5, 999_999_999), 5 << 32 | 0xffff_0000),
            (Duration::from_secs(0x1_0000_0007), 7 << 32),
        ] {
            assert_eq!(sequence_from_time(unix), expected, "{unix:?}");
            let trailer = hmac(HmacMode::Enforce).trailer(&MESSAGE, pseudo_header(), unix);
            assert_eq!(sequence_of(&trailer), expected, "{unix:?}");
        }
    }

    /// The window is five seconds.
    #[test]
    fn sequence_continues_if_the_clock_is_set_back_by_at_most_the_window() {
        for (seconds, continues) in [(0, true), (1, true), (5, true), (6, false), (7, false)] {
            let mut sender = hmac(HmacMode::Enforce);
            let before = UNIX + Duration::from_secs(seconds);
            let first = sequence_of(&sender.trailer(&MESSAGE, pseudo_header(), before));
            let second = sequence_of(&sender.trailer(&MESSAGE, pseudo_header(), UNIX));
            let expected = if continues {
                first + 1
            } else {
                sequence_from_time(UNIX)
            };
            assert_eq!(second, expected, "{seconds}");
        }
    }

    #[test]
    fn clocks_may_differ_by_at_most_the_window() {
        // The second time is shortly after the seconds wrapped.
        for sent in [UNIX, Duration::from_secs(1 << 32)] {
            let trailer = hmac(HmacMode::Enforce).trailer(&MESSAGE, pseudo_header(), sent);
            let verify =
                |unix| hmac(HmacMode::Enforce).verify(&MESSAGE, &trailer, pseudo_header(), unix);
            let (limit, second) = (Duration::from_secs(5), Duration::from_secs(1));
            for unix in [sent, sent + limit, sent - limit] {
                assert_eq!(verify(unix), Ok(()), "{unix:?}");
            }
            for unix in [sent + limit + second, sent - limit - second] {
                assert_eq!(verify(unix), Err(IgnoreReason::Replay), "{unix:?}");
            }
        }
    }

    /// A sender whose clock was wrong may start again at an earlier sequence number.
    #[test]
    fn earlier_sequence_is_accepted_if_the_last_one_is_outside_the_window() {
        let mut receiver = hmac(HmacMode::Enforce);
        let mut verify = |sent: Duration, unix: Duration| {
            let trailer = hmac(HmacMode::Enforce).trailer(&MESSAGE, pseudo_header(), sent);
            receiver.verify(&MESSAGE, &trailer, pseudo_header(), unix)
        };
        let seconds = Duration::from_secs;
        assert_eq!(verify(UNIX + seconds(5), UNIX), Ok(()));
        assert_eq!(verify(UNIX + seconds(4), UNIX), Err(IgnoreReason::Replay));
        // Both clocks are set back.
        let earlier = UNIX - seconds(1);
        assert_eq!(verify(earlier, earlier), Ok(()));
    }

    /// The expected values were computed with Python's hmac module over the bytes listed in the module documentation. A
    /// key longer than a block is hashed (RFC 2104).
    #[test]
    fn digest_matches_reference_implementation() {
        let fe80 = "fe80::1".parse().unwrap();
        let source = pseudo_header().source;
        for (key_bytes, source, expected) in [
            (32, source, "c8a3209cc6c1a2d1bf78ad38716b76e4"),
            (64, source, "d269c77d8b8d30454a66120da36a4b94"),
            (65, source, "d73f9723c5f8845ad07b5f6ce4be4536"),
            (32, fe80, "c6d95d805cfe82366aa61b89736e09e3"),
        ] {
            let truncated = hmac_sha256(
                &vec![0x0b; key_bytes],
                &MESSAGE,
                &[1, 2, 0, 0, 0, 0, 0, 1, 0, 2, 0, 3],
                PseudoHeader {
                    source,
                    ..pseudo_header()
                },
            );
            assert_eq!(hex(&truncated), expected, "{key_bytes} {source}");
        }
    }

    #[test]
    fn debug_text_of_a_key_does_not_contain_its_value() {
        let key = HmacKey {
            id: 7,
            bytes: b"0123456789abcdef0123456789abcdef".to_vec(),
        };
        assert_eq!(format!("{key:?}"), "HmacKey { id: 7, .. }");
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
