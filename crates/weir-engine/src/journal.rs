//! Appends changes to `state.journal` and reads them back, to avoid rewriting the state file.
//!
//! The journal names the state file that it continues; the journal of a different state file is ignored. Reading stops
//! at a partial line, which a crash can leave behind.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_ipvsadm::Edit;
use weir_planner::allocation::ServiceSlot;
use weir_state::{HealthRecord, OverrideRecord};
use weir_sys::create_private;

use crate::origin::Baseline;
use crate::stored_state::{EngineState, StoredState, Undo};

/// The file's name; the file is next to the state file.
pub(crate) const JOURNAL_FILE: &str = "state.journal";

/// Size, in bytes, up to which a journal is never too long.
const SHORT_BYTES: u64 = 1 << 20;

/// One change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Revision, fingerprint and last generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) numbers: Option<(u64, u64, u32)>,
    /// Changed services; `None` = removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) services: Vec<(String, Option<ServiceSlot>)>,
    /// All rows of shared counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shared: Option<BTreeMap<String, u32>>,
    /// Changed overrides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) overrides: Vec<OverrideRecord>,
    /// Changed check results.
    #[serde(default, rename = "standings", skip_serializing_if = "Vec::is_empty")]
    pub(crate) health_states: Vec<HealthRecord>,
    /// All pools that are below their quorum. Earlier versions neither write nor read this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) below_quorum: Option<Vec<String>>,
    /// The whole undo record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) undo: Option<Undo>,
    /// ipvsadm edits, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) edits: Vec<Edit>,
    /// Base values of all counters that ipvsadm zeroed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) zeroed: Option<BTreeMap<String, Baseline>>,
}

impl Record {
    /// Creates a record of the services `names`, and of the shared counters if `shared_counters_changed`.
    pub(crate) fn for_changes<'a>(
        state: &EngineState,
        names: impl Iterator<Item = &'a str>,
        shared_counters_changed: bool,
    ) -> Self {
        let EngineState {
            revision,
            fingerprint,
            allocation,
            ..
        } = state;
        let slot = |name: &str| (name.to_owned(), allocation.services.get(name).cloned());
        Self {
            numbers: Some((*revision, *fingerprint, allocation.last_generation)),
            services: names.map(slot).collect(),
            shared: shared_counters_changed.then(|| allocation.shared.clone()),
            ..Self::default()
        }
    }

    /// Applies the change.
    pub(crate) fn apply(self, saved: &mut StoredState) {
        saved.servers.replay(self.overrides, self.health_states);
        if let Some(pools) = self.below_quorum {
            saved.servers.health_states.below_quorum = pools;
        }
        let state = &mut saved.engine;
        let allocation = &mut state.allocation;
        if let Some((revision, fingerprint, last_generation)) = self.numbers {
            (state.revision, state.fingerprint) = (revision, fingerprint);
            allocation.last_generation = last_generation;
        }
        for (name, slot) in self.services {
            match slot {
                Some(slot) => drop(allocation.services.insert(name, slot)),
                None => drop(allocation.services.remove(&name)),
            }
        }
        if let Some(shared) = self.shared {
            allocation.shared = shared;
        }
        if let Some(undo) = self.undo {
            state.undo = undo;
        }
        for edit in &self.edits {
            state.origin.replay(edit);
        }
        if let Some(zeroed) = self.zeroed {
            state.origin.zeroed = zeroed;
        }
    }
}

/// The first line: the number of the state file that the journal continues.
#[derive(Serialize, Deserialize)]
struct Header {
    continues: u64,
}

/// The open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Journal {
    /// Creates an empty journal for the state file with this number.
    pub(crate) fn create(path: &Path, continues: u64) -> io::Result<Self> {
        let mut journal = Self {
            path: path.to_owned(),
            file: create_private(path)?,
            bytes: 0,
        };
        journal.write_line(&Header { continues })?;
        Ok(journal)
    }

    /// Returns the journal's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a change without syncing the file: a process crash loses nothing, and a machine crash loses the maps
    /// too.
    pub(crate) fn append(&mut self, record: &Record) -> io::Result<()> {
        self.write_line(record)
    }

    fn write_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        if let Err(error) = self.file.write_all(&text) {
            // A later line must not be appended to a partial line.
            let _ = self.file.set_len(self.bytes);
            let _ = self.file.seek(SeekFrom::Start(self.bytes));
            return Err(error);
        }
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Returns whether the journal is longer than a state file of this size, and longer than [`SHORT_BYTES`].
    pub(crate) fn is_long(&self, state_bytes: u64) -> bool {
        self.bytes > state_bytes.max(SHORT_BYTES)
    }
}

/// Reads the changes since the state file with this number; none if the journal continues a different state file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, continues: u64) -> Vec<T> {
    let Ok(text) = weir_sys::read_owned_file(path) else {
        return Vec::new();
    };
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let head = lines.next().map(serde_json::from_slice::<Header>);
    if !matches!(head, Some(Ok(head)) if head.continues == continues) {
        return Vec::new();
    }
    lines
        .take_while(|line| line.ends_with(b"\n"))
        .map_while(|line| serde_json::from_slice(line).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn partial_line_and_journal_of_a_different_file_are_not_read() {
        let path = std::env::temp_dir().join(format!("weir-journal-{}", std::process::id()));
        let mut journal = Journal::create(&path, 7).unwrap();
        for revision in 1..=3 {
            let record = Record {
                numbers: Some((revision, 0, 0)),
                ..Record::default()
            };
            journal.append(&record).unwrap();
        }
        let revisions = |continues| -> Vec<u64> {
            let records = read::<Record>(&path, continues).into_iter();
            records.filter_map(|it| Some(it.numbers?.0)).collect()
        };
        assert_eq!(revisions(7), [1, 2, 3]);
        assert_eq!(
            revisions(8),
            [0; 0],
            "the journal of a different state file"
        );
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 4]).unwrap();
        assert_eq!(revisions(7), [1, 2], "the last line is incomplete");
        fs::remove_file(&path).unwrap();
    }
}
