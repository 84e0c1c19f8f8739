//! Checks and sets the owner and modes of the runtime directory, and defines the names of its files.
//!
//! A user who can write to the directory controls Weir's state and token, and the files that root writes. The directory
//! is therefore owned by root or by the user of the process, and other users cannot access it; members of
//! `[node] socket_group` can access the socket in it. Files are created with mode 0600. This crate restricts the wider
//! modes that earlier versions set and rejects a directory that another user owns. It does not read the contents of the
//! files.
//!
//! While an unprivileged daemon runs, the directory belongs to the daemon's account ([`ACCOUNT`]), except the locks and
//! the records of changes that only root reverts.

mod created;
mod kind;
mod ownership;

use std::fs::{self, DirBuilder, DirEntry, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::process::geteuid;
use weir_model::Node;
use weir_sys::names;

pub use created::ContentBeforeStart;
use kind::{DIRECTORY, FILE, LINK, SOCKET, expected_kind};
pub use kind::{EDITS_SOCKET, UPGRADE_SOCKET};
use ownership::is_daemon_account;
pub use ownership::{
    ACCOUNT, Sharing, chown_socket, give_to_account, owning_account, restore_sharing,
    return_to_root, share, share_from_start, sharing,
};

/// Mode of the directory without a socket group.
const PRIVATE_MODE: u32 = 0o700;
/// Mode of the directory with a socket group.
const GROUP_MODE: u32 = 0o750;

/// Files that [`remove_state_files`] keeps: records of changes that have not been reverted, and locks, because removing
/// a lock file would let a second process take the lock.
const KEPT_FILES: &[&str] = &[
    "lock",
    "real-server.lock",
    "protect.lock",
    "real-server.json",
    "protect.sysctl",
];

/// Why a directory cannot be used as the runtime directory.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    /// The directory or a file in it belongs to another user.
    #[error("{path} is owned by user {owner}; the runtime directory and its files must be owned by root or by the user \
    who runs Weir: remove it, or use another directory with --runtime-dir", path = path.display())]
    Owner {
        /// The path.
        path: PathBuf,
        /// Name of the owner, or the number if the name is unknown.
        owner: String,
    },
    /// A file of the wrong kind, such as a link, device or directory, has the name of one of Weir's files.
    #[error("{path} is {found}, but must be {expected}: remove it", path = path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// The kind of the file.
        found: &'static str,
        /// The expected kind.
        expected: &'static str,
    },
    /// Other users can write to the directory, and it contains files that do not belong to Weir.
    #[error("{path} has mode {mode:04o} and contains {other}, which does not belong to Weir: use a separate \
    directory with --runtime-dir", path = path.display())]
    NotDedicated {
        /// The directory.
        path: PathBuf,
        /// The mode of the directory.
        mode: u32,
        /// The first file that does not belong to Weir.
        other: String,
    },
    /// The group in `[node] socket_group` does not exist.
    #[error("[node] socket_group: the group {group} does not exist")]
    Group {
        /// The configured name.
        group: String,
    },
    /// An I/O error.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The group that may use the control socket in addition to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketAccess {
    /// The group of the directory and of the socket; `None` = the group of the process.
    group: Option<u32>,
    /// Whether the group may use the socket.
    group_may_use: bool,
}

impl SocketAccess {
    /// Reads the settings in `[node]`.
    ///
    /// # Errors
    /// [`RuntimeDirError::Group`]: the group does not exist.
    pub fn from_node(node: &Node) -> Result<Self, RuntimeDirError> {
        let group = node.socket_group.as_ref().map(|group| {
            names::group_id(group).ok_or_else(|| RuntimeDirError::Group {
                group: group.clone(),
            })
        });
        Ok(Self {
            group: group.transpose()?,
            group_may_use: node.socket_mode.is_for_group(),
        })
    }

    /// Returns the mode of the socket.
    pub const fn socket_mode(self) -> u32 {
        if self.group_may_use { 0o660 } else { 0o600 }
    }

    /// Sets the group and mode of the directory.
    ///
    /// # Errors
    /// Fails if the process is neither root nor a member of that group, or if the group cannot enter a directory that
    /// root shares with this process.
    pub fn apply_to_directory(self, path: &Path) -> Result<(), RuntimeDirError> {
        let metadata = fs::metadata(path).map_err(file_error(path))?;
        if !geteuid().is_root() && metadata.uid() == 0 && mode_of(&metadata) & 0o1000 != 0 {
            return self.check_shared(path, &metadata);
        }
        let mode = if self.group.is_some() {
            GROUP_MODE
        } else {
            PRIVATE_MODE
        };
        if let Some(group) = self.group
            && metadata.gid() != group
        {
            chown(path, None, Some(group)).map_err(file_error(path))?;
        }
        // Other programs whose files are in the directory may need its mode.
        if mode_of(&metadata) != mode && foreign_entry(path)?.is_none() {
            fs::set_permissions(path, Permissions::from_mode(mode)).map_err(file_error(path))?;
        }
        Ok(())
    }

