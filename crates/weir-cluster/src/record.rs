//! Defines the values of the keys, which are stored as JSON. Later versions may add fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::key::Keys;
use crate::seal::GroupKey;

/// Maximum length, in the status and the log, of a text from another director or from etcd.
const MAX_LINE_CHARS: usize = 500;

/// Identifies a published configuration of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// Version, which increases with each publication.
    pub version: u64,
    /// Digest of the text, which is keyed if there is a group key.
    pub digest: String,
    /// Size of the text in bytes.
    pub bytes: u64,
    /// Digests of the chunks, in order.
    pub chunks: Vec<String>,
    /// Whether the chunks are sealed with the group key.
    #[serde(default)]
    pub sealed: bool,
    /// Name of the member that published the configuration.
    pub by: String,
    /// How long each director guards the new configuration, in milliseconds; 0 = no guard.
    #[serde(default)]
    pub guard_ms: u64,
    /// With a group key, the MAC of all other fields and the group's prefix. It prevents anyone who can write to etcd
    /// but lacks the key from publishing the chunks of an older configuration with a new version. Empty = there is no
    /// group key, or an earlier version of Weir wrote the pointer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
}

impl Pointer {
    /// Returns the fields that the MAC covers.
    fn signed_fields<'a>(&'a self, keys: &'a Keys) -> impl Serialize + 'a {
        (
            "pointer",
            keys.prefix(),
            self.version,
            &self.digest,
            self.bytes,
            &self.chunks,
            self.sealed,
            &self.by,
            self.guard_ms,
        )
    }

    /// Adds the MAC if there is a group key.
    pub(crate) fn sign(mut self, keys: &Keys, key: Option<&GroupKey>) -> Self {
        if let Some(key) = key {
            let mac = key.mac(&self.signed_fields(keys));
            self.mac = mac;
        }
        self
    }

    /// Returns whether a director of the group wrote the pointer. Without a key this cannot be verified, and the result
    /// is true.
    pub(crate) fn is_authentic(&self, keys: &Keys, key: Option<&GroupKey>) -> bool {
        key.is_none_or(|key| key.verify_mac(&self.signed_fields(keys), &self.mac))
    }
}

/// A director that is applying the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyingMember {
    /// Name of the member.
    pub member: String,
    /// Number that identifies the member's process.
    pub instance: u64,
    /// Version of the configuration that the member applies.
    pub version: u64,
}

/// The record of a stopped rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedRollout {
    /// Version of the configuration.
    pub version: u64,
    /// Name of the member that failed.
    pub member: String,
    /// Why the member failed, in one line.
    pub reason: String,
}

/// A member's report about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberRecord {
    /// Version of the configuration that the member has applied; 0 = none.
    pub version: u64,
    /// Digest of that configuration.
    pub digest: String,
    /// Number that identifies the process.
    pub instance: u64,
    /// Number that identifies the director across restarts.
    pub identity: u64,
    /// Weir's version.
    pub weir: String,
    /// Features of the host that must be the same on all members.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Fingerprints of secrets that must be the same on all members, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Digest of the names and weights of all servers, in order.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub order: String,
    /// Smallest MTU of the data plane's interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// BGP communities of the routes that the member announces, in order. `None` = it announces no routes, or it runs
    /// an earlier version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communities: Option<Vec<String>>,
    /// With flow synchronization, the revision of the newest change to servers that the member has settled: it has
    /// applied the change, and its peers have received the flows that the change affects. `None` = the member does not
    /// synchronize flows, or runs an earlier version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<i64>,
    /// The newest version that the member has staged for the second hop; 0 = none. `None` = no service has a second
    /// hop, or the member runs an earlier version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staged: Option<u64>,
    /// With a group key, the MAC of the group's prefix and the member's name, version and digest. It prevents a forged
    /// record from determining the number of the next version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mac: String,
}

impl MemberRecord {
    /// Returns the fields that the MAC covers.
    fn signed_fields<'a>(&'a self, keys: &'a Keys, name: &'a str) -> impl Serialize + 'a {
        ("member", keys.prefix(), name, self.version, &self.digest)
    }

    /// Adds the MAC if there is a group key.
    pub(crate) fn sign(mut self, keys: &Keys, name: &str, key: Option<&GroupKey>) -> Self {
        if let Some(key) = key {
            let mac = key.mac(&self.signed_fields(keys, name));
            self.mac = mac;
        }
        self
    }

    /// Returns whether a director of the group wrote the record, as [`Pointer::is_authentic`] does for the pointer.
    pub(crate) fn is_authentic(&self, keys: &Keys, name: &str, key: Option<&GroupKey>) -> bool {
        key.is_none_or(|key| key.verify_mac(&self.signed_fields(keys, name), &self.mac))
    }
}

/// Prepares text from another director or from etcd for a terminal or the log: truncates it and replaces control
/// characters with spaces.
pub(crate) fn sanitize_line(text: &str) -> String {
    let characters = text.chars().take(MAX_LINE_CHARS);
    characters
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_short_and_have_no_control_characters() {
        assert_eq!(sanitize_line("a\u{1b}[2Jb\nc\u{9b}ä"), "a [2Jb c ä");
        assert_eq!(sanitize_line(&"ä".repeat(501)), "ä".repeat(500));
    }

    #[test]
    fn signed_record_is_authentic_only_for_its_member_and_group() {
        let key = GroupKey::new(b"the key of the group").ok();
        let keys = Keys::new("edge");
        let record = MemberRecord {
            version: 3,
            ..MemberRecord::default()
        };
        let signed = record.clone().sign(&keys, "lb1", key.as_ref());
        let is_authentic = |record: &MemberRecord, keys: &Keys, name: &str| {
            record.is_authentic(keys, name, key.as_ref())
        };
        assert!(is_authentic(&signed, &keys, "lb1"));
        assert!(!is_authentic(&signed, &keys, "lb2"));
        assert!(!is_authentic(&signed, &Keys::new("other"), "lb1"));
        assert!(!is_authentic(&record, &keys, "lb1"));
        let changed = MemberRecord {
            version: 4,
            ..signed.clone()
        };
        assert!(!is_authentic(&changed, &keys, "lb1"));
        assert!(record.is_authentic(&keys, "lb1", None), "without a key");
    }
}
