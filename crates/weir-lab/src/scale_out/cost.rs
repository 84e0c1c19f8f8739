//! Measures the CPU time that each director's BPF programs use per client packet.
//!
//! The kernel counts the time that it spends in a program, including the programs that this program tail-calls. The
//! time spent in the driver, on the socket buffer, and on sending is not included. nftables' rules are not programs, so
//! the kernel does not count their time.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use aya::programs::{ProgramFd, ProgramInfo};
use aya::sys::{Stats, enable_stats};
use serde::Serialize;

use crate::error::{LabError, Result};

/// Minimum number of packets for a meaningful mean.
const MIN_PACKETS: u64 = 100;
/// Prefix of the directories with programs in Weir's pin directory.
const PROGRAM_DIRECTORY_PREFIX: &str = "prog-";

/// Enables the kernel's run-time statistics of BPF programs until the descriptor is closed.
///
/// # Errors
/// Fails without root.
pub(super) fn enable_statistics() -> Result<OwnedFd> {
    enable_stats(Stats::RunTime)
        .map_err(|error| LabError::file("run-time statistics of BPF programs")(error.io_error))
}

/// The CPU time of a director's programs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cost {
    /// The director's name.
    director: String,
    /// The director's program: `tested` or `second`.
    build: &'static str,
    /// Number of packets from clients.
    packets: u64,
    /// Mean CPU time per packet, in nanoseconds.
    ns_per_packet: u64,
    #[serde(skip)]
    time_ns: u64,
}

impl Cost {
    /// Returns `None` if the number of packets is too small for a mean.
    pub(super) fn new(
        director: &str,
        build: &'static str,
        packets: u64,
        time_ns: u64,
    ) -> Option<Self> {
        (packets >= MIN_PACKETS).then(|| Self {
            director: director.to_owned(),
            build,
            packets,
            ns_per_packet: time_ns / packets,
            time_ns,
        })
    }

    /// Returns the director's name and the cost.
    pub(super) fn text(&self) -> String {
        format!("{} {}", self.director, self.ns_per_packet)
    }
}

/// Adds up the costs of several runs for each director.
pub(super) fn sums<'a>(costs: impl IntoIterator<Item = &'a Cost>) -> Vec<Cost> {
    let mut sums: BTreeMap<&str, (&'static str, u64, u64)> = BTreeMap::new();
    for cost in costs {
        let (_, packets, time_ns) = sums
            .entry(&cost.director)
            .or_insert((cost.build, 0_u64, 0_u64));
        *packets += cost.packets;
        *time_ns += cost.time_ns;
    }
    let sums = sums.into_iter();
    sums.filter_map(|(director, (build, packets, time_ns))| {
        Cost::new(director, build, packets, time_ns)
    })
    .collect()
}

/// Returns the mean CPU time per packet of all directors, in nanoseconds; `None` = unknown.
pub(super) fn mean_ns(costs: &[Cost]) -> Option<u64> {
    let packets: u64 = costs.iter().map(|it| it.packets).sum();
    let time_ns: u64 = costs.iter().map(|it| it.time_ns).sum();
    time_ns.checked_div(packets)
}

/// Measures the CPU time of a director's programs since [`Self::start`]. The default value measures the time since the
/// director was started.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// The programs by id. They are open, so that the time of programs that an upgrade replaces is included.
    programs: BTreeMap<u32, ProgramFd>,
    time_ns: u64,
    packets: u64,
}

impl Meter {
    /// Starts to measure. `packets` is the director's current number of packets from clients.
    pub(super) fn start(pins: &Path, packets: u64) -> Self {
        let mut meter = Self {
            packets,
            ..Self::default()
        };
        meter.open_programs(pins);
        meter.time_ns = meter.total_ns();
        meter
    }

    /// Returns the number of packets, and the CPU time in nanoseconds.
    pub(super) fn finish(mut self, pins: &Path, packets: u64) -> (u64, u64) {
        self.open_programs(pins);
        let time_ns = self.total_ns().saturating_sub(self.time_ns);
        (packets.saturating_sub(self.packets), time_ns)
    }

    /// Opens the pinned programs that are not open yet. Skips other objects.
    fn open_programs(&mut self, pins: &Path) {
        for directory in entries(pins) {
            if !directory.0.starts_with(PROGRAM_DIRECTORY_PREFIX) {
                continue;
            }
            for (name, path) in entries(&pins.join(&directory.0)) {
                // The kernel also returns information about a map, whose bytes are not a program's name.
                if let Ok(info) = ProgramInfo::from_pin(&path)
                    && info
                        .name_as_str()
                        .is_some_and(|it| !it.is_empty() && name.starts_with(it))
                    && let Ok(program) = info.fd()
                {
                    self.programs.insert(info.id(), program);
                }
            }
        }
    }

    fn total_ns(&self) -> u64 {
        self.programs.values().map(run_time_ns).sum()
    }
}

/// Returns the names and paths of a directory's entries; none if the directory cannot be read.
fn entries(directory: &Path) -> impl Iterator<Item = (String, std::path::PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|it| (it.file_name().to_string_lossy().into_owned(), it.path()))
}

/// Returns the total run time of a program since it was loaded, while the statistics were enabled.
fn run_time_ns(program: &ProgramFd) -> u64 {
    let number = program.as_fd().as_raw_fd();
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
    parse_run_time(&text.unwrap_or_default())
}

/// Reads `run_time_ns` from `/proc/PID/fdinfo/FD` of a program (`bpf_prog_show_fdinfo` in kernel/bpf/syscall.c).
fn parse_run_time(text: &str) -> u64 {
    let mut values = text
        .lines()
        .filter_map(|it| it.strip_prefix("run_time_ns:"));
    let value = values.next().and_then(|it| it.trim().parse().ok());
    value.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(director: &str, packets: u64, time_ns: u64) -> Cost {
        Cost::new(director, "tested", packets, time_ns).expect("enough packets")
    }

    #[test]
    fn mean_is_weighted_by_packets() {
        let runs = [
            cost("d1", 100, 10_000),
            cost("d2", 1000, 700_000),
            cost("d1", 300, 70_000),
        ];
        let sums = sums(&runs);
        let texts: Vec<String> = sums.iter().map(Cost::text).collect();
        assert_eq!(texts, ["d1 200", "d2 700"]);
        assert_eq!(mean_ns(&sums), Some(780_000 / 1400));
        assert_eq!(mean_ns(&[]), None);
    }

    #[test]
    fn few_packets_have_no_mean() {
        assert!(Cost::new("d1", "tested", 99, 1_000_000).is_none());
    }

    #[test]
    fn run_time_is_read_from_fdinfo() {
        let text = "pos:\t0\nprog_type:\t6\nrun_time_ns:\t123456\nrun_cnt:\t7\n";
        assert_eq!(parse_run_time(text), 123_456);
        assert_eq!(parse_run_time("pos:\t0\nmap_type:\t2\n"), 0);
    }
}
