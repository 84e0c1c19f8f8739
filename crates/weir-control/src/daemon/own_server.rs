//! This machine as a server of others: what `weir real-server` has set up by the daemon's directories stays as it is.

use std::path::Path;

use weir_real_server::Options;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OwnServer {
    /// Absent = it is nobody's business here.
    options: Option<Options>,
    /// How much of it others had undone so far.
    mended: u64,
    /// It could not be mended, which was said.
    failed: bool,
}

impl OwnServer {
    pub(super) fn new(runtime_dir: &Path, pin_dir: &Path) -> Self {
        Self {
            options: Some(Options {
                runtime_dir: runtime_dir.to_owned(),
                pin_dir: pin_dir.to_owned(),
            }),
            ..Self::default()
        }
    }

    pub(super) const fn mended(&self) -> u64 {
        self.mended
    }

    /// Puts back what others undid.
    pub(super) async fn look_after(&mut self) {
        let Some(options) = &self.options else {
            return;
        };
        match weir_real_server::keep(options).await {
            Ok(steps) => {
                self.failed = false;
                self.mended += steps.len() as u64;
                for step in steps {
                    tracing::warn!(%step, "what real-server had set up was put back");
                }
            }
            Err(error) if !self.failed => {
                self.failed = true;
                tracing::warn!(%error, "what real-server had set up could not be put back");
            }
            Err(_) => {}
        }
    }
}
