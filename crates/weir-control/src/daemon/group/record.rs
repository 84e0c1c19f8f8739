//! The record of the group on disk.
//!
//! The record is stored twice: in the runtime directory, which is lost at a reboot, and in the state directory, which
//! survives it. The state directory is the service manager's `STATE_DIRECTORY`, or `/var/lib/weir` with the default
//! runtime directory. The copy in the runtime directory is never older than the other copy. The copy in the state
//! directory is synced to disk, so a separate thread writes it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use weir_cluster::SharedState;
use weir_sys::{read_own, replace_file, replace_file_durably};

use crate::group_configuration::GroupConfiguration;

const FILE: &str = "cluster.json";
const RUNTIME_DIRECTORY: &str = "/run/weir";
const STATE_DIRECTORY: &str = "/var/lib/weir";

/// The record of the group on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    /// A random number that identifies this director.
    pub(super) identity: u64,
    pub(super) configuration: Option<GroupConfiguration>,
    /// Name of the group to which the shared entries belong.
    pub(super) group: String,
    pub(super) shared: SharedState,
}

impl Record {
    pub(super) fn read(runtime_dir: &Path) -> Self {
        Self::read_from(runtime_dir, state_directory(runtime_dir).as_deref())
    }

    fn read_from(runtime_dir: &Path, state_dir: Option<&Path>) -> Self {
        let directories = [Some(runtime_dir), state_dir];
        let mut texts = directories.into_iter().flatten().filter_map(|directory| {
            let text = read_own(&directory.join(FILE)).ok()?;
            serde_json::from_slice(&text).ok()
        });
        texts.next().unwrap_or_default()
    }
}

/// Returns the group configuration that the last daemon of a runtime directory used.
pub fn last_group_configuration(runtime_dir: &Path) -> Option<GroupConfiguration> {
    Record::read(runtime_dir).configuration
}

/// Returns the directory that survives a reboot; `None` = this runtime directory has none.
pub(in crate::daemon) fn state_directory(runtime_dir: &Path) -> Option<PathBuf> {
    let directories = std::env::var_os("STATE_DIRECTORY");
    // The service manager separates several directories with colons.
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
    let prepared = weir_runtime_dir::prepare(directory);
    if let Err(error) = &prepared {
        tracing::warn!(%error, "the state of the group will not survive a reboot");
    }
    prepared.is_ok()
}

/// The writer of the record to both directories.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    state_dir: Option<PathBuf>,
    writer: Option<Writer>,
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
        }
    }

    /// Writes the record. When this returns, the record survives the exit of the daemon; soon afterwards, it also
    /// survives a reboot.
    pub(super) fn save(&mut self, record: &Record) {
        let text = serde_json::to_vec(record).map_err(io::Error::from);
        let written = text.and_then(|text| {
            replace_file(&self.path, &text)?;
            Ok(text)
        });
        match written {
            Ok(text) => self.save_durably(text),
            Err(error) => {
                tracing::error!(%error, path = %self.path.display(), "failed to record the state of the group");
            }
        }
    }

    fn save_durably(&mut self, text: Vec<u8>) {
        if let Some(directory) = &self.state_dir
            && self.writer.is_none()
        {
            self.writer = match prepare_state_directory(directory) {
                true => Writer::start(directory.join(FILE)),
                false => None,
            };
            if self.writer.is_none() {
                self.state_dir = None;
            }
        }
        if let Some(texts) = self
            .writer
            .as_ref()
            .and_then(|writer| writer.texts.as_ref())
        {
            let _ = texts.send(text);
        }
    }
}

impl Writer {
    fn start(path: PathBuf) -> Option<Self> {
        let (texts, receiver) = channel();
        let thread = std::thread::Builder::new().name("group state".to_owned());
        match thread.spawn(move || write(&path, &receiver)) {
            Ok(thread) => Some(Self {
                texts: Some(texts),
                thread: Some(thread),
            }),
            Err(error) => {
                tracing::warn!(%error, "the state of the group will not survive a reboot");
                None
            }
        }
    }
}

/// Writes the newest text that has arrived, until the channel is closed.
fn write(path: &Path, texts: &Receiver<Vec<u8>>) {
    while let Ok(text) = texts.recv() {
        let text = texts.try_iter().last().unwrap_or(text);
        if let Err(error) = replace_file_durably(path, &text) {
            tracing::error!(%error, path = %path.display(), "failed to record the state of the group");
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

    #[test]
    fn record_survives_the_loss_of_the_runtime_directory() {
        let base = std::env::temp_dir().join(format!("weir-group-record-{}", std::process::id()));
        let (runtime, state) = (base.join("run"), base.join("state"));
        std::fs::create_dir_all(&runtime).unwrap();
        let mut store = Store {
            path: runtime.join(FILE),
            state_dir: Some(state.clone()),
            writer: None,
        };
        let mut record = Record {
            identity: 7,
            ..Record::default()
        };
        for version in 1..=20 {
            record.configuration = Some(GroupConfiguration {
                group: "edge".to_owned(),
                version,
                text: "[pool.a]".to_owned(),
            });
            store.save(&record);
        }
        assert_eq!(Record::read_from(&runtime, Some(&state)), record);
        drop(store);
        std::fs::remove_dir_all(&runtime).unwrap();
        assert_eq!(Record::read_from(&runtime, Some(&state)), record);
        assert_eq!(Record::read_from(&runtime, None), Record::default());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join(FILE))), (0o700, 0o600));
        std::fs::remove_dir_all(&base).unwrap();
    }
}
