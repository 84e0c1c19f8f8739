//! VRRP without I/O: packets of versions 2 (RFC 3768) and 3 (RFC 9568), the state machine of one virtual router, and a
//! set of virtual routers whose groups move together.
//!
//! Time is an argument: a [`Duration`](std::time::Duration) since an origin that the caller selects. The crate sends
//! nothing and changes no address. It requests both through [`Output`]; a driver sends packets, changes addresses and
//! announces them.

mod hmac;
mod instance;
mod packet;
mod router;
mod settings;

pub use hmac::{HMAC_KEY, HmacConfig, HmacKey, HmacMode};
pub use instance::{Instance, Output, State};
pub use packet::{
    Advertisement, Arrival, ChecksumForm, GROUP_V4, GROUP_V6, HOP_LIMIT, Ignored, PROTOCOL,
    Received, Version, decode, listed_max,
};
pub use router::{Counters, Router};
pub use settings::{Announcements, Config, Effect, Tracked, TrackedState};
