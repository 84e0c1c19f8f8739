//! Implements the rise/fall state machine of one check of one target.

use std::time::Duration;

use weir_model::{Start, Timing};

use crate::history::History;
use crate::outcome::{Outcome, ReportedWeight, Verdict};

/// State of a target according to a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum State {
    /// No result yet.
    Starting,
    /// Enough consecutive probes passed, or the first probe passed, or this is the initial or restored state.
    Up,
    /// Enough consecutive probes failed, or the first probe failed, or this is the initial or restored state.
    Down,
}

/// State of one check of one target, and its last results.
#[derive(Clone, Debug)]
pub struct Machine {
    timing: Timing,
    state: State,
    /// Number of consecutive results that contradict the state.
    contrary_results: u32,
    history: History,
    /// Description of the last result.
    note: String,
    /// Weight that the last passed probe reported.
    weight: Option<ReportedWeight>,
}

impl Machine {
    /// Creates a state machine without results, in the state that `start` selects.
    pub fn new(timing: Timing, start: Start) -> Self {
        let state = match start {
            Start::Checking => State::Starting,
            Start::Up => State::Up,
            Start::Down => State::Down,
        };
        Self {
            timing,
            state,
            contrary_results: 0,
            history: History::default(),
            note: "no result yet".to_owned(),
            weight: None,
        }
    }

    /// Creates a state machine in a known state, after a restart or a change to the check's settings.
    pub(crate) fn in_known_state(timing: Timing, state: State) -> Self {
        Self {
            state,
            note: "no result yet; keeping the previous state".to_owned(),
            ..Self::new(timing, Start::Checking)
        }
    }

    /// Applies a result. Returns whether the state or the reported weight changed. Unknown results change only the
    /// note.
    pub fn handle(&mut self, outcome: Outcome) -> bool {
        let before = (self.state, self.weight);
        let passed = match outcome.verdict {
            Verdict::Passed => true,
            Verdict::Failed => false,
            Verdict::Unknown => {
                self.note = outcome.note;
                return false;
            }
        };
        self.history.push(passed);
        let confirms = match self.state {
            State::Starting => None,
            State::Up => Some(passed),
            State::Down => Some(!passed),
        };
        self.contrary_results = match confirms {
            Some(true) => 0,
            Some(false) => self.contrary_results.saturating_add(1),
            None => 0,
        };
        let threshold = match self.state {
            State::Up => self.timing.fall,
            State::Down => self.timing.rise,
            State::Starting => 0,
        };
        if confirms.is_none() || self.contrary_results >= threshold {
            self.state = if passed { State::Up } else { State::Down };
            self.contrary_results = 0;
        }
        if passed {
            self.weight = outcome.weight;
        }
        self.note = outcome.note;
        before != (self.state, self.weight)
    }

    /// Returns the time until the next probe, without jitter.
    pub fn pause(&self) -> Duration {
        let timing = &self.timing;
        let state_interval = match self.state {
            State::Down if self.contrary_results > 0 => timing.interval_rising,
            State::Down => timing.interval_down,
            State::Up if self.contrary_results > 0 => timing.interval_falling,
            State::Up | State::Starting => None,
        };
        state_interval.unwrap_or(timing.interval)
    }

    /// Returns the numbers of consecutive results that change the state to up and to down.
    pub const fn thresholds(&self) -> (u32, u32) {
        (self.timing.rise, self.timing.fall)
    }

    /// Returns the current state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the weight that the last passed probe reported.
    pub const fn weight(&self) -> Option<ReportedWeight> {
        self.weight
    }

    /// Returns the last results.
    pub const fn history(&self) -> History {
        self.history
    }

    /// Returns a description of the last result, with the progress toward a state change.
    pub fn reason(&self) -> String {
        let (result, threshold) = match self.state {
            State::Up => ("failed", self.timing.fall),
            State::Starting | State::Down => ("passed", self.timing.rise),
        };
        if self.contrary_results == 0 {
            self.note.clone()
        } else {
            format!(
                "{} ({result} {} of {threshold})",
                self.note, self.contrary_results
            )
        }
    }

