//! Computes the weights that schedulers use from the health of a pool's servers.
//!
//! Layers, lowest first: the configured weight, an operator's override, the weight that checks report, the slow start
//! ramp, the state. An ejected server gets weight 0 unless no other server has weight. In a pool, a starting server is
//! used only while no server that is up has weight. If too many servers are down, all servers are used (panic). If the
//! total weight is too low, the pool switches to its sorry server, if it has one (quorum).

use weir_model::Health;

use crate::machine::State;
use crate::outcome::scale;
use crate::server_health::ServerHealth;

/// A server before its health is applied.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Configured weight, or the override that replaces it.
    pub base: u32,
    /// The server's health according to its checks; `None` = the server has no check.
    pub server_health: Option<&'a ServerHealth>,
    /// Whether the server is ejected by passive checks.
    pub ejected: bool,
}

/// The result of [`weigh()`] for one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComputedWeight {
    /// The weight that the scheduler uses.
    pub effective: u32,
    /// Whether `on_remove` applies to the server's flows.
    pub remove: bool,
}

/// The mode in which a pool operates. It is an input of the next call, because the quorum has hysteresis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PoolMode {
    /// Servers are used according to their states.
    #[default]
    Normal,
    /// Too many servers are down, so all servers are used.
    Panic,
    /// The total weight is below the quorum.
    BelowQuorum,
}

