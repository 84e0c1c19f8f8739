//! Defines [`Netlink`], which reads and changes the network of a namespace.

use std::fmt;

use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use tokio::sync::Mutex;
use weir_sys::NetNs;

use crate::exchange::Exchange;
use crate::generic::GenericSocket;
use crate::{Result, Sysctl};

/// The effect of a request to add or remove an object. The caller records [`Change::Made`] to revert it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The object was added or removed.
    Made,
    /// The object to add already existed, or the object to remove did not exist.
    None,
}

/// Reads and changes the network of the namespace in which it was opened, regardless of the calling thread. Requests of
/// several tasks are serialized.
pub struct Netlink {
    netns: NetNs,
    route: Mutex<Exchange>,
    pub(crate) generic: Mutex<Option<GenericSocket>>,
}

impl Netlink {
    /// Opens a netlink socket in the calling thread's network namespace. Must be called inside a tokio runtime. Not
    /// `async`, so that it runs on the calling thread.
    ///
    /// # Errors
    /// Fails if the netlink socket cannot be opened, or the namespace cannot be determined.
    pub fn open() -> Result<Self> {
        Ok(Self {
            netns: NetNs::current()?,
            route: Mutex::new(Exchange::open(NETLINK_ROUTE)?),
            generic: Mutex::new(None),
        })
    }

    /// Opens a netlink socket in `netns`.
    ///
    /// # Errors
    /// See [`Netlink::open`]. Also fails if the namespace cannot be entered.
    pub fn open_in(netns: &NetNs) -> Result<Self> {
        let _inside = netns.enter()?;
        Self::open()
    }

    /// Returns the namespace.
    pub fn netns(&self) -> &NetNs {
        &self.netns
    }

    /// Runs `work` in this namespace on the calling thread, for calls that depend on the thread's network namespace,
    /// such as [`weir_sys::ethtool`]. `work` must not block for long.
    ///
    /// # Errors
    /// Fails if the namespace cannot be entered.
    pub fn run_in_namespace<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        if NetNs::current()?.id()? == self.netns.id()? {
            return Ok(work());
        }
        let _inside = self.netns.enter()?;
        Ok(work())
    }

    /// Returns the value of `sysctl` in this namespace.
    ///
    /// # Errors
    /// See [`Sysctl::read`].
    pub fn sysctl(&self, sysctl: &Sysctl) -> Result<String> {
        self.run_in_namespace(|| sysctl.read())?
    }

    /// Returns the number of kernel messages that could not be decoded and were skipped.
    pub async fn undecodable_count(&self) -> u64 {
        self.route.lock().await.undecodable_count()
    }

    pub(crate) async fn transact(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.route
            .lock()
            .await
            .transact(request, message, flags)
            .await
    }

    pub(crate) async fn transact_each(
        &self,
        messages: Vec<RouteNetlinkMessage>,
        request: impl Fn(usize) -> String,
    ) -> Result<Vec<Result<RouteNetlinkMessage>>> {
        self.route
            .lock()
            .await
            .transact_each(messages, request)
            .await
    }

    pub(crate) async fn dump(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.route.lock().await.dump(request, message).await
    }

    /// Creates an object. Returns [`Change::None`] if it already exists.
    pub(crate) async fn create(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
    ) -> Result<Change> {
        match self
            .transact(request, message, NLM_F_CREATE | NLM_F_EXCL)
            .await
        {
            Ok(_) => Ok(Change::Made),
            Err(error) if error.has_errno(Errno::EXIST) => Ok(Change::None),
            Err(error) => Err(error),
        }
    }

    /// Removes an object. Returns [`Change::None`] if it does not exist.
    pub(crate) async fn remove(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
    ) -> Result<Change> {
        match self.transact(request, message, 0).await {
            Ok(_) => Ok(Change::Made),
            Err(error)
                if [Errno::NOENT, Errno::NODEV, Errno::ADDRNOTAVAIL, Errno::SRCH]
                    .into_iter()
                    .any(|errno| error.has_errno(errno)) =>
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
