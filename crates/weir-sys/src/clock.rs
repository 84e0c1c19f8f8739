//! Reads the clocks that the data plane uses for its timestamps.
//!
//! Values are in nanoseconds, and are comparable only with values from the BPF helper for the same clock. Pure crates
//! take the time as an argument.

use std::fs;

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

    #[test]
    fn boot_id_is_a_uuid() {
        let id = boot_id().unwrap();
        assert_eq!((id.len(), id.matches('-').count()), (36, 4));
    }
}
