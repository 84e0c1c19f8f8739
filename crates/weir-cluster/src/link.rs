//! The connection to etcd and this member's lease.

use std::time::Duration;

use crate::record::line;

/// Pauses between attempts to reach etcd; each is twice the one before.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LAST: Duration = Duration::from_secs(5);
/// Pause before a lease is requested again after one that was never renewed.
const GRANT_PAUSE: Duration = Duration::from_secs(1);

/// The connection to etcd, as the status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// The mirror of the keys is complete.
    Connected,
    /// etcd does not answer: the group continues with what it has.
    Away {
        /// Since when, on the driver's clock.
        since: Duration,
        /// Why.
        error: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// etcd does not answer; the next attempt is at `retry`.
    Away { retry: Duration },
    /// The keys are being read.
    Listing,
    /// The mirror is complete since then, and a watch keeps it so.
    Watching { since: Duration },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    None,
    Granting,
    Held {
        id: i64,
        ttl: Duration,
        renew: Duration,
        is_renewing: bool,
    },
}

/// Shortest time to live that a lease is taken to have.
const TTL_MIN: Duration = Duration::from_secs(1);

/// The state of the connection to etcd and of this member's lease.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    pub(crate) lease: Lease,
    pub(crate) error: Option<String>,
    /// When the state became away or connected.
    pub(crate) since: Duration,
    /// Number of failures.
    pub(crate) failures: u64,
    pause: Duration,
    /// When the next lease may be requested.
    grant_at: Duration,
    grant_pause: Duration,
}

impl Connection {
    pub(crate) const fn new(now: Duration) -> Self {
        Self {
            state: State::Away { retry: now },
            lease: Lease::None,
            error: None,
            since: now,
            failures: 0,
            pause: PAUSE_FIRST,
            grant_at: now,
            grant_pause: Duration::ZERO,
        }
    }

    pub(crate) fn fail(&mut self, error: &str, now: Duration) {
        if matches!(self.state, State::Watching { .. }) {
            self.since = now;
        }
        self.recover(now);
        self.failures += 1;
        // etcd has written a part of it.
        self.error = Some(line(error));
        self.state = State::Away {
            retry: now + self.pause,
        };
        self.pause = (self.pause * 2).min(PAUSE_LAST);
        if let Lease::Held { is_renewing, .. } = &mut self.lease {
            *is_renewing = false;
        }
        if self.lease == Lease::Granting {
            self.lease = Lease::None;
        }
    }

    /// A store that answers, but ends each watch at once, is not asked more often than one that does not answer.
    fn recover(&mut self, now: Duration) {
        if self.synced_for(now).is_some_and(|it| it >= PAUSE_LAST) {
            self.pause = PAUSE_FIRST;
        }
    }

    /// The keys must be read again. Returns whether at once.
    pub(crate) fn compacted(&mut self, now: Duration) -> bool {
        self.recover(now);
        if self.pause > PAUSE_FIRST {
            self.fail("the revisions to watch are compacted", now);
            return false;
        }
        self.pause *= 2;
        self.state = State::Listing;
        true
    }

    pub(crate) fn connect(&mut self, now: Duration) {
        self.state = State::Watching { since: now };
        self.since = now;
        self.error = None;
        if let Lease::Held { renew, .. } = &mut self.lease {
            // Learns at once whether the lease has ended.
            *renew = now;
        }
    }

    pub(crate) fn synced_for(&self, now: Duration) -> Option<Duration> {
        match self.state {
            State::Watching { since } => Some(now.saturating_sub(since)),
            State::Away { .. } | State::Listing => None,
        }
    }

    /// Whether a lease was requested or is being renewed.
    pub(crate) const fn waits_for_lease(&self) -> bool {
        match self.lease {
            Lease::Granting => true,
            Lease::Held { is_renewing, .. } => is_renewing,
            Lease::None => false,
        }
    }

    /// The lease has ended.
    pub(crate) fn lose_lease(&mut self) {
        self.lease = Lease::None;
    }

    /// Whether a lease must be requested now.
    pub(crate) fn grants(&mut self, now: Duration) -> bool {
        if self.lease != Lease::None || now < self.grant_at {
            return false;
        }
        self.lease = Lease::Granting;
        self.grant_at = now + self.grant_pause;
        self.grant_pause = GRANT_PAUSE;
        true
    }

    pub(crate) fn renewed(&mut self, now: Duration) {
        if let Lease::Held { id, ttl, .. } = self.lease {
            self.grant_pause = Duration::ZERO;
            self.hold(id, ttl, now);
        }
    }

    pub(crate) const fn lease_id(&self) -> Option<i64> {
        match self.lease {
            Lease::Held { id, .. } => Some(id),
            Lease::None | Lease::Granting => None,
        }
    }

    /// An answer without a time to live would be renewed without a pause.
    pub(crate) fn hold(&mut self, id: i64, ttl: Duration, now: Duration) {
        let ttl = ttl.max(TTL_MIN);
        self.lease = Lease::Held {
            id,
            ttl,
            renew: now + ttl / 3,
            is_renewing: false,
        };
    }
}
