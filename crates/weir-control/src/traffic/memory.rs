//! `RUNTIME_DIR/proxy-left.json`: what a daemon leaves of its proxy services to the next one, however it ended: counts,
//! what checks said, since when.
//!
//! Written about once a second when something changed, and at the end; a daemon that is killed loses the counts of its
//! last second. Writing takes a hundredth of the time at most, however many services there are.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_sys::replace_file;

use super::left::Left;

/// The file's name.
const FILE: &str = "proxy-left.json";
/// The time that writing takes, times this, is between two writings.
const SPARING: u32 = 100;

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    path: PathBuf,
    written: Vec<u8>,
    next: Instant,
    complained: bool,
}

impl Memory {
    /// Of a runtime directory.
    pub(super) fn new(runtime_dir: &Path) -> Self {
        Self {
            path: runtime_dir.join(FILE),
            written: Vec::new(),
            next: Instant::now(),
            complained: false,
        }
    }

    /// What the last daemon left.
    pub(super) fn read(&self) -> Option<Left> {
        let mut file = File::open(&self.path).ok()?;
        Some(Left::read(&mut file))
    }

    /// Whether it is time to write.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Writes what is not written yet.
    pub(super) fn write(&mut self, left: &Left) {
        let begun = Instant::now();
        if let Err(error) = self.try_write(left)
            && !std::mem::replace(&mut self.complained, true)
        {
            tracing::warn!(%error, "counts of proxy services are not kept over the daemon's end");
        }
        let took: Duration = begun.elapsed();
        self.next = Instant::now() + took * SPARING;
    }

    fn try_write(&mut self, left: &Left) -> std::io::Result<()> {
        let text = serde_json::to_vec(left)?;
        if text == self.written {
            return Ok(());
        }
        replace_file(&self.path, &text)?;
        self.written = text;
        Ok(())
    }
}
