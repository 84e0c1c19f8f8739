//! Detects a stalled watch: the store has changes that the watch has not reported.
//!
//! A watch can stop without notice, for example if a proxy loses the connection, or if the etcd member that serves the
//! watch is partitioned from the others while requests reach another member.

use std::time::Duration;

/// Maximum time for the watch to report a change.
const MAX_WATCH_LAG: Duration = Duration::from_secs(10);
/// Time without a write after which a director writes a key again, so that the watch has a change to report.
pub(crate) const ROUTINE_WRITE_INTERVAL: Duration = Duration::from_secs(15);

/// Tracks the changes that the watch has yet to report.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// The newest revision of the group's keys that a transaction has returned.
    expected: i64,
    /// The newest revision that the watch has reported.
    reported: i64,
    /// Start of the wait for the expected changes, or time of the last progress since then; `None` = all changes are
    /// reported.
    since: Option<Duration>,
}

impl Lag {
    /// Records that a key of the group has this revision, which the watch must report. `reported` is the last revision
    /// that the watch has reported.
    pub(crate) fn expect(&mut self, revision: i64, reported: i64, now: Duration) {
        self.expected = self.expected.max(revision);
        if self.expected > reported {
            self.since.get_or_insert(now);
        }
    }

    /// Records that the watch has reported all changes up to this revision.
    pub(crate) fn record_reported(&mut self, revision: i64, now: Duration) {
        if self.expected <= revision {
            self.since = None;
        } else if revision > self.reported {
            self.since = Some(now);
        }
        self.reported = self.reported.max(revision);
    }

    /// Returns whether the watch must be replaced and the keys read again.
    pub(crate) fn is_too_long(&self, now: Duration) -> bool {
        self.since.is_some_and(|since| now >= since + MAX_WATCH_LAG)
    }
}

/// Returns the error message for a stalled watch.
pub(crate) fn error_message() -> String {
    let seconds = MAX_WATCH_LAG.as_secs();
    format!("the watch has not reported any changes for {seconds} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns the time after which the watch is replaced, in milliseconds.
    fn limit_ms(lag: &Lag) -> Option<u64> {
        (0..60_000).find(|millis| lag.is_too_long(ms(*millis)))
    }

    #[test]
    fn watch_must_report_a_change_within_ten_seconds() {
        let mut lag = Lag::default();
        lag.expect(5, 5, ms(0));
        assert_eq!(limit_ms(&lag), None, "already reported");
        lag.expect(6, 5, ms(1000));
        lag.expect(7, 5, ms(3000));
        assert_eq!(limit_ms(&lag), Some(11_000), "since the first one");
        lag.record_reported(7, ms(4000));
        assert_eq!(limit_ms(&lag), None);
        let message = "the watch has not reported any changes for 10 s";
        assert_eq!(error_message(), message);
    }

    #[test]
    fn progress_of_the_watch_restarts_the_wait() {
        let mut lag = Lag::default();
        lag.expect(9, 5, ms(0));
        lag.record_reported(7, ms(2000));
        assert_eq!(limit_ms(&lag), Some(12_000));
        for repeated in [7, 6] {
            lag.record_reported(repeated, ms(3000));
            assert_eq!(limit_ms(&lag), Some(12_000), "no progress");
        }
        lag.expect(8, 7, ms(5000));
        lag.record_reported(8, ms(6000));
        assert_eq!(limit_ms(&lag), Some(16_000), "9 is expected");
    }
}
