//! The connection to etcd and this member's lease.

use std::time::Duration;

/// Pauses between attempts to reach etcd; each is twice the one before.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LAST: Duration = Duration::from_secs(5);

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

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    pub(crate) lease: Lease,
    pub(crate) error: Option<String>,
    /// When the state became away or connected.
    pub(crate) since: Duration,
    pause: Duration,
}

impl Connection {
    pub(crate) const fn new(now: Duration) -> Self {
        Self {
            state: State::Away { retry: now },
            lease: Lease::None,
            error: None,
            since: now,
            pause: PAUSE_FIRST,
        }
    }

    pub(crate) fn fail(&mut self, error: String, now: Duration) {
        if matches!(self.state, State::Watching { .. }) {
            self.since = now;
        }
        self.error = Some(error);
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

    pub(crate) fn connect(&mut self, now: Duration) {
        self.state = State::Watching { since: now };
        self.since = now;
        self.error = None;
        self.pause = PAUSE_FIRST;
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
