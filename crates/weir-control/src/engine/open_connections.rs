//! Which connections of a server are open, for whoever waits for them to end.
//!
//! The counts of a server tell established flows from all others; whether one of the others is still open follows from
//! its state, and from whether replies pass here. Under `nat` both sides' FINs are seen, so that a half-closed
//! connection is known to be one. Under the other methods the client's FIN is all that is seen: such a flow counts as
//! open for as long as packets come.

use std::collections::HashMap;

use weir_abi::{KIND_FORWARD, State};
use weir_model::Forward;
use weir_planner::allocation::configured;

use super::network::tick;
use super::{Engine, Result};

impl Engine {
    /// Flows of a server over all services of its pool: those that are open, and those that are over and have not
    /// expired.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn connections_of(&self, pool: &str, server: &str) -> Result<(u64, u64)> {
        let maps = self.plane.maps();
        let (mut active, mut inactive) = (0, 0);
        let mut rows: HashMap<u32, bool> = HashMap::new();
        for service in self.desired.users(pool) {
            let Some(slot) = self.memory.allocation.services.get(&service.name) else {
                continue;
            };
            let dests = slot.dests.iter();
            for dest in dests.filter(|dest| dest.name == server && dest.removed.is_none()) {
                let live = maps.live(dest.id)?;
                active += live.active;
                inactive += live.inactive;
                let configured = configured(&self.desired, service, dest);
                let forward = configured.map_or(service.forward, |it| it.forward_in(service));
                rows.insert(dest.id, forward == Forward::Nat);
            }
        }
        // The table is walked only when the answer depends on it: it may have millions of entries.
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

/// Whether a flow may still carry data; `is_recent` = a packet of it came just now.
fn is_open(state: u8, sees_replies: bool, is_recent: bool) -> bool {
    let state = State::ALL.iter().find(|known| **known as u8 == state);
    match state {
        Some(State::Established | State::Udp) => true,
        Some(State::FinWait | State::CloseWait) => sees_replies || is_recent,
        Some(State::SynSent | State::SynRecv | State::Synack) => is_recent,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_flow_is_not_waited_for() {
        let open =
            |state: State, sees_replies, is_recent| is_open(state as u8, sees_replies, is_recent);
        assert!(open(State::Established, false, false));
        assert!(open(State::Udp, true, false));
        for closed in [State::TimeWait, State::Close, State::LastAck, State::None] {
            assert!(!open(closed, true, true), "{closed:?}");
        }
        // Half-closed, by what is seen of it.
        assert!(open(State::CloseWait, true, false));
        assert!(open(State::FinWait, false, true));
        assert!(!open(State::FinWait, false, false));
        // A handshake that nobody completes ends nothing.
        assert!(!open(State::SynRecv, true, false));
    }
}
