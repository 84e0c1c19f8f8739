//! Messages between daemon and announcer: one JSON document a line.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_model::Announce;

/// What the daemon knows; it sends this once per second, and at every change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The active configuration.
    pub settings: Announce,
    /// All VIPs that the configuration announces.
    pub vips: Vec<VipFact>,
    /// An operator drains this node.
    pub is_draining: bool,
}

/// Whether a VIP's services can serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VipFact {
    /// The VIP.
    pub vip: IpAddr,
    /// Whether they can.
    pub serves: bool,
    /// Why not; empty if they can.
    pub reason: String,
    /// Servers have no check result yet: this director may select others than the rest of its group. A VIP that is not
    /// announced waits for them.
    #[serde(default)]
    pub settling: bool,
}

/// A request to the announcer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// The daemon's facts.
    Facts(Facts),
    /// End without withdrawing routes: another announcer takes over.
    HandOver,
}

/// The announcer's reply to facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// All VIPs.
    pub routes: Vec<RouteReport>,
    /// Why the speaker does not have the latest routes.
    pub error: Option<String>,
}

/// A VIP's route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteReport {
    /// The VIP.
    pub vip: IpAddr,
    /// `announced`, `draining` or `withdrawn`.
    pub state: String,
    /// Since when, in milliseconds of Unix time.
    pub since_ms: u64,
    /// Why.
    pub reason: String,
}
