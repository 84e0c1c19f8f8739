//! Stores check results, by pool and server name as written in the configuration file.
//!
//! A server without a result from its checks is in the state that their `start` determines. By default, this is
//! `starting`: a new server receives traffic before its first result only if no other server is up.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use weir_health::{ServerHealth, State};
use weir_model::{Pool, Server, Start};

use crate::record::{HealthRecord, SavedServerHealth};

/// A change to the combined result of a server's checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthEvent {
    /// The server's pool.
    pub pool: String,
    /// The server's address, as in the configuration file.
    pub server: String,
    /// `None` = the server no longer has any checks.
    pub server_health: Option<ServerHealth>,
}

/// The health of each server, by pool and server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HealthStates(pub(crate) BTreeMap<String, BTreeMap<String, ServerHealth>>);

impl HealthStates {
    pub(crate) fn get(&self, pool: &str, server: &str) -> Option<&ServerHealth> {
        self.0.get(pool)?.get(server)
    }

    /// Applies health events. Returns the records to persist.
    pub(crate) fn apply(&mut self, events: Vec<HealthEvent>) -> Vec<HealthRecord> {
        let mut records = Vec::new();
        for event in events {
            let servers = self.0.entry(event.pool.clone()).or_default();
            let saved = event.server_health.as_ref().map(SavedServerHealth::from);
            let previous = match event.server_health {
                Some(server_health) => servers.insert(event.server.clone(), server_health),
                None => servers.remove(&event.server),
            };
            if previous.as_ref().map(SavedServerHealth::from) != saved {
                records.push((event.pool, event.server, saved));
            }
        }
        self.0.retain(|_, servers| !servers.is_empty());
        records
    }

    /// Removes servers that are not in any pool or no longer have checks.
    pub(crate) fn retain(&mut self, pools: &BTreeMap<&str, &Pool>) {
        self.0.retain(|pool, servers| {
            let pool = pools.get(pool.as_str());
            let names: HashSet<&str> = pool
                .iter()
                .flat_map(|pool| {
                    let servers = pool.servers.iter().chain(&pool.sorry);
                    servers.filter(|server| is_checked(pool, server))
                })
                .map(|server| server.name.as_str())
                .collect();
            servers.retain(|server, _| names.contains(server.as_str()));
            !servers.is_empty()
        });
    }
}

pub(crate) fn is_checked(pool: &Pool, server: &Server) -> bool {
    !pool.checks_of(server).is_empty()
}

/// Returns the health of a server before the first result of its checks; `None` = the server has no checks.
pub(crate) fn initial_health(pool: &Pool, server: &Server) -> Option<ServerHealth> {
    let state = state_before_first_result(pool, server)?;
    Some(ServerHealth::new(state, Duration::ZERO))
}

/// Returns the state of a server before the first result of its checks; `None` = the server has no checks.
pub fn state_before_first_result(pool: &Pool, server: &Server) -> Option<State> {
    let checks = pool.checks_of(server).iter();
    let starts = checks.map(|check| match check.start {
        Start::Checking => State::Starting,
        Start::Up => State::Up,
        Start::Down => State::Down,
    });
    starts.max_by_key(|state| match state {
        State::Up => 0,
        State::Starting => 1,
        State::Down => 2,
    })
}

#[cfg(test)]
mod tests {
    use weir_model::{Check, Probe};

    use super::*;

    #[test]
    fn state_before_the_first_result_is_the_worst_of_the_checks() {
        use Start::{Checking, Down, Up};
        for (starts, state) in [
            (&[][..], None),
            (&[Checking][..], Some(State::Starting)),
            (&[Up][..], Some(State::Up)),
            (&[Down][..], Some(State::Down)),
            (&[Up, Checking, Up], Some(State::Starting)),
            (&[Checking, Down, Up], Some(State::Down)),
        ] {
            let mut pool = Pool::new("p");
            pool.checks = vec![Check::new(Probe::Tcp); starts.len()];
            for (check, start) in pool.checks.iter_mut().zip(starts) {
                check.start = *start;
            }
            let server = Server::new("a", [10, 0, 0, 1].into(), None);
            assert_eq!(is_checked(&pool, &server), !starts.is_empty());
            let initial = initial_health(&pool, &server);
            assert_eq!(
                initial.map(|server_health| server_health.state),
                state,
                "{starts:?}"
            );
        }
    }
}
