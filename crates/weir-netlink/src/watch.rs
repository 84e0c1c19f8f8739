//! Notifications of changes, in the order in which the kernel made them.
//!
//! A watch holds what has changed since it was opened; open it first and read the
//! tables afterwards, and nothing falls between. When changes come faster than
//! they are read the kernel drops some and says so: [`Event::Lost`] means that
//! every table must be read again.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use rustix::io::Errno;

use crate::exchange::messages;
use crate::{Address, Error, Link, Neighbour, Netlink, Result, Route};

/// Room for bursts, such as a full routing table; the kernel may allow less
/// (`net.core.rmem_max`).
const RECEIVE_BUFFER_BYTES: u32 = 4 * 1024 * 1024;

const GROUPS: [MulticastGroup; 6] = [
    MulticastGroup::Link,
    MulticastGroup::Neigh,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// One change. `removed` is false for what is new or has another state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A device came, changed or went.
    Link {
        /// The device as it is or was.
        link: Link,
        /// It is gone.
        removed: bool,
    },
    /// An address of a device.
    Address {
        /// The address as it is or was.
        address: Address,
        /// It is gone.
        removed: bool,
    },
    /// A route of any table.
    Route {
        /// The route as it is or was.
        route: Route,
        /// It is gone.
        removed: bool,
    },
    /// A neighbour was learned, confirmed, lost or moved to another MAC.
    Neighbour {
        /// The entry as it is or was.
        neighbour: Neighbour,
        /// It is gone.
        removed: bool,
    },
    /// Changes were dropped before they were read.
    Lost,
}

/// A stream of [`Event`]s.
pub struct Watch {
    socket: TokioSocket,
    ready: VecDeque<Event>,
}

impl Netlink {
    /// Starts to follow this namespace's changes.
    ///
    /// # Errors
    /// No netlink socket can be had, or no right to enter the namespace.
    pub fn watch(&self) -> Result<Watch> {
        self.inside(Watch::open)?
    }
}

impl Watch {
    fn open() -> Result<Self> {
        let open = || {
            let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
            let groups = GROUPS
                .into_iter()
                .fold(0, |mask, group| mask | 1 << (group as u32 - 1));
            let inner = socket.socket_mut();
            inner.set_rx_buf_sz(RECEIVE_BUFFER_BYTES)?;
            inner.bind(&SocketAddr::new(0, groups))?;
            Ok(socket)
        };
        Ok(Self {
            socket: open().map_err(|source| Error::Socket { source })?,
            ready: VecDeque::new(),
        })
    }

    /// Waits for the next change. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The socket is broken; the watch is of no more use.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match self.socket.recv_from_full().await {
                Ok((datagram, from)) if from.port_number() == 0 => {
                    self.ready.extend(messages(&datagram).filter_map(event_in));
                }
                Ok(_) => {}
                Err(error) if is_overrun(&error) => {
                    self.discard();
                    return Ok(Event::Lost);
                }
                Err(source) => return Err(Error::Socket { source }),
            }
        }
    }
}

impl Watch {
    /// Empties the socket. After an overrun the kernel delivers nothing, and reports
    /// no further loss, until all that it had queued is read (`netlink_overrun` of
    /// net/netlink/af_netlink.c): a change in between would never be heard of.
    fn discard(&mut self) {
        self.ready.clear();
        loop {
            match self.socket.socket_ref().recv_from_full() {
                Ok(_) => {}
                Err(error) if is_overrun(&error) => {}
                // Empty, or broken: then the next wait says so.
                Err(_) => return,
            }
        }
    }
}

fn is_overrun(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error())
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("ready", &self.ready)
            .finish_non_exhaustive()
    }
}

fn event_in(bytes: &[u8]) -> Option<Event> {
    use RouteNetlinkMessage as M;

    // What cannot be decoded here is left out of a table that is read, too.
    let message = NetlinkMessage::<M>::deserialize(bytes).ok()?;
    let NetlinkPayload::InnerMessage(message) = message.payload else {
        return None;
    };
    let removed = matches!(
        message,
        M::DelLink(_) | M::DelAddress(_) | M::DelRoute(_) | M::DelNeighbour(_)
    );
    match &message {
        // A bridge reports its ports under its own family; "deleted" there is a port
        // that left, and the device's own message follows.
        M::NewLink(link) | M::DelLink(link)
            if link.header.interface_family == AddressFamily::Bridge =>
        {
            None
        }
        M::NewLink(link) | M::DelLink(link) => {
            let link = Link::from_message(link);
            Some(Event::Link { link, removed })
        }
        M::NewAddress(address) | M::DelAddress(address) => {
            let address = Address::from_message(address)?;
            Some(Event::Address { address, removed })
        }
        M::NewRoute(route) | M::DelRoute(route) => {
            let route = Route::from_message(route)?;
            Some(Event::Route { route, removed })
        }
        M::NewNeighbour(neighbour) | M::DelNeighbour(neighbour) => {
            let neighbour = Neighbour::from_message(neighbour)?;
            Some(Event::Neighbour { neighbour, removed })
        }
        _ => None,
    }
}
