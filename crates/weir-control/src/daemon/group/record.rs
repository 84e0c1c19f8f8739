//! Stores the group record on disk.
//!
//! The record is stored twice: in the runtime directory, which is lost at a reboot, and in the state directory, which
//! survives a reboot. The state directory is the service manager's `STATE_DIRECTORY`, or `/var/lib/weir` with the
//! default runtime directory. A separate thread writes the copy in the state directory, because this copy is synced to
//! disk. If a copy cannot be written, for example because the disk is full, the previous copy remains, the status
//! reports the error, and the write is retried.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_cluster::SharedState;
use weir_sys::{read_owned_file, replace_file, replace_file_durably};

use crate::group_configuration::GroupConfiguration;

const FILE: &str = "cluster.json";
const RUNTIME_DIRECTORY: &str = "/run/weir";
const STATE_DIRECTORY: &str = "/var/lib/weir";
/// Delay before a failed write is retried.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// The group record on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    /// The number of times that the record has been saved; the copy with the higher number is newer.
    number: u64,
    /// A random number that identifies this director.
    pub(super) identity: u64,
    pub(super) configuration: Option<GroupConfiguration>,
    /// Name of the group to which the shared entries apply.
    pub(super) group: String,
    pub(super) shared: SharedState,
    /// VIPs that stay announced although their services cannot serve. Read only from the runtime directory.
    pub(super) held_vips: BTreeSet<IpAddr>,
}

impl Record {
    pub(super) fn read(runtime_dir: &Path) -> Self {
        Self::read_from(runtime_dir, state_directory(runtime_dir).as_deref())
    }

    /// Returns whether the runtime directory contains a record. It does not after a reboot.
    pub(super) fn exists(runtime_dir: &Path) -> bool {
        runtime_dir.join(FILE).exists()
    }

    fn read_from(runtime_dir: &Path, state_dir: Option<&Path>) -> Self {
        let read = |directory: &Path| {
            let text = read_owned_file(&directory.join(FILE)).ok()?;
            serde_json::from_slice::<Self>(&text).ok()
        };
        let (runtime, state) = (read(runtime_dir), state_dir.and_then(read));
        // Routes do not survive a reboot.
        let held_vips = runtime.as_ref().map(|it| it.held_vips.clone());
        let copies = [state, runtime].into_iter().flatten();
        Self {
            held_vips: held_vips.unwrap_or_default(),
            ..copies.max_by_key(|copy| copy.number).unwrap_or_default()
        }
    }
}

/// Returns the group configuration that the last daemon in a runtime directory used.
pub fn last_group_configuration(runtime_dir: &Path) -> Option<GroupConfiguration> {
    Record::read(runtime_dir).configuration
}

/// Returns the directory that survives a reboot; `None` = this runtime directory has no state directory.
pub(in crate::daemon) fn state_directory(runtime_dir: &Path) -> Option<PathBuf> {
    let directories = std::env::var_os("STATE_DIRECTORY");
    // The service manager separates multiple directories with colons.
    let first = directories
        .as_ref()
        .and_then(|list| list.to_str()?.split(':').next());
    match first.filter(|directory| !directory.is_empty()) {
        Some(directory) => Some(directory.into()),
        None => (runtime_dir == Path::new(RUNTIME_DIRECTORY)).then(|| STATE_DIRECTORY.into()),
    }
}

/// Creates the state directory, or checks its owner and the modes of its files. Returns whether it can be used; errors
/// are logged.
pub(in crate::daemon) fn prepare_state_directory(directory: &Path) -> bool {
    let result = weir_runtime_dir::prepare(directory);
    if let Err(error) = &result {
        tracing::warn!(%error, "the group state will not survive a reboot");
    }
    result.is_ok()
}

/// Writes the record to both directories.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    state_dir: Option<PathBuf>,
    writer: Option<Writer>,
    /// Why the copy in the runtime directory is not up to date, and the time of the failed write; `None` = it is up to
    /// date.
    error: Option<(String, Instant)>,
    /// Why the copy in the state directory is not up to date; `None` = it is up to date or is being written.
    state_error: SharedError,
}

/// An error that is shared with the writer thread.
#[derive(Clone, Debug, Default)]
struct SharedError(Arc<Mutex<Option<String>>>);

impl SharedError {
    fn get(&self) -> Option<String> {
        let error = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        error.clone()
    }

    /// Replaces the error. Logs when an error occurs and when it is resolved.
    fn set(&self, path: &Path, error: Option<String>) {
        let mut previous = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log_change(path, previous.as_deref(), error.as_deref());
        *previous = error;
    }
}

/// Logs that the record can no longer be written, or can be written again.
fn log_change(path: &Path, previous: Option<&str>, error: Option<&str>) {
    let path = path.display();
    match (previous, error) {
        (previous, Some(error)) if previous != Some(error) => {
            tracing::error!(error, %path, "failed to record the group state");
        }
        (Some(_), None) => tracing::info!(%path, "recorded the group state"),
        _ => {}
    }
}

#[derive(Debug)]
struct Writer {
    texts: Option<Sender<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    pub(super) fn new(runtime_dir: &Path) -> Self {
        Self {
            path: runtime_dir.join(FILE),
            state_dir: state_directory(runtime_dir),
            writer: None,
            error: None,
            state_error: SharedError::default(),
        }
    }

    /// Writes the record. When this function returns, the record survives the daemon's exit, unless [`Self::error`]
    /// returns an error. If there is a state directory, the record soon also survives a reboot.
    pub(super) fn save(&mut self, record: &mut Record) {
        record.number += 1;
        match serde_json::to_vec(record) {
            Ok(text) => {
                self.write(&text);
                self.save_durably(text);
            }
            Err(error) => self.set_error(Some(error.to_string())),
        }
    }

