//! Changes an override: records it in the overrides file, applies it to both planes, then copies it to `state.json`.
//!
//! The overrides file is replaced atomically. If the daemon is killed at any point, the next daemon applies the change
//! to both planes or to neither. A change that cannot be recorded is not applied.

use std::fmt;
use std::time::Duration;

use crate::overrides::{Override, Overrides};
use crate::record::OverrideRecord;
use crate::states::ServerStates;

/// Writes the files and applies weights to the planes.
pub trait Driver {
    /// An error from a file or a plane.
    type Error;

    /// Replaces the overrides file atomically.
    ///
    /// # Errors
    /// Fails if the file cannot be written. The file is then unchanged.
    fn record(&mut self, overrides: &Overrides) -> Result<(), Self::Error>;

    /// Applies a pool's weights to both planes.
    ///
    /// # Errors
    /// Fails if a plane rejects a weight; some weights may already have changed.
    fn apply(&mut self, pool: &str, states: &mut ServerStates) -> Result<(), Self::Error>;

    /// Adds the override to the copy that Weir 0.1.0 reads. Failures are ignored, because the next daemon rewrites the
    /// whole copy when it starts.
    fn copy(&mut self, record: &OverrideRecord);
}

/// Why an override could not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideError<E> {
    /// The override was not recorded; nothing has changed.
    Record(E),
    /// A plane did not apply the override; the previous override is active and recorded.
    Apply(E),
    /// A plane did not apply the override, and the previous override could not be recorded: the new override is
    /// recorded, and the next daemon applies it.
    RollbackFailed {
        /// The error from the plane.
        cause: E,
        /// Why the previous override could not be recorded.
        rollback: E,
    },
}

impl<E: fmt::Display> fmt::Display for OverrideError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(error) | Self::Apply(error) => error.fmt(f),
            Self::RollbackFailed { cause, rollback } => write!(
                f,
                "{cause}; the change is recorded and could not be undone ({rollback}): the daemon will apply it when \
                 it next starts"
            ),
        }
    }
}

impl<E: std::error::Error> std::error::Error for OverrideError<E> {}

impl ServerStates {
    /// Sets or removes a server's override in both planes. Returns whether the override changed. `now` is recorded as
    /// the time at which the server entered its state.
    ///
    /// # Errors
    /// Fails if the driver fails; the previous override stays active.
    pub fn change_override<D: Driver>(
        &mut self,
        (pool, server): (&str, &str),
        new_override: Option<Override>,
        now: Duration,
        driver: &mut D,
    ) -> Result<bool, OverrideError<D::Error>> {
        let before = self.checkpoint(pool, server);
        if before.active_override == new_override {
            return Ok(false);
        }
        self.set_override(pool, server, new_override);
        if let Err(error) = driver.record(self.overrides()) {
            self.revert(pool, server, &before);
            return Err(OverrideError::Record(error));
        }
        self.set_since(pool, server, now);
        let hides_checks = |active: Option<Override>| active.is_some_and(Override::hides_checks);
        if hides_checks(before.active_override) || hides_checks(new_override) {
            self.set_withdrawal_change(pool, server, Some(now));
        }
        if let Err(cause) = driver.apply(pool, self) {
            self.revert(pool, server, &before);
            let record_result = driver.record(self.overrides());
            // If this also fails, the pool's next event applies the previous weights.
            let _ = driver.apply(pool, self);
            return Err(match record_result {
                Ok(()) => OverrideError::Apply(cause),
                Err(rollback) => OverrideError::RollbackFailed { cause, rollback },
            });
        }
        driver.copy(&(pool.to_owned(), server.to_owned(), new_override));
        Ok(true)
    }
}
