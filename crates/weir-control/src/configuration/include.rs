//! Reads the files that a configuration includes.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use weir_config::{FileError, Files};

use super::read;

/// The files of this machine. Included files are read like the main file.
pub(super) struct Disk {
    /// Permissions that any of the files grants.
    mode: Cell<u32>,
}

impl Disk {
    /// `mode` is the main file's.
    pub(super) const fn new(mode: u32) -> Self {
        Self {
            mode: Cell::new(mode),
        }
    }

    /// Permissions that any of the files read so far grants.
    pub(super) const fn mode(&self) -> u32 {
        self.mode.get()
    }
}

impl Files for Disk {
    fn read(&self, path: &Path) -> Result<(PathBuf, String), String> {
        let reason = |error: FileError| match error {
            FileError::Unreadable { reason, .. } => reason,
            FileError::Missing { .. } => "it does not exist".to_owned(),
            other => other.to_string(),
        };
        let (bytes, mode) = read(path).map_err(reason)?;
        let text = weir_config::load(&bytes).map_err(reason)?;
        self.mode.set(self.mode.get() | mode);
        let name = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok((name, text.to_owned()))
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>, String> {
        let entries = std::fs::read_dir(directory).map_err(|error| error.to_string())?;
        let files = entries.flatten().filter(|entry| entry.path().is_file());
        Ok(files
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect())
    }
}
