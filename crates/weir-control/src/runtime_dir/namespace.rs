//! Records the network namespace in which the daemon changed addresses and neighbors.
//!
//! The record is the file `RUNTIME_DIR/network-namespace`. `weir clean` reverts these changes by interface name, and
//! the same name can identify a different interface in a different namespace.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use weir_sys::{NetNs, boot_id, replace_file};

use super::{Error, RuntimeDir};

const FILE: &str = "network-namespace";
/// The directory in which `ip netns` stores names.
const NAMES_DIR: &str = "/run/netns";

/// A network namespace other than this process's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherNamespace {
    /// The namespace's inode number, such as 4026532008 in `net:[4026532008]`.
    inode: u64,
    /// The namespace file; `None` = it has no name in `ip netns`.
    path: Option<PathBuf>,
}

impl fmt::Display for OtherNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}", path.display()),
            None => write!(f, "net:[{}]", self.inode),
        }
    }
}

impl OtherNamespace {
    /// Returns the namespace file, for `nsenter --net=`; `None` = the namespace has no name or no longer exists.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns whether the namespace has a name, or contains a process of this PID namespace.
    pub fn exists(&self) -> bool {
        self.path.is_some() || has_process(self.inode)
    }
}

impl RuntimeDir {
    /// Records the network namespace of the calling thread.
    ///
    /// # Errors
    /// Fails if `/proc` is not mounted, or the directory cannot be written.
    pub(crate) fn record_namespace(&self) -> Result<(), Error> {
        let text = format!("{} {}\n", boot_id()?, NetNs::current()?.id()?.inode);
        let path = self.path.join(FILE);
        replace_file(&path, text.as_bytes()).map_err(|source| Error::File { path, source })
    }
}

/// Returns the network namespace that a daemon recorded in the runtime directory, if it is not the calling thread's
/// namespace. A record from an earlier boot is ignored.
///
/// # Errors
/// Fails if `/proc` is not mounted.
pub fn other_namespace(runtime_dir: &Path) -> Result<Option<OtherNamespace>, Error> {
    let Ok(text) = fs::read_to_string(runtime_dir.join(FILE)) else {
        return Ok(None);
    };
    let recorded = text.trim().split_once(' ');
    let Some((boot, Ok(inode))) = recorded.map(|(boot, inode)| (boot, inode.parse())) else {
        return Ok(None);
    };
    if boot != boot_id()? || inode == NetNs::current()?.id()?.inode {
        return Ok(None);
    }
    let path = find_name(inode);
    Ok(Some(OtherNamespace { inode, path }))
}

/// Returns the file of a namespace that has a name in `ip netns`.
fn find_name(inode: u64) -> Option<PathBuf> {
    let entries = fs::read_dir(NAMES_DIR).ok()?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| {
        let id = NetNs::open(path).and_then(|namespace| namespace.id());
        id.is_ok_and(|id| id.inode == inode)
    })
}

fn has_process(inode: u64) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let id = NetNs::open(entry.path().join("ns/net")).and_then(|namespace| namespace.id());
        id.is_ok_and(|id| id.inode == inode)
    })
}
