//! The driver of a director's part in a group: requests to etcd's JSON gateway (`/v3/…`, etcd 3.4 or later), and the
//! thread that runs [`weir_cluster::Machine`].
//!
//! The gateway needs neither protoc nor gRPC. Every decision is the machine's; this crate only moves bytes.

mod client;
mod driver;

mod message;
mod watch;

pub use client::{Client, Error};
pub use driver::{Driver, FromGroup, Settings, ToGroup};
