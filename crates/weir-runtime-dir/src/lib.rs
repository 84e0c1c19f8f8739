//! The runtime directory as a directory: who may own it, and the modes of what it holds.
//!
//! Whoever can write there decides what Weir believes (its token, its state) and where root's writes go. So it belongs
//! to root or to the process's own user and other users cannot enter it; `[node] socket_group` may pass through it to
//! the socket. Files in it have mode 0600 from the start. A directory that an earlier build left wider is adopted and
//! narrowed; one of another user is refused. What the files hold is not known here.

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

/// Regular files that Weir keeps there; each also as `NAME.new` while it is made.
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
    "cookie.key",
    "members.json",
    "real-server.json",
    "real-server.lock",
    "protect.lock",
    "protect.sysctl",
];
/// The API's socket, under all its names.
const SOCKETS: &[&str] = &["weir.sock", "weir.sock.new", "weir.sock.held"];
/// A link to the active configuration.
const LINKS: &[&str] = &["configuration", "configuration.new"];
/// Directories, with files named by processes.
const DIRECTORIES: &[&str] = &["draining"];
/// What [`forget`] leaves: locks, since a lock whose file was removed does not exclude the next process, and records of
/// changes that are not undone yet.
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
    #[error("{path} belongs to user {owner}; the runtime directory and what it holds must belong to root or to the user who runs Weir: remove it, or name another directory with --runtime-dir", path = path.display())]
    Owner {
        /// What was found.
        path: PathBuf,
        /// Its owner, by name where that is known.
        owner: String,
    },
    /// A link, device or directory has the name of one of Weir's files.
    #[error("{path} is {found}, where Weir keeps {expected}: remove it", path = path.display())]
    Kind {
        /// What was found.
        path: PathBuf,
        /// Its kind.
        found: &'static str,
        /// The kind that it must have.
        expected: &'static str,
    },
    /// Other users can write to it, and it holds files that are not Weir's.
    #[error("{path} has mode {mode:04o} and holds {other}, which is not Weir's: name a directory of its own with --runtime-dir", path = path.display())]
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
        /// What it was about.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Who may use the control socket besides its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketAccess {
    /// The group of the directory and of the socket; `None` = the process's own.
    group: Option<u32>,
    /// Whether that group may use the socket.
    group_may_use: bool,
}

impl SocketAccess {
    /// What `[node]` asks for.
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
    /// Neither root nor a member of that group runs this.
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
    /// Neither root nor a member of that group runs this.
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

/// Makes the directory if need be, or adopts the one that is there: refuses other users' and narrows the modes of what
/// is Weir's. A group that may pass stays.
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
    owned(path, &link)?;
    let known = fs::metadata(path).map_err(failed(path))?;
    owned(path, &known)?;
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
        judge(&entry, path)?;
    }
    Ok(())
}

/// Removes what Weir remembers in the directory: configuration, overrides, counts, check results, keys, the token,
/// sockets. Locks and records of changes that are not undone yet stay, and so does what is not Weir's. Returns how many
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

/// Looks at one entry; what is not Weir's is left alone.
fn judge(entry: &DirEntry, directory: &Path) -> Result<(), Unusable> {
    let (name, path) = (entry.file_name(), entry.path());
    let Some(expected) = name.to_str().and_then(expected) else {
        return Ok(());
    };
    let known = match fs::symlink_metadata(&path) {
        // A file that is being replaced, by a daemon that runs.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        known => known.map_err(failed(&path))?,
    };
    owned(&path, &known)?;
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
                    owned(&path, &known)?;
                    narrow(&path, &known)?;
                }
            }
        }
        _ => {}
    }
    debug_assert!(path.starts_with(directory));
    narrow(&path, &known)
}

/// Takes forbidden bits away; files keep nothing but their owner's, save the socket.
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

/// Refuses what is neither root's nor this process's.
fn owned(path: &Path, known: &Metadata) -> Result<(), Unusable> {
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

/// The kind of what has this name; `None` = it is not Weir's.
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

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("weir-place-{}-{name}", std::process::id()));
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

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_new_directory_is_private_and_an_older_builds_is_narrowed() {
        let place = Place::new("modes");
        prepare(&place.0).unwrap();
        assert_eq!(place.mode(""), 0o700);
        fs::set_permissions(&place.0, Permissions::from_mode(0o755)).unwrap();
        for name in ["lock", "state.json", "in-force.toml", "proxy-left.json.new"] {
            place.file(name, 0o644);
        }
        fs::create_dir(place.0.join("draining")).unwrap();
        place.file("draining/17", 0o644);
        std::os::unix::fs::symlink("/etc/weir/weir.toml", place.0.join("configuration")).unwrap();
        prepare(&place.0).unwrap();
        assert_eq!(place.mode(""), 0o750);
        for name in ["lock", "state.json", "in-force.toml", "draining/17"] {
            assert_eq!(place.mode(name), 0o600, "{name}");
        }
        assert_eq!(place.mode("draining"), 0o750);
        SocketAccess::default().open_directory(&place.0).unwrap();
        assert_eq!(place.mode(""), 0o700);
    }

    #[test]
    fn other_programs_files_keep_their_modes_and_forbid_a_directory_that_all_can_write() {
        let place = Place::new("foreign");
        fs::create_dir(&place.0).unwrap();
        fs::set_permissions(&place.0, Permissions::from_mode(0o755)).unwrap();
        place.file("other", 0o644);
        place.file("token", 0o644);
        prepare(&place.0).unwrap();
        SocketAccess::default().open_directory(&place.0).unwrap();
        assert_eq!([place.mode(""), place.mode("other")], [0o755, 0o644]);
        assert_eq!(place.mode("token"), 0o600);
        fs::set_permissions(&place.0, Permissions::from_mode(0o1777)).unwrap();
        let refused = prepare(&place.0).unwrap_err().to_string();
        assert!(
            refused.contains("has mode 1777 and holds other"),
            "{refused}"
        );
        assert_eq!(place.mode(""), 0o1777);
    }

    #[test]
    fn all_but_locks_records_and_other_programs_files_is_forgotten() {
        let place = Place::new("forget");
        prepare(&place.0).unwrap();
        for name in FILES.iter().chain(&["proxy.json.new", "other"]) {
            place.file(name, 0o600);
        }
        fs::create_dir(place.0.join("draining")).unwrap();
        place.file("draining/17", 0o600);
        std::os::unix::fs::symlink("/etc/hostname", place.0.join("configuration")).unwrap();
        assert_eq!(forget(&place.0).unwrap(), FILES.len() - KEPT.len() + 3);
        let names = fs::read_dir(&place.0).unwrap();
        let mut left: Vec<_> = names.map(|it| it.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(
            left,
            [
                "lock",
                "other",
                "protect.lock",
                "protect.sysctl",
                "real-server.json",
                "real-server.lock"
            ]
        );
        assert_eq!(forget(&place.0).unwrap(), 0);
    }

    #[test]
    fn a_link_in_place_of_a_file_is_named() {
        let place = Place::new("links");
        prepare(&place.0).unwrap();
        std::os::unix::fs::symlink("/tmp/victim", place.0.join("lock")).unwrap();
        let refused = prepare(&place.0).unwrap_err().to_string();
        assert!(
            refused.contains("/lock is a symbolic link, where Weir keeps a regular file"),
            "{refused}"
        );
    }
}
