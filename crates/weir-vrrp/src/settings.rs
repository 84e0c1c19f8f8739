//! Defines the settings of a virtual router and the objects that it tracks.

use std::net::IpAddr;
use std::time::Duration;

use crate::hmac::HmacConfig;
use crate::packet::{ChecksumForm, Version};

/// Number of missed advertisements after which a backup becomes active (RFC 9568 section 6.1).
pub(crate) const MISSED_ADVERTS: u32 = 3;

/// Timing and number of address announcements while the router is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcements {
    /// Frames per address in the announcement at a takeover.
    pub repeat: u32,
    /// Time from a takeover to a second announcement; zero disables it.
    pub second_announcement_delay: Duration,
    /// Interval between further announcements; zero disables them.
    pub refresh: Duration,
    /// Frames per address in each further announcement.
    pub refresh_repeat: u32,
}

/// keepalived's defaults: five frames, and five more after five seconds.
impl Default for Announcements {
    fn default() -> Self {
        Self {
            repeat: 5,
            second_announcement_delay: Duration::from_secs(5),
            refresh: Duration::ZERO,
            refresh_repeat: 1,
        }
    }
}

/// Settings of a virtual router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name in the configuration.
    pub name: String,
    /// Protocol version.
    pub version: Version,
    /// Virtual router ID.
    pub vrid: u8,
    /// Priority without the weights of tracked objects, 1 to 255; 255 = the address owner.
    pub priority: u8,
    /// Interval between advertisements.
    pub interval: Duration,
    /// Addresses that advertisements list.
    pub addresses: Vec<IpAddr>,
    /// Whether this router takes over from an active router with a lower priority.
    pub preempt: bool,
    /// Time to wait before preempting.
    pub preempt_delay: Duration,
    /// Time from creation until this router participates in elections.
    pub start_delay: Duration,
    /// Number of missed advertisements after which a backup becomes active, 1 to 100; 3 in the RFC.
    pub down_adverts: u32,
    /// Minimum accepted TTL or hop limit of unicast packets; 255 accepts only packets that no router has forwarded.
    pub unicast_min_ttl: u8,
    /// Checksum form of sent packets before the first packet is received; afterwards, the form of the last received
    /// packet is used.
    pub checksum: ChecksumForm,
    /// When and how often addresses are announced.
    pub announcements: Announcements,
    /// Simple text password (version 2 only).
    pub password: Option<[u8; 8]>,
    /// Settings of the authentication trailer; `None` if packets have no trailer.
    pub hmac: Option<HmacConfig>,
    /// Name of the group; its virtual routers change state together.
    pub group: Option<String>,
    /// Tracked objects.
    pub tracked: Vec<TrackConfig>,
}

/// Version 3 without addresses, with the defaults of the RFC and of keepalived.
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
            down_adverts: MISSED_ADVERTS,
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
pub struct TrackConfig {
    /// Displayed name, such as `interface eth1`.
    pub name: String,
    /// Identity including all arguments. If members of a group track the same object, its weight is counted once.
    pub identity: String,
    /// The effect of the object's state on the virtual router.
    pub effect: Effect,
}

/// The effect of a tracked object's state on a virtual router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A failure puts the router in the fault state, which releases the addresses.
    Fault,
    /// Added to the priority on success, and subtracted on failure.
    Weight {
        /// Added on success.
        bonus: u8,
        /// Subtracted on failure.
        penalty: u8,
    },
    /// The object is a number. The product of the number and this factor, at most 253, is added to the priority. A
    /// product below -253 puts the router in the fault state. With factor 0, every number except 0 does. The rules are
    /// those of keepalived's `track_file`.
    Factor(i16),
}

/// Minimum and maximum product of an [`Effect::Factor`].
const MIN_PRODUCT: i64 = -253;
const MAX_PRODUCT: i64 = 253;

impl Effect {
    /// Returns the value to add to the priority in this state. If the virtual router is active, the bonus counts until
    /// the first result. Otherwise, after a restart of the agent or a change of `track`, another director would take
    /// over and hand the addresses back after the first result.
    pub(crate) fn weight(self, state: TrackedState, is_active: bool) -> i32 {
        match (self, state) {
            (Self::Weight { bonus, .. }, TrackedState::Up) => bonus.into(),
            (Self::Weight { bonus, .. }, TrackedState::Unknown) if is_active => bonus.into(),
            (Self::Weight { penalty, .. }, TrackedState::Down) => -i32::from(penalty),
            (Self::Factor(factor), TrackedState::Number(number)) => {
                let product = product(factor, number).clamp(MIN_PRODUCT, MAX_PRODUCT);
                i32::try_from(product).unwrap_or(0)
            }
            (Self::Weight { .. }, TrackedState::Unknown | TrackedState::Number(_))
            | (Self::Factor(_), TrackedState::Unknown | TrackedState::Up | TrackedState::Down)
            | (Self::Fault, _) => 0,
        }
    }

    /// Returns whether the object, in this state, puts the router in the fault state.
    pub(crate) fn is_fault(self, state: TrackedState) -> bool {
        match (self, state) {
            (Self::Fault, TrackedState::Down) => true,
            (Self::Factor(0), TrackedState::Number(number)) => number != 0,
            (Self::Factor(factor), TrackedState::Number(number)) => {
                product(factor, number) < MIN_PRODUCT
            }
            (Self::Fault | Self::Weight { .. } | Self::Factor(_), _) => false,
        }
    }
}

fn product(factor: i16, number: i32) -> i64 {
    i64::from(factor) * i64::from(number)
}

/// The last known state of a tracked object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackedState {
    /// No result yet: the virtual router does not start, unless it continues as active.
    #[default]
    Unknown,
    /// The object is up, or its check succeeded.
    Up,
    /// The object is down, or its check failed.
    Down,
    /// The number of an object with [`Effect::Factor`].
    Number(i32),
}
