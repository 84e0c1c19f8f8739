//! Defines etcd's data types and the mirror of a group's keys.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The full key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The store revision of the last write to the key, at least 1.
    pub revision: i64,
}

/// A change reported by a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The key was set to this value.
    Put(Entry),
    /// The key was deleted by a request, or because its lease expired.
    Delete {
        /// The full key.
        key: String,
        /// The store revision of the deletion.
        revision: i64,
    },
}

impl Event {
    /// Returns the store revision of the change.
    pub const fn revision(&self) -> i64 {
        match self {
            Self::Put(entry) => entry.revision,
            Self::Delete { revision, .. } => *revision,
        }
    }
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The last write to the key was at this revision; 0 = the key does not exist.
    Revision(String, i64),
    /// The key exists.
    Exists(String),
}

impl Compare {
    /// Returns the key of the condition.
    pub fn key(&self) -> &str {
        match self {
            Self::Revision(key, _) | Self::Exists(key) => key,
        }
    }
}

/// A value to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The full key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// Whether the key is attached to this member's lease.
    pub leased: bool,
}

/// A change in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Write a value.
    Put(Put),
    /// Delete a key.
    Delete(String),
}

/// A transaction: if all conditions hold, it executes all writes; otherwise it reads the compared keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// The writes.
    pub writes: Vec<Write>,
}

impl Txn {
    /// Returns a transaction that writes a value without conditions.
    pub(crate) fn unconditional(put: Put) -> Self {
        Self {
            compares: Vec::new(),
            writes: vec![Write::Put(put)],
        }
    }
}

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnResult {
    /// All writes were executed at this revision.
    Done {
        /// The store's revision.
        revision: i64,
    },
    /// A condition does not hold.
    Conflict {
        /// The entries of the compared keys that exist, without values for [`Compare::Exists`].
        found: Vec<Entry>,
        /// The store's revision.
        revision: i64,
    },
    /// There was no response or an error, so the transaction may or may not have been executed. The text is the error.
    Unknown(String),
}

/// A value and the revision of its last write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredValue {
    pub(crate) value: Vec<u8>,
    pub(crate) revision: i64,
}

/// Maximum total size of keys and values in the mirror: enough for three configurations of the maximum size.
const MAX_MIRROR_BYTES: usize = 96 << 20;

/// Returns the error message for a group whose keys are too large for the mirror.
pub(crate) fn too_large_message() -> String {
    format!(
        "the group's keys and values exceed {} MiB",
        MAX_MIRROR_BYTES >> 20
    )
}

/// This member's copy of the group's keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirror {
    /// Total size of keys and values, in bytes.
    bytes: usize,
    /// Whether a change was omitted because the mirror would have become too large.
    is_full: bool,
    entries: BTreeMap<String, StoredValue>,
    /// Revisions of reported deletions by key. They prevent an older event from restoring a key.
    deleted: BTreeMap<String, i64>,
    /// Revision of the last listing or event; the mirror includes all earlier changes.
    pub(crate) revision: i64,
}

impl Mirror {
    /// Replaces the content. Returns false, without changes, if the new content would be too large.
    pub(crate) fn replace(&mut self, revision: i64, entries: Vec<Entry>) -> bool {
        let bytes: usize = entries.iter().map(|it| it.key.len() + it.value.len()).sum();
        if bytes > MAX_MIRROR_BYTES {
            return false;
        }
        (self.bytes, self.is_full) = (bytes, false);
        let stored = |entry: Entry| {
            let (value, revision) = (entry.value, entry.revision);
            (entry.key, StoredValue { value, revision })
        };
        self.entries = entries.into_iter().map(stored).collect();
        self.deleted.clear();
        self.revision = revision;
        true
    }

    /// Returns whether a change was omitted because of the size limit. If so, the keys must be read again.
    pub(crate) const fn is_full(&self) -> bool {
        self.is_full
    }

    fn remove_entry(&mut self, key: &str) {
        if let Some(removed) = self.entries.remove(key) {
            self.bytes -= key.len() + removed.value.len();
        }
    }

