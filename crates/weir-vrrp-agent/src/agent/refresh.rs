//! Decides when to read the links and addresses of this machine again.
//!
//! With thousands of addresses, reading them takes milliseconds, during which the agent sends no advertisement. If many
//! addresses change, the agent therefore spends at most a tenth of its time on reads, and first sends the
//! advertisements that are due.

use std::time::Duration;

/// Minimum time from the end of one read to the start of the next.
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// Ratio of the pause after a read to the duration of the read.
const PAUSE_FACTOR: u32 = 9;

/// When to read the network again, and the earliest time for a read that is not urgent.
#[derive(Debug, Default)]
pub(super) struct NetworkRefresh {
    due: Option<Duration>,
    /// End of the pause after the last read.
    pause_end: Duration,
}

impl NetworkRefresh {
    /// Plans a read because something has changed. If the change is urgent, the read is due immediately.
    pub(super) fn plan(&mut self, is_urgent: bool, now: Duration) {
        let due = match is_urgent {
            true => now,
            false => now.max(self.pause_end),
        };
        self.due = Some(self.due.map_or(due, |planned| planned.min(due)));
    }

    /// Returns when to read the network; `None` = it has not changed.
    pub(super) const fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Returns whether to read the network now.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// Records a read.
    pub(super) fn handle_read(&mut self, start: Duration, end: Duration) {
        self.due = None;
        self.pause_end = end + MIN_PAUSE.max(end.saturating_sub(start) * PAUSE_FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of reads if `changes` addresses change at intervals of 10 µs and each read takes `duration`.
    fn count_reads(changes: u32, duration: Duration) -> usize {
        let mut refresh = NetworkRefresh::default();
        let mut now = Duration::from_secs(100);
        let mut reads = 0;
        for _ in 0..changes {
            now += Duration::from_micros(10);
            refresh.plan(false, now);
            if refresh.is_due(now) {
                let start = now;
                now += duration;
                refresh.handle_read(start, now);
                reads += 1;
            }
        }
        reads
    }

    #[test]
    fn many_changes_cause_few_reads() {
        // 5000 changes take 50 ms. Without the pause, each of them would cause a read.
        assert_eq!(count_reads(5000, Duration::from_micros(50)), 5);
        assert_eq!(count_reads(5000, Duration::from_millis(20)), 1);
        assert_eq!(count_reads(50_000, Duration::from_millis(5)), 12);
    }

    #[test]
    fn first_and_urgent_changes_are_read_immediately() {
        let time = Duration::from_millis;
        let mut refresh = NetworkRefresh::default();
        assert_eq!(refresh.due(), None);
        refresh.plan(false, time(1000));
        assert!(refresh.is_due(time(1000)));
        refresh.handle_read(time(1000), time(1020));
        assert!(!refresh.is_due(time(5000)));
        refresh.plan(false, time(1030));
        assert_eq!(refresh.due(), Some(time(1200)));
        refresh.plan(true, time(1040));
        assert_eq!(refresh.due(), Some(time(1040)));
        refresh.plan(false, time(1050));
        assert_eq!(refresh.due(), Some(time(1040)));
    }
}
