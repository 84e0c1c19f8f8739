//! Creates the status document from a snapshot.

use std::time::UNIX_EPOCH;

use weir_health::{Ejection, Lateness};
use weir_model::Forward;

use super::{
    Check, Checks, Counters, EjectionStatus, Flows, Handshakes, Interface, Latency, OpenFiles,
    PacketPaths, Reason, Report, Server, Service, Traces, Warning, rfc3339,
};
use crate::snapshot::{
    CheckStatus, ServerState, ServerStatus, ServiceStatus, Snapshot, Totals, VipStatus,
};
use weir_probing::ProbeStats;

impl From<&Snapshot> for Report {
    fn from(snapshot: &Snapshot) -> Self {
        let interface = |status: &crate::snapshot::InterfaceStatus| Interface {
            interface: status.name.clone(),
            mode: status.mode.to_owned(),
            reason: status.reason.clone(),
        };
        let reason = |(reason, description, packets): &(&str, &str, u64)| Reason {
            reason: (*reason).to_owned(),
            description: (*description).to_owned(),
            packets: *packets,
        };
        let nonzero_reasons = |counters: &[(&'static str, &'static str, u64)]| -> Vec<Reason> {
            let nonzero = counters.iter().filter(|(_, _, count)| *count != 0);
            nonzero.map(reason).collect()
        };
        let reasons = nonzero_reasons(&snapshot.reasons);
        let forwarded = snapshot
            .services
            .iter()
            .map(|service| service.totals.packets_in + service.totals.packets_out)
            .sum();
        Self {
            ways: PacketPaths::new(forwarded, &reasons),
            revision: snapshot.revision,
            pid: None,
            restarts: 0,
            last_death: None,
            draining: Vec::new(),
            xdp: snapshot.interfaces.iter().map(interface).collect(),
            services: snapshot
                .services
                .iter()
                .map(Service::from)
                .chain(snapshot.proxies.iter().map(Service::from))
                .collect(),
            flows: Flows {
                slots: snapshot.flows.slots,
                entries: snapshot.flows.entries,
                expired: snapshot.flows.expired,
            },
            sources: Vec::new(),
            checks: (snapshot.probing.targets > 0).then(|| Checks::from(&snapshot.probing)),
            latency: nonzero_reasons(&snapshot.latency),
            reasons,
            drift: snapshot.drift,
            vrrp: Vec::new(),
            announce: Vec::new(),
            announce_error: None,
            announce_warning: None,
            drained: false,
            pins_are_temporary: false,
            sync: None,
            tracing: snapshot.traces.as_ref().map(Traces::from),
            cluster: None,
            reloads: Vec::new(),
            reload_counts: super::ReloadCounts::default(),
            admin_certificates: Vec::new(),
            certificate_error: None,
            list_error: None,
            open_files: snapshot.open_files.as_ref().map(OpenFiles::from),
        }
    }
}

impl From<&crate::snapshot::OpenFiles> for OpenFiles {
    fn from(status: &crate::snapshot::OpenFiles) -> Self {
        let numbers = &status.numbers;
        Self {
            limit: numbers.limit,
            clients: numbers.clients,
            servers: numbers.servers,
            clients_max: numbers.clients_max,
            exceeding: status.exceeding.clone(),
        }
    }
}

impl From<&ServiceStatus> for Service {
    fn from(status: &ServiceStatus) -> Self {
        let present = status.servers.iter().filter(|server| !server.removed);
        Self {
            name: status.name.clone(),
            origin: status.origin.to_owned(),
            listen: status.listen.clone(),
            vip: vip(status.vip).to_owned(),
            forward: forward(status.forward, present.map(|server| server.forward)),
            scheduler: status.scheduler.clone(),
            pool: status.pool.clone(),
            pool_state: status.pool_state.map(|state| state.as_str().to_owned()),
            pool_cause: status.pool_state.map(|state| state.cause().to_owned()),
            persistence: status.persistence.clone(),
            one_packet: status.one_packet,
            totals: Counters::from(&status.totals),
            proxy: None,
            servers: status.servers.iter().map(Server::from).collect(),
        }
    }
}

