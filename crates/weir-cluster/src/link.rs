//! Tracks the connection to etcd and this member's lease.

use std::time::Duration;

use crate::record::sanitize_line;

/// First pause between attempts to reach etcd. Each further pause is twice as long, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Pause between lease requests while leases expire before they are renewed.
const GRANT_PAUSE: Duration = Duration::from_secs(1);

/// The connection to etcd, for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// The mirror of the keys is complete.
    Connected,
    /// The mirror is incomplete: etcd is unavailable, or the keys are being read. The group continues with its current
    /// state.
    Disconnected {
        /// The end of the last connection, or the start of the director, on the driver's clock.
        since: Duration,
        /// The last error; empty if none has occurred yet.
        error: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Waiting for the next attempt, at the start or after a failure.
    Disconnected {
        /// Time of the next attempt.
        retry: Duration,
    },
    /// The keys are being read.
    Listing,
    /// The mirror is complete, and a watch updates it.
    Watching {
        /// Start of this state.
        since: Duration,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    None,
    /// A lease was requested.
    Granting,
    Held {
        id: i64,
        ttl: Duration,
        /// Time of the next renewal.
        renew: Duration,
        is_renewing: bool,
    },
}

/// Lower limit of the time to live of a lease.
const MIN_TTL: Duration = Duration::from_secs(1);

/// The state of the connection to etcd and of this member's lease.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    pub(crate) lease: Lease,
    pub(crate) error: Option<String>,
    /// Time of the last change between connected and disconnected.
    pub(crate) since: Duration,
    /// Number of times that etcd did not respond or reported an error.
    pub(crate) failures: u64,
    /// Pause before the next attempt to reach etcd.
    pause: Duration,
    /// Earliest time at which the next lease may be requested.
    grant_at: Duration,
    /// Pause after the next lease request before another one is allowed.
    grant_pause: Duration,
}

impl Connection {
    pub(crate) const fn new(now: Duration) -> Self {
        Self {
            state: State::Disconnected { retry: now },
            lease: Lease::None,
            error: None,
            since: now,
            failures: 0,
            pause: FIRST_PAUSE,
            grant_at: now,
            grant_pause: Duration::ZERO,
        }
    }

    /// Records a failure, and schedules the next attempt.
    pub(crate) fn fail(&mut self, error: &str, now: Duration) {
        if matches!(self.state, State::Watching { .. }) {
            self.since = now;
        }
        self.reset_pause(now);
        self.failures += 1;
        // The text can come from etcd.
        self.error = Some(sanitize_line(error));
        self.state = State::Disconnected {
            retry: now + self.pause,
        };
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        if let Lease::Held { is_renewing, .. } = &mut self.lease {
            *is_renewing = false;
        }
        if self.lease == Lease::Granting {
            self.lease = Lease::None;
        }
    }

    /// Resets the pause if the connection was stable. An etcd member that responds but ends each watch immediately
    /// therefore receives no more requests than one that does not respond.
    fn reset_pause(&mut self, now: Duration) {
        if self.synced_for(now).is_some_and(|it| it >= MAX_PAUSE) {
            self.pause = FIRST_PAUSE;
        }
    }

    /// Handles a watch that ended because of compaction. Returns true if the keys must be read immediately, or false if
    /// they are read after a pause.
    pub(crate) fn handle_compaction(&mut self, now: Duration) -> bool {
        self.reset_pause(now);
        if self.pause > FIRST_PAUSE {
            self.fail("etcd has compacted the revisions that the watch needs", now);
            return false;
        }
        self.pause *= 2;
        self.since = now;
        self.state = State::Listing;
        true
    }

    /// Records that the mirror is complete.
    pub(crate) fn connect(&mut self, now: Duration) {
        self.state = State::Watching { since: now };
        self.since = now;
        self.error = None;
        if let Lease::Held { renew, .. } = &mut self.lease {
            // Renew immediately, to determine whether the lease has expired.
            *renew = now;
        }
    }

    /// Returns how long the mirror has been complete; `None` if it is incomplete.
    pub(crate) fn synced_for(&self, now: Duration) -> Option<Duration> {
        match self.state {
            State::Watching { since } => Some(now.saturating_sub(since)),
            State::Disconnected { .. } | State::Listing => None,
        }
    }

    /// Returns how long the mirror has been incomplete; `None` if it is complete.
    pub(crate) fn disconnected_for(&self, now: Duration) -> Option<Duration> {
        match self.synced_for(now) {
            Some(_) => None,
            None => Some(now.saturating_sub(self.since)),
        }
    }

    /// Returns whether a lease was requested or is being renewed.
    pub(crate) const fn waits_for_lease(&self) -> bool {
        match self.lease {
            Lease::Granting => true,
            Lease::Held { is_renewing, .. } => is_renewing,
            Lease::None => false,
        }
    }

    /// Records that the lease has expired.
    pub(crate) fn lose_lease(&mut self) {
        self.lease = Lease::None;
    }

    /// Returns whether a lease must be requested now. If so, records the request.
    pub(crate) fn begin_grant(&mut self, now: Duration) -> bool {
        if self.lease != Lease::None || now < self.grant_at {
            return false;
        }
        self.lease = Lease::Granting;
        self.grant_at = now + self.grant_pause;
        self.grant_pause = GRANT_PAUSE;
        true
    }

