//! Provides the metrics of the daemon's process.

use super::text::{Seconds, Text};

/// The memory use and the start time of the daemon's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Start time, in milliseconds since 1970.
    pub started_ms: u64,
}

impl Process {
    /// Reads the values of the calling process; they are 0 if `/proc` cannot be read.
    pub fn current() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Self {
            resident_bytes: kib.unwrap_or(0) * 1024,
            started_ms: started_ms().unwrap_or(0),
        }
    }
}

/// Returns the start time of this process. Field 22 of proc_pid_stat(5) is the start time in clock ticks since boot,
/// and /proc/stat contains the boot time in seconds.
fn started_ms() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is a name in parentheses, which can contain spaces.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: u64 = fields.split(' ').nth(19)?.parse().ok()?;
    let system = std::fs::read_to_string("/proc/stat").ok()?;
    let boot = system.lines().find_map(|line| line.strip_prefix("btime "));
    let boot: u64 = boot?.trim().parse().ok()?;
    Some(boot * 1_000 + ticks * 1_000 / rustix::param::clock_ticks_per_second())
}

/// Returns the uptime of this process, in seconds; 0 if `/proc` cannot be read.
pub(crate) fn uptime_s(now: std::time::SystemTime) -> u64 {
    let now = now.duration_since(std::time::UNIX_EPOCH);
    let started = started_ms().map(std::time::Duration::from_millis);
    match (now, started) {
        (Ok(now), Some(started)) => now.saturating_sub(started).as_secs(),
        _ => 0,
    }
}

pub(super) fn write_process(text: &mut Text, process: Process) {
    let name = "weir_build_info";
    text.write_family(
        name,
        "gauge",
        "Always 1; the `version` label is the version of the program.",
    );
    text.write_sample(name, &[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.write_single(
        "weir_start_time_seconds",
        "gauge",
        "Start time of the daemon's process, since the Unix epoch.",
        Seconds(process.started_ms * 1_000),
    );
    text.write_single(
        "weir_process_resident_bytes",
        "gauge",
        "Resident memory of the daemon's process.",
        process.resident_bytes,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn start_of_this_process_is_in_the_past() {
        let process = Process::current();
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
        assert!(process.started_ms > now - 24 * 3_600_000);
        assert!(process.started_ms <= now + 1_000);
        assert!(process.resident_bytes > 0);
    }
}
