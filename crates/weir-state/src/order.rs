//! The sequence of an operator's order: recorded in the owner file, then applied to both planes, then copied.
//!
//! The owner file is replaced in one step. So a daemon that is killed at any point restarts with all of an order or
//! with nothing of it, in both planes; and an order that cannot be recorded changes neither.

use std::fmt;
use std::time::Duration;

use crate::overrides::{Override, Overrides};
use crate::record::OverrideRecord;
use crate::states::ServerStates;

/// What an order needs from outside: the files, and the planes.
pub trait Driver {
    /// Why a file or a plane failed.
    type Error;

    /// Replaces the owner file in one step.
    ///
    /// # Errors
    /// It cannot be written; it is unchanged.
    fn record(&mut self, overrides: &Overrides) -> Result<(), Self::Error>;

    /// Applies a pool's weights to both planes.
    ///
    /// # Errors
    /// A plane failed; some of its weights may be new.
    fn apply(&mut self, pool: &str, states: &mut ServerStates) -> Result<(), Self::Error>;

    /// Adds the order to the copy that 0.1.0 reads. A failure does not fail the order: the copy is written whole when
    /// the next daemon starts.
    fn copy(&mut self, record: &OverrideRecord);
}

/// Why an order failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderError<E> {
    /// It was not recorded; nothing has changed.
    Record(E),
    /// A plane did not apply it; the former override is active and recorded.
    Apply(E),
    /// A plane did not apply it, and the former override could not be recorded: the order is recorded, and the next
    /// daemon applies it.
    Halfway {
        /// The plane's failure.
        cause: E,
        /// The failure of the way back.
        back: E,
    },
}

impl<E: fmt::Display> fmt::Display for OrderError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(error) | Self::Apply(error) => error.fmt(f),
            Self::Halfway { cause, back } => write!(
                f,
                "{cause}; the order stays recorded and is applied by the next start, because: {back}"
            ),
        }
    }
}

impl<E: std::error::Error> std::error::Error for OrderError<E> {}

impl ServerStates {
    /// Sets or removes the override of a server in both planes; returns whether that is a change. `now` becomes the
    /// time since when the server is in its state.
    ///
    /// # Errors
    /// The driver's; then the former override stays active.
    pub fn place_order<D: Driver>(
        &mut self,
        (pool, server): (&str, &str),
        wanted: Option<Override>,
        now: Duration,
        driver: &mut D,
    ) -> Result<bool, OrderError<D::Error>> {
        let before = self.checkpoint(pool, server);
        if before.wanted == wanted {
            return Ok(false);
        }
        self.set_override(pool, server, wanted);
        if let Err(error) = driver.record(self.overrides()) {
            self.revert(pool, server, &before);
            return Err(OrderError::Record(error));
        }
        self.set_since(pool, server, now);
        if let Err(cause) = driver.apply(pool, self) {
            self.revert(pool, server, &before);
            let recorded = driver.record(self.overrides());
            // Where this fails too, the next event of the pool applies the former weights.
            let _ = driver.apply(pool, self);
            return Err(match recorded {
                Ok(()) => OrderError::Apply(cause),
                Err(back) => OrderError::Halfway { cause, back },
            });
        }
        driver.copy(&(pool.to_owned(), server.to_owned(), wanted));
        Ok(true)
    }
}
