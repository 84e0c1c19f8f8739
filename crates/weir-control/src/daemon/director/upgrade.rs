//! One daemon after another: the old one waits for the new one, and leaves, or goes on where that failed.

use std::os::fd::AsFd;
use std::time::Duration;

use weir_sys::Channel;

use super::Director;
use crate::api::{Refusal, UpgradeRequest, Upgraded};
use crate::daemon::draining::DrainingRecord;
use crate::daemon::plane::Plane;
use crate::keeper::UpgradeResult;

/// A daemon that was succeeded and still has clients.
#[derive(Debug)]
pub(crate) struct DrainingDaemon<P> {
    /// With the clients that are still here.
    pub plane: P,
    /// What others know of them.
    pub record: DrainingRecord,
    /// The process that is in charge.
    pub successor: u32,
    /// The way for clients.
    pub channel: Channel,
    /// How long they get when everything is to end.
    pub limit: Duration,
}

impl<P: Plane> Director<P> {
    pub(super) async fn upgrade(&mut self, request: UpgradeRequest) -> Result<Upgraded, Refusal> {
        self.end_probation();
        let state = self.plane.export_state().map_err(Refusal::new)?;
        self.runtime_dir.keep_socket_link();
        let (keeper, program) = (self.keeper.clone(), request.program);
        tracing::info!(program = %program.display(), "another program is to take over");
        let waits = move || keeper.upgrade(program, state.as_fd());
        let succession = tokio::task::spawn_blocking(waits).await;
        match succession.map_err(Refusal::new)? {
            UpgradeResult::Succeeded { pid, channel } => {
                tracing::info!(pid, "another daemon is in charge");
                self.runtime_dir.remove_socket_link();
                self.successor = Some((pid, channel));
                Ok(Upgraded { pid })
            }
            UpgradeResult::Failed { reason } => {
                tracing::error!(reason, "the upgrade failed; this daemon goes on");
                Err(Refusal::new(match self.resume().await {
                    Ok(()) => reason,
                    Err(error) => {
                        tracing::error!(%error, "what the other program changed could not be taken back");
                        format!("{reason}; what it changed could not be taken back: {error}")
                    }
                }))
            }
        }
    }

    /// Goes on after a successor failed, however far it had come.
    async fn resume(&mut self) -> Result<(), Refusal> {
        let answers = self.runtime_dir.restore_socket();
        self.plane.resume().await.map_err(Refusal::new)?;
        self.configure_checks();
        answers.map_err(Refusal::new)
    }

    /// Whether another daemon is in charge.
    pub const fn is_succeeded(&self) -> bool {
        self.successor.is_some()
    }

    /// Ends in favour of the successor: it checks and answers from now on.
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
