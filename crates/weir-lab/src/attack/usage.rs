//! What a proxy's processes use, from `/proc` (proc(5)): all of them together, those that they started included.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::process::Pid;

use crate::process;

/// At one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// User and system time so far, of ended children too.
    pub(crate) cpu: Duration,
    /// Resident memory in bytes.
    pub(crate) memory: u64,
    pub(crate) descriptors: u64,
}

/// Adds up over the process `root` and all below it. The list of processes is refreshed only on demand, because it
/// takes a walk through all of `/proc`.
pub(crate) struct Processes {
    pids: Vec<u32>,
}

impl Processes {
    pub(crate) fn of(root: u32) -> Self {
        let mut pids = vec![root];
        let mut at = 0;
        while let Some(&parent) = pids.get(at) {
            let children = process::children(parent).into_iter();
            pids.extend(children.filter_map(|pid| u32::try_from(Pid::as_raw(Some(pid))).ok()));
            at += 1;
        }
        Self { pids }
    }

    /// What they use now. One that has ended counts nothing; its parent has its CPU time.
    pub(crate) fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        for pid in &self.pids {
            sum.cpu += cpu(*pid).unwrap_or_default();
            sum.memory += memory(*pid).unwrap_or_default();
            sum.descriptors += descriptors(*pid);
        }
        sum
    }
}

/// CPU time of this process so far.
pub(crate) fn own_cpu() -> Duration {
    cpu(std::process::id()).unwrap_or_default()
}

fn cpu(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    ticks(&stat).map(|ticks| {
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Duration::from_millis(ticks * 1000 / per_second)
    })
}

/// Fields 14 to 17: utime, stime, cutime, cstime. The name in parentheses may contain anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields = rest.split_whitespace().skip(11).take(4);
    Some(fields.filter_map(|field| field.parse::<u64>().ok()).sum())
}

fn memory(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Since Linux 6.2 the directory's size is the number of descriptors; before that it is 0, and they are counted.
fn descriptors(pid: u32) -> u64 {
    let directory = format!("/proc/{pid}/fd");
    match fs::metadata(&directory) {
        Ok(metadata) if metadata.size() > 0 => metadata.size(),
        _ => fs::read_dir(&directory).map_or(0, |entries| entries.count() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_the_sum_of_four_fields_behind_the_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 200 3 4 11 22 33 44 20 0 3 0 100 1 2";
        assert_eq!(ticks(stat), Some(110));
        assert_eq!(ticks("no name"), None);
    }

    #[test]
    fn own_process_uses_something() {
        let usage = Processes::of(std::process::id()).usage();
        assert!(usage.memory > 100_000 && usage.descriptors > 2, "{usage:?}");
    }
}
