//! Manages the file that stores the state of proxy services for the next daemon (`RUNTIME_DIR/proxy-left.json`).
//!
//! The state consists of counters, check results and times of state changes. It is available even after a crash.
//!
//! The file is written when the daemon stops and, if the state has changed, at most once per second. Regardless of the
//! number of services, writing takes at most 1 % of the time. A daemon that is killed loses the counters since the last
//! write.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_sys::replace_file;

use super::handover::Handover;

/// File name.
const FILE: &str = "proxy-left.json";
/// Minimum pause after a write, as a multiple of the duration of that write.
const PAUSE_FACTOR: u32 = 100;

/// Reads and writes the file with the state of proxy services.
#[derive(Debug)]
pub(super) struct HandoverFile {
    path: PathBuf,
    /// The content that was last written; empty = none.
    last_content: Vec<u8>,
    next_write_at: Instant,
    is_failure_logged: bool,
}

impl HandoverFile {
    /// Returns the file in a runtime directory, without reading it.
    pub(super) fn new(runtime_dir: &Path) -> Self {
        Self {
            path: runtime_dir.join(FILE),
            last_content: Vec::new(),
            next_write_at: Instant::now(),
            is_failure_logged: false,
        }
    }

    /// Returns the previous daemon's state; `None` = there is no file.
    pub(super) fn read(&self) -> Option<Handover> {
        let mut file = File::open(&self.path).ok()?;
        Some(Handover::read(&mut file))
    }

    /// Returns whether it is time to write.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next_write_at
    }

    /// Writes the file if its content has changed.
    pub(super) fn write(&mut self, handover: &Handover) {
        let started = Instant::now();
        if let Err(error) = self.try_write(handover)
            && !std::mem::replace(&mut self.is_failure_logged, true)
        {
            tracing::warn!(%error, "failed to write the state of proxy services");
        }
        let duration: Duration = started.elapsed();
        self.next_write_at = Instant::now() + duration * PAUSE_FACTOR;
    }

    fn try_write(&mut self, handover: &Handover) -> std::io::Result<()> {
        let text = serde_json::to_vec(handover)?;
        if text == self.last_content {
            return Ok(());
        }
        replace_file(&self.path, &text)?;
        self.last_content = text;
        Ok(())
    }
}
