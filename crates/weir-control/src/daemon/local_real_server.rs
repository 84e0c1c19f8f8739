//! Keeps the settings of `weir real-server` in place if this machine is a server of another director.

use std::path::Path;

use weir_real_server::Options;

/// Keeps the settings of `weir real-server` on this machine in place.
#[derive(Debug, Default)]
pub(super) struct LocalRealServer {
    /// `None` = this daemon does not manage them.
    options: Option<Options>,
    /// Number of repaired settings.
    repaired: u64,
    /// The last repair failed, and that was logged.
    failed: bool,
}

impl LocalRealServer {
    pub(super) fn new(runtime_dir: &Path, pin_dir: &Path) -> Self {
        Self {
            options: Some(Options {
                runtime_dir: runtime_dir.to_owned(),
                pin_dir: pin_dir.to_owned(),
            }),
            ..Self::default()
        }
    }

    pub(super) const fn repaired(&self) -> u64 {
        self.repaired
    }

    /// Repairs settings that others have changed.
    pub(super) async fn repair(&mut self) {
        let Some(options) = &self.options else {
            return;
        };
        match weir_real_server::repair(options).await {
            Ok(steps) => {
                self.failed = false;
                self.repaired += steps.len() as u64;
                for step in steps {
                    tracing::warn!(%step, "repaired a setting of weir real-server");
                }
            }
            Err(error) if !self.failed => {
                self.failed = true;
                tracing::warn!(%error, "could not repair the settings of weir real-server");
            }
            Err(_) => {}
        }
    }
}
