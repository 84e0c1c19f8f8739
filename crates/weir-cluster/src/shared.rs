//! Entries that all members share: overrides of servers, and servers that the API added.
//!
//! Each entry records the revision that it is based on. A change is written only if no other director has changed the
//! entry since that revision; otherwise the other change wins. A change that was delayed by a partition therefore never
//! replaces a newer one. Entries are never deleted: `ready` and `removed` are values. An entry that etcd has lost is
//! written again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::key::{Key, Keys};
use crate::store::{Compare, Mirror, Put, Txn, Write};

/// Maximum number of entries; further keys in etcd are ignored.
const ENTRIES_MAX: usize = 100_000;

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

    /// Returns the entry that a write changes; `None` if it changes no shared entry.
    pub(crate) fn from_write(keys: &Keys, write: &Write) -> Option<Self> {
        match write {
            Write::Put(put) => keys.parse(&put.key).and_then(Self::from_key),
            Write::Delete(_) => None,
        }
    }

    fn key(&self) -> Key {
        let (pool, server) = (self.pool.clone(), self.server.clone());
        match self.kind {
            Kind::Override => Key::Override(pool, server),
            Kind::Server => Key::Server(pool, server),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Shared {
    key: SharedKey,
    value: Value,
    /// The revision of the value, or the one that the change is based on; 0 = the key does not exist.
    base: i64,
    /// Whether the entry must still be written.
    dirty: bool,
}

/// All entries, as the daemon saves them to disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedState {
    entries: Vec<Shared>,
}

/// The entries that all members share, by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedEntries(BTreeMap<SharedKey, Shared>);

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

    /// Returns the number of entries that must still be written.
    pub(crate) fn pending(&self) -> usize {
        self.0.values().filter(|it| it.dirty).count()
    }

    /// Records a change by an operator of this director.
    pub(crate) fn change(&mut self, key: SharedKey, value: Value, keys: &Keys, mirror: &Mirror) {
        let base = mirror.revision_of(&keys.name(&key.key()));
        let known = self.0.get(&key).map_or(0, |it| it.base);
        let shared = Shared {
            key: key.clone(),
            value,
            base: base.max(known),
            dirty: true,
        };
        self.0.insert(key, shared);
    }

    /// Adopts other members' changes from a complete mirror. Returns the changes that this director must apply, with
    /// their revisions.
    pub(crate) fn reconcile(
        &mut self,
        keys: &Keys,
        mirror: &Mirror,
    ) -> Vec<(SharedKey, Value, i64)> {
        let mut changes = Vec::new();
        let mut present = std::collections::BTreeSet::new();
        for (name, stored) in mirror.iter() {
            let Some(key) = keys.parse(name).and_then(SharedKey::from_key) else {
                continue;
            };
            let Ok(value) = serde_json::from_slice::<Value>(&stored.value) else {
                continue;
            };
            present.insert(key.clone());
            let own = self.0.get(&key);
            // A lower revision belongs to a new store, whose data other members have restored.
            let is_pending = own.is_some_and(|own| own.dirty && stored.revision == own.base);
            if (is_pending && own.is_some_and(|own| own.value != value))
                || (own.is_none() && self.0.len() >= ENTRIES_MAX)
            {
                continue;
            }
            if own.is_none_or(|own| own.value != value) {
                changes.push((key.clone(), value.clone(), stored.revision));
            }
            let shared = Shared {
                key: key.clone(),
                value,
                base: stored.revision,
                dirty: false,
            };
            self.0.insert(key, shared);
        }
        for shared in self.0.values_mut().filter(|it| !present.contains(&it.key)) {
            (shared.base, shared.dirty) = (0, true);
        }
        changes
    }

    /// Returns the transaction for the next entry to write.
    pub(crate) fn next_write(&self, keys: &Keys) -> Option<Txn> {
        let shared = self.0.values().find(|it| it.dirty)?;
        let key = keys.name(&shared.key.key());
        let value = serde_json::to_vec(&shared.value).ok()?;
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

    fn state(value: &str) -> Value {
        serde_json::json!({ "state": value })
    }

    #[test]
    fn change_based_on_an_older_revision_is_dropped() {
        let keys = Keys::new("edge");
        let mut entries = SharedEntries::default();
        let news = entries.reconcile(&keys, &mirror(Some("drain"), 5));
        assert_eq!(news, [(key(), state("drain"), 5)]);
        entries.change(key(), state("maint"), &keys, &mirror(Some("drain"), 5));
        let txn = entries.next_write(&keys).unwrap();
        assert_eq!(
            txn.compares,
            [Compare::Revision(keys.name(&key().key()), 5)]
        );
        // The change is still pending.
        assert_eq!(entries.reconcile(&keys, &mirror(Some("drain"), 5)), []);
        assert_eq!(entries.pending(), 1);
        // Another director has changed the entry first.
        let news = entries.reconcile(&keys, &mirror(Some("ready"), 7));
        assert_eq!(news, [(key(), state("ready"), 7)]);
        assert_eq!(entries.pending(), 0);
    }

    #[test]
    fn entries_that_the_store_lost_are_written_again() {
        let keys = Keys::new("edge");
        let mut entries = SharedEntries::default();
        entries.reconcile(&keys, &mirror(Some("drain"), 5));
        let mut entries = SharedEntries::new(entries.state());
        assert_eq!(entries.reconcile(&keys, &mirror(None, 2)), []);
        let txn = entries.next_write(&keys).unwrap();
        assert_eq!(
            txn.compares,
            [Compare::Revision(keys.name(&key().key()), 0)]
        );
        // The response was lost, but the write was executed.
        assert_eq!(entries.reconcile(&keys, &mirror(Some("drain"), 3)), []);
        assert_eq!(entries.next_write(&keys), None);
    }
}
