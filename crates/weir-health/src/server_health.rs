//! Combines the states of all checks of one server.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_model::{OnFailure, Require};

use crate::machine::{Machine, State};
use crate::outcome::ReportedWeight;

/// A server's state according to its checks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ServerHealth {
    /// The combined state.
    pub state: State,
    /// When the state began, on the driver's clock.
    pub since: Duration,
    /// The reason for the state.
    pub reason: String,
    /// Weights that the server's checks report.
    pub weights: Vec<ReportedWeight>,
    /// Whether the server is down and a failed check has `on_failure = "remove"`.
    pub remove: bool,
    /// Share of the weight that slow start allows, in thousandths. It starts to grow at `since`.
    pub ramp: u32,
    /// The server's state in each service, by service name, if probes use the paths of several services. The server's
    /// own state is the best of these states. Nested values have no paths of their own.
    pub paths: BTreeMap<String, ServerHealth>,
}

impl ServerHealth {
    /// Returns the health of a server without results.
    pub fn new(state: State, since: Duration) -> Self {
        Self {
            state,
            since,
            reason: String::new(),
            weights: Vec::new(),
            remove: false,
            ramp: 1000,
            paths: BTreeMap::new(),
        }
    }

    /// Returns the health in a service, or the server's own health if the service has no separate path.
    pub fn in_service(&self, service: &str) -> &Self {
        self.paths.get(service).unwrap_or(self)
    }

    /// Returns the services in which the server is down, if the server itself is not down.
    pub(crate) fn broken_paths(&self) -> impl Iterator<Item = &str> {
        let paths = self.paths.iter().filter(|_| self.state != State::Down);
        paths
            .filter(|(_, path)| path.state == State::Down)
            .map(|(service, _)| service.as_str())
    }

    /// Returns the services that were added to [`Self::broken_paths`], and those that were removed because their path
    /// works again, each with its previous state. Services that are down together with the server are not included.
    pub(crate) fn changed_paths(&self, before: &Self) -> Vec<(String, State)> {
        let is_broken = |server_health: &Self, service: &str| {
            server_health.broken_paths().any(|it| it == service)
        };
        let paths = self.paths.iter().filter(|(service, path)| {
            let is_now_broken = is_broken(self, service);
            let was_broken = is_broken(before, service);
            is_now_broken != was_broken && (is_now_broken || path.state != State::Down)
        });
        paths
            .map(|(service, _)| (service.clone(), before.in_service(service).state))
            .collect()
    }

    /// Returns the health if these services have separate paths. A new path starts in the server's state. If only one
    /// service remains, its state becomes the server's.
    pub(crate) fn with_services(self, services: &[&str]) -> Self {
        let without_paths = |server_health: &Self| Self {
            paths: BTreeMap::new(),
            ..server_health.clone()
        };
        match services {
            [] => without_paths(&self),
            [service] => without_paths(self.in_service(service)),
            services => Self {
                paths: services
                    .iter()
                    .map(|it| ((*it).to_owned(), without_paths(self.in_service(it))))
                    .collect(),
                ..self
            },
        }
    }

    /// Returns whether slow start is active, for the server or in at least one service.
    pub(crate) fn is_in_slow_start(&self) -> bool {
        self.ramp < 1000 || self.paths.values().any(Self::is_in_slow_start)
    }

    /// Updates the ramp of slow start.
    pub(crate) fn update_ramp(&mut self, slow_start: Duration, now: Duration) {
        if self.ramp < 1000 {
            self.ramp = ramp(now.saturating_sub(self.since), slow_start);
        }
        for path in self.paths.values_mut() {
            path.update_ramp(slow_start, now);
        }
    }

    /// Returns the weight that the server's checks report instead of `base`, or `None` if they report none.
    pub fn reported_weight(&self, base: u32) -> Option<u32> {
        self.weights.iter().map(|weight| weight.apply(base)).min()
    }
}

/// Combines the states of several checks.
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

/// Returns the check that explains a state: the first check in that state, or the first check if none is.
pub(crate) fn find_deciding<'a, T>(
    state: State,
    checks: impl Iterator<Item = &'a T>,
    state_of: impl Fn(&T) -> State,
) -> Option<&'a T> {
    let mut first = None;
    for check in checks {
        if state_of(check) == state {
            return Some(check);
        }
        first = first.or(Some(check));
    }
    first
}

/// Returns whether a server that is down must be removed: a failed check has `on_failure = "remove"`.
pub(crate) fn requires_removal<'a>(probes: impl Iterator<Item = (&'a Machine, OnFailure)>) -> bool {
    probes.into_iter().any(|(machine, on_failure)| {
        machine.state() == State::Down && on_failure == OnFailure::Remove
    })
}

/// Returns the share of its weight, in thousandths, that a server gets after it has been up for `elapsed`.
pub(crate) fn ramp(elapsed: Duration, slow_start: Duration) -> u32 {
    if elapsed >= slow_start {
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
    fn all_requires_every_check_and_any_requires_one() {
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
    fn paths_are_kept_only_if_several_services_remain() {
        let mut server_health = ServerHealth::new(Up, Duration::ZERO);
        let broken = ServerHealth::new(Down, Duration::ZERO);
        server_health.paths.insert("a".to_owned(), broken.clone());
        assert_eq!(server_health.clone().with_services(&["a"]), broken);
        for services in [&[][..], &["b"]] {
            let remaining = server_health.clone().with_services(services);
            assert_eq!((remaining.state, remaining.paths), (Up, BTreeMap::new()));
        }
        // The path of a new service has no paths either.
        let both = server_health.clone().with_services(&["a", "b"]);
        assert_eq!(both.in_service("a"), &broken);
        assert_eq!(both.in_service("b"), &ServerHealth::new(Up, Duration::ZERO));
    }

    #[test]
    fn slow_start_grows_linearly_and_is_never_zero() {
        let duration = Duration::from_secs(10);
        assert_eq!(ramp(Duration::ZERO, duration), 1);
        assert_eq!(ramp(Duration::from_secs(5), duration), 500);
        assert_eq!(ramp(duration, duration), 1000);
        assert_eq!(ramp(2 * duration, duration), 1000);
        assert_eq!(ramp(Duration::ZERO, Duration::ZERO), 1000);
    }
}