    /// Retries a failed write to the runtime directory.
    pub(super) fn retry_save(&mut self, record: &Record) {
        if let Ok(text) = serde_json::to_vec(record) {
            self.write(&text);
        }
    }

    /// Returns when to call [`Self::retry_save`].
    pub(super) fn retry_at(&self) -> Option<Instant> {
        let (_, failed_at) = self.error.as_ref()?;
        Some(*failed_at + RETRY_PAUSE)
    }

    /// Returns why the newest record is not on disk; `None` = it is on disk or is being written.
    pub(super) fn error(&self) -> Option<String> {
        let error = self.error.as_ref().map(|(error, _)| error.clone());
        error.or_else(|| self.state_error.get())
    }

    fn write(&mut self, text: &[u8]) {
        let error = replace_file(&self.path, text).err();
        self.set_error(error.map(|error| format!("{}: {error}", self.path.display())));
    }

    fn set_error(&mut self, error: Option<String>) {
        let previous = self.error.as_ref().map(|(error, _)| error.as_str());
        log_change(&self.path, previous, error.as_deref());
        self.error = error.map(|error| (error, Instant::now()));
    }

    fn save_durably(&mut self, text: Vec<u8>) {
        let Some(directory) = &self.state_dir else {
            return;
        };
        if self.writer.is_none() {
            self.writer = Writer::start(directory.clone(), self.state_error.clone());
        }
        let texts = self.writer.as_ref().and_then(|it| it.texts.as_ref());
        if let Some(texts) = texts {
            let _ = texts.send(text);
        }
    }
}

impl Writer {
    fn start(directory: PathBuf, error: SharedError) -> Option<Self> {
        let (texts, receiver) = channel();
        let thread = std::thread::Builder::new().name("group state".to_owned());
        match thread.spawn(move || write(&directory, &receiver, &error)) {
            Ok(thread) => Some(Self {
                texts: Some(texts),
                thread: Some(thread),
            }),
            Err(error) => {
                tracing::warn!(%error, "the group state will not survive a reboot");
                None
            }
        }
    }
}

/// Writes the newest text from the channel, until the channel is closed. Retries failed writes.
fn write(directory: &Path, texts: &Receiver<Vec<u8>>, error: &SharedError) {
    let path = directory.join(FILE);
    let mut unwritten: Option<Vec<u8>> = None;
    loop {
        let received = match &unwritten {
            Some(_) => texts.recv_timeout(RETRY_PAUSE),
            None => texts.recv().map_err(RecvTimeoutError::from),
        };
        match received {
            Ok(text) => unwritten = Some(texts.try_iter().last().unwrap_or(text)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(text) = &unwritten {
            let prepare_result =
                weir_runtime_dir::prepare(directory).map_err(|error| error.to_string());
            let result = prepare_result.and_then(|()| {
                let write_result = replace_file_durably(&path, text);
                write_result.map_err(|error| format!("{}: {error}", path.display()))
            });
            if result.is_ok() {
                unwritten = None;
            }
            error.set(&path, result.err());
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.texts = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn store(runtime: &Path, state: &Path) -> Store {
        Store {
            path: runtime.join(FILE),
            state_dir: Some(state.to_owned()),
            writer: None,
            error: None,
            state_error: SharedError::default(),
        }
    }

    #[test]
    fn newer_copy_is_read_if_the_other_directory_cannot_be_written() {
        let base = std::env::temp_dir().join(format!("weir-group-newer-{}", std::process::id()));
        let (runtime, state) = (base.join("run"), base.join("state"));
        std::fs::create_dir_all(&runtime).unwrap();
        let mut writer = store(&runtime, &state);
        let mut record = Record::default();
        writer.save(&mut record);
        // A directory with the name of the temporary file makes the write fail.
        let obstacle = runtime.join("cluster.json.new");
        std::fs::create_dir(&obstacle).unwrap();
        record.identity = 7;
        writer.save(&mut record);
        assert!(writer.retry_at().is_some());
        assert!(writer.error().unwrap().contains("cluster.json"));
        drop(writer);
        assert_eq!(Record::read_from(&runtime, None).identity, 0);
        assert_eq!(Record::read_from(&runtime, Some(&state)), record);

        std::fs::remove_dir(&obstacle).unwrap();
        let mut writer = store(&runtime, &state);
        writer.set_error(Some("blocked".to_owned()));
        writer.retry_save(&record);
        assert_eq!((writer.error(), writer.retry_at()), (None, None));
        assert_eq!(Record::read_from(&runtime, None), record);
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn record_survives_the_loss_of_the_runtime_directory() {
        let base = std::env::temp_dir().join(format!("weir-group-record-{}", std::process::id()));
        let (runtime, state) = (base.join("run"), base.join("state"));
        std::fs::create_dir_all(&runtime).unwrap();
        let mut store = store(&runtime, &state);
        let mut record = Record {
            identity: 7,
            ..Record::default()
        };
        for version in 1..=20 {
            record.configuration = Some(GroupConfiguration {
                group: "edge".to_owned(),
                version,
                text: "[pool.a]".to_owned(),
                ..GroupConfiguration::default()
            });
            store.save(&mut record);
        }
        record.held_vips = BTreeSet::from([[192, 0, 2, 10].into()]);
        store.save(&mut record);
        assert_eq!(Record::read_from(&runtime, Some(&state)), record);
        drop(store);
        std::fs::remove_dir_all(&runtime).unwrap();
        // The routes are lost too.
        record.held_vips.clear();
        assert_eq!(Record::read_from(&runtime, Some(&state)), record);
        assert_eq!(Record::read_from(&runtime, None), Record::default());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join(FILE))), (0o700, 0o600));
        std::fs::remove_dir_all(&base).unwrap();
    }
}
