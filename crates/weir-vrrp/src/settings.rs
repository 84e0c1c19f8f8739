//! Settings of a virtual router, and the objects that it tracks.

use std::net::IpAddr;
use std::time::Duration;

use crate::hmac::HmacConfig;
use crate::packet::{ChecksumForm, Version};

/// Missed advertisements after which another router may be active (RFC 9568 section 6.1).
pub(crate) const MISSED: u32 = 3;

/// How often addresses are announced while the router is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcements {
    /// Frames per address at a takeover.
    pub repeat: u32,
    /// Time from a takeover to a second announcement; zero: none.
    pub again: Duration,
    /// Interval of further announcements; zero: none.
    pub refresh: Duration,
    /// Frames per address of each of them.
    pub refresh_repeat: u32,
}

/// keepalived's defaults: five frames, and five more after five seconds.
impl Default for Announcements {
    fn default() -> Self {
        Self {
            repeat: 5,
            again: Duration::from_secs(5),
            refresh: Duration::ZERO,
            refresh_repeat: 1,
        }
    }
}

/// Settings of a virtual router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its name.
    pub name: String,
    /// Protocol version.
    pub version: Version,
    /// Virtual router ID.
    pub vrid: u8,
    /// 1 to 255; 255 marks the address owner.
    pub priority: u8,
    /// Interval of its advertisements.
    pub interval: Duration,
    /// Addresses that are listed in advertisements.
    pub addresses: Vec<IpAddr>,
    /// Whether it takes over from an active router with a lower priority.
    pub preempt: bool,
    /// How long it waits before it does.
    pub preempt_delay: Duration,
    /// How long it waits before it takes part, from its creation.
    pub start_delay: Duration,
    /// Missed advertisements after which a backup becomes active, 1 to 100; 3 in the RFC.
    pub down_adverts: u32,
    /// The lowest accepted TTL or hop limit of unicast packets; 255 accepts only those that no router has forwarded.
    pub unicast_min_ttl: u8,
    /// Which checksum its packets have until it has received one.
    pub checksum: ChecksumForm,
    /// See there.
    pub announcements: Announcements,
    /// Simple text password of version 2.
    pub password: Option<[u8; 8]>,
    /// Authentication trailer.
    pub hmac: Option<HmacConfig>,
    /// Virtual routers of the same group move together.
    pub group: Option<String>,
    /// Objects that are tracked.
    pub tracked: Vec<Tracked>,
}

/// Version 3 with the defaults of the RFC and of keepalived, without addresses.
impl Default for Config {
    fn default() -> Self {
        Self {
            name: String::new(),
            version: Version::V3,
            vrid: 1,
            priority: 100,
            interval: Duration::from_secs(1),
            addresses: Vec::new(),
            preempt: true,
            preempt_delay: Duration::ZERO,
            start_delay: Duration::ZERO,
            down_adverts: MISSED,
            unicast_min_ttl: 255,
            checksum: ChecksumForm::default(),
            announcements: Announcements::default(),
            password: None,
            hmac: None,
            group: None,
            tracked: Vec::new(),
        }
    }
}

/// A tracked object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// How it is shown: `interface eth1`.
    pub name: String,
    /// What it is, with all arguments: members of a group that track the same object count its weight once.
    pub identity: String,
    /// What its state changes.
    pub effect: Effect,
}

/// What the state of a tracked object changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A failure is a fault: the addresses are released.
    Fault,
    /// Added to the priority on success, and subtracted on failure.
    Weight {
        /// On success.
        bonus: u8,
        /// On failure.
        penalty: u8,
    },
}

impl Effect {
    /// What is added to the priority in a state.
    pub(crate) fn weight(self, state: TrackedState) -> i32 {
        match (self, state) {
            (Self::Weight { bonus, .. }, TrackedState::Up) => bonus.into(),
            (Self::Weight { penalty, .. }, TrackedState::Down) => -i32::from(penalty),
            (_, TrackedState::Number(number)) => number,
            (Self::Fault, TrackedState::Up | TrackedState::Down) | (_, TrackedState::Unknown) => 0,
        }
    }
}

/// The last known state of a tracked object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackedState {
    /// No result yet: the virtual router does not start.
    #[default]
    Unknown,
    /// It works.
    Up,
    /// It has failed.
    Down,
    /// A number that is added to the priority.
    Number(i32),
}
