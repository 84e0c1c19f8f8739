//! Stores the results of the `--fail` test: failed requests and their times.

use std::time::{Duration, Instant};

use crate::peer::ab;
use crate::report::Row;

/// A run of `ab` and its start time.
pub(super) struct LoadRun {
    pub(super) started_at: Instant,
    pub(super) outcome: ab::Outcome,
    pub(super) requests: u32,
}

/// A phase: consecutive runs of `ab`.
#[derive(Default)]
pub(super) struct Phase(pub(super) Vec<LoadRun>);

impl Phase {
    pub(super) fn failed_requests(&self) -> u64 {
        self.0.iter().map(|run| run.outcome.failed).sum()
    }

    /// Returns the time from `start` to the start of the last run with a failure. The end of the run is less exact,
    /// because one slow request can delay it.
    pub(super) fn last_failure(&self, start: Instant) -> Option<Duration> {
        let mut failing = self.0.iter().rev().filter(|run| run.outcome.failed > 0);
        failing
            .next()
            .map(|run| run.started_at.saturating_duration_since(start))
    }

    /// Returns the number of failed requests in runs that started more than `limit` after `start`.
    pub(super) fn failed_after(&self, start: Instant, limit: Duration) -> u64 {
        let late = self.0.iter().filter(|run| run.started_at > start + limit);
        late.map(|run| run.outcome.failed).sum()
    }

    pub(super) fn row(&self, name: String) -> Row {
        let seconds: f64 = self.0.iter().map(|run| run.outcome.seconds).sum();
        let requests: f64 = self.0.iter().map(|run| f64::from(run.requests)).sum();
        let kbytes = self
            .0
            .iter()
            .map(|run| run.outcome.kbytes_per_second * run.outcome.seconds);
        Row {
            name,
            requests_per_second: requests / seconds.max(1e-9),
            kbytes_per_second: kbytes.sum::<f64>() / seconds.max(1e-9),
            failed: self.failed_requests(),
            seconds,
            ratio: None,
            timing: None,
            shares: None,
        }
    }
}

/// The phases and times of the test.
pub(super) struct Phases {
    pub(super) before: Phase,
    /// From the stop until a few seconds after Weir reports the server as down.
    pub(super) stopped: Phase,
    /// From the restart until a few seconds after Weir reports the server as up.
    pub(super) restarted: Phase,
    pub(super) stopped_at: Instant,
    /// Time from the stop until Weir reports the server as down.
    pub(super) down_after: Duration,
    /// Time from the restart until Weir reports the server as up.
    pub(super) up_after: Duration,
    /// Number of connections to the server after its restart.
    pub(super) connections_after_restart: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_failures_are_distinguished_from_allowed_failures() {
        let start = Instant::now();
        let run = |started_ms: u64, failed: u64| LoadRun {
            started_at: start + Duration::from_millis(started_ms),
            outcome: ab::Outcome {
                failed,
                seconds: 0.1,
                ..ab::Outcome::default()
            },
            requests: 50,
        };
        let phase = Phase(vec![run(0, 20), run(900, 3), run(3000, 0)]);
        assert_eq!(phase.failed_requests(), 23);
        assert_eq!(phase.last_failure(start), Some(Duration::from_millis(900)));
        assert_eq!(phase.failed_after(start, Duration::from_secs(1)), 0);
        assert_eq!(phase.failed_after(start, Duration::from_millis(500)), 3);
        assert_eq!(phase.row("x".into()).requests_per_second.round(), 500.0);
    }
}
