//! Reads the number of possible CPUs, and pins threads to CPUs.

use std::fs;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::{Error, Result};

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Returns the number of values per element of a per-CPU map: the highest possible CPU number plus one, whether or not
/// that CPU is online.
///
/// # Errors
/// Fails if sysfs is not mounted, or the list has an unexpected format.
pub fn possible_cpus() -> Result<usize> {
    let text = fs::read_to_string(POSSIBLE).map_err(|error| Error::file(POSSIBLE, error))?;
    highest_in_list(&text)
        .and_then(|highest| highest.checked_add(1))
        .ok_or_else(|| Error::Format {
            subject: POSSIBLE.to_owned(),
            expected: "a list of CPU numbers",
            found: text,
        })
}

/// Returns the highest number in a kernel CPU list such as `0-3,8`.
fn highest_in_list(list: &str) -> Option<usize> {
    let mut highest = None;
    for range in list.trim().split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high): (usize, usize) = (low.parse().ok()?, high.parse().ok()?);
        if low > high {
            return None;
        }
        highest = highest.max(Some(high));
    }
    highest
}

/// Pins the calling thread to `cpu`.
///
/// # Errors
/// Fails if the CPU is above the kernel's limit, offline, or outside this process's cpuset.
pub fn pin_thread(cpu: usize) -> Result<()> {
    let subject = || format!("CPU {cpu}");
    if cpu >= CpuSet::MAX_CPU {
        return Err(Error::call(
            "sched_setaffinity",
            subject(),
            rustix::io::Errno::INVAL,
        ));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|error| Error::call("sched_setaffinity", subject(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_cpu_of_list_is_found() {
        assert_eq!(highest_in_list("0\n"), Some(0));
        assert_eq!(highest_in_list("0-3,8\n"), Some(8));
        assert_eq!(highest_in_list("8,0-3"), Some(8));
        for list in ["", "a", "3-1", "0-", "0,,1"] {
            assert_eq!(highest_in_list(list), None, "{list:?}");
        }
    }

    #[test]
    fn cpu_above_limit_is_rejected() {
        let error = pin_thread(usize::MAX).unwrap_err();
        assert_eq!(error.errno(), Some(rustix::io::Errno::INVAL.raw_os_error()));
    }

    #[test]
    fn pinned_thread_runs_on_its_cpu() {
        std::thread::spawn(|| {
            pin_thread(0).unwrap();
            assert_eq!(rustix::thread::sched_getcpu(), 0);
        })
        .join()
        .unwrap();
    }
}
