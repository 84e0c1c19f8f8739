//! `net.ipv4.tcp_migrate_req` while it is needed: connections that a closing socket has not accepted go to another
//! socket of the same address.
//!
//! The former value is written down before it is changed, so that it is put back also after a death.

use std::fs;
use std::path::{Path, PathBuf};

use weir_netlink::Sysctl;
use weir_sys::{LockFile, replace_file};

use crate::{Error, io_error};

const NAME: &str = "net/ipv4/tcp_migrate_req";
const FILE: &str = "protect.sysctl";

/// See the module.
#[derive(Debug)]
struct Migration {
    file: PathBuf,
}

/// Being the one protection that there is, with the sysctl on; both until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    migration: Migration,
    /// Behind the other, so that whoever comes next finds the former value.
    _lock: LockFile,
}

impl Turn {
    /// Under the lock.
    pub(crate) fn begin(lock: LockFile, runtime_dir: &Path) -> Result<Self, Error> {
        Ok(Self {
            migration: Migration::begin(runtime_dir)?,
            _lock: lock,
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.migration.restore();
    }
}

impl Migration {
    /// Turns it on, where the kernel has it (Linux 5.14).
    fn begin(runtime_dir: &Path) -> Result<Self, Error> {
        let migration = Self {
            file: runtime_dir.join(FILE),
        };
        migration.restore();
        let sysctl = Sysctl::new(NAME)?;
        let Some(former) = sysctl.find()?.filter(|former| former == "0") else {
            return Ok(migration);
        };
        let file = &migration.file;
        replace_file(file, former.as_bytes()).map_err(io_error(file.display().to_string()))?;
        if let Err(error) = sysctl.set("1") {
            // A container may not; it only helps.
            tracing::info!(%error, "connections are not moved between sockets");
        }
        Ok(migration)
    }

    fn restore(&self) {
        let Ok(former) = fs::read_to_string(&self.file) else {
            return;
        };
        let restored = Sysctl::new(NAME).and_then(|sysctl| sysctl.set(&former));
        match restored {
            Ok(_) => drop(fs::remove_file(&self.file)),
            Err(error) => tracing::warn!(%error, "{NAME} was not put back"),
        }
    }
}

/// Puts back what a protection that was killed has left; for `weir clean`.
pub fn restore(runtime_dir: &Path) {
    Migration {
        file: runtime_dir.join(FILE),
    }
    .restore();
}
