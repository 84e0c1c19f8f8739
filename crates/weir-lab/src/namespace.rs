//! Creates and removes named network namespaces, as `ip netns` does. Dropping the guard of a namespace removes it.
//!
//! The lab starts programs in a namespace with `nsenter --net`, which changes only the network namespace: the host's
//! mounts, and therefore its bpffs and files, remain visible. The lab itself enters a namespace on a short-lived
//! thread.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::process::{Pid, Signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{LabError, Result};
use crate::process;

const DIRECTORY: &str = "/run/netns";

/// A network namespace. Dropping it removes the namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace and brings its loopback interface up.
    pub(crate) fn create(name: &str) -> Result<Self> {
        process::run("ip", &["netns", "add", name])?;
        let namespace = Namespace {
            name: name.to_owned(),
        };
        process::run("ip", &["-n", name, "link", "set", "dev", "lo", "up"])?;
        Ok(namespace)
    }

    /// Returns the name in `/run/netns`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the file that refers to the namespace.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(DIRECTORY).join(&self.name)
    }

    /// Runs `work` on a thread in the namespace. Sockets that it opens belong to the namespace, and `/proc/sys/net` and
    /// `/proc/thread-self/net` contain the namespace's values.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = self.path();
        let enter_and_work = || {
            let file = File::open(&path).map_err(|source| self.error(source))?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|errno| self.error(errno.into()))?;
            work()
        };
        std::thread::scope(|scope| match scope.spawn(enter_and_work).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Sets sysctls. Each is a pair of a path relative to `/proc/sys` (`net/…`) and a value.
    pub(crate) fn set_sysctls(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.enter(|| {
            for (key, value) in settings {
                let path = PathBuf::from("/proc/sys").join(key);
                std::fs::write(&path, value).map_err(LabError::file(path))?;
            }
            Ok(())
        })
    }

    fn error(&self, source: std::io::Error) -> LabError {
        LabError::Namespace {
            name: self.name.clone(),
            source,
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Kills all processes in the namespace `name`, including orphans such as workers of a killed nginx, and removes the
/// namespace. Only the lab starts processes in its namespaces.
pub(crate) fn remove(name: &str) {
    // Best effort: the next run tries to remove leftover namespaces.
    if let Ok(listing) = process::run("ip", &["netns", "pids", name]) {
        for pid in listing
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .filter_map(Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
    let _ = process::run("ip", &["netns", "delete", name]);
}

/// Returns the names of all namespaces whose names start with `prefix`.
pub(crate) fn names_with_prefix(prefix: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(DIRECTORY) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|n| n.starts_with(prefix))
        .collect()
}
