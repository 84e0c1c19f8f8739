//! Reloads on probation: one that makes things worse is rolled back.
//!
//! Until its time is over the former configuration is what a death leads back to: the worst that a configuration can do
//! is to end the daemon.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_health::{Checkpoint, Standing, State};
use weir_model::Desired;
use weir_state::{Ejected, HealthEvent};

use super::{Director, InForce};
use crate::api::{Caller, FileRequest, Refusal, Reloaded, Reply};
use crate::daemon::guard::{Guard, Level};
use crate::daemon::plane::Plane;

/// A reload that may be taken back.
#[derive(Debug)]
pub(super) struct Probation {
    guard: Guard,
    reloaded: Reloaded,
    reply: Reply<Reloaded>,
    revert: Revert,
}

/// What was before.
#[derive(Debug)]
struct Revert {
    former: InForce,
    /// What checks said of servers.
    checkpoint: Checkpoint,
    /// Servers that were ejected.
    ejected: BTreeSet<Ejected>,
}

impl<P: Plane> Director<P> {
    /// Answers a reload: at once, or after its probation.
    pub(super) async fn reload_for(
        &mut self,
        request: &FileRequest,
        caller: &Caller,
        reply: Reply<Reloaded>,
    ) {
        let Some(limit) = request.guard_ms.map(Duration::from_millis) else {
            let _ = reply.send(self.reload(request, caller).await);
            return;
        };
        let before = match self.status() {
            Ok(report) => Level::of(&report),
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
                return;
            }
        };
        let revert = Revert {
            former: self.in_force(),
            checkpoint: self.checks.checkpoint(),
            ejected: self.plane.ejected(),
        };
        match self.reload(request, caller).await {
            Ok(reloaded) => {
                // What a daemon begins with that comes after a death meanwhile.
                self.note_as(&revert.former.file, &revert.former.text);
                self.probation = Some(Probation {
                    guard: Guard::new(before, limit),
                    reloaded,
                    reply,
                    revert,
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

    /// What news of checks say against the reload that is on probation: a server fails that did not.
    pub(super) fn complaint_of(&self, news: &[HealthEvent]) -> Option<String> {
        let checkpoint = &self.probation.as_ref()?.revert.checkpoint;
        news.iter().find_map(|news| {
            let (pool, server) = (news.pool.as_str(), news.server.as_str());
            let standing = news.standing.as_ref()?;
            if self.plane.is_withdrawn(pool, server) {
                return None;
            }
            let before = checkpoint.standing(pool, server);
            let falls = |now: &Standing, before: Option<&Standing>| {
                now.state == State::Down && before.is_none_or(|it| it.state != State::Down)
            };
            let in_service = standing.paths.iter().find(|(service, path)| {
                let before = before.map(|before| before.in_service(service));
                standing.state != State::Down && falls(path, before)
            });
            if let Some((service, path)) = in_service {
                let reason = &path.reason;
                return Some(format!(
                    "{pool}/{server} is down in service {service}: {reason}"
                ));
            }
            falls(standing, before).then(|| format!("{pool}/{server} is down: {}", standing.reason))
        })
    }

    /// The active configuration is kept.
    pub(super) fn end_probation(&mut self) {
        if let Some(probation) = self.probation.take() {
            tracing::info!(revision = probation.reloaded.revision, "the reload stays");
            let _ = probation.reply.send(Ok(probation.reloaded));
        }
        self.note();
    }

    pub(super) async fn take_back(&mut self, complaint: &str) {
        let Some(probation) = self.probation.take() else {
            return;
        };
        tracing::error!(complaint, "the reload is taken back");
        let Probation { reply, revert, .. } = probation;
        let answer = match self.take_back_to(revert).await {
            Ok(revision) => {
                format!("taken back: {complaint}; the active revision is {revision} again")
            }
            Err(error) => format!("{complaint}; it could not be taken back: {error}"),
        };
        self.note();
        let _ = reply.send(Err(Refusal::new(answer)));
    }

    /// What others said meanwhile of servers stays as it is; what the checks of the rejected configuration did to them
    /// does not.
    async fn take_back_to(&mut self, revert: Revert) -> Result<u64, Refusal> {
        let mut former = revert.former;
        self.membership.resolve_new(&former.configured).await;
        let now = self.in_force();
        let renewed = former
            .lists
            .rolled_back(&former.configured, &now.lists, &now.configured);
        former.lists = renewed;
        let desired = former.lists.added_to(&former.configured);
        self.restore_states(&desired, revert.checkpoint, &revert.ejected);
        let applied = self.apply_again(&desired).await;
        if applied.is_err() {
            // The rejected configuration stays, with its checks.
            self.check();
        }
        let revision = applied?;
        self.is_in_force(former);
        self.follow_lists().await;
        Ok(revision)
    }

    /// Before the configuration itself, so that its servers are used as they were from its first moment on.
    fn restore_states(
        &mut self,
        desired: &Desired,
        checkpoint: Checkpoint,
        ejected: &BTreeSet<Ejected>,
    ) {
        let known = |pool: &str, server: &str| self.plane.saved_state(pool, server);
        let (suspended, passages) = (self.plane.suspended(), self.plane.passages());
        self.checks
            .restore(checkpoint, desired, &suspended, &known, passages);
        let heard = self.plane.apply_health(self.checks.take_news());
        if let Err(error) = heard.and_then(|()| self.plane.end_ejections(ejected)) {
            tracing::error!(%error, "servers' states are not all as they were");
        }
        self.notify_pool_changes();
    }

    async fn apply_again(&mut self, desired: &Desired) -> Result<u64, Refusal> {
        let admin = self.admin.prepare(desired.node.admin.as_ref()).await;
        let admin = admin.map_err(Refusal::new)?;
        let revision = self.plane.apply(desired).await.map_err(Refusal::new)?;
        self.admin.go(admin);
        Ok(revision)
    }
}
