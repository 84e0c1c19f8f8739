//! Splits a configuration into content-addressed chunks, so that the next version reuses unchanged chunks.

use aws_lc_rs::digest::{SHA256, digest as sha256};

use crate::hex::encode_hex;
use crate::key::{Key, Keys};
use crate::record::Pointer;
use crate::seal::GroupKey;
use crate::store::Mirror;

/// Size of a chunk before it is sealed. Encoded as base64, a chunk is far below etcd's request limit of 1.5 MiB.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Maximum number of chunks in a configuration. The transaction that publishes a configuration contains one compare per
/// chunk, and etcd allows 128 compares per transaction (`--max-txn-ops`).
pub const CHUNKS_MAX: usize = 100;

/// The error for a pointer with an invalid MAC.
pub(crate) const NOT_AUTHENTIC: &str = "the configuration was published with a different group key or by an earlier \
     version of Weir, or was changed in etcd; publish it again";

/// Returns the SHA-256 digest of `bytes` in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    encode_hex(sha256(&SHA256, bytes).as_ref())
}

/// Returns the digest of a configuration. The digest is keyed if there is a group key.
pub(crate) fn text_digest(text: &str, key: Option<&GroupKey>) -> String {
    match key {
        Some(key) => key.digest(text.as_bytes()),
        None => digest(text.as_bytes()),
    }
}

/// Splits the text into chunks, and seals each chunk if there is a group key. Returns the digest and the bytes of each
/// chunk.
///
/// # Errors
/// Returns a one-line message if the text is too large or cannot be sealed.
pub(crate) fn split(text: &str, key: Option<&GroupKey>) -> Result<Vec<(String, Vec<u8>)>, String> {
    let parts = text.as_bytes().chunks(CHUNK_BYTES);
    if parts.len() > CHUNKS_MAX {
        let max_mib = (CHUNKS_MAX * CHUNK_BYTES) >> 20;
        return Err(format!(
            "a published configuration must not exceed {max_mib} MiB"
        ));
    }
    let to_chunk = |part: &[u8]| {
        let bytes = match key {
            Some(key) => key.seal(part).map_err(|error| error.to_string())?,
            None => part.to_vec(),
        };
        Ok((digest(&bytes), bytes))
    };
    parts.map(to_chunk).collect()
}

/// Returns the text of the configuration that a pointer identifies.
///
/// # Errors
/// Returns a one-line message if the pointer has too many chunks or an invalid MAC; if a chunk is missing, corrupt, or
/// sealed with a different key; if the chunks are sealed and there is no group key; if they are not sealed although
/// there is a group key, because a writer without the key may have written them; or if the text is not valid UTF-8 or
/// does not match the pointer's digest.
pub(crate) fn join(
    pointer: &Pointer,
    keys: &Keys,
    mirror: &Mirror,
    key: Option<&GroupKey>,
) -> Result<String, String> {
    if pointer.chunks.len() > CHUNKS_MAX {
        return Err("the configuration has too many chunks".to_owned());
    }
    if pointer.sealed && !pointer.is_authentic(keys, key) {
        return Err(NOT_AUTHENTIC.to_owned());
    }
    let mut text = Vec::new();
    for chunk in &pointer.chunks {
        let name = keys.name(&Key::Chunk(chunk.clone()));
        let stored = mirror.get(&name);
        let stored = stored.ok_or_else(|| format!("chunk {chunk} is missing"))?;
        if digest(&stored.value) != *chunk {
            return Err(format!("chunk {chunk} is corrupt"));
        }
        match (pointer.sealed, key) {
            (false, None) => text.extend_from_slice(&stored.value),
            (false, Some(_)) => {
                return Err(
                    "the configuration is not encrypted, but `group_key` is configured; publish it \
                     again"
                        .to_owned(),
                );
            }
            (true, Some(key)) => {
                let opened = key.open(&stored.value);
                text.extend(
                    opened
                        .map_err(|error| format!("failed to decrypt the configuration: {error}"))?,
                );
            }
            (true, None) => {
                return Err(
                    "the configuration is encrypted, but `group_key` is not configured".to_owned(),
                );
            }
        }
    }
    let text =
        String::from_utf8(text).map_err(|_| "the configuration is not valid UTF-8".to_owned())?;
    let digest_key = key.filter(|_| pointer.sealed);
    if text_digest(&text, digest_key) != pointer.digest {
        return Err("the configuration does not match its digest".to_owned());
    }
    Ok(text)
}
