//! Maintains the settings of `weir real-server` if this host is also a server of another director.

use std::path::Path;

use weir_real_server::Options;

/// Maintains this host's `weir real-server` settings, which other programs can change.
#[derive(Debug, Default)]
pub(super) struct LocalRealServer {
    /// `None` = this daemon does not maintain the settings.
    options: Option<Options>,
    /// Number of repaired settings.
    repaired: u64,
    /// Whether the last repair failed. The failure has been logged.
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

    /// Restores settings that other programs have changed.
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
                tracing::warn!(%error, "failed to repair the settings of weir real-server");
            }
            Err(_) => {}
        }
    }
}
