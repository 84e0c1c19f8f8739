//! The layer 4 director: brings the data plane and the network to a configuration, and keeps them there.
//!
//! [`Engine::apply`] plans with weir-planner and only then writes (`write`): a configuration that cannot be had changes
//! nothing. What packets meet lives in pinned maps; an engine that goes away leaves them as they are, and the next one
//! adopts them (`adopt`, `state`). It refuses to run a loop, open a socket for clients or read a file of configuration:
//! the daemon above does, and calls from one task.

mod address;
mod adopt;
mod attach;
mod choice;
mod clean;
mod drift;
mod error;
mod explain;
mod handshakes;
mod journal;
mod listing;
mod mark;
mod mend;
mod network;
mod open;
mod origin;
mod rate;
mod reload;
mod remaining;
mod settle;
mod silence;
pub(crate) mod state;
mod status;
mod taken;
mod tree;
mod upkeep;
mod way;
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

use self::network::Network;
use self::rate::RateBook;
use self::silence::Silent;
use self::state::{Memory, StateFile};
use self::write::Writer;

pub use self::address::added_vips;
pub use self::clean::{Cleaned, clean, clean_unused, is_pinned};
pub use self::error::{Error, Result};
pub use self::handshakes::Passed;
pub use self::listing::{Pinned, is_made, with_made};
pub use self::open::Restore;
pub use self::origin::{Claim, WeightOrder};

/// Where an engine keeps what outlives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Socket, lock and state file.
    pub runtime_dir: PathBuf,
    /// Pinned programs, maps and links.
    pub pin_dir: PathBuf,
}

/// What a reload did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The number of the configuration in force.
    pub revision: u64,
}

/// The director.
#[derive(Debug)]
pub struct Engine {
    file: StateFile,
    pin_dir: PathBuf,
    memory: Memory,
    /// All of the configuration, ipvsadm's part included.
    desired: Indexed,
    /// The file's timeouts: `ipvsadm --set` may have put others into force.
    file_timeouts: Timeouts,
    network: Network,
    plane: Dataplane,
    writer: Writer,
    rows: RowSet,
    /// Rows that are planned and may not be written yet.
    pending: Changes,
    /// Next hops of all servers may be others than what is written.
    hops_due: bool,
    /// Routes changed since the picture was taken, when it was taken, and how long that took.
    stale: bool,
    taken: Instant,
    taking: Duration,
    /// Differences of shared counts at the last upkeep.
    off: BTreeMap<u32, (u64, u64)>,
    announcements: Announcements,
    /// When it was last asked which added addresses are needed no more.
    withdrawn: Instant,
    rate_book: RateBook,
    /// Servers whose replies do not come through here.
    silent: Silent,
    /// What was mended.
    drift: Drift,
    /// Something could not be mended, and that was said.
    unmended: bool,
    /// How long new servers' neighbours are waited for before they may get packets.
    patience: Duration,
}

/// Where the servers of some services are.
fn addresses<'a>(
    memory: &'a Memory,
    touched: &'a [&'a str],
) -> impl Iterator<Item = IpAddr> + use<'a> {
    let slots = touched
        .iter()
        .filter_map(|name| memory.allocation.services.get(*name));
    slots.flat_map(|slot| slot.dests.iter().map(|dest| dest.address))
}

/// Gives rows to some services; on an error nothing has changed.
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
