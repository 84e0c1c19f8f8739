//! Copies [`ServerStates`] to another process, which reads the states but does not change them.
//!
//! The owner sends the whole state once ([`ServerStates::to_copy`]), and after that only changes
//! ([`ServerStates::changes`]).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_health::{Ejection, PoolMode, ServerHealth};

use crate::ejection::EjectedServer;
use crate::overrides::Overrides;
use crate::record::HealthRecord;
use crate::server_health::HealthEvent;
use crate::states::ServerStates;

/// The whole state, or changes to it. Overrides, their times, ejections and percentages are always sent in full,
/// because there are few of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCopy {
    pub(crate) overrides: Overrides,
    /// Pool, server and the combined result of its checks; `None` = the server no longer has any checks.
    pub(crate) health_states: Vec<(String, String, Option<ServerHealth>)>,
    pub(crate) ejections: Vec<(EjectedServer, Ejection)>,
    /// The percentage of its weight that each server uses, by layer 4 service and server.
    pub(crate) adjusted: BTreeMap<String, BTreeMap<String, u32>>,
    /// When drain or maintenance of each server last began or ended, by pool and server.
    #[serde(default)]
    pub(crate) withdrawal_changes: BTreeMap<String, BTreeMap<String, Duration>>,
    /// The mode of each pool; `Some` only in a copy of the whole state, which replaces the previous state.
    pub(crate) pool_modes: Option<BTreeMap<String, PoolMode>>,
}

impl StateCopy {
    /// Returns whether this is the whole state rather than a set of changes.
    pub const fn is_whole(&self) -> bool {
        self.pool_modes.is_some()
    }
}

impl ServerStates {
    /// Returns the whole state.
    pub fn to_copy(&self) -> StateCopy {
        let health_states = self.all_health().map(|(pool, server, server_health)| {
            (
                pool.to_owned(),
                server.to_owned(),
                Some(server_health.clone()),
            )
        });
        StateCopy {
            health_states: health_states.collect(),
            pool_modes: Some(self.pool_modes().clone()),
            ..self.changes(Vec::new())
        }
    }

    /// Returns the changes: these check results, and all overrides, their times, ejections and percentages.
    pub fn changes(&self, events: Vec<HealthEvent>) -> StateCopy {
        let health_states = events.into_iter();
        StateCopy {
            overrides: self.overrides().clone(),
            health_states: health_states
                .map(|event| (event.pool, event.server, event.server_health))
                .collect(),
            ejections: self.all_ejections().collect(),
            adjusted: self.adjusted().clone(),
            withdrawal_changes: self.withdrawal_changes().clone(),
            pool_modes: None,
        }
    }

    /// Applies a copy from another process. The caller must call [`Self::update_pool`] for the changed pools. Returns
    /// the records to persist.
    pub fn adopt_copy(&mut self, copy: StateCopy) -> Vec<HealthRecord> {
        if let Some(pool_modes) = copy.pool_modes {
            *self = Self::default();
            self.set_pool_modes(pool_modes);
        }
        self.replace(
            copy.overrides,
            copy.ejections,
            copy.adjusted,
            copy.withdrawal_changes,
        );
        let events = copy.health_states.into_iter();
        let events = events.map(|(pool, server, server_health)| HealthEvent {
            pool,
            server,
            server_health,
        });
        self.handle_health(events.collect())
    }
}

#[cfg(test)]
mod tests {
    use weir_health::{Sample, State};
    use weir_model::{Check, Pool, Probe, Server};

    use super::*;
    use crate::ejection::{PoolSamples, Source};
    use crate::overrides::Override;
    use crate::pool::PoolState;

    fn event(server: &str, state: State) -> HealthEvent {
        HealthEvent {
            pool: "p".to_owned(),
            server: server.to_owned(),
            server_health: Some(ServerHealth::new(state, Duration::from_secs(1))),
        }
    }