/// Returns the weights of a pool's servers and the pool's new mode; `previous` = the mode of the last call.
pub fn weigh(
    health: &Health,
    has_sorry: bool,
    candidates: &[Candidate<'_>],
    previous: PoolMode,
) -> (Vec<ComputedWeight>, PoolMode) {
    if is_panic(health, candidates) {
        let all = candidates.iter().map(|candidate| ComputedWeight {
            effective: candidate.base,
            remove: false,
        });
        return (all.collect(), PoolMode::Panic);
    }
    let any_is_up = candidates
        .iter()
        .any(|candidate| candidate.is_up() && candidate.weight() > 0);
    let mut weighed: Vec<ComputedWeight> = candidates
        .iter()
        .map(|candidate| candidate.computed_weight(any_is_up))
        .collect();
    zero_ejected(candidates, &mut weighed);
    let sum: u64 = weighed
        .iter()
        .map(|server| u64::from(server.effective))
        .sum();
    if is_below_quorum(health, sum, previous) {
        if has_sorry {
            for server in &mut weighed {
                server.effective = 0;
            }
        }
        return (weighed, PoolMode::BelowQuorum);
    }
    (weighed, PoolMode::Normal)
}

/// Sets the weight of ejected servers to 0, unless no other server has weight.
fn zero_ejected(candidates: &[Candidate<'_>], weighed: &mut [ComputedWeight]) {
    let mut pairs = candidates.iter().zip(weighed.iter());
    let has_usable_server =
        pairs.any(|(candidate, server)| !candidate.ejected && server.effective > 0);
    let ejected = candidates.iter().zip(weighed).filter(|pair| pair.0.ejected);
    for (_, server) in ejected.filter(|_| has_usable_server) {
        server.effective = 0;
    }
}

/// Returns whether more than `panic_threshold` percent of the servers with a nonzero base weight are down.
fn is_panic(health: &Health, candidates: &[Candidate<'_>]) -> bool {
    let Some(percent) = health.panic_threshold else {
        return false;
    };
    let used = || candidates.iter().filter(|candidate| candidate.base > 0);
    let down = used().filter(|candidate| candidate.state() == Some(State::Down));
    down.count() as u64 * 100 > used().count() as u64 * u64::from(percent)
}

fn is_below_quorum(health: &Health, sum: u64, previous: PoolMode) -> bool {
    let (quorum, hysteresis) = (
        u64::from(health.quorum),
        u64::from(health.quorum_hysteresis),
    );
    if quorum == 0 {
        false
    } else if previous == PoolMode::BelowQuorum {
        sum < quorum + hysteresis
    } else {
        sum < quorum.saturating_sub(hysteresis)
    }
}

impl Candidate<'_> {
    fn state(&self) -> Option<State> {
        self.server_health.map(|server_health| server_health.state)
    }

    fn is_up(&self) -> bool {
        matches!(self.state(), None | Some(State::Up))
    }

    /// Returns the weight after reported weights and slow start.
    fn weight(&self) -> u32 {
        let Some(server_health) = self.server_health else {
            return self.base;
        };
        match server_health
            .reported_weight(self.base)
            .unwrap_or(self.base)
        {
            0 => 0,
            weight => scale(weight, server_health.ramp, 1000),
        }
    }

    fn computed_weight(&self, any_is_up: bool) -> ComputedWeight {
        let effective = match self.state() {
            None | Some(State::Up) => self.weight(),
            Some(State::Starting) if !any_is_up => self.weight(),
            Some(State::Starting | State::Down) => 0,
        };
        ComputedWeight {
            effective,
            remove: self.state() == Some(State::Down)
                && self
                    .server_health
                    .is_some_and(|server_health| server_health.remove),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outcome::ReportedWeight;

    fn server_health(state: State) -> ServerHealth {
        ServerHealth::new(state, Duration::ZERO)
    }

    fn effective(
        health: &Health,
        has_sorry: bool,
        servers: &[(u32, &ServerHealth)],
        previous: PoolMode,
    ) -> (Vec<u32>, PoolMode) {
        let candidates: Vec<Candidate<'_>> = servers
            .iter()
            .map(|(base, server_health)| Candidate {
                base: *base,
                server_health: Some(server_health),
                ejected: false,
            })
            .collect();
        let (weighed, mode) = weigh(health, has_sorry, &candidates, previous);
        (
            weighed.iter().map(|server| server.effective).collect(),
            mode,
        )
    }

    #[test]
    fn starting_servers_are_used_only_while_none_is_up() {
        let (up, down, starting) = (
            server_health(State::Up),
            server_health(State::Down),
            server_health(State::Starting),
        );
        let health = Health::default();
        let weights = |servers: &[(u32, &ServerHealth)]| {
            effective(&health, false, servers, PoolMode::Normal).0
        };
        assert_eq!(
            weights(&[(1, &starting), (2, &starting), (1, &down)]),
            [1, 2, 0]
        );
        assert_eq!(weights(&[(1, &starting), (2, &up)]), [0, 2]);
        assert_eq!(
            weights(&[(1, &starting), (0, &up)]),
            [1, 0],
            "up, but drained by the operator"
        );
    }

    #[test]
    fn panic_above_the_threshold_uses_all_servers() {
        let (up, down) = (
            server_health(State::Up),
            ServerHealth {
                remove: true,
                ..server_health(State::Down)
            },
        );
        let health = Health {
            panic_threshold: Some(50),
            ..Health::default()
        };
        let weights =
            |servers: &[(u32, &ServerHealth)]| effective(&health, false, servers, PoolMode::Normal);
        assert_eq!(
            weights(&[(1, &up), (1, &down)]),
            (vec![1, 0], PoolMode::Normal),
            "equal to the threshold"
        );
        assert_eq!(
            weights(&[(1, &up), (3, &down), (2, &down)]),
            (vec![1, 3, 2], PoolMode::Panic)
        );
        assert_eq!(
            weights(&[(1, &up), (0, &down), (1, &down)]),
            (vec![1, 0, 0], PoolMode::Normal),
            "one of two in use"
        );
    }

    #[test]
    fn quorum_has_hysteresis_and_zeroes_weights_only_with_a_sorry_server() {
        let (up, down) = (server_health(State::Up), server_health(State::Down));
        let health = Health {
            quorum: 3,
            quorum_hysteresis: 1,
            ..Health::default()
        };
        let weights_with = |ups: usize, before| {
            let servers: Vec<(u32, &ServerHealth)> = (0..5)
                .map(|n| (1, if n < ups { &up } else { &down }))
                .collect();
            effective(&health, true, &servers, before)
        };
        assert_eq!(weights_with(2, PoolMode::Normal).1, PoolMode::Normal);
        assert_eq!(
            weights_with(1, PoolMode::Normal),
            (vec![0; 5], PoolMode::BelowQuorum)
        );
        assert_eq!(
            weights_with(3, PoolMode::BelowQuorum).1,
            PoolMode::BelowQuorum
        );
        assert_eq!(
            weights_with(4, PoolMode::BelowQuorum),
            (vec![1, 1, 1, 1, 0], PoolMode::Normal)
        );
        let without_sorry_server =
            effective(&health, false, &[(1, &up), (1, &down)], PoolMode::Normal);
        assert_eq!(
            without_sorry_server,
            (vec![1, 0], PoolMode::BelowQuorum),
            "no sorry server"
        );
    }

    #[test]
    fn reported_weights_and_slow_start_scale_the_configured_weight() {
        let health = Health::default();
        let half = ServerHealth {
            weights: vec![ReportedWeight::Percent(50), ReportedWeight::Percent(80)],
            ramp: 100,
            ..server_health(State::Up)
        };
        assert_eq!(
            effective(&health, false, &[(100, &half)], PoolMode::Normal).0,
            [5]
        );
        assert_eq!(
            effective(&health, false, &[(0, &half)], PoolMode::Normal).0,
            [0]
        );
        let drained = ServerHealth {
            weights: vec![ReportedWeight::Drain],
            ..server_health(State::Up)
        };
        assert_eq!(
            effective(&health, false, &[(100, &drained)], PoolMode::Normal).0,
            [0]
        );
    }

    #[test]
    fn on_remove_applies_only_to_servers_that_are_down() {
        for (state, remove, removed) in [
            (State::Down, true, true),
            (State::Down, false, false),
            (State::Up, true, false),
            (State::Starting, true, false),
        ] {
            let server_health = ServerHealth {
                remove,
                ..server_health(state)
            };
            let candidate = Candidate {
                base: 1,
                server_health: Some(&server_health),
                ejected: false,
            };
            let (weighed, _) = weigh(&Health::default(), false, &[candidate], PoolMode::Normal);
            assert_eq!(weighed[0].remove, removed, "{state:?} {remove}");
        }
    }

    #[test]
    fn ejected_servers_get_no_weight_while_others_have_some() {
        let weights = |ejected: [bool; 2]| {
            let candidates = ejected.map(|ejected| Candidate {
                base: 3,
                server_health: None,
                ejected,
            });
            let (weighed, _) = weigh(&Health::default(), false, &candidates, PoolMode::Normal);
            [weighed[0].effective, weighed[1].effective]
        };
        assert_eq!(weights([true, false]), [0, 3]);
        assert_eq!(weights([true, true]), [3, 3]);
    }
}
