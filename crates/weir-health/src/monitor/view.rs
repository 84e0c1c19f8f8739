//! What listings show of checks.

use std::collections::HashSet;
use std::time::Duration;

use crate::machine::{Machine, State};
use crate::standing::{Standing, deciding};

use super::{Lateness, Monitor};

/// One check of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckView {
    /// `http 10.0.0.5:80`.
    pub what: String,
    /// What it says.
    pub state: State,
    /// The last result in words, with how far it is from changing the state.
    pub reason: String,
    /// The last results, the newest last, as `+` and `-`.
    pub results: String,
}

/// A server as its checks see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerView {
    /// What all of them come to.
    pub standing: Standing,
    /// The last result of the check that decides.
    pub reason: String,
    /// Each of them; none while they are suspended.
    pub checks: Vec<CheckView>,
}

impl Monitor {
    /// A server of a pool by its address as in the file, as it is in a service or in all; `None` = it has no check.
    pub fn view(&self, pool: &str, server: &str, service: Option<&str>) -> Option<ServerView> {
        let pool = self.pools.get(*self.by_name.get(pool)?)?;
        let server = pool.servers.get(pool.names.get(server)?)?;
        let path = service.filter(|service| server.standing.paths.contains_key(*service));
        let path = path.and_then(|path| pool.services.iter().position(|it| it == path));
        let uses = match path {
            Some(path) => server.uses_in(path),
            None => server.uses.clone(),
        };
        let standing = service.map_or(&server.standing, |it| server.standing.in_service(it));
        // What was known before counts until the check that decides has a result of its own.
        let slots = uses.iter().filter_map(|it| self.slot(it));
        let decides = deciding(standing.state, slots, |slot| slot.machine.state());
        let is_new = decides.is_none_or(|slot| slot.machine.history().is_empty());
        let keeps = is_new && !standing.reason.is_empty();
        // Services with one path share its probes.
        let mut shown = HashSet::new();
        let checks = uses.iter().filter_map(|it| {
            let slot = self.slot(it).filter(|_| shown.insert(it.slot))?;
            Some(CheckView {
                what: slot.target.describe(),
                state: slot.machine.state(),
                reason: slot.machine.reason(),
                results: slot.machine.history().to_string(),
            })
        });
        Some(ServerView {
            standing: standing.clone(),
            reason: if keeps {
                standing.reason.clone()
            } else {
                self.why(standing.state, &uses, &Machine::reason)
            },
            checks: checks.collect(),
        })
    }

    /// When a probe that goes straight to a server of a pool passed last, on the driver's clock.
    pub fn passed(&self, pool: &str, server: &str) -> Option<Duration> {
        let pool = self.pools.get(*self.by_name.get(pool)?)?;
        let server = pool.servers.get(pool.names.get(server)?)?;
        let straight = server.uses.iter().filter(|it| it.path.is_none());
        straight.filter_map(|it| self.slot(it)?.passed).max()
    }

    /// Targets that are probed.
    pub fn targets(&self) -> usize {
        self.by_target.len()
    }

    /// Probes that went out so far.
    pub const fn probes(&self) -> u64 {
        self.probes
    }

    /// How late they went out.
    pub const fn lateness(&self) -> Lateness {
        self.lateness
    }
}
