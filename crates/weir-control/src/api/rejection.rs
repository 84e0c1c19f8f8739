//! Counts requests and connections that are rejected before processing, by reason. Logs them at a limited rate.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The minimum interval between log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The reason for a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A required token is missing.
    NoToken,
    /// The token is unknown.
    BadToken,
    /// The token's role is not sufficient.
    Role,
    /// `Host` is missing, invalid or not accepted.
    Host,
    /// `Origin` does not match `Host`.
    Origin,
    /// Too many connections.
    Connections,
    /// A TLS handshake failed or took too long, or a reload has enabled TLS and the connection does not use it.
    Handshake,
}

impl Reason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 7] = [
        Self::NoToken,
        Self::BadToken,
        Self::Role,
        Self::Host,
        Self::Origin,
        Self::Connections,
        Self::Handshake,
    ];

    /// Returns the label in `/metrics`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::BadToken => "bad_token",
            Self::Role => "role",
            Self::Host => "host",
            Self::Origin => "origin",
            Self::Connections => "connections",
            Self::Handshake => "handshake",
        }
    }
}

/// The rejection counters of all the daemon's listeners.
#[derive(Debug, Default)]
pub struct RejectionCounters {
    counts: [AtomicU64; Reason::ALL.len()],
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    last: Option<Instant>,
    suppressed: u64,
}

impl Log {
    /// Returns the number of lines suppressed since the last logged line; `None` = the caller must suppress this line.
    fn try_begin_line(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now < last + LOG_INTERVAL) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl RejectionCounters {
    /// Counts and logs a rejection. The request itself is not logged, because it may contain a token.
    pub fn record(&self, reason: Reason, peer: SocketAddr) {
        // Relaxed: the counters are independent.
        self.counts[reason as usize].fetch_add(1, Ordering::Relaxed);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(suppressed) = log.try_begin_line(Instant::now()) {
            let reason = reason.name();
            tracing::warn!(%peer, reason, suppressed, "rejected a client of the admin listener");
        }
    }

    /// Returns the number of rejections by reason, since the daemon started.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = |reason: Reason| self.counts[reason as usize].load(Ordering::Relaxed);
        Reason::ALL
            .into_iter()
            .map(move |reason| (reason.name(), count(reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_are_logged_at_a_limited_rate_with_a_count() {
        let (mut log, now) = (Log::default(), Instant::now());
        assert_eq!(log.try_begin_line(now), Some(0));
        assert_eq!(log.try_begin_line(now), None);
        assert_eq!(log.try_begin_line(now + LOG_INTERVAL / 2), None);
        assert_eq!(log.try_begin_line(now + LOG_INTERVAL), Some(2));
    }

    #[test]
    fn each_rejection_reason_has_its_own_counter() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
