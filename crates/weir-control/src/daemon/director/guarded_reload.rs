//! Performs guarded reloads: a reload that causes a regression is rolled back.
//!
//! Until the guard ends, a daemon that starts after a crash uses the previous configuration, because the new
//! configuration may have caused the crash.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_health::{Checkpoint, ServerHealth, State};
use weir_model::{Desired, VirtualRouter};
use weir_state::{EjectedServer, HealthEvent};

use super::{ActiveConfiguration, Director};
use crate::api::{ApiError, Caller, FileRequest, ReloadResponse, Reply};
use crate::daemon::reload_guard::{Guard, Health, Servers};
use crate::plane::{Plane, PlaneConfiguration};
use crate::status::VirtualRouterStatus;
use crate::status::vrrp::{self, Guarded};

/// An unconfirmed reload, and the state to restore in a rollback.
#[derive(Debug)]
pub(super) struct GuardedReload {
    guard: Guard,
    response: ReloadResponse,
    reply: Reply<ReloadResponse>,
    saved: RollbackState,
}

impl GuardedReload {
    /// Replies that the reload has succeeded.
    fn confirm(self) {
        tracing::info!(revision = self.response.revision, "confirmed the reload");
        let _ = self.reply.send(Ok(self.response));
    }
}

/// The state before the reload, which a rollback restores.
#[derive(Debug)]
struct RollbackState {
    previous: ActiveConfiguration,
    /// The check results.
    checkpoint: Checkpoint,
    /// The ejected servers.
    ejected: BTreeSet<EjectedServer>,
}

