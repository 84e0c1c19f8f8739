//! Defines the messages between the daemon and the announcer: one JSON document per line.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_model::Announce;

/// The daemon's report, which it sends after every change and at least every 500 ms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonReport {
    /// `[announce]` of the active configuration.
    pub settings: Announce,
    /// All VIPs that the configuration announces.
    pub vips: Vec<VipState>,
    /// Whether an operator has drained this node.
    pub is_draining: bool,
}

/// Whether a VIP's services can serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VipState {
    /// The VIP.
    pub vip: IpAddr,
    /// Whether its services can serve.
    pub serves: bool,
    /// Why the services cannot serve; empty if they can.
    pub reason: String,
    /// Whether some servers have no check result yet, or the director lacks flows or the previous version of its group.
    /// Connections that move to this director might then reach other servers, so a VIP that is not announced yet stays
    /// withdrawn.
    #[serde(default)]
    pub settling: bool,
}

/// A request to the announcer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// The daemon's report.
    #[serde(rename = "facts")]
    DaemonReport(DaemonReport),
    /// Exit without withdrawing routes, because another announcer is taking over.
    HandOver,
}

/// The announcer's reply to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The routes of all VIPs.
    pub routes: Vec<RouteReport>,
    /// Why the speaker does not have the latest routes, or why the request was rejected; `None` = neither.
    pub error: Option<String>,
    /// Why the speaker does not work as configured although it has the routes; `None` = it does.
    #[serde(default)]
    pub warning: Option<String>,
}

/// The state of a VIP's route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteReport {
    /// The VIP.
    pub vip: IpAddr,
    /// `announced`, `draining` or `withdrawn`.
    pub state: String,
    /// Start of the state, in milliseconds of Unix time.
    pub since_ms: u64,
    /// The reason for the state.
    pub reason: String,
}
