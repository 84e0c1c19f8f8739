//! Executes ipvsadm requests without a daemon: reads or changes the pinned data plane.
//!
//! The first edit acquires the runtime directory's lock. The next read, or the end of the command, releases it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_ipvsadm::{Edit, EditError};
use weir_model::Desired;

use crate::configuration::{self, Secrets};
use crate::ipvsadm_message::{Request, Response, name_file};
use crate::runtime_dir::{self, RuntimeDir, active_config_file, last_configuration};
use crate::traffic::Offline;
use weir_engine::{Paths, PinnedEngine};

/// Maximum time to wait for other processes that hold the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between attempts to acquire the lock.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The pinned data plane of a stopped daemon.
#[derive(Debug)]
pub(super) struct OfflineTable {
    paths: Paths,
    /// The configuration file that was active last.
    file: PathBuf,
    configured: Desired,
    engine: Option<(RuntimeDir, Offline)>,
}

impl OfflineTable {
    /// Opens the pinned data plane.
    ///
    /// # Errors
    /// Returns a message if nothing is pinned, or if the last active configuration is not recorded or cannot be loaded.
    pub(super) fn open(paths: &Paths) -> Result<Self, String> {
        weir_dataplane::open_readonly(&weir_dataplane::PinDir::new(&paths.pin_dir))
            .map_err(|error| error.to_string())?;
        let active_file = active_config_file(&paths.runtime_dir)
            .ok_or("the last active configuration is not recorded")?;
        let loaded = configuration::load_with(&active_file, false, Secrets::Unread)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            paths: paths.clone(),
            file: last_configuration(&paths.runtime_dir).unwrap_or(active_file),
            configured: loaded.desired,
            engine: None,
        })
    }

    /// Executes a request.
    ///
    /// # Errors
    /// Returns a message if the data plane cannot be read or opened, or if a daemon has been started.
    pub(super) async fn send(&mut self, request: &Request) -> Result<Response, String> {
        if let Request::Edits(edits) = request {
            return Ok(Response::Edits(self.edit(edits).await?));
        }
        // Edits in this session may have changed the data, so read it again.
        self.engine = None;
        let pinned =
            PinnedEngine::open(&self.paths, &self.configured).map_err(|error| error.to_string())?;
        Ok(match request {
            Request::Connections => {
                Response::Connections(pinned.connections().map_err(|error| error.to_string())?)
            }
            Request::Timeouts => Response::Timeouts(pinned.timeouts()),
            _ => Response::Listing(pinned.listing().map_err(|error| error.to_string())?),
        })
    }

    async fn edit(&mut self, edits: &[Edit]) -> Result<Vec<Result<(), EditError>>, String> {
        let (_, engine) = match &mut self.engine {
            Some(opened) => opened,
            closed => {
                let lock = acquire_lock(&self.paths.runtime_dir).await?;
                let engine = Offline::open(&self.paths, &self.configured)
                    .await
                    .map_err(|error| error.to_string())?;
                closed.insert((lock, engine))
            }
        };
        let mut results = engine.edit_table(edits).await;
        name_file(&mut results, &self.file);
        Ok(results)
    }
}

/// Acquires the lock of a runtime directory. Retries, because other ipvsadm processes hold the lock only briefly.
async fn acquire_lock(runtime_dir: &Path) -> Result<RuntimeDir, String> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match RuntimeDir::acquire(runtime_dir) {
            Ok(lock) => return Ok(lock),
            Err(runtime_dir::Error::Running { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
