//! Reports changes to the network, in the kernel's order.
//!
//! A watch reports all changes since it was opened. If it is opened before the tables are read, no change is missed. If
//! changes occur faster than they are read, the kernel drops some of them and reports the loss: after [`Event::Lost`],
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
use crate::{Address, Error, Link, Neighbor, Netlink, Result, Route};

/// Size of the receive buffer, which must hold bursts such as a full routing table. The kernel may limit it
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

/// A change. `removed` is false if the object is new or was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A device was added, changed or removed.
    Link {
        /// The current or last state of the device.
        link: Link,
        /// Whether it was removed.
        removed: bool,
    },
    /// An address of a device was added, changed or removed.
    Address {
        /// The current or last state of the address.
        address: Address,
        /// Whether it was removed.
        removed: bool,
    },
    /// A route in any table was added, changed or removed.
    Route {
        /// The current or last state of the route.
        route: Route,
        /// Whether it was removed.
        removed: bool,
    },
    /// A neighbor was added, confirmed or removed, or its MAC address changed.
    Neighbor {
        /// The current or last state of the entry.
        neighbor: Neighbor,
        /// Whether it was removed.
        removed: bool,
    },
    /// The kernel dropped notifications.
    Lost,
}

/// A stream of [`Event`]s.
pub struct Watch {
    socket: TokioSocket,
    events: VecDeque<Event>,
}

impl Netlink {
    /// Starts watching this namespace.
    ///
    /// # Errors
    /// Fails if the netlink socket cannot be opened, or the namespace cannot be entered.
    pub fn watch(&self) -> Result<Watch> {
        self.run_in_namespace(Watch::open)?
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
            events: VecDeque::new(),
        })
    }

    /// Waits for the next change. The future is cancel-safe.
    ///
    /// # Errors
    /// Fails if the socket fails; the watch can no longer be used.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            match self.socket.recv_from_full().await {
                Ok((datagram, sender)) if sender.port_number() == 0 => {
                    self.events
                        .extend(messages(&datagram).filter_map(parse_event));
                }
                Ok(_) => {}
                Err(error) if is_overrun(&error) => {
                    self.discard_queue();
                    return Ok(Event::Lost);
                }
                Err(source) => return Err(Error::Socket { source }),
            }
        }
    }
}

impl Watch {
    /// Empties the socket. After an overrun the kernel delivers no notifications, and reports no further loss, until
    /// the queue is empty (`netlink_overrun` in net/netlink/af_netlink.c). A change during this time would not be
    /// reported.
    fn discard_queue(&mut self) {
        self.events.clear();
        loop {
            match self.socket.socket_ref().recv_from_full() {
                Ok(_) => {}
                Err(error) if is_overrun(&error) => {}
                // The socket is empty or has failed. If it has failed, the next wait returns the error.
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
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

fn parse_event(bytes: &[u8]) -> Option<Event> {
    use RouteNetlinkMessage as M;

    // Messages that cannot be decoded are also skipped when a table is read.
    let message = NetlinkMessage::<M>::deserialize(bytes).ok()?;
    let NetlinkPayload::InnerMessage(message) = message.payload else {
        return None;
    };
    let removed = matches!(
        message,
        M::DelLink(_) | M::DelAddress(_) | M::DelRoute(_) | M::DelNeighbour(_)
    );
    match &message {
        // A bridge reports its ports with a separate family, in which "deleted" means that a port left the bridge. A
        // message for the device itself follows.
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
        M::NewNeighbour(neighbor) | M::DelNeighbour(neighbor) => {
            let neighbor = Neighbor::from_message(neighbor)?;
            Some(Event::Neighbor { neighbor, removed })
        }
        _ => None,
    }
}
