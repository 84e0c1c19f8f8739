//! Watches the directories of files that `file` checks read (inotify(7)), so a changed file is read immediately.
//!
//! A file that cannot be watched is still read at the check's interval.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};

use crate::context::lock;

/// Size of the event buffer, in bytes.
const BUFFER_BYTES: usize = 4096;

/// Receives changes to files in watched directories.
pub(crate) trait Observer: Send + Sync {
    /// Handles a change to a file. `file` may be a file that no check reads.
    fn file_changed(&self, file: &Path);
}

/// The watched directories. The inotify descriptor is opened on first use.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<Option<ActiveWatch>>);

/// The inotify descriptor and its watches.
#[derive(Debug)]
struct ActiveWatch {
    descriptor: Arc<OwnedFd>,
    /// Directories by watch descriptor.
    directories: Arc<Mutex<HashMap<i32, PathBuf>>>,
}

impl Watch {
    /// Starts watching a file. Must be called before the file is read, so no change is missed.
    pub(crate) fn watch(&self, observer: Weak<dyn Observer>, file: &Path) {
        let mut open = lock(&self.0);
        if open.is_none() {
            match ActiveWatch::new(observer) {
                Ok(new) => *open = Some(new),
                // The file is still read at the check's interval, so the error is only logged.
                Err(error) => tracing::debug!(%error, "failed to watch the files of checks"),
            }
        }
        if let (Some(open), Some(directory)) = (open.as_ref(), file.parent()) {
            open.watch(directory);
        }
    }
}

impl ActiveWatch {
    fn new(observer: Weak<dyn Observer>) -> io::Result<Self> {
        let descriptor = Arc::new(init(CreateFlags::CLOEXEC)?);
        let directories: Arc<Mutex<HashMap<i32, PathBuf>>> = Arc::default();
        let (events, shared_directories) = (Arc::clone(&descriptor), Arc::clone(&directories));
        std::thread::Builder::new()
            .name("checked-files".to_owned())
            .spawn(move || handle_events(&events, &shared_directories, &observer))?;
        Ok(Self {
            descriptor,
            directories,
        })
    }

    fn watch(&self, directory: &Path) {
        let mut directories = lock(&self.directories);
        if directories.values().any(|watched| watched == directory) {
            return;
        }
        let flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        if let Ok(number) = add_watch(&*self.descriptor, directory, flags) {
            directories.insert(number, directory.to_owned());
        }
    }
}

/// Handles events. Returns at the first event after the checks were dropped.
fn handle_events(
    descriptor: &OwnedFd,
    directories: &Mutex<HashMap<i32, PathBuf>>,
    observer: &Weak<dyn Observer>,
) {
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut reader = Reader::new(descriptor, &mut buffer);
    while let Ok(event) = reader.next() {
        let Some(observer) = observer.upgrade() else {
            return;
        };
        let mut directories = lock(directories);
        if event.events().contains(ReadFlags::IGNORED) {
            // The directory was removed; the next probe watches it again if it exists.
            directories.remove(&event.wd());
        }
        let name = event.file_name().map(|name| name.to_bytes().to_vec());
        let directory = directories.get(&event.wd()).cloned();
        drop(directories);
        if let (Some(directory), Some(name)) = (directory, name) {
            observer.file_changed(&directory.join(OsString::from_vec(name)));
        }
    }
}
