//! Opens a file by a path that may contain directories of other accounts.
//!
//! If a privileged process follows another account's link, it reads or writes a file that this account chose. Links are
//! therefore followed only if no other account could have created them: in directories that only root and the process's
//! own account can write to, or if root or the process's own account owns the link. fs.protected_symlinks (proc(5))
//! does the same for directories such as `/tmp`. In a directory of another account, the file must also be a regular
//! file without other hard links (link(2)).
//!
//! Directories are opened one after another, so no component can be replaced between its check and its use.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fcntl_getfl, fcntl_setfl, fstat,
    fstatfs, openat, readlinkat, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Maximum number of links that are followed in a path, as in path_resolution(7).
const MAX_LINKS: usize = 40;
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Mode of a file that is created for appending, before the umask applies.
const CREATED_MODE: Mode = Mode::from_raw_mode(0o666);

/// Opens a file for reading, with additional `flags`.
///
/// # Errors
/// Fails if the kernel rejects the request, or the path or the file violates the rules of this module.
pub fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    open_last(path, flags | OFlags::RDONLY, Mode::empty())
}

/// Opens a file for appending, and creates it if it is missing. Does not block: opening a pipe fails if it has no
/// reader.
///
/// # Errors
/// See [`open`].
pub fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    // Opening a pipe without a reader must not block.
    let file = open_last(path, flags | OFlags::NONBLOCK, CREATED_MODE)?;
    // A write to a pipe waits for the reader.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn open_last(path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    let mut last = resolve(path)?;
    let mut flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    if !last.directory.has_kernel_links {
        flags |= OFlags::NOFOLLOW;
    }
    if last.directory.is_writable_by_others() {
        // Opening the other account's pipe would block.
        flags |= OFlags::NONBLOCK;
    }
    let name = std::mem::take(&mut last.name);
    let file = openat(&last.directory.opened, &name, flags, mode)?;
    if last.directory.is_writable_by_others() {
        check_file(&fstat(&file)?, &last.directory.stat)?;
    }
    Ok(file.into())
}

