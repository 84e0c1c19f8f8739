//! Defines the states of a virtual router, its data about other routers, and its requests to the driver.

use std::net::IpAddr;

/// The state of a virtual router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started.
    Init,
    /// Another router is active, or an election is in progress.
    Backup,
    /// This router has the addresses.
    Active,
    /// This router cannot become active.
    Fault,
}

impl State {
    /// Returns the state's name in status documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Backup => "backup",
            Self::Active => "active",
            Self::Fault => "fault",
        }
    }
}

/// A request to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send [`Instance::advertisement`](crate::Instance::advertisement) with this priority and the checksum form
    /// [`Instance::checksum`](crate::Instance::checksum).
    Send {
        /// Priority; 0 if this router stops being active.
        priority: u8,
    },
    /// The state has changed: add the addresses if `to` is `Active`, remove them if `from` is `Active`.
    Changed {
        /// The previous state.
        from: State,
        /// The new state.
        to: State,
    },
    /// Announce the addresses with gratuitous ARP and unsolicited neighbor advertisements.
    Announce {
        /// Frames per address.
        repeat: u32,
    },
    /// Announce the source address of sent packets once. While this director was unreachable, its MAC address may have
    /// expired on unicast peers. Without the announcement, address resolution would delay their advertisements.
    AnnounceSource,
}

/// Another router that is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivePeer {
    /// The source address of its advertisements.
    pub address: IpAddr,
    /// The priority in its last advertisement, 1 to 255.
    pub priority: u8,
}

/// Another router that advertises an address of this virtual router with a different virtual router ID. Both routers
/// can then be active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdConflict {
    /// The source address of its advertisements.
    pub sender: IpAddr,
    /// Its virtual router ID.
    pub vrid: u8,
}
