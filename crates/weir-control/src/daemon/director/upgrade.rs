//! Performs upgrades: the daemon starts its successor and hands over to it, or continues if the successor fails.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use weir_sys::Channel;

use super::Director;
use crate::api::{ApiError, Command, UpgradeRequest, UpgradeResponse};
use crate::keeper::UpgradeResult;
use crate::plane::Plane;
use crate::runtime_dir::DrainingRecord;

/// Maximum number of requests that wait until an upgrade has ended. Later ones wait in the queue.
const MAX_WAITING: usize = 64;

/// A daemon that still has clients after its successor has taken over.
#[derive(Debug)]
pub(crate) struct DrainingDaemon<P> {
    /// The plane, with the remaining clients.
    pub plane: P,
    /// This daemon's record in the runtime directory.
    pub record: DrainingRecord,
    /// Process ID of the successor.
    pub successor: u32,
    /// The channel through which clients are handed over.
    pub channel: Channel,
    /// Time limit for clients to finish when this daemon is stopped.
    pub limit: Duration,
}

impl<P: Plane> Director<P> {
    /// Executes an upgrade. Meanwhile, responds to `requests` that change nothing: a start can take more than a
    /// minute, and Pacemaker and keepalived consider a director faulty if it does not report its status. Flows are
    /// synchronized too, because the active director can fail while the successor starts. Returns the other requests.
    /// If the upgrade succeeds, the caller must drop them: their clients send them again, to the successor.
    pub(crate) async fn upgrade(
        &mut self,
        request: UpgradeRequest,
        requests: &mut mpsc::Receiver<Command>,
    ) -> (Result<UpgradeResponse, ApiError>, VecDeque<Command>) {
        let mut waiting = VecDeque::new();
        let mut result = match self.start_successor(request) {
            Ok(result) => result,
            Err(error) => return (Err(error), waiting),
        };
        let mut sync_at = Instant::now();
        let result = loop {
            tokio::select! {
                result = &mut result => break result,
                () = sleep_until(sync_at) => {
                    sync_at = Instant::now() + self.sync.step_until_replaced(self.plane.engine());
                }
                Some(command) = requests.recv(), if waiting.len() < MAX_WAITING => {
                    waiting.extend(self.respond_if_read_only(command));
                }
            }
        };
        let response = match result {
            Ok(result) => self.finish_upgrade(result).await,
            Err(error) => Err(ApiError::new(error)),
        };
        (response, waiting)
    }

    /// Makes the keeper start the successor. Returns a task that waits until the successor is ready or has failed.
    fn start_successor(
        &mut self,
        request: UpgradeRequest,
    ) -> Result<JoinHandle<UpgradeResult>, ApiError> {
        self.end_guard();
        let state = self.plane.export_state().map_err(ApiError::new)?;
        self.runtime_dir.create_socket_link();
        let (keeper, program) = (self.keeper.clone(), request.program);
        tracing::info!(program = %program.display(), "starting the successor");
        Ok(tokio::task::spawn_blocking(move || {
            keeper.upgrade(program, state.as_fd())
        }))
    }

    async fn finish_upgrade(&mut self, result: UpgradeResult) -> Result<UpgradeResponse, ApiError> {
        match result {
            UpgradeResult::Succeeded { pid, channel } => {
                tracing::info!(pid, "the successor has taken over");
                self.runtime_dir.remove_socket_link();
                self.successor = Some((pid, channel));
                Ok(UpgradeResponse { pid })
            }
            UpgradeResult::Failed { reason } => {
                tracing::error!(reason, "the upgrade failed; this daemon continues");
                Err(ApiError::new(match self.resume().await {
                    Ok(()) => reason,
                    Err(error) => {
                        tracing::error!(%error, "failed to revert the successor's changes");
                        format!("{reason}; failed to revert the successor's changes: {error}")
                    }
                }))
            }
        }
    }

    /// Resumes after the successor has failed at any point during the upgrade.
    async fn resume(&mut self) -> Result<(), ApiError> {
        let restored = self.runtime_dir.restore_socket();
        self.plane.resume().await.map_err(ApiError::new)?;
        self.configure_sync();
        self.configure_checks();
        restored.map_err(ApiError::new)
    }

    /// Returns whether a successor has taken over.
    pub(crate) const fn has_successor(&self) -> bool {
        self.successor.is_some()
    }

    /// Stops serving the API and running checks, because the successor takes over both. Returns `None` if there is no
    /// successor.
    pub(crate) fn into_draining(self) -> Option<DrainingDaemon<P>> {
        self.admin.stop();
        let limit = self.desired.node.drain_timeout;
        let (successor, channel) = self.successor?;
        Some(DrainingDaemon {
            plane: self.plane,
            record: self.runtime_dir.draining_record(),
            successor,
            channel,
            limit,
        })
    }
}
