//! Runs the state machine of a director in a group, and sends the machine's requests to etcd.
//!
//! The state machine, [`weir_cluster::Machine`], makes all decisions; this crate only does I/O. It uses etcd's JSON
//! gateway (`/v3/…`, etcd 3.4 or later), which needs neither protoc nor gRPC.

mod client;
mod driver;
mod message;
mod watch;

pub use client::{Client, Error};
pub use driver::{Driver, GroupInput, GroupOutput, Settings};
