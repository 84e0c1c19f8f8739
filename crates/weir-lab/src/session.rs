//! Manages a run of the lab: its tag and directory, and the removal of objects that crashed runs left behind.
//!
//! The names of all objects of a run contain its tag, `weir-lab-PID-N`: namespaces, the directory in `/run`, cgroups,
//! and pin directories in bpffs. The process locks the directory until it exits, which distinguishes active runs from
//! crashed ones. The process ID is not sufficient, because the kernel reuses IDs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};

use crate::error::{LabError, Result};
use crate::namespace;
use crate::process;

const PREFIX: &str = "weir-lab-";
const RUN_DIRECTORY: &str = "/run";
const BPF_DIRECTORY: &str = "/sys/fs/bpf";
const LOCK_FILE: &str = "lock";
/// Name of the mount point for cgroup2, if the machine has not mounted it.
const CGROUP_MOUNT: &str = "cgroup2";

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A run of the lab.
#[derive(Debug)]
pub(crate) struct Session {
    tag: String,
    directory: PathBuf,
    next: AtomicU32,
    /// Holds the lock; closing it ends the run.
    _lock: File,
}

impl Session {
    /// Removes the objects of crashed runs, then starts a new run.
    pub(crate) fn open() -> Result<Self> {
        remove_crashed_runs();
        let tag = format!(
            "{PREFIX}{}-{}",
            std::process::id(),
            COUNTER.fetch_add(1, Ordering::Relaxed)
        );
        let directory = Path::new(RUN_DIRECTORY).join(&tag);
        // Lock the directory under a hidden name first, so that a concurrent cleanup never finds it unlocked.
        let hidden = Path::new(RUN_DIRECTORY).join(format!(".{tag}"));
        let _ = std::fs::remove_dir_all(&hidden);
        std::fs::create_dir(&hidden).map_err(LabError::file(&hidden))?;
        let lock =
            File::create(hidden.join(LOCK_FILE)).map_err(LabError::file(hidden.join(LOCK_FILE)))?;
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

    /// Returns the tag, which is the prefix of all names of this run.
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns a number that is unique in this run.
    pub(crate) fn next_number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a directory of this run. Creates it if necessary.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        std::fs::create_dir_all(&path).map_err(LabError::file(&path))?;
        Ok(path)
    }

    /// Returns the directory of a cgroup `name`, which the caller creates. Mounts cgroup2 if necessary.
    pub(crate) fn cgroup_directory(&self, name: &str) -> Result<PathBuf> {
        let name = format!("{}-{name}", self.tag);
        if let Some(root) = mounted_cgroups() {
            return Ok(root.join(name));
        }
        let root = self.directory.join(CGROUP_MOUNT);
        if !root.join("cgroup.procs").exists() {
            self.directory(CGROUP_MOUNT)?;
            let target = root.display().to_string();
            process::run("mount", &["-t", "cgroup2", "none", &target])?;
        }
        Ok(root.join(name))
    }

    /// Returns the pin directory for a program `name`; Weir creates it.
    pub(crate) fn pin_directory(&self, name: &str) -> PathBuf {
        Path::new(BPF_DIRECTORY).join(format!("{}-{name}", self.tag))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        remove_run(&self.tag);
    }
}

/// Removes all objects of runs whose lock is not held.
fn remove_crashed_runs() {
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
        let Ok(lock) = File::open(entry.path().join(LOCK_FILE)) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            eprintln!("removing objects of a crashed run ({tag})");
            remove_run(&tag);
        }
    }
}

/// Removes the objects of a run. The directory is removed last, so that another cleanup can find the remaining objects.
fn remove_run(tag: &str) {
    let prefix = format!("{tag}-");
    for name in namespace::names_with_prefix(&prefix) {
        namespace::remove(&name);
    }
    if let Ok(entries) = std::fs::read_dir(BPF_DIRECTORY) {
        for entry in entries
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with(&prefix))
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let directory = Path::new(RUN_DIRECTORY).join(tag);
    if !remove_cgroups(&directory.join(CGROUP_MOUNT), &prefix) {
        // Removing the directory would remove other programs' cgroups.
        return;
    }
    let _ = std::fs::remove_dir_all(directory);
}

/// Returns the path at which the machine has mounted the whole cgroup2 hierarchy; `None` = it is not mounted below
/// `/sys`.
fn mounted_cgroups() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind) = (fields.next()?, fields.next()?);
        let usable = kind == "cgroup2" && path.starts_with("/sys/");
        usable.then(|| PathBuf::from(path))
    })
}

/// Removes cgroups whose names start with `prefix`, and unmounts the run's mount. Returns whether the mount is gone.
fn remove_cgroups(mount: &Path, prefix: &str) -> bool {
    for root in mounted_cgroups()
        .iter()
        .map(PathBuf::as_path)
        .chain([mount])
    {
        for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                let _ = std::fs::remove_dir(entry.path());
            }
        }
    }
    if mount.join("cgroup.procs").exists() {
        let _ = process::run("umount", &["-l", &mount.display().to_string()]);
    }
    !mount.join("cgroup.procs").exists()
}
