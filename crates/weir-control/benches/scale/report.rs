//! Measures durations and prints rows.

use std::time::{Duration, Instant};

use weir_sys::{Clock, now_ns};

/// The start of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch {
    at: Instant,
    cpu_ns: u64,
}

/// The duration of a measured operation, and its CPU time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Durations {
    time: Duration,
    cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn now() -> Self {
        Self {
            at: Instant::now(),
            cpu_ns: now_ns(Clock::Process),
        }
    }

    pub(crate) fn elapsed(self) -> Durations {
        Durations {
            time: self.at.elapsed(),
            cpu: Duration::from_nanos(now_ns(Clock::Process) - self.cpu_ns),
        }
    }
}

/// A table that is printed row by row; the head is printed before the first row.
pub(crate) struct Table {
    only: String,
    started: bool,
}

fn shown(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 10.0 {
        format!("{ms:.2}")
    } else {
        format!("{ms:.0}")
    }
}

impl Table {
    /// Creates a table that shows only the rows whose name contains `only`.
    pub(crate) fn new(only: String) -> Self {
        Self {
            only,
            started: false,
        }
    }

    /// Prints the median, minimum and maximum of the measured durations.
    pub(crate) fn row(&mut self, name: &str, mut rounds: Vec<Durations>, goal: Option<Duration>) {
        if !name.contains(&self.only) || rounds.is_empty() {
            return;
        }
        if !self.started {
            println!("| what | ms | least…most | of it on the CPU | goal | |");
            println!("| --- | --- | --- | --- | --- | --- |");
            self.started = true;
        }
        rounds.sort();
        let median = rounds[rounds.len() / 2];
        let (min, max) = (shown(rounds[0].time), shown(rounds[rounds.len() - 1].time));
        let (goal, met) = match goal {
            Some(goal) if median.time < goal => (format!("< {}", goal.as_millis()), "met"),
            Some(goal) => (format!("< {}", goal.as_millis()), "NOT met"),
            None => ("–".to_owned(), ""),
        };
        let (time, cpu) = (shown(median.time), shown(median.cpu));
        println!("| {name} | {time} | {min}…{max} | {cpu} | {goal} | {met} |");
    }
}
