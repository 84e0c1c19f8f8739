//! The layer 4 engine: applies a configuration to the data plane and the network, and keeps them in that state.

mod engine;
mod packet;
pub mod snapshot;
pub mod vip;

pub use self::engine::*;
pub use self::packet::{Explanation, Packet, PacketError};
