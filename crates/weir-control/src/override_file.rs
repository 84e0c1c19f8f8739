//! Reads and writes `RUNTIME_DIR/proxy.json`, which contains the overrides of all servers.
//!
//! The file also contains a revision number, which is used while there is no layer 4 engine. This file is the
//! authoritative source of the overrides of both planes. An override is written here before it is applied. `state.json`
//! contains a copy for version 0.1.0, which reads the layer 4 overrides from there.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use weir_model::Desired;
use weir_state::{OverrideFile, Overrides, SavedServers, ServerStates};
use weir_sys::replace_file;

const FILE: &str = "proxy.json";

/// Returns the persisted overrides from a runtime directory; `None` = the file is missing or unreadable.
pub(crate) fn overrides(runtime_dir: &Path) -> Option<weir_state::Overrides> {
    OverrideStore::open(runtime_dir).1
}

/// The overrides file in a runtime directory, and the revision in the file.
#[derive(Debug)]
pub(crate) struct OverrideStore {
    path: PathBuf,
    revision: u64,
    fingerprint: u64,
}

impl OverrideStore {
    /// Opens the file in a runtime directory. Also returns the overrides in the file; `None` = the file is missing or
    /// unreadable.
    pub(crate) fn open(runtime_dir: &Path) -> (Self, Option<Overrides>) {
        let path = runtime_dir.join(FILE);
        let result = fs::read(&path).and_then(|text| Ok(OverrideFile::parse(&text)?));
        let content = match result {
            Ok(content) => Some(content),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "failed to read the overrides");
                None
            }
        };
        let is_found = content.is_some();
        let OverrideFile {
            revision,
            fingerprint,
            overrides,
        } = content.unwrap_or_default();
        let store = Self {
            path,
            revision,
            fingerprint,
        };
        (store, is_found.then_some(overrides))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of configurations that have been applied.
    pub(crate) const fn revision(&self) -> u64 {
        self.revision
    }

    /// Increments the revision and writes the file, unless the configuration equals the previous one.
    pub(crate) fn count_revision(&mut self, desired: &Desired, overrides: &Overrides) {
        let mut hasher = DefaultHasher::new();
        desired.hash(&mut hasher);
        let fingerprint = hasher.finish();
        if fingerprint != self.fingerprint {
            self.revision += 1;
            self.fingerprint = fingerprint;
            if let Err(error) = self.write(overrides) {
                tracing::warn!(%error, "failed to persist the revision of this configuration");
            }
        }
    }

    /// Adds the server states from the engine's state file to `states`. `is_found` is whether the overrides file was
    /// found. If [`ServerStates::adopt`] takes overrides from the state file, writes them to the overrides file.
    ///
    /// # Errors
    /// Fails if the overrides file cannot be written.
    pub(crate) fn adopt(
        &self,
        states: &mut ServerStates,
        saved: SavedServers,
        is_found: bool,
    ) -> io::Result<()> {
        if !states.adopt(saved, is_found) {
            return Ok(());
        }
        self.write(states.overrides())
    }

    /// Replaces the file atomically.
    pub(crate) fn write(&self, overrides: &Overrides) -> io::Result<()> {
        let content = OverrideFile {
            revision: self.revision,
            fingerprint: self.fingerprint,
            overrides: overrides.clone(),
        };
        replace_file(&self.path, &content.to_json()?)
    }
}