impl From<&ServerStatus> for Server {
    fn from(status: &ServerStatus) -> Self {
        Self {
            address: status.name.clone(),
            pool: None,
            forward: status.forward.to_string(),
            weight: status.weight,
            effective_weight: status.effective_weight,
            state: state(status.state).to_owned(),
            reason: status.reason.clone(),
            since: rfc3339(status.since),
            overridden: status.overridden.clone(),
            removed: status.removed,
            ejected: status.ejected.as_ref().map(EjectionStatus::from),
            warning: status.warning.as_ref().map(Warning::from),
            handshakes: Some(status.handshakes).filter(|(syns, _)| *syns > 0).map(
                |(syns, finished)| Handshakes {
                    syns,
                    finished,
                    last_syn_seconds: status.last_syn_seconds,
                },
            ),
            latency: status.latency.as_ref().map(Latency::from),
            check_weight: status.check_weight,
            slow_start: status.slow_start,
            checks: status.checks.iter().map(Check::from).collect(),
            active_connections: status.active_connections,
            inactive_connections: status.inactive_connections,
            persistent_connections: status.persistent_connections,
            overloaded: status.overloaded,
            totals: Counters::from(&status.totals),
            proxy: None,
        }
    }
}

impl From<&CheckStatus> for Check {
    fn from(status: &CheckStatus) -> Self {
        Self {
            check: status.what.clone(),
            state: status.state.to_owned(),
            reason: status.reason.clone(),
            results: status.results.clone(),
            probes: status.counts.probes,
            failures: status.counts.failures,
            time_us: status.counts.total_duration.as_micros() as u64,
            last_us: status.counts.last_duration.as_micros() as u64,
            downs: status.counts.downs,
            downtime_s: status.counts.downtime.as_secs(),
            rise: status.counts.thresholds.0,
            fall: status.counts.thresholds.1,
        }
    }
}

impl From<&ProbeStats> for Checks {
    fn from(probing: &ProbeStats) -> Self {
        let bounds = Lateness::BOUNDS_MS.into_iter().map(Some).chain([None]);
        Self {
            targets: probing.targets as u64,
            probes: probing.probes,
            lateness: bounds.zip(*probing.lateness.counts()).collect(),
        }
    }
}

impl From<&Ejection> for EjectionStatus {
    fn from(ejection: &Ejection) -> Self {
        let time = |since: std::time::Duration| rfc3339(UNIX_EPOCH + since);
        Self {
            reason: ejection.reason.clone(),
            since: time(ejection.since),
            until: time(ejection.until),
        }
    }
}

impl From<&crate::snapshot::Warning> for Warning {
    fn from(warning: &crate::snapshot::Warning) -> Self {
        Self {
            reason: warning.reason.clone(),
            since: rfc3339(warning.since),
            last_seen_seconds: warning.last_seen_seconds,
        }
    }
}

impl From<&Totals> for Counters {
    fn from(totals: &Totals) -> Self {
        Self {
            connections: totals.connections,
            stateless: totals.stateless,
            packets_in: totals.packets_in,
            packets_out: totals.packets_out,
            bytes_in: totals.bytes_in,
            bytes_out: totals.bytes_out,
        }
    }
}

/// Returns the forwarding method that all servers share, or `mixed` if they differ. If there are no servers, returns
/// the service's method.
fn forward(default: Forward, mut servers: impl Iterator<Item = Forward>) -> String {
    let first = servers.next().unwrap_or(default);
    if servers.all(|other| other == first) {
        first.to_string()
    } else {
        "mixed".to_owned()
    }
}

pub(super) const fn vip(status: VipStatus) -> &'static str {
    match status {
        VipStatus::Local => "local",
        VipStatus::Added => "added",
        VipStatus::Absent => "absent",
    }
}

pub(super) const fn state(state: ServerState) -> &'static str {
    state.as_str()
}
