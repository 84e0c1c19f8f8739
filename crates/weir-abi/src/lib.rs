//! Mirrors `bpf/abi/weir_abi.h` in Rust: keys, values, constants and packet reasons shared with the data plane.
//!
//! Every struct has the same field names, types and offsets as in C; [`Layout`] lists them, and a test of
//! weir-dataplane compares them with the BTF of the compiled object. Apart from the structs and constants, the crate
//! contains only conversions (addresses, ticks, packed words). It does no I/O and has no dependencies.

mod addr;
mod element;
mod flow;
mod latency;
mod mirror;
mod probe;
mod reason;
mod server;
mod service;
mod setting;
mod socket;
mod sync;
mod tick;

pub use addr::{Addr, Be16};
pub use flow::*;
pub use latency::*;
pub use mirror::{Constant, Field, Layout};
pub use probe::*;
pub use reason::{
    ABI_HASH, LATENCY_REASONS, LatencyReason, REASONS, Reason, ReasonInfo, UnknownReason,
};
pub use server::*;
pub use service::*;
pub use setting::*;
pub use socket::*;
pub use sync::*;
pub use tick::{ticks_from, ticks_to_duration};

/// Returns the layouts of all mirrored structs, for comparison with the BTF of the compiled object.
pub fn layouts() -> Vec<Layout> {
    [
        service::LAYOUTS,
        server::LAYOUTS,
        flow::LAYOUTS,
        latency::LAYOUTS,
        setting::LAYOUTS,
        probe::LAYOUTS,
        socket::LAYOUTS,
        sync::LAYOUTS,
    ]
    .concat()
}

/// Returns the mirrored `#define`s of the headers.
pub fn constants() -> Vec<Constant> {
    [
        service::CONSTANTS,
        server::CONSTANTS,
        flow::CONSTANTS,
        latency::CONSTANTS,
        setting::CONSTANTS,
        socket::CONSTANTS,
        sync::CONSTANTS,
    ]
    .concat()
}
