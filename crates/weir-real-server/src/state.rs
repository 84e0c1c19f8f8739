//! Reads and writes the record of Weir's changes to a server (`RUNTIME_DIR/real-server.json`).
//!
//! It contains the requested VIPs, Weir's changes, and the previous values.
//!
//! The file is replaced before each change, so that no record is lost if the process is killed. Changes do not survive
//! a reboot; the boot ID shows whether the file was written before the last boot.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_sys::{LockFile, NetNs, boot_id, create_private, read_owned_file};

use crate::desired::DesiredState;
use crate::error::{Error, Result};
use crate::plan::Record;
use crate::request::Options;

const VERSION: u32 = 1;
const FILE: &str = "real-server.json";
const LOCK_FILE: &str = "real-server.lock";

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    version: u32,
    boot: String,
    /// Cookie of the network namespace; unique until the next reboot.
    namespace: u64,
    desired: DesiredState,
    #[serde(rename = "memory")]
    record: Record,
}

/// The content of the state file. Holds the lock until it is dropped.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    boot: String,
    namespace: u64,
    pub(crate) desired: DesiredState,
    pub(crate) record: Record,
    _lock: LockFile,
}

impl State {
    /// Takes the lock and reads the file. The state is empty if there is no file.
    pub(crate) fn open(options: &Options) -> Result<Self> {
        weir_runtime_dir::prepare(&options.runtime_dir)?;
        let lock = LockFile::acquire(options.runtime_dir.join(LOCK_FILE))?;
        let path = options.runtime_dir.join(FILE);
        let mut state = Self {
            boot: boot_id()?,
            namespace: NetNs::current()?.cookie()?,
            desired: DesiredState::default(),
            record: Record::default(),
            _lock: lock,
            path,
        };
        if let Some(content) = read(&state.path)? {
            (state.desired, state.record) =
                validate(content, &state.path, &state.boot, state.namespace)?;
        }
        Ok(state)
    }

    /// Writes the file, or removes it if there is nothing to record.
    pub(crate) fn save(&self) -> Result<()> {
        if self.desired == DesiredState::default() && self.record.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(source) if source.kind() != ErrorKind::NotFound => {
                    Err(Error::file(&self.path, source))
                }
                _ => Ok(()),
            };
        }
        let content = Content {
            version: VERSION,
            boot: self.boot.clone(),
            namespace: self.namespace,
            desired: self.desired.clone(),
            record: self.record.clone(),
        };
        let mut text = serde_json::to_vec_pretty(&content).map_err(|source| Error::State {
            path: self.path.clone(),
            source,
        })?;
        text.push(b'\n');
        let staging = self.path.with_extension("json.new");
        write_and_sync(&staging, &text).map_err(|source| Error::file(&staging, source))?;
        fs::rename(&staging, &self.path).map_err(|source| Error::file(&self.path, source))
    }
}

/// Returns whether the runtime directory records that this machine has been prepared as a real server.
pub fn is_recorded(runtime_dir: &Path) -> bool {
    runtime_dir.join(FILE).exists()
}

/// Reads the recorded state without taking the lock.
pub(crate) fn read_unlocked(options: &Options) -> Result<(DesiredState, Record)> {
    let path = options.runtime_dir.join(FILE);
    match read(&path)? {
        Some(content) => validate(content, &path, &boot_id()?, NetNs::current()?.cookie()?),
        None => Ok((DesiredState::default(), Record::default())),
    }
}

/// Returns the content of the file, which must have this version. If it was written before the last boot, the returned
/// record of changes is empty; otherwise, it must have been written in this network namespace.
fn validate(
    content: Content,
    path: &Path,
    boot: &str,
    namespace: u64,
) -> Result<(DesiredState, Record)> {
    if content.version != VERSION {
        return Err(Error::StateVersion {
            path: path.to_owned(),
            version: content.version,
            supported: VERSION,
        });
    }
    if content.boot != boot {
        return Ok((content.desired, Record::default()));
    }
    if content.namespace != namespace {
        return Err(Error::OtherNamespace {
            path: path.to_owned(),
        });
    }
    Ok((content.desired, content.record))
}

/// Reads the file. Files owned by the account of an unprivileged daemon, which can write to the directory, are ignored,
/// because they would let that account choose the changes that root makes.
fn read(path: &Path) -> Result<Option<Content>> {
    let text = match read_owned_file(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::file(path, source)),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|source| Error::State {
            path: path.to_owned(),
            source,
        })
}

fn write_and_sync(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut file = create_private(path)?;
    file.write_all(text)?;
    file.sync_all()
}
