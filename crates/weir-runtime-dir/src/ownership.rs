//! Changes the owner of the runtime directory between root and the account of an unprivileged daemon.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use rustix::process::geteuid;

use crate::kind::{DIRECTORY, EDITS_SOCKET, UPGRADE_SOCKET, expected_kind};

/// The account of an unprivileged daemon.
pub const ACCOUNT: &str = "weir";

/// Files that only root writes: locks, configurations, sockets of root's processes, and records that root uses to
/// revert changes to the machine.
const ROOT_FILES: &[&str] = &[
    "lock",
    "state.json",
    "state.journal",
    "layer4-configuration",
    "vips.json",
    "vrrp.json",
    "vrrp-configuration",
    "announced.json",
    "announced-speakers.json",
    "announce-configuration",
    "real-server.json",
    "real-server.lock",
    "protect.lock",
    "protect.sysctl",
    EDITS_SOCKET,
    UPGRADE_SOCKET,
];

/// Returns whether this process runs as root and `owner` is the account of an unprivileged daemon.
pub(crate) fn is_daemon_account(owner: u32) -> bool {
    geteuid().is_root() && weir_sys::account(ACCOUNT).is_some_and(|(user, _)| user == owner)
}

/// Mode of a directory that root and the account share: the account can remove only its own files.
const SHARED_MODE: u32 = 0o1770;
/// Mode of a shared directory if a group may use the socket: other users can enter the directory, but cannot list or
/// change it.
const SHARED_GROUP_MODE: u32 = 0o1771;
const STICKY: u32 = 0o1000;

/// Returns the account of an unprivileged daemon if the directory belongs to the account, or if root shares it with the
/// account.
pub fn owning_account(directory: &Path) -> Option<u32> {
    let metadata = fs::symlink_metadata(directory).ok()?;
    if is_shared(directory) {
        return weir_sys::account(ACCOUNT).map(|(user, _)| user);
    }
    is_daemon_account(metadata.uid()).then_some(metadata.uid())
}

/// How root shares a directory with the account ([`share`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    mode: u32,
}

/// Returns how root shares the directory with the account; `None` = it is not shared.
pub fn sharing(directory: &Path) -> Option<Sharing> {
    let metadata = fs::symlink_metadata(directory).ok()?;
    let (_, group) = weir_sys::account(ACCOUNT)?;
    let is_shared = metadata.uid() == 0 && metadata.mode() & STICKY != 0 && metadata.gid() == group;
    is_shared.then_some(Sharing {
        mode: metadata.mode() & 0o7777,
    })
}

fn is_shared(directory: &Path) -> bool {
    sharing(directory).is_some()
}

/// Shares a directory again, with its previous mode, after it temporarily had a different owner. Logs errors.
pub fn restore_sharing(directory: &Path, Sharing { mode }: Sharing) {
    share(directory);
    let changed = match sharing(directory) {
        Some(current) if current.mode != mode => {
            fs::set_permissions(directory, fs::Permissions::from_mode(mode))
        }
        _ => Ok(()),
    };
    if let Err(error) = changed {
        tracing::warn!(%error, directory = %directory.display(), "failed to change the mode of the runtime directory");
    }
}

/// Shares a directory of the account between root and the account. Both can write files, but the account can neither
/// replace nor remove root's files. Removes files that only root may write if they belong to another account. Does
/// nothing if the directory neither belongs to the account nor is shared. Logs errors. This process must run as root.
pub fn share(directory: &Path) {
    let Some((user, group)) = weir_sys::account(ACCOUNT).filter(|_| geteuid().is_root()) else {
        return;
    };
    let shared = fs::symlink_metadata(directory).and_then(|metadata| {
        if metadata.uid() != user && !is_shared(directory) {
            return Ok(());
        }
        if metadata.uid() == user {
            let has_group_access = metadata.gid() != group && metadata.mode() & 0o010 != 0;
            let mode = if has_group_access {
                SHARED_GROUP_MODE
            } else {
                SHARED_MODE
            };
            // The directory's owner is changed first, so that the account cannot replace files in the meantime.
            lchown(directory, Some(0), Some(group))?;
            fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
        }
        remove_untrusted_files(directory)
    });
    if let Err(error) = shared {
        tracing::warn!(%error, directory = %directory.display(), "failed to change the owner of the runtime directory");
    }
}

