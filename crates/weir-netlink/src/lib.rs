//! Links, addresses, routes, neighbours and sysctls of one network
//! namespace: reading them, following their changes, and the few changes that
//! Weir makes. The only crate that changes the host's network.
//!
//! A [`Netlink`] is bound to the namespace it was opened in. Reads return plain
//! values ([`Link`], [`Address`], [`Route`], [`Neighbour`]); [`NetState`] gathers
//! what next hops need, and [`resolve`] turns it into ports, tags and MACs without
//! I/O. Every change says whether it changed anything, so that the caller can
//! remember what to undo; nothing is remembered here, and nothing is undone that
//! was there before. Which changes to make is `weir-engine`'s business, BPF is
//! `weir-dataplane`'s.
//!
//! Requests are not sent through rtnetlink's handles but by an exchange of our
//! own: it repeats a dump that the kernel marks as interrupted, and a watch
//! reports that notifications were lost, which together keep a cached picture
//! right under churn.

mod address;
mod class;
mod error;
mod exchange;
mod generic;
mod link;
mod mac;
mod neighbour;
mod netlink;
mod pair;
mod route;
mod rule;
mod socket;
mod socket_end;
mod state;
mod sysctl;
mod watch;
mod xdp;
mod xdp_feature;

pub use address::Address;
pub use error::Error;
pub use link::{Link, Vlan};
pub use mac::MacAddr;
pub use neighbour::{Managed, Neighbour, NeighbourState};
pub use netlink::{Change, Netlink};
pub use route::{Lookup, NextHop, Route, RouteKind};
pub use rule::Rule;
pub use socket::{TcpSocket, TcpState, tcp_sockets};
pub use socket_end::end_sockets;
pub use state::{NetState, Resolved, resolve};
pub use sysctl::Sysctl;
pub use watch::{Event, Watch};
pub use xdp_feature::XdpFeatures;

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;
