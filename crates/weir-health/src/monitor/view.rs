//! What listings show of checks.

use crate::machine::{Machine, State};
use crate::standing::Standing;

use super::{Lateness, Monitor, Slot};

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
    /// A server of a pool by its address as in the file; `None` = it has no check.
    pub fn view(&self, pool: &str, server: &str) -> Option<ServerView> {
        let pool = self.pools.get(*self.by_name.get(pool)?)?;
        let server = pool.servers.get(pool.names.get(server)?)?;
        // What was known before counts until a check has a result of its own.
        let is_new = |slot: &Slot| slot.machine.history().is_empty();
        let all_new = server
            .uses
            .iter()
            .filter_map(|it| self.slot(it))
            .all(is_new);
        let keeps = all_new && !server.standing.reason.is_empty();
        let checks = server.uses.iter().filter_map(|it| {
            let slot = self.slot(it)?;
            Some(CheckView {
                what: slot.target.describe(),
                state: slot.machine.state(),
                reason: slot.machine.reason(),
                results: slot.machine.history().to_string(),
            })
        });
        Some(ServerView {
            standing: server.standing.clone(),
            reason: if keeps {
                server.standing.reason.clone()
            } else {
                self.why(server.standing.state, &server.uses, &Machine::reason)
            },
            checks: checks.collect(),
        })
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
