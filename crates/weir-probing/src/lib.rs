//! Runs health checks: the driver of [`weir_health::Monitor`], and the probes.
//!
//! One task waits for the next deadline and starts each probe as a task of its own; a probe reports its result and
//! ends. Changes of servers are collected as [`HealthEvent`] until the caller takes them. The engine, weights and the
//! kernel's tables are not known here.

mod connect;
mod context;
mod datagram;
mod driver;
mod local;
mod notify;
mod path;
mod probe;
mod shared;
mod source;
mod tls;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use weir_dataplane::ProbeTable;
use weir_health::{Checkpoint, Lateness, Monitor, SavedState, ServerView, Suspended};
use weir_model::Desired;
use weir_state::{HealthEvent, PoolChange, PoolState};

use context::locked;
use shared::Shared;

/// Counters of the probing itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probing {
    /// Targets that are probed.
    pub targets: usize,
    /// Probes that were started since the daemon began.
    pub probes: u64,
    /// How late they were started.
    pub lateness: Lateness,
}

/// The active checks. Dropping it ends them and all probes.
#[derive(Debug)]
pub struct Checks {
    shared: Arc<Shared>,
    driver: JoinHandle<()>,
}

impl Checks {
    /// Without any check. Must be called inside a tokio runtime.
    pub fn start() -> Self {
        let shared = Arc::new(Shared::new());
        let driver = tokio::spawn(driver::drive(Arc::clone(&shared)));
        Self { shared, driver }
    }

    /// Applies the checks of a configuration; `known` returns the saved state of a server that is new.
    pub fn configure(
        &self,
        desired: &Desired,
        suspended: &Suspended,
        known: &dyn Fn(&str, &str) -> Option<SavedState>,
        probe_table: Option<ProbeTable>,
    ) {
        self.set_probe_context(desired, probe_table);
        self.change(|monitor, now| monitor.configure(desired, suspended, known, now));
    }

    /// The present states of servers, for [`Self::restore`].
    pub fn checkpoint(&self) -> Checkpoint {
        self.shared.monitor().checkpoint()
    }

    /// Like [`Self::configure`], for a configuration that is rolled back to, with the states of the checkpoint.
    pub fn restore(
        &self,
        checkpoint: Checkpoint,
        desired: &Desired,
        suspended: &Suspended,
        known: &dyn Fn(&str, &str) -> Option<SavedState>,
        probe_table: Option<ProbeTable>,
    ) {
        self.set_probe_context(desired, probe_table);
        self.change(|monitor, now| monitor.restore(checkpoint, desired, suspended, known, now));
    }

    /// Stores what probes need from a configuration in addition to the checks.
    fn set_probe_context(&self, desired: &Desired, probe_table: Option<ProbeTable>) {
        self.shared.context.set(desired, probe_table);
        let notifying = desired
            .pools
            .iter()
            .filter(|pool| !pool.health.notify.is_empty());
        *locked(&self.shared.notify_commands) = notifying
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

    /// Waits until there may be news. Dropping the future loses nothing.
    pub async fn changed(&self) {
        self.shared.has_news.notified().await;
    }

    /// Takes what was collected since the last call.
    pub fn take_news(&self) -> Vec<HealthEvent> {
        let collected = std::mem::take(&mut *locked(&self.shared.news));
        let news = collected.into_iter();
        news.map(|((pool, server), standing)| HealthEvent {
            pool,
            server,
            standing,
        })
        .collect()
    }

    /// Logs a pool's change. Notifies programs of it and of the services that stop or resume serving clients.
    pub fn notify_pool_change(&self, turn: &PoolChange, desired: &Desired) {
        let change = |what, from, to| notify::Change {
            pool: turn.pool.clone(),
            what,
            from,
            to,
            reason: turn.to.cause().to_owned(),
        };
        if turn.from != turn.to {
            let (from, to) = (turn.from.as_str(), turn.to.as_str());
            let (pool, cause) = (&turn.pool, turn.to.cause());
            if turn.to == PoolState::Up {
                tracing::info!(pool, from, to, cause, "a pool changed");
            } else {
                tracing::warn!(pool, from, to, cause, "a pool changed");
            }
            self.shared.notify(change(notify::What::Pool, from, to));
        }
        let (before, now) = turn.serves;
        if before == now {
            return;
        }
        let state = |serves| if serves { "up" } else { "down" };
        let layer_4 = desired.services.iter().filter(|it| it.pool == turn.pool);
        let proxied = desired.proxies.iter().filter(|it| it.pool == turn.pool);
        let names = layer_4.map(|it| &it.name).chain(proxied.map(|it| &it.name));
        for name in names {
            let what = notify::What::Service(name.clone());
            self.shared.notify(change(what, state(before), state(now)));
        }
    }

    /// When a direct probe of a server passed last, since the Unix epoch.
    pub fn passed(&self, pool: &str, server: &str) -> Option<Duration> {
        self.shared.monitor().last_pass(pool, server)
    }

    /// The state of a server's checks; for one service, `service`, its checks through that service count too. `None` =
    /// it has no checks.
    pub fn view(&self, pool: &str, server: &str, service: Option<&str>) -> Option<ServerView> {
        self.shared.monitor().view(pool, server, service)
    }

    /// Counters of the probing itself.
    pub fn probing(&self) -> Probing {
        let monitor = self.shared.monitor();
        Probing {
            targets: monitor.targets(),
            probes: monitor.probes(),
            lateness: monitor.lateness(),
        }
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
