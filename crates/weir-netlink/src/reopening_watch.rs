//! Defines a watch that its owner reopens after it has failed.

use crate::{Event, Netlink, Result, Watch};

/// A [`Watch`] that can be reopened after a socket error. It reports the changes in between as [`Event::Lost`].
#[derive(Debug)]
pub struct ReopeningWatch {
    netlink: Netlink,
    watch: Option<Watch>,
    missed: bool,
}

impl ReopeningWatch {
    /// Starts watching this namespace. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The netlink socket cannot be opened.
    pub fn open() -> Result<Self> {
        let netlink = Netlink::open()?;
        let watch = Some(netlink.watch()?);
        Ok(Self {
            netlink,
            watch,
            missed: false,
        })
    }

    /// Returns the next event; waits forever after an error until [`reopen`](Self::reopen). Cancel-safe.
    ///
    /// # Errors
    /// The watch failed. The error is returned once.
    pub async fn next(&mut self) -> Result<Event> {
        if std::mem::take(&mut self.missed) {
            return Ok(Event::Lost);
        }
        let Some(watch) = &mut self.watch else {
            return std::future::pending().await;
        };
        let next = watch.next().await;
        if next.is_err() {
            self.watch = None;
        }
        next
    }

    /// Reopens a failed watch; the events in between are reported as lost. If this fails, a later call tries again.
    pub fn reopen(&mut self) {
        if self.watch.is_none()
            && let Ok(watch) = self.netlink.watch()
        {
            self.watch = Some(watch);
            self.missed = true;
        }
    }
}
