//! Reads configuration files from disk.

use std::cell::Cell;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use weir_config::{FileError, Files, MAX_FILE_BYTES};
use weir_runtime_dir::ACCOUNT;
use weir_sys::privileged;

/// A reader of this machine's files. It reads included files in the same way as the main file.
pub(super) struct Disk {
    /// The union of the permission bits of all files read so far.
    mode: Cell<u32>,
}

impl Disk {
    /// Creates a reader. `mode` contains the main file's permission bits.
    pub(super) const fn new(mode: u32) -> Self {
        Self {
            mode: Cell::new(mode),
        }
    }

    /// Returns the union of the permission bits of all files read so far.
    pub(super) const fn mode(&self) -> u32 {
        self.mode.get()
    }
}

impl Files for Disk {
    fn read(&self, path: &Path) -> Result<(PathBuf, String), String> {
        let reason = |error: FileError| match error {
            FileError::Unreadable { reason, .. } => reason,
            FileError::Missing { .. } => "it does not exist".to_owned(),
            FileError::NoAccess { account, .. } => {
                format!(
                    "the daemon's account {account} cannot read it, or cannot enter a directory above it"
                )
            }
            other => other.to_string(),
        };
        let (bytes, mode) = read(path).map_err(reason)?;
        let text = weir_config::load(&bytes).map_err(reason)?;
        self.mode.set(self.mode.get() | mode);
        let name = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok((name, text.to_owned()))
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>, String> {
        let entries = privileged::list(directory).map_err(|error| error.to_string())?;
        let entries = entries.ok_or("it is not a directory")?;
        let files = entries.iter().filter(|path| !path.is_dir());
        let names = files.filter_map(|path| path.file_name()?.to_str());
        Ok(names.map(str::to_owned).collect())
    }
}

/// Returns the content and the permission bits of a file. Content beyond the size limit is truncated to one byte more
/// than the limit, which [`weir_config::load`] rejects.
pub(super) fn read(path: &Path) -> Result<(Vec<u8>, u32), FileError> {
    let file_error = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => FileError::Missing {
            path: path.to_owned(),
        },
        // Only a daemon that has dropped root privileges has a helper.
        io::ErrorKind::PermissionDenied if privileged::helper().is_some() => FileError::NoAccess {
            path: path.to_owned(),
            account: ACCOUNT,
        },
        _ => FileError::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        },
    };
    let file = privileged::open(path).map_err(file_error)?;
    let metadata = file.metadata().map_err(file_error)?;
    let size = metadata.len();
    if size > MAX_FILE_BYTES {
        return Err(FileError::TooLarge { bytes: size });
    }
    let mut bytes = Vec::new();
    // Check the limit again, because only regular files report their size.
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(file_error)?;
    Ok((bytes, metadata.permissions().mode() & 0o7777))
}