    /// Checks that the group can enter a directory that root shares with this process. The mode of the directory is set
    /// only at startup.
    fn check_shared(self, path: &Path, metadata: &Metadata) -> Result<(), RuntimeDirError> {
        if self.group.is_none() || mode_of(metadata) & 0o001 != 0 {
            return Ok(());
        }
        let source = io::Error::other(
            "the group of [node] socket_group can enter the directory only after a restart",
        );
        Err(file_error(path)(source))
    }

    /// Sets the group and mode of a socket. `change_group` sets the group if this process is not permitted to.
    ///
    /// # Errors
    /// Fails if the process is neither root nor a member of that group, and `change_group` fails.
    pub fn apply_to_socket(
        self,
        path: &Path,
        change_group: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), RuntimeDirError> {
        let metadata = fs::metadata(path).map_err(file_error(path))?;
        if let Some(group) = self.group
            && metadata.gid() != group
        {
            // The previous group loses access before the group changes.
            fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(file_error(path))?;
            let changed = match chown(path, None, Some(group)) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => change_group(),
                changed => changed,
            };
            changed.map_err(file_error(path))?;
        }
        let mode = self.socket_mode();
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(file_error(path))
    }
}

/// Creates the directory, or checks an existing one: rejects files of other users and restricts the modes of Weir's
/// files. Preserves a group's access to the socket.
///
/// # Errors
/// See [`RuntimeDirError`].
pub fn prepare(path: &Path) -> Result<(), RuntimeDirError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(file_error(parent))?;
    }
    match DirBuilder::new().mode(PRIVATE_MODE).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        created => return created.map_err(file_error(path)),
    }
    let link = fs::symlink_metadata(path).map_err(file_error(path))?;
    check_owner(path, &link)?;
    let metadata = fs::metadata(path).map_err(file_error(path))?;
    check_owner(path, &metadata)?;
    if !metadata.is_dir() {
        return Err(RuntimeDirError::Kind {
            path: path.to_owned(),
            found: kind_of(&metadata),
            expected: "a directory",
        });
    }
    let mode = mode_of(&metadata);
    // Root and the account share the directory, and both may have other files there.
    let is_shared = metadata.uid() == 0
        && mode & 0o1000 != 0
        && (!geteuid().is_root() || sharing(path).is_some());
    match foreign_entry(path)? {
        _ if is_shared => {}
        Some(other) if mode & 0o022 != 0 => {
            return Err(RuntimeDirError::NotDedicated {
                path: path.to_owned(),
                mode,
                other,
            });
        }
        Some(other) => {
            if mode & !GROUP_MODE != 0 {
                tracing::warn!(
                    directory = %path.display(),
                    mode = format_args!("{mode:04o}"),
                    other,
                    "the runtime directory contains files that do not belong to Weir; its mode is not changed"
                );
            }
        }
        None => restrict_mode(path, &metadata)?,
    }
    // The directory is checked first, so no other user can replace files in the meantime.
    for entry in entries(path)? {
        check_entry(&entry, path)?;
    }
    Ok(())
}

/// Removes Weir's state from the directory: configuration, overrides, counters, check results, keys, the token and
/// sockets. Keeps locks, records of changes that have not been reverted, and files that do not belong to Weir. Returns
/// the number of removed entries. The caller must hold the daemon's lock.
///
/// # Errors
/// Fails if the directory cannot be read or written.
pub fn remove_state_files(path: &Path) -> Result<usize, RuntimeDirError> {
    let mut removed = 0;
    for entry in entries(path)? {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_str().unwrap_or_default();
        let base = name.strip_suffix(".new").unwrap_or(name);
        let result = match expected_kind(name) {
            Some(_) if KEPT_FILES.contains(&base) => continue,
            Some(DIRECTORY) => fs::remove_dir_all(&path),
            Some(_) => fs::remove_file(&path),
            None => continue,
        };
        result.map_err(file_error(&path))?;
        removed += 1;
    }
    Ok(removed)
}

