//! Synchronizes the entries that all members share: server overrides, and servers that the API added.
//!
//! Each entry records the revision that it is based on. A change is written only if no other director has changed the
//! entry since that revision; otherwise the other change wins. A change that a partition delayed therefore never
//! replaces a newer one. Entries are never deleted: `ready` and `removed` are values. Members write an entry again if
//! etcd has lost it.
//!
//! With a group key, each value has a MAC and a number that increases with each change ([`Seal`]). Members do not adopt
//! a value without a valid MAC, and replace a value that has a lower number with the newer value. Without the key, a
//! program that can write to etcd can therefore neither add a server nor restore a former value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::key::{Key, Keys};
use crate::seal::GroupKey;
use crate::store::{Compare, Mirror, Put, Txn, Write};

/// Maximum number of entries; further keys in etcd are ignored.
const MAX_ENTRIES: usize = 100_000;

/// The field of a value that contains its [`Seal`].
const SEAL: &str = "seal";

/// Proof that a director of the group wrote a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seal {
    /// Number that increases with each change of the value.
    number: u64,
    /// The MAC of the key's name in etcd, the number and the value.
    mac: String,
}

/// The content of the store, and the keys to verify it.
pub(crate) struct SharedStore<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) mirror: &'a Mirror,
    pub(crate) key: Option<&'a GroupKey>,
    /// Whether all members have the same group key.
    pub(crate) members_share_key: bool,
}

impl SharedStore<'_> {
    /// Removes the seal from a value and returns its number. Without a group key, returns the number of `own_entry`.
    /// Returns `None` if the seal is missing or wrong.
    fn open(
        &self,
        name: &str,
        revision: i64,
        value: &mut Value,
        own_entry: Option<&SharedEntry>,
    ) -> Option<u64> {
        let seal = value.as_object_mut().and_then(|it| it.remove(SEAL));
        let Some(key) = self.key else {
            return Some(own_entry.map_or(0, |own_entry| own_entry.stored));
        };
        let seal: Seal = serde_json::from_value(seal?).ok()?;
        // Computing the MACs of all values on each event would be expensive.
        let is_unchanged = own_entry.is_some_and(|own_entry| {
            own_entry.is_verified
                && (own_entry.base, own_entry.stored, &own_entry.value)
                    == (revision, seal.number, &*value)
        });
        let signed = (SEAL, name, seal.number, &*value);
        (is_unchanged || key.verify_mac(&signed, &seal.mac)).then_some(seal.number)
    }
}

/// Kind of a shared entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The override of a server.
    Override,
    /// A server that the API added to a pool.
    Server,
}

/// Identifies an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SharedKey {
    /// Kind of the entry.
    pub kind: Kind,
    /// Name of the pool.
    pub pool: String,
    /// Address of the server, as in the configuration.
    pub server: String,
}

impl SharedKey {
    fn from_key(key: Key) -> Option<Self> {
        let (kind, pool, server) = match key {
            Key::Override(pool, server) => (Kind::Override, pool, server),
            Key::Server(pool, server) => (Kind::Server, pool, server),
            Key::Current
            | Key::Complete
            | Key::Previous
            | Key::Stopped
            | Key::Turn
            | Key::Applying(_)
            | Key::Chunk(_)
            | Key::Member(_)
            | Key::Serving(_)
            | Key::Health(_) => return None,
        };
        Some(Self { kind, pool, server })
    }

    /// Returns the shared entry that a write changes; `None` if the write changes none.
    pub(crate) fn from_write(keys: &Keys, write: &Write) -> Option<Self> {
        match write {
            Write::Put(put) => keys.parse(&put.key).and_then(Self::from_key),
            Write::Delete(_) => None,
        }
    }

    /// Returns the key in etcd.
    fn key(&self) -> Key {
        let (pool, server) = (self.pool.clone(), self.server.clone());
        match self.kind {
            Kind::Override => Key::Override(pool, server),
            Kind::Server => Key::Server(pool, server),
        }
    }
}

