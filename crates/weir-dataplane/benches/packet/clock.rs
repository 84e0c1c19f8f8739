//! Measures the CPU time of this thread without the time of other tasks.
//!
//! The kernel excludes other tasks from the duration of test runs, but not from the duration of live-frame runs.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::Result;

/// Measures the CPU time of this thread and of the softirqs that it raises. Frames are received in softirqs, which run
/// in this thread, or in the CPU's `ksoftirqd` if there are many.
pub(crate) struct Clock {
    softirqs: PathBuf,
}

/// The clocks' readings at one point in time.
pub(crate) struct Instants {
    start: Instant,
    waited_ns: u64,
    softirqs_ns: u64,
}

/// Reads a task's `schedstat`: nanoseconds on a CPU, and nanoseconds spent waiting for one.
fn schedstat(path: &Path) -> Result<[u64; 2]> {
    let text = std::fs::read_to_string(path)?;
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next(), words.next()) {
        (Some(running), Some(waiting)) => Ok([running?, waiting?]),
        _ => Err(format!("{}: {text}", path.display()).into()),
    }
}

impl Clock {
    /// Returns a clock for the CPU that this thread is pinned to.
    pub(crate) fn new(cpu: usize) -> Result<Self> {
        let name = format!("ksoftirqd/{cpu}\n");
        for entry in std::fs::read_dir("/proc")? {
            let path = entry?.path();
            if std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm == name) {
                return Ok(Self {
                    softirqs: path.join("schedstat"),
                });
            }
        }
        Err(format!("process {} not found", name.trim_end()).into())
    }

    /// Returns the current readings.
    pub(crate) fn now(&self) -> Result<Instants> {
        Ok(Instants {
            start: Instant::now(),
            waited_ns: schedstat(Path::new("/proc/thread-self/schedstat"))?[1],
            softirqs_ns: schedstat(&self.softirqs)?[0],
        })
    }

    /// Returns the nanoseconds of work since `since`.
    pub(crate) fn ns_since(&self, since: &Instants) -> Result<f64> {
        let elapsed = since.start.elapsed();
        let now = self.now()?;
        let waited = now.waited_ns - since.waited_ns;
        let softirqs = now.softirqs_ns - since.softirqs_ns;
        Ok(elapsed.as_nanos() as f64 - waited as f64 + softirqs as f64)
    }
}
