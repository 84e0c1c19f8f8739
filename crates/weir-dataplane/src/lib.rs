//! Loads, attaches, pins, replaces and fills the BPF data plane. No other crate calls bpf(2).
//!
//! The crate models one pin directory with a layout record, shared maps, program generations and attachments
//! ([`Dataplane`]), typed access to the maps ([`Maps`]) and the flow table ([`FlowTable`]). weir-engine decides which
//! rows to write, which devices to use and when to activate; weir-netlink manages addresses, routes and neighbors.
//! Pinned objects are replaced atomically: if the process dies between two steps, the next open adopts or removes the
//! remaining objects.

mod attach;
mod carry;
mod dataplane;
mod error;
mod extent;
mod flows;
mod frame_address;
mod hold;
mod latency;
mod layout;
mod loader;
mod maps;
pub mod migrate;
mod mmap;
mod owner;
mod pins;
mod plan;
mod pod;
pub mod real_server;
pub mod socket;
mod spec;
mod status;
mod sync;
mod sys;
mod table;
mod testrun;
mod verify;

pub use attach::{
    Attachment, Mode, TcRole, XdpChoice, attach_tc, attach_xdp, attachments, detach,
    tcx_ingress_programs,
};
pub use dataplane::{Dataplane, OpenOptions, OpenOutcome, clean};
pub use error::{Error, Result};
pub use extent::{Extent, ExtentAllocator, GRACE};
pub use flows::{Flow, FlowTable};
pub use hold::{HeldFrame, Hold, HoldCounts, HoldTarget};
pub use latency::RingPositions;
pub use layout::Sizes;
pub use maps::{Maps, ProbeTable, elements_of, wait_for_packets};
pub use mmap::Mapped;
pub use pins::{Hook, PinDir, PinKind, PinnedObject};
pub use pod::Pod;
pub use status::{PinnedPlane, open_readonly, pinned_sizes, program_name};
pub use sync::SyncPositions;
pub use table::{PerCpu, Table};
pub use testrun::{TestInput, TestKind, TestRun};
