//! Runs a director's state machine of its group, and sends its requests to etcd.
//!
//! The state machine, [`weir_cluster::Machine`], makes all decisions; this crate only does I/O. It uses etcd's JSON
//! gateway (`/v3/…`, etcd 3.4 or later), which needs neither protoc nor gRPC.

mod client;
mod driver;
mod message;
mod watch;

pub use client::{Client, Error};
pub use driver::{Driver, FromGroup, Settings, ToGroup};