/// A shared entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SharedEntry {
    key: SharedKey,
    value: Value,
    /// The revision of the value, or of the value on which the change is based; 0 = the key does not exist.
    base: i64,
    /// Whether the entry must still be written.
    dirty: bool,
    /// Number of the value; see [`Seal`].
    #[serde(default)]
    number: u64,
    /// The highest number that the store has had.
    #[serde(default)]
    stored: u64,
    /// Whether this process has checked the seal of the stored value.
    #[serde(skip)]
    is_verified: bool,
}

/// All entries, as the daemon saves them to disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedState {
    entries: Vec<SharedEntry>,
}

/// The entries that all members share, by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedEntries(BTreeMap<SharedKey, SharedEntry>);

impl SharedEntries {
    pub(crate) fn new(saved: SharedState) -> Self {
        let entries = saved.entries.into_iter();
        Self(entries.map(|it| (it.key.clone(), it)).collect())
    }

    pub(crate) fn state(&self) -> SharedState {
        SharedState {
            entries: self.0.values().cloned().collect(),
        }
    }

    /// Returns all overrides.
    pub(crate) fn overrides(&self) -> impl Iterator<Item = (&SharedKey, &Value)> {
        let overrides = self.0.values().filter(|it| it.key.kind == Kind::Override);
        overrides.map(|it| (&it.key, &it.value))
    }

    /// Returns the newest stored change to the servers of each pool, if it is newer than a revision.
    pub(crate) fn newest_since(&self, revision: i64) -> Vec<(SharedKey, Value)> {
        let mut newest: BTreeMap<&str, &SharedEntry> = BTreeMap::new();
        for entry in self.0.values().filter(|it| !it.dirty && it.base > revision) {
            let pool_newest = newest.entry(&entry.key.pool).or_insert(entry);
            if pool_newest.base < entry.base {
                *pool_newest = entry;
            }
        }
        let newest = newest.into_values();
        newest
            .map(|it| (it.key.clone(), it.value.clone()))
            .collect()
    }

    /// Returns the number of entries that must still be written.
    pub(crate) fn pending(&self) -> usize {
        self.0.values().filter(|it| it.dirty).count()
    }

    /// Records a change by an operator of this director.
    pub(crate) fn change(&mut self, key: SharedKey, value: Value, keys: &Keys, mirror: &Mirror) {
        let base = mirror.revision_of(&keys.name(&key.key()));
        let previous = self.0.get(&key);
        let (previous_base, stored) = previous.map_or((0, 0), |it| (it.base, it.stored));
        let shared = SharedEntry {
            key: key.clone(),
            value,
            base: base.max(previous_base),
            dirty: true,
            number: stored.saturating_add(1),
            stored,
            is_verified: false,
        };
        self.0.insert(key, shared);
    }

    /// Adopts other members' changes from a complete mirror. Returns the changes that this director must apply, with
    /// their revisions.
    pub(crate) fn reconcile(&mut self, store: &SharedStore<'_>) -> Vec<(SharedKey, Value, i64)> {
        let SharedStore { keys, mirror, .. } = store;
        let mut changes = Vec::new();
        let mut present_keys = std::collections::BTreeSet::new();
        for (name, stored) in mirror.iter() {
            let Some(key) = keys.parse(name).and_then(SharedKey::from_key) else {
                continue;
            };
            let Ok(mut value) = serde_json::from_slice::<Value>(&stored.value) else {
                continue;
            };
            present_keys.insert(key.clone());
            let own_entry = self.0.get_mut(&key);
            let number = store.open(name, stored.revision, &mut value, own_entry.as_deref());
            let newest = own_entry.as_ref().map_or(0, |own_entry| own_entry.stored);
            let Some(number) = number.filter(|number| *number >= newest) else {
                if let Some(own_entry) = own_entry {
                    // A former value has a valid MAC, which shows that the members have the same key.
                    own_entry.dirty |= number.is_some() || store.members_share_key;
                    (own_entry.base, own_entry.is_verified) = (stored.revision, false);
                }
                continue;
            };
            let own_entry = self.0.get(&key);
            // A different revision is a change by another director, or another director has restored the entry in a
            // new store.
            let is_pending = own_entry
                .is_some_and(|own_entry| own_entry.dirty && stored.revision == own_entry.base);
            if (is_pending && own_entry.is_some_and(|own_entry| own_entry.value != value))
                || (own_entry.is_none() && self.0.len() >= MAX_ENTRIES)
            {
                continue;
            }
            if own_entry.is_none_or(|own_entry| own_entry.value != value) {
                changes.push((key.clone(), value.clone(), stored.revision));
            }
            let shared = SharedEntry {
                key: key.clone(),
                value,
                base: stored.revision,
                dirty: false,
                number,
                stored: number,
                is_verified: store.key.is_some(),
            };
            self.0.insert(key, shared);
        }
        for shared in self
            .0
            .values_mut()
            .filter(|it| !present_keys.contains(&it.key))
        {
            (shared.base, shared.dirty) = (0, true);
        }
        changes
    }

