//! `RUNTIME_DIR/proxy.json`: the overrides of all servers, and the count of configurations while there is no layer 4
//! engine.
//!
//! The file owns the overrides of both planes. A request is written here before it is applied; `state.json` contains a
//! copy for 0.1.0, which reads the overrides of layer 4 there.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use weir_model::Desired;
use weir_state::{OrderFile, Overrides, SavedServers, ServerStates};
use weir_sys::replace_file;

const FILE: &str = "proxy.json";

/// The file of a runtime directory.
#[derive(Debug)]
pub(super) struct OrderStore {
    path: PathBuf,
    revision: u64,
    fingerprint: u64,
}

impl OrderStore {
    /// Opens the file of a runtime directory; returns its overrides too, `None` = it is missing or unreadable.
    pub(super) fn open(runtime_dir: &Path) -> (Self, Option<Overrides>) {
        let path = runtime_dir.join(FILE);
        let read = fs::read(&path).and_then(|text| Ok(OrderFile::parse(&text)?));
        let content = match read {
            Ok(content) => Some(content),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "overrides are unreadable");
                None
            }
        };
        let found = content.is_some();
        let OrderFile {
            revision,
            fingerprint,
            overrides,
        } = content.unwrap_or_default();
        let store = Self {
            path,
            revision,
            fingerprint,
        };
        (store, found.then_some(overrides))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of configurations that have been applied.
    pub(super) const fn revision(&self) -> u64 {
        self.revision
    }

    /// Counts an applied configuration, unless it equals the former one.
    pub(super) fn count_revision(&mut self, desired: &Desired, overrides: &Overrides) {
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

    /// Returns the function that adopts the state file when the engine is opened; `is_found`: this file was read.
    pub(super) fn restore(
        &self,
        is_found: bool,
    ) -> impl FnMut(&mut ServerStates, SavedServers) -> weir_engine::Result<()> + use<'_> {
        move |states, saved| {
            if !states.adopt(saved, is_found) {
                return Ok(());
            }
            let written = self.write(states.overrides());
            written.map_err(|source| weir_engine::Error::File {
                path: self.path.clone(),
                source,
            })
        }
    }

    /// Replaces the file atomically.
    pub(super) fn write(&self, overrides: &Overrides) -> io::Result<()> {
        let content = OrderFile {
            revision: self.revision,
            fingerprint: self.fingerprint,
            overrides: overrides.clone(),
        };
        replace_file(&self.path, &content.to_json()?)
    }
}
