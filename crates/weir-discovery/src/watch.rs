//! Waits for files to change, by inotify(7) on their directories: a file that is replaced is another file.
//!
//! A directory may be replaced as well, and a file may be a link to another directory below, so that once a second it
//! is looked whether the directories watched are still those where the files are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init, remove_watch};
use tokio::sync::Notify;

/// Room for the events of one read.
const ROOM: usize = 4096;

/// A file is there, is another one, is gone, or may be read no more.
const EVENTS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR);

/// See the module. The thread that waits ends with the process.
#[derive(Debug)]
pub(crate) struct Watch {
    descriptor: Option<Arc<OwnedFd>>,
    changed: Arc<Notify>,
    files: BTreeSet<PathBuf>,
    /// The kernel's number of each directory; two paths of one directory have the same.
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

    /// By which somebody else may say that a list changed.
    pub(crate) fn notify(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Follows these files, and no others.
    pub(crate) fn follow(&mut self, files: BTreeSet<PathBuf>) {
        self.files = files;
        if self.look() {
            // Whoever read a file before its directory was watched may have read too early.
            self.changed.notify_one();
        }
    }

    /// Watches the directories where the files are now; whether one of them is another than before, so that something
    /// may have been missed.
    pub(crate) fn look(&mut self) -> bool {
        if self.files.is_empty() && self.watched.is_empty() {
            return false;
        }
        let Some(descriptor) = self.descriptor() else {
            return false;
        };
        let directories: BTreeSet<PathBuf> = self.files.iter().flat_map(|f| places(f)).collect();
        let mut watched = BTreeMap::new();
        for directory in directories {
            // One that is not there may be the next time. One that is watched keeps its number.
            if let Ok(number) = add_watch(&*descriptor, &directory, EVENTS) {
                watched.insert(directory, number);
            }
        }
        let wanted: BTreeSet<i32> = watched.values().copied().collect();
        for number in self.watched.values().filter(|it| !wanted.contains(it)) {
            // The kernel has forgotten those that were deleted.
            let _ = remove_watch(&*descriptor, *number);
        }
        let moved = self.watched != watched;
        self.watched = watched;
        moved
    }

    /// Directories that are watched.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.watched.len()
    }

    fn descriptor(&mut self) -> Option<Arc<OwnedFd>> {
        if self.descriptor.is_none() {
            let descriptor = match init(CreateFlags::CLOEXEC) {
                Ok(descriptor) => Arc::new(descriptor),
                Err(error) => {
                    tracing::warn!(%error, "files with servers are not watched");
                    return None;
                }
            };
            let (waits, changed) = (Arc::clone(&descriptor), Arc::clone(&self.changed));
            std::thread::spawn(move || {
                let mut room = [MaybeUninit::uninit(); ROOM];
                let mut reader = Reader::new(&*waits, &mut room);
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

/// The directory of a file, and where it is a link, that of what it leads to, if that is below: another is never read.
fn places(file: &Path) -> impl Iterator<Item = PathBuf> {
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
