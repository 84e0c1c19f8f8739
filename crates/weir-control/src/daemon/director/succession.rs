//! One daemon after another: the old one waits for the new one, and leaves, or goes on where that failed.

use std::os::fd::AsFd;
use std::time::Duration;

use weir_sys::Channel;

use super::Director;
use crate::api::{Refusal, UpgradeRequest, Upgraded};
use crate::daemon::draining::Note;
use crate::daemon::plane::Plane;
use crate::keeper::Succession;

/// A daemon that was succeeded and still has clients.
#[derive(Debug)]
pub(crate) struct Leaving<P> {
    /// With the clients that are still here.
    pub plane: P,
    /// What others know of them.
    pub note: Note,
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
        let state = self.plane.bequeath().map_err(Refusal::new)?;
        self.runtime_dir.hold_socket();
        let (keeper, program) = (self.keeper.clone(), request.program);
        tracing::info!(program = %program.display(), "another program is to take over");
        let waits = move || keeper.upgrade(program, state.as_fd());
        let succession = tokio::task::spawn_blocking(waits).await;
        match succession.map_err(Refusal::new)? {
            Succession::By { pid, channel } => {
                tracing::info!(pid, "another daemon is in charge");
                self.runtime_dir.forget_held();
                self.successor = Some((pid, channel));
                Ok(Upgraded { pid })
            }
            Succession::Failed { reason } => {
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
        self.check();
        answers.map_err(Refusal::new)
    }

    /// Whether another daemon is in charge.
    pub const fn is_succeeded(&self) -> bool {
        self.successor.is_some()
    }

    /// Ends in favour of the successor: it checks and answers from now on.
    pub(crate) fn leave(self) -> Option<Leaving<P>> {
        self.admin.leave();
        let limit = self.desired.node.drain_timeout;
        let (successor, channel) = self.successor?;
        Some(Leaving {
            plane: self.plane,
            note: self.runtime_dir.draining_note(),
            successor,
            channel,
            limit,
        })
    }
}
