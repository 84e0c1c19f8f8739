//! Reads and writes `RUNTIME_DIR/state.json`: state that is not in the maps, and the undo record.
//!
//! During startup, the daemon replaces the file by rename. Later changes are appended to a journal
//! ([`crate::journal`]). Addresses and rules that `weir clean` removes are persisted before they are added. Kernel
//! state is lost at boot; the boot ID shows whether a file is from an earlier boot. If the file is missing or
//! unreadable, check results, totals of removed servers and the undo record are lost, but traffic continues:
//! [`crate::adopt`] recovers the rows.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use weir_planner::allocation::Allocation;
use weir_state::{Overrides, SavedHealth, SavedServers};
use weir_sys::{boot_id, create_private, read_owned_file};

use crate::error::{Error, Result};
use crate::journal::{self, JOURNAL_FILE, Journal, Record};
use crate::origin::Origin;
use crate::stored_state::{EngineState, StoredState, Undo};

/// The file's name in a runtime directory.
pub(crate) const STATE_FILE: &str = "state.json";

const VERSION: u32 = 2;

#[derive(Serialize)]
struct Content<'a> {
    version: u32,
    boot: String,
    /// Identifies this file in the journal; it differs for each write.
    number: u64,
    revision: u64,
    fingerprint: u64,
    allocation: &'a Allocation,
    overrides: &'a Overrides,
    overrides_are_copied: bool,
    #[serde(rename = "standings")]
    health_states: &'a SavedHealth,
    origin: &'a Origin,
    undo: &'a Undo,
}

/// The file's content when read.
#[derive(Deserialize)]
struct ParsedContent {
    revision: u64,
    fingerprint: u64,
    allocation: Allocation,
    overrides: Overrides,
    /// See [`SavedServers::is_copy`].
    #[serde(default)]
    overrides_are_copied: bool,
    #[serde(default, rename = "standings")]
    health_states: SavedHealth,
    #[serde(default)]
    origin: Origin,
    undo: Undo,
}

impl From<ParsedContent> for StoredState {
    fn from(parsed: ParsedContent) -> Self {
        Self {
            engine: EngineState {
                revision: parsed.revision,
                fingerprint: parsed.fingerprint,
                allocation: parsed.allocation,
                origin: parsed.origin,
                undo: parsed.undo,
            },
            servers: SavedServers {
                overrides: parsed.overrides,
                health_states: parsed.health_states,
                is_copy: parsed.overrides_are_copied,
            },
        }
    }
}

/// The content of a state file that is not written yet.
#[derive(Debug)]
pub(crate) struct SerializedState {
    number: u64,
    bytes: Vec<u8>,
    below_quorum: Vec<String>,
}

/// Fields that are read first, because the format depends on the version.
#[derive(Deserialize)]
struct Header {
    version: u32,
    boot: String,
    #[serde(default)]
    number: u64,
}

/// The state file in a runtime directory, and its journal.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    /// Identifier and size of the last written file.
    number: u64,
    bytes: u64,
    journal: Option<Journal>,
    /// The recorded pools that are below their quorum.
    below_quorum: Vec<String>,
    /// Whether a change is missing from the journal because the disk was full.
    is_incomplete: bool,
}

impl StateFile {
    /// Returns the file in `runtime_dir`, without reading it. Writing creates the directory if necessary.
    pub(crate) fn new(runtime_dir: &Path) -> Self {
        Self {
            path: runtime_dir.join(STATE_FILE),
            number: 0,
            bytes: 0,
            journal: None,
            below_quorum: Vec::new(),
            is_incomplete: false,
        }
    }

    /// Reads the file. Returns `None` if there is none, or if it is unreadable, which is logged.
    ///
    /// # Errors
    /// Fails if a newer version wrote the file, because its content must not be overwritten, or if the boot ID is not
    /// readable.
    pub(crate) fn read(&self) -> Result<Option<StoredState>> {
        let warn = |error: &dyn std::error::Error| {
            tracing::warn!(path = %self.path.display(), %error, "failed to read the state file; starting without it");
        };
        match read(&self.path) {
            Ok(None) => Ok(None),
            Ok(Some((boot, mut saved))) => {
                if boot != boot_id()? {
                    // Maps, addresses and neighbors were lost with the reboot.
                    saved.engine.allocation = Allocation::default();
                    saved.engine.undo = Undo::default();
                    saved.engine.origin = Origin::default();
                }
                Ok(Some(saved))
            }
            Err(Unreadable::Newer(found)) => Err(Error::StateVersion {
                path: self.path.clone(),
                found,
            }),
            Err(Unreadable::File(error)) => {
                warn(&error);
                Ok(None)
            }
            Err(Unreadable::Content(error)) => {
                warn(&error);
                Ok(None)
            }
        }
    }

    /// Replaces the file atomically and starts a new journal.
    ///
    /// # Errors
    /// Fails if the directory is not writable; the previous file and its journal remain.
    pub(crate) fn write(&mut self, state: &EngineState, servers: &SavedServers) -> Result<()> {
        let text = self.serialize(state, servers)?;
        self.write_serialized(text)
    }

