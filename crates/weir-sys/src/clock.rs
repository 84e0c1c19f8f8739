//! Reads the kernel's clocks, including those that the data plane uses for timestamps, and provides the clock for
//! health checks.
//!
//! Values of [`now_ns`] are in nanoseconds, and are comparable only with values of the same clock or its BPF helper.
//! Pure crates take the time as an argument.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::{Error, Result};

/// A kernel clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Includes the time while the machine is suspended; `bpf_ktime_get_boot_ns`.
    Boottime,
    /// Excludes the time while the machine is suspended; `bpf_ktime_get_ns`.
    Monotonic,
    /// [`Clock::Monotonic`] at the last tick; `bpf_ktime_get_coarse_ns`.
    MonotonicCoarse,
    /// CPU time of this process on all CPUs.
    Process,
}

/// Returns the current time of `clock`, in nanoseconds since the clock's start.
pub fn now_ns(clock: Clock) -> u64 {
    let id = match clock {
        Clock::Boottime => ClockId::Boottime,
        Clock::Monotonic => ClockId::Monotonic,
        Clock::MonotonicCoarse => ClockId::MonotonicCoarse,
        Clock::Process => ClockId::ProcessCPUTime,
    };
    let now = clock_gettime(id);
    // These clocks start at zero and are never negative.
    (now.tv_sec as u64) * 1_000_000_000 + now.tv_nsec as u64
}

/// A clock with Unix time that never goes backwards and does not follow steps of the wall clock. Does not count the
/// time during which the machine is suspended. The times of two processes differ by the steps of the wall clock between
/// their starts, so pass durations between processes instead.
#[derive(Debug, Clone, Copy)]
pub struct SteadyClock {
    started: Instant,
    /// The time since the Unix epoch at `started`.
    base: Duration,
}

impl SteadyClock {
    /// Returns the clock of this process, which is set from the wall clock at the first call.
    pub fn of_process() -> Self {
        static CLOCK: OnceLock<SteadyClock> = OnceLock::new();
        *CLOCK.get_or_init(|| Self::starting_at(SystemTime::now()))
    }

    fn starting_at(time: SystemTime) -> Self {
        Self {
            started: Instant::now(),
            base: time.duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }

    /// Returns the current time since the Unix epoch.
    pub fn now(&self) -> Duration {
        self.base + self.started.elapsed()
    }

    /// Converts a time of this clock to an `Instant`.
    pub fn instant(&self, time: Duration) -> Instant {
        self.started + time.saturating_sub(self.base)
    }
}

/// Returns the random identifier of the current boot. A state file contains it to prevent the use of monotonic times
/// from before a reboot.
///
/// # Errors
/// Fails if `/proc/sys/kernel/random/boot_id` cannot be read.
pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_ordered() {
        let coarse = now_ns(Clock::MonotonicCoarse);
        let fine = now_ns(Clock::Monotonic);
        let boot = now_ns(Clock::Boottime);
        assert!(0 < coarse && coarse <= fine && fine <= boot);
    }

    /// The clock starts at Unix time 1000 s, as if the wall clock had been set forward since then.
    #[test]
    fn steady_clock_does_not_follow_the_wall_clock() {
        let start = Duration::from_secs(1000);
        let clock = SteadyClock::starting_at(UNIX_EPOCH + start);
        let first = clock.now();
        let second = clock.now();
        assert!(start <= first && first <= second && second < start * 2);
        let instant = clock.instant(first);
        assert!(clock.started <= instant && instant <= Instant::now());
    }

    #[test]
    fn clock_of_the_process_is_set_once() {
        let clock = SteadyClock::of_process();
        let same = SteadyClock::of_process();
        assert_eq!((clock.started, clock.base), (same.started, same.base));
    }

    #[test]
    fn boot_id_is_a_uuid() {
        let id = boot_id().unwrap();
        assert_eq!((id.len(), id.matches('-').count()), (36, 4));
    }
}