    /// Returns the description of the last result.
    pub fn note(&self) -> &str {
        &self.note
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(start: Start) -> Machine {
        let timing = Timing {
            interval: Duration::from_secs(2),
            interval_falling: Some(Duration::from_millis(500)),
            interval_down: Some(Duration::from_secs(10)),
            interval_rising: Some(Duration::from_secs(1)),
            ..Timing::default()
        };
        Machine::new(timing, start)
    }

    fn handle_results(machine: &mut Machine, results: &str) -> Vec<State> {
        let outcome = |result| match result {
            '+' => Outcome::passed("ok"),
            '-' => Outcome::failed("refused"),
            _ => Outcome::unknown("no descriptor"),
        };
        let mut states = Vec::new();
        for result in results.chars() {
            machine.handle(outcome(result));
            states.push(machine.state());
        }
        states
    }

    #[test]
    fn goes_down_after_fall_failures_and_up_after_rise_passes() {
        use State::{Down, Up};
        let mut machine = machine(Start::Up);
        assert_eq!(
            handle_results(&mut machine, "--+---+-++"),
            [Up, Up, Up, Up, Up, Down, Down, Down, Down, Up]
        );
        assert_eq!(machine.history().to_string(), "--+---+-++");
    }

    #[test]
    fn first_result_sets_the_state_only_while_starting() {
        assert_eq!(
            handle_results(&mut machine(Start::Checking), "-"),
            [State::Down]
        );
        assert_eq!(
            handle_results(&mut machine(Start::Checking), "+"),
            [State::Up]
        );
        assert_eq!(
            handle_results(&mut machine(Start::Down), "+"),
            [State::Down]
        );
    }

    #[test]
    fn unknown_results_do_not_change_the_state() {
        let mut machine = machine(Start::Up);
        assert_eq!(handle_results(&mut machine, "--???"), [State::Up; 5]);
        assert_eq!(machine.history().to_string(), "--");
        assert_eq!(handle_results(&mut machine, "-"), [State::Down]);
        let mut starting = self::machine(Start::Checking);
        assert_eq!(handle_results(&mut starting, "?"), [State::Starting]);
    }

    #[test]
    fn pause_depends_on_the_state() {
        let mut machine = machine(Start::Up);
        assert_eq!(machine.pause(), Duration::from_secs(2));
        handle_results(&mut machine, "--");
        assert_eq!(machine.pause(), Duration::from_millis(500));
        handle_results(&mut machine, "-");
        assert_eq!(machine.pause(), Duration::from_secs(10));
        handle_results(&mut machine, "+");
        assert_eq!(machine.pause(), Duration::from_secs(1));
        assert_eq!(machine.reason(), "ok (passed 1 of 2)");
        handle_results(&mut machine, "+");
        assert_eq!(machine.pause(), Duration::from_secs(2));
        assert_eq!(machine.reason(), "ok");
    }

    #[test]
    fn restored_state_changes_only_after_rise_or_fall() {
        let mut machine = Machine::in_known_state(Timing::default(), State::Down);
        assert_eq!(
            machine.reason(),
            "no result yet; keeping the previous state"
        );
        assert_eq!(
            handle_results(&mut machine, "+-++"),
            [State::Down, State::Down, State::Down, State::Up]
        );
    }

    #[test]
    fn failed_and_unknown_results_keep_the_reported_weight() {
        let mut machine = machine(Start::Up);
        let half = ReportedWeight::Percent(50);
        assert!(machine.handle(Outcome::passed("50%").with_weight(half)));
        assert_eq!(machine.weight(), Some(half));
        let drain = Outcome::failed("down").with_weight(ReportedWeight::Drain);
        for outcome in [Outcome::failed("refused"), drain, Outcome::unknown("?")] {
            assert!(!machine.handle(outcome));
            assert_eq!(machine.weight(), Some(half));
        }
        assert!(machine.handle(Outcome::passed("up")));
        assert_eq!(machine.weight(), None);
    }
}