/// Checks one entry. Ignores files that do not belong to Weir.
fn check_entry(entry: &DirEntry, directory: &Path) -> Result<(), RuntimeDirError> {
    let (name, path) = (entry.file_name(), entry.path());
    let Some(expected) = name.to_str().and_then(expected_kind) else {
        return Ok(());
    };
    let metadata = match fs::symlink_metadata(&path) {
        // A running daemon is replacing the file.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        metadata => metadata.map_err(file_error(&path))?,
    };
    check_owner(&path, &metadata)?;
    let found = kind_of(&metadata);
    if found != expected && is_daemon_account(metadata.uid()) {
        // No process depends on the file, and it must not prevent root from starting Weir.
        tracing::warn!(path = %path.display(), found, "removed a file owned by the daemon's account");
        let removed = match found {
            DIRECTORY => fs::remove_dir_all(&path),
            _ => fs::remove_file(&path),
        };
        return removed.map_err(file_error(&path));
    }
    if found != expected {
        return Err(RuntimeDirError::Kind {
            path,
            found,
            expected,
        });
    }
    match found {
        LINK => return Ok(()),
        DIRECTORY => {
            for inner in entries(&path)? {
                let path = inner.path();
                if let Ok(metadata) = fs::symlink_metadata(&path)
                    && metadata.is_file()
                {
                    check_owner(&path, &metadata)?;
                    restrict_mode(&path, &metadata)?;
                }
            }
        }
        _ => {}
    }
    debug_assert!(path.starts_with(directory));
    restrict_mode(&path, &metadata)
}

/// Clears mode bits that are not allowed. Sockets and directories keep the group bits that [`SocketAccess`] sets.
fn restrict_mode(path: &Path, metadata: &Metadata) -> Result<(), RuntimeDirError> {
    let mode = mode_of(metadata);
    let allowed = if metadata.is_dir() {
        mode & GROUP_MODE
    } else if metadata.file_type().is_socket() {
        mode & 0o660
    } else {
        mode & 0o600
    };
    if mode == allowed {
        return Ok(());
    }
    match set_mode_of(path, metadata, allowed) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result.map_err(file_error(path)),
    }
}

/// Sets the mode of an examined file. If the daemon's account has replaced the file in the meantime, this function
/// follows no link and does not change the new file.
fn set_mode_of(path: &Path, examined: &Metadata, mode: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty())?;
    let current = fstat(&opened)?;
    if (current.st_dev, current.st_ino) != (examined.dev(), examined.ino()) {
        return Err(io::Error::other("it was replaced during the check"));
    }
    // fchmod(2) rejects an O_PATH descriptor; this path leads to the opened file.
    let link = format!("/proc/self/fd/{}", opened.as_raw_fd());
    fs::set_permissions(link, Permissions::from_mode(mode))
}

/// Rejects files that belong neither to root nor to the user of the process. Root also accepts files of the daemon's
/// account.
fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), RuntimeDirError> {
    let owner = metadata.uid();
    if owner == 0 || owner == geteuid().as_raw() || is_daemon_account(owner) {
        return Ok(());
    }
    Err(RuntimeDirError::Owner {
        path: path.to_owned(),
        owner: names::user_name(owner).unwrap_or_else(|| owner.to_string()),
    })
}

/// Returns the first entry that does not belong to Weir.
fn foreign_entry(path: &Path) -> Result<Option<String>, RuntimeDirError> {
    let names = entries(path)?.into_iter().map(|entry| entry.file_name());
    let mut others = names.filter(|name| name.to_str().and_then(expected_kind).is_none());
    Ok(others
        .next()
        .map(|name| name.to_string_lossy().into_owned()))
}

fn entries(path: &Path) -> Result<Vec<DirEntry>, RuntimeDirError> {
    let entries = fs::read_dir(path).and_then(Iterator::collect);
    entries.map_err(file_error(path))
}

fn kind_of(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_symlink() {
        LINK
    } else if kind.is_dir() {
        DIRECTORY
    } else if kind.is_socket() {
        SOCKET
    } else if kind.is_file() {
        FILE
    } else {
        "a device or pipe"
    }
}

