//! Events of the network, from a watch that is opened again when it fails.

use weir_netlink::{Event, Netlink, Watch};

use crate::Error;

#[derive(Debug)]
pub(crate) struct Network {
    netlink: Netlink,
    watch: Option<Watch>,
    missed: bool,
}

impl Network {
    /// Must be called inside a tokio runtime.
    pub(crate) fn open() -> Result<Self, Error> {
        let netlink = Netlink::open()?;
        let watch = Some(netlink.watch()?);
        Ok(Self {
            netlink,
            watch,
            missed: false,
        })
    }

    /// Returns the next event; waits forever while there is no watch. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Event {
        if std::mem::take(&mut self.missed) {
            return Event::Lost;
        }
        if let Some(watch) = &mut self.watch {
            match watch.next().await {
                Ok(event) => return event,
                Err(error) => tracing::error!(%error, "the netlink watch failed"),
            }
            self.watch = None;
        }
        std::future::pending().await
    }

    /// Opens a failed watch again; the events in between count as lost.
    pub(crate) fn reopen(&mut self) {
        if self.watch.is_none()
            && let Ok(watch) = self.netlink.watch()
        {
            self.watch = Some(watch);
            self.missed = true;
        }
    }
}
