//! `RUNTIME_DIR/state.json`: what the maps cannot say, and what is to be undone.
//!
//! Written whole and by rename, before the change that it describes where undoing depends on it. The kernel forgets its part
//! at boot; the boot's identifier tells a file that outlived one. A file that is missing or cannot be read costs overrides,
//! totals of servers that are gone and the memory of what to undo, never traffic: [`super::adopt`] finds the rows again.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_sys::boot_id;

use super::allocation::Allocation;
use super::overrides::Overrides;
use super::{Error, Result};

const VERSION: u32 = 1;
const FILE: &str = "state.json";

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
}

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    boot: String,
    #[serde(flatten)]
    memory: Memory,
}

/// The file of a runtime directory.
#[derive(Clone, Debug)]
pub(super) struct StateFile {
    path: PathBuf,
}

impl StateFile {
    /// In that directory, which is made when needed.
    pub(super) fn new(runtime_dir: &Path) -> Self {
        Self {
            path: runtime_dir.join(FILE),
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
        match serde_json::from_slice::<Content>(&text) {
            Ok(content) if content.version > VERSION => Err(Error::StateVersion {
                path: self.path.clone(),
                found: content.version,
            }),
            Ok(content) => {
                let Content {
                    boot, mut memory, ..
                } = content;
                if boot != boot_id()? {
                    // Maps, addresses and neighbours went with the kernel that had them.
                    memory.allocation = Allocation::default();
                    memory.undo = Undo::default();
                }
                Ok(Some(memory))
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the state cannot be read and is made anew");
                Ok(None)
            }
        }
    }

    /// Replaces it in one step.
    ///
    /// # Errors
    /// The directory cannot be written to; the former file stays.
    pub(super) fn write(&self, memory: &Memory) -> Result<()> {
        let file_error = |path: &Path, source| Error::File {
            path: path.to_owned(),
            source,
        };
        let content = Content {
            version: VERSION,
            boot: boot_id()?,
            memory: memory.clone(),
        };
        let mut text =
            serde_json::to_vec(&content).map_err(|error| file_error(&self.path, error.into()))?;
        text.push(b'\n');
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory).map_err(|source| file_error(directory, source))?;
        }
        let new = self.path.with_extension("json.new");
        let written = fs::File::create(&new).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        written.map_err(|source| file_error(&new, source))?;
        fs::rename(&new, &self.path).map_err(|source| file_error(&self.path, source))
    }

    /// Removes it.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub(super) fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(source) if source.kind() != ErrorKind::NotFound => Err(Error::File {
                path: self.path.clone(),
                source,
            }),
            _ => Ok(()),
        }
    }
}
