//! Detects other load on the machine at the start of a run, because such load affects the results.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

/// Share of busy CPU time above which the machine counts as busy.
const BUSY_SHARE: f64 = 0.25;
/// How long to measure CPU usage if the load average is high.
const MEASUREMENT_TIME: Duration = Duration::from_millis(500);

/// Checks the machine before a run. Returns a note for the report if the machine is busy.
pub(crate) fn note() -> Option<String> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let load = load_average(&std::fs::read_to_string("/proc/loadavg").ok()?)?;
    if !is_high(load, processors) {
        return None;
    }
    // Measure the current usage too, because the load average includes work that has just ended, such as a build.
    let times = || {
        std::fs::read_to_string("/proc/stat")
            .ok()
            .and_then(|text| busy_and_total(&text))
    };
    let before = times();
    thread::sleep(MEASUREMENT_TIME);
    note_for(load, processors, share(before, times()))
}

/// Returns the load average over the last minute.
fn load_average(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

fn is_high(load: f64, processors: usize) -> bool {
    load > processors as f64 / 2.0
}

/// Returns the busy and the total CPU ticks since boot.
fn busy_and_total(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
    // proc_stat(5): the fourth and fifth values are idle time; the first two include the ninth and tenth.
    let total: u64 = ticks.iter().take(8).sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    Some((total.saturating_sub(idle), total))
}

/// Returns the busy share of the time between two readings; `None` = a reading failed, or no time has passed.
fn share(before: Option<(u64, u64)>, after: Option<(u64, u64)>) -> Option<f64> {
    let ((busy, total), (busy_after, total_after)) = (before?, after?);
    let total = total_after.checked_sub(total).filter(|total| *total > 0)?;
    Some(busy_after.saturating_sub(busy) as f64 / total as f64)
}

fn note_for(load: f64, processors: usize, share: Option<f64>) -> Option<String> {
    if !is_high(load, processors) || share.is_some_and(|share| share <= BUSY_SHARE) {
        return None;
    }
    let plural = if processors == 1 { "" } else { "s" };
    Some(format!(
        "The machine was busy with other work when this run began: load average {load:.1} with {processors} \
         processor{plural}. Throughput may be lower and latency higher than on an idle machine, and results may vary \
         more between runs."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_above_half_of_the_cpus_is_reported() {
        assert_eq!(note_for(0.9, 2, Some(1.0)), None);
        assert_eq!(note_for(1.1, 4, None), None);
        let note = note_for(1.1, 2, Some(0.6)).expect("busy");
        assert!(
            note.contains("load average 1.1 with 2 processors"),
            "{note}"
        );
        assert!(note_for(1.1, 2, None).is_some());
    }

    #[test]
    fn high_load_without_cpu_usage_is_not_reported() {
        assert_eq!(note_for(2.4, 2, Some(0.1)), None);
    }

    #[test]
    fn kernel_files_are_parsed() {
        assert_eq!(load_average("2.30 0.90 0.35 2/312 5998\n"), Some(2.3));
        assert_eq!(load_average(""), None);
        let before = busy_and_total("cpu  100 0 50 800 50 0 0 0 30 0\ncpu0 1 1 1 1\n");
        assert_eq!(before, Some((150, 1000)));
        let after = busy_and_total("cpu  130 0 60 850 60 0 0 0 40 0\n");
        assert_eq!(share(before, after), Some(0.4));
        assert_eq!(share(before, before), None);
        assert_eq!(busy_and_total("intr 1\n"), None);
    }
}