    #[test]
    fn copy_has_the_same_weights_as_the_original() {
        let mut pool = Pool::new("p");
        pool.checks = vec![Check::new(Probe::Tcp)];
        let server =
            |last: u8| Server::new(format!("10.0.0.{last}"), [10, 0, 0, last].into(), None);
        pool.servers = (1..=4).map(server).collect();
        let mut states = ServerStates::default();
        states.set_override("p", "10.0.0.1", Some(Override::Weight(7)));
        states.handle_latency(
            "s".to_owned(),
            [("10.0.0.2".to_owned(), 50)].into_iter().collect(),
        );
        states.handle_health(
            (1..=4)
                .map(|it| event(&format!("10.0.0.{it}"), State::Up))
                .collect(),
        );
        states.update_pool(&pool);
        let serialized_and_parsed = |copy: &StateCopy| -> StateCopy {
            serde_json::from_slice(&serde_json::to_vec(copy).unwrap()).unwrap()
        };
        let mut copied = ServerStates::default();
        copied.adopt_copy(serialized_and_parsed(&states.to_copy()));
        copied.update_pool(&pool);
        assert_eq!(
            copied.weights(&pool, Some("s")),
            states.weights(&pool, Some("s"))
        );

        states.set_override("p", "10.0.0.1", None);
        states.set_withdrawal_change("p", "10.0.0.1", Some(Duration::from_secs(7)));
        let down = vec![event("10.0.0.3", State::Down)];
        let records = states.handle_health(down.clone());
        states.update_pool(&pool);
        assert_eq!(
            copied.adopt_copy(serialized_and_parsed(&states.changes(down))),
            records
        );
        copied.update_pool(&pool);
        let weights = copied.weights(&pool, Some("s"));
        assert_eq!(weights, states.weights(&pool, Some("s")));
        assert!(weights.servers[2].down && weights.servers[0].effective == 1);
        let since = copied.last_change("p", "10.0.0.1", Duration::from_secs(1));
        assert_eq!(since, Duration::from_secs(7));
    }

    /// Ejects server `a` of a pool with the servers `a` and `b` from a layer 4 service.
    fn eject(states: &mut ServerStates, pool: &Pool, service: &str) {
        for second in 0..5 {
            let sample = |answered| Sample {
                syns: second * 3,
                answered,
            };
            let pool_samples = PoolSamples {
                pool,
                service: Some(service),
                samples: vec![
                    ("a".to_owned(), sample(0)),
                    ("b".to_owned(), sample(second * 3)),
                ],
            };
            let now = Duration::from_secs(second);
            let keep_reason = |_: &str, _: &str, _: &mut Ejection| {};
            states.handle_samples(Source::Handshakes, &[pool_samples], &keep_reason, now);
        }
    }

    #[test]
    fn copy_of_the_whole_state_replaces_the_previous_state() {
        let mut pool = Pool::new("p");
        pool.checks = vec![Check::new(Probe::Tcp)];
        pool.health.max_ejected = 50;
        pool.health.quorum = 9;
        pool.servers = vec![
            Server::new("a", [10, 0, 0, 1].into(), None),
            Server::new("b", [10, 0, 0, 2].into(), None),
        ];
        let percent = BTreeMap::from([("b".to_owned(), 50)]);
        let mut states = ServerStates::default();
        states.handle_health(vec![event("a", State::Up), event("b", State::Up)]);
        eject(&mut states, &pool, "s");
        states.handle_latency("s".to_owned(), percent.clone());
        states.set_override("p", "b", Some(Override::Drain));
        states.set_withdrawal_change("p", "b", Some(Duration::from_secs(7)));
        states.update_pool(&pool);
        let whole = states.to_copy();
        assert!(whole.is_whole());
        assert!(!states.changes(Vec::new()).is_whole());

        let mut copied = ServerStates::default();
        assert_eq!(copied.adopt_copy(whole).len(), 2, "the health of a and b");
        for server in ["a", "b"] {
            let server_health = copied.server_health("p", server);
            assert_eq!(server_health, states.server_health("p", server));
            assert!(server_health.is_some(), "{server}");
        }
        let ejection = copied.ejection("p", "a", Some("s"));
        assert_eq!(ejection, states.ejection("p", "a", Some("s")));
        assert!(ejection.is_some());
        assert_eq!(copied.ejected(), states.ejected());
        assert_eq!(
            copied.adjusted(),
            &BTreeMap::from([("s".to_owned(), percent)])
        );
        assert_eq!(copied.overrides().get("p", "b"), Some(Override::Drain));
        let last_change = copied.last_change("p", "b", Duration::ZERO);
        assert_eq!(last_change, Duration::from_secs(7));
        let state = copied.exceptional_state("p");
        assert_eq!(state, Some(PoolState::BelowQuorum));

        // Changes keep the health of other servers and the pool modes, and replace the rest.
        copied.adopt_copy(ServerStates::default().changes(vec![event("a", State::Down)]));
        let state_of = |states: &ServerStates, server: &str| {
            let server_health = states.server_health("p", server);
            server_health.map(|server_health| server_health.state)
        };
        assert_eq!(state_of(&copied, "a"), Some(State::Down));
        assert_eq!(state_of(&copied, "b"), Some(State::Up));
        assert_eq!(copied.exceptional_state("p"), Some(PoolState::BelowQuorum));
        assert!(copied.ejected().is_empty() && copied.adjusted().is_empty());
        assert_eq!(copied.overrides().get("p", "b"), None);

        copied.adopt_copy(ServerStates::default().to_copy());
        assert_eq!(copied.server_health("p", "a"), None);
        assert_eq!(copied.exceptional_state("p"), None);
    }
}
