//! One check of one target: up or down by results in a row.

use std::time::Duration;

use weir_model::{Start, Timing};

use crate::history::History;
use crate::outcome::{Outcome, Said, Verdict};

/// What checks say of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There was no result yet.
    Starting,
    /// It answers.
    Up,
    /// It does not.
    Down,
}

/// Rise and fall.
#[derive(Clone, Debug)]
pub struct Machine {
    timing: Timing,
    state: State,
    /// Results in a row that speak against the state.
    against: u32,
    history: History,
    note: String,
    said: Option<Said>,
}

impl Machine {
    /// Before the first result.
    pub fn new(timing: Timing, start: Start) -> Self {
        let state = match start {
            Start::Checking => State::Starting,
            Start::Up => State::Up,
            Start::Down => State::Down,
        };
        Self {
            timing,
            state,
            against: 0,
            history: History::default(),
            note: "no result yet".to_owned(),
            said: None,
        }
    }

    /// Goes on from what is known of the target: after a restart, or after its check was written differently.
    pub fn resuming(timing: Timing, state: State) -> Self {
        Self {
            state,
            note: "no result yet; the state is the former one".to_owned(),
            ..Self::new(timing, Start::Checking)
        }
    }

    /// Takes a result in; answers whether the state, or a weight that the check brings, changed.
    pub fn handle(&mut self, outcome: Outcome) -> bool {
        let before = (self.state, self.said);
        let passed = match outcome.verdict {
            Verdict::Passed => true,
            Verdict::Failed => false,
            Verdict::Unknown => {
                self.note = outcome.note;
                return false;
            }
        };
        self.history.push(passed);
        let speaks_for = match self.state {
            State::Starting => None,
            State::Up => Some(passed),
            State::Down => Some(!passed),
        };
        self.against = match speaks_for {
            Some(true) => 0,
            Some(false) => self.against.saturating_add(1),
            None => 0,
        };
        let needed = match self.state {
            State::Up => self.timing.fall,
            State::Down => self.timing.rise,
            State::Starting => 0,
        };
        if speaks_for.is_none() || self.against >= needed {
            self.state = if passed { State::Up } else { State::Down };
            self.against = 0;
        }
        if passed {
            self.said = outcome.said;
        }
        self.note = outcome.note;
        before != (self.state, self.said)
    }

    /// Until the next probe, without jitter.
    pub fn pause(&self) -> Duration {
        let timing = &self.timing;
        let other = match self.state {
            State::Down if self.against > 0 => timing.interval_rising,
            State::Down => timing.interval_down,
            State::Up if self.against > 0 => timing.interval_falling,
            State::Up | State::Starting => None,
        };
        other.unwrap_or(timing.interval)
    }

    /// Up, down, or neither yet.
    pub const fn state(&self) -> State {
        self.state
    }

    /// A weight that the last passing answer brought.
    pub const fn said(&self) -> Option<Said> {
        self.said
    }

    /// The last results.
    pub const fn history(&self) -> History {
        self.history
    }

    /// The last result in words, with how far it is from changing the state.
    pub fn reason(&self) -> String {
        let (what, needed) = match self.state {
            State::Up => ("failed", self.timing.fall),
            _ => ("passed", self.timing.rise),
        };
        if self.against == 0 {
            self.note.clone()
        } else {
            format!("{} ({what} {} of {needed})", self.note, self.against)
        }
    }

    /// The last result in words.
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

    fn results(machine: &mut Machine, results: &str) -> Vec<State> {
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
    fn three_failures_take_down_and_two_passes_bring_back() {
        use State::{Down, Up};
        let mut machine = machine(Start::Up);
        assert_eq!(
            results(&mut machine, "--+---+-++"),
            [Up, Up, Up, Up, Up, Down, Down, Down, Down, Up]
        );
        assert_eq!(machine.history().to_string(), "--+---+-++");
    }

    #[test]
    fn the_first_result_decides_at_once() {
        assert_eq!(results(&mut machine(Start::Checking), "-"), [State::Down]);
        assert_eq!(results(&mut machine(Start::Checking), "+"), [State::Up]);
        assert_eq!(results(&mut machine(Start::Down), "+"), [State::Down]);
    }

    #[test]
    fn what_the_director_could_not_ask_changes_nothing() {
        let mut machine = machine(Start::Up);
        assert_eq!(results(&mut machine, "--???"), [State::Up; 5]);
        assert_eq!(machine.history().to_string(), "--");
        assert_eq!(results(&mut machine, "-"), [State::Down]);
        let mut starting = self::machine(Start::Checking);
        assert_eq!(results(&mut starting, "?"), [State::Starting]);
    }

    #[test]
    fn the_pause_follows_the_state() {
        let mut machine = machine(Start::Up);
        assert_eq!(machine.pause(), Duration::from_secs(2));
        results(&mut machine, "--");
        assert_eq!(machine.pause(), Duration::from_millis(500));
        results(&mut machine, "-");
        assert_eq!(machine.pause(), Duration::from_secs(10));
        results(&mut machine, "+");
        assert_eq!(machine.pause(), Duration::from_secs(1));
        assert_eq!(machine.reason(), "ok (passed 1 of 2)");
        results(&mut machine, "+");
        assert_eq!(machine.pause(), Duration::from_secs(2));
        assert_eq!(machine.reason(), "ok");
    }

    #[test]
    fn a_former_state_must_be_outvoted() {
        let mut machine = Machine::resuming(Timing::default(), State::Down);
        assert_eq!(
            results(&mut machine, "+-++"),
            [State::Down, State::Down, State::Down, State::Up]
        );
    }
}
