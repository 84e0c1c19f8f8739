//! Defines the types of the engine's persistent state; `state` reads and writes them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_planner::allocation::Allocation;
use weir_state::SavedServers;

use crate::mark_routing::MarkRouting;
use crate::origin::Origin;

/// The engine's part of the state file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineState {
    /// Number of configurations that have been applied.
    pub(crate) revision: u64,
    /// Identifies the configuration of `revision`.
    pub(crate) fingerprint: u64,
    /// Allocated rows.
    pub(crate) allocation: Allocation,
    /// Services created with ipvsadm.
    pub(crate) origin: Origin,
    /// Changes that `weir clean` reverts.
    pub(crate) undo: Undo,
}

/// State that survives restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredState {
    /// The engine's part.
    pub(crate) engine: EngineState,
    /// weir-state's part: check results, and a copy of the overrides, which Weir 0.1.0 reads.
    pub(crate) servers: SavedServers,
}

/// Changes to the host's network, which `weir clean` reverts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Undo {
    /// Added addresses, with their interfaces.
    pub(crate) addresses: Vec<(String, IpAddr)>,
    /// Neighbors that the kernel keeps resolved for Weir, with their interfaces.
    pub(crate) neighbours: Vec<(String, IpAddr)>,
    /// Previous offload settings, by interface.
    pub(crate) offloads: Vec<(String, Vec<(String, bool)>)>,
    /// Routing of packets with a firewall mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) marks: Option<MarkRouting>,
}
