//! Seals values with AES-256-GCM and a key that HKDF-SHA256 derives from the group key.
//!
//! The nonce is a keyed hash of the text, so that identical chunks of two versions have the same ciphertext and are
//! stored only once. The probability that two different texts have the same nonce is 2^-96. Identical ciphertexts
//! reveal only that the texts are identical.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{constant_time, hkdf, hmac};
use serde::Serialize;

use crate::hex::encode_hex;

/// Why a value could not be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The value was sealed with a different key, or is corrupt.
    #[error("the value was encrypted with a different group key, or is corrupt")]
    Forged,
    /// The cipher failed.
    #[error("the cipher failed")]
    Cipher,
}

/// The length of a derived key, in bytes.
struct KeyLength;

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        32
    }
}

/// The keys derived from the secret that all directors of a group share. The secret is never written to etcd.
#[derive(Clone)]
pub struct GroupKey {
    cipher: [u8; 32],
    nonce: hmac::Key,
    digest: hmac::Key,
    mac: hmac::Key,
}

/// The output omits the keys.
impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupKey")
    }
}

impl GroupKey {
    /// Derives the keys from the configured secret.
    ///
    /// # Errors
    /// Returns [`SealError::Cipher`] if the cipher library fails.
    pub fn new(secret: &[u8]) -> Result<Self, SealError> {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"weir group 1").extract(secret);
        let expand = |info: &[u8]| {
            let mut bytes = [0; 32];
            let info = [info];
            let okm = prk
                .expand(&info, KeyLength)
                .map_err(|_| SealError::Cipher)?;
            okm.fill(&mut bytes).map_err(|_| SealError::Cipher)?;
            Ok(bytes)
        };
        Ok(Self {
            cipher: expand(b"cipher")?,
            nonce: hmac::Key::new(hmac::HMAC_SHA256, &expand(b"nonce")?),
            digest: hmac::Key::new(hmac::HMAC_SHA256, &expand(b"digest")?),
            mac: hmac::Key::new(hmac::HMAC_SHA256, &expand(b"mac")?),
        })
    }

    fn cipher_key(&self) -> Result<LessSafeKey, SealError> {
        let key = UnboundKey::new(&AES_256_GCM, &self.cipher).map_err(|_| SealError::Cipher)?;
        Ok(LessSafeKey::new(key))
    }

    /// Encrypts a text. Returns the nonce, the ciphertext and the tag.
    ///
    /// # Errors
    /// Returns [`SealError::Cipher`] if the cipher library fails.
    pub fn seal(&self, text: &[u8]) -> Result<Vec<u8>, SealError> {
        let tag = hmac::sign(&self.nonce, text);
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&tag.as_ref()[..NONCE_LEN]);
        let mut body = text.to_vec();
        self.cipher_key()?
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut body)
            .map_err(|_| SealError::Cipher)?;
        Ok([&nonce[..], &body].concat())
    }

    /// Returns the text of a sealed value.
    ///
    /// # Errors
    /// Returns [`SealError::Forged`] if the value was sealed with a different key or is corrupt, and
    /// [`SealError::Cipher`] if the cipher library fails.
    pub fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (nonce, body) = sealed
            .split_first_chunk::<NONCE_LEN>()
            .ok_or(SealError::Forged)?;
        let mut body = body.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let text = self
            .cipher_key()?
            .open_in_place(nonce, Aad::empty(), &mut body)
            .map_err(|_| SealError::Forged)?;
        Ok(text.to_vec())
    }

    /// Returns a digest that reveals nothing about the text without the key.
    pub fn digest(&self, text: &[u8]) -> String {
        encode_hex(hmac::sign(&self.digest, text).as_ref())
    }

    /// Returns the MAC of a value in etcd that is not secret. The value must include its purpose, so that the MAC is
    /// not valid for anything else.
    pub(crate) fn mac(&self, value: &impl Serialize) -> String {
        let bytes = serde_json::to_vec(value).unwrap_or_default();
        encode_hex(hmac::sign(&self.mac, &bytes).as_ref())
    }

    /// Returns whether `mac` is the MAC of this value.
    pub(crate) fn verify_mac(&self, value: &impl Serialize, mac: &str) -> bool {
        let expected = self.mac(value);
        constant_time::verify_slices_are_equal(expected.as_bytes(), mac.as_bytes()).is_ok()
    }

    /// Returns a fingerprint of the group key, which is the same on two machines if their keys are the same.
    pub fn fingerprint(&self) -> String {
        self.digest(b"fingerprint")[..16].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_text_opens_only_if_undamaged_and_with_same_key() {
        let key = GroupKey::new(b"the key of the group").unwrap();
        let other_key = GroupKey::new(b"another key").unwrap();
        let sealed = key.seal(b"a certificate").unwrap();
        assert!(!sealed.windows(4).any(|it| it == b"cert"));
        assert_eq!(key.open(&sealed).unwrap(), b"a certificate");
        assert_eq!(key.seal(b"a certificate").unwrap(), sealed, "deterministic");
        assert_eq!(other_key.open(&sealed), Err(SealError::Forged));
        for index in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[index] ^= 1;
            assert_eq!(key.open(&damaged), Err(SealError::Forged), "byte {index}");
        }
        assert_eq!(key.open(&[]), Err(SealError::Forged));
        assert_ne!(key.fingerprint(), other_key.fingerprint());
    }

    #[test]
    fn mac_is_valid_only_for_the_same_value_and_key() {
        let key = GroupKey::new(b"the key of the group").unwrap();
        let other_key = GroupKey::new(b"another key").unwrap();
        let mac = key.mac(&("purpose", 1));
        assert!(key.verify_mac(&("purpose", 1), &mac));
        assert!(!key.verify_mac(&("purpose", 2), &mac));
        assert!(!key.verify_mac(&("purpose", 1), &mac[1..]));
        assert!(!other_key.verify_mac(&("purpose", 1), &mac));
    }

    #[test]
    fn fingerprint_and_debug_text_do_not_contain_the_key() {
        let key = GroupKey::new(b"the key of the group").unwrap();
        let fingerprint = key.fingerprint();
        assert_eq!(fingerprint.len(), 16);
        assert!(fingerprint.bytes().all(|it| it.is_ascii_hexdigit()));
        assert_eq!(format!("{key:?}"), "GroupKey");
    }
}
