//! The account of a daemon without rights, and the change of the directory between it and root.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

use rustix::process::geteuid;

use crate::kind::{DIRECTORY, expected_kind};

/// The account of a daemon without rights.
pub const ACCOUNT: &str = "weir";

/// Files that root alone writes: locks, and records from which root reverts changes of the machine.
const OF_ROOT: &[&str] = &[
    "lock",
    "vips.json",
    "vrrp.json",
    "announced.json",
    "real-server.json",
    "real-server.lock",
    "protect.lock",
    "protect.sysctl",
];

/// Whether this process is root, and `owner` is the account of a daemon without rights.
pub(crate) fn is_account(owner: u32) -> bool {
    geteuid().is_root() && weir_sys::account(ACCOUNT).is_some_and(|(user, _)| user == owner)
}

/// The account of a daemon without rights, if the directory belongs to it.
pub fn account_that_owns(directory: &Path) -> Option<u32> {
    let owner = fs::symlink_metadata(directory).ok()?.uid();
    is_account(owner).then_some(owner)
}

/// Gives the directory and Weir's files in it to an account, except those that root alone writes. Errors are logged.
/// This process must be root.
pub fn give(directory: &Path, user: u32) {
    let gave = give_files(directory, user).and_then(|()| lchown(directory, Some(user), None));
    if let Err(error) = gave {
        tracing::warn!(%error, directory = %directory.display(), "could not change the owner of the runtime directory");
    }
}

/// Takes the directory back from the account, if it belongs to it. Errors are logged.
pub fn give_to_root(directory: &Path) {
    if account_that_owns(directory).is_none() {
        return;
    }
    // First, so that the account cannot replace files in the meantime.
    let took = lchown(directory, Some(0), None).and_then(|()| give_files(directory, 0));
    if let Err(error) = took {
        tracing::warn!(%error, directory = %directory.display(), "could not change the owner of the runtime directory");
    }
}

fn give_files(directory: &Path, user: u32) -> io::Result<()> {
    for entry in entries(directory)? {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_str().unwrap_or_default();
        let Some(kind) = expected_kind(name) else {
            continue;
        };
        if OF_ROOT.contains(&name.strip_suffix(".new").unwrap_or(name)) {
            // Root would trust the content.
            if user == 0 && fs::symlink_metadata(&path)?.uid() != 0 {
                remove(&path)?;
            }
            continue;
        }
        if kind == DIRECTORY && fs::symlink_metadata(&path)?.is_dir() {
            for inner in entries(&path)? {
                change(&inner.path(), user)?;
            }
        }
        change(&path, user)?;
    }
    Ok(())
}

/// Changes the owner of a file, not of what a link leads to. A second name of a file of another directory keeps its
/// owner.
fn change(path: &Path, user: u32) -> io::Result<()> {
    let known = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        known => known?,
    };
    if known.uid() == user || (known.is_file() && known.nlink() > 1) {
        return Ok(());
    }
    match lchown(path, Some(user), None) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        changed => changed,
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn entries(directory: &Path) -> io::Result<Vec<fs::DirEntry>> {
    fs::read_dir(directory)?.collect()
}
