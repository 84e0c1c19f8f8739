//! The values of the keys: JSON, with fields that later versions may add to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::key::Keys;
use crate::seal::GroupKey;

/// Maximum number of characters that are shown of a text of another director.
const LINE_MAX: usize = 500;

/// Which configuration the group should have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// Grows by one with each publication.
    pub version: u64,
    /// Digest of the text; with a group key it depends on the key.
    pub digest: String,
    /// Size of the text in bytes.
    pub bytes: u64,
    /// Digests of the chunks, in order.
    pub chunks: Vec<String>,
    /// Whether the chunks are sealed with the group key.
    #[serde(default)]
    pub sealed: bool,
    /// The member that published it.
    pub by: String,
    /// How long each director watches the new configuration, in milliseconds; 0 = not at all.
    #[serde(default)]
    pub guard_ms: u64,
    /// With a group key: the code of all other fields, and of the group. Without it, who can write to etcd could use
    /// the chunks of an older configuration with a new version. Empty = written by a version that had none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
}

impl Pointer {
    fn signed<'a>(&'a self, keys: &'a Keys) -> impl Serialize + 'a {
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

    /// With its code.
    pub(crate) fn sign(mut self, keys: &Keys, key: Option<&GroupKey>) -> Self {
        if let Some(key) = key {
            let mac = key.mac(&self.signed(keys));
            self.mac = mac;
        }
        self
    }

    /// Whether a director of the group has written it, as far as that can be known: without a key everything is.
    pub(crate) fn is_authentic(&self, keys: &Keys, key: Option<&GroupKey>) -> bool {
        key.is_none_or(|key| key.is_mac(&self.signed(keys), &self.mac))
    }
}

/// A director that applies the configuration now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Its name.
    pub member: String,
    /// Its process.
    pub instance: u64,
    /// The version that it applies.
    pub version: u64,
}

/// A rollout that was stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The version.
    pub version: u64,
    /// The director that failed.
    pub member: String,
    /// Why, in one line.
    pub reason: String,
}

/// A member, as it describes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberRecord {
    /// The version of the configuration that it has applied; 0 = none.
    pub version: u64,
    /// Digest of that configuration.
    pub digest: String,
    /// A number of its process.
    pub instance: u64,
    /// A number of the director, which is kept across restarts.
    pub identity: u64,
    /// Version of its program.
    pub weir: String,
    /// Features of this machine that must be equal in a group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Fingerprints of secrets that must be equal, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Digest of the names of all servers, in their order, with their weights.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub order: String,
    /// Smallest MTU of the interfaces of the data plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// With flow synchronization: the revision of the newest change of servers that it has adopted, when its peers know
    /// the flows that the change has moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<i64>,
    /// With a group key: the code of the name of the member, its version and its digest. Otherwise a made-up member
    /// could decide the number of the next version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mac: String,
}

impl MemberRecord {
    fn signed<'a>(&'a self, keys: &'a Keys, name: &'a str) -> impl Serialize + 'a {
        ("member", keys.prefix(), name, self.version, &self.digest)
    }

    /// With its code.
    pub(crate) fn sign(mut self, keys: &Keys, name: &str, key: Option<&GroupKey>) -> Self {
        if let Some(key) = key {
            let mac = key.mac(&self.signed(keys, name));
            self.mac = mac;
        }
        self
    }

    /// As [`Pointer::is_authentic`].
    pub(crate) fn is_authentic(&self, keys: &Keys, name: &str, key: Option<&GroupKey>) -> bool {
        key.is_none_or(|key| key.is_mac(&self.signed(keys, name), &self.mac))
    }
}

/// A text of another director for a terminal or the log: one line, without control characters.
pub(crate) fn line(text: &str) -> String {
    let shown = text.chars().take(LINE_MAX);
    shown
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
