//! Waits for files to change, by inotify(7) on their directories: a file that is replaced is another file.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use tokio::sync::Notify;

/// Room for the events of one read.
const ROOM: usize = 4096;

/// See the module. The thread that waits ends with the process.
#[derive(Debug)]
pub(super) struct Watch {
    descriptor: Option<Arc<OwnedFd>>,
    changed: Arc<Notify>,
    followed: BTreeSet<PathBuf>,
    missing: BTreeSet<PathBuf>,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            descriptor: None,
            changed: Arc::default(),
            followed: BTreeSet::new(),
            missing: BTreeSet::new(),
        }
    }

    /// By which somebody else may say that a list changed.
    pub(super) fn notify(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Follows these files; those of before are followed on, which costs a look now and then.
    pub(super) fn follow(&mut self, files: Vec<PathBuf>) {
        let directories = files
            .iter()
            .filter_map(|file| file.parent().map(Path::to_owned));
        for directory in directories {
            if !self.followed.contains(&directory) {
                self.missing.insert(directory);
            }
        }
        self.retry();
    }

    /// Tries the directories that were not there; whether one is there now.
    pub(super) fn retry(&mut self) -> bool {
        if self.missing.is_empty() {
            return false;
        }
        let Some(descriptor) = self.descriptor() else {
            return false;
        };
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        let missing = std::mem::take(&mut self.missing);
        let before = self.followed.len();
        for directory in missing {
            match add_watch(&*descriptor, &directory, flags) {
                Ok(_) => self.followed.insert(directory),
                Err(_) => self.missing.insert(directory),
            };
        }
        self.followed.len() > before
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
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
