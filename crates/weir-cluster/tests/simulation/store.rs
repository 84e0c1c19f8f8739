//! Simulates etcd.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_cluster::{Compare, Entry, Event, Txn, TxnResult, Write};

/// Time to live of all leases.
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// A value with its revision and lease.
pub(crate) struct StoredValue {
    pub(crate) value: Vec<u8>,
    pub(crate) revision: i64,
    pub(crate) lease: Option<i64>,
}

/// A linearizable store, like etcd with a majority.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) keys: BTreeMap<String, StoredValue>,
    pub(crate) revision: i64,
    /// Events with their revisions, starting at revision `compacted`.
    pub(crate) history: Vec<(i64, Event)>,
    pub(crate) compacted: i64,
    /// Expiry times of leases, by ID.
    pub(crate) leases: BTreeMap<i64, Duration>,
    pub(crate) next_lease: i64,
    pub(crate) has_majority: bool,
}

impl Store {
    pub(crate) fn entry(&self, key: &str) -> Option<Entry> {
        let stored = self.keys.get(key)?;
        Some(Entry {
            key: key.to_owned(),
            value: stored.value.clone(),
            revision: stored.revision,
        })
    }

    fn delete(&mut self, key: &str) {
        if self.keys.remove(key).is_some() {
            let (key, revision) = (key.to_owned(), self.revision);
            self.history
                .push((revision, Event::Delete { key, revision }));
        }
    }

    /// Executes a transaction.
    pub(crate) fn txn(&mut self, txn: &Txn, lease: Option<i64>) -> TxnResult {
        let revision_of = |key: &str| self.keys.get(key).map_or(0, |it| it.revision);
        let conditions_hold = txn.compares.iter().all(|compare| match compare {
            Compare::Revision(key, revision) => revision_of(key) == *revision,
            Compare::Exists(key) => self.keys.contains_key(key),
        });
        let needs_lease = |write: &Write| matches!(write, Write::Put(put) if put.leased);
        let has_no_lease = lease.is_none_or(|lease| !self.leases.contains_key(&lease));
        if txn.writes.iter().any(needs_lease) && has_no_lease {
            return TxnResult::Unknown("requested lease not found".to_owned());
        }
        if !conditions_hold {
            let compared = txn.compares.iter().filter_map(|it| self.entry(it.key()));
            return TxnResult::Conflict {
                found: compared.collect(),
                revision: self.revision,
            };
        }
        self.revision += 1;
        for write in &txn.writes {
            match write {
                Write::Put(put) => {
                    let stored = StoredValue {
                        value: put.value.clone(),
                        revision: self.revision,
                        lease: lease.filter(|_| put.leased),
                    };
                    self.keys.insert(put.key.clone(), stored);
                    let entry = self.entry(&put.key).expect("key was just written");
                    self.history.push((self.revision, Event::Put(entry)));
                }
                Write::Delete(key) => self.delete(key),
            }
        }
        TxnResult::Done {
            revision: self.revision,
        }
    }

    /// Removes expired leases and deletes their keys.
    pub(crate) fn expire(&mut self, now: Duration) {
        if !self.has_majority {
            // A new leader extends all leases.
            self.leases
                .values_mut()
                .for_each(|expiry| *expiry = now + TTL);
            return;
        }
        let expired = self.leases.iter().filter(|(_, expiry)| **expiry <= now);
        let expired: Vec<i64> = expired.map(|(lease, _)| *lease).collect();
        for lease in expired {
            self.leases.remove(&lease);
            let keys = self.keys.iter().filter(|(_, it)| it.lease == Some(lease));
            let keys: Vec<String> = keys.map(|(key, _)| key.clone()).collect();
            if !keys.is_empty() {
                self.revision += 1;
            }
            keys.iter().for_each(|key| self.delete(key));
        }
    }

    /// Loses all data.
    pub(crate) fn wipe(&mut self) {
        let next_lease = self.next_lease + 1000;
        *self = Self {
            next_lease,
            has_majority: true,
            ..Self::default()
        };
    }
}