/// Checks a file in another account's directory.
fn check_file(file: &Stat, directory: &Stat) -> io::Result<()> {
    if FileType::from_raw_mode(file.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    if file.st_nlink > 1 && file.st_uid != directory.st_uid {
        return Err(permission_denied(format!(
            "it has several hard links and is owned by user {}, not by the owner of its directory ({})",
            file.st_uid, directory.st_uid
        )));
    }
    Ok(())
}

fn permission_denied(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

/// An opened directory.
struct Directory {
    opened: OwnedFd,
    stat: Stat,
    /// Whether the kernel creates the links in the directory (`/proc/self/fd`): their text is then not a path.
    has_kernel_links: bool,
}

impl Directory {
    fn new(opened: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&opened)?;
        let has_kernel_links = fstatfs(&opened)?.f_type == PROC_SUPER_MAGIC;
        Ok(Self {
            opened,
            stat,
            has_kernel_links,
        })
    }

    /// Returns whether another account can replace the directory's entries.
    fn is_writable_by_others(&self) -> bool {
        !is_trusted_owner(self.stat.st_uid) || self.stat.st_mode & 0o022 != 0
    }
}

fn is_trusted_owner(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// The result of resolving a path: a directory, and a name in it that is not a link.
struct ResolvedPath {
    directory: Directory,
    name: OsString,
}

fn resolve(path: &Path) -> io::Result<ResolvedPath> {
    let mut remaining = VecDeque::new();
    let mut directory = prepend(path, &mut remaining, None)?;
    let mut links = 0;
    loop {
        let Some(name) = remaining.pop_front() else {
            return Err(Errno::ISDIR.into());
        };
        if name == ".." {
            let descriptor = openat(&directory.opened, &name, DIRECTORY, Mode::empty())?;
            directory = Directory::new(descriptor)?;
            continue;
        }
        let is_last = remaining.is_empty();
        if directory.has_kernel_links {
            if is_last {
                return Ok(ResolvedPath { directory, name });
            }
        } else {
            let stat = match statat(&directory.opened, &name, AtFlags::SYMLINK_NOFOLLOW) {
                // The file does not exist, and may be created.
                Err(Errno::NOENT) if is_last => return Ok(ResolvedPath { directory, name }),
                found => found?,
            };
            if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                if directory.is_writable_by_others() && !is_trusted_owner(stat.st_uid) {
                    return Err(permission_denied(format!(
                        "it contains a link owned by user {} in a directory that other users can write to",
                        stat.st_uid
                    )));
                }
                let target = readlinkat(&directory.opened, &name, Vec::new())?;
                let target = OsString::from_vec(target.into_bytes());
                directory = prepend(Path::new(&target), &mut remaining, Some(directory))?;
                continue;
            }
            if is_last {
                return Ok(ResolvedPath { directory, name });
            }
        }
        let flags = match directory.has_kernel_links {
            true => DIRECTORY,
            false => DIRECTORY | OFlags::NOFOLLOW,
        };
        let descriptor = openat(&directory.opened, &name, flags, Mode::empty())?;
        directory = Directory::new(descriptor)?;
    }
}

/// Prepends the components of a path to the remaining components. Returns the directory that the path starts from: the
/// root or `current`.
fn prepend(
    path: &Path,
    remaining: &mut VecDeque<OsString>,
    current: Option<Directory>,
) -> io::Result<Directory> {
    let names: Vec<OsString> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect();
    for name in names.into_iter().rev() {
        remaining.push_front(name);
    }
    match current {
        Some(current) if path.is_relative() => Ok(current),
        _ => {
            let start = if path.is_absolute() { "/" } else { "." };
            let descriptor = openat(CWD, start, DIRECTORY, Mode::empty())?;
            Ok(Directory::new(descriptor)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
    use std::path::PathBuf;

    use super::*;

    const OTHER: u32 = 65_534;

    /// A test directory: this account owns `own`, another account owns `foreign`.
    struct TestDirectory(PathBuf);

    impl TestDirectory {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("weir-guard-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            for name in ["own", "foreign"] {
                fs::create_dir_all(path.join(name)).unwrap();
            }
            fs::set_permissions(path.join("own"), fs::Permissions::from_mode(0o755)).unwrap();
            fs::write(path.join("own/secret"), "secret").unwrap();
            chown(path.join("foreign"), Some(OTHER), None).unwrap();
            Self(path)
        }

        fn link(&self, target: &str, name: &str, owner: u32) -> PathBuf {
            let path = self.0.join(name);
            let _ = fs::remove_file(&path);
            symlink(target, &path).unwrap();
            lchown(&path, Some(owner), None).unwrap();
            path
        }

        fn secret(&self) -> String {
            fs::read_to_string(self.0.join("own/secret")).unwrap()
        }
    }

    impl Drop for TestDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn read_text(path: &Path) -> io::Result<String> {
        let mut text = String::new();
        open(path, OFlags::empty())?.read_to_string(&mut text)?;
        Ok(text)
    }

    fn is_root() -> bool {
        let is_root = geteuid().is_root();
        if !is_root {
            eprintln!("skipped: needs root to give files away");
        }
        is_root
    }

    #[test]
    fn links_of_another_account_are_not_followed() {
        if !is_root() {
            return;
        }
        let directory = TestDirectory::new("links");
        fs::create_dir(directory.0.join("foreign/logs")).unwrap();
        for (target, name) in [
            ("../own/secret", "foreign/log"),
            ("../own/new", "foreign/new"),
            ("../own", "foreign/directory"),
        ] {
            let link = directory.link(target, name, OTHER);
            let path = if name.ends_with("directory") {
                link.join("secret")
            } else {
                link
            };
            for error in [read_text(&path).err(), append(&path).err()] {
                let error = error.expect("the file is rejected");
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}");
                assert!(
                    error.to_string().contains("a link owned by user 65534"),
                    "{error}"
                );
            }
        }
        assert_eq!(directory.secret(), "secret");
        assert!(!directory.0.join("own/new").exists());
        // In a directory that all users can write to, root's links are followed, but other users' links are not.
        fs::set_permissions(directory.0.join("own"), fs::Permissions::from_mode(0o1777)).unwrap();
        let link = directory.link("secret", "own/link", OTHER);
        assert!(read_text(&link).is_err());
        let link = directory.link("secret", "own/link", 0);
        assert_eq!(read_text(&link).unwrap(), "secret");
    }

    #[test]
    fn files_and_trusted_links_are_opened() {
        if !is_root() {
            return;
        }
        let directory = TestDirectory::new("files");
        let log = directory.0.join("foreign/log");
        append(&log).unwrap().write_all(b"one ").unwrap();
        append(&log).unwrap().write_all(b"two").unwrap();
        assert_eq!(read_text(&log).unwrap(), "one two");
        // Links as certbot creates them, and root's link in another account's directory.
        let link = directory.link("../own/./../own/secret", "own/live", 0);
        assert_eq!(read_text(&link).unwrap(), "secret");
        let target = directory.0.join("own");
        let link = directory.link(target.to_str().unwrap(), "foreign/root", 0);
        assert_eq!(read_text(&link.join("secret")).unwrap(), "secret");
        append(Path::new("/dev/null")).unwrap();
        let through_proc = directory.link("/proc/self/fd", "own/fd", 0);
        let null = File::open("/dev/null").unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&null);
        assert_eq!(
            read_text(&through_proc.join(descriptor.to_string())).unwrap(),
            ""
        );
        let missing = read_text(&directory.0.join("own/none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let loop_link = directory.link("circle", "own/circle", 0);
        let error = read_text(&loop_link).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    }

    #[test]
    fn pipe_without_a_reader_does_not_block() {
        if !is_root() {
            return;
        }
        let directory = TestDirectory::new("pipe");
        let pipe = directory.0.join("own/pipe");
        let status = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(status.unwrap().success());
        let (sender, appended) = std::sync::mpsc::channel();
        let path = pipe.clone();
        std::thread::spawn(move || sender.send(append(&path).map(drop)));
        let limit = std::time::Duration::from_secs(10);
        let result = appended.recv_timeout(limit).expect("it does not block");
        let errno = result.unwrap_err().raw_os_error();
        assert_eq!(errno, Some(Errno::NXIO.raw_os_error()));
        let mut reader = open(&pipe, OFlags::NONBLOCK).unwrap();
        append(&pipe).unwrap().write_all(b"line").unwrap();
        let mut line = String::new();
        reader.read_to_string(&mut line).unwrap();
        assert_eq!(line, "line");
    }

    #[test]
    fn pipes_and_hard_links_in_a_directory_of_another_account_are_rejected() {
        if !is_root() {
            return;
        }
        let directory = TestDirectory::new("kinds");
        let pipe = directory.0.join("foreign/pipe");
        let status = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(status.unwrap().success());
        assert!(read_text(&pipe).is_err() && append(&pipe).is_err());
        let second = directory.0.join("foreign/second");
        fs::hard_link(directory.0.join("own/secret"), &second).unwrap();
        for error in [
            read_text(&second).unwrap_err(),
            append(&second).unwrap_err(),
        ] {
            assert!(error.to_string().contains("hard links"), "{error}");
        }
        chown(directory.0.join("own/secret"), Some(OTHER), None).unwrap();
        assert_eq!(read_text(&second).unwrap(), "secret");
    }
}
