//! What all checks of one server come to.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_model::{OnFailure, Require};

use crate::machine::{Machine, State};
use crate::outcome::Said;

/// A server's state by its checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Up, down, or neither yet.
    pub state: State,
    /// When that began, on the driver's clock.
    pub since: Duration,
    /// What brought it about.
    pub reason: String,
    /// Weights that its checks bring.
    pub said: Vec<Said>,
    /// Down by a check whose failure removes.
    pub remove: bool,
    /// How much of its weight slow start gives, in thousandths. It grows from `since` on.
    pub ramp: u32,
    /// Where probes take the paths of several services: the server's state in each of them, by the service's name. The state
    /// of the server is the best of these. Theirs have no further ones.
    pub paths: BTreeMap<String, Standing>,
}

impl Standing {
    /// Before any result.
    pub fn new(state: State, since: Duration) -> Self {
        Self {
            state,
            since,
            reason: String::new(),
            said: Vec::new(),
            remove: false,
            ramp: 1000,
            paths: BTreeMap::new(),
        }
    }

    /// The state in a service; the server's own where the service has no path to itself.
    pub fn in_service(&self, service: &str) -> &Self {
        self.paths.get(service).unwrap_or(self)
    }

    /// The services in which the server is down although it is not down in all.
    pub fn broken_paths(&self) -> impl Iterator<Item = &str> {
        let paths = self.paths.iter().filter(|_| self.state != State::Down);
        paths
            .filter(|(_, path)| path.state == State::Down)
            .map(|(service, _)| service.as_str())
    }

    /// The services among [`Self::broken_paths`] that were not before, and those that were and whose path works again, with
    /// the former state in them. Of a server that went down in all nothing is said here.
    pub fn changed_paths(&self, before: &Self) -> Vec<(String, State)> {
        let is_broken = |of: &Self, service: &str| of.broken_paths().any(|it| it == service);
        let paths = self.paths.iter().filter(|(service, path)| {
            let broken = is_broken(self, service);
            let was_broken = is_broken(before, service);
            broken != was_broken && (broken || path.state != State::Down)
        });
        paths
            .map(|(service, _)| (service.clone(), before.in_service(service).state))
            .collect()
    }

    /// The same server when these services have paths of their own: a new one begins in the state of the server, and where
    /// one is left its state is the server's.
    pub(crate) fn among(self, services: &[&str]) -> Self {
        let alone = |standing: &Self| Self {
            paths: BTreeMap::new(),
            ..standing.clone()
        };
        match services {
            [] => alone(&self),
            [one] => alone(self.in_service(one)),
            several => Self {
                paths: several
                    .iter()
                    .map(|it| ((*it).to_owned(), alone(self.in_service(it))))
                    .collect(),
                ..self
            },
        }
    }

    /// Whether slow start goes on, in one service at least.
    pub(crate) fn is_climbing(&self) -> bool {
        self.ramp < 1000 || self.paths.values().any(Self::is_climbing)
    }

    /// Slow start at that time.
    pub(crate) fn climb(&mut self, slow_start: Duration, now: Duration) {
        if self.ramp < 1000 {
            self.ramp = ramp(now.saturating_sub(self.since), slow_start);
        }
        for path in self.paths.values_mut() {
            path.climb(slow_start, now);
        }
    }

    /// The weight that its checks bring in place of `base`; `None` = they bring none.
    pub fn brings(&self, base: u32) -> Option<u32> {
        self.said.iter().map(|said| said.apply(base)).min()
    }
}

/// The state that follows from several.
pub(crate) fn combine(require: Require, states: impl Iterator<Item = State>) -> State {
    let (mut up, mut down, mut starting) = (false, false, false);
    for state in states {
        match state {
            State::Up => up = true,
            State::Down => down = true,
            State::Starting => starting = true,
        }
    }
    match require {
        Require::All if down => State::Down,
        Require::All if starting => State::Starting,
        Require::All => State::Up,
        Require::Any if up => State::Up,
        Require::Any if starting => State::Starting,
        Require::Any => State::Down,
    }
}

/// The check that a state is explained by: one that says the same.
pub(crate) fn deciding<'a, T>(
    state: State,
    checks: impl Iterator<Item = &'a T>,
    says: impl Fn(&T) -> State,
) -> Option<&'a T> {
    let mut first = None;
    for check in checks {
        if says(check) == state {
            return Some(check);
        }
        first = first.or(Some(check));
    }
    first
}

/// Whether a server that is down is to be removed: a check that is down asks for it.
pub(crate) fn removes<'a>(uses: impl Iterator<Item = (&'a Machine, OnFailure)>) -> bool {
    uses.into_iter()
        .any(|(machine, on)| machine.state() == State::Down && on == OnFailure::Remove)
}

/// Thousandths of its weight that a server has, `elapsed` after it came back.
pub(crate) fn ramp(elapsed: Duration, slow_start: Duration) -> u32 {
    if slow_start.is_zero() || elapsed >= slow_start {
        return 1000;
    }
    let share = elapsed.as_nanos() * 1000 / slow_start.as_nanos();
    u32::try_from(share).unwrap_or(1000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Down, Starting, Up};

    #[test]
    fn all_and_any() {
        let all = |states: &[State]| combine(Require::All, states.iter().copied());
        let any = |states: &[State]| combine(Require::Any, states.iter().copied());
        assert_eq!(all(&[Up, Up]), Up);
        assert_eq!(all(&[Up, Starting]), Starting);
        assert_eq!(all(&[Starting, Down]), Down);
        assert_eq!(any(&[Down, Up]), Up);
        assert_eq!(any(&[Down, Starting]), Starting);
        assert_eq!(any(&[Down, Down]), Down);
    }

    #[test]
    fn slow_start_grows_evenly_and_is_never_nothing() {
        let whole = Duration::from_secs(10);
        assert_eq!(ramp(Duration::ZERO, whole), 1);
        assert_eq!(ramp(Duration::from_secs(5), whole), 500);
        assert_eq!(ramp(whole, whole), 1000);
        assert_eq!(ramp(Duration::ZERO, Duration::ZERO), 1000);
    }
}
