//! Reloads on probation: when one makes things worse, what was in force before comes back.
//!
//! Until its time is over the former configuration is what a death leads back to: the worst that a configuration can do is to end
//! the daemon.

use std::time::Duration;

use super::{Director, InForce};
use crate::api::{FileRequest, Refusal, Reloaded, Reply};
use crate::daemon::guard::{Guard, Level};
use crate::daemon::plane::Plane;

/// A reload that may be taken back.
#[derive(Debug)]
pub(super) struct Probation {
    guard: Guard,
    reloaded: Reloaded,
    reply: Reply<Reloaded>,
    former: InForce,
}

impl<P: Plane> Director<P> {
    /// Answers a reload: at once, or after its probation.
    pub(super) async fn reload_for(&mut self, request: &FileRequest, reply: Reply<Reloaded>) {
        let Some(limit) = request.guard_ms.map(Duration::from_millis) else {
            let _ = reply.send(self.reload(request).await);
            return;
        };
        let before = match self.status() {
            Ok(report) => Level::of(&report),
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
                return;
            }
        };
        let former = self.in_force();
        match self.reload(request).await {
            Ok(reloaded) => {
                // What a daemon begins with that comes after a death meanwhile.
                self.note_as(&former.file, &former.text);
                self.probation = Some(Probation {
                    guard: Guard::new(before, limit),
                    reloaded,
                    reply,
                    former,
                });
            }
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
            }
        }
    }

    /// Once a second: is the reload that is on probation to stay?
    pub async fn watch_probation(&mut self) {
        let Some(probation) = &self.probation else {
            return;
        };
        let complaint = match self.status() {
            Ok(report) => probation.guard.complaint(&Level::of(&report)),
            Err(refusal) => Some(refusal.to_string()),
        };
        match complaint {
            None if !probation.guard.is_over() => {}
            None => self.end_probation(),
            Some(complaint) => self.take_back(&complaint).await,
        }
    }

    /// What is in force stays.
    pub(super) fn end_probation(&mut self) {
        if let Some(probation) = self.probation.take() {
            tracing::info!(revision = probation.reloaded.revision, "the reload stays");
            let _ = probation.reply.send(Ok(probation.reloaded));
        }
        self.note();
    }

    async fn take_back(&mut self, complaint: &str) {
        let Some(probation) = self.probation.take() else {
            return;
        };
        tracing::error!(complaint, "the reload is taken back");
        let answer = match self.take_back_to(probation.former).await {
            Ok(revision) => format!(
                "taken back: {complaint}; revision {revision} is in force, as it was before"
            ),
            Err(error) => format!("{complaint}; it could not be taken back: {error}"),
        };
        self.note();
        let _ = probation.reply.send(Err(Refusal::new(answer)));
    }

    /// What others said meanwhile of servers stays as it is.
    async fn take_back_to(&mut self, mut former: InForce) -> Result<u64, Refusal> {
        self.membership.ask(&former.configured).await;
        let now = self.in_force();
        let renewed = former
            .lists
            .renewed(&former.configured, &now.lists, &now.configured);
        former.lists = renewed;
        let desired = former.lists.added_to(&former.configured);
        let admin = self.admin.prepare(desired.node.admin).await;
        let admin = admin.map_err(Refusal::new)?;
        let revision = self.plane.apply(&desired).await.map_err(Refusal::new)?;
        self.admin.go(admin);
        self.is_in_force(former);
        self.follow_lists().await;
        Ok(revision)
    }
}
