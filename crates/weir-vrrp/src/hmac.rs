//! The authentication trailer of keepalived 2.4.2 and newer (`auth_hmac`, draft-cassen-vrrp-auth-hmac): 28 bytes after
//! the message, with a sequence number that is a time, and an HMAC-SHA256 shortened to 128 bits.
//!
//! The HMAC covers a pseudo header (family, version, router ID, source), the message with a zero checksum, the trailer
//! before the HMAC, and 16 zero bytes. The destination is not covered, so copies to several peers are equal.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::packet::{Ignored, TRAILER, Version};

const HMAC: usize = 16;
/// Type, key ID, reserved, sequence number.
const PREFIX: usize = TRAILER - HMAC;
const TYPE_SHA256: u8 = 1;
const BLOCK: usize = 64;
/// Position of the checksum in the message.
const CHECKSUM: std::ops::Range<usize> = 6..8;
/// Senders whose last sequence number is remembered; the one whose last packet is oldest is replaced.
const SENDERS: usize = 16;

/// Limits of a key's length, in bytes.
pub const HMAC_KEY: std::ops::RangeInclusive<usize> = 32..=64;

/// A key; its value is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct HmacKey {
    /// Its ID in packets.
    pub id: u8,
    /// 32 to 64 bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for HmacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HmacKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What is sent and what is required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HmacMode {
    /// Sends the trailer and requires it.
    #[default]
    Enforce,
    /// Sends it, and accepts packets without one.
    Permissive,
    /// Does not send it; accepts packets without one.
    ReceiveOnly,
}

/// Settings of the trailer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HmacConfig {
    /// Accepted keys.
    pub keys: Vec<HmacKey>,
    /// ID of the key that packets are signed with.
    pub active: u8,
    /// See there.
    pub mode: HmacMode,
    /// How far the sender's clock may differ.
    pub window: Duration,
}

/// Signs and verifies the packets of one virtual router.
#[derive(Debug)]
pub(crate) struct Hmac {
    config: HmacConfig,
    sent: u64,
    /// The last sequence number of each sender, the latest sender last.
    seen: Vec<(IpAddr, u64)>,
}

/// What the HMAC covers in addition to the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covered {
    pub(crate) version: Version,
    pub(crate) vrid: u8,
    pub(crate) source: IpAddr,
}

/// RFC 1982: whether `a` is after `b`.
const fn is_after(a: u64, b: u64) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// Seconds in the upper 32 bits, then 16 bits of a fraction and 16 bits of a counter.
fn sequence_of(unix: Duration) -> u64 {
    let fraction = (u64::from(unix.subsec_nanos()) << 16) / 1_000_000_000;
    (unix.as_secs() << 32) | (fraction << 16)
}

/// Signed distance of two times in whole seconds, modulo 2^32.
fn seconds_between(unix: Duration, sequence: u64) -> u64 {
    let now = (unix.as_secs() & u64::from(u32::MAX)) as u32;
    let then = (sequence >> 32) as u32;
    u64::from(now.wrapping_sub(then).cast_signed().unsigned_abs())
}

impl Hmac {
    pub(crate) const fn new(config: HmacConfig) -> Self {
        Self {
            config,
            sent: 0,
            seen: Vec::new(),
        }
    }

    /// Adopts other settings; sequence numbers continue.
    pub(crate) fn configure(&mut self, config: HmacConfig) {
        self.config = config;
    }

