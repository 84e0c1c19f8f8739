//! `RUNTIME_DIR/proxy-counts.json`: what proxy services have counted. Written when a second has changed it, so that totals go on
//! after the daemon's end, and of a crash at most that second is missing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use weir_proxy::ServiceStatus;

use super::left::Left;

const FILE: &str = "proxy-counts.json";

/// See the module.
#[derive(Debug)]
pub(super) struct Counts {
    path: PathBuf,
    /// What is in the file, as far as this daemon wrote it.
    written: Vec<u8>,
    /// Another daemon counts on.
    over: bool,
}

impl Counts {
    pub(super) fn new(runtime_dir: &Path) -> Self {
        Self {
            path: runtime_dir.join(FILE),
            written: Vec::new(),
            over: false,
        }
    }

    /// What a former daemon counted; nothing where there was none.
    pub(super) fn former(&self) -> Vec<ServiceStatus> {
        File::open(&self.path)
            .map_or_else(|_| Vec::new(), |mut file| Left::read(&mut file).services())
    }

    /// Writes them down, if they are others than before.
    pub(super) fn keep(&mut self, services: &[ServiceStatus]) {
        if self.over || (services.is_empty() && self.written.is_empty()) {
            return;
        }
        let text = Left::counts(services).to_text();
        if text == self.written {
            return;
        }
        let new = self.path.with_extension("json.new");
        match fs::write(&new, &text).and_then(|()| fs::rename(&new, &self.path)) {
            Ok(()) => self.written = text,
            Err(error) => tracing::warn!(%error, "the proxy's counts are not written down"),
        }
    }

    /// The file is another daemon's from now on.
    pub(super) const fn hand_over(&mut self) {
        self.over = true;
    }
}
