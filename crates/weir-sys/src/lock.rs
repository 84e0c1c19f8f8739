//! Locks a file so that only one process at a time can use a runtime directory.
//!
//! The lock uses flock(2): the kernel releases it when the process exits, so a stale file never blocks another process.
//! The process ID in the file is used only for messages.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::file::{NO_LINK, PRIVATE_MODE};
use crate::{Error, Result};

/// An exclusive lock, held until it is dropped. Only its holder may remove the file: a process that opened the file
/// before its removal locks the next file with this name instead.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    file: File,
}

impl LockFile {
    /// Takes the lock at `path` without waiting, and writes this process's ID to the file. The file is created with
    /// mode 0600 if it does not exist. A symbolic link is not followed.
    ///
    /// # Errors
    /// [`Error::Locked`] if the file is already locked; [`Error::NotRegularFile`] if the path is not a regular file;
    /// [`Error::File`] otherwise.
    pub fn acquire(path: impl AsRef<Path>) -> Result<Self> {
        Self::acquire_for(path, std::process::id())
    }

    /// Takes the lock like [`Self::acquire`], on behalf of another process, which receives the descriptor.
    ///
    /// # Errors
    /// See [`Self::acquire`].
    pub fn acquire_for(path: impl AsRef<Path>, process: u32) -> Result<Self> {
        let path = path.as_ref();
        let mut file = loop {
            let file = Self::open_and_lock(path)?;
            if is_same_file(&file, path) {
                break file;
            }
        };
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{process}"))
            .map_err(|error| Error::file(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Opens and locks the file, which may have been removed in between.
    fn open_and_lock(path: &Path) -> Result<File> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE_MODE)
            .custom_flags(NO_LINK)
            .open(path)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ELOOP) => Error::NotRegularFile { path: path.into() },
                _ => Error::file(path, error),
            })?;
        let metadata = file.metadata().map_err(|error| Error::file(path, error))?;
        if !metadata.is_file() {
            return Err(Error::NotRegularFile { path: path.into() });
        }
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let holder = match file.read_to_string(&mut text) {
                    Ok(_) => text.trim().parse().ok(),
                    Err(_) => None,
                };
                Err(Error::Locked {
                    path: path.to_owned(),
                    holder,
                })
            }
            Err(TryLockError::Error(error)) => Err(Error::file(path, error)),
        }
    }

    /// Returns whether a process holds the lock at `path`. Does not take the lock, so a process that starts at the same
    /// time can take it. Also returns `false` if /proc/locks does not show the lock (proc_locks(5)).
    pub fn is_held(path: &Path) -> bool {
        Self::number(path).is_some_and(|number| Self::holder(&number).is_some())
    }

    /// Returns the device and inode of the file at `path`, in the format of /proc/locks. They identify the lock in
    /// every mount namespace; `None` = the file cannot be read.
    pub fn number(path: &Path) -> Option<String> {
        let file = std::fs::symlink_metadata(path).ok()?;
        let (major, minor) = (libc::major(file.dev()), libc::minor(file.dev()));
        Some(format!("{major:02x}:{minor:02x}:{}", file.ino()))
    }

    /// Returns the ID of the process that took the lock with this [`Self::number`]; 0 = the ID is unknown, `None` = the
    /// lock is free, or /proc/locks does not show it.
    pub fn holder(number: &str) -> Option<u32> {
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        let mut flocks = locks.lines().filter(|line| line.contains(" FLOCK "));
        flocks.find_map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let pair = words.windows(2).find(|pair| pair[1] == number)?;
            Some(pair[0].parse().unwrap_or(0))
        })
    }

    /// Returns the path of the lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns whether `path` is still the name of an open file.
fn is_same_file(file: &File, path: &Path) -> bool {
    let named = std::fs::symlink_metadata(path);
    file.metadata().is_ok_and(|open| {
        named.is_ok_and(|named| (open.dev(), open.ino()) == (named.dev(), named.ino()))
    })
}

/// A process that receives the descriptor also holds the lock, until it closes the descriptor or exits.
impl AsFd for LockFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_contains_process_id_of_holder() {
        let path = std::env::temp_dir().join(format!("weir-lock-{}", std::process::id()));
        let first = LockFile::acquire(&path).unwrap();
        assert_eq!(first.path(), path);
        match LockFile::acquire(&path) {
            Err(Error::Locked { holder, .. }) => assert_eq!(holder, Some(std::process::id())),
            other => panic!("expected Error::Locked, got {other:?}"),
        }
        assert!(LockFile::is_held(&path));
        drop(first);
        assert!(!LockFile::is_held(&path));
        LockFile::acquire(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn symbolic_link_is_not_followed() {
        let directory = std::env::temp_dir().join(format!("weir-lock-link-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (target, path) = (directory.join("target"), directory.join("lock"));
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let error = LockFile::acquire(&path).unwrap_err();
        assert!(matches!(error, Error::NotRegularFile { .. }), "{error}");
        assert!(!target.exists());
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn error_contains_the_path_if_the_directory_is_missing() {
        let error = LockFile::acquire("/nonexistent/weir.lock").unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/weir.lock: "));
    }

    #[test]
    fn removed_file_is_not_the_lock() {
        let path = std::env::temp_dir().join(format!("weir-unlinked-{}", std::process::id()));
        let holder = LockFile::acquire(&path).unwrap();
        let opened = File::open(&path).unwrap();
        assert!(is_same_file(&opened, &path));
        std::fs::remove_file(&path).unwrap();
        assert!(!is_same_file(&opened, &path));
        drop(holder);
        let next = LockFile::acquire(&path).unwrap();
        assert!(!is_same_file(&opened, &path));
        assert!(LockFile::acquire(&path).is_err());
        drop(next);
        std::fs::remove_file(&path).unwrap();
    }
}
