//! Measures durations and prints rows.

use std::time::{Duration, Instant};

use weir_sys::{Clock, now_ns};

/// The start of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch {
    started_at: Instant,
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
            started_at: Instant::now(),
            cpu_ns: now_ns(Clock::Process),
        }
    }

    pub(crate) fn elapsed(self) -> Durations {
        Durations {
            time: self.started_at.elapsed(),
            cpu: Duration::from_nanos(now_ns(Clock::Process) - self.cpu_ns),
        }
    }
}

/// A table that is printed row by row, with a header before the first row.
pub(crate) struct Table {
    filter: String,
    has_printed_header: bool,
}

fn format_ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 10.0 {
        format!("{ms:.2}")
    } else {
        format!("{ms:.0}")
    }
}

impl Table {
    /// Creates a table that shows only rows whose names contain `filter`.
    pub(crate) fn new(filter: String) -> Self {
        Self {
            filter,
            has_printed_header: false,
        }
    }

    /// Prints the median, minimum and maximum of the measured durations.
    pub(crate) fn row(&mut self, name: &str, mut rounds: Vec<Durations>, goal: Option<Duration>) {
        if !name.contains(&self.filter) || rounds.is_empty() {
            return;
        }
        if !self.has_printed_header {
            println!("| what | ms | least…most | CPU ms | goal | |");
            println!("| --- | --- | --- | --- | --- | --- |");
            self.has_printed_header = true;
        }
        rounds.sort();
        let median = rounds[rounds.len() / 2];
        let (min, max) = (
            format_ms(rounds[0].time),
            format_ms(rounds[rounds.len() - 1].time),
        );
        let (goal, met) = match goal {
            Some(goal) if median.time < goal => (format!("< {}", goal.as_millis()), "met"),
            Some(goal) => (format!("< {}", goal.as_millis()), "NOT met"),
            None => ("–".to_owned(), ""),
        };
        let (time, cpu) = (format_ms(median.time), format_ms(median.cpu));
        println!("| {name} | {time} | {min}…{max} | {cpu} | {goal} | {met} |");
    }
}
