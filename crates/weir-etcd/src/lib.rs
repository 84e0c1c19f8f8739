//! The driver of a group member: a client for etcd's JSON gateway (`/v3/…`, etcd 3.4 or later), and the thread that
//! runs the state machine [`weir_cluster::Machine`].
//!
//! The gateway needs neither protoc nor gRPC. The state machine makes all decisions; this crate only does I/O.

mod client;
mod driver;
mod message;
mod watch;

pub use client::{Client, Error};
pub use driver::{Driver, FromGroup, Settings, ToGroup};
