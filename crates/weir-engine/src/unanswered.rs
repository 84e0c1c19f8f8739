//! Records when SYNs were last sent to servers with which no client has completed a handshake yet.
//!
//! The data plane counts SYNs, but does not store times. The times are those at which a reader of the counters found
//! more SYNs than before, so they are late by up to one interval. After a restart of the daemon, the time of older SYNs
//! is unknown: they count as just sent.

use std::collections::HashMap;
use std::time::Duration;

/// A server of a service: the number and the generation of its row.
pub(crate) type Row = (u32, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Observation {
    /// Number of SYNs, and when it last grew.
    Unanswered(u64, Duration),
    /// A handshake is complete: nothing more is recorded.
    Completed,
}

/// Interval between observations. Reading the counters of 10 000 servers takes some milliseconds, and the times need
/// not be exact.
const INTERVAL: Duration = Duration::from_secs(10);

/// The servers to which SYNs were sent.
#[derive(Debug, Default)]
pub(crate) struct UnansweredSyns {
    servers: HashMap<Row, Observation>,
    next_observation: Duration,
}

impl UnansweredSyns {
    /// Returns whether an observation is due. If so, schedules the next one.
    pub(crate) fn is_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.next_observation;
        if is_due {
            self.next_observation = now + INTERVAL;
        }
        is_due
    }

    /// Returns whether a server's counters must be read, because no handshake with it is known to be complete.
    pub(crate) fn must_be_observed(&self, row: Row) -> bool {
        self.servers.get(&row) != Some(&Observation::Completed)
    }

    /// Applies a server's counters: SYNs, and completed handshakes.
    pub(crate) fn observe(&mut self, row: Row, syns: u64, completed: u64, now: Duration) {
        let observed = match completed {
            0 => Observation::Unanswered(syns, now),
            _ => Observation::Completed,
        };
        let is_unchanged = match self.servers.get(&row) {
            Some(Observation::Unanswered(before, _)) => completed == 0 && syns == *before,
            Some(Observation::Completed) => true,
            None => syns == 0,
        };
        if !is_unchanged {
            self.servers.insert(row, observed);
        }
    }

    /// Returns the time since a SYN was last sent to a server; `None` = unknown, or a handshake is complete. `syns` is
    /// the current number of SYNs.
    pub(crate) fn age(&self, row: Row, syns: u64, now: Duration) -> Option<Duration> {
        match self.servers.get(&row)? {
            Observation::Unanswered(before, last) if *before == syns => {
                Some(now.saturating_sub(*last))
            }
            Observation::Unanswered(..) => Some(Duration::ZERO),
            Observation::Completed => None,
        }
    }

    /// Removes servers that are no longer present.
    pub(crate) fn retain(&mut self, is_present: impl Fn(Row) -> bool) {
        self.servers.retain(|row, _| is_present(*row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row = (7, 1);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn observations_are_an_interval_apart() {
        let mut unanswered = UnansweredSyns::default();
        let due = (0..25).filter(|now| unanswered.is_due(seconds(*now)));
        assert_eq!(due.collect::<Vec<_>>(), [0, 10, 20]);
    }

    #[test]
    fn age_is_the_time_since_the_last_syn() {
        let mut unanswered = UnansweredSyns::default();
        unanswered.observe(ROW, 0, 0, seconds(1));
        assert_eq!(unanswered.age(ROW, 0, seconds(2)), None, "no SYN yet");
        unanswered.observe(ROW, 3, 0, seconds(10));
        unanswered.observe(ROW, 3, 0, seconds(20));
        assert_eq!(unanswered.age(ROW, 3, seconds(25)), Some(seconds(15)));
        assert_eq!(unanswered.age(ROW, 4, seconds(25)), Some(seconds(0)));
        unanswered.observe(ROW, 4, 0, seconds(26));
        assert_eq!(unanswered.age(ROW, 4, seconds(30)), Some(seconds(4)));
        assert_eq!(
            unanswered.age((7, 2), 4, seconds(30)),
            None,
            "a new server in the row"
        );
    }

    #[test]
    fn server_with_a_completed_handshake_is_not_observed() {
        let mut unanswered = UnansweredSyns::default();
        unanswered.observe(ROW, 3, 0, seconds(10));
        assert!(unanswered.must_be_observed(ROW));
        unanswered.observe(ROW, 4, 1, seconds(11));
        assert!(!unanswered.must_be_observed(ROW));
        assert_eq!(unanswered.age(ROW, 5, seconds(20)), None);
        unanswered.retain(|row| row != ROW);
        assert!(unanswered.must_be_observed(ROW));
    }
}
