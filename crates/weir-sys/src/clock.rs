//! The clocks that the data plane stamps with, read from user space.
//!
//! Pure crates take time as an argument; this is where an edge gets it. Values
//! are nanoseconds on the clock named, comparable with BPF's helpers of that
//! clock and with nothing else.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

use crate::{Error, Result};

/// A clock of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Runs while the machine sleeps; `bpf_ktime_get_boot_ns`.
    Boottime,
    /// Stops while the machine sleeps; `bpf_ktime_get_ns`.
    Monotonic,
    /// [`Clock::Monotonic`] at the last tick; `bpf_ktime_get_coarse_ns`.
    MonotonicCoarse,
    /// What this process has run on all CPUs.
    Process,
}

/// Now on `clock`, in nanoseconds since its start.
pub fn now_ns(clock: Clock) -> u64 {
    let id = match clock {
        Clock::Boottime => ClockId::Boottime,
        Clock::Monotonic => ClockId::Monotonic,
        Clock::MonotonicCoarse => ClockId::MonotonicCoarse,
        Clock::Process => ClockId::ProcessCPUTime,
    };
    let now = clock_gettime(id);
    // These clocks start at boot and never go below zero.
    (now.tv_sec as u64) * 1_000_000_000 + now.tv_nsec as u64
}

/// The identifier that the kernel drew at boot; differs after every reboot, so
/// that a state file can tell whether its monotonic times still mean anything.
///
/// # Errors
/// `/proc/sys/kernel/random/boot_id` cannot be read.
pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(path).map_err(|e| Error::file(path, e))?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_keep_their_order() {
        let coarse = now_ns(Clock::MonotonicCoarse);
        let fine = now_ns(Clock::Monotonic);
        let boot = now_ns(Clock::Boottime);
        assert!(0 < coarse && coarse <= fine && fine <= boot);
    }

    #[test]
    fn the_boot_id_is_one_uuid() {
        let id = boot_id().unwrap();
        assert_eq!((id.len(), id.matches('-').count()), (36, 4));
    }
}
