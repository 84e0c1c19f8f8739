//! One run of the lab: its tag, its directory, and the removal of what crashed runs left.
//!
//! Everything a run makes carries its tag `weir-lab-PID-N`: namespaces, the directory under `/run`, pin directories in
//! bpffs. A lock on the directory, held until the process ends in whatever way, tells living runs from dead ones; a
//! process id alone would not, since ids come back.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};

use crate::error::{LabError, Result};
use crate::namespace;

const PREFIX: &str = "weir-lab-";
const RUN_DIRECTORY: &str = "/run";
const BPF_DIRECTORY: &str = "/sys/fs/bpf";
const LOCK: &str = "lock";

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A run of the lab.
#[derive(Debug)]
pub(crate) struct Session {
    tag: String,
    directory: PathBuf,
    next: AtomicU32,
    /// Held for its lock; closing it declares the run dead.
    _lock: File,
}

impl Session {
    /// Removes what dead runs left, then starts a new run.
    pub(crate) fn open() -> Result<Self> {
        sweep();
        let tag = format!(
            "{PREFIX}{}-{}",
            std::process::id(),
            COUNTER.fetch_add(1, Ordering::Relaxed)
        );
        let directory = Path::new(RUN_DIRECTORY).join(&tag);
        // Locked under a hidden name first: a sweep that runs at the same time must never see the directory unlocked.
        let hidden = Path::new(RUN_DIRECTORY).join(format!(".{tag}"));
        let _ = std::fs::remove_dir_all(&hidden);
        std::fs::create_dir(&hidden).map_err(LabError::file(&hidden))?;
        let lock = File::create(hidden.join(LOCK)).map_err(LabError::file(hidden.join(LOCK)))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| LabError::file(&hidden)(e.into()))?;
        std::fs::rename(&hidden, &directory).map_err(LabError::file(&directory))?;
        Ok(Session {
            tag,
            directory,
            next: AtomicU32::new(0),
            _lock: lock,
        })
    }

    /// The prefix of every name that this run uses.
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    /// A number that no other topology of this run has.
    pub(crate) fn next_number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A directory of this run, made if absent.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        std::fs::create_dir_all(&path).map_err(LabError::file(&path))?;
        Ok(path)
    }

    /// The pin directory for a program named `name`; Weir makes it.
    pub(crate) fn pin_directory(&self, name: &str) -> PathBuf {
        Path::new(BPF_DIRECTORY).join(format!("{}-{name}", self.tag))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        remove_traces(&self.tag);
    }
}

/// Removes everything of runs whose lock no process holds.
fn sweep() {
    let Ok(entries) = std::fs::read_dir(RUN_DIRECTORY) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(tag) = entry.file_name().into_string() else {
            continue;
        };
        if !tag.starts_with(PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            eprintln!("removing what an earlier run left ({tag})");
            remove_traces(&tag);
        }
    }
}

/// The directory goes last: while it exists, another sweep will find the rest.
fn remove_traces(tag: &str) {
    let own = format!("{tag}-");
    for name in namespace::names_with_prefix(&own) {
        namespace::remove(&name);
    }
    if let Ok(entries) = std::fs::read_dir(BPF_DIRECTORY) {
        for entry in entries
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with(&own))
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let _ = std::fs::remove_dir_all(Path::new(RUN_DIRECTORY).join(tag));
}
