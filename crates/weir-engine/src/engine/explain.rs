//! Explains how a packet would be handled, from the rows that packets use, without advancing cursors.

use weir_abi::{Addr, FlowCold};
use weir_model::{Listener, Service};
use weir_planner::allocation::{DestSlot, ServiceSlot, configured_server};
use weir_planner::rows::rule;
use weir_planner::socket::is_socket;
use weir_sched::choice::criterion;
use weir_state::{ServerStates, state_before_first_result};

use super::Engine;
use super::explain_choice::Choice;
use super::explain_exclusion::{ExcludedServer, Exclusion};
use crate::error::Result;
use crate::packet::{Explanation, Packet};

/// Describes the clients of a socket service.
fn local_clients_of(service: &Service) -> String {
    let cgroup = match &service.cgroup {
        Some(path) => format!("in cgroup {path}"),
        None => "on this machine".to_owned(),
    };
    format!(
        "forward = \"socket\": processes {cgroup} get a server's address when they connect; packets to the VIP are not \
         handled"
    )
}

impl Engine {
    /// Returns the service, pool and server that would be selected for a packet, and the reasons.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub fn explain_packet(&self, packet: &Packet, states: &ServerStates) -> Result<Explanation> {
        let mut explanation = Explanation {
            packet: packet.to_string(),
            ..Explanation::default()
        };
        let Some((service, listener)) = self.service_of(packet) else {
            explanation.steps.push(format!(
                "no service listens on {}/{}",
                packet.protocol, packet.destination
            ));
            return Ok(explanation);
        };
        explanation.service = Some(service.name.clone());
        explanation.pool = Some(service.pool.clone());
        explanation.steps.push(format!(
            "listener {listener} of service {}, pool {}",
            service.name, service.pool
        ));
        let Some(slot) = self.state.allocation.services.get(&service.name) else {
            return Ok(explanation);
        };
        if is_socket(service) {
            explanation.steps.push(local_clients_of(service));
        }
        if let Some(dest) = self.flow_server(packet, slot) {
            explanation.steps.push(format!(
                "the packet belongs to a tracked flow, which is bound to {}",
                dest.name
            ));
            explanation.server = Some(dest.name.clone());
            return Ok(explanation);
        }
        let rule = rule(&self.desired, service, self.plane.sizes().dests);
        let usable = self.candidates(service, slot, states, &mut explanation)?;
        let scheduler = rule.scheduler;
        let random_outcome = (usable > 0).then(|| {
            let pool = &service.pool;
            format!("scheduler {scheduler} chooses one of {usable} servers of pool {pool}")
        });
        if is_socket(service) && scheduler.kind.hashes() {
            explanation.steps.push(format!(
                "a new socket: {scheduler} chooses among the candidates by the hash of the client's cgroup or socket"
            ));
            explanation.outcome = random_outcome;
            return Ok(explanation);
        }
        let reason = criterion(scheduler);
        explanation
            .steps
            .push(match self.explain_choice(slot, &rule, packet)? {
                Choice::Server(id) => {
                    let dest = slot.dests.iter().find(|dest| dest.id == id);
                    explanation.server = dest.map(|dest| dest.name.clone());
                    let server = explanation.server.as_deref().unwrap_or("an unknown server");
                    format!("a new flow: {scheduler} chooses {server} ({reason})")
                }
                Choice::Random => {
                    explanation.outcome = random_outcome;
                    format!("a new flow: {scheduler} chooses among the candidates ({reason})")
                }
                Choice::None => format!("a new flow: {scheduler} finds no usable server"),
            });
        Ok(explanation)
    }

    fn service_of(&self, packet: &Packet) -> Option<(&Service, &Listener)> {
        let port = packet.destination.port();
        let listeners = self.desired.services.iter().flat_map(|service| {
            service
                .listen
                .iter()
                .map(move |listener| (service, listener))
        });
        listeners
            .filter(|(_, listener)| {
                listener.protocol == packet.protocol
                    && listener.address == packet.destination.ip()
                    && listener.ports.contains(port)
            })
            .max_by_key(|(_, listener)| listener.ports.specificity())
    }

    /// Returns the server of the packet's flow.
    fn flow_server<'a>(&self, packet: &Packet, slot: &'a ServiceSlot) -> Option<&'a DestSlot> {
        let (src, dst): (Addr, Addr) = (packet.source.ip().into(), packet.destination.ip().into());
        let is_same = |cold: &FlowCold| {
            (cold.src, cold.dst, cold.proto) == (src, dst, packet.protocol.number())
                && (cold.sport.get(), cold.dport.get())
                    == (packet.source.port(), packet.destination.port())
        };
        let flow = self
            .plane
            .maps()
            .flows
            .walk()
            .find(|flow| is_same(&flow.cold))?;
        slot.dests.iter().find(|dest| dest.id == flow.dest())
    }

    /// Adds a step for each server. Returns the number of servers that accept new flows.
    fn candidates(
        &self,
        service: &Service,
        slot: &ServiceSlot,
        states: &ServerStates,
        explanation: &mut Explanation,
    ) -> Result<usize> {
        let mut usable = 0;
        for member in slot.members() {
            let Some(dest) = slot.dests.iter().find(|dest| dest.id == member.dest) else {
                continue;
            };
            let live = self.plane.maps().live(self.count_row(dest))?;
            let (weight, active, inactive) = (dest.effective, live.active, live.inactive);
            let own_counts = self.plane.maps().live(dest.id)?;
            let exclusion = match (weight, own_counts.overloaded) {
                (0, _) => {
                    let cause = match self.exclusion(service, dest, states) {
                        Exclusion::Down => {
                            let step = explanation.steps.len();
                            explanation.down.push((step, dest.name.clone()));
                            String::new()
                        }
                        Exclusion::Other(cause) => format!(": {cause}"),
                        Exclusion::Unknown => String::new(),
                    };
                    format!(", accepts no new flows{cause}")
                }
                (_, 0) => {
                    usable += 1;
                    String::new()
                }
                _ => ", at its threshold".to_owned(),
            };
            let measured = self.explain_latency(dest, active)?;
            explanation.steps.push(format!(
                "candidate {}: weight {weight}, {active} active, {inactive} inactive{measured}{exclusion}",
                dest.name
            ));
        }
        Ok(usable)
    }

    /// Returns why a server with the effective weight 0 accepts no new flows.
    fn exclusion(&self, service: &Service, dest: &DestSlot, states: &ServerStates) -> Exclusion {
        let (pool, server) = (service.pool.as_str(), dest.name.as_str());
        let initial = || {
            let configured = configured_server(&self.desired, service, dest)?;
            state_before_first_result(self.desired.pool(pool)?, configured)
        };
        let server_health = states.health_in(pool, server, &service.name);
        let excluded = ExcludedServer {
            active_override: states.overrides().get(pool, server),
            state: server_health.map(|health| health.state).or_else(initial),
            ejection: states.ejection(pool, server, Some(&service.name)),
            configured_weight: dest.weight,
            pool_state: states.exceptional_state(pool),
        };
        excluded.exclusion()
    }

    /// Returns the row with the server's flow counts: its own row or a shared row.
    pub(super) fn count_row(&self, dest: &DestSlot) -> u32 {
        dest.shared
            .map_or(dest.id, |row| self.plane.sizes().dests + row)
    }
}
