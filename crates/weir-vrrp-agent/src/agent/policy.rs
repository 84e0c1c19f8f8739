//! Requests the configured virtual routers from the helper, and repeats the request until it succeeds.
//!
//! A helper that has replaced another one does not know any virtual router if it fails to read them, and then rejects
//! all requests for addresses. The delay between attempts increases, because each attempt makes the helper read the
//! whole configuration.

use std::time::Duration;

use weir_helper::Request;

use super::{Agent, Error, Purpose};

/// Delay before the first retry. It doubles with each further failure, up to [`MAX_RETRY_DELAY`].
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// When to request the virtual routers again.
#[derive(Debug, Default)]
pub(super) struct PolicyRetry {
    /// Why the last request failed; `None` = it succeeded.
    failure: Option<String>,
    /// Delay before the next retry.
    delay: Duration,
    /// Time of the next retry; `None` = none is due.
    retry_at: Option<Duration>,
}

impl PolicyRetry {
    /// Plans a retry. Logs the reason if it is new.
    pub(super) fn handle_failure(&mut self, reason: String, now: Duration) {
        if self.failure.as_ref() != Some(&reason) {
            tracing::error!(
                reason,
                "failed to get the virtual routers; they are unchanged; trying again"
            );
        }
        self.failure = Some(reason);
        self.delay = (self.delay * 2).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        self.retry_at = Some(now + self.delay);
    }

    /// Ends the retries.
    pub(super) fn handle_success(&mut self) {
        *self = Self::default();
    }

    /// Returns whether to repeat the request. Returns true once per failure.
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        self.retry_at.take_if(|time| *time <= now).is_some()
    }
}

impl Agent {
    /// Requests the configured virtual routers.
    pub(super) fn request_policy(&mut self) -> Result<(), Error> {
        self.request(Request::Policy, Purpose::Policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_request_is_repeated_at_increasing_intervals_until_it_succeeds() {
        let mut retry = PolicyRetry::default();
        let mut now = Duration::from_secs(100);
        assert!(!retry.is_due(now));
        for delay in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
            retry.handle_failure("invalid file".to_owned(), now);
            now += delay;
            assert!(!retry.is_due(now - Duration::from_millis(1)), "{delay:?}");
            assert!(retry.is_due(now), "{delay:?}");
            assert!(!retry.is_due(now), "the request is pending");
        }
        retry.handle_failure("invalid file".to_owned(), now);
        retry.handle_success();
        assert!(!retry.is_due(now + MAX_RETRY_DELAY));
        retry.handle_failure("invalid file".to_owned(), now);
        assert!(retry.is_due(now + MIN_RETRY_DELAY));
    }
}