    /// First half of [`StateFile::write`]: serializes the content.
    ///
    /// # Errors
    /// Fails if the boot ID is not readable.
    pub(crate) fn serialize(
        &self,
        state: &EngineState,
        servers: &SavedServers,
    ) -> Result<SerializedState> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let number = since.unwrap_or_default().as_nanos() as u64;
        let content = Content {
            version: VERSION,
            boot: boot_id()?,
            number,
            revision: state.revision,
            fingerprint: state.fingerprint,
            allocation: &state.allocation,
            overrides: &servers.overrides,
            overrides_are_copied: servers.is_copy,
            health_states: &servers.health_states,
            origin: &state.origin,
            undo: &state.undo,
        };
        let mut bytes =
            serde_json::to_vec(&content).map_err(|error| file_error(&self.path, error.into()))?;
        bytes.push(b'\n');
        Ok(SerializedState {
            number,
            bytes,
            below_quorum: servers.health_states.below_quorum.clone(),
        })
    }

    /// Second half of [`StateFile::write`]: writes the file.
    ///
    /// # Errors
    /// See [`StateFile::write`].
    pub(crate) fn write_serialized(
        &mut self,
        SerializedState {
            number,
            bytes,
            below_quorum,
        }: SerializedState,
    ) -> Result<()> {
        if let Some(directory) = self.path.parent() {
            let mut builder = fs::DirBuilder::new();
            let created = builder.recursive(true).mode(0o700).create(directory);
            created.map_err(|source| file_error(directory, source))?;
        }
        let new_path = self.path.with_extension("json.new");
        let result = create_private(&new_path).and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()
        });
        if result.is_err() {
            // A partial file would use space on a full disk.
            let _ = fs::remove_file(&new_path);
        }
        result.map_err(|source| file_error(&new_path, source))?;
        fs::rename(&new_path, &self.path).map_err(|source| file_error(&self.path, source))?;
        (self.number, self.bytes) = (number, bytes.len() as u64);
        self.below_quorum = below_quorum;
        let journal = self.path.with_file_name(JOURNAL_FILE);
        // The previous journal does not continue this file.
        self.journal = None;
        let started = Journal::create(&journal, number);
        self.journal = Some(started.map_err(|source| file_error(&journal, source))?);
        self.is_incomplete = false;
        Ok(())
    }

    /// Returns whether the file is still the one that this process wrote.
    pub(crate) fn is_own(&self) -> bool {
        let text = read_owned_file(&self.path).ok();
        let head = text.and_then(|text| serde_json::from_slice::<Header>(&text).ok());
        head.is_some_and(|head| head.number == self.number)
    }

    /// Appends a change to the journal.
    ///
    /// # Errors
    /// Fails if the directory is not writable.
    pub(crate) fn append(&mut self, record: &Record) -> Result<()> {
        let Some(journal) = &mut self.journal else {
            let source = ErrorKind::NotFound.into();
            return Err(file_error(&self.path, source));
        };
        let result = journal.append(record);
        result.map_err(|source| file_error(journal.path(), source))
    }

    /// Appends a change that is made even if it cannot be recorded, such as a failed server. After a failure, the whole
    /// file is rewritten at the next opportunity ([`Self::must_be_rewritten`]).
    pub(crate) fn append_if_possible(&mut self, record: &Record) {
        if let Err(error) = self.append(record) {
            self.report_failure(&error);
        }
    }

    /// Appends the pools that are below their quorum if they have changed. A failed write is retried later.
    pub(crate) fn record_below_quorum(&mut self, pools: Vec<String>) {
        if pools == self.below_quorum {
            return;
        }
        self.below_quorum.clone_from(&pools);
        self.append_if_possible(&Record {
            below_quorum: Some(pools),
            ..Record::default()
        });
    }

    /// Rewrites the file, and logs the first of several failures.
    pub(crate) fn rewrite(&mut self, state: &EngineState, servers: &SavedServers) {
        let was_incomplete = self.is_incomplete;
        match self.write(state, servers) {
            Ok(()) if was_incomplete => tracing::info!("the state file is complete again"),
            Ok(()) => {}
            Err(error) => self.report_failure(&error),
        }
    }

    fn report_failure(&mut self, error: &Error) {
        if !self.is_incomplete {
            tracing::error!(%error, "failed to record changes; retrying every second");
        }
        self.is_incomplete = true;
    }

    /// Returns whether the file must be rewritten: the journal is too long, could not be created, or is incomplete.
    pub(crate) fn must_be_rewritten(&self) -> bool {
        let journal = self.journal.as_ref();
        self.is_incomplete || journal.is_none_or(|journal| journal.is_long(self.bytes))
    }

    /// Removes the file and its journal.
    ///
    /// # Errors
    /// Fails if the directory is not writable.
    pub(crate) fn remove(&self) -> Result<()> {
        for path in [self.path.with_file_name(JOURNAL_FILE), self.path.clone()] {
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

/// Why a state file cannot be read.
#[derive(Debug)]
pub enum Unreadable {
    /// The kernel's error.
    File(std::io::Error),
    /// The content is not valid.
    Content(serde_json::Error),
    /// A newer version wrote it.
    Newer(u32),
}

/// Reads a state file and the journal that continues it. Returns the boot ID in the file, and the content; `None` =
/// there is no file.
///
/// # Errors
/// Fails if the file is unreadable.
pub(crate) fn read(path: &Path) -> std::result::Result<Option<(String, StoredState)>, Unreadable> {
    let text = match read_owned_file(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Unreadable::File(error)),
    };
    let head: Header = serde_json::from_slice(&text).map_err(Unreadable::Content)?;
    if head.version > VERSION {
        return Err(Unreadable::Newer(head.version));
    }
    let parsed: ParsedContent = serde_json::from_slice(&text).map_err(Unreadable::Content)?;
    let mut saved = StoredState::from(parsed);
    for record in journal::read::<Record>(&path.with_file_name(JOURNAL_FILE), head.number) {
        record.apply(&mut saved);
    }
    Ok(Some((head.boot, saved)))
}

fn file_error(path: &Path, source: std::io::Error) -> Error {
    Error::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
