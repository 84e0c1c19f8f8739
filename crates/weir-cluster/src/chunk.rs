//! A configuration as content-addressed chunks: an unchanged chunk of the next version is not written again.

use aws_lc_rs::digest::{SHA256, digest as sha256};

use crate::hex::hex;
use crate::key::{Key, Keys};
use crate::record::Pointer;
use crate::seal::GroupKey;
use crate::store::Mirror;

/// Size of a chunk, bytes. Far below etcd's limit of 1.5 MB for a request, with base64.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Maximum number of chunks of a configuration: etcd allows 128 conditions in a transaction.
pub const CHUNKS_MAX: usize = 100;

/// Why a pointer is not used.
pub(crate) const NOT_AUTHENTIC: &str = "the configuration was published with another group key or by an earlier \
     version, or was changed in etcd; publish it again";

/// SHA-256 in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    hex(sha256(&SHA256, bytes).as_ref())
}

/// The digest of a configuration.
pub(crate) fn of_text(text: &str, key: Option<&GroupKey>) -> String {
    match key {
        Some(key) => key.digest(text.as_bytes()),
        None => digest(text.as_bytes()),
    }
}

/// The chunks of a text with their digests.
///
/// # Errors
/// The text is too large, or cannot be sealed; in one line.
pub(crate) fn split(text: &str, key: Option<&GroupKey>) -> Result<Vec<(String, Vec<u8>)>, String> {
    let parts = text.as_bytes().chunks(CHUNK_BYTES);
    if parts.len() > CHUNKS_MAX {
        let most = (CHUNKS_MAX * CHUNK_BYTES) >> 20;
        return Err(format!("a published configuration has at most {most} MiB"));
    }
    let one = |part: &[u8]| {
        let bytes = match key {
            Some(key) => key.seal(part).map_err(|error| error.to_string())?,
            None => part.to_vec(),
        };
        Ok((digest(&bytes), bytes))
    };
    parts.map(one).collect()
}

/// The text of a pointer.
///
/// # Errors
/// A chunk is missing or damaged, or was sealed with another key, or is not sealed although there is a key: who can
/// write to etcd does not have it. The same applies to the pointer; in one line.
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
        let stored = stored.ok_or_else(|| format!("the chunk {chunk} is missing"))?;
        if digest(&stored.value) != *chunk {
            return Err(format!("the chunk {chunk} is damaged"));
        }
        match (pointer.sealed, key) {
            (false, None) => text.extend_from_slice(&stored.value),
            (false, Some(_)) => {
                return Err(
                    "the configuration is not encrypted with the group key; publish it again"
                        .to_owned(),
                );
            }
            (true, Some(key)) => {
                let opened = key.open(&stored.value);
                text.extend(opened.map_err(|error| format!("the configuration: {error}"))?);
            }
            (true, None) => {
                return Err(
                    "the configuration is encrypted, and `group_key` is not configured".to_owned(),
                );
            }
        }
    }
    let text = String::from_utf8(text).map_err(|_| "the configuration is not text".to_owned())?;
    let own_key = key.filter(|_| pointer.sealed);
    if of_text(&text, own_key) != pointer.digest {
        return Err("the configuration does not match its digest".to_owned());
    }
    Ok(text)
}
