//! Provides views of checks for status output.

use std::collections::HashSet;
use std::time::Duration;

use crate::machine::{Machine, State};
use crate::server_health::{ServerHealth, find_deciding};

use super::ProbeCounts;
use super::{Lateness, Monitor};

/// Status of one probe of a server's checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckView {
    /// The check's target, for example `http 10.0.0.5:80`.
    pub target: String,
    /// The check's state.
    pub state: State,
    /// Description of the last result, with the progress toward a state change.
    pub reason: String,
    /// The last results, the newest last, as `+` and `-`.
    pub results: String,
    /// Counters of the check's probes.
    pub counts: ProbeCounts,
}

/// A server's health as shown in status output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerView {
    /// The combined state of the server's checks.
    pub server_health: ServerHealth,
    /// The last result of the check that determines the state, or the saved reason until there is a result.
    pub reason: String,
    /// The server's checks; empty while they are suspended.
    pub checks: Vec<CheckView>,
}

impl Monitor {
    /// Returns the health of a server, in one service or overall. `server` is its address as in the configuration file.
    /// Returns `None` if the server has no check.
    pub fn view(&self, pool: &str, server: &str, service: Option<&str>) -> Option<ServerView> {
        let pool = self.pools.get(*self.by_name.get(pool)?)?;
        let server = pool.servers.get(pool.keys_by_name.get(server)?)?;
        let path = service.filter(|service| server.server_health.paths.contains_key(*service));
        let path = path.and_then(|path| pool.services.iter().position(|name| name == path));
        let probes = match path {
            Some(path) => server.probes_in(path),
            None => server.probes.clone(),
        };
        let server_health = service.map_or(&server.server_health, |service| {
            server.server_health.in_service(service)
        });
        // The saved reason is shown until the check that determines the state has a result.
        let slots = probes.iter().filter_map(|probe| self.slot(probe));
        let deciding_slot = find_deciding(server_health.state, slots, |slot| slot.machine.state());
        let is_new = deciding_slot.is_none_or(|slot| slot.machine.history().is_empty());
        let keeps_saved = is_new && !server_health.reason.is_empty();
        // Services with the same path share its probes.
        let mut listed_slots = HashSet::new();
        let checks = probes.iter().filter_map(|probe| {
            let slot = self
                .slot(probe)
                .filter(|_| listed_slots.insert(probe.slot))?;
            Some(CheckView {
                target: slot.target.describe(),
                state: slot.machine.state(),
                reason: slot.machine.reason(),
                results: slot.machine.history().to_string(),
                counts: ProbeCounts {
                    thresholds: slot.machine.thresholds(),
                    ..slot.counts
                },
            })
        });
        Some(ServerView {
            server_health: server_health.clone(),
            reason: if keeps_saved {
                server_health.reason.clone()
            } else {
                self.explain(server_health.state, &probes, &Machine::reason)
            },
            checks: checks.collect(),
        })
    }

    /// Returns the time at which a direct probe of a server last passed, on the driver's clock.
    pub fn last_pass(&self, pool: &str, server: &str) -> Option<Duration> {
        let pool = self.pools.get(*self.by_name.get(pool)?)?;
        let server = pool.servers.get(pool.keys_by_name.get(server)?)?;
        let direct = server.probes.iter().filter(|probe| probe.path.is_none());
        direct.filter_map(|probe| self.slot(probe)?.last_pass).max()
    }

    /// Returns the number of targets that are probed.
    pub fn target_count(&self) -> usize {
        self.by_target.len()
    }

    /// Returns the number of probes started so far.
    pub const fn probe_count(&self) -> u64 {
        self.probes
    }

    /// Returns the histogram of how late probes started.
    pub const fn lateness(&self) -> Lateness {
        self.lateness
    }
}