    /// Records that the lease was renewed.
    pub(crate) fn record_renewal(&mut self, now: Duration) {
        if let Lease::Held { id, ttl, .. } = self.lease {
            self.grant_pause = Duration::ZERO;
            self.record_lease(id, ttl, now);
        }
    }

    pub(crate) const fn lease_id(&self) -> Option<i64> {
        match self.lease {
            Lease::Held { id, .. } => Some(id),
            Lease::None | Lease::Granting => None,
        }
    }

    /// Records a granted or renewed lease, and schedules the next renewal.
    pub(crate) fn record_lease(&mut self, id: i64, ttl: Duration, now: Duration) {
        // Without the lower limit, a lease with a time to live of 0 would be renewed continuously.
        let ttl = ttl.max(MIN_TTL);
        self.lease = Lease::Held {
            id,
            ttl,
            renew: now + ttl / 3,
            is_renewing: false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Fails at `now_ms`. Returns the pause before the next attempt, in milliseconds.
    fn fail(connection: &mut Connection, now_ms: u64) -> u128 {
        connection.fail("no response", ms(now_ms));
        match connection.state {
            State::Disconnected { retry } => (retry - ms(now_ms)).as_millis(),
            _ => panic!("{connection:?}"),
        }
    }

    #[test]
    fn pause_doubles_until_the_connection_is_stable() {
        let mut connection = Connection::new(ms(0));
        let pauses = [(); 8].map(|()| fail(&mut connection, 0));
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(connection.failures, 8);
        connection.connect(ms(10_000));
        assert_eq!(fail(&mut connection, 14_999), 5000, "not stable");
        connection.connect(ms(20_000));
        assert_eq!(fail(&mut connection, 25_000), 100);
    }

    #[test]
    fn keys_are_read_immediately_after_the_first_compaction_only() {
        let mut connection = Connection::new(ms(0));
        connection.connect(ms(0));
        assert!(connection.handle_compaction(ms(1000)));
        assert_eq!(connection.state, State::Listing);
        connection.connect(ms(1000));
        assert!(!connection.handle_compaction(ms(2000)));
        let retry = ms(2200);
        assert_eq!(connection.state, State::Disconnected { retry });
        connection.connect(ms(3000));
        assert!(connection.handle_compaction(ms(8000)), "stable");
    }

    #[test]
    fn durations_count_from_the_last_change() {
        let mut connection = Connection::new(ms(1000));
        let durations = |connection: &Connection, now_ms| {
            let synced_for = connection.synced_for(ms(now_ms));
            (synced_for, connection.disconnected_for(ms(now_ms)))
        };
        assert_eq!(durations(&connection, 1500), (None, Some(ms(500))));
        connection.connect(ms(2000));
        assert_eq!(durations(&connection, 2300), (Some(ms(300)), None));
        fail(&mut connection, 3000);
        fail(&mut connection, 4000);
        assert_eq!(durations(&connection, 4500), (None, Some(ms(1500))));
        connection.state = State::Listing;
        assert_eq!(durations(&connection, 4600), (None, Some(ms(1600))));
        connection.connect(ms(5000));
        assert!(connection.handle_compaction(ms(12_000)));
        assert_eq!(durations(&connection, 12_300), (None, Some(ms(300))));
    }

    #[test]
    fn lost_leases_are_requested_again_after_a_pause() {
        let mut connection = Connection::new(ms(0));
        assert!(connection.begin_grant(ms(0)));
        assert!(connection.waits_for_lease());
        assert!(!connection.begin_grant(ms(0)), "already requested");
        connection.lose_lease();
        assert!(!connection.waits_for_lease());
        assert!(connection.begin_grant(ms(0)), "the first retry");
        connection.lose_lease();
        assert!(!connection.begin_grant(ms(999)));
        assert!(connection.begin_grant(ms(1000)));
        // A renewal ends the pauses.
        connection.record_lease(7, ms(9000), ms(1000));
        connection.record_renewal(ms(5000));
        assert_eq!(connection.lease_id(), Some(7));
        let lease = Lease::Held {
            id: 7,
            ttl: ms(9000),
            renew: ms(8000),
            is_renewing: false,
        };
        assert_eq!(connection.lease, lease);
        for _ in 0..2 {
            connection.lose_lease();
            assert_eq!(connection.lease_id(), None);
            assert!(connection.begin_grant(ms(5000)));
        }
    }

    #[test]
    fn failure_ends_requests_but_keeps_the_lease() {
        let mut connection = Connection::new(ms(0));
        connection.begin_grant(ms(0));
        fail(&mut connection, 0);
        assert_eq!(connection.lease, Lease::None);
        connection.record_lease(7, ms(0), ms(0));
        let held_lease = |renew, is_renewing| Lease::Held {
            id: 7,
            ttl: ms(1000),
            renew,
            is_renewing,
        };
        let renew = ms(1000) / 3;
        assert_eq!(connection.lease, held_lease(renew, false), "at least 1 s");
        connection.lease = held_lease(renew, true);
        assert!(connection.waits_for_lease());
        fail(&mut connection, 500);
        assert_eq!(connection.lease, held_lease(renew, false));
        connection.connect(ms(600));
        assert_eq!(connection.lease, held_lease(ms(600), false), "renewed now");
    }
}
