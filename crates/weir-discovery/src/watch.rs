//! Waits for changes of files, by inotify(7) on their directories, because a replaced file is a new inode.
//!
//! A directory may be replaced as well, and a file may be a link into another directory below, so the watched
//! directories are compared with the files' directories once a second.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init, remove_watch};
use tokio::sync::Notify;

/// Buffer size for the events of one read.
const BUFFER_BYTES: usize = 4096;

/// A file was created, replaced or removed, or its mode was changed.
const EVENTS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR);

/// See the module. The waiting thread ends with the process.
#[derive(Debug)]
pub(crate) struct Watch {
    descriptor: Option<Arc<OwnedFd>>,
    changed: Arc<Notify>,
    files: BTreeSet<PathBuf>,
    /// The watch descriptor of each directory; two paths of one directory have the same one.
    watched: BTreeMap<PathBuf, i32>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            descriptor: None,
            changed: Arc::default(),
            files: BTreeSet::new(),
            watched: BTreeMap::new(),
        }
    }

    /// Notified when a list may have changed; shared with the other sources.
    pub(crate) fn notify(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Watches these files and no others.
    pub(crate) fn follow(&mut self, files: BTreeSet<PathBuf>) {
        self.files = files;
        if self.check_directories() {
            // A file may have changed between its first read and the start of the watch.
            self.changed.notify_one();
        }
    }

    /// Watches the present directories of the files. Returns whether one of them has changed, so that an event may have
    /// been missed.
    pub(crate) fn check_directories(&mut self) -> bool {
        if self.files.is_empty() && self.watched.is_empty() {
            return false;
        }
        let Some(descriptor) = self.descriptor() else {
            return false;
        };
        let directories: BTreeSet<PathBuf> =
            self.files.iter().flat_map(|f| directories_of(f)).collect();
        let mut watched = BTreeMap::new();
        for directory in directories {
            // A missing directory is tried again next time. A watched one keeps its descriptor.
            if let Ok(number) = add_watch(&*descriptor, &directory, EVENTS) {
                watched.insert(directory, number);
            }
        }
        let wanted: BTreeSet<i32> = watched.values().copied().collect();
        for number in self.watched.values().filter(|it| !wanted.contains(it)) {
            // The kernel has removed those of deleted directories already.
            let _ = remove_watch(&*descriptor, *number);
        }
        let changed = self.watched != watched;
        self.watched = watched;
        changed
    }

    /// Number of watched directories.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.watched.len()
    }

    fn descriptor(&mut self) -> Option<Arc<OwnedFd>> {
        if self.descriptor.is_none() {
            let descriptor = match init(CreateFlags::CLOEXEC) {
                Ok(descriptor) => Arc::new(descriptor),
                Err(error) => {
                    tracing::warn!(%error, "could not watch files with servers");
                    return None;
                }
            };
            let (waits, changed) = (Arc::clone(&descriptor), Arc::clone(&self.changed));
            std::thread::spawn(move || {
                let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
                let mut reader = Reader::new(&*waits, &mut buffer);
                while reader.next().is_ok() {
                    changed.notify_one();
                }
            });
            self.descriptor = Some(descriptor);
        }
        self.descriptor.clone()
    }

    /// Waits until a file may have changed. Dropping the future loses nothing.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The directory of a file and, if the file is a link, the target's directory if it is below: other targets are never
/// read.
fn directories_of(file: &Path) -> impl Iterator<Item = PathBuf> {
    let is_link = fs::symlink_metadata(file).is_ok_and(|it| it.is_symlink());
    let directory = |path: &Path| path.parent().map(Path::to_owned);
    let target = || {
        let real = fs::canonicalize(file.parent()?).ok()?;
        let target = directory(&fs::canonicalize(file).ok()?)?;
        target.starts_with(real).then_some(target)
    };
    let of_target = is_link.then(target).flatten();
    [directory(file), of_target].into_iter().flatten()
}
