//! Defines a check's timing and thresholds, and the effect of its results.

use std::time::Duration;

/// Intervals, timeout, and number of results that change the server's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timing {
    /// Interval between probes of a server that is up.
    pub interval: Duration,
    /// Interval between probes of a server that is up and failed its last probe; `None` = `interval`.
    pub interval_falling: Option<Duration>,
    /// Interval between probes of a server that is down; `None` = `interval`.
    pub interval_down: Option<Duration>,
    /// Interval between probes of a server that is down and passed its last probe; `None` = `interval`.
    pub interval_rising: Option<Duration>,
    /// Time limit for a whole probe: connect, TLS handshake, request and response.
    pub timeout: Duration,
    /// Consecutive successes required to mark a server up.
    pub rise: u32,
    /// Consecutive failures required to mark a server down.
    pub fall: u32,
}

impl Timing {
    /// Smallest and largest interval.
    pub const INTERVAL: (Duration, Duration) =
        (Duration::from_millis(50), Duration::from_secs(86_400));
    /// Smallest and largest timeout.
    pub const TIMEOUT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(300));
    /// Smallest and largest `rise` and `fall`.
    pub const COUNT: (u32, u32) = (1, 100);

    /// Returns the maximum time, without jitter, until a server that stops responding is marked down.
    pub fn detection_time(&self) -> Duration {
        let falling = self.interval_falling.unwrap_or(self.interval);
        self.interval + falling * self.fall.saturating_sub(1) + self.timeout * self.fall
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            interval_falling: None,
            interval_down: None,
            interval_rising: None,
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
        }
    }
}

named_enum! {
    /// A server's state before its first result.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Start {
        /// Used only while no other server is up; the first result sets the state immediately.
        #[default]
        Checking = "checking",
        /// Assumed up; `fall` failures mark it down.
        Up = "up",
        /// Assumed down; `rise` successes mark it up.
        Down = "down",
    }
}

named_enum! {
    /// What happens to a server that a check marks down.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum OnFailure {
        /// The server gets weight 0; existing flows continue.
        #[default]
        Quiesce = "quiesce",
        /// The pool's `on_remove` applies to the server's flows.
        Remove = "remove",
    }
}
