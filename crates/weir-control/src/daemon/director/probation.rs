//! Reloads on probation: one that makes things worse is rolled back.
//!
//! Until its time is over the former configuration is what a death leads back to: the worst that a configuration can do
//! is to end the daemon.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_health::{Checkpoint, Standing, State};
use weir_model::Desired;
use weir_state::{Ejected, HealthEvent};

use super::{ActiveConfiguration, Director};
use crate::api::{Caller, FileRequest, Refusal, Reloaded, Reply};
use crate::daemon::plane::Plane;
use crate::daemon::reload_guard::{Guard, Health};

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
    former: ActiveConfiguration,
    /// What checks said of servers.
    checkpoint: Checkpoint,
    /// Servers that were ejected.
    ejected: BTreeSet<Ejected>,
}

impl<P: Plane> Director<P> {
    /// Answers a reload: at once, or after its probation.
    pub(super) async fn guarded_reload(
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
            Ok(report) => Health::of(&report),
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
                return;
            }
        };
        let revert = Revert {
            former: self.active_configuration(),
            checkpoint: self.checks.checkpoint(),
            ejected: self.plane.ejected(),
        };
        match self.reload(request, caller).await {
            Ok(reloaded) => {
                // What a daemon begins with that comes after a death meanwhile.
                self.record_configuration_of(&revert.former.file, &revert.former.text);
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
    pub async fn check_probation(&mut self) {
        let Some(probation) = &self.probation else {
            return;
        };
        let regression = match self.status() {
            Ok(report) => probation.guard.regression(&Health::of(&report)),
            Err(refusal) => Some(refusal.to_string()),
        };
        match regression {
            None if !probation.guard.is_over() => {}
            None => self.end_probation(),
            Some(regression) => self.roll_back(&regression).await,
        }
    }

    /// What news of checks say against the reload that is on probation: a server fails that did not.
    pub(super) fn regression_in(&self, news: &[HealthEvent]) -> Option<String> {
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
        self.record_configuration();
    }

    pub(super) async fn roll_back(&mut self, regression: &str) {
        let Some(probation) = self.probation.take() else {
            return;
        };
        tracing::error!(regression, "the reload is taken back");
        let Probation { reply, revert, .. } = probation;
        let answer = match self.roll_back_to(revert).await {
            Ok(revision) => {
                format!("taken back: {regression}; the active revision is {revision} again")
            }
            Err(error) => format!("{regression}; it could not be taken back: {error}"),
        };
        self.record_configuration();
        let _ = reply.send(Err(Refusal::new(answer)));
    }

    /// What others said meanwhile of servers stays as it is; what the checks of the rejected configuration did to them
    /// does not.
    async fn roll_back_to(&mut self, revert: Revert) -> Result<u64, Refusal> {
        let mut former = revert.former;
        self.membership.resolve_new(&former.configured).await;
        let now = self.active_configuration();
        let renewed = former
            .lists
            .rolled_back(&former.configured, &now.lists, &now.configured);
        former.lists = renewed;
        let desired = former.lists.added_to(&former.configured);
        self.restore_states(&desired, revert.checkpoint, &revert.ejected);
        let applied = self.reapply(&desired).await;
        if applied.is_err() {
            // The rejected configuration stays, with its checks.
            self.configure_checks();
        }
        let revision = applied?;
        self.set_active(former);
        self.apply_lists().await;
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
        let (suspended, probes) = (self.plane.suspended(), self.plane.probe_table());
        self.checks
            .restore(checkpoint, desired, &suspended, &known, probes);
        let heard = self.plane.apply_health(self.checks.take_news());
        if let Err(error) = heard.and_then(|()| self.plane.end_ejections(ejected)) {
            tracing::error!(%error, "servers' states are not all as they were");
        }
        self.notify_pool_changes();
    }

    async fn reapply(&mut self, desired: &Desired) -> Result<u64, Refusal> {
        let admin = self.admin.prepare(desired.node.admin.as_ref()).await;
        let admin = admin.map_err(Refusal::new)?;
        let revision = self.plane.apply(desired).await.map_err(Refusal::new)?;
        self.admin.commit(admin);
        Ok(revision)
    }
}
