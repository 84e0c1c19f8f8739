//! Creates private files (mode 0600) and memory files, replaces files atomically, and reads files of trusted owners.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, MemfdFlags, OFlags, RenameFlags, SealFlags, fcntl_add_seals, memfd_create, renameat_with,
};

/// Mode of created files.
pub(crate) const PRIVATE_MODE: u32 = 0o600;

/// Mode of files that all users can read.
const PUBLIC_MODE: u32 = 0o644;

/// Flags of open(2): symbolic links are not followed, and opening a pipe does not block.
pub(crate) const NO_LINK: i32 = (OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits()) as i32;

/// Creates an empty file with mode 0600 for writing. An existing file or symbolic link with this name is removed
/// instead of being written to. The mode is set at creation and does not depend on the umask.
///
/// # Errors
/// Fails if the directory cannot be written, or another process created a file with this name at the same time.
pub fn create_private(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(PRIVATE_MODE);
    options.open(path)
}

/// Creates a file with mode 0600 and the content `bytes`, or replaces it atomically: a reader gets either the complete
/// old or the complete new content. The function does not wait for the disk, so the file can be empty after a power
/// failure. Only one writer may replace a file at a time.
///
/// The function exchanges the names of the two files, because ext4 immediately writes out a file that is renamed over
/// another file (`ext4_rename`, `auto_da_alloc`), which takes ten times as long as all other steps.
///
/// # Errors
/// Fails if the directory cannot be written, or the file system is full; the file is unchanged.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_file_with(path, bytes, PRIVATE_MODE)
}

/// Replaces a file like [`replace_file`], with mode 0644. The mode is set through the descriptor, because the owner of
/// the directory could replace the file.
///
/// # Errors
/// See [`replace_file`].
pub fn replace_public_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_file_with(path, bytes, PUBLIC_MODE)
}

/// Creates the file `PATH.new` with the content `bytes`, and passes it to `complete`. Returns its path. A file that
/// cannot be completed is removed, because it would use space on a full disk.
fn create_staging(
    path: &Path,
    bytes: &[u8],
    complete: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let mut staging = path.as_os_str().to_owned();
    staging.push(".new");
    let staging = PathBuf::from(staging);
    let mut file = create_private(&staging)?;
    match file.write_all(bytes).and_then(|()| complete(&file)) {
        Ok(()) => Ok(staging),
        Err(error) => {
            let _ = fs::remove_file(&staging);
            Err(error)
        }
    }
}

fn replace_file_with(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let staging = create_staging(path, bytes, |file| match mode {
        PRIVATE_MODE => Ok(()),
        _ => file.set_permissions(Permissions::from_mode(mode)),
    })?;
    let staging = staging.as_path();
    if renameat_with(CWD, staging, CWD, path, RenameFlags::EXCHANGE).is_ok() {
        // Remove the old file. If this fails, the next call overwrites it.
        let _ = fs::remove_file(staging);
        return Ok(());
    }
    // There is no old file, or the file system does not support the exchange.
    fs::rename(staging, path)
}

/// Replaces a file like [`replace_file`], and waits for the disk: after a power failure, the file has either the old or
/// the new content.
///
/// # Errors
/// Fails if the directory cannot be written, or the file system is full. The file is then unchanged, unless only the
/// last step failed, which waits for the directory.
pub fn replace_file_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let staging = create_staging(path, bytes, File::sync_all)?;
    fs::rename(staging, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// Reads a regular file owned by root or by the user of this process. Symbolic links are not followed. If another
/// account can also write to the directory, it can neither create nor replace such a file.
///
/// # Errors
/// Fails if the file cannot be read. The error is [`io::ErrorKind::NotFound`] also if another user owns the file, or
/// if it is not a regular file or has other hard links.
pub fn read_owned_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).custom_flags(NO_LINK).open(path)?;
    let metadata = file.metadata()?;
    let process_user = rustix::process::geteuid().as_raw();
    let is_trusted_owner = metadata.uid() == 0 || metadata.uid() == process_user;
    // Another account may have created a hard link to a file of root (link(2)).
    if !metadata.is_file() || !is_trusted_owner || metadata.nlink() > 1 {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Creates an immutable memory file (memfd_create(2)) that contains `bytes`, to pass it to another process.
///
/// # Errors
/// Fails if there is not enough memory, or the open-file limit is reached.
pub fn sealed_file(label: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create(label, flags)?);
    file.write_all(bytes)?;
    file.rewind()?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for link in [&path, &directory.join("state.json.new")] {
            std::os::unix::fs::symlink(&target, link).unwrap();
            replace_file(&path, b"secret").unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
            assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
            assert_eq!(mode(&path), 0o100_600);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        replace_file(&path, b"other").unwrap();
        assert_eq!(mode(&path), 0o100_600);
        replace_public_file(&path, b"public").unwrap();
        assert_eq!(mode(&path), 0o100_644);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn file_with_a_second_hard_link_is_not_read() {
        let directory = std::env::temp_dir().join(format!("weir-second-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (path, second) = (
            directory.join("log"),
            directory.join("layer4-configuration"),
        );
        replace_file(&path, b"text").unwrap();
        assert_eq!(read_owned_file(&path).unwrap(), b"text");
        fs::hard_link(&path, &second).unwrap();
        let error = read_owned_file(&second).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
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

    #[test]
    fn failed_replacement_keeps_the_file_and_leaves_no_temporary_file() {
        let directory = std::env::temp_dir().join(format!("weir-failed-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("state.json");
        replace_file_durably(&path, b"old").unwrap();
        let fail = |_: &File| Err(io::ErrorKind::StorageFull.into());
        let error = create_staging(&path, b"new", fail).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }
}