impl<P: Plane> Director<P> {
    /// Executes a reload. Replies immediately or, if `guard_ms` is set, when the guard ends.
    pub(super) async fn execute_reload(
        &mut self,
        request: &FileRequest,
        caller: &Caller,
        reply: Reply<ReloadResponse>,
    ) {
        let Some(limit) = request.guard_ms.map(Duration::from_millis) else {
            let _ = reply.send(self.reload(request, caller).await);
            return;
        };
        let before = match self.status() {
            Ok(report) => Health::from_report(&report),
            Err(error) => {
                let _ = reply.send(Err(error));
                return;
            }
        };
        let servers = Servers::of(&self.desired);
        let saved = RollbackState {
            previous: self.active_configuration(),
            checkpoint: self.checks.checkpoint(),
            ejected: self.plane.ejected(),
        };
        match self.reload_unconfirmed(request, caller).await {
            Ok(response) => {
                // A new reload confirms the previous guarded reload.
                let confirmed = self.guarded.take();
                // After a crash, the next daemon uses the previous configuration. The VRRP agent uses it until the
                // guard ends.
                self.record_configuration_of(&saved.previous.file, &saved.previous.text);
                self.guarded = Some(GuardedReload {
                    guard: Guard::new(before, servers, limit),
                    response,
                    reply,
                    saved,
                });
                self.configure_processes();
                self.warn_about_temporary_pins();
                confirmed.into_iter().for_each(GuardedReload::confirm);
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Returns the configured virtual routers that the agent runs: until the guard ends, those of the previous
    /// configuration.
    pub(super) fn running_routers(&self) -> &[VirtualRouter] {
        match &self.guarded {
            Some(reload) => &reload.saved.previous.configured.vrrp,
            None => &self.configured.vrrp,
        }
    }

    /// Returns the status of the virtual routers.
    pub(super) fn router_status(&self) -> Vec<VirtualRouterStatus> {
        let guarded = self.guarded.as_ref().map(|reload| Guarded {
            previous: self.running_routers(),
            remaining: reload.guard.remaining(),
        });
        let configured = &self.configured.vrrp;
        vrrp::report(self.runtime_dir.path(), configured, guarded.as_ref())
    }

    /// Rolls back the guarded reload if it has caused a regression, or confirms it if the guard has ended. Called once
    /// per second.
    pub(crate) async fn check_guard(&mut self) {
        let Some(reload) = &self.guarded else {
            return;
        };
        let regression = match self.status() {
            Ok(report) => reload
                .guard
                .regression(&Health::from_report(&report), &self.desired),
            Err(error) => Some(error.to_string()),
        };
        match regression {
            None if !reload.guard.is_over() => {}
            None => self.end_guard(),
            Some(regression) => self.roll_back(&regression).await,
        }
    }

    /// Returns a description of a server that went down during the guarded reload, with the reason.
    pub(super) fn regression_in(&self, events: &[HealthEvent]) -> Option<String> {
        let GuardedReload { guard, saved, .. } = self.guarded.as_ref()?;
        let checkpoint = &saved.checkpoint;
        // The new configuration may spell the server's address differently.
        let find_renamed = |pool: &str, server: &str| {
            let names = guard.servers_before().find(&self.desired, pool, server);
            let names = names.into_iter();
            let candidates =
                names.filter_map(|(pool, server)| checkpoint.server_health(pool, server));
            candidates.min_by_key(|health| health.state != State::Down)
        };
        events.iter().find_map(|event| {
            let (pool, server) = (event.pool.as_str(), event.server.as_str());
            let server_health = event.server_health.as_ref()?;
            let is_down = |health: &ServerHealth| health.state == State::Down;
            if self.plane.is_withdrawn(pool, server)
                || !is_down(server_health) && !server_health.paths.values().any(is_down)
            {
                return None;
            }
            let before = checkpoint.server_health(pool, server);
            let before = before.or_else(|| find_renamed(pool, server));
            let goes_down = |now: &ServerHealth, before: Option<&ServerHealth>| {
                now.state == State::Down && before.is_none_or(|before| before.state != State::Down)
            };
            let down_path = server_health.paths.iter().find(|(service, path)| {
                let before = before.map(|before| before.in_service(service));
                server_health.state != State::Down && goes_down(path, before)
            });
            if let Some((service, path)) = down_path {
                let reason = &path.reason;
                return Some(format!(
                    "{pool}/{server} is down in service {service}: {reason}"
                ));
            }
            goes_down(server_health, before)
                .then(|| format!("{pool}/{server} is down: {}", server_health.reason))
        })
    }

    /// Ends the guard and confirms the active configuration.
    pub(super) fn end_guard(&mut self) {
        let confirmed = self.guarded.take();
        // Record the configuration before the reply, because the command reads the recorded configuration after it.
        self.record_configuration();
        confirmed.into_iter().for_each(GuardedReload::confirm);
    }

    pub(super) async fn roll_back(&mut self, regression: &str) {
        let Some(reload) = self.guarded.take() else {
            return;
        };
        tracing::error!(cause = regression, "rolling back the reload");
        let GuardedReload { reply, saved, .. } = reload;
        let message = match self.roll_back_to(saved).await {
            Ok(revision) => {
                format!(
                    "rolled back: {regression}; the previous configuration is active again as revision {revision}; \
                     correct the file before the next reload or restart"
                )
            }
            Err(error) => format!("{regression}; the reload could not be rolled back: {error}"),
        };
        self.record_configuration();
        let _ = reply.send(Err(ApiError::new(message)));
    }

    /// Restores the previous configuration and returns its revision. Overrides that were set before the guard ended are
    /// kept; server states from the rejected configuration's checks are discarded.
    async fn roll_back_to(&mut self, saved: RollbackState) -> Result<u64, ApiError> {
        let mut previous = saved.previous;
        self.membership.resolve_new(&previous.configured).await;
        let rejected = self.active_configuration();
        let lists =
            previous
                .lists
                .rolled_back(&previous.configured, &rejected.lists, &rejected.configured);
        previous.lists = lists;
        let desired = previous.lists.added_to(&previous.configured);
        self.restore_states(&desired, saved.checkpoint, &saved.ejected);
        let plane_configuration = PlaneConfiguration {
            desired: &desired,
            configured: &previous.configured,
            text: &previous.text,
        };
        let applied = self.reapply(plane_configuration).await;
        if applied.is_err() {
            // The rejected configuration stays active, with its checks.
            self.configure_checks();
        }
        let revision = applied?;
        self.set_active(previous);
        self.apply_lists().await;
        Ok(revision)
    }

    /// Restores server states. Must be called before the configuration is applied, so that the planes use the restored
    /// states from the start.
    fn restore_states(
        &mut self,
        desired: &Desired,
        checkpoint: Checkpoint,
        ejected: &BTreeSet<EjectedServer>,
    ) {
        let saved = |pool: &str, server: &str| self.plane.saved_state(pool, server);
        let (suspended, probes) = (self.plane.suspended(), self.plane.path_table());
        self.checks
            .restore(checkpoint, desired, &suspended, &saved, probes);
        let events = self.group.apply_verdicts(self.checks.take_results());
        let applied = self.plane.apply_health(events);
        if let Err(error) = applied.and_then(|()| self.plane.end_ejections_except(ejected)) {
            tracing::error!(%error, "failed to restore some server states");
        }
        self.notify_pool_changes();
    }

    /// Applies a configuration, including its admin listener.
    async fn reapply(
        &mut self,
        plane_configuration: PlaneConfiguration<'_>,
    ) -> Result<u64, ApiError> {
        let admin = self
            .admin
            .prepare(plane_configuration.desired.node.admin.as_ref())
            .await;
        let admin = admin.map_err(ApiError::new)?;
        let revision = self
            .plane
            .apply(plane_configuration)
            .await
            .map_err(ApiError::new)?;
        self.admin.commit(admin);
        Ok(revision)
    }
}
