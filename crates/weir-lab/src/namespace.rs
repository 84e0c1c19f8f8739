//! Named network namespaces, as `ip netns` keeps them under `/run/netns`, owned and removed by a guard.
//!
//! Programs are started inside through `nsenter --net`, which changes the network only: mounts stay the host's, so that
//! bpffs and files look the same on both sides. The lab's own code enters on a short-lived thread.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::process::{Pid, Signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{LabError, Result};
use crate::process;

const DIRECTORY: &str = "/run/netns";

/// A network namespace that exists as long as this value.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace and brings its loopback up.
    pub(crate) fn create(name: &str) -> Result<Self> {
        process::run("ip", &["netns", "add", name])?;
        let namespace = Namespace {
            name: name.to_owned(),
        };
        process::run("ip", &["-n", name, "link", "set", "dev", "lo", "up"])?;
        Ok(namespace)
    }

    /// The name under `/run/netns`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The file of the namespace.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(DIRECTORY).join(&self.name)
    }

    /// Runs `work` on a thread inside the namespace. Sockets that it opens belong to the namespace; `/proc/sys/net` and
    /// `/proc/thread-self/net` show the namespace's values.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = self.path();
        let inside = || {
            let file = File::open(&path).map_err(|source| self.error(source))?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|errno| self.error(errno.into()))?;
            work()
        };
        std::thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Writes kernel settings, given as `net/…` path below `/proc/sys` and value.
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

/// Ends every process inside the namespace `name` and deletes it. The lab's namespaces hold only what the lab started,
/// so this also ends a grandchild whose parent died early, such as a worker of a killed nginx.
pub(crate) fn remove(name: &str) {
    // Removal goes as far as it can: a namespace that will not go is reported by the next run, which tries again.
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

/// Names of all namespaces that begin with `prefix`.
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
