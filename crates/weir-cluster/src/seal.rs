//! Sealing with the group key: AES-256-GCM with a key derived by HKDF-SHA256.
//!
//! The nonce is derived from the text by a keyed hash, so that equal chunks of two versions stay equal and are stored
//! once. Two different texts have the same nonce with probability 2^-96; a repetition with the same text reveals only
//! that the text is the same.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{constant_time, hkdf, hmac};
use serde::Serialize;

use crate::hex::hex;

/// Why a value cannot be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Another key, or a damaged value.
    #[error("the value was encrypted with another group key, or is damaged")]
    Forged,
    /// The cipher failed.
    #[error("the cipher failed")]
    Cipher,
}

struct Length;

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        32
    }
}

/// The key that all directors of a group share. etcd never has it.
#[derive(Clone)]
pub struct GroupKey {
    cipher: [u8; 32],
    nonce: hmac::Key,
    digest: hmac::Key,
    mac: hmac::Key,
}

/// Never shows the key.
impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupKey")
    }
}

impl GroupKey {
    /// From the configured secret.
    ///
    /// # Errors
    /// The cipher library failed.
    pub fn new(secret: &[u8]) -> Result<Self, SealError> {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"weir group 1").extract(secret);
        let expand = |info: &[u8]| {
            let mut bytes = [0; 32];
            let info = [info];
            let okm = prk.expand(&info, Length).map_err(|_| SealError::Cipher)?;
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

    fn key(&self) -> Result<LessSafeKey, SealError> {
        let key = UnboundKey::new(&AES_256_GCM, &self.cipher).map_err(|_| SealError::Cipher)?;
        Ok(LessSafeKey::new(key))
    }

    /// Nonce, ciphertext, tag.
    ///
    /// # Errors
    /// [`SealError::Cipher`].
    pub fn seal(&self, text: &[u8]) -> Result<Vec<u8>, SealError> {
        let tag = hmac::sign(&self.nonce, text);
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&tag.as_ref()[..NONCE_LEN]);
        let mut body = text.to_vec();
        self.key()?
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut body)
            .map_err(|_| SealError::Cipher)?;
        Ok([&nonce[..], &body].concat())
    }

    /// The text of a sealed value.
    ///
    /// # Errors
    /// [`SealError::Forged`].
    pub fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (nonce, body) = sealed
            .split_first_chunk::<NONCE_LEN>()
            .ok_or(SealError::Forged)?;
        let mut body = body.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let text = self
            .key()?
            .open_in_place(nonce, Aad::empty(), &mut body)
            .map_err(|_| SealError::Forged)?;
        Ok(text.to_vec())
    }

    /// A digest that reveals nothing about the text without the key.
    pub fn digest(&self, text: &[u8]) -> String {
        hex(hmac::sign(&self.digest, text).as_ref())
    }

    /// A code that only a director with the key can compute, for a value in etcd that is not secret. The value includes
    /// what it is for, so that it cannot be used in another place.
    pub(crate) fn mac(&self, value: &impl Serialize) -> String {
        let bytes = serde_json::to_vec(value).unwrap_or_default();
        hex(hmac::sign(&self.mac, &bytes).as_ref())
    }

    /// Whether it is the code of this value.
    pub(crate) fn is_mac(&self, value: &impl Serialize, mac: &str) -> bool {
        let expected = self.mac(value);
        constant_time::verify_slices_are_equal(expected.as_bytes(), mac.as_bytes()).is_ok()
    }

    /// Equal on two machines if the key is equal.
    pub fn fingerprint(&self) -> String {
        self.digest(b"fingerprint")[..16].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_text_opens_with_the_same_key_only() {
        let key = GroupKey::new(b"the key of the group").unwrap();
        let other = GroupKey::new(b"another key").unwrap();
        let sealed = key.seal(b"a certificate").unwrap();
        assert!(!sealed.windows(4).any(|it| it == b"cert"));
        assert_eq!(key.open(&sealed).unwrap(), b"a certificate");
        assert_eq!(key.seal(b"a certificate").unwrap(), sealed, "stored once");
        assert_eq!(other.open(&sealed), Err(SealError::Forged));
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert_eq!(key.open(&bad), Err(SealError::Forged), "byte {at}");
        }
        assert_eq!(key.open(&[]), Err(SealError::Forged));
        assert_ne!(key.fingerprint(), other.fingerprint());
    }
}
