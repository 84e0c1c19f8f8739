//! Records draining daemons, which still have clients after their successor has taken over.
//!
//! Each draining daemon writes a record to the runtime directory. The active daemon shows all records, even after
//! several upgrades, and adds their connections to those of its own servers.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use weir_sys::replace_file;

use crate::status::{Draining, rfc3339};

/// The directory that contains one file per draining process.
const DIRECTORY: &str = "draining";
/// Interval between updates.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// The remaining connections of a draining daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemainingConnections {
    /// Number of clients.
    pub clients: u64,
    /// Pool, server and the number of active connections to it, for each server that has any.
    pub servers: Vec<(String, String, u64)>,
}

/// The content of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    draining: Draining,
    /// See [`RemainingConnections::servers`]. Earlier versions neither write nor read this.
    #[serde(default)]
    servers: Vec<(String, String, u64)>,
}

/// This daemon's record. Dropping it removes the file.
#[derive(Debug)]
pub struct DrainingRecord {
    path: PathBuf,
    record: Record,
    /// When the number of clients is first recorded.
    shows_clients_at: Instant,
    next_update: Instant,
}

impl DrainingRecord {
    /// Creates a record. The status shows it after one second, because most clients are handed over immediately. Must
    /// be called inside a tokio runtime.
    pub fn new(runtime_dir: &Path) -> Self {
        let pid = std::process::id();
        Self {
            path: runtime_dir.join(DIRECTORY).join(pid.to_string()),
            record: Record {
                draining: Draining {
                    pid,
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    since: rfc3339(SystemTime::now()),
                    clients: 0,
                },
                servers: Vec::new(),
            },
            shows_clients_at: Instant::now() + UPDATE_INTERVAL,
            next_update: Instant::now(),
        }
    }

    /// Records the remaining connections if they have changed and an update is due.
    pub fn update(&mut self, remaining: impl FnOnce() -> RemainingConnections) {
        let now = Instant::now();
        if now < self.next_update {
            return;
        }
        self.next_update = now + UPDATE_INTERVAL;
        let RemainingConnections { clients, servers } = remaining();
        let clients = if now < self.shows_clients_at {
            0
        } else {
            clients
        };
        if (clients, &servers) == (self.record.draining.clients, &self.record.servers) {
            return;
        }
        self.record.draining.clients = clients;
        self.record.servers = servers;
        if let Err(error) = self.write() {
            tracing::debug!(%error, "failed to record the remaining connections");
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

/// Returns this keeper's draining daemons that have clients, oldest first. Removes records whose process has exited or
/// is not a child of this keeper.
pub(super) fn read_all(runtime_dir: &Path) -> Vec<Draining> {
    let records = read_records(runtime_dir).map(|record| record.draining);
    let mut daemons: Vec<Draining> = records.filter(|daemon| daemon.clients > 0).collect();
    daemons.sort_by(|a, b| a.since.cmp(&b.since));
    daemons
}

/// Returns the number of a server's active connections in all draining daemons.
pub(super) fn connections(runtime_dir: &Path, pool: &str, server: &str) -> u64 {
    let servers = read_records(runtime_dir).flat_map(|record| record.servers);
    let matching = servers.filter(|(its_pool, name, _)| its_pool == pool && name == server);
    matching.map(|(_, _, connections)| connections).sum()
}

fn read_records(runtime_dir: &Path) -> impl Iterator<Item = Record> {
    let files = fs::read_dir(runtime_dir.join(DIRECTORY));
    let files = files.into_iter().flatten().flatten();
    files.filter_map(|file| read_record(&file))
}

fn read_record(file: &fs::DirEntry) -> Option<Record> {
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
        let remaining = || RemainingConnections {
            clients: 7,
            servers: vec![("p".to_owned(), "10.0.0.5:80".to_owned(), 3)],
        };
        draining.update(remaining);
        assert!(
            read_all(&directory).is_empty(),
            "the status shows the record too early"
        );
        assert_eq!(connections(&directory, "p", "10.0.0.5:80"), 3);
        assert_eq!(connections(&directory, "p", "10.0.0.5"), 0);
        assert_eq!(connections(&directory, "q", "10.0.0.5:80"), 0);
        (draining.next_update, draining.shows_clients_at) = (Instant::now(), Instant::now());
        draining.update(remaining);
        let record = read_all(&directory);
        assert_eq!((record.len(), record[0].clients), (1, 7));
        assert_eq!(record[0].pid, std::process::id());
        // Process 1 is not a Weir daemon.
        let foreign = directory.join(DIRECTORY).join("1");
        fs::write(&foreign, fs::read(&draining.path).unwrap()).unwrap();
        assert_eq!(read_all(&directory).len(), 1);
        assert!(!foreign.exists());
        // A record of an earlier version.
        let text = serde_json::to_vec(&draining.record.draining).unwrap();
        fs::write(&draining.path, text).unwrap();
        assert_eq!(read_all(&directory)[0].clients, 7);
        assert_eq!(connections(&directory, "p", "10.0.0.5:80"), 0);
        drop(draining);
        assert!(read_all(&directory).is_empty());
        fs::remove_dir_all(directory).unwrap();
    }
}
