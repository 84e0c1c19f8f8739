//! The runtime directory: its owner, and the names and modes of its files.
//!
//! A user who can write there controls Weir's state and token, and where root's writes go. So it belongs to root or to
//! the process's own user, and other users cannot enter it; `[node] socket_group` may pass through it to the socket.
//! Files in it have mode 0600 from the start. Wider modes of an earlier build are narrowed; a directory of another user
//! is rejected. The content of the files is not read here.

use std::fs::{self, DirBuilder, DirEntry, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use weir_model::Node;
use weir_sys::names;

/// Mode without a group, and with one: its members reach the socket and cannot list or change anything.
const ALONE: u32 = 0o700;
const SHARED: u32 = 0o750;

/// Regular files of Weir; each also as `NAME.new` while it is written.
const FILES: &[&str] = &[
    "lock",
    "token",
    "in-force.toml",
    "in-force.json",
    "state.json",
    "state.journal",
    "proxy.json",
    "proxy-left.json",
    "vips.json",
    "vrrp.json",
    "cookie.key",
    "members.json",
    "real-server.json",
    "real-server.lock",
    "protect.lock",
    "protect.sysctl",
];
/// The API's socket, under all its names, and the VRRP agent's.
const SOCKETS: &[&str] = &["weir.sock", "weir.sock.new", "weir.sock.held", "vrrp.sock"];
/// A link to the active configuration.
const LINKS: &[&str] = &["configuration", "configuration.new"];
/// Directories, with files named by processes.
const DIRECTORIES: &[&str] = &["draining"];
/// Files that [`forget`] keeps: locks, since a lock whose file was removed does not exclude the next process, and
/// records of changes that are not undone yet.
const KEPT: &[&str] = &[
    "lock",
    "real-server.lock",
    "protect.lock",
    "real-server.json",
    "protect.sysctl",
];

/// Why a directory cannot be the runtime directory.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It, or something in it, is another user's.
    #[error("{path} belongs to user {owner}; the runtime directory and what it holds must belong to root or to the \
     user who runs Weir: remove it, or name another directory with --runtime-dir", path = path.display())]
    Owner {
        /// The path.
        path: PathBuf,
        /// Its owner, by name where that is known.
        owner: String,
    },
    /// A link, device or directory has the name of one of Weir's files.
    #[error("{path} is {found}, where Weir keeps {expected}: remove it", path = path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// Its kind.
        found: &'static str,
        /// The kind that it must have.
        expected: &'static str,
    },
    /// Other users can write to it, and it holds files that are not Weir's.
    #[error("{path} has mode {mode:04o} and holds {other}, which is not Weir's: name a directory of its own with \
     --runtime-dir", path = path.display())]
    NotItsOwn {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// The first file that is not Weir's.
        other: String,
    },
    /// `[node] socket_group` is not known to this machine.
    #[error("[node] socket_group: there is no group {group}")]
    Group {
        /// As in the file.
        group: String,
    },
    /// The kernel refuses.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Who may use the control socket in addition to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketAccess {
    /// The group of the directory and of the socket; `None` = the process's own.
    group: Option<u32>,
    /// Whether that group may use the socket.
    group_may_use: bool,
}

impl SocketAccess {
    /// As configured in `[node]`.
    ///
    /// # Errors
    /// [`Unusable::Group`].
    pub fn of(node: &Node) -> Result<Self, Unusable> {
        let group = node.socket_group.as_ref().map(|group| {
            names::group_id(group).ok_or_else(|| Unusable::Group {
                group: group.clone(),
            })
        });
        Ok(Self {
            group: group.transpose()?,
            group_may_use: node.socket_mode.is_for_group(),
        })
    }

    /// The socket's mode.
    pub const fn socket_mode(self) -> u32 {
        if self.group_may_use { 0o660 } else { 0o600 }
    }

