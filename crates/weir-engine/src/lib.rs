//! Implements the layer 4 engine: applies configurations to the data plane and the network, and repairs drift.
//!
//! The caller opens the engine in two steps ([`Opening`]), and then calls one [`Engine`] from one task, with
//! configurations, weights, network events and ticks. The results are plain values: [`snapshot`], [`Explanation`],
//! listings, [`Handshakes`]. The engine has no callbacks and no event loop, does not listen for clients or connect to
//! servers, reads no configuration file, and does not depend on the proxy, the API or the keeper. It gets the state of
//! servers ([`weir_state::ServerStates`]) as an argument, never changes it, and keeps no copy. It shares only the map
//! of probes ([`weir_dataplane::ProbeTable`]), to which probes write directly.
//!
//! | methods | purpose |
//! |---|---|
//! | [`Opening::begin`], [`Opening::finish`], [`Opening::cancel`] | adopt the pinned data plane, or create it |
//! | [`Engine::apply`], [`Engine::apply_weights`], [`Engine::edit_table`] | change the maps that packets use |
//! | [`Engine::record_health`], [`Engine::copy_override`] | add to the state file |
//! | [`Engine::network_event`], [`Engine::tick`], [`Engine::repair_drift`] | keep rows and network up to date |
//! | [`Engine::snapshot`], [`Engine::explain_packet`], [`Engine::listing`], [`Engine::read_handshakes`] | read |
//! | [`Engine::is_current`], [`Engine::transfer_counts`], [`Engine::detach_tc`] | hand over to another Weir process |
//!
//! [`PinnedEngine`], [`PersistedState`], [`added_vips`] and [`with_ipvsadm_services`] read the state that the last
//! engine left behind, without an engine; [`clean()`] removes this state. [`vip`] adds addresses for a proxy while
//! there is no engine.
//!
//! Modules import in one direction: values and errors first, then records and files (`stored_state`, `journal`,
//! `state`), the network, the row writer (`write`), and finally `engine`, whose submodules implement the operations.

mod adopt;
mod allocate;
mod clean;
mod drain_watch;
mod engine;
mod error;
mod ipvsadm_term;
mod journal;
mod listener_conflict;
mod listing;
mod mark_routing;
mod network;
mod origin;
mod packet;
mod paths;
mod pinned;
mod rate_estimate;
mod reply_monitor;
mod route_index;
pub mod snapshot;
mod state;
mod stored_state;
mod totals;
mod tree;
mod unanswered;
pub mod vip;
mod write;

pub use self::clean::{CleanSummary, clean, clean_unused, discard_changes, has_changes, is_pinned};
pub use self::engine::{
    AdjustedWeights, ApplyOutcome, Engine, Handshakes, Opening, SyncCounts, WeightChange,
    weight_change,
};
pub use self::error::{Error, Result};
pub use self::ipvsadm_term::is_from_ipvsadm;
pub use self::listener_conflict::ListenerConflict;
pub use self::network::is_paravirtual;
pub use self::origin::Origin;
pub use self::packet::{Explanation, Packet, PacketError};
pub use self::paths::{LOCK_FILE, Paths};
pub use self::pinned::{PersistedState, PinnedEngine, added_vips, with_ipvsadm_services};
pub use self::state::Unreadable;
