//! Implements the datagram format: an authenticated header, and a body that is encrypted and authenticated.
//!
//! ```text
//!  0  magic "WRS", format version 1
//!  4  the sender's session for this receiver: 16 random bytes
//! 20  sequence number in the session, from 0
//! 28  the receiver's challenge
//! 36  encrypted items, then the 16-byte tag
//! ```
//!
//! The cipher is AES-256-GCM. A session's key is derived with HKDF-SHA256 from the shared secret and the session. The
//! sequence number is the nonce, so a nonce is never reused with the same key.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf;

/// Maximum size of a datagram in bytes, which fits in an Ethernet frame with IPv6 and tunnel headers.
pub const MAX_DATAGRAM: usize = 1400;

const MAGIC: [u8; 4] = *b"WRS\x01";
pub(crate) const HEADER_BYTES: usize = 36;
pub(crate) const TAG_BYTES: usize = 16;
/// Maximum length of the items, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = MAX_DATAGRAM - HEADER_BYTES - TAG_BYTES;

/// Random bytes from which the sessions of a process are derived. They must never be reused.
pub type Seed = [u8; 32];

pub(crate) type SessionId = [u8; 16];

/// The key shared by all directors.
#[derive(Clone)]
pub struct Key(hkdf::Prk);

/// Omits the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand<const N: usize>(prk: &hkdf::Prk, info: &[&[u8]]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let okm = prk.expand(info, Length(N)).ok()?;
    okm.fill(&mut bytes).ok()?;
    Some(bytes)
}

impl Key {
    /// Derives the key from the configured secret.
    pub fn new(secret: &[u8]) -> Self {
        Self(hkdf::Salt::new(hkdf::HKDF_SHA256, b"weir flow synchronization 1").extract(secret))
    }

    /// Returns a session's cipher, or `None` if the key cannot be derived.
    pub(crate) fn cipher(&self, session: &SessionId) -> Option<Cipher> {
        let bytes: [u8; 32] = expand(&self.0, &[b"session", session])?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes).ok()?;
        Some(Cipher(LessSafeKey::new(key)))
    }
}

/// Derives `N` bytes from the seed, a label, a peer and a counter.
pub(crate) fn derive_bytes<const N: usize>(
    seed: &Seed,
    label: &[u8],
    peer: u32,
    count: u32,
) -> [u8; N] {
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"weir sync seed").extract(seed);
    let info = [label, &peer.to_be_bytes(), &count.to_be_bytes()];
    // HKDF-SHA256 fails only for more than 8160 bytes.
    expand(&prk, &info).unwrap_or([0; N])
}

/// Encrypts and decrypts the datagrams of one session.
pub(crate) struct Cipher(LessSafeKey);

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) session: SessionId,
    pub(crate) sequence: u64,
    pub(crate) challenge: u64,
}

fn nonce(sequence: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&sequence.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Header {
    /// Parses a datagram's header. Returns `None` if the datagram does not have this format.
    pub(crate) fn parse(datagram: &[u8]) -> Option<Self> {
        let (header, rest) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        if header[..4] != MAGIC || rest.len() < TAG_BYTES {
            return None;
        }
        let read_u64 = |offset: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&header[offset..offset + 8]);
            u64::from_be_bytes(bytes)
        };
        let mut session = SessionId::default();
        session.copy_from_slice(&header[4..20]);
        Some(Self {
            session,
            sequence: read_u64(20),
            challenge: read_u64(28),
        })
    }

    fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..20].copy_from_slice(&self.session);
        bytes[20..28].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[28..].copy_from_slice(&self.challenge.to_be_bytes());
        bytes
    }
}

impl Cipher {
    /// Encrypts `body` and returns the datagram, or `None` if encryption failed.
    pub(crate) fn seal(&self, header: &Header, body: &[u8]) -> Option<Vec<u8>> {
        let head = header.bytes();
        let mut datagram = Vec::with_capacity(HEADER_BYTES + body.len() + TAG_BYTES);
        datagram.extend_from_slice(&head);
        datagram.extend_from_slice(body);
        let tag = self
            .0
            .seal_in_place_separate_tag(
                nonce(header.sequence),
                Aad::from(head),
                &mut datagram[HEADER_BYTES..],
            )
            .ok()?;
        datagram.extend_from_slice(tag.as_ref());
        Some(datagram)
    }

    /// Decrypts the datagram in place and returns the body, or `None` if the datagram is forged or corrupted.
    pub(crate) fn open<'a>(&self, header: &Header, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let body = datagram.get_mut(HEADER_BYTES..)?;
        let aad = Aad::from(header.bytes());
        let opened = self
            .0
            .open_in_place(nonce(header.sequence), aad, body)
            .ok()?;
        Some(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_omits_keys() {
        let key = Key::new(b"secret");
        let cipher = key.cipher(&[1; 16]).unwrap();
        assert_eq!(format!("{key:?} {cipher:?}"), "Key Cipher");
    }

    #[test]
    fn any_changed_or_missing_byte_is_detected() {
        let session = derive_bytes(&[1; 32], b"session", 0, 0);
        let cipher = Key::new(b"secret").cipher(&session).unwrap();
        let header = Header {
            session,
            sequence: 7,
            challenge: 9,
        };
        let sealed = cipher.seal(&header, b"items").unwrap();
        assert_eq!(Header::parse(&sealed), Some(header));
        assert_eq!(
            cipher.open(&header, &mut sealed.clone()),
            Some(&b"items"[..])
        );
        for index in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[index] ^= 0x40;
            let opened = Header::parse(&bad)
                .and_then(|header| cipher.open(&header, &mut bad).map(<[u8]>::to_vec));
            // A receiver would select a different key for a changed session, but this test keeps the cipher.
            assert_eq!(opened, None, "byte {index}");
        }
        for length in 0..sealed.len() {
            let mut short = sealed[..length].to_vec();
            let header = Header::parse(&short);
            // The shortest datagram has no items.
            assert_eq!(
                header.is_some(),
                length >= HEADER_BYTES + TAG_BYTES,
                "{length}"
            );
            assert!(header.is_none_or(|header| cipher.open(&header, &mut short).is_none()));
        }
        let other_cipher = Key::new(b"other").cipher(&session).unwrap();
        assert_eq!(other_cipher.open(&header, &mut sealed.clone()), None);
    }
}
