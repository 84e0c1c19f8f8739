//! Measures how long this CPU worked on a task, without the time of other tasks. Test runs exclude that time by
//! themselves, live frames do not.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::Outcome;

/// Frames are received in softirqs. Those that this thread raised run in it, and in the CPU's `ksoftirqd` if there are
/// many.
pub(crate) struct Clock {
    softirqs: PathBuf,
}

/// A point in time.
pub(crate) struct Since {
    start: Instant,
    waited_ns: u64,
    softirqs_ns: u64,
}

/// From a task's `schedstat`: nanoseconds on a CPU, and nanoseconds of waiting for one.
fn schedstat(path: &Path) -> Outcome<[u64; 2]> {
    let text = std::fs::read_to_string(path)?;
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next(), words.next()) {
        (Some(on), Some(waiting)) => Ok([on?, waiting?]),
        _ => Err(format!("{}: {text}", path.display()).into()),
    }
}

impl Clock {
    /// For a CPU that this thread does not leave.
    pub(crate) fn new(cpu: usize) -> Outcome<Self> {
        let name = format!("ksoftirqd/{cpu}\n");
        for entry in std::fs::read_dir("/proc")? {
            let path = entry?.path();
            if std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm == name) {
                return Ok(Self {
                    softirqs: path.join("schedstat"),
                });
            }
        }
        Err(format!("no {}", name.trim_end()).into())
    }

    /// Now.
    pub(crate) fn now(&self) -> Outcome<Since> {
        Ok(Since {
            start: Instant::now(),
            waited_ns: schedstat(Path::new("/proc/thread-self/schedstat"))?[1],
            softirqs_ns: schedstat(&self.softirqs)?[0],
        })
    }

    /// Nanoseconds of work since then.
    pub(crate) fn ns_since(&self, since: &Since) -> Outcome<f64> {
        let elapsed = since.start.elapsed();
        let now = self.now()?;
        let waited = now.waited_ns - since.waited_ns;
        let softirqs = now.softirqs_ns - since.softirqs_ns;
        Ok(elapsed.as_nanos() as f64 - waited as f64 + softirqs as f64)
    }
}
