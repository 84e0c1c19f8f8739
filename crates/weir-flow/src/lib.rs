//! The flow table, the TCP states and the reference model that the data plane must agree with.
//!
//! [`Model`] decides what becomes of a packet by product rules alone: which service, which server, which bytes leave. It is
//! written for reading. Flows lie in a hash map by their tuple and have places like the data plane's, a packet is a `Vec<u8>`, and nothing is shared; the BPF
//! programs must come to the same fate, frame and counters for every packet (`differential.rs` of weir-dataplane). Beside it
//! stand the pieces that user space shares with the data plane: [`state`] (IPVS's TCP states), [`timeout`] (how long each
//! lasts), [`key`] (the keyed hash) and [`place`] (where it puts a flow in the table).
//!
//! What it refuses to do: read a clock (every packet comes with its tick), draw random numbers, choose servers (a
//! [`Scheduler`] is handed in, because this crate does not know weir-sched), or imitate the order in which CPUs race. It sits above weir-abi and weir-wire.

mod edit;
mod encap;
pub mod key;
pub mod model;
mod parse;
pub mod place;
pub mod state;
pub mod timeout;

pub use key::{FlowKey, Tuple, steer_hash};
pub use model::{Arrival, Config, Fate, Flow, Load, Model, PacketMeta, Scheduler, Verdict};
pub use parse::{Cold, Family, Layout, parse};
pub use place::{Geometry, Mark, Placement};
pub use state::{Event, View};
