//! Implements VRRP 2 (RFC 3768) and 3 (RFC 9568) without I/O: packets, virtual routers, and groups of them.
//!
//! Time is an argument: a [`Duration`](std::time::Duration) since an origin that the caller selects. The crate itself
//! does not send packets or change addresses. It requests these actions through [`Output`], and a driver executes them.

mod hmac;
mod instance;
mod loss;
mod packet;
mod router;
mod settings;
mod state;

pub use hmac::{HMAC_KEY_BYTES, HmacConfig, HmacKey, HmacMode};
pub use instance::{Instance, PreviousProcess};
pub use packet::{
    Advertisement, ChecksumForm, DecodedPacket, GROUP_V4, GROUP_V6, HOP_LIMIT, IgnoreReason,
    PROTOCOL, ReceivedPacket, Version, decode, max_listed_addresses,
};
pub use router::{Counters, IgnoredCount, Router};
pub use settings::{Announcements, Config, Effect, TrackConfig, TrackedState};
pub use state::{ActivePeer, IdConflict, Output, State};
