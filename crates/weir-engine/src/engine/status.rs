//! Reads the current state from the maps: [`Layer4Snapshot`], and the numbers of live flows for a plan.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use weir_abi::{REASONS, Traffic};
use weir_dataplane::Mode;
use weir_flow::model_forward;
use weir_health::{ServerHealth, State};
use weir_model::Service;
use weir_planner::allocation::{DestSlot, Removal, ServiceSlot, configured_server};
use weir_state::{Override, ServerStates, state_before_first_result};

use super::Engine;
use crate::error::Result;
use crate::ipvsadm_term::is_from_ipvsadm;
use crate::snapshot::{
    FlowTableStatus, InterfaceStatus, Layer4Snapshot, ServerState, ServerStatus, ServiceStatus,
    VipStatus,
};
use crate::totals::{combine_counters, totals};

/// With more servers than this, all rows are read in batches, including unused rows.
const BATCH_THRESHOLD: usize = 4_096;

impl Engine {
    /// Returns the current state.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub fn snapshot(&self, states: &ServerStates) -> Result<Layer4Snapshot> {
        self.snapshot_in_parts(states, usize::MAX, |_| ())
    }

    /// Like [`Self::snapshot`], but passes services to `send_part` whenever at least `part_servers` servers have been
    /// read. The returned snapshot contains only the remaining services.
    ///
    /// # Errors
    /// See [`Self::snapshot`].
    pub fn snapshot_in_parts(
        &self,
        states: &ServerStates,
        part_servers: usize,
        send_part: impl FnMut(Vec<ServiceStatus>),
    ) -> Result<Layer4Snapshot> {
        let maps = self.plane.maps();
        let services = self.services_in_parts(states, part_servers, send_part)?;
        let counts = maps.reasons()?;
        let count = |info: &weir_abi::ReasonInfo| {
            counts
                .get(info.reason.number() as usize)
                .copied()
                .unwrap_or(0)
        };
        Ok(Layer4Snapshot {
            revision: self.state.revision,
            interfaces: self.interfaces(),
            services,
            latency: self.latency_counters()?,
            reasons: REASONS
                .iter()
                .map(|info| (info.label, info.text, count(info)))
                .collect(),
            drift: self.drift,
            flows: FlowTableStatus {
                slots: u64::from(maps.flows.capacity()),
                entries: maps.flows.walk().count() as u64,
                expired: maps.sweep()?.expired,
            },
        })
    }

    /// Returns only the services of [`Self::snapshot`]: the other parts of a snapshot require a walk over the flow
    /// table.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub fn services(&self, states: &ServerStates) -> Result<Vec<ServiceStatus>> {
        self.services_in_parts(states, usize::MAX, |_| ())
    }

    fn services_in_parts(
        &self,
        states: &ServerStates,
        part_servers: usize,
        mut send_part: impl FnMut(Vec<ServiceStatus>),
    ) -> Result<Vec<ServiceStatus>> {
        let traffic = if self.rows.dests.len() > BATCH_THRESHOLD {
            self.plane.maps().all_traffic()?
        } else {
            Vec::new()
        };
        let (mut services, mut servers) = (Vec::new(), 0_usize);
        for service in &self.desired.services {
            if let Some(slot) = self.state.allocation.services.get(&service.name) {
                let service = self.service_status(service, slot, &traffic, states)?;
                servers += service.servers.len();
                services.push(service);
                if servers >= part_servers {
                    servers = 0;
                    send_part(std::mem::take(&mut services));
                }
            }
        }
        Ok(services)
    }

    fn interfaces(&self) -> Vec<InterfaceStatus> {
        let attach = self.desired.node.attach;
        // An interface that was removed has no name.
        let status = |(ifindex, mode): (&u32, &Mode)| {
            Some(InterfaceStatus {
                name: self.network.name_of(*ifindex)?.to_owned(),
                mode: mode.as_str(),
                reason: self.network.mode_reason(*ifindex, *mode, attach),
            })
        };
        self.network.attached.iter().filter_map(status).collect()
    }

    fn service_status(
        &self,
        service: &Service,
        slot: &ServiceSlot,
        traffic: &[Traffic],
        states: &ServerStates,
    ) -> Result<ServiceStatus> {
        let mut servers = Vec::new();
        let present = slot.dests.iter().filter(|dest| !dest.staged);
        let mut order: Vec<&DestSlot> = present.collect();
        let pool = self.desired.pool(&service.pool);
        let configured = pool.map(|pool| pool.servers.as_slice()).unwrap_or_default();
        let configured = configured
            .iter()
            .map(|server| (server.address, server.port));
        let positions: HashMap<_, usize> = configured.zip(0..).collect();
        let position = |dest: &DestSlot| positions.get(&(dest.address, dest.port)).copied();
        order.sort_by_key(|dest| {
            (
                dest.removed.is_some(),
                dest.sorry,
                position(dest).unwrap_or(usize::MAX),
            )
        });
        let mut sum = slot.retired;
        for dest in order {
            let server = self.server_status(service, dest, traffic, states)?;
            sum = sum.plus(server.totals);
            servers.push(server);
        }
        Ok(ServiceStatus {
            name: service.name.clone(),
            origin: if is_from_ipvsadm(&service.name) {
                "ipvsadm"
            } else {
                "file"
            },
            listen: service.listener_names(),
            vip: self.vip_status(service),
            forward: service.forward,
            scheduler: slot.scheduler.clone(),
            pool: service.pool.clone(),
            pool_state: states.exceptional_state(&service.pool),
            persistence: service.persistence.as_ref().map(ToString::to_string),
            one_packet: service.one_packet,
            totals: sum,
            servers,
        })
    }

    fn vip_status(&self, service: &Service) -> VipStatus {
        let Some(address) = service.listen.first().map(|listener| listener.address) else {
            return VipStatus::Absent;
        };
        if self.network.device_with(address).is_none() {
            VipStatus::Absent
        } else if self
            .state
            .undo
            .addresses
            .iter()
            .any(|(_, added)| *added == address)
        {
            VipStatus::Added
        } else {
            VipStatus::Local
        }
    }

    fn server_status(
        &self,
        service: &Service,
        dest: &DestSlot,
        traffic: &[Traffic],
        states: &ServerStates,
    ) -> Result<ServerStatus> {
        let maps = self.plane.maps();
        let live = maps.live(dest.id)?;
        let active = states
            .overrides()
            .get(&service.pool, &dest.name)
            .filter(|_| dest.removed.is_none());
        let server_health = states
            .health_in(&service.pool, &dest.name, &service.name)
            .filter(|_| dest.removed.is_none());
        let base = active.map_or(dest.weight, Override::weight);
        let configured = configured_server(&self.desired, service, dest);
        let pool = self.desired.pool(&service.pool);
        let initial = pool
            .zip(configured)
            .and_then(|(pool, server)| state_before_first_result(pool, server));
        let (state, reason) = state_and_reason(dest, active, server_health, initial);
        let forward = configured.map(|server| server.forward_in(service));
        let shown_health =
            server_health.filter(|_| active.is_none_or(|active| !active.hides_checks()));
        let since = match shown_health {
            Some(server_health) => server_health.since,
            None => Duration::from_millis(dest.since_ms),
        };
        Ok(ServerStatus {
            name: dest.name.clone(),
            address: dest.address,
            port: dest.port,
            forward: match forward {
                Some(forward) => forward,
                // A removed server's row contains its forwarding method.
                None => model_forward(maps.dests.get(dest.id)?.forward).unwrap_or(service.forward),
            },
            weight: dest.weight,
            effective_weight: dest.effective,
            state,
            reason,
            since: UNIX_EPOCH + states.last_change(&service.pool, &dest.name, since),
            overridden: active.map(|active| active.to_string()),
            active_connections: live.active,
            inactive_connections: live.inactive,
            persistent_connections: live.persistent.into(),
            overloaded: self.is_overloaded(dest)?,
            totals: match traffic.get(dest.id as usize) {
                Some(traffic) => combine_counters(&live, traffic),
                None => totals(maps, dest.id)?,
            },
            removed: dest.removed.is_some(),
            ejected: states
                .ejection(&service.pool, &dest.name, Some(&service.name))
                .filter(|_| dest.removed.is_none() && !dest.sorry)
                .cloned(),
            warning: self.warning(dest)?,
            handshakes: (live.syns, live.answered),
            last_syn_seconds: (live.answered == 0)
                .then(|| self.last_syn_age(dest, live.syns))
                .flatten()
                .map(|age| age.as_secs()),
            latency: self.latency_of(dest.id, dest.generation),
            check_weight: server_health
                .and_then(|server_health| server_health.reported_weight(base)),
            slow_start: None,
            checks: Vec::new(),
        })
    }

    fn is_overloaded(&self, dest: &DestSlot) -> Result<bool> {
        let maps = self.plane.maps();
        let row = maps.dests.get(dest.id)?.live;
        Ok(maps.live(row)?.overloaded != 0)
    }

    /// Returns the number of current flows of a service, or of one of its servers, named as in the file.
    pub fn live_flows(&self, service: &str, server: Option<&str>) -> u64 {
        let Some(slot) = self.state.allocation.services.get(service) else {
            return 0;
        };
        let matching_dests = slot
            .dests
            .iter()
            .filter(|dest| server.is_none_or(|server| dest.name == server));
        let rows = matching_dests.filter_map(|dest| self.plane.maps().live(dest.id).ok());
        rows.map(|live| live.active.wrapping_add(live.inactive))
            .fold(0, u64::wrapping_add)
    }
}

