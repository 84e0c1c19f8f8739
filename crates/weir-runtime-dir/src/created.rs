//! Removes the files that a failed start created.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::kind::{DIRECTORY, expected_kind};

/// The name of the lock file, which is removed last.
const LOCK_FILE: &str = "lock";

/// Records of changes to the host. If a failed start leaves one behind, `weir clean` and the next daemon need it.
const CHANGE_RECORDS: &[&str] = &[
    "state.json",
    "state.journal",
    "vips.json",
    "vrrp.json",
    "announced.json",
    "announced-speakers.json",
    "real-server.json",
    "protect.sysctl",
];

/// The contents of a runtime directory before a start.
#[derive(Clone, Debug)]
pub struct ContentBeforeStart {
    path: PathBuf,
    /// Whether the directory existed.
    existed: bool,
    files: BTreeSet<OsString>,
}

impl ContentBeforeStart {
    /// Records whether the directory and its lock exist. Must be called before the lock is taken.
    pub fn before_lock(path: &Path) -> Self {
        let lock = path.join(LOCK_FILE);
        let lock = lock.symlink_metadata().is_ok().then(|| LOCK_FILE.into());
        Self {
            path: path.to_owned(),
            existed: path.exists(),
            files: lock.into_iter().collect(),
        }
    }

    /// Records all files of a directory that another process has prepared and locked for the caller.
    pub fn of_locked(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            existed: true,
            files: names(path).into_iter().collect(),
        }
    }

    /// Records the other files. Must be called while the lock is held, because a previous holder may have created some
    /// of them.
    pub fn record_files(&mut self) {
        let names = names(&self.path);
        self.files
            .extend(names.into_iter().filter(|name| name != LOCK_FILE));
    }

    /// Removes Weir's files that did not exist before, and the directory if it did not exist either. The caller must
    /// hold the lock, and no daemon may be running. Removes nothing if a record of changes to the host was created.
    /// Skips files that cannot be removed.
    pub fn remove_created(&self) {
        let created: Vec<OsString> = names(&self.path)
            .into_iter()
            .filter(|name| !self.files.contains(name))
            .collect();
        let is_change_record = |name: &OsString| CHANGE_RECORDS.iter().any(|record| name == record);
        if created.iter().any(is_change_record) {
            return;
        }
        let (locks, others): (Vec<_>, Vec<_>) = created.iter().partition(|name| *name == LOCK_FILE);
        for name in others.into_iter().chain(locks) {
            let path = self.path.join(name);
            let _ = match name.to_str().and_then(expected_kind) {
                Some(DIRECTORY) => fs::remove_dir(path),
                Some(_) => fs::remove_file(path),
                None => Ok(()),
            };
        }
        if !self.existed {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Returns the names of the files in a directory, or none if the directory cannot be read.
fn names(directory: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(path: &Path) -> Vec<OsString> {
        let mut names = names(path);
        names.sort();
        names
    }

    #[test]
    fn only_created_files_are_removed() {
        let path = std::env::temp_dir().join(format!("weir-created-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let create = |name: &str| fs::write(path.join(name), "").unwrap();
        let start = |created: &[&str]| {
            let mut before = ContentBeforeStart::before_lock(&path);
            fs::create_dir_all(&path).unwrap();
            create("lock");
            before.record_files();
            created.iter().for_each(|name| create(name));
            before
        };
        start(&["token", "network-namespace"]).remove_created();
        assert!(!path.exists(), "the start created the directory");

        fs::create_dir(&path).unwrap();
        create("token");
        start(&["cookie.key", "other"]).remove_created();
        assert_eq!(content(&path), ["other", "token"]);

        start(&["cookie.key", "vips.json"]).remove_created();
        let all_files = ["cookie.key", "lock", "other", "token", "vips.json"];
        assert_eq!(
            content(&path),
            all_files,
            "vips.json was created, so nothing may be removed"
        );
        start(&["weir.sock.new"]).remove_created();
        assert_eq!(content(&path), all_files);

        let before = ContentBeforeStart::of_locked(&path);
        create("network-namespace");
        before.remove_created();
        assert_eq!(
            content(&path),
            all_files,
            "the lock of the other process stays"
        );
        fs::remove_dir_all(&path).unwrap();
    }
}
