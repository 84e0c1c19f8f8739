//! The account of a daemon without rights, and the change of the directory between it and root.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use rustix::process::geteuid;

use crate::kind::{DIRECTORY, EDITS_SOCKET, UPGRADE_SOCKET, expected_kind};

/// The account of a daemon without rights.
pub const ACCOUNT: &str = "weir";

/// Files that root alone writes: locks, and records from which root reverts changes of the machine.
const OF_ROOT: &[&str] = &[
    "lock",
    "state.json",
    "state.journal",
    "layer4-configuration",
    "vips.json",
    "vrrp.json",
    "vrrp-configuration",
    "announced.json",
    "announce-configuration",
    "real-server.json",
    "real-server.lock",
    "protect.lock",
    "protect.sysctl",
    EDITS_SOCKET,
    UPGRADE_SOCKET,
];

/// Whether this process is root, and `owner` is the account of a daemon without rights.
pub(crate) fn is_account(owner: u32) -> bool {
    geteuid().is_root() && weir_sys::account(ACCOUNT).is_some_and(|(user, _)| user == owner)
}

/// Mode of a directory that root and the account share: each can remove only its own files.
const SHARED_MODE: u32 = 0o1770;
/// The same if a group may use the socket: without more rights than entering the directory.
const SHARED_GROUP_MODE: u32 = 0o1771;
const STICKY: u32 = 0o1000;

/// The account of a daemon without rights, if the directory belongs to it, or if root shares it with the account.
pub fn account_that_owns(directory: &Path) -> Option<u32> {
    let known = fs::symlink_metadata(directory).ok()?;
    if is_shared(directory) {
        return weir_sys::account(ACCOUNT).map(|(user, _)| user);
    }
    is_account(known.uid()).then_some(known.uid())
}

/// How root shares a directory with the account ([`share`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    mode: u32,
}

/// How root shares the directory with the account; `None`: it does not.
pub fn sharing(directory: &Path) -> Option<Sharing> {
    let known = fs::symlink_metadata(directory).ok()?;
    let (_, group) = weir_sys::account(ACCOUNT)?;
    let is_shared = known.uid() == 0 && known.mode() & STICKY != 0 && known.gid() == group;
    is_shared.then_some(Sharing {
        mode: known.mode() & 0o7777,
    })
}

fn is_shared(directory: &Path) -> bool {
    sharing(directory).is_some()
}

/// Shares a directory again that was given to another owner in between. Errors are logged.
pub fn share_again(directory: &Path, Sharing { mode }: Sharing) {
    share(directory);
    let changed = match sharing(directory) {
        Some(now) if now.mode != mode => {
            fs::set_permissions(directory, fs::Permissions::from_mode(mode))
        }
        _ => Ok(()),
    };
    if let Err(error) = changed {
        tracing::warn!(%error, directory = %directory.display(), "could not change the mode of the runtime directory");
    }
}

/// Lets root and the account write files to the directory: the account can neither replace nor remove those of root,
/// and those that root alone writes are removed if they are the account's. Nothing happens if the directory does not
/// belong to the account. Errors are logged. This process must be root.
pub fn share(directory: &Path) {
    let Some((user, group)) = weir_sys::account(ACCOUNT).filter(|_| geteuid().is_root()) else {
        return;
    };
    let shared = fs::symlink_metadata(directory).and_then(|known| {
        if known.uid() != user && !is_shared(directory) {
            return Ok(());
        }
        if known.uid() == user {
            let is_for_group = known.gid() != group && known.mode() & 0o010 != 0;
            let mode = if is_for_group {
                SHARED_GROUP_MODE
            } else {
                SHARED_MODE
            };
            // First, so that the account cannot replace files in the meantime.
            lchown(directory, Some(0), Some(group))?;
            fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
        }
        remove_planted(directory)
    });
    if let Err(error) = shared {
        tracing::warn!(%error, directory = %directory.display(), "could not change the owner of the runtime directory");
    }
}

/// As [`share`], for an account whose processes have no rights from their start: a directory of root becomes one that
/// both write. `is_for_group`: other accounts may enter it, for the socket of a group. Errors are logged. This process
/// must be root.
pub fn share_from_start(directory: &Path, is_for_group: bool) {
    let Some((user, group)) = weir_sys::account(ACCOUNT).filter(|_| geteuid().is_root()) else {
        return;
    };
    let mode = if is_for_group {
        SHARED_GROUP_MODE
    } else {
        SHARED_MODE
    };
    let shared = || {
        // The account cannot write to the directory yet.
        chown_files(directory, user)?;
        remove_planted(directory)?;
        lchown(directory, Some(0), Some(group))?;
        fs::set_permissions(directory, fs::Permissions::from_mode(mode))
    };
    if let Err(error) = shared() {
        tracing::warn!(%error, directory = %directory.display(), "could not change the owner of the runtime directory");
    }
}

/// Lets a daemon without rights connect to a socket of this process in the directory, if it is the daemon's.
///
/// # Errors
/// The kernel's.
pub fn chown_socket(directory: &Path, socket: &Path) -> io::Result<()> {
    match account_that_owns(directory).filter(|_| geteuid().is_root()) {
        Some(user) => lchown(socket, Some(user), None),
        None => Ok(()),
    }
}

/// Removes files that root alone writes, and that are another account's: root would trust the content.
fn remove_planted(directory: &Path) -> io::Result<()> {
    for entry in entries(directory)? {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_str().unwrap_or_default();
        if OF_ROOT.contains(&name.strip_suffix(".new").unwrap_or(name))
            && fs::symlink_metadata(&path)?.uid() != 0
        {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Ends [`share`]: root's alone, with the mode of a private directory.
fn end_sharing(directory: &Path) -> io::Result<()> {
    if is_shared(directory) {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
        lchown(directory, None, Some(0))?;
    }
    Ok(())
}

/// Gives the directory and Weir's files in it to an account, except those that root alone writes. Errors are logged.
/// This process must be root.
pub fn give(directory: &Path, user: u32) {
    let gave = end_sharing(directory)
        .and_then(|()| chown_files(directory, user))
        .and_then(|()| lchown(directory, Some(user), None));
    if let Err(error) = gave {
        tracing::warn!(%error, directory = %directory.display(), "could not change the owner of the runtime directory");
    }
}

/// Takes the directory back from the account, if it belongs to it. The sockets of processes of root are removed,
/// because an earlier version does not know them; a process that continues creates its own again. Errors are logged.
pub fn return_to_root(directory: &Path) {
    if account_that_owns(directory).is_none() {
        return;
    }
    // First, so that the account cannot replace files in the meantime.
    let took = lchown(directory, Some(0), None)
        .and_then(|()| end_sharing(directory))
        .and_then(|()| chown_files(directory, 0))
        .and_then(|()| remove(&directory.join(EDITS_SOCKET)))
        .and_then(|()| remove(&directory.join(UPGRADE_SOCKET)));
    if let Err(error) = took {
        tracing::warn!(%error, directory = %directory.display(), "could not change the owner of the runtime directory");
    }
}

fn chown_files(directory: &Path, user: u32) -> io::Result<()> {
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
