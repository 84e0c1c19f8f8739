//! Reloads on probation: one that makes things worse is rolled back.
//!
//! Until the probation ends, a daemon that starts after a crash uses the former configuration: a bad configuration may
//! crash the daemon.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_health::{Checkpoint, Standing, State};
use weir_model::Desired;
use weir_state::{Ejected, HealthEvent};

use super::{ActiveConfiguration, Director};
use crate::api::{Caller, FileRequest, Refusal, Reloaded, Reply};
use crate::daemon::reload_guard::{Guard, Health};
use crate::plane::{Plane, Wanted};

/// A reload on probation.
#[derive(Debug)]
pub(super) struct Probation {
    guard: Guard,
    reloaded: Reloaded,
    reply: Reply<Reloaded>,
    revert: Revert,
}

/// The state before the reload.
#[derive(Debug)]
struct Revert {
    former: ActiveConfiguration,
    /// The results of checks.
    checkpoint: Checkpoint,
    /// Servers that were ejected.
    ejected: BTreeSet<Ejected>,
}

impl<P: Plane> Director<P> {
    /// Executes a reload and responds at once, or after its probation.
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
                // The configuration of a daemon that starts after a crash.
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

    /// Runs once per second: confirms or rolls back the reload on probation.
    pub(crate) async fn check_probation(&mut self) {
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

    /// Returns a server that the reload on probation has taken down, with the reason.
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

    /// Confirms the active configuration.
    pub(super) fn end_probation(&mut self) {
        if let Some(probation) = self.probation.take() {
            tracing::info!(
                revision = probation.reloaded.revision,
                "the reload is confirmed"
            );
            let _ = probation.reply.send(Ok(probation.reloaded));
        }
        self.record_configuration();
    }

    pub(super) async fn roll_back(&mut self, regression: &str) {
        let Some(probation) = self.probation.take() else {
            return;
        };
        tracing::error!(cause = regression, "the reload is rolled back");
        let Probation { reply, revert, .. } = probation;
        let answer = match self.roll_back_to(revert).await {
            Ok(revision) => {
                format!("rolled back: {regression}; the active revision is {revision} again")
            }
            Err(error) => format!("{regression}; it could not be rolled back: {error}"),
        };
        self.record_configuration();
        let _ = reply.send(Err(Refusal::new(answer)));
    }

    /// Overrides that were set meanwhile are kept; what the checks of the rejected configuration did to servers is not.
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
        let wanted = Wanted {
            desired: &desired,
            configured: &former.configured,
            text: &former.text,
        };
        let applied = self.reapply(wanted).await;
        if applied.is_err() {
            // The rejected configuration stays active, with its checks.
            self.configure_checks();
        }
        let revision = applied?;
        self.set_active(former);
        self.apply_lists().await;
        Ok(revision)
    }

    /// Restores servers' states before the configuration, so that servers are used correctly from the start.
    fn restore_states(
        &mut self,
        desired: &Desired,
        checkpoint: Checkpoint,
        ejected: &BTreeSet<Ejected>,
    ) {
        let known = |pool: &str, server: &str| self.plane.saved_state(pool, server);
        let (suspended, probes) = (self.plane.suspended(), self.plane.path_table());
        self.checks
            .restore(checkpoint, desired, &suspended, &known, probes);
        let applied = self.plane.apply_health(self.checks.take_results());
        if let Err(error) = applied.and_then(|()| self.plane.end_ejections(ejected)) {
            tracing::error!(%error, "failed to restore all states of servers");
        }
        self.notify_pool_changes();
    }

    async fn reapply(&mut self, wanted: Wanted<'_>) -> Result<u64, Refusal> {
        let admin = self.admin.prepare(wanted.desired.node.admin.as_ref()).await;
        let admin = admin.map_err(Refusal::new)?;
        let revision = self.plane.apply(wanted).await.map_err(Refusal::new)?;
        self.admin.commit(admin);
        Ok(revision)
    }
}