/// Shares a directory of root with the account of a daemon that is unprivileged from the start (see [`share`]).
/// `has_group_access`: other users may enter the directory, because a group may use the socket. Logs errors. This
/// process must run as root.
pub fn share_from_start(directory: &Path, has_group_access: bool) {
    let Some((user, group)) = weir_sys::account(ACCOUNT).filter(|_| geteuid().is_root()) else {
        return;
    };
    let mode = if has_group_access {
        SHARED_GROUP_MODE
    } else {
        SHARED_MODE
    };
    let shared = || {
        // The account cannot write to the directory yet.
        chown_files(directory, user)?;
        remove_untrusted_files(directory)?;
        lchown(directory, Some(0), Some(group))?;
        fs::set_permissions(directory, fs::Permissions::from_mode(mode))
    };
    if let Err(error) = shared() {
        tracing::warn!(%error, directory = %directory.display(), "failed to change the owner of the runtime directory");
    }
}

/// Changes the owner of a socket in the directory to the account of an unprivileged daemon, so that the daemon can
/// connect to this process. Does nothing if the account does not use the directory.
///
/// # Errors
/// Fails if the owner cannot be changed.
pub fn chown_socket(directory: &Path, socket: &Path) -> io::Result<()> {
    match owning_account(directory).filter(|_| geteuid().is_root()) {
        Some(user) => lchown(socket, Some(user), None),
        None => Ok(()),
    }
}

/// Removes files that only root may write but that belong to another account, because root would trust their contents.
fn remove_untrusted_files(directory: &Path) -> io::Result<()> {
    for entry in read_entries(directory)? {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_str().unwrap_or_default();
        if ROOT_FILES.contains(&name.strip_suffix(".new").unwrap_or(name))
            && fs::symlink_metadata(&path)?.uid() != 0
        {
            remove_if_exists(&path)?;
        }
    }
    Ok(())
}

/// Ends [`share`]: the directory belongs only to root and has the mode of a private directory.
fn end_sharing(directory: &Path) -> io::Result<()> {
    if is_shared(directory) {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
        lchown(directory, None, Some(0))?;
    }
    Ok(())
}

/// Makes an account the owner of the directory and of Weir's files in it, except files that only root writes. Logs
/// errors. This process must run as root.
pub fn give_to_account(directory: &Path, user: u32) {
    let result = end_sharing(directory)
        .and_then(|()| chown_files(directory, user))
        .and_then(|()| lchown(directory, Some(user), None));
    if let Err(error) = result {
        tracing::warn!(%error, directory = %directory.display(), "failed to change the owner of the runtime directory");
    }
}

/// Makes root the owner again if the account owns or shares the directory. Removes the sockets of root's processes,
/// because earlier versions of Weir do not recognize them; a process that keeps running creates its socket again. Logs
/// errors.
pub fn return_to_root(directory: &Path) {
    if owning_account(directory).is_none() {
        return;
    }
    // The directory's owner is changed first, so that the account cannot replace files in the meantime.
    let result = lchown(directory, Some(0), None)
        .and_then(|()| end_sharing(directory))
        .and_then(|()| chown_files(directory, 0))
        .and_then(|()| remove_if_exists(&directory.join(EDITS_SOCKET)))
        .and_then(|()| remove_if_exists(&directory.join(UPGRADE_SOCKET)));
    if let Err(error) = result {
        tracing::warn!(%error, directory = %directory.display(), "failed to change the owner of the runtime directory");
    }
}

fn chown_files(directory: &Path, user: u32) -> io::Result<()> {
    for entry in read_entries(directory)? {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_str().unwrap_or_default();
        let Some(kind) = expected_kind(name) else {
            continue;
        };
        if ROOT_FILES.contains(&name.strip_suffix(".new").unwrap_or(name)) {
            // Root would trust the file's contents.
            if user == 0 && fs::symlink_metadata(&path)?.uid() != 0 {
                remove_if_exists(&path)?;
            }
            continue;
        }
        if kind == DIRECTORY && fs::symlink_metadata(&path)?.is_dir() {
            for inner in read_entries(&path)? {
                set_owner(&inner.path(), user)?;
            }
        }
        set_owner(&path, user)?;
    }
    Ok(())
}

/// Changes the owner of a file. Does not follow links. Leaves a file with several hard links unchanged, because another
/// directory may contain it.
fn set_owner(path: &Path, user: u32) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    if metadata.uid() == user || (metadata.is_file() && metadata.nlink() > 1) {
        return Ok(());
    }
    match lchown(path, Some(user), None) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        changed => changed,
    }
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn read_entries(directory: &Path) -> io::Result<Vec<fs::DirEntry>> {
    fs::read_dir(directory)?.collect()
}
