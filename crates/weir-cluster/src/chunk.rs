//! Splits a configuration into content-addressed chunks, so the next version reuses unchanged chunks.

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
pub const MAX_CHUNKS: usize = 100;

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
    if parts.len() > MAX_CHUNKS {
        let max_mib = (MAX_CHUNKS * CHUNK_BYTES) >> 20;
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
    if pointer.chunks.len() > MAX_CHUNKS {
        return Err("the configuration has too many chunks".to_owned());
    }
    if pointer.sealed && !pointer.is_authentic(keys, key) {
        return Err(NOT_AUTHENTIC.to_owned());
    }
    let mut text = Vec::new();
    for chunk in &pointer.chunks {
        let name = keys.name(&Key::Chunk(chunk.clone()));
        let entry = mirror.get(&name);
        let entry = entry.ok_or_else(|| format!("chunk {chunk} is missing"))?;
        if digest(&entry.value) != *chunk {
            return Err(format!("chunk {chunk} is corrupt"));
        }
        match (pointer.sealed, key) {
            (false, None) => text.extend_from_slice(&entry.value),
            (false, Some(_)) => {
                return Err(
                    "the configuration is not encrypted, but `group_key` is configured; publish it \
                     again"
                        .to_owned(),
                );
            }
            (true, Some(key)) => {
                let plaintext = key.open(&entry.value);
                text.extend(
                    plaintext
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Entry;

    fn keys() -> Keys {
        Keys::new("edge")
    }

    fn group_key() -> GroupKey {
        GroupKey::new(b"the key of the group").unwrap()
    }

    /// Returns a store with the chunks of a text, and the pointer to them.
    fn store(text: &str, key: Option<&GroupKey>) -> (Mirror, Pointer) {
        let chunks = split(text, key).unwrap();
        let pointer = Pointer {
            version: 3,
            digest: text_digest(text, key),
            bytes: text.len() as u64,
            chunks: chunks.iter().map(|(digest, _)| digest.clone()).collect(),
            sealed: key.is_some(),
            by: "lb1".to_owned(),
            ..Pointer::default()
        };
        let entries = chunks.into_iter().map(|(digest, value)| Entry {
            key: keys().name(&Key::Chunk(digest)),
            value,
            revision: 1,
        });
        let mut mirror = Mirror::default();
        mirror.replace(1, entries.collect());
        (mirror, pointer.sign(&keys(), key))
    }

    #[test]
    fn joined_chunks_are_the_text() {
        let text: String = (0..90_000).map(|n| format!("{n:06}\n")).collect();
        for key in [None, Some(&group_key())] {
            let (mirror, pointer) = store(&text, key);
            assert_eq!(pointer.chunks.len(), 3, "630,000 bytes");
            assert_eq!(join(&pointer, &keys(), &mirror, key), Ok(text.clone()));
        }
    }

    #[test]
    fn size_of_a_configuration_is_limited() {
        let largest = "x".repeat(MAX_CHUNKS * CHUNK_BYTES);
        assert_eq!(split(&largest, None).unwrap().len(), MAX_CHUNKS);
        let error = split(&format!("{largest}x"), None);
        let expected = "a published configuration must not exceed 25 MiB";
        assert_eq!(error, Err(expected.to_owned()));
    }

    #[test]
    fn number_of_chunks_is_limited() {
        let (mirror, mut pointer) = store("text", None);
        let chunk = pointer.chunks[0].clone();
        pointer.chunks = vec![chunk; MAX_CHUNKS];
        pointer.digest = digest("text".repeat(MAX_CHUNKS).as_bytes());
        assert!(join(&pointer, &keys(), &mirror, None).is_ok());
        pointer.chunks.push(pointer.chunks[0].clone());
        let error = join(&pointer, &keys(), &mirror, None).unwrap_err();
        assert_eq!(error, "the configuration has too many chunks");
    }

    /// Replaces a chunk in the store.
    fn put_chunk(mirror: &mut Mirror, chunk: &str, value: &[u8]) {
        mirror.put(Entry {
            key: keys().name(&Key::Chunk(chunk.to_owned())),
            value: value.to_vec(),
            revision: 2,
        });
    }

    /// Returns the error for a text that is published and read with these keys, after a change to the store.
    fn join_error(
        publish_key: Option<&GroupKey>,
        read_key: Option<&GroupKey>,
        change: impl FnOnce(&mut Mirror, &mut Pointer),
    ) -> String {
        let (mut mirror, mut pointer) = store("text", publish_key);
        change(&mut mirror, &mut pointer);
        join(&pointer, &keys(), &mirror, read_key).unwrap_err()
    }

    #[test]
    fn changed_configurations_are_not_joined() {
        let missing = join_error(None, None, |_, pointer| {
            pointer.chunks.push("ab".to_owned());
        });
        assert_eq!(missing, "chunk ab is missing");
        let corrupt = join_error(None, None, |mirror, pointer| {
            put_chunk(mirror, &pointer.chunks[0], b"other");
        });
        assert!(corrupt.ends_with("is corrupt"), "{corrupt}");
        let different = join_error(None, None, |_, pointer| pointer.digest = digest(b"other"));
        assert_eq!(different, "the configuration does not match its digest");
        let binary = join_error(None, None, |mirror, pointer| {
            pointer.chunks = vec![digest(b"\xff")];
            put_chunk(mirror, &pointer.chunks[0], b"\xff");
        });
        assert_eq!(binary, "the configuration is not valid UTF-8");
    }

    #[test]
    fn configuration_published_with_a_different_key_is_not_joined() {
        let key = group_key();
        let key = Some(&key);
        let forged = join_error(key, key, |_, pointer| pointer.version = 4);
        assert_eq!(forged, NOT_AUTHENTIC);
        let plain = join_error(None, key, |_, _| ());
        assert!(plain.contains("is not encrypted, but `group_key` is configured"));
        let sealed = join_error(key, None, |_, _| ());
        assert!(sealed.contains("is encrypted, but `group_key` is not configured"));
        let other = join_error(key, key, |mirror, pointer| {
            let value = GroupKey::new(b"another key").unwrap().seal(b"text");
            let value = value.unwrap();
            pointer.chunks = vec![digest(&value)];
            put_chunk(mirror, &pointer.chunks[0], &value);
            *pointer = pointer.clone().sign(&keys(), key);
        });
        let reason = "the value was encrypted with a different group key, or is corrupt";
        assert_eq!(
            other,
            format!("failed to decrypt the configuration: {reason}")
        );
    }
}
