//! Prints a progress line to stderr.
//!
//! On a terminal, the line is updated in place; otherwise, a new line is printed every ten seconds. Stdout contains
//! only results.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const TERMINAL_INTERVAL: Duration = Duration::from_millis(500);
const LOG_INTERVAL: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(50);

/// The running methods.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    terminal: bool,
    /// Method, its current step, and the start time of the step.
    running: Mutex<BTreeMap<String, (String, Instant)>>,
    stop: AtomicBool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Progress {
            start: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
            running: Mutex::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// Sets the current step of `method`.
    pub(crate) fn set(&self, method: &str, activity: &str) {
        self.lock()
            .insert(method.to_owned(), (activity.to_owned(), Instant::now()));
    }

    /// Removes `method`.
    pub(crate) fn remove(&self, method: &str) {
        self.lock().remove(method);
    }

    /// Removes `method` and prints its `result`.
    pub(crate) fn done(&self, method: &str, result: &str) {
        self.lock().remove(method);
        self.line(&format!("{method}: {result}"));
    }

    /// Prints a permanent line.
    pub(crate) fn line(&self, text: &str) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        eprintln!(
            "{clear}{:>5.0} s  {text}",
            self.start.elapsed().as_secs_f64()
        );
    }

    /// Displays the progress until `work` ends.
    pub(crate) fn show_during<T>(&self, work: impl FnOnce() -> T) -> T {
        // A panic in `work` must also stop the display thread, because the scope would otherwise wait forever.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        self.stop.store(false, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| self.tick());
            let _stop = Stop(&self.stop);
            work()
        })
    }

    fn tick(&self) {
        let period = if self.terminal {
            TERMINAL_INTERVAL
        } else {
            LOG_INTERVAL
        };
        let mut next = Instant::now() + period;
        while !self.stop.load(Ordering::Acquire) {
            std::thread::sleep(TICK);
            if Instant::now() >= next {
                next += period;
                self.print();
            }
        }
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    fn print(&self) {
        let running: Vec<String> = self
            .lock()
            .iter()
            .map(|(method, (activity, since))| {
                format!("{method} {activity} {:.0} s", since.elapsed().as_secs_f64())
            })
            .collect();
        if running.is_empty() {
            return;
        }
        if self.terminal {
            let text = format!(
                "\r\x1b[K{:>5.0} s  {}",
                self.start.elapsed().as_secs_f64(),
                running.join(" · ")
            );
            // A closed stderr must not stop the measurement.
            let _ = std::io::stderr().write_all(text.as_bytes());
        } else {
            self.line(&running.join(" · "));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (String, Instant)>> {
        // The map is valid even if the mutex is poisoned.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
