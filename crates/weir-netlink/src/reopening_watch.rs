//! Defines a watch that can be reopened after an error.

use crate::{Event, Netlink, Result, Watch};

/// A [`Watch`] that can be reopened after a socket error. It reports the changes between the error and the reopening as
/// [`Event::Lost`].
#[derive(Debug)]
pub struct ReopeningWatch {
    netlink: Netlink,
    watch: Option<Watch>,
    has_missed_events: bool,
}

impl ReopeningWatch {
    /// Starts watching this namespace. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Fails if the netlink socket cannot be opened.
    pub fn open() -> Result<Self> {
        let netlink = Netlink::open()?;
        let watch = Some(netlink.watch()?);
        Ok(Self {
            netlink,
            watch,
            has_missed_events: false,
        })
    }

    /// Returns the next event. After an error, does not return until [`reopen`](Self::reopen) has been called.
    /// Cancel-safe.
    ///
    /// # Errors
    /// Fails if the watch fails. The error is returned once.
    pub async fn next(&mut self) -> Result<Event> {
        if std::mem::take(&mut self.has_missed_events) {
            return Ok(Event::Lost);
        }
        let Some(watch) = &mut self.watch else {
            return std::future::pending().await;
        };
        let result = watch.next().await;
        if result.is_err() {
            self.watch = None;
        }
        result
    }

    /// Reopens a failed watch, which then reports the missed events as lost. If this fails, a later call tries again.
    pub fn reopen(&mut self) {
        if self.watch.is_none()
            && let Ok(watch) = self.netlink.watch()
        {
            self.watch = Some(watch);
            self.has_missed_events = true;
        }
    }
}
