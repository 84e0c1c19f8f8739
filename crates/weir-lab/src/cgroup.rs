//! Creates a cgroup for the clients that run on a director.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{LabError, Result};
use crate::session::Session;

/// A cgroup (version 2). Dropping it removes the cgroup. If processes in the cgroup are still exiting, the run removes
/// the cgroup later, by its tag.
#[derive(Debug)]
pub(crate) struct Cgroup(PathBuf);

const REMOVAL_ATTEMPTS: u32 = 50;
const REMOVAL_INTERVAL: Duration = Duration::from_millis(10);

impl Cgroup {
    /// Creates an empty cgroup.
    pub(crate) fn create(session: &Session) -> Result<Self> {
        let path = session.cgroup_directory(&format!("clients-{}", session.next_number()))?;
        std::fs::create_dir(&path).map_err(LabError::file(&path))?;
        Ok(Self(path))
    }

    /// Returns the cgroup's directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..REMOVAL_ATTEMPTS {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(REMOVAL_INTERVAL);
        }
    }
}