    /// The trailer of a message, or nothing in receive-only mode. `unix` is the time since 1970.
    pub(crate) fn trailer(&mut self, message: &[u8], covered: Covered, unix: Duration) -> Vec<u8> {
        if self.config.mode == HmacMode::ReceiveOnly {
            return Vec::new();
        }
        let clock = sequence_of(unix);
        // A clock that was set back: receivers would reject the old sequence.
        let is_stranded = seconds_between(unix, self.sent) > self.config.window.as_secs();
        self.sent = if is_after(clock, self.sent) || is_stranded {
            clock
        } else {
            self.sent.wrapping_add(1)
        };
        let mut trailer = vec![TYPE_SHA256, self.config.active, 0, 0];
        trailer.extend(self.sent.to_be_bytes());
        let key = self
            .config
            .keys
            .iter()
            .find(|key| key.id == self.config.active);
        // Without the key every receiver rejects the zero HMAC.
        let hmac = key.map_or([0; HMAC], |key| {
            digest(&key.bytes, message, &trailer, covered)
        });
        trailer.extend(hmac);
        trailer
    }

    /// Verifies a packet: its message, and its trailer or nothing.
    pub(crate) fn verify(
        &mut self,
        message: &[u8],
        trailer: &[u8],
        covered: Covered,
        unix: Duration,
    ) -> Result<(), Ignored> {
        if trailer.is_empty() {
            return match self.config.mode {
                HmacMode::Enforce => Err(Ignored::Authentication),
                HmacMode::Permissive | HmacMode::ReceiveOnly => Ok(()),
            };
        }
        let (Some((prefix, hmac)), [TYPE_SHA256, id, 0, 0, ..]) =
            (trailer.split_at_checked(PREFIX), trailer)
        else {
            return Err(Ignored::Authentication);
        };
        let sequence = prefix[4..]
            .iter()
            .fold(0_u64, |all, byte| (all << 8) | u64::from(*byte));
        let window = self.config.window.as_secs();
        // Before the HMAC is computed: repeated captures must not cost a digest each.
        if seconds_between(unix, sequence) > window {
            return Err(Ignored::Replay);
        }
        let key = self.config.keys.iter().find(|key| key.id == *id);
        let expected = key.map(|key| digest(&key.bytes, message, prefix, covered));
        if !expected.is_some_and(|expected| is_equal(&expected, hmac)) {
            return Err(Ignored::Authentication);
        }
        let at = self
            .seen
            .iter()
            .position(|(source, _)| *source == covered.source);
        if let Some(at) = at {
            let (_, last) = self.seen.remove(at);
            let is_known = seconds_between(unix, last) <= window;
            if is_known && !is_after(sequence, last) {
                self.seen.push((covered.source, last));
                return Err(Ignored::Replay);
            }
        } else if self.seen.len() == SENDERS {
            self.seen.remove(0);
        }
        self.seen.push((covered.source, sequence));
        Ok(())
    }
}

/// Takes the same time wherever the first difference is.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differences == 0
}

