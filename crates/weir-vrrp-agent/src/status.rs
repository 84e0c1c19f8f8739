//! Defines the status of virtual routers that the agent reports.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The agent's report on a virtual router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterReport {
    /// When the state was entered, in milliseconds since 1970.
    pub since_ms: u64,
    /// The other fields, which are also part of the status document.
    #[serde(flatten)]
    pub router: RouterStatus,
}

/// Status of a virtual router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterStatus {
    /// Name of the virtual router.
    pub name: String,
    /// `init`, `backup`, `active` or `fault`.
    pub state: String,
    /// Priority, including the weights of tracked objects.
    pub priority: u8,
    /// Why the virtual router is in this state.
    pub reason: String,
    /// Address of the active router, if it is a different director whose address is known.
    pub active_peer: Option<IpAddr>,
    /// Priority in the active peer's last advertisement.
    #[serde(default)]
    pub active_peer_priority: Option<u8>,
    /// Another director that advertises an address of this virtual router with a different virtual router ID.
    #[serde(default)]
    pub id_conflict: Option<IdConflictStatus>,
    /// Protocol version.
    pub version: u8,
    /// Virtual router ID.
    pub router_id: u8,
    /// Name of the interface, if it is usable.
    pub interface: Option<String>,
    /// Checksum form of version 3 packets over IPv4: `plain`, `pseudo-header` or `group-pseudo-header`.
    pub checksum: String,
    /// Number of advertisements sent.
    pub sent: u64,
    /// Number of packets received and accepted.
    pub received: u64,
    /// Number of advertisements that were missing between two advertisements of the active peer, while this router was
    /// a backup.
    #[serde(default)]
    pub lost: u64,
    /// Number of ignored packets, by reason.
    pub ignored: BTreeMap<String, u64>,
    /// Seconds since the last ignored packet, by reason.
    #[serde(default)]
    pub last_ignored_seconds: BTreeMap<String, u64>,
    /// Number of accepted packets whose addresses differ from the configured ones.
    pub address_mismatches: u64,
    /// Whether the addresses in the active router's last advertisement differed from those that this director is
    /// configured with.
    #[serde(default)]
    pub peer_addresses_differ: bool,
    /// Number of times the virtual router became active since `weir run` started.
    pub takeovers: u64,
    /// Tracked objects.
    pub tracked: Vec<TrackedStatus>,
}

/// Another director that advertises an address of a virtual router with a different virtual router ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdConflictStatus {
    /// Address of the other director.
    pub peer: IpAddr,
    /// Its virtual router ID.
    pub router_id: u8,
}

/// Status of a tracked object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackedStatus {
    /// Displayed name, such as `interface eth1`.
    pub name: String,
    /// `unknown`, `up`, `down` or a number.
    pub state: String,
}