/// Returns a server's state and the reason for it. `initial` is the state before the first result of its checks;
/// `None` = it has no checks.
fn state_and_reason(
    dest: &DestSlot,
    active: Option<Override>,
    server_health: Option<&ServerHealth>,
    initial: Option<State>,
) -> (ServerState, String) {
    let reason = |text: &str| text.to_owned();
    match active {
        _ if dest.removed.is_some() => (
            ServerState::Drain,
            reason(match dest.removed {
                Some(Removal::Reset) => "removed from the configuration; its flows are reset",
                Some(Removal::Reschedule) => {
                    "removed from the configuration; its flows are rescheduled"
                }
                Some(Removal::Keep) | None => "removed from the configuration; its flows continue",
            }),
        ),
        Some(Override::Drain) => (ServerState::Drain, reason("weir server … drain")),
        Some(Override::Maint) => (ServerState::Maint, reason("weir server … maint")),
        _ if dest.sorry && dest.effective == 0 && server_health.is_none() => (
            ServerState::Unchecked,
            reason("standby: other servers are usable"),
        ),
        _ => match (server_health, initial) {
            (Some(server_health), _) => (server_health.state.into(), server_health.reason.clone()),
            (None, Some(initial)) => (initial.into(), reason("no result yet")),
            (None, None) => (ServerState::Unchecked, reason("no check configured")),
        },
    }
}
