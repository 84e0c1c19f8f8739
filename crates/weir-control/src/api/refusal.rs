//! Requests and connections that were refused before anything was done for them: counted by reason, reported in the log
//! at a limited rate.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The log has at most one line in this time.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A token is needed, and none came.
    NoToken,
    /// Not a token that is known here.
    BadToken,
    /// The token's role does not permit it.
    Role,
    /// `Host` is none of this server's names.
    Host,
    /// `Origin` is another one.
    Origin,
    /// Too many connections.
    Connections,
    /// A TLS handshake that failed or took too long.
    Handshake,
}

impl Reason {
    /// Every reason, in the order of their counters.
    pub const ALL: [Self; 7] = [
        Self::NoToken,
        Self::BadToken,
        Self::Role,
        Self::Host,
        Self::Origin,
        Self::Connections,
        Self::Handshake,
    ];

    /// As a label of `/metrics`.
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

/// The counters of a daemon.
#[derive(Debug, Default)]
pub struct Refused {
    counts: [AtomicU64; Reason::ALL.len()],
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    last: Option<Instant>,
    suppressed: u64,
}

impl Log {
    /// How many lines were left out before this one; `None` = this one is left out as well.
    fn permits(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now < last + LOG_EVERY) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl Refused {
    /// Counts one. The request itself is not logged: it may hold a token.
    pub fn note(&self, reason: Reason, peer: SocketAddr) {
        // The counters say nothing about one another.
        self.counts[reason as usize].fetch_add(1, Ordering::Relaxed);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(suppressed) = log.permits(Instant::now()) {
            let reason = reason.name();
            tracing::warn!(%peer, reason, suppressed, "admin refused a client");
        }
    }

    /// Since the daemon started.
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
    fn refusals_are_logged_at_a_limited_rate_with_a_count() {
        let (mut log, now) = (Log::default(), Instant::now());
        assert_eq!(log.permits(now), Some(0));
        assert_eq!(log.permits(now), None);
        assert_eq!(log.permits(now + LOG_EVERY / 2), None);
        assert_eq!(log.permits(now + LOG_EVERY), Some(2));
    }

    #[test]
    fn each_refusal_reason_has_its_own_counter() {
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
    }
}
