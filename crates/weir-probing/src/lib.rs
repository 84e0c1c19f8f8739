//! Runs health checks (the driver of [`weir_health::Monitor`] and its probes), and sends notifications.
//!
//! Notifications are messages of `[notify.NAME]` and runs of pools' notify programs. One task waits for the next
//! deadline and starts each probe as a separate task, which reports its result and ends. State changes of servers are
//! collected as [`HealthEvent`]s until the caller takes them. This crate does not depend on the engine, weights or the
//! kernel's tables.

mod connect;
mod context;
mod datagram;
mod driver;
mod local;
mod notify;
mod path;
mod path_table;
mod post;
mod probe;
mod shared;
mod source;
mod stream;
mod tls;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use weir_health::{Checkpoint, Lateness, Monitor, SavedState, ServerView, SuspendedServers};
use weir_model::Desired;
use weir_state::{HealthEvent, PoolChange, PoolState};

pub use path_table::{
    PathObservation, PathPackets, PathTable, RemotePaths, claims_vip, path_entry, path_observation,
};
pub use post::{PostClient, PostError};

use context::lock;
use shared::SharedState;

/// Number of targets, and statistics about their probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeStats {
    /// Number of targets that are probed.
    pub targets: usize,
    /// Number of probes started since the daemon started.
    pub probes: u64,
    /// Delay between the scheduled and the actual start of probes.
    pub lateness: Lateness,
}

/// The active checks. Dropping this aborts the task that starts their probes.
#[derive(Debug)]
pub struct Checks {
    shared: Arc<SharedState>,
    driver: JoinHandle<()>,
}

impl Checks {
    /// Starts the driver, without any checks. Must be called in a tokio runtime.
    pub fn start() -> Self {
        let shared = Arc::new(SharedState::new());
        let driver = tokio::spawn(driver::drive(Arc::clone(&shared)));
        Self { shared, driver }
    }

    /// Applies the checks of a configuration. `saved_state` returns the saved state of a new server.
    pub fn configure(
        &self,
        desired: &Desired,
        suspended: &SuspendedServers,
        saved_state: &dyn Fn(&str, &str) -> Option<SavedState>,
        path_table: Option<PathTable>,
    ) {
        self.set_probe_context(desired, path_table);
        self.change(|monitor, now| monitor.configure(desired, suspended, saved_state, now));
    }

    /// Returns the current states of servers, for [`Self::restore`].
    pub fn checkpoint(&self) -> Checkpoint {
        self.shared.monitor().checkpoint()
    }

    /// Applies a configuration like [`Self::configure`], for a rollback to `desired`: servers get the states in the
    /// checkpoint.
    pub fn restore(
        &self,
        checkpoint: Checkpoint,
        desired: &Desired,
        suspended: &SuspendedServers,
        saved_state: &dyn Fn(&str, &str) -> Option<SavedState>,
        path_table: Option<PathTable>,
    ) {
        self.set_probe_context(desired, path_table);
        self.change(|monitor, now| {
            monitor.restore(checkpoint, desired, suspended, saved_state, now)
        });
    }

    /// Makes the next probe of each check read its CA file again. If the file cannot be used, the previous certificates
    /// remain in use.
    pub fn reload_certificates(&self) {
        self.shared.context.tls_configs.reload();
    }

    /// Stores the settings that probes and notifications need in addition to the checks.
    fn set_probe_context(&self, desired: &Desired, path_table: Option<PathTable>) {
        self.shared.context.set(desired, path_table);
        lock(&self.shared.notifiers).set(&desired.notifiers);
        let pools_with_program = desired
            .pools
            .iter()
            .filter(|pool| !pool.health.notify.is_empty());
        *lock(&self.shared.notify_commands) = pools_with_program
            .map(|pool| (pool.name.clone(), pool.health.notify.clone()))
            .collect();
    }

    fn change(&self, change: impl FnOnce(&mut Monitor, Duration)) {
        {
            let mut monitor = self.shared.monitor();
            change(&mut monitor, self.shared.clock.now());
            self.shared.drain_outputs(&mut monitor);
        }
        self.shared.deadline_moved.notify_one();
    }

    /// Waits until server states may have changed. The future is cancel-safe.
    pub async fn changed(&self) {
        self.shared.changes_pending.notified().await;
    }

    /// Returns the state changes since the last call.
    pub fn take_results(&self) -> Vec<HealthEvent> {
        let collected = std::mem::take(&mut *lock(&self.shared.changes));
        let changes = collected.into_iter();
        changes
            .map(|((pool, server), server_health)| HealthEvent {
                pool,
                server,
                server_health,
            })
            .collect()
    }

    /// Logs a state change of a pool. Sends notifications about the pool, and about each service that stops or resumes
    /// serving clients.
    pub fn notify_pool_change(&self, pool_change: &PoolChange, desired: &Desired) {
        let notification = |subject, from, to| notify::Change {
            pool: pool_change.pool.clone(),
            subject,
            from,
            to,
            reason: pool_change.to.cause().to_owned(),
        };
        if pool_change.from != pool_change.to {
            let (from, to) = (pool_change.from.as_str(), pool_change.to.as_str());
            let (pool, cause) = (&pool_change.pool, pool_change.to.cause());
            if pool_change.to == PoolState::Up {
                tracing::info!(pool, from, to, cause, "pool state changed");
            } else {
                tracing::warn!(pool, from, to, cause, "pool state changed");
            }
            self.shared
                .notify(notification(notify::Subject::Pool, from, to));
        }
        let (served_before, serves_now) = pool_change.serves;
        if served_before == serves_now {
            return;
        }
        let state_name = |serves| if serves { "up" } else { "down" };
        let layer_4 = desired
            .services
            .iter()
            .filter(|service| service.pool == pool_change.pool);
        let proxied = desired
            .proxies
            .iter()
            .filter(|service| service.pool == pool_change.pool);
        let names = layer_4
            .map(|service| &service.name)
            .chain(proxied.map(|service| &service.name));
        for name in names {
            let subject = notify::Subject::Service(name.clone());
            self.shared.notify(notification(
                subject,
                state_name(served_before),
                state_name(serves_now),
            ));
        }
    }

    /// Returns the time, since the Unix epoch, at which a direct probe of a server last passed.
    pub fn last_pass(&self, pool: &str, server: &str) -> Option<Duration> {
        self.shared.monitor().last_pass(pool, server)
    }

    /// Returns the state of a server's checks, for one service if `service` is set. Returns `None` if the server has no
    /// check.
    pub fn view(&self, pool: &str, server: &str, service: Option<&str>) -> Option<ServerView> {
        let mut view = self.shared.monitor().view(pool, server, service)?;
        let now = self.shared.clock.now();
        for check in &mut view.checks {
            let since = check.counts.down_since;
            check.counts.downtime +=
                since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        }
        Some(view)
    }

    /// Returns the number of targets and the probe counters.
    pub fn probe_stats(&self) -> ProbeStats {
        let monitor = self.shared.monitor();
        ProbeStats {
            targets: monitor.target_count(),
            probes: monitor.probe_count(),
            lateness: monitor.lateness(),
        }
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