    /// Gives the directory its group and mode.
    ///
    /// # Errors
    /// The process is neither root nor a member of that group.
    pub fn open_directory(self, path: &Path) -> Result<(), Unusable> {
        let known = fs::metadata(path).map_err(failed(path))?;
        let mode = if self.group.is_some() { SHARED } else { ALONE };
        if let Some(group) = self.group
            && known.gid() != group
        {
            chown(path, None, Some(group)).map_err(failed(path))?;
        }
        // One that holds other programs' files keeps the mode that they may need.
        if mode_of(&known) != mode && foreign(path)?.is_none() {
            fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed(path))?;
        }
        Ok(())
    }

    /// Gives a socket its group and mode.
    ///
    /// # Errors
    /// The process is neither root nor a member of that group.
    pub fn open_socket(self, path: &Path) -> Result<(), Unusable> {
        let known = fs::metadata(path).map_err(failed(path))?;
        if let Some(group) = self.group
            && known.gid() != group
        {
            // At no moment is the socket open to another group.
            fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed(path))?;
            chown(path, None, Some(group)).map_err(failed(path))?;
        }
        let mode = self.socket_mode();
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed(path))
    }
}

/// Creates the directory, or adopts an existing one: rejects other users' and narrows the modes of Weir's files. A
/// group that may pass is kept.
///
/// # Errors
/// See [`Unusable`].
pub fn prepare(path: &Path) -> Result<(), Unusable> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed(parent))?;
    }
    match DirBuilder::new().mode(ALONE).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => return made.map_err(failed(path)),
    }
    let link = fs::symlink_metadata(path).map_err(failed(path))?;
    check_owner(path, &link)?;
    let known = fs::metadata(path).map_err(failed(path))?;
    check_owner(path, &known)?;
    if !known.is_dir() {
        return Err(Unusable::Kind {
            path: path.to_owned(),
            found: kind_of(&known),
            expected: "a directory",
        });
    }
    let mode = mode_of(&known);
    match foreign(path)? {
        Some(other) if mode & 0o022 != 0 => {
            return Err(Unusable::NotItsOwn {
                path: path.to_owned(),
                mode,
                other,
            });
        }
        Some(other) => {
            if mode & !SHARED != 0 {
                tracing::warn!(
                    directory = %path.display(),
                    mode = format_args!("{mode:04o}"),
                    other,
                    "the runtime directory holds files that are not Weir's; its mode stays"
                );
            }
        }
        None => narrow(path, &known)?,
    }
    // After the directory itself, so that no other user puts something else in between.
    for entry in entries(path)? {
        check_entry(&entry, path)?;
    }
    Ok(())
}

/// Removes Weir's state from the directory: configuration, overrides, counts, check results, keys, the token,
/// sockets. Locks, records of changes that are not undone yet, and other files are kept. Returns how many
/// entries were removed. The caller holds the daemon's lock.
///
/// # Errors
/// The directory cannot be read or written.
pub fn forget(path: &Path) -> Result<usize, Unusable> {
    let mut removed = 0;
    for entry in entries(path)? {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_str().unwrap_or_default();
        let whole = name.strip_suffix(".new").unwrap_or(name);
        let done = match expected(name) {
            Some(_) if KEPT.contains(&whole) => continue,
            Some(DIRECTORY) => fs::remove_dir_all(&path),
            Some(_) => fs::remove_file(&path),
            None => continue,
        };
        done.map_err(failed(&path))?;
        removed += 1;
    }
    Ok(removed)
}

/// Checks one entry; files that are not Weir's are left alone.
fn check_entry(entry: &DirEntry, directory: &Path) -> Result<(), Unusable> {
    let (name, path) = (entry.file_name(), entry.path());
    let Some(expected) = name.to_str().and_then(expected) else {
        return Ok(());
    };
    let known = match fs::symlink_metadata(&path) {
        // A running daemon is replacing the file.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        known => known.map_err(failed(&path))?,
    };
    check_owner(&path, &known)?;
    let found = kind_of(&known);
    if found != expected {
        return Err(Unusable::Kind {
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
                if let Ok(known) = fs::symlink_metadata(&path)
                    && known.is_file()
                {
                    check_owner(&path, &known)?;
                    narrow(&path, &known)?;
                }
            }
        }
        _ => {}
    }
    debug_assert!(path.starts_with(directory));
    narrow(&path, &known)
}

/// Removes forbidden mode bits; only the socket keeps bits of its group.
fn narrow(path: &Path, known: &Metadata) -> Result<(), Unusable> {
    let mode = mode_of(known);
    let allowed = if known.is_dir() {
        mode & SHARED
    } else if known.file_type().is_socket() {
        mode & 0o660
    } else {
        mode & 0o600
    };
    if mode == allowed {
        return Ok(());
    }
    match fs::set_permissions(path, Permissions::from_mode(allowed)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done.map_err(failed(path)),
    }
}

