//! Waits for changes to files with inotify(7). It watches the directories, because a replaced file has a new inode.
//!
//! A directory can also be replaced, and a file can be a link into a subdirectory. The caller therefore compares the
//! watched directories with the files' current directories once per second.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init, remove_watch};
use tokio::sync::Notify;

/// Size of the event buffer, in bytes.
const BUFFER_BYTES: usize = 4096;

/// The watched events: a file was written, replaced or removed, or its attributes were changed.
const EVENTS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR);

/// The watches for a set of files. The thread that reads events runs until the process exits.
#[derive(Debug)]
pub(crate) struct Watch {
    descriptor: Option<Arc<OwnedFd>>,
    changed: Arc<Notify>,
    files: BTreeSet<PathBuf>,
    /// The watch descriptor of each directory. Two paths to the same directory have the same descriptor.
    watches: BTreeMap<PathBuf, i32>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            descriptor: None,
            changed: Arc::default(),
            files: BTreeSet::new(),
            watches: BTreeMap::new(),
        }
    }

    /// Returns the notifier for changed lists, which the DNS source also uses.
    pub(crate) fn notify(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Replaces the set of watched files.
    pub(crate) fn set_files(&mut self, files: BTreeSet<PathBuf>) {
        self.files = files;
        if self.check_directories() {
            // A file may have changed between its first read and the start of the watch.
            self.changed.notify_one();
        }
    }

    /// Watches the current directories of the files. Returns whether the set of watched directories has changed; if it
    /// has, an event may have been missed.
    pub(crate) fn check_directories(&mut self) -> bool {
        if self.files.is_empty() && self.watches.is_empty() {
            return false;
        }
        let Some(descriptor) = self.descriptor() else {
            return false;
        };
        let directories: BTreeSet<PathBuf> = self
            .files
            .iter()
            .flat_map(|file| directories_of(file))
            .collect();
        let mut watches = BTreeMap::new();
        for directory in directories {
            // If a directory is missing, the next call retries it. If a directory is already watched, it keeps its
            // watch descriptor.
            if let Ok(number) = add_watch(&*descriptor, &directory, EVENTS) {
                watches.insert(directory, number);
            }
        }
        let current: BTreeSet<i32> = watches.values().copied().collect();
        for number in self
            .watches
            .values()
            .filter(|number| !current.contains(number))
        {
            // The kernel has already removed the watches of deleted directories.
            let _ = remove_watch(&*descriptor, *number);
        }
        let has_changed = self.watches != watches;
        self.watches = watches;
        has_changed
    }

    /// Returns the number of watched directories.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.watches.len()
    }

    /// Returns the inotify descriptor. The first call creates the descriptor and starts the thread that reads events.
    fn descriptor(&mut self) -> Option<Arc<OwnedFd>> {
        if self.descriptor.is_none() {
            let descriptor = match init(CreateFlags::CLOEXEC) {
                Ok(descriptor) => Arc::new(descriptor),
                Err(error) => {
                    tracing::warn!(%error, "failed to watch server lists: changes are applied only by a reload");
                    return None;
                }
            };
            let (events, changed) = (Arc::clone(&descriptor), Arc::clone(&self.changed));
            std::thread::spawn(move || {
                let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
                let mut reader = Reader::new(&*events, &mut buffer);
                while reader.next().is_ok() {
                    changed.notify_one();
                }
            });
            self.descriptor = Some(descriptor);
        }
        self.descriptor.clone()
    }

    /// Waits until a file or a DNS response may have changed. The future is cancel-safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// Returns the directory of a file. If the file is a link into a subdirectory, also returns the target's directory.
/// Targets outside the file's directory are excluded, because files there are never read.
fn directories_of(file: &Path) -> impl Iterator<Item = PathBuf> {
    let is_link = fs::symlink_metadata(file).is_ok_and(|metadata| metadata.is_symlink());
    let parent_of = |path: &Path| path.parent().map(Path::to_owned);
    let find_target_directory = || {
        let real_directory = fs::canonicalize(file.parent()?).ok()?;
        let directory = parent_of(&fs::canonicalize(file).ok()?)?;
        directory.starts_with(real_directory).then_some(directory)
    };
    let target_directory = is_link.then(find_target_directory).flatten();
    [parent_of(file), target_directory].into_iter().flatten()
}
