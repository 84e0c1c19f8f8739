//! Counts the open connections to a server, for callers that wait until the server is drained.
//!
//! A server's counters separate established flows from all other flows. Whether another flow is still open depends on
//! its TCP state and on whether replies pass through the director. With `nat`, the director sees the FINs of both sides
//! and recognizes a half-closed connection. With the other methods, it sees only the client's FIN, so a half-closed
//! flow counts as open while packets arrive.

use std::collections::HashMap;

use weir_abi::{KIND_FORWARD, State};
use weir_flow::model_forward;
use weir_model::Forward;
use weir_planner::allocation::configured_server;

use super::Engine;
use crate::error::Result;
use crate::network::tick;

impl Engine {
    /// Returns the numbers of open flows of a server, and of closed flows that have not expired, in all services that
    /// use its pool. Flows of a server with the same name in renamed or removed services count too, because an operator
    /// drains a server in order to stop it.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub fn connections_of(&self, pool: &str, server: &str) -> Result<(u64, u64)> {
        let maps = self.plane.maps();
        let (mut active, mut inactive) = (0, 0);
        let mut rows: HashMap<u32, bool> = HashMap::new();
        for service in self.desired.services_of_pool(pool) {
            let Some(slot) = self.state.allocation.services.get(&service.name) else {
                continue;
            };
            let dests = slot.dests.iter();
            for dest in dests.filter(|dest| dest.name == server && dest.removed.is_none()) {
                let live = maps.live(dest.id)?;
                active += live.active;
                inactive += live.inactive;
                let configured = configured_server(&self.desired, service, dest);
                let forward = configured.map_or(service.forward, |it| it.forward_in(service));
                rows.insert(dest.id, forward == Forward::Nat);
            }
        }
        let removed = self.state.allocation.removed_dests();
        for dest in removed.filter(|dest| dest.name == server) {
            let live = maps.live(dest.id)?;
            active += live.active;
            inactive += live.inactive;
            let forward = model_forward(maps.dests.get(dest.id)?.forward);
            rows.insert(dest.id, forward == Some(Forward::Nat));
        }
        // Walk the table only if the result depends on it: it may have millions of entries.
        if active > 0 || inactive == 0 {
            return Ok((active, inactive));
        }
        let now = tick();
        let mut open = 0;
        for flow in maps.flows.walk() {
            let meta = flow.meta();
            if meta.kind == KIND_FORWARD
                && let Some(sees_replies) = rows.get(&flow.dest())
            {
                open += u64::from(is_open(meta.state, *sees_replies, meta.seen == now));
            }
        }
        Ok((open, inactive.saturating_sub(open)))
    }
}

/// Returns whether a flow can still carry data. `is_recent`: a packet arrived in the current tick.
fn is_open(state: u8, sees_replies: bool, is_recent: bool) -> bool {
    let state = State::ALL.iter().find(|known| **known as u8 == state);
    match state {
        Some(State::Established | State::Udp) => true,
        Some(State::FinWait | State::CloseWait) => sees_replies || is_recent,
        Some(State::SynSent | State::SynRecv | State::Synack) => is_recent,
        Some(State::None | State::TimeWait | State::Close | State::LastAck | State::Listen)
        | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_and_abandoned_flows_are_not_open() {
        let open =
            |state: State, sees_replies, is_recent| is_open(state as u8, sees_replies, is_recent);
        assert!(open(State::Established, false, false));
        assert!(open(State::Udp, true, false));
        for closed in [State::TimeWait, State::Close, State::LastAck, State::None] {
            assert!(!open(closed, true, true), "{closed:?}");
        }
        // Half-closed.
        assert!(open(State::CloseWait, true, false));
        assert!(open(State::FinWait, false, true));
        assert!(!open(State::FinWait, false, false));
        // An abandoned handshake does not block draining.
        assert!(!open(State::SynRecv, true, false));
    }
}