fn mode_of(metadata: &Metadata) -> u32 {
    metadata.permissions().mode() & 0o7777
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> RuntimeDirError {
    let path = path.to_owned();
    move |source| RuntimeDirError::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::kind::FILES;
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("weir-runtime-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn mode(&self, name: &str) -> u32 {
            mode_of(&fs::symlink_metadata(self.0.join(name)).unwrap())
        }

        fn file(&self, name: &str, mode: u32) {
            let path = self.0.join(name);
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn new_directory_is_private_and_wider_modes_are_restricted() {
        let directory = Directory::new("modes");
        prepare(&directory.0).unwrap();
        assert_eq!(directory.mode(""), 0o700);
        fs::set_permissions(&directory.0, Permissions::from_mode(0o755)).unwrap();
        for name in ["lock", "state.json", "in-force.toml", "proxy-left.json.new"] {
            directory.file(name, 0o644);
        }
        fs::create_dir(directory.0.join("draining")).unwrap();
        directory.file("draining/17", 0o644);
        std::os::unix::fs::symlink("/etc/weir/weir.toml", directory.0.join("configuration"))
            .unwrap();
        prepare(&directory.0).unwrap();
        assert_eq!(directory.mode(""), 0o750);
        for name in ["lock", "state.json", "in-force.toml", "draining/17"] {
            assert_eq!(directory.mode(name), 0o600, "{name}");
        }
        assert_eq!(directory.mode("draining"), 0o750);
        SocketAccess::default()
            .apply_to_directory(&directory.0)
            .unwrap();
        assert_eq!(directory.mode(""), 0o700);
    }

    #[test]
    fn foreign_files_keep_their_modes_and_a_world_writable_directory_is_rejected() {
        let directory = Directory::new("foreign");
        fs::create_dir(&directory.0).unwrap();
        fs::set_permissions(&directory.0, Permissions::from_mode(0o755)).unwrap();
        directory.file("other", 0o644);
        directory.file("token", 0o644);
        prepare(&directory.0).unwrap();
        SocketAccess::default()
            .apply_to_directory(&directory.0)
            .unwrap();
        assert_eq!(
            [directory.mode(""), directory.mode("other")],
            [0o755, 0o644]
        );
        assert_eq!(directory.mode("token"), 0o600);
        fs::set_permissions(&directory.0, Permissions::from_mode(0o1777)).unwrap();
        let error = prepare(&directory.0).unwrap_err().to_string();
        assert!(
            error.contains("has mode 1777 and contains other"),
            "{error}"
        );
        assert_eq!(directory.mode(""), 0o1777);
    }

    #[test]
    fn locks_records_and_foreign_files_are_kept() {
        let directory = Directory::new("state");
        prepare(&directory.0).unwrap();
        for name in FILES.iter().chain(&["proxy.json.new", "other"]) {
            directory.file(name, 0o600);
        }
        fs::create_dir(directory.0.join("draining")).unwrap();
        directory.file("draining/17", 0o600);
        std::os::unix::fs::symlink("/etc/hostname", directory.0.join("configuration")).unwrap();
        assert_eq!(
            remove_state_files(&directory.0).unwrap(),
            FILES.len() - KEPT_FILES.len() + 3
        );
        let names = fs::read_dir(&directory.0).unwrap();
        let mut remaining: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        remaining.sort();
        assert_eq!(
            remaining,
            [
                "lock",
                "other",
                "protect.lock",
                "protect.sysctl",
                "real-server.json",
                "real-server.lock"
            ]
        );
        assert_eq!(remove_state_files(&directory.0).unwrap(), 0);
    }

    #[test]
    fn mode_of_replaced_file_is_not_changed() {
        let directory = Directory::new("replaced");
        prepare(&directory.0).unwrap();
        directory.file("token", 0o644);
        directory.file("victim", 0o644);
        let path = directory.0.join("token");
        let examined = fs::symlink_metadata(&path).unwrap();
        set_mode_of(&path, &examined, 0o600).unwrap();
        assert_eq!(directory.mode("token"), 0o600);
        let victim = directory.0.join("victim");
        for replace in [std::os::unix::fs::symlink, fs::hard_link] as [fn(_, _) -> _; 2] {
            fs::rename(&path, directory.0.join("former")).unwrap();
            replace(&victim, &path).unwrap();
            assert!(set_mode_of(&path, &examined, 0o600).is_err());
            assert_eq!(directory.mode("victim"), 0o644);
            fs::remove_file(&path).unwrap();
            fs::rename(directory.0.join("former"), &path).unwrap();
        }
    }

    #[test]
    fn link_with_name_of_file_is_rejected() {
        let directory = Directory::new("links");
        prepare(&directory.0).unwrap();
        std::os::unix::fs::symlink("/tmp/victim", directory.0.join("lock")).unwrap();
        let error = prepare(&directory.0).unwrap_err().to_string();
        assert!(
            error.contains("/lock is a symbolic link, but must be a regular file"),
            "{error}"
        );
    }
}
