//! `RUNTIME_DIR/proxy-left.json`: state of the proxy services for the next daemon, even after a crash: counters, check
//! results and times of state changes.
//!
//! It is written once per second if it has changed, and at the end; a killed daemon loses the counters of its last
//! second. Writing takes at most 1 % of the time, however many services there are.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_sys::replace_file;

use super::handover::Handover;

/// The file's name.
const FILE: &str = "proxy-left.json";
/// The pause between two writes, as a multiple of the duration of a write.
const PAUSE_FACTOR: u32 = 100;

/// Reads and writes the file with the state of proxy services.
#[derive(Debug)]
pub(super) struct HandoverFile {
    path: PathBuf,
    written: Vec<u8>,
    next: Instant,
    warned: bool,
}

impl HandoverFile {
    /// The file of a runtime directory.
    pub(super) fn new(runtime_dir: &Path) -> Self {
        Self {
            path: runtime_dir.join(FILE),
            written: Vec::new(),
            next: Instant::now(),
            warned: false,
        }
    }

    /// Returns what the previous daemon wrote.
    pub(super) fn read(&self) -> Option<Handover> {
        let mut file = File::open(&self.path).ok()?;
        Some(Handover::read(&mut file))
    }

    /// Whether it is time to write.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Writes the file if its content has changed.
    pub(super) fn write(&mut self, handover: &Handover) {
        let started = Instant::now();
        if let Err(error) = self.try_write(handover)
            && !std::mem::replace(&mut self.warned, true)
        {
            tracing::warn!(%error, "failed to persist counters of proxy services");
        }
        let took: Duration = started.elapsed();
        self.next = Instant::now() + took * PAUSE_FACTOR;
    }

    fn try_write(&mut self, handover: &Handover) -> std::io::Result<()> {
        let text = serde_json::to_vec(handover)?;
        if text == self.written {
            return Ok(());
        }
        replace_file(&self.path, &text)?;
        self.written = text;
        Ok(())
    }
}