    /// Applies a change that the watch reported.
    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::Put(entry) => self.put(entry),
            Event::Delete { key, revision } => self.delete(key, revision),
        }
    }

    /// Stores an entry unless the mirror has a newer change. Omits the entry if the mirror would become too large.
    pub(crate) fn put(&mut self, entry: Entry) {
        let is_newer = |known_revision: i64| entry.revision > known_revision;
        if !self
            .entries
            .get(&entry.key)
            .is_none_or(|it| is_newer(it.revision))
            || !self.deleted.get(&entry.key).is_none_or(|it| is_newer(*it))
        {
            return;
        }
        let (value, revision) = (entry.value, entry.revision);
        let previous = self.get(&entry.key);
        let previous_bytes = previous.map_or(0, |it| entry.key.len() + it.value.len());
        let bytes = self.bytes - previous_bytes + entry.key.len() + value.len();
        if bytes > MAX_MIRROR_BYTES {
            self.is_full = true;
            return;
        }
        self.bytes = bytes;
        self.deleted.remove(&entry.key);
        self.entries
            .insert(entry.key, StoredValue { value, revision });
    }

    /// Removes a key and records the deletion, unless a newer write is known.
    pub(crate) fn delete(&mut self, key: String, revision: i64) {
        if self
            .entries
            .get(&key)
            .is_some_and(|it| it.revision > revision)
        {
            return;
        }
        self.remove_entry(&key);
        self.deleted.insert(key, revision);
    }

    /// Removes a key that did not exist when it was read at this revision, unless a newer write is known.
    pub(crate) fn remove_absent(&mut self, key: &str, revision: i64) {
        if self
            .entries
            .get(key)
            .is_some_and(|it| it.revision <= revision)
        {
            self.remove_entry(key);
        }
    }

    /// Records that the watch has reported all changes up to a revision. Forgets the deletions up to this revision.
    pub(crate) fn advance(&mut self, revision: i64) {
        self.revision = self.revision.max(revision);
        self.deleted.retain(|_, deleted_at| *deleted_at > revision);
    }

    pub(crate) fn get(&self, key: &str) -> Option<&StoredValue> {
        self.entries.get(key)
    }

    /// Returns the revision of the last write to a key; 0 if the key does not exist.
    pub(crate) fn revision_of(&self, key: &str) -> i64 {
        self.get(key).map_or(0, |it| it.revision)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &StoredValue)> {
        self.entries.iter().map(|(key, it)| (key.as_str(), it))
    }

    /// Parses the value of a key. Returns `None` if the key does not exist or the value has a different format.
    pub(crate) fn read<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_slice(&self.get(key)?.value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(value: &str, revision: i64) -> Event {
        Event::Put(Entry {
            key: "k".to_owned(),
            value: value.as_bytes().to_vec(),
            revision,
        })
    }

    #[test]
    fn mirror_is_bounded() {
        let entry = |key: &str, bytes: usize, revision| Entry {
            key: key.to_owned(),
            value: vec![0; bytes],
            revision,
        };
        let mut mirror = Mirror::default();
        assert!(mirror.replace(1, vec![entry("a", MAX_MIRROR_BYTES / 2, 1)]));
        mirror.put(entry("a", 8, 2));
        mirror.put(entry("b", MAX_MIRROR_BYTES - 10, 3));
        assert!(mirror.get("b").is_some() && !mirror.is_full());
        mirror.put(entry("c", 1, 4));
        assert!(mirror.get("c").is_none() && mirror.is_full());
        assert!(!mirror.replace(5, vec![entry("d", MAX_MIRROR_BYTES, 5)]));
        assert!(mirror.get("b").is_some());
        mirror.delete("b".to_owned(), 6);
        mirror.put(entry("c", 1, 7));
        assert!(mirror.get("c").is_some());
        assert!(mirror.replace(8, vec![entry("c", 1, 7)]) && !mirror.is_full());
    }

    #[test]
    fn older_events_change_nothing() {
        let mut mirror = Mirror::default();
        mirror.apply(put("b", 5));
        mirror.apply(put("a", 4));
        assert_eq!(mirror.revision_of("k"), 5);
        let delete = |revision| Event::Delete {
            key: "k".to_owned(),
            revision,
        };
        mirror.apply(delete(4));
        assert_eq!(mirror.revision_of("k"), 5);
        // A transaction reports the deletion before the watch reports an earlier write.
        mirror.apply(delete(9));
        mirror.apply(put("c", 7));
        assert_eq!(mirror.get("k"), None);
        mirror.apply(put("d", 10));
        assert_eq!(mirror.revision_of("k"), 10);
    }

    #[test]
    fn mirror_may_have_exactly_the_maximum_size() {
        let entry = |extra: usize, revision| Entry {
            key: "k".to_owned(),
            value: vec![0; MAX_MIRROR_BYTES - 1 + extra],
            revision,
        };
        let mut mirror = Mirror::default();
        assert!(!mirror.replace(3, vec![entry(1, 3)]));
        assert!(mirror.replace(3, vec![entry(0, 3)]));
        mirror.put(entry(0, 4));
        assert_eq!((mirror.revision_of("k"), mirror.is_full()), (4, false));
    }

    /// A deletion is remembered until the watch has reported all earlier changes.
    #[test]
    fn older_entry_does_not_restore_a_deleted_key_that_the_watch_has_not_reported() {
        let entry = || Entry {
            key: "k".to_owned(),
            value: b"v".to_vec(),
            revision: 6,
        };
        let mut mirror = Mirror::default();
        mirror.delete("k".to_owned(), 7);
        for reported in [5, 6] {
            mirror.advance(reported);
            assert_eq!(mirror.revision, reported);
            mirror.put(entry());
            assert_eq!(mirror.get("k"), None, "{reported}");
        }
        mirror.advance(7);
        assert!(mirror.deleted.is_empty());
        mirror.advance(2);
        assert_eq!(mirror.revision, 7);
    }
}
