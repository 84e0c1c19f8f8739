//! Reads, watches and changes the network of a namespace: links, addresses, routes, neighbors, sysctls.
//!
//! This is the only crate that changes the host's network. A [`Netlink`] is bound to the namespace in which it was
//! opened. Reads return plain values ([`Link`], [`Address`], [`Route`], [`Neighbor`]). [`NetState`] contains the state
//! that next hops depend on, and [`resolve`] computes devices, tags and MAC addresses from it without I/O. Each change
//! reports whether it had an effect, so that the caller can record what to revert; this crate keeps no records.
//! `weir-engine` decides which changes to make.
//!
//! The crate does not use rtnetlink's handles for requests. Its own implementation repeats dumps that the kernel marks
//! as interrupted, and its watches report lost notifications, so that cached state remains correct while the network
//! changes.

mod address;
mod class;
mod error;
mod exchange;
mod filter;
mod generic;
mod link;
mod mac;
mod neighbor;
mod netlink;
mod pair;
mod reopening_watch;
mod route;
mod rule;
mod socket;
mod socket_connection;
mod socket_destroy;
mod state;
mod sysctl;
mod virtual_router;
mod watch;
mod xdp;
mod xdp_feature;

pub use address::{Address, HANDOVER_TIMEOUT};
pub use error::Error;
pub use filter::{AllowedPorts, InputFilter};
pub use link::{Link, Vlan};
pub use mac::MacAddr;
pub use neighbor::{ManageOutcome, Neighbor, NeighborState};
pub use netlink::{Change, Netlink};
pub use reopening_watch::ReopeningWatch;
pub use route::{Lookup, NextHop, Route, RouteKind};
pub use rule::Rule;
pub use socket::{TcpSocket, TcpState, tcp_sockets};
pub use socket_connection::tcp_connections;
pub use socket_destroy::{destroy_connections_of, destroy_sockets};
pub use state::{NetState, ResolvedPath, resolve};
pub use sysctl::Sysctl;
pub use virtual_router::{StaticRoute, TableRule};
pub use watch::{Event, Watch};
pub use xdp_feature::XdpFeatures;

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;
