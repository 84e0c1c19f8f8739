//! Private files: readable by their owner alone, and replaced in one step where other processes read them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{
    CWD, MemfdFlags, OFlags, RenameFlags, SealFlags, fcntl_add_seals, memfd_create, renameat_with,
};

/// Mode of every file that is made here.
pub(crate) const PRIVATE: u32 = 0o600;

/// What an open needs so that a symbolic link of another user leads nowhere, and a pipe does not block.
pub(crate) const NO_LINK: i32 = (OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits()) as i32;

/// Makes an empty file with mode 0600 for writing. What had the name before, a symbolic link included, is removed and
/// never written to. The mode is there from the start and does not depend on the umask.
///
/// # Errors
/// The directory cannot be written, or another process made a file of that name in the same moment.
pub fn create_private(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(PRIVATE);
    options.open(path)
}

/// Puts `bytes` in place of what is in a file, or makes it, with mode 0600: a reader finds all of the former or all of
/// these. Nothing waits for a disk; after a failure of power the file may be empty. Two must not write the same file at
/// once.
///
/// The two files change names, because ext4 writes out at once what is renamed over another file (`ext4_rename`,
/// `auto_da_alloc`), which takes it ten times as long as all the rest.
///
/// # Errors
/// The directory cannot be written, or is full; the file is what it was.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut made = path.as_os_str().to_owned();
    made.push(".new");
    let made = Path::new(&made);
    create_private(made)?.write_all(bytes)?;
    if renameat_with(CWD, made, CWD, path, RenameFlags::EXCHANGE).is_ok() {
        // The former one. Should it stay, the next to come writes over it.
        let _ = fs::remove_file(made);
        return Ok(());
    }
    // There was none, or the file system cannot do that.
    fs::rename(made, path)
}

/// A file in memory, without a name in any directory, that holds `bytes` and can never be changed: for another process.
///
/// # Errors
/// The kernel has no memory or no descriptor for it.
pub fn sealed_file(label: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create(label, flags)?);
    file.write_all(bytes)?;
    file.rewind()?;
    let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, all)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn sealed_file_is_read_only() {
        use std::io::Read;
        let mut file = File::from(sealed_file("weir-test", b"keys").unwrap());
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "keys");
        assert!(file.write_all(b"other").is_err() && file.set_len(0).is_err());
    }

    #[test]
    fn private_files_have_mode_0600_and_never_follow_a_link() {
        let directory = std::env::temp_dir().join(format!("weir-private-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (target, path) = (directory.join("target"), directory.join("state.json"));
        fs::write(&target, "untouched").unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode();
        for planted in [&path, &directory.join("state.json.new")] {
            std::os::unix::fs::symlink(&target, planted).unwrap();
            replace_file(&path, b"secret").unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
            assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
            assert_eq!(mode(&path), 0o100_600);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        replace_file(&path, b"other").unwrap();
        assert_eq!(mode(&path), 0o100_600);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn file_is_created_and_replaced_without_leftovers() {
        let directory = std::env::temp_dir().join(format!("weir-file-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("state.json");
        for text in ["one", "another", ""] {
            replace_file(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        }
        fs::remove_dir_all(&directory).unwrap();
        assert!(replace_file(&path, b"nowhere").is_err());
    }
}
