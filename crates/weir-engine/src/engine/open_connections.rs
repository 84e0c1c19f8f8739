//! Counts a server's open connections for a drain, from its counters and, where needed, the flow table.
//!
//! A server's counters separate active flows from all other flows. Whether another flow, or an incomplete handshake, is
//! still open depends on its TCP state and on whether replies pass through the director. With `nat`, the director sees
//! the FINs of both sides and recognizes a half-closed connection. With the other methods, it sees only the client's
//! FIN, so a half-closed flow counts as open while packets arrive ([`crate::drain_watch`]).

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use weir_abi::KIND_FORWARD;
use weir_flow::model_forward;
use weir_model::Forward;
use weir_planner::allocation::configured_server;

use super::Engine;
use crate::drain_watch::{ServerCounters, UncertainFlows};
use crate::error::Result;
use crate::network::tick;

impl Engine {
    /// Returns the numbers of open flows of a server, and of closed flows that have not expired, in all services that
    /// use its pool. Flows of a server with the same name in renamed or removed services count too, because an operator
    /// drains a server in order to stop it. An abandoned handshake is a closed flow.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub fn connections_of(&self, pool: &str, server: &str) -> Result<(u64, u64)> {
        let maps = self.plane.maps();
        // Whether replies pass through the director, by row.
        let mut rows: HashMap<u32, bool> = HashMap::new();
        for service in self.desired.services_of_pool(pool) {
            let Some(slot) = self.state.allocation.services.get(&service.name) else {
                continue;
            };
            let dests = slot.dests.iter();
            for dest in dests.filter(|dest| dest.name == server && dest.removed.is_none()) {
                let configured = configured_server(&self.desired, service, dest);
                let forward = configured.map_or(service.forward, |it| it.forward_in(service));
                rows.insert(dest.id, forward == Forward::Nat);
            }
        }
        let removed = self.state.allocation.removed_dests();
        for dest in removed.filter(|dest| dest.name == server) {
            let forward = model_forward(maps.dests.get(dest.id)?.forward);
            rows.insert(dest.id, forward == Some(Forward::Nat));
        }
        let mut counters = ServerCounters::default();
        for row in rows.keys() {
            let live = maps.live(*row)?;
            counters.active += live.active;
            counters.inactive += live.inactive;
            let packets = maps.traffic(*row)?.packets_in;
            counters.packets = counters.packets.wrapping_add(packets);
        }
        let mut watches = self
            .drain_watches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let open = watches.open(pool, server, counters, Instant::now(), || {
            self.uncertain_flows(&rows)
        });
        let total = counters.active + counters.inactive;
        Ok((open, total.saturating_sub(open)))
    }

    /// Walks the flow table, which may have millions of entries. Returns the flows of these rows, and the duration.
    fn uncertain_flows(&self, rows: &HashMap<u32, bool>) -> (UncertainFlows, Duration) {
        let started = Instant::now();
        let now = tick();
        let mut flows = UncertainFlows::default();
        for flow in self.plane.maps().flows.walk() {
            let meta = flow.meta();
            if meta.kind == KIND_FORWARD
                && let Some(sees_replies) = rows.get(&flow.dest())
            {
                flows.add(meta, *sees_replies, now);
            }
        }
        (flows, started.elapsed())
    }
}
