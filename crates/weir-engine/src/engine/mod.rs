//! Defines [`Engine`], the state of a layer 4 director; the submodules implement its operations.
//!
//! [`Engine::apply`] plans with weir-planner before it writes anything (`write`), so a configuration that cannot be
//! applied changes nothing. Everything that packets use is in pinned maps. The maps remain when the engine exits, and
//! the next engine adopts them ([`crate::adopt`], [`crate::state`]).

mod address;
mod attach;
mod attach_path;
mod commit;
mod destroy_socket;
mod drift;
mod edit;
mod explain;
mod explain_choice;
mod explain_exclusion;
mod foreign_program;
mod handshakes;
mod latency;
mod latency_use;
mod listing;
mod local_client;
mod maintenance;
mod mark;
mod no_reply;
mod open;
mod open_connections;
mod rate_estimate;
mod reload;
mod status;
mod sync;
mod sync_index;
mod sync_removed;
mod sync_source;
mod sync_unknown;
mod unknown_servers;
mod weights;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use weir_dataplane::Dataplane;
use weir_defense::Defense;
use weir_model::{Indexed, Timeouts};
use weir_planner::row_set::{Changes, RowSet};

use crate::drain_watch::DrainWatches;
use crate::network::Network;
use crate::rate_estimate::RateEstimates;
use crate::reply_monitor::ReplyMonitor;
use crate::snapshot::Drift;
use crate::state::StateFile;
use crate::stored_state::EngineState;
use crate::vip::Announcements;
use crate::write::Writer;

pub use self::edit::{WeightChange, weight_change};
pub use self::handshakes::Handshakes;
pub use self::latency_use::AdjustedWeights;
pub use self::open::Opening;
pub use self::sync_index::SyncCounts;

use self::latency::LatencyMonitor;

use self::local_client::LocalClients;
use self::sync_index::Synchronizer;

/// The result of [`Engine::apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplyOutcome {
    /// Revision of the active configuration.
    pub revision: u64,
}

/// The layer 4 engine of a director.
#[derive(Debug)]
pub struct Engine {
    file: StateFile,
    pin_dir: PathBuf,
    state: EngineState,
    /// The whole configuration, including ipvsadm's services.
    desired: Indexed,
    /// The timeouts in the file; `ipvsadm --set` may have overridden them.
    file_timeouts: Timeouts,
    network: Network,
    plane: Dataplane,
    writer: Writer,
    rows: RowSet,
    /// State of balancing for clients on this machine.
    local_clients: LocalClients,
    /// Planned rows that are not written yet.
    pending: Changes,
    /// Whether all next hops must be compared with the maps.
    must_check_hops: bool,
    /// Whether routes have changed since the last refresh.
    is_network_stale: bool,
    /// Time of the last refresh.
    refreshed_at: Instant,
    /// Duration of the last refresh.
    refresh_duration: Duration,
    /// Differences in shared counters that the last tick found.
    count_differences: BTreeMap<u32, (u64, u64)>,
    announcements: Announcements,
    /// Finds other machines that reply for this director's VIPs.
    defense: Defense,
    /// Time of the last search for added addresses that are no longer needed.
    last_withdrawal: Instant,
    rate_estimates: RateEstimates,
    /// Detects servers whose replies bypass the director.
    reply_monitor: ReplyMonitor,
    /// Servers that an operator is draining.
    drain_watches: Mutex<DrainWatches>,
    /// Latency statistics of servers.
    latency: LatencyMonitor,
    /// Synchronization of flows with other directors.
    sync: Synchronizer,
    /// Counters of repairs.
    drift: Drift,
    /// Whether the last repair failed. The failure has been logged.
    repair_failed: bool,
    /// Maximum time to wait for the resolution of new servers' neighbors before the servers receive packets.
    resolve_timeout: Duration,
}

/// Returns the addresses of the services' servers.
fn server_addresses<'a>(
    state: &'a EngineState,
    services: &'a [&'a str],
) -> impl Iterator<Item = IpAddr> + use<'a> {
    let slots = services
        .iter()
        .filter_map(|name| state.allocation.services.get(*name));
    slots.flat_map(|slot| slot.dests.iter().map(|dest| dest.address))
}
