//! The handle on one namespace's network.

use std::fmt;

use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use tokio::sync::Mutex;
use weir_sys::NetNs;

use crate::exchange::Exchange;
use crate::generic::Generic;
use crate::{Result, Sysctl};

/// Whether a request to have or not to have something changed anything.
/// The caller remembers [`Change::Made`] to undo it later, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was not so before, and is now.
    Made,
    /// It was so already.
    None,
}

/// Reads and changes the network of the namespace it was opened in, whatever
/// thread it is used on later. Requests of several tasks take turns.
pub struct Netlink {
    netns: NetNs,
    route: Mutex<Exchange>,
    pub(crate) generic: Mutex<Option<Generic>>,
}

impl Netlink {
    /// Opens the network of the calling thread's namespace. Must be called inside a
    /// tokio runtime; not `async`, so that it is certain whose namespace is meant.
    ///
    /// # Errors
    /// [`crate::Error::Socket`] when no netlink socket can be had.
    pub fn open() -> Result<Self> {
        Ok(Self {
            netns: NetNs::current()?,
            route: Mutex::new(Exchange::open(NETLINK_ROUTE)?),
            generic: Mutex::new(None),
        })
    }

    /// Opens the network of `netns`.
    ///
    /// # Errors
    /// As [`Netlink::open`], and without the right to enter.
    pub fn open_in(netns: &NetNs) -> Result<Self> {
        let _inside = netns.enter()?;
        Self::open()
    }

    /// The namespace this works on.
    pub fn netns(&self) -> &NetNs {
        &self.netns
    }

    /// Runs `work`, which must not block for long, in this namespace on the calling
    /// thread: for what goes by the thread's namespace, like [`weir_sys::ethtool`].
    ///
    /// # Errors
    /// Without the right to enter.
    pub fn inside<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        if NetNs::current()?.id()? == self.netns.id()? {
            return Ok(work());
        }
        let _inside = self.netns.enter()?;
        Ok(work())
    }

    /// The value of `sysctl` in this namespace.
    ///
    /// # Errors
    /// As [`Sysctl::read`].
    pub fn sysctl(&self, sysctl: &Sysctl) -> Result<String> {
        self.inside(|| sysctl.read())?
    }

    /// Messages of the kernel that this build could not decode and left out, ever.
    pub async fn undecodable(&self) -> u64 {
        self.route.lock().await.undecodable()
    }

    pub(crate) async fn ask(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.route.lock().await.ask(request, message, flags).await
    }

    pub(crate) async fn ask_each(
        &self,
        messages: Vec<RouteNetlinkMessage>,
        request: impl Fn(usize) -> String,
    ) -> Result<Vec<Result<RouteNetlinkMessage>>> {
        self.route.lock().await.ask_each(messages, request).await
    }

    pub(crate) async fn dump(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.route.lock().await.dump(request, message).await
    }

    /// Creates what must not exist yet; its existence is no error.
    pub(crate) async fn create(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
    ) -> Result<Change> {
        match self.ask(request, message, NLM_F_CREATE | NLM_F_EXCL).await {
            Ok(_) => Ok(Change::Made),
            Err(error) if error.is(Errno::EXIST) => Ok(Change::None),
            Err(error) => Err(error),
        }
    }

    /// Removes what may be gone already.
    pub(crate) async fn remove(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
    ) -> Result<Change> {
        match self.ask(request, message, 0).await {
            Ok(_) => Ok(Change::Made),
            Err(error)
                if [Errno::NOENT, Errno::NODEV, Errno::ADDRNOTAVAIL, Errno::SRCH]
                    .into_iter()
                    .any(|gone| error.is(gone)) =>
            {
                Ok(Change::None)
            }
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for Netlink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netlink")
            .field("netns", &self.netns)
            .finish_non_exhaustive()
    }
}
