//! The state of virtual routers as the agent reports it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Ignored packets by reason.
pub type IgnoredPackets = BTreeMap<String, u64>;

/// What the agent reports about a virtual router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterReport {
    /// When the state was entered, in milliseconds since 1970.
    pub since_ms: u64,
    /// The rest, which the status document has as well.
    #[serde(flatten)]
    pub router: RouterStatus,
}

/// A virtual router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterStatus {
    /// Its name.
    pub name: String,
    /// `init`, `backup`, `active` or `fault`.
    pub state: String,
    /// The priority, with what tracked objects change.
    pub priority: u8,
    /// Why it is in this state.
    pub reason: String,
    /// The active director, if it is another one.
    pub active_peer: Option<IpAddr>,
    /// Protocol version.
    pub version: u8,
    /// Virtual router ID.
    pub router_id: u8,
    /// Interface, if it is usable.
    pub interface: Option<String>,
    /// Checksum of packets of version 3 over IPv4: `plain`, `pseudo-header` or `group-pseudo-header`.
    pub checksum: String,
    /// Packets sent.
    pub sent: u64,
    /// Packets received and accepted.
    pub received: u64,
    /// Packets ignored, by reason.
    pub ignored: IgnoredPackets,
    /// Accepted packets that list other addresses.
    pub address_mismatches: u64,
    /// How often it became active since the agent started.
    pub takeovers: u64,
    /// Tracked objects.
    pub tracked: Vec<TrackedStatus>,
}

/// A tracked object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackedStatus {
    /// `interface eth1`.
    pub name: String,
    /// `unknown`, `up`, `down` or a number.
    pub state: String,
}
