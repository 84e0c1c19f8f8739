//! Calls weir-planner's row allocation with the engine's cursors, map sizes and server weights.

use std::time::{SystemTime, UNIX_EPOCH};

use weir_abi::Cursor;
use weir_dataplane::Dataplane;
use weir_model::{Indexed, Pool};
use weir_planner::allocation::{AllocationInput, PoolWeights, PreviousAllocation, ServerWeight};
use weir_state::ServerStates;

use crate::error::Result;
use crate::stored_state::EngineState;

/// Allocates rows for the services in `touched` and their servers. Returns the previous slots, for a rollback. On
/// error, nothing changes.
pub(crate) fn allocate(
    state: &mut EngineState,
    desired: &Indexed,
    plane: &Dataplane,
    touched: &[&str],
    states: &ServerStates,
) -> Result<PreviousAllocation> {
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
    let allocation_input = AllocationInput {
        service_rows: sizes.services,
        dest_rows: sizes.dests,
        now_ms: now_ms(),
        cursor: &cursor,
        weights: &|service, pool| weights(service, pool, states),
    };
    let touched = touched.iter().copied();
    Ok(state
        .allocation
        .reconcile(desired, touched, &allocation_input)?)
}

/// Returns the weights of a pool's servers in a service, for the planner.
fn weights(service: &str, pool: &Pool, states: &ServerStates) -> PoolWeights {
    let weights = states.weights(pool, Some(service));
    let servers = weights.servers.into_iter().map(|weight| ServerWeight {
        effective: weight.effective,
        base: weight.base,
        removed: weight.removed,
        quiesced: weight.quiesced,
        down: weight.down,
    });
    PoolWeights {
        servers: servers.collect(),
        sorry: weights.sorry.map_or(0, |sorry| sorry.effective),
    }
}

/// Returns the current time in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
