//! Loads, attaches, pins, replaces and fills the BPF data plane: the only crate that calls bpf(2).
//!
//! What it models: one pin directory with a layout record, shared maps, generations of programs and attachments
//! ([`Dataplane`]), the maps by their types ([`Maps`]), the flow table as packets left it ([`FlowTable`]). What it refuses:
//! to decide anything. Which rows to write, which devices to take and when to activate is weir-control's; addresses, routes
//! and neighbours are weir-netlink's. Nothing pinned is ever half replaced: a death between any two steps leaves something
//! that the next opening adopts or removes.

mod attach;
mod carry;
mod dataplane;
mod error;
mod extent;
mod flows;
mod hold;
mod layout;
mod loader;
mod maps;
pub mod migrate;
mod mmap;
mod pins;
mod plan;
mod pod;
pub mod real_server;
mod spec;
mod status;
mod sys;
mod table;
mod testrun;
mod verify;

pub use attach::{
    Attachment, Direction, Mode, XdpChoice, attach_tc, attach_xdp, attachments, detach,
    programs_at_tc,
};
pub use dataplane::{Dataplane, OpenOptions, Opened, clean};
pub use error::{Error, Result};
pub use extent::{Extent, ExtentAllocator, GRACE};
pub use flows::{Flow, FlowTable};
pub use hold::{HeldFrame, Hold, HoldCounts, HoldTo};
pub use layout::Sizes;
pub use maps::{Maps, elements_of, wait_for_packets};
pub use mmap::Mapped;
pub use pins::{Hook, PinDir, PinKind, Pinned};
pub use pod::Pod;
pub use status::{PinnedPlane, open_readonly, pinned_sizes, program_name};
pub use table::{PerCpu, Table};
pub use testrun::{TestInput, TestKind, TestRun};
