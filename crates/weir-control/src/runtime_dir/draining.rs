//! Records draining daemons, which still have clients after their successor has taken over. Each daemon writes a record
//! to the runtime directory. The active daemon shows all records, even after several upgrades.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use weir_sys::replace_file;

use crate::status::{Draining, rfc3339};

/// The directory that contains one file per draining process.
const DIRECTORY: &str = "draining";
/// Interval between updates.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// This daemon's record. Dropping it removes the file.
#[derive(Debug)]
pub struct DrainingRecord {
    path: PathBuf,
    record: Draining,
    next_update: Instant,
}

impl DrainingRecord {
    /// Creates a record. It is first written after one second, because most clients are handed over immediately. Must
    /// be called inside a tokio runtime.
    pub fn new(runtime_dir: &Path) -> Self {
        let pid = std::process::id();
        Self {
            path: runtime_dir.join(DIRECTORY).join(pid.to_string()),
            record: Draining {
                pid,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                since: rfc3339(SystemTime::now()),
                clients: 0,
            },
            next_update: Instant::now() + UPDATE_INTERVAL,
        }
    }

    /// Writes the number of clients if it has changed and an update is due.
    pub fn update(&mut self, clients: impl FnOnce() -> u64) {
        if Instant::now() < self.next_update {
            return;
        }
        self.next_update = Instant::now() + UPDATE_INTERVAL;
        let clients = clients();
        if clients == self.record.clients {
            return;
        }
        self.record.clients = clients;
        if let Err(error) = self.write() {
            tracing::debug!(%error, "failed to record the number of remaining clients");
        }
    }

    fn write(&self) -> std::io::Result<()> {
        if let Some(directory) = self.path.parent() {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(directory)?;
        }
        replace_file(&self.path, &serde_json::to_vec(&self.record)?)
    }
}

impl Drop for DrainingRecord {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the records of this keeper's running daemons, oldest first. Removes the records of dead daemons.
pub(super) fn read_all(runtime_dir: &Path) -> Vec<Draining> {
    let Ok(files) = fs::read_dir(runtime_dir.join(DIRECTORY)) else {
        return Vec::new();
    };
    let mut records: Vec<Draining> = files
        .flatten()
        .filter_map(|file| read_record(&file))
        .collect();
    records.sort_by(|a, b| a.since.cmp(&b.since));
    records
}

fn read_record(file: &fs::DirEntry) -> Option<Draining> {
    // The names of temporary files are not numbers.
    let pid = file.file_name().to_str()?.parse::<u32>().ok()?;
    if parent_of(pid) != Some(parent_id()) {
        let _ = fs::remove_file(file.path());
        return None;
    }
    serde_json::from_slice(&fs::read(file.path()).ok()?).ok()
}

/// Returns the parent's process ID; `None` = the process does not exist (proc(5): `stat`; the process name can contain
/// any character).
fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, remainder) = stat.rsplit_once(')')?;
    remainder.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_clients_are_recorded_until_drop() {
        let directory = std::env::temp_dir().join(format!("weir-draining-{}", std::process::id()));
        let mut draining = DrainingRecord::new(&directory);
        draining.update(|| 7);
        assert!(
            read_all(&directory).is_empty(),
            "the first record is written after the interval"
        );
        draining.next_update = Instant::now();
        draining.update(|| 7);
        let record = read_all(&directory);
        assert_eq!((record.len(), record[0].clients), (1, 7));
        assert_eq!(record[0].pid, std::process::id());
        // Process 1 is not a Weir daemon.
        let foreign = directory.join(DIRECTORY).join("1");
        fs::write(&foreign, fs::read(&draining.path).unwrap()).unwrap();
        assert_eq!(read_all(&directory).len(), 1);
        assert!(!foreign.exists());
        drop(draining);
        assert!(read_all(&directory).is_empty());
        fs::remove_dir_all(directory).unwrap();
    }
}
