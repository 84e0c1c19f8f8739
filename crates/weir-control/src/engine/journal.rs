//! What changed since the state file was written, a line a change: remembering one server must not cost writing down a
//! hundred thousand.
//!
//! The journal names the state file that it continues; one that continues another is not read. A line that a death cut
//! off ends it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_ipvsadm::Edit;
use weir_planner::allocation::ServiceSlot;
use weir_sys::create_private;

use super::origin::Zero;
use super::overrides::Override;
use super::standing::StoredStanding;
use super::state::{Memory, Undo};

/// The state file, in a runtime directory.
pub(crate) const STATE: &str = "state.json";
/// What continues it, beside it.
pub(crate) const JOURNAL: &str = "state.journal";

/// Below this size it is never too long.
const SHORT_BYTES: u64 = 1 << 20;

/// One change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    /// Revision, fingerprint, last generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) numbers: Option<(u64, u64, u32)>,
    /// Services as they are now; `None` = no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) services: Vec<(String, Option<ServiceSlot>)>,
    /// All rows of shared counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) shared: Option<BTreeMap<String, u32>>,
    /// Pool, server and the operator's word; `None` = taken back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) overrides: Vec<(String, String, Option<Override>)>,
    /// Pool, server and what checks say of it; `None` = it has none any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) standings: Vec<(String, String, Option<StoredStanding>)>,
    /// All that is to be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) undo: Option<Undo>,
    /// What ipvsadm changed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) edits: Vec<Edit>,
    /// Where all counters begin that ipvsadm zeroed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) zeroed: Option<BTreeMap<String, Zero>>,
}

impl Record {
    /// Of the services that changed, and of the shared counts where servers share others than before.
    pub(super) fn of<'a>(
        memory: &Memory,
        changed: impl Iterator<Item = &'a str>,
        sharing: bool,
    ) -> Self {
        let Memory {
            revision,
            fingerprint,
            allocation,
            ..
        } = memory;
        let slot = |name: &str| (name.to_owned(), allocation.services.get(name).cloned());
        Self {
            numbers: Some((*revision, *fingerprint, allocation.last_generation)),
            services: changed.map(slot).collect(),
            shared: sharing.then(|| allocation.shared.clone()),
            ..Self::default()
        }
    }

    /// Makes the change.
    pub(super) fn apply(self, memory: &mut Memory) {
        let allocation = &mut memory.allocation;
        if let Some((revision, fingerprint, last_generation)) = self.numbers {
            (memory.revision, memory.fingerprint) = (revision, fingerprint);
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
        for (pool, server, word) in self.overrides {
            memory.overrides.set(&pool, &server, word);
        }
        memory.standings.restore(self.standings);
        if let Some(undo) = self.undo {
            memory.undo = undo;
        }
        for edit in &self.edits {
            memory.origin.repeat(edit);
        }
        if let Some(zeroed) = self.zeroed {
            memory.origin.zeroed = zeroed;
        }
    }
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    continues: u64,
}

/// The file.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Journal {
    /// Begins it anew, after the state file of that number.
    pub(super) fn begin(path: &Path, continues: u64) -> io::Result<Self> {
        let mut journal = Self {
            path: path.to_owned(),
            file: create_private(path)?,
            bytes: 0,
        };
        journal.line(&Head { continues })?;
        Ok(journal)
    }

    /// Its place.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a change. Not synced: a process that dies takes nothing along, and a machine that does takes the maps
    /// along.
    pub(super) fn add(&mut self, record: &Record) -> io::Result<()> {
        self.line(record)
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        self.file.write_all(&text)?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Whether reading it back would take longer than a state file of that size.
    pub(super) fn is_long(&self, state_bytes: u64) -> bool {
        self.bytes > state_bytes.max(SHORT_BYTES)
    }
}

/// The changes since the state file of that number.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, continues: u64) -> Vec<T> {
    let Ok(text) = fs::read(path) else {
        return Vec::new();
    };
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let head = lines.next().map(serde_json::from_slice::<Head>);
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
    use super::*;

    #[test]
    fn a_cut_line_and_another_file_are_not_read() {
        let path = std::env::temp_dir().join(format!("weir-journal-{}", std::process::id()));
        let mut journal = Journal::begin(&path, 7).unwrap();
        for revision in 1..=3 {
            let record = Record {
                numbers: Some((revision, 0, 0)),
                ..Record::default()
            };
            journal.add(&record).unwrap();
        }
        let revisions = |continues| -> Vec<u64> {
            let records = read::<Record>(&path, continues).into_iter();
            records.filter_map(|it| Some(it.numbers?.0)).collect()
        };
        assert_eq!(revisions(7), [1, 2, 3]);
        assert_eq!(revisions(8), [0; 0], "it continues another file");
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 4]).unwrap();
        assert_eq!(revisions(7), [1, 2], "the last line is cut off");
        fs::remove_file(&path).unwrap();
    }
}
