//! Models the data plane's handling of a packet; defines flow hashes, slots, states and timeouts.
//!
//! [`Model`] determines the outcome of a packet from the product's rules: its service, its server, and the bytes to
//! send. It is written for readability: a hash map holds the flows by tuple, with the same slots as in the data plane;
//! a packet is a `Vec<u8>`; CPUs share no state. The BPF programs must produce the same outcome, frame and counters for
//! every packet (`differential.rs` of weir-dataplane). The crate also contains the rules that user space shares with
//! the data plane: [`state`] (IPVS's TCP states), [`timeout`] (timeouts by state), [`key`] (the keyed hash) and
//! [`slot`] (flow table slots).
//!
//! The crate reads no clock (the tick is an argument), draws no random numbers, does not choose servers (the caller
//! passes a [`Scheduler`], because this crate does not depend on weir-sched), and does not model races between CPUs. It
//! depends on weir-abi, weir-model and weir-wire.

mod convert;
mod edit;
mod encap;
mod family;
pub mod key;
pub mod model;
mod parse;
pub mod slot;
pub mod state;
pub mod timeout;

pub use convert::{abi_forward, abi_tunnel, model_forward};
pub use family::Family;
pub use key::{FlowHashKey, Tuple, steer_hash};
pub use model::{Arrival, Config, Flow, Load, Model, Outcome, PacketMeta, Scheduler, Verdict};
pub use parse::{Layout, PacketClass, ParseError, parse};
pub use slot::{Geometry, Mark, Placement};
pub use state::{Event, View};
