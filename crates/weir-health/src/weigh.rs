//! From standings to the weights that schedulers use, a pool at a time.
//!
//! Layers, from below: the configured weight, an operator's override in its place, what a check says, the ramp of slow start,
//! the state; a server that was ejected gets nothing. Over the whole pool: a server that is starting counts only while none is up, too many servers down make all of
//! them count again (panic), and too little weight hands the pool to its sorry server (quorum).

use weir_model::Health;

use crate::machine::State;
use crate::outcome::share;
use crate::standing::Standing;

/// A server before its health is counted in.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Configured weight, or the override in its place.
    pub base: u32,
    /// By its checks; `None` = no check.
    pub standing: Option<&'a Standing>,
    /// Its clients' packets say that it takes no connections.
    pub ejected: bool,
}

/// What comes out for a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weighed {
    /// What the scheduler uses.
    pub effective: u32,
    /// Its flows meet `on_remove`.
    pub remove: bool,
}

/// How a pool is used; remembered, because quorum has hysteresis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Regime {
    /// By the states of its servers.
    #[default]
    Normal,
    /// Too many are down: all count.
    Panic,
    /// Too little weight is up.
    BelowQuorum,
}

/// The weights of a pool's servers, and how the pool is used now.
pub fn weigh(
    health: &Health,
    has_sorry: bool,
    candidates: &[Candidate<'_>],
    before: Regime,
) -> (Vec<Weighed>, Regime) {
    if panics(health, candidates) {
        let all = candidates.iter().map(|candidate| Weighed {
            effective: candidate.base,
            remove: false,
        });
        return (all.collect(), Regime::Panic);
    }
    let one_is_up = candidates
        .iter()
        .any(|candidate| candidate.is_up() && candidate.weight() > 0);
    let mut weighed: Vec<Weighed> = candidates
        .iter()
        .map(|candidate| candidate.weighed(one_is_up))
        .collect();
    leave_out_ejected(candidates, &mut weighed);
    let sum: u64 = weighed.iter().map(|one| u64::from(one.effective)).sum();
    if is_below_quorum(health, sum, before) {
        if has_sorry {
            for one in &mut weighed {
                one.effective = 0;
            }
        }
        return (weighed, Regime::BelowQuorum);
    }
    (weighed, Regime::Normal)
}

/// Ejected servers get nothing, unless nobody else is left.
fn leave_out_ejected(candidates: &[Candidate<'_>], weighed: &mut [Weighed]) {
    let mut both = candidates.iter().zip(weighed.iter());
    let others = both.any(|(candidate, one)| !candidate.ejected && one.effective > 0);
    let ejected = candidates.iter().zip(weighed).filter(|it| it.0.ejected);
    for (_, one) in ejected.filter(|_| others) {
        one.effective = 0;
    }
}

fn panics(health: &Health, candidates: &[Candidate<'_>]) -> bool {
    let Some(percent) = health.panic_threshold else {
        return false;
    };
    let used = || candidates.iter().filter(|candidate| candidate.base > 0);
    let down = used().filter(|candidate| candidate.state() == Some(State::Down));
    down.count() as u64 * 100 > used().count() as u64 * u64::from(percent)
}

fn is_below_quorum(health: &Health, sum: u64, before: Regime) -> bool {
    let (quorum, hysteresis) = (
        u64::from(health.quorum),
        u64::from(health.quorum_hysteresis),
    );
    if quorum == 0 {
        false
    } else if before == Regime::BelowQuorum {
        sum < quorum + hysteresis
    } else {
        sum < quorum.saturating_sub(hysteresis)
    }
}

impl Candidate<'_> {
    fn state(&self) -> Option<State> {
        self.standing.map(|standing| standing.state)
    }

    fn is_up(&self) -> bool {
        matches!(self.state(), None | Some(State::Up))
    }

    /// With what checks say and slow start gives.
    fn weight(&self) -> u32 {
        let Some(standing) = self.standing else {
            return self.base;
        };
        match standing.brings(self.base).unwrap_or(self.base) {
            0 => 0,
            weight => share(weight, standing.ramp, 1000),
        }
    }

    fn weighed(&self, one_is_up: bool) -> Weighed {
        let effective = match self.state() {
            None | Some(State::Up) => self.weight(),
            Some(State::Starting) if !one_is_up => self.weight(),
            Some(State::Starting | State::Down) => 0,
        };
        Weighed {
            effective,
            remove: self.state() == Some(State::Down)
                && self.standing.is_some_and(|standing| standing.remove),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outcome::Said;

    fn standing(state: State) -> Standing {
        Standing::new(state, Duration::ZERO)
    }

    fn effective(
        health: &Health,
        sorry: bool,
        servers: &[(u32, &Standing)],
        before: Regime,
    ) -> (Vec<u32>, Regime) {
        let candidates: Vec<Candidate<'_>> = servers
            .iter()
            .map(|(base, standing)| Candidate {
                base: *base,
                standing: Some(standing),
                ejected: false,
            })
            .collect();
        let (weighed, regime) = weigh(health, sorry, &candidates, before);
        (weighed.iter().map(|one| one.effective).collect(), regime)
    }

    #[test]
    fn starting_servers_count_only_while_none_is_up() {
        let (up, down, starting) = (
            standing(State::Up),
            standing(State::Down),
            standing(State::Starting),
        );
        let health = Health::default();
        let weights =
            |servers: &[(u32, &Standing)]| effective(&health, false, servers, Regime::Normal).0;
        assert_eq!(
            weights(&[(1, &starting), (2, &starting), (1, &down)]),
            [1, 2, 0]
        );
        assert_eq!(weights(&[(1, &starting), (2, &up)]), [0, 2]);
        assert_eq!(
            weights(&[(1, &starting), (0, &up)]),
            [1, 0],
            "up, and taken out by hand"
        );
    }

    #[test]
    fn panic_uses_all_above_the_threshold() {
        let (up, down) = (
            standing(State::Up),
            Standing {
                remove: true,
                ..standing(State::Down)
            },
        );
        let health = Health {
            panic_threshold: Some(50),
            ..Health::default()
        };
        let weights =
            |servers: &[(u32, &Standing)]| effective(&health, false, servers, Regime::Normal);
        assert_eq!(
            weights(&[(1, &up), (1, &down)]),
            (vec![1, 0], Regime::Normal),
            "half is not more"
        );
        assert_eq!(
            weights(&[(1, &up), (3, &down), (2, &down)]),
            (vec![1, 3, 2], Regime::Panic)
        );
        assert_eq!(
            weights(&[(1, &up), (0, &down), (1, &down)]),
            (vec![1, 0, 0], Regime::Normal),
            "one of two in use"
        );
    }

    #[test]
    fn quorum_has_hysteresis_and_needs_a_sorry_server_to_take_servers_out() {
        let (up, down) = (standing(State::Up), standing(State::Down));
        let health = Health {
            quorum: 3,
            quorum_hysteresis: 1,
            ..Health::default()
        };
        let at = |ups: usize, before| {
            let servers: Vec<(u32, &Standing)> = (0..5)
                .map(|n| (1, if n < ups { &up } else { &down }))
                .collect();
            effective(&health, true, &servers, before)
        };
        assert_eq!(at(2, Regime::Normal).1, Regime::Normal);
        assert_eq!(at(1, Regime::Normal), (vec![0; 5], Regime::BelowQuorum));
        assert_eq!(at(3, Regime::BelowQuorum).1, Regime::BelowQuorum);
        assert_eq!(
            at(4, Regime::BelowQuorum),
            (vec![1, 1, 1, 1, 0], Regime::Normal)
        );
        let alone = effective(&health, false, &[(1, &up), (1, &down)], Regime::Normal);
        assert_eq!(
            alone,
            (vec![1, 0], Regime::BelowQuorum),
            "nobody else is there to serve"
        );
    }

    #[test]
    fn layers_lie_over_each_other() {
        let health = Health::default();
        let half = Standing {
            said: vec![Said::Percent(50), Said::Percent(80)],
            ramp: 100,
            ..standing(State::Up)
        };
        assert_eq!(
            effective(&health, false, &[(100, &half)], Regime::Normal).0,
            [5]
        );
        assert_eq!(
            effective(&health, false, &[(0, &half)], Regime::Normal).0,
            [0]
        );
        let drained = Standing {
            said: vec![Said::Drain],
            ..standing(State::Up)
        };
        assert_eq!(
            effective(&health, false, &[(100, &drained)], Regime::Normal).0,
            [0]
        );
    }

    #[test]
    fn ejected_servers_get_nothing_while_others_can() {
        let weights = |ejected: [bool; 2]| {
            let candidates = ejected.map(|ejected| Candidate {
                base: 3,
                standing: None,
                ejected,
            });
            let (weighed, _) = weigh(&Health::default(), false, &candidates, Regime::Normal);
            [weighed[0].effective, weighed[1].effective]
        };
        assert_eq!(weights([true, false]), [0, 3]);
        assert_eq!(weights([true, true]), [3, 3]);
    }
}
