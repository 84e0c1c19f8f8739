//! Enables `net.ipv4.tcp_migrate_req` while connections are held.
//!
//! With this sysctl, when a listening socket closes, the kernel moves the connections that it has not accepted to
//! another socket with the same address. The previous value is saved before it is changed, so that it can be restored
//! even after a crash.

use std::fs;
use std::path::{Path, PathBuf};

use weir_netlink::Sysctl;
use weir_sys::{LockFile, read_owned_file, replace_file};

use crate::error::{Error, io_error};

const SYSCTL: &str = "net/ipv4/tcp_migrate_req";
/// File in the runtime directory that contains the previous value.
const RECORD_FILE: &str = "protect.sysctl";

/// The file that records the previous value of the sysctl.
#[derive(Debug)]
struct Migration {
    file: PathBuf,
}

/// Holds the lock of `weir protect` and keeps the sysctl enabled until it is dropped.
#[derive(Debug)]
pub(crate) struct ProtectionGuard {
    migration: Migration,
    /// Dropped last, so that the next `weir protect` reads the restored value.
    _lock: LockFile,
}

impl ProtectionGuard {
    /// Enables the sysctl. The guard holds `lock` until it is dropped.
    pub(crate) fn begin(lock: LockFile, runtime_dir: &Path) -> Result<Self, Error> {
        Ok(Self {
            migration: Migration::begin(runtime_dir)?,
            _lock: lock,
        })
    }
}

impl Drop for ProtectionGuard {
    fn drop(&mut self) {
        self.migration.restore();
    }
}

impl Migration {
    /// Enables the sysctl if the kernel supports it (Linux 5.14).
    fn begin(runtime_dir: &Path) -> Result<Self, Error> {
        let migration = Self {
            file: runtime_dir.join(RECORD_FILE),
        };
        migration.restore();
        let sysctl = Sysctl::new(SYSCTL)?;
        let Some(previous) = sysctl.find()?.filter(|previous| previous == "0") else {
            return Ok(migration);
        };
        let file = &migration.file;
        replace_file(file, previous.as_bytes()).map_err(io_error(file.display().to_string()))?;
        if let Err(error) = sysctl.set("1") {
            // A container might not be permitted to set the sysctl; protection works without it.
            tracing::info!(%error, "failed to enable tcp_migrate_req: connections are not moved between sockets");
        }
        Ok(migration)
    }

    /// Restores the previous value if a file records one.
    fn restore(&self) {
        // The account of an unprivileged daemon can also write to the directory; its files are ignored.
        let recorded = read_owned_file(&self.file).map(String::from_utf8);
        let Ok(Ok(previous)) = recorded else {
            return;
        };
        let restored = Sysctl::new(SYSCTL).and_then(|sysctl| sysctl.set(previous.trim()));
        match restored {
            Ok(_) => drop(fs::remove_file(&self.file)),
            Err(error) => tracing::warn!(%error, "failed to restore {SYSCTL}"),
        }
    }
}

/// Restores the sysctl for `weir clean` after `weir protect` was killed.
pub fn restore(runtime_dir: &Path) {
    Migration {
        file: runtime_dir.join(RECORD_FILE),
    }
    .restore();
}
