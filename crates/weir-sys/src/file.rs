//! Files that others read at any time.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Puts `bytes` in place of what is in a file, or makes it: whoever reads it finds all of the former or all of these. Nothing
/// waits for a disk; after a failure of power the file may be empty. Two must not write the same file at once.
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
    fs::write(made, bytes)?;
    if renameat_with(CWD, made, CWD, path, RenameFlags::EXCHANGE).is_ok() {
        // The former one. Should it stay, the next to come writes over it.
        let _ = fs::remove_file(made);
        return Ok(());
    }
    // There was none, or the file system cannot do that.
    fs::rename(made, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_and_replaced_and_nothing_else_stays() {
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