    /// Returns the transaction for the next entry to write.
    pub(crate) fn next_write(&self, keys: &Keys, group_key: Option<&GroupKey>) -> Option<Txn> {
        let shared = self.0.values().find(|it| it.dirty)?;
        let key = keys.name(&shared.key.key());
        let mut value = shared.value.clone();
        if let (Some(group_key), Value::Object(fields)) = (group_key, &mut value) {
            let number = shared.number;
            let mac = group_key.mac(&(SEAL, &key, number, &shared.value));
            let seal = serde_json::to_value(Seal { number, mac }).ok()?;
            fields.insert(SEAL.to_owned(), seal);
        }
        let value = serde_json::to_vec(&value).ok()?;
        Some(Txn {
            compares: vec![Compare::Revision(key.clone(), shared.base)],
            writes: vec![Write::Put(Put {
                key,
                value,
                leased: false,
            })],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Entry;

    fn key() -> SharedKey {
        SharedKey {
            kind: Kind::Override,
            pool: "web".to_owned(),
            server: "10.0.0.5:80".to_owned(),
        }
    }

    fn mirror(value: Option<&str>, revision: i64) -> Mirror {
        let mut mirror = Mirror::default();
        let entry = value.map(|value| Entry {
            key: Keys::new("edge").name(&key().key()),
            value: format!("{{\"state\":\"{value}\"}}").into_bytes(),
            revision,
        });
        mirror.replace(revision, entry.into_iter().collect());
        mirror
    }

    fn store<'a>(keys: &'a Keys, mirror: &'a Mirror) -> SharedStore<'a> {
        SharedStore {
            keys,
            mirror,
            key: None,
            members_share_key: true,
        }
    }

    fn state(value: &str) -> Value {
        serde_json::json!({ "state": value })
    }

    #[test]
    fn change_based_on_an_older_revision_is_dropped() {
        let keys = Keys::new("edge");
        let mut entries = SharedEntries::default();
        let changes = entries.reconcile(&store(&keys, &mirror(Some("drain"), 5)));
        assert_eq!(changes, [(key(), state("drain"), 5)]);
        entries.change(key(), state("maint"), &keys, &mirror(Some("drain"), 5));
        let txn = entries.next_write(&keys, None).unwrap();
        assert_eq!(
            txn.compares,
            [Compare::Revision(keys.name(&key().key()), 5)]
        );
        // The change is still pending.
        assert_eq!(
            entries.reconcile(&store(&keys, &mirror(Some("drain"), 5))),
            []
        );
        assert_eq!(entries.pending(), 1);
        // Another director has changed the entry first.
        let changes = entries.reconcile(&store(&keys, &mirror(Some("ready"), 7)));
        assert_eq!(changes, [(key(), state("ready"), 7)]);
        assert_eq!(entries.pending(), 0);
    }

    #[test]
    fn entries_that_the_store_lost_are_written_again() {
        let keys = Keys::new("edge");
        let mut entries = SharedEntries::default();
        entries.reconcile(&store(&keys, &mirror(Some("drain"), 5)));
        let mut entries = SharedEntries::new(entries.state());
        assert_eq!(entries.reconcile(&store(&keys, &mirror(None, 2))), []);
        let txn = entries.next_write(&keys, None).unwrap();
        assert_eq!(
            txn.compares,
            [Compare::Revision(keys.name(&key().key()), 0)]
        );
        // The response was lost, but the write was executed.
        assert_eq!(
            entries.reconcile(&store(&keys, &mirror(Some("drain"), 3))),
            []
        );
        assert_eq!(entries.next_write(&keys, None), None);
    }

    #[test]
    fn only_sealed_values_are_adopted_with_a_group_key() {
        let keys = Keys::new("edge");
        let group_key = GroupKey::new(b"sixteen bytes or more").unwrap();
        let other_key = GroupKey::new(b"another group's key").unwrap();
        let name = keys.name(&key().key());
        let stored_value = |value: &[u8], revision| {
            let mut mirror = Mirror::default();
            let entry = Entry {
                key: name.clone(),
                value: value.to_vec(),
                revision,
            };
            mirror.replace(revision, vec![entry]);
            mirror
        };
        let written_value = |entries: &SharedEntries, group_key| {
            let txn = entries.next_write(&keys, Some(group_key)).unwrap();
            let Some(Write::Put(put)) = txn.writes.first() else {
                panic!("{txn:?}")
            };
            put.value.clone()
        };
        let reconcile = |entries: &mut SharedEntries, mirror: &Mirror, members_share_key| {
            entries.reconcile(&SharedStore {
                keys: &keys,
                mirror,
                key: Some(&group_key),
                members_share_key,
            })
        };
        let mut author = SharedEntries::default();
        author.change(key(), state("drain"), &keys, &Mirror::default());
        let first = written_value(&author, &group_key);
        let foreign = written_value(&author, &other_key);
        assert_eq!(reconcile(&mut author, &stored_value(&first, 3), true), []);
        assert_eq!(author.pending(), 0);
        author.change(key(), state("ready"), &keys, &stored_value(&first, 3));
        let second = written_value(&author, &group_key);

        let mut reader = SharedEntries::default();
        let text = String::from_utf8(first.clone()).unwrap();
        let altered = text.replace("drain", "maint").into_bytes();
        for forged in [br#"{"state":"drain"}"#.to_vec(), foreign, altered] {
            assert_eq!(reconcile(&mut reader, &stored_value(&forged, 2), true), []);
            assert_eq!(reader.next_write(&keys, Some(&group_key)), None);
        }
        let changes = reconcile(&mut reader, &stored_value(&first, 3), true);
        assert_eq!(changes, [(key(), state("drain"), 3)]);
        let changes = reconcile(&mut reader, &stored_value(&second, 4), true);
        assert_eq!(changes, [(key(), state("ready"), 4)]);

        // An altered value is not adopted, although the previous value was authentic.
        let text = String::from_utf8(second.clone()).unwrap();
        let altered = text.replace("ready", "maint").into_bytes();
        assert_eq!(reconcile(&mut reader, &stored_value(&altered, 5), true), []);

        // The newer value replaces a former value, even after a restart.
        let mut reader = SharedEntries::new(reader.state());
        assert_eq!(reconcile(&mut reader, &stored_value(&first, 5), true), []);
        assert_eq!(written_value(&reader, &group_key), second);
        assert_eq!(reconcile(&mut reader, &stored_value(&second, 6), true), []);
        assert_eq!(reader.pending(), 0);

        // A value without a seal is sealed only when all members have the key.
        let unsealed = stored_value(br#"{"state":"ready"}"#, 7);
        assert_eq!(reconcile(&mut reader, &unsealed, false), []);
        assert_eq!(reader.pending(), 0);
        assert_eq!(reconcile(&mut reader, &unsealed, true), []);
        assert_eq!(written_value(&reader, &group_key), second);
    }
}
