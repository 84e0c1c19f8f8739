//! A cgroup for the clients on a director.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{LabError, Result};
use crate::session::Session;

/// A cgroup of cgroup2. Dropping it removes it; the run removes it by its tag if processes are still ending.
#[derive(Debug)]
pub(crate) struct Cgroup(PathBuf);

const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);

impl Cgroup {
    /// Creates an empty cgroup.
    pub(crate) fn create(session: &Session) -> Result<Self> {
        let path = session.cgroup_directory(&format!("clients-{}", session.next_number()))?;
        std::fs::create_dir(&path).map_err(LabError::file(&path))?;
        Ok(Self(path))
    }

    /// Returns its directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..ATTEMPTS {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}
