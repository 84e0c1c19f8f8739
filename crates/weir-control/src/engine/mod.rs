//! The layer 4 director: applies a configuration to the data plane and the network, and keeps them in that state.
//!
//! [`Engine::apply`] plans with weir-planner before it writes anything (`write`), so a configuration that cannot be
//! applied changes nothing. Everything that packets use is in pinned maps. They remain when the engine ends, and the
//! next engine adopts them (`adopt`, `state`). The engine has no event loop, opens no client sockets and reads no
//! configuration file: the daemon does, and calls the engine from one task.

mod address;
mod adopt;
mod attach;
mod clean;
mod commit;
mod drift;
mod error;
mod explain;
mod explain_choice;
mod foreign_program;
mod handshakes;
mod journal;
mod latency;
mod listing;
mod maintenance;
mod mark;
mod network;
mod no_reply;
mod open;
mod open_connections;
mod origin;
mod rate_estimate;
mod reload;
mod repair;
mod route_index;
pub(crate) mod state;
mod status;
mod tree;
mod weights;
mod write;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_abi::Cursor;
use weir_dataplane::Dataplane;
use weir_model::{Indexed, Timeouts};
use weir_planner::allocation::{Facts, Former};
use weir_planner::row_set::{Changes, RowSet};
use weir_state::ServerStates;

use crate::snapshot::Drift;
use crate::vip::Announcements;

use self::latency::LatencyMonitor;
use self::network::Network;
use self::no_reply::ReplyMonitor;
use self::rate_estimate::RateEstimates;
use self::state::{Memory, StateFile};
use self::write::Writer;

pub use self::address::added_vips;
pub use self::clean::{Cleaned, clean, clean_unused, is_pinned};
pub use self::error::{Error, Result};
pub use self::handshakes::LastPass;
pub use self::listing::{Pinned, is_from_ipvsadm, with_ipvsadm_services};
pub use self::open::Restore;
pub use self::origin::{Claim, WeightOrder};

/// The directories that an engine uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Contains the socket, the lock and the state file.
    pub runtime_dir: PathBuf,
    /// Contains pinned programs, maps and links.
    pub pin_dir: PathBuf,
}

/// The result of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Revision of the active configuration.
    pub revision: u64,
}

/// The director.
#[derive(Debug)]
pub struct Engine {
    file: StateFile,
    pin_dir: PathBuf,
    memory: Memory,
    /// The whole configuration, including services of ipvsadm.
    desired: Indexed,
    /// The timeouts in the file; `ipvsadm --set` may have overridden them.
    file_timeouts: Timeouts,
    network: Network,
    plane: Dataplane,
    writer: Writer,
    rows: RowSet,
    /// Planned rows that are not written yet.
    pending: Changes,
    /// All next hops must be compared with the maps.
    hops_due: bool,
    /// Routes have changed since the last refresh; when that was, and how long it took.
    network_stale: bool,
    refreshed_at: Instant,
    refresh_duration: Duration,
    /// Differences of shared counters that the last tick found.
    count_differences: BTreeMap<u32, (u64, u64)>,
    announcements: Announcements,
    /// When unneeded added addresses were last searched for.
    last_withdrawal: Instant,
    rate_estimates: RateEstimates,
    /// Detects servers whose replies bypass the director.
    reply_monitor: ReplyMonitor,
    /// Statistics of servers' latency.
    latency: LatencyMonitor,
    /// Counters of repairs.
    drift: Drift,
    /// The last repair failed, and the failure has been logged.
    repair_failed: bool,
    /// How long to wait for the neighbours of new servers before the servers receive packets.
    resolve_timeout: Duration,
}

/// Addresses of the servers of some services.
fn addresses<'a>(
    memory: &'a Memory,
    touched: &'a [&'a str],
) -> impl Iterator<Item = IpAddr> + use<'a> {
    let slots = touched
        .iter()
        .filter_map(|name| memory.allocation.services.get(*name));
    slots.flat_map(|slot| slot.dests.iter().map(|dest| dest.address))
}

/// Allocates rows for some services. On an error, nothing has changed.
fn allocate(
    memory: &mut Memory,
    desired: &Indexed,
    plane: &Dataplane,
    touched: &[&str],
    states: &ServerStates,
) -> Result<Former> {
    let maps = plane.maps();
    let cursor = |row: u32| {
        let Cursor {
            generation,
            seq,
            current_weight,
            ..
        } = maps.cursors.get(row).unwrap_or(Cursor::ZERO);
        weir_sched::Cursor {
            generation,
            last_seq: seq,
            pass_weight: u32::try_from(current_weight).unwrap_or(0),
        }
    };
    let sizes = plane.sizes();
    let facts = Facts {
        services: sizes.services,
        dests: sizes.dests,
        now_ms: now_ms(),
        cursor: &cursor,
        weights: &|service, pool| weights::weights(service, pool, states),
    };
    let touched = touched.iter().copied();
    Ok(memory.allocation.reconcile(desired, touched, &facts)?)
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
