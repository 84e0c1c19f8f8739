//! `RUNTIME_DIR/state.json`: what the maps cannot say, and what is to be undone.
//!
//! Written whole and by rename when a daemon starts, then continued by a journal ([`super::journal`]), before the
//! change that it describes where undoing depends on it. The kernel forgets its part at boot; the boot's identifier
//! tells a file that outlived one. A file that is missing or cannot be read costs overrides, totals of servers that are
//! gone and the memory of what to undo, never traffic: [`super::adopt`] finds the rows again.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use weir_planner::allocation::Allocation;
use weir_sys::{boot_id, create_private};

use super::journal::{self, JOURNAL, Journal, Record, STATE};
use super::mark::MarkWay;
use super::origin::Origin;
use super::overrides::Overrides;
use super::standing::Standings;
use super::{Error, Result};

const VERSION: u32 = 2;

/// What is remembered over restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// Configurations that took effect so far.
    pub(super) revision: u64,
    /// Tells whether a configuration is the one of `revision`.
    pub(super) fingerprint: u64,
    /// Rows given out.
    pub(super) allocation: Allocation,
    /// Operators' words.
    pub(super) overrides: Overrides,
    /// What checks say.
    #[serde(default)]
    pub(super) standings: Standings,
    /// What ipvsadm made.
    #[serde(default)]
    pub(super) origin: Origin,
    /// What is to be undone by `weir clean`.
    pub(super) undo: Undo,
}

/// Changes to the host's network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Undo {
    /// Addresses added, by interface.
    pub(super) addresses: Vec<(String, IpAddr)>,
    /// Neighbours whose resolution the kernel was asked to keep up, by interface.
    pub(super) neighbours: Vec<(String, IpAddr)>,
    /// Offloads as they were, by interface.
    pub(super) offloads: Vec<(String, Vec<(String, bool)>)>,
    /// The way of packets that carry a mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) marks: Option<MarkWay>,
}

#[derive(Serialize)]
struct Content<'a> {
    version: u32,
    boot: String,
    /// Which file the journal continues; another one each time.
    number: u64,
    #[serde(flatten)]
    memory: &'a Memory,
}

/// A state file that is not written yet.
#[derive(Debug)]
pub(super) struct Text {
    number: u64,
    bytes: Vec<u8>,
}

/// What is read before the memory itself: flattened, it would all be read twice.
#[derive(Deserialize)]
struct Head {
    version: u32,
    boot: String,
    #[serde(default)]
    number: u64,
}

/// The file of a runtime directory, and the journal that continues it.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// Which one was written last, and how long it is.
    number: u64,
    bytes: u64,
    journal: Option<Journal>,
}

impl StateFile {
    /// In that directory, which is made when needed.
    pub(super) fn new(runtime_dir: &Path) -> Self {
        Self {
            path: runtime_dir.join(STATE),
            number: 0,
            bytes: 0,
            journal: None,
        }
    }

    /// What it remembers; `None` when there is none, or none that can be read: then a warning says why.
    ///
    /// # Errors
    /// It was written by a newer Weir, whose words must not be overwritten.
    pub(super) fn read(&self) -> Result<Option<Memory>> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the state cannot be read and is made anew");
                return Ok(None);
            }
        };
        let read = serde_json::from_slice::<Head>(&text)
            .map(|head| (head, serde_json::from_slice::<Memory>(&text)));
        match read {
            // A newer one may hold what this build cannot read.
            Ok((head, _)) if head.version > VERSION => Err(Error::StateVersion {
                path: self.path.clone(),
                found: head.version,
            }),
            Ok((Head { boot, number, .. }, Ok(mut memory))) => {
                for record in journal::read::<Record>(&self.path.with_file_name(JOURNAL), number) {
                    record.apply(&mut memory);
                }
                if boot != boot_id()? {
                    // Maps, addresses and neighbours went with the kernel that had them.
                    memory.allocation = Allocation::default();
                    memory.undo = Undo::default();
                    memory.origin = Origin::default();
                }
                Ok(Some(memory))
            }
            Ok((_, Err(error))) | Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the state cannot be read and is made anew");
                Ok(None)
            }
        }
    }

    /// Replaces it in one step and begins the journal anew.
    ///
    /// # Errors
    /// The directory cannot be written to; the former file and its journal stay.
    pub(super) fn write(&mut self, memory: &Memory) -> Result<()> {
        let text = self.text_of(memory)?;
        self.write_text(text)
    }

    /// The same in two steps, the first: what would be written.
    ///
    /// # Errors
    /// The kernel does not say which boot this is.
    pub(super) fn text_of(&self, memory: &Memory) -> Result<Text> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let number = since.unwrap_or_default().as_nanos() as u64;
        let content = Content {
            version: VERSION,
            boot: boot_id()?,
            number,
            memory,
        };
        let mut bytes =
            serde_json::to_vec(&content).map_err(|error| file_error(&self.path, error.into()))?;
        bytes.push(b'\n');
        Ok(Text { number, bytes })
    }

    /// The second: it is written.
    ///
    /// # Errors
    /// As [`StateFile::write`].
    pub(super) fn write_text(&mut self, Text { number, bytes }: Text) -> Result<()> {
        if let Some(directory) = self.path.parent() {
            let mut builder = fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(directory);
            made.map_err(|source| file_error(directory, source))?;
        }
        let new = self.path.with_extension("json.new");
        let written = create_private(&new).and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()
        });
        written.map_err(|source| file_error(&new, source))?;
        fs::rename(&new, &self.path).map_err(|source| file_error(&self.path, source))?;
        (self.number, self.bytes) = (number, bytes.len() as u64);
        let journal = self.path.with_file_name(JOURNAL);
        let begun = Journal::begin(&journal, number);
        self.journal = Some(begun.map_err(|source| file_error(&journal, source))?);
        Ok(())
    }

    /// Whether nobody else has written it since.
    pub(super) fn is_own(&self) -> bool {
        let text = fs::read(&self.path).ok();
        let head = text.and_then(|text| serde_json::from_slice::<Head>(&text).ok());
        head.is_some_and(|head| head.number == self.number)
    }

    /// Adds a change to what was written.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub(super) fn append(&mut self, record: &Record) -> Result<()> {
        let Some(journal) = &mut self.journal else {
            let source = ErrorKind::NotFound.into();
            return Err(file_error(&self.path, source));
        };
        let added = journal.add(record);
        added.map_err(|source| file_error(journal.path(), source))
    }

    /// Whether it is time to write it whole again.
    pub(super) fn is_long(&self) -> bool {
        let journal = self.journal.as_ref();
        journal.is_some_and(|journal| journal.is_long(self.bytes))
    }

    /// Removes it.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub(super) fn remove(&self) -> Result<()> {
        for path in [self.path.with_file_name(JOURNAL), self.path.clone()] {
            match fs::remove_file(&path) {
                Err(source) if source.kind() != ErrorKind::NotFound => {
                    return Err(file_error(&path, source));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn file_error(path: &Path, source: std::io::Error) -> Error {
    Error::File {
        path: path.to_owned(),
        source,
    }
}
