//! Reads a file that another program writes.
//!
//! The daemon may run as root while the writer does not, so the path is not trusted, and the open descriptor is
//! checked. The configured directory is opened by its path, following links, because the operator specified the path.
//! The file must be inside the directory, even if links lead to it (`..data -> ..2026_01` of a Kubernetes volume), and
//! must be a regular file with an expected owner. Error messages never contain file content.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Open flags: a terminal does not become the controlling terminal, and opening a pipe does not block.
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

const OUTSIDE: &str = "it is a link to a path outside its directory";

/// The allowed owners of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Root, the user of this process, or the owner of the directory.
    Expected,
    /// Any user: the content of the file is not secret.
    Any,
}

/// Reads the text of the regular file at the absolute path `path`.
///
/// # Errors
/// Fails if the file does not meet the conditions of this module or is larger than `max_bytes`. The message is one line
/// without the path.
pub fn read(path: &Path, owner: Owner, max_bytes: u64) -> Result<String, String> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err("it is not a regular file".to_owned());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, parent, flags, Mode::empty()).map_err(error_message)?;
    let file = open_inside(&directory, parent, name)?;
    let stat = fstat(&file).map_err(error_message)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("it is not a regular file".to_owned());
    }
    if owner == Owner::Expected {
        check_owner(&stat, &fstat(&directory).map_err(error_message)?)?;
    }
    let mut bytes = Vec::new();
    let result = File::from(file).take(max_bytes + 1).read_to_end(&mut bytes);
    result.map_err(|error| error.to_string())?;
    // A truncated list could end with a truncated address.
    if bytes.len() as u64 > max_bytes {
        return Err(format!("it is larger than {max_bytes} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not valid UTF-8".to_owned())
}

fn error_message(error: Errno) -> String {
    match error {
        // openat2(2): a component left the directory.
        Errno::XDEV => OUTSIDE.to_owned(),
        Errno::LOOP => "it is a link that cannot be followed".to_owned(),
        // The file is a socket.
        Errno::NXIO => "it is not a regular file".to_owned(),
        other => io::Error::from(other).to_string(),
    }
}

/// Opens a file inside a directory. A link may be absolute if its target starts with the configured or the canonical
/// path of the directory.
fn open_inside(directory: &OwnedFd, parent: &Path, name: &OsStr) -> Result<OwnedFd, String> {
    match open_beneath(directory, Path::new(name)) {
        Err(Errno::XDEV) => {
            let inside = absolute_inside(directory, parent, name).ok_or(OUTSIDE)?;
            open_beneath(directory, &inside).map_err(error_message)
        }
        // The kernel is older than 5.6, or a seccomp filter rejects openat2. Do not follow links.
        Err(Errno::NOSYS | Errno::PERM) => {
            let flags = FLAGS | OFlags::NOFOLLOW;
            openat(directory, name, flags, Mode::empty()).map_err(error_message)
        }
        other => other.map_err(error_message),
    }
}

fn open_beneath(directory: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let resolution = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(directory, path, FLAGS, Mode::empty(), resolution)
}

/// Returns the target of the absolute link `name`, relative to the directory.
fn absolute_inside(directory: &OwnedFd, parent: &Path, name: &OsStr) -> Option<PathBuf> {
    let target = readlinkat(directory, name, Vec::new()).ok()?;
    let target = Path::new(OsStr::from_bytes(target.as_bytes()));
    let canonical = std::fs::canonicalize(parent).ok();
    let roots = [Some(parent), canonical.as_deref()];
    let inside = roots
        .into_iter()
        .flatten()
        .find_map(|root| target.strip_prefix(root).ok());
    inside.map(Path::to_owned)
}

fn check_owner(file: &Stat, directory: &Stat) -> Result<(), String> {
    let process_user = geteuid().as_raw();
    let owner = file.st_uid;
    if ![0, process_user, directory.st_uid].contains(&owner) {
        return Err(format!(
            "it is owned by user {owner}; it must be owned by root, by the user that runs Weir ({process_user}), or by \
             the owner of its directory ({})",
            directory.st_uid
        ));
    }
    // The owner of the directory may have created a hard link to another user's file (link(2)).
    if file.st_nlink > 1 && owner != directory.st_uid {
        return Err(format!(
            "it has several hard links and is owned by user {owner}, not by the owner of its directory ({})",
            directory.st_uid
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{chown, symlink};
    use std::os::unix::net::UnixListener;

    const MAX_BYTES: u64 = 1 << 16;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("in")).unwrap();
            fs::write(path.join("outside"), "root:*:1::").unwrap();
            Self(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("in/list")
        }

        /// Reads `list` as a link to `target`.
        fn read_link_to(&self, target: impl AsRef<Path>) -> Result<String, String> {
            let _ = fs::remove_file(self.file());
            symlink(target, self.file()).unwrap();
            read(&self.file(), Owner::Expected, MAX_BYTES)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_links_inside_the_directory_are_followed() {
        let directory = Directory::new("links");
        let inside = directory.0.join("in");
        fs::create_dir(inside.join("..2026")).unwrap();
        fs::write(inside.join("..2026/list"), "10.0.0.1").unwrap();
        symlink("..2026", inside.join("..data")).unwrap();
        for target in ["..data/list", "./..2026/list"] {
            assert_eq!(
                directory.read_link_to(target).as_deref(),
                Ok("10.0.0.1"),
                "{target}"
            );
        }
        let absolute = inside.join("..data/list");
        assert_eq!(directory.read_link_to(absolute).as_deref(), Ok("10.0.0.1"));
        for target in [
            Path::new("/etc/shadow"),
            Path::new("../outside"),
            Path::new("..data/../../outside"),
            &directory.0.join("outside"),
            &inside.join("../outside"),
            &inside.join("..data/../../outside"),
            Path::new("/proc/self/root/etc/shadow"),
            Path::new("list"),
        ] {
            let reason = directory.read_link_to(target).unwrap_err();
            assert!(
                reason.starts_with("it is a link"),
                "{}: {reason}",
                target.display()
            );
        }
        symlink(&directory.0, inside.join("..up")).unwrap();
        assert_eq!(directory.read_link_to("..up/outside").unwrap_err(), OUTSIDE);
    }

    #[test]
    fn directory_can_be_a_link() {
        let directory = Directory::new("linked-directory");
        fs::write(directory.file(), "10.0.0.1").unwrap();
        let other_path = directory.0.join("other");
        symlink(directory.0.join("in"), &other_path).unwrap();
        let text = read(&other_path.join("list"), Owner::Expected, MAX_BYTES);
        assert_eq!(text.as_deref(), Ok("10.0.0.1"));
    }

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let directory = Directory::new("kinds");
        let inside = directory.0.join("in");
        let pipe = inside.join("pipe");
        let status = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(status.unwrap().success());
        let _socket = UnixListener::bind(inside.join("socket")).unwrap();
        let read_error = |path: &Path| read(path, Owner::Expected, MAX_BYTES).unwrap_err();
        for path in [
            pipe.as_path(),
            &inside.join("socket"),
            &inside,
            Path::new("/dev/zero"),
            Path::new("/dev/null"),
            Path::new("/"),
        ] {
            assert_eq!(
                read_error(path),
                "it is not a regular file",
                "{}",
                path.display()
            );
        }
        fs::write(directory.file(), "#".repeat(65_537)).unwrap();
        assert_eq!(
            read_error(&directory.file()),
            "it is larger than 65536 bytes"
        );
        fs::write(directory.file(), [0xff]).unwrap();
        assert_eq!(read_error(&directory.file()), "it is not valid UTF-8");
        assert!(read_error(&inside.join("gone")).starts_with("No such file"));
    }

    #[test]
    fn file_of_another_user_is_rejected() {
        if !geteuid().is_root() {
            eprintln!("skipped: needs root to give files away");
            return;
        }
        let directory = Directory::new("owners");
        let (inside, file) = (directory.0.join("in"), directory.file());
        fs::write(&file, "10.0.0.1").unwrap();
        let read_owned_by = |directory_owner, file_owner| {
            chown(&inside, Some(directory_owner), None).unwrap();
            chown(&file, Some(file_owner), None).unwrap();
            read(&file, Owner::Expected, MAX_BYTES)
        };
        // A discovery program owns the directory. The same user or root owns the file.
        assert!(read_owned_by(65_534, 65_534).is_ok());
        assert!(read_owned_by(65_534, 0).is_ok());
        assert!(read_owned_by(0, 0).is_ok());
        for (directory_owner, file_owner) in [(0, 65_534), (65_534, 1)] {
            let reason = read_owned_by(directory_owner, file_owner).unwrap_err();
            assert!(
                reason.contains(&format!("is owned by user {file_owner}")),
                "{reason}"
            );
        }
        assert!(read(&file, Owner::Any, MAX_BYTES).is_ok());
        // A hard link to a file of root.
        chown(&file, Some(0), None).unwrap();
        fs::hard_link(&file, inside.join("second")).unwrap();
        let reason = read(&inside.join("second"), Owner::Expected, MAX_BYTES).unwrap_err();
        assert!(reason.contains("hard links"), "{reason}");
    }
}
