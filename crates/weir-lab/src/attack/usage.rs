//! Measures the total resources that a proxy's processes and their children use, from `/proc` (proc(5)).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::process::Pid;

use crate::process;

/// The resources that processes use at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// User and system time so far, including that of exited children.
    pub(crate) cpu: Duration,
    /// Resident memory in bytes.
    pub(crate) memory: u64,
    pub(crate) descriptors: u64,
}

/// The process `root` and its descendants. The list is not updated later, because that would read all of `/proc`.
pub(crate) struct Processes {
    pids: Vec<u32>,
}

impl Processes {
    pub(crate) fn read(root: u32) -> Self {
        let mut pids = vec![root];
        let mut index = 0;
        while let Some(&parent) = pids.get(index) {
            let children = process::children(parent).into_iter();
            pids.extend(children.filter_map(|pid| u32::try_from(Pid::as_raw(Some(pid))).ok()));
            index += 1;
        }
        Self { pids }
    }

    /// Returns the privileges of the processes, one line per process.
    pub(crate) fn privileges(&self) -> Vec<String> {
        self.pids
            .iter()
            .filter_map(|pid| privileges(*pid))
            .collect()
    }

    /// Returns the resources that the processes use now. The CPU time of an exited process is included in its parent's.
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

/// Returns the privileges of a process, from `/proc/PID/status`.
fn privileges(pid: u32) -> Option<String> {
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let words = command.split(|byte| *byte == 0).skip(1);
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    let role: Vec<String> = words
        .filter(|word| ROLE_ARGUMENTS.contains(&word.as_str()))
        .collect();
    let name = std::iter::once(name.into_owned()).chain(role);
    let name = name.collect::<Vec<_>>().join(" ");
    Some(format!("{pid} {name}: {}", fields(&status)))
}

/// Arguments that identify the role of a process of Weir.
const ROLE_ARGUMENTS: &[&str] = &["run", "helper", "--daemon", "--engine"];
/// Fields of `/proc/PID/status`.
const PRIVILEGE_FIELDS: &[&str] = &["Uid", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"];

/// Returns the privilege fields on one line. Of the four user IDs, the line contains only the effective one.
fn fields(status: &str) -> String {
    let value = |name: &&str| {
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let mut values = line.split_whitespace();
        let value = match *name {
            "Uid" => values.nth(1),
            _ => values.next(),
        };
        Some(format!("{name} {}", value?))
    };
    let fields: Vec<String> = PRIVILEGE_FIELDS.iter().filter_map(value).collect();
    fields.join(", ")
}

/// Returns the CPU time of this process so far.
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

/// Returns the sum of fields 14 to 17: utime, stime, cutime, cstime. The name in parentheses may contain any character.
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

/// Returns the number of descriptors. Since Linux 6.2, it is the size of the directory; on older kernels, the function
/// counts the entries.
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
    fn cpu_time_is_the_sum_of_four_fields_after_the_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 200 3 4 11 22 33 44 20 0 3 0 100 1 2";
        assert_eq!(ticks(stat), Some(110));
        assert_eq!(ticks("no name"), None);
    }

    #[test]
    fn privileges_are_read_from_the_status_file() {
        let status = "Name:\tweir\nUid:\t0\t991\t991\t991\nCapBnd:\t0000000000000000\nCapEff:\t00000000a80425fb\n\
            NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(
            fields(status),
            "Uid 991, CapEff 00000000a80425fb, CapBnd 0000000000000000, NoNewPrivs 1, Seccomp 2"
        );
        let privileges = Processes::read(std::process::id()).privileges();
        let uid = rustix::process::geteuid().as_raw();
        assert!(
            privileges[0].contains(&format!("Uid {uid}, CapEff ")),
            "{privileges:?}"
        );
    }

    #[test]
    fn usage_of_this_process_is_not_zero() {
        let usage = Processes::read(std::process::id()).usage();
        assert!(usage.memory > 100_000 && usage.descriptors > 2, "{usage:?}");
    }
}