/// HMAC-SHA256 (RFC 2104), shortened.
fn digest(key: &[u8], message: &[u8], prefix: &[u8], covered: Covered) -> [u8; HMAC] {
    let mut block = [0_u8; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut pseudo = [0_u8; 20];
    pseudo[0] = if covered.source.is_ipv6() { 6 } else { 4 };
    pseudo[1] = covered.version.number();
    pseudo[2] = covered.vrid;
    match covered.source {
        IpAddr::V4(source) => pseudo[4..8].copy_from_slice(&source.octets()),
        IpAddr::V6(source) => pseudo[4..].copy_from_slice(&source.octets()),
    }
    let inner = Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x36))
        .chain_update(pseudo)
        .chain_update(message.get(..CHECKSUM.start).unwrap_or_default())
        .chain_update([0; CHECKSUM.end - CHECKSUM.start])
        .chain_update(message.get(CHECKSUM.end..).unwrap_or_default())
        .chain_update(prefix)
        .chain_update([0; HMAC])
        .finalize();
    let outer = Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x5c))
        .chain_update(inner)
        .finalize();
    let mut short = [0; HMAC];
    short.copy_from_slice(&outer[..HMAC]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIX: Duration = Duration::from_secs(1_764_000_000);
    const MESSAGE: [u8; 12] = [0x31, 51, 200, 1, 0, 100, 0xfb, 0xb5, 10, 77, 0, 100];

    fn covered() -> Covered {
        Covered {
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
            active: 2,
            mode,
            window: Duration::from_secs(5),
        })
    }

    #[test]
    fn trailer_is_accepted_once_and_in_order() {
        let (mut sender, mut receiver) = (hmac(HmacMode::Enforce), hmac(HmacMode::Enforce));
        let first = sender.trailer(&MESSAGE, covered(), UNIX);
        let second = sender.trailer(&MESSAGE, covered(), UNIX);
        assert_eq!(first.len(), TRAILER);
        let mut verify = |trailer: &[u8], at| receiver.verify(&MESSAGE, trailer, covered(), at);
        assert_eq!(verify(&second, UNIX), Ok(()));
        assert_eq!(verify(&second, UNIX), Err(Ignored::Replay));
        assert_eq!(verify(&first, UNIX), Err(Ignored::Replay));
        assert_eq!(verify(&[], UNIX), Err(Ignored::Authentication));
        let late = UNIX + Duration::from_secs(6);
        assert_eq!(verify(&second, late), Err(Ignored::Replay));
    }

    #[test]
    fn every_covered_byte_counts_and_the_checksum_does_not() {
        let mut sender = hmac(HmacMode::Enforce);
        let trailer = sender.trailer(&MESSAGE, covered(), UNIX);
        for at in 0..MESSAGE.len() {
            let mut changed = MESSAGE;
            changed[at] ^= 1;
            let result = hmac(HmacMode::Enforce).verify(&changed, &trailer, covered(), UNIX);
            assert_eq!(result.is_ok(), CHECKSUM.contains(&at), "byte {at}");
        }
        for at in 0..TRAILER {
            let mut changed = trailer.clone();
            changed[at] ^= 1;
            let result = hmac(HmacMode::Enforce).verify(&MESSAGE, &changed, covered(), UNIX);
            assert!(result.is_err(), "byte {at} of the trailer");
        }
        let other = Covered {
            source: "10.77.0.2".parse().unwrap(),
            ..covered()
        };
        let result = hmac(HmacMode::Enforce).verify(&MESSAGE, &trailer, other, UNIX);
        assert_eq!(result, Err(Ignored::Authentication));
    }

    #[test]
    fn modes_allow_a_migration() {
        let mut without = hmac(HmacMode::ReceiveOnly);
        assert!(without.trailer(&MESSAGE, covered(), UNIX).is_empty());
        assert_eq!(without.verify(&MESSAGE, &[], covered(), UNIX), Ok(()));
        let mut permissive = hmac(HmacMode::Permissive);
        assert_eq!(permissive.verify(&MESSAGE, &[], covered(), UNIX), Ok(()));
        let trailer = permissive.trailer(&MESSAGE, covered(), UNIX);
        assert_eq!(without.verify(&MESSAGE, &trailer, covered(), UNIX), Ok(()));
    }

    #[test]
    fn clock_that_is_set_back_is_followed() {
        let mut sender = hmac(HmacMode::Enforce);
        sender.trailer(&MESSAGE, covered(), UNIX + Duration::from_secs(3600));
        let trailer = sender.trailer(&MESSAGE, covered(), UNIX);
        let result = hmac(HmacMode::Enforce).verify(&MESSAGE, &trailer, covered(), UNIX);
        assert_eq!(result, Ok(()));
    }

    /// The expected value is computed by Python's hmac over the bytes that the module names.
    #[test]
    fn digest_is_an_hmac() {
        let key = [0x0b_u8; 32];
        let short = digest(
            &key,
            &MESSAGE,
            &[1, 2, 0, 0, 0, 0, 0, 1, 0, 2, 0, 3],
            covered(),
        );
        assert_eq!(hex(&short), EXPECTED);
    }

    const EXPECTED: &str = "c8a3209cc6c1a2d1bf78ad38716b76e4";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
