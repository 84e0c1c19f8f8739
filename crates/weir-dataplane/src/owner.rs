//! Records in `PIN_DIR/owner` which daemon uses a pin directory, so that a second daemon does not adopt its pins.
//!
//! The record is a symbolic link, because a bpffs has no regular files. Its target is `NUMBER PROCESS RUNTIME_DIR`: the
//! number of the lock in the daemon's runtime directory and the process that took the lock, as in `/proc/locks`, and
//! the path of the runtime directory. All daemons with the same runtime directory use the same lock, so a restarted or
//! upgraded daemon uses the pins of its predecessor. The link has no effect if the recorded process does not hold the
//! lock: either the daemon has exited, or a later daemon with this runtime directory uses a different pin directory.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use weir_sys::LockFile;

use crate::error::{Context, Error, Result};
use crate::pins::{PinDir, remove_file};

/// The contents of the link.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    /// The number of the lock.
    number: String,
    /// ID of the process that took the lock; 0 = unknown.
    process: u32,
    runtime_dir: PathBuf,
}

impl Owner {
    /// Returns the owner that the lock file at `lock` identifies; `None` = the file cannot be read.
    fn of_lock(lock: &Path) -> Option<Self> {
        let number = LockFile::number(lock)?;
        Some(Self {
            process: LockFile::holder(&number).unwrap_or(0),
            number,
            runtime_dir: lock.parent().unwrap_or(lock).to_owned(),
        })
    }

    fn from_target(target: &str) -> Option<Self> {
        let mut words = target.splitn(3, ' ');
        Some(Self {
            number: words.next()?.to_owned(),
            process: words.next()?.parse().ok()?,
            runtime_dir: words.next()?.into(),
        })
    }

    fn to_target(&self) -> String {
        let runtime_dir = self.runtime_dir.display();
        format!("{} {} {runtime_dir}", self.number, self.process)
    }

    fn holds_lock(&self) -> bool {
        LockFile::holder(&self.number) == Some(self.process)
    }
}

impl PinDir {
    pub(crate) fn owner(&self) -> PathBuf {
        self.path().join("owner")
    }

    pub(crate) fn owner_staging(&self) -> PathBuf {
        self.path().join("owner-next")
    }

    /// Checks that no other daemon uses the directory. `lock` is the lock file in the caller's runtime directory. The
    /// check does not find daemons in a different PID namespace.
    ///
    /// # Errors
    /// [`Error::InUse`] if the recorded process holds a different lock.
    pub fn check_owner(&self, lock: &Path) -> Result<()> {
        let Some(owner) = self.read_owner() else {
            return Ok(());
        };
        if LockFile::number(lock).as_ref() == Some(&owner.number) || !owner.holds_lock() {
            return Ok(());
        }
        Err(Error::InUse {
            path: self.path().to_owned(),
            runtime_dir: owner.runtime_dir,
            holder: owner.process,
        })
    }

    /// Creates the directory if necessary, and records the daemon with this lock file as its owner. The daemon must
    /// hold the lock.
    ///
    /// # Errors
    /// Fails if there is no bpffs, another daemon uses the directory, or the directory cannot be written.
    pub fn claim(&self, lock: &Path) -> Result<()> {
        self.prepare()?;
        // If two daemons start at the same time, the second must find the record of the first.
        let directory = File::open(self.path()).at(self.path())?;
        directory.lock().at(self.path())?;
        self.check_owner(lock)?;
        let Some(owner) = Owner::of_lock(lock) else {
            return Ok(());
        };
        if self.read_owner().as_ref() == Some(&owner) {
            return Ok(());
        }
        let staging = self.owner_staging();
        remove_file(&staging)?;
        symlink(owner.to_target(), &staging).at(&staging)?;
        fs::rename(&staging, self.owner()).at(&staging)
    }

    fn read_owner(&self) -> Option<Owner> {
        let target = fs::read_link(self.owner()).ok()?;
        Owner::from_target(&target.to_string_lossy())
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A test's directory on an ordinary file system, which is removed when it is dropped.
    struct Directory {
        path: PathBuf,
    }

    impl Directory {
        fn new(name: &str) -> Self {
            let name = format!("weir-owner-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(path.join("pins")).unwrap();
            Self { path }
        }

        fn pins(&self) -> PinDir {
            PinDir::new(self.path.join("pins"))
        }

        fn lock(&self, name: &str) -> PathBuf {
            fs::create_dir_all(self.path.join(name)).unwrap();
            self.path.join(name).join("lock")
        }

        fn record(&self, owner: &Owner) {
            let _ = fs::remove_file(self.pins().owner());
            symlink(owner.to_target(), self.pins().owner()).unwrap();
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.path);
        }
    }

    #[test]
    fn link_target_round_trips() {
        let owner = Owner {
            number: "00:1a:77".to_owned(),
            process: 42,
            runtime_dir: "/run/weir of a team".into(),
        };
        assert_eq!(Owner::from_target(&owner.to_target()), Some(owner));
        for invalid in ["", "00:1a:77", "00:1a:77 /run/weir", "00:1a:77 x /run/weir"] {
            assert_eq!(Owner::from_target(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn only_the_recorded_holder_of_a_lock_is_an_owner() {
        let directory = Directory::new("holder");
        let (pins, first, second) = (
            directory.pins(),
            directory.lock("first"),
            directory.lock("second"),
        );
        pins.check_owner(&second).unwrap();
        let lock = LockFile::acquire(&first).unwrap();
        let owner = Owner::of_lock(&first).unwrap();
        assert_eq!(owner.process, std::process::id());
        directory.record(&owner);
        // A restarted or upgraded daemon has the same runtime directory.
        pins.check_owner(&first).unwrap();
        let expected = format!(
            "is used by the daemon with the runtime directory {} (pid {})",
            first.parent().unwrap().display(),
            std::process::id()
        );
        for lock_path in [&second, &directory.path.join("missing")] {
            let error = pins.check_owner(lock_path).unwrap_err();
            assert!(error.to_string().contains(&expected), "{error}");
        }
        // The lock's number was reused, or the lock's holder is a later daemon that uses a different pin directory.
        let process = owner.process + 1;
        directory.record(&Owner {
            process,
            ..owner.clone()
        });
        pins.check_owner(&second).unwrap();
        directory.record(&owner);
        drop(lock);
        pins.check_owner(&second).unwrap();
    }

    /// The lock remains held while any process of the daemon is running, even if a different process took it.
    #[test]
    fn inherited_lock_is_held() {
        let directory = Directory::new("inherited");
        let lock = directory.lock("first");
        let mut child = Command::new("flock")
            .args(["--no-fork", "--exclusive"])
            .arg(&lock)
            .args(["sh", "-c", "echo; exec sleep 60"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 1];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let owner = Owner::of_lock(&lock).unwrap();
        assert_eq!(owner.process, child.id());
        directory.record(&owner);
        let other = directory.lock("second");
        assert!(directory.pins().check_owner(&other).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
        directory.pins().check_owner(&other).unwrap();
    }
}
