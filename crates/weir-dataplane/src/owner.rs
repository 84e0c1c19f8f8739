//! `PIN_DIR/owner`: the daemon that uses a pin directory, so that a second daemon does not adopt its pins.
//!
//! A symbolic link, because a bpffs has no regular files. Its target is the number of the lock in the daemon's runtime
//! directory, as in `/proc/locks`, and the path of that directory. All processes of one Weir have the same lock: a
//! daemon that was restarted or upgraded uses the pins of its predecessor. A lock that nobody holds is ignored.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use weir_sys::LockFile;

use crate::error::{Context, Error, Result};
use crate::pins::{PinDir, remove_file};

impl PinDir {
    pub(crate) fn owner(&self) -> PathBuf {
        self.path().join("owner")
    }

    pub(crate) fn owner_staging(&self) -> PathBuf {
        self.path().join("owner-next")
    }

    /// Checks that no other daemon uses the directory. `lock` is the lock file in the caller's runtime directory.
    /// Daemons in a different PID namespace are not found.
    ///
    /// # Errors
    /// [`Error::InUse`] if a process holds a different lock.
    pub fn check_owner(&self, lock: &Path) -> Result<()> {
        let Ok(target) = fs::read_link(self.owner()) else {
            return Ok(());
        };
        let target = target.to_string_lossy();
        let Some((number, runtime_dir)) = target.split_once(' ') else {
            return Ok(());
        };
        if LockFile::number(lock).as_deref() == Some(number) {
            return Ok(());
        }
        match LockFile::holder(number) {
            Some(holder) => Err(Error::InUse {
                path: self.path().to_owned(),
                runtime_dir: runtime_dir.into(),
                holder,
            }),
            None => Ok(()),
        }
    }

    /// Records the daemon with this lock file as the user of the directory.
    pub(crate) fn claim(&self, lock: &Path) -> Result<()> {
        self.check_owner(lock)?;
        let Some(number) = LockFile::number(lock) else {
            return Ok(());
        };
        let runtime_dir = lock.parent().unwrap_or(lock).display();
        let target = PathBuf::from(format!("{number} {runtime_dir}"));
        if fs::read_link(self.owner()).is_ok_and(|current| current == target) {
            return Ok(());
        }
        let staging = self.owner_staging();
        remove_file(&staging)?;
        symlink(target, &staging).at(&staging)?;
        fs::rename(&staging, self.owner()).at(&staging)
    }
}