/// Rejects files that belong neither to root nor to this process's user.
fn check_owner(path: &Path, known: &Metadata) -> Result<(), Unusable> {
    let owner = known.uid();
    if owner == 0 || owner == geteuid().as_raw() {
        return Ok(());
    }
    Err(Unusable::Owner {
        path: path.to_owned(),
        owner: names::user_name(owner).unwrap_or_else(|| owner.to_string()),
    })
}

/// The first entry that is not Weir's.
fn foreign(path: &Path) -> Result<Option<String>, Unusable> {
    let names = entries(path)?.into_iter().map(|entry| entry.file_name());
    let mut others = names.filter(|name| name.to_str().and_then(expected).is_none());
    Ok(others
        .next()
        .map(|name| name.to_string_lossy().into_owned()))
}

fn entries(path: &Path) -> Result<Vec<DirEntry>, Unusable> {
    let all = fs::read_dir(path).and_then(Iterator::collect);
    all.map_err(failed(path))
}

const FILE: &str = "a regular file";
const SOCKET: &str = "a socket";
const LINK: &str = "a symbolic link";
const DIRECTORY: &str = "a directory";

/// The kind of the file of this name; `None` = it is not Weir's.
fn expected(name: &str) -> Option<&'static str> {
    let whole = name.strip_suffix(".new").unwrap_or(name);
    let kinds = [
        (FILES, FILE, whole),
        (SOCKETS, SOCKET, name),
        (LINKS, LINK, name),
        (DIRECTORIES, DIRECTORY, name),
    ];
    let found = kinds.iter().find(|(names, _, name)| names.contains(name));
    found.map(|(_, kind, _)| *kind)
}

fn kind_of(known: &Metadata) -> &'static str {
    let kind = known.file_type();
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

fn mode_of(known: &Metadata) -> u32 {
    known.permissions().mode() & 0o7777
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Unusable {
    let path = path.to_owned();
    move |source| Unusable::File { path, source }
}

#[cfg(test)]
mod tests {
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
    fn new_directory_is_private_and_wider_modes_are_narrowed() {
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
            .open_directory(&directory.0)
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
            .open_directory(&directory.0)
            .unwrap();
        assert_eq!(
            [directory.mode(""), directory.mode("other")],
            [0o755, 0o644]
        );
        assert_eq!(directory.mode("token"), 0o600);
        fs::set_permissions(&directory.0, Permissions::from_mode(0o1777)).unwrap();
        let refused = prepare(&directory.0).unwrap_err().to_string();
        assert!(
            refused.contains("has mode 1777 and holds other"),
            "{refused}"
        );
        assert_eq!(directory.mode(""), 0o1777);
    }

    #[test]
    fn forget_keeps_locks_records_and_foreign_files() {
        let directory = Directory::new("forget");
        prepare(&directory.0).unwrap();
        for name in FILES.iter().chain(&["proxy.json.new", "other"]) {
            directory.file(name, 0o600);
        }
        fs::create_dir(directory.0.join("draining")).unwrap();
        directory.file("draining/17", 0o600);
        std::os::unix::fs::symlink("/etc/hostname", directory.0.join("configuration")).unwrap();
        assert_eq!(forget(&directory.0).unwrap(), FILES.len() - KEPT.len() + 3);
        let names = fs::read_dir(&directory.0).unwrap();
        let mut kept: Vec<_> = names.map(|it| it.unwrap().file_name()).collect();
        kept.sort();
        assert_eq!(
            kept,
            [
                "lock",
                "other",
                "protect.lock",
                "protect.sysctl",
                "real-server.json",
                "real-server.lock"
            ]
        );
        assert_eq!(forget(&directory.0).unwrap(), 0);
    }

    #[test]
    fn link_in_place_of_a_file_is_rejected() {
        let directory = Directory::new("links");
        prepare(&directory.0).unwrap();
        std::os::unix::fs::symlink("/tmp/victim", directory.0.join("lock")).unwrap();
        let refused = prepare(&directory.0).unwrap_err().to_string();
        assert!(
            refused.contains("/lock is a symbolic link, where Weir keeps a regular file"),
            "{refused}"
        );
    }
}
