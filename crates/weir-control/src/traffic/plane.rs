//! Implements the daemon's [`Plane`] for both kinds of services.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::Duration;

use weir_health::{SavedState, SuspendedServers};
use weir_model::{Desired, Pool, ProxyProtocol};
use weir_netlink::Event;
use weir_state::{EjectedServer, HealthEvent, Override, PoolChange, ServerUpdate};
use weir_sys::Channel;

use super::handover::Handover;
use super::layer4::Layer4;
use super::{Error, Traffic, needs_engine};
use crate::configuration::floating_ips;
use crate::explain::{ExplainResponse, Packet, ServerInService, describe_failover};
use crate::ipvsadm_message as ipvsadm;
use crate::keeper;
use crate::plane::{LastPassedProbe, Plane, PlaneConfiguration};
use crate::runtime_dir::RemainingConnections;
use crate::snapshot::{OpenFiles, Snapshot};
use crate::status::Sync;
use weir_engine::{Engine, ListenerConflict};
use weir_probing::PathTable;

impl Plane for Traffic {
    type Error = Error;

    fn preload_configuration(&self) {
        if let Some(engine) = &self.engine {
            engine.preload_configuration();
        }
    }

    async fn apply(&mut self, plane_configuration: PlaneConfiguration<'_>) -> Result<u64, Error> {
        let desired = plane_configuration.desired;
        self.check_privileges(desired)?;
        self.check_sections(&plane_configuration)?;
        let prepared = self.prepare(desired)?;
        let is_engine_needed = needs_engine(desired) || self.needs_engine_for_addresses(desired);
        match &mut self.engine {
            Some(engine) => engine.apply(plane_configuration, &self.states).await?,
            None if is_engine_needed => self.open_engine(plane_configuration, None).await?,
            None => {
                if let Err(error) = self.vips.apply(desired).await {
                    if let Err(rollback_error) = self.vips.apply(&self.desired).await {
                        tracing::warn!(error = %rollback_error, "failed to restore the added addresses");
                    }
                    return Err(error.into());
                }
            }
        }
        let pools = match &self.engine {
            Some(engine) => engine.desired().pools.iter(),
            None => desired.pools.iter(),
        };
        self.states.handle_configuration(pools);
        self.commit(prepared, desired);
        self.store_open_request(plane_configuration);
        Ok(self.revision())
    }

    fn reload_certificates(&mut self, desired: &Desired) -> Result<(), Error> {
        let prepared = self.prepare(desired)?;
        self.proxy.commit(prepared);
        self.pass_tickets();
        Ok(())
    }

    async fn update_server(
        &mut self,
        pool: &str,
        address: &str,
        update: ServerUpdate,
    ) -> Result<(), Error> {
        let (mut planes, states) = self.planes();
        planes.set_override(states, (pool, address), update)
    }

    fn active_override(&self, pool: &str, server: &str) -> Option<Override> {
        self.states.overrides().get(pool, server)
    }

    fn apply_health(&mut self, events: Vec<HealthEvent>) -> Result<(), Error> {
        self.handle_health(events)
    }

    fn saved_state(&self, pool: &str, server: &str) -> Option<SavedState> {
        self.states.saved_state(pool, server)
    }

    fn is_withdrawn(&self, pool: &str, server: &str) -> bool {
        let active = self.states.overrides().get(pool, server);
        active.is_some_and(Override::hides_checks)
    }

    fn ejected(&self) -> BTreeSet<EjectedServer> {
        self.states.ejected()
    }

    fn end_ejections_except(&mut self, kept: &BTreeSet<EjectedServer>) -> Result<(), Error> {
        let pools = self.states.end_ejections_except(kept);
        self.apply_weights(&pools)
    }

    fn suspended(&self) -> SuspendedServers {
        self.states.suspended_servers()
    }

    fn serves(&self, pool: &str) -> bool {
        self.states.serves(pool)
    }

    fn is_settling(&self, pool: &Pool) -> bool {
        self.states.is_settling(pool)
    }

    fn is_attached(&self) -> bool {
        self.engine.as_ref().is_some_and(Layer4::is_attached)
    }

    fn smallest_mtu(&self) -> Option<u32> {
        self.engine.as_ref().and_then(Layer4::smallest_mtu)
    }

    fn take_pool_changes(&mut self) -> Vec<PoolChange> {
        self.states.take_pool_changes()
    }

    fn path_table(&self) -> Option<PathTable> {
        self.engine.as_ref().map(Layer4::path_table)
    }

    fn listener_conflict(&self, desired: &Desired) -> Option<ListenerConflict> {
        self.engine.as_ref()?.listener_conflict(desired)
    }

    /// Executes a request from ipvsadm. Opens the engine if there are only proxy services.
    async fn ipvsadm(&mut self, request: &ipvsadm::Request) -> Result<ipvsadm::Response, Error> {
        if self.engine.is_none() {
            self.reopen_engine().await?;
        }
        if let ipvsadm::Request::Edits(edits) = request {
            let (mut planes, states) = self.planes();
            let results = planes.edit_table(states, edits).await;
            return Ok(ipvsadm::Response::Edits(results));
        }
        let Some(engine) = &mut self.engine else {
            return Ok(ipvsadm::Response::Edits(Vec::new()));
        };
        Ok(match request {
            ipvsadm::Request::Edits(_) | ipvsadm::Request::Listing => {
                ipvsadm::Response::Listing(engine.listing()?)
            }
            ipvsadm::Request::Connections => ipvsadm::Response::Connections(engine.connections()?),
            ipvsadm::Request::Timeouts => ipvsadm::Response::Timeouts(engine.timeouts()?),
            // The list is empty without `[sync]`. If this process synchronizes flows, the request has already been
            // handled.
            ipvsadm::Request::Daemons => ipvsadm::Response::Daemons(
                engine
                    .sync_status()?
                    .map(|status| status.daemons)
                    .unwrap_or_default(),
            ),
        })
    }

    fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut snapshot = match &self.engine {
            Some(engine) => engine.snapshot(&self.states)?.into(),
            None => Snapshot {
                revision: self.revision(),
                ..Snapshot::default()
            },
        };
        snapshot.proxies = self.proxies();
        snapshot.open_files = (!snapshot.proxies.is_empty()).then(|| OpenFiles {
            numbers: self.proxy.descriptors(),
            exceeding: self.proxy.excessive_limits(&self.desired),
        });
        snapshot.traces = self.traces.status();
        Ok(snapshot)
    }

    fn services(&self) -> Result<Snapshot, Error> {
        let mut snapshot = match &self.engine {
            Some(engine) => engine.services(&self.states)?.into(),
            None => Snapshot::default(),
        };
        snapshot.proxies = self.proxies();
        Ok(snapshot)
    }

    fn added_vips(&self) -> Vec<(String, IpAddr)> {
        self.all_added_vips()
    }

    fn live_flows(&self, service: &str, server: Option<&str>) -> u64 {
        let Some(status) = self
            .proxy
            .status()
            .into_iter()
            .find(|status| status.name == service)
        else {
            return self
                .engine
                .as_ref()
                .map_or(0, |engine| engine.live_flows(service, server));
        };
        match server {
            None => status.clients,
            Some(name) => status
                .servers
                .iter()
                .filter(|server| server.name == name)
                .map(|server| server.active)
                .sum(),
        }
    }

    fn connections(&self, pool: &str, server: &str) -> Result<(u64, u64), Error> {
        let (mut open, closed) = match &self.engine {
            Some(engine) => engine.connections_of(pool, server)?,
            None => (0, 0),
        };
        let services = self.proxy.status();
        let servers = services.iter().flat_map(|service| &service.servers);
        let matching = servers.filter(|status| status.pool == pool && status.name == server);
        // Each service's count already includes the connections of all services.
        open += matching.map(|server| server.active).max().unwrap_or(0);
        Ok((open, closed))
    }

    fn explain(
        &self,
        packet: &Packet,
        last_result: &dyn Fn(&ServerInService<'_>) -> Option<String>,
    ) -> Result<ExplainResponse, Error> {
        let response = match &self.engine {
            Some(engine) => {
                let explanation = engine.explain_packet(packet, &self.states)?;
                let desired = engine.desired();
                let service = explanation.service.as_deref();
                let service = service.and_then(|service| desired.service(service));
                let failover = service.and_then(|service| {
                    describe_failover(packet, desired, service, || floating_ips(desired))
                });
                ExplainResponse::new(explanation, last_result, failover)
            }
            None => ExplainResponse {
                packet: packet.to_string(),
                ..ExplainResponse::default()
            },
        };
        match self.proxy_at(packet) {
            // The data plane processes packets before any socket receives them.
            Some(proxy) if response.service.is_none() => Ok(ExplainResponse {
                packet: response.packet,
                service: Some(proxy.name.clone()),
                at: None,
                pool: Some(proxy.pool.clone()),
                server: None,
                steps: vec![proxy_step(proxy.protocol).to_owned()],
                outcome: Some(format!("proxy service {} handles it", proxy.name)),
            }),
            _ => Ok(response),
        }
    }

    async fn network_event(&mut self, event: &Event) -> Result<(), Error> {
        match &mut self.engine {
            Some(engine) => engine.network_event(event).await,
            None => {
                if matches!(
                    event,
                    Event::Link { .. } | Event::Address { .. } | Event::Lost
                ) {
                    self.vips.note_change();
                }
                Ok(())
            }
        }
    }

    async fn repair_drift(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.repair_drift().await;
        }
    }

    fn read_handshakes(&mut self, passed: &LastPassedProbe<'_>) -> Result<(), Error> {
        let handshakes = self.watch_handshakes(passed);
        self.read_latency_counts().and(handshakes)
    }

    fn publish_latency(&mut self) -> Result<Option<Duration>, Error> {
        match &mut self.engine {
            Some(engine) => engine.publish_latency(),
            None => Ok(None),
        }
    }

    fn synchronizes(&self) -> bool {
        self.host.is_some()
    }

    fn sync_status(&self) -> Option<Sync> {
        match self.engine.as_ref()?.sync_status() {
            Ok(status) => status.map(Sync::from),
            Err(error) => {
                tracing::debug!(%error, "failed to read the status of flow synchronization");
                None
            }
        }
    }

    fn is_moving_flows(&self) -> bool {
        let engine = self.engine.as_ref();
        let status = engine.and_then(|engine| engine.sync_status().ok().flatten());
        self.host.is_some() && status.is_some_and(|status| status.moving)
    }

    fn is_joining_peers(&self) -> bool {
        let engine = self.engine.as_ref();
        let status = engine.and_then(|engine| engine.sync_status().ok().flatten());
        self.host.is_some() && status.is_some_and(|status| status.joining)
    }

    fn engine(&mut self) -> Option<&mut Engine> {
        self.engine.as_mut()?.as_local()
    }

    async fn tick(&mut self) -> Result<(), Error> {
        if self.handover_file.is_due() {
            self.write_handover();
        }
        self.pass_tickets();
        self.proxy.sample_rates();
        let watch_result = self.watch_requests();
        let tick_result = match &mut self.engine {
            Some(engine) => engine.tick(&self.states).await,
            None => self.vips.tick(&self.desired).await.map_err(Error::from),
        };
        watch_result.and(tick_result)
    }

    fn export_state(&mut self) -> io::Result<OwnedFd> {
        let services = self.proxy.status();
        self.exported_counts.clone_from(&services);
        if let Some(engine) = &self.engine {
            engine.pause();
        }
        Handover::new(&self.states, &services)
            .with_tickets(&self.proxy.tickets())
            .write()
    }

    async fn resume(&mut self) -> Result<(), Error> {
        let Some(engine) = &self.engine else {
            return Ok(());
        };
        if engine.is_current() {
            engine.resume();
            return Ok(());
        }
        engine.transfer_counts();
        tracing::warn!("the successor had started to take over; reverting its changes");
        self.reopen_engine().await
    }

    fn hand_over(&mut self, channel: Channel) {
        if let Some(engine) = &self.engine {
            engine.transfer_counts();
            engine.detach_tc();
            engine.close();
        }
        let (sender, connections) = std::sync::mpsc::channel();
        self.proxy.hand_over(sender);
        let (status, before) = (
            self.proxy.status_reader(),
            std::mem::take(&mut self.exported_counts),
        );
        self.sender = Some(std::thread::spawn(move || {
            let counts = || Handover::counter_delta(&status(), &before).write();
            keeper::send(&channel, &connections, counts);
        }));
    }

    fn remaining_connections(&self) -> RemainingConnections {
        let services = self.proxy.status_reader()();
        let clients = services.iter().map(|service| service.clients).sum();
        // Each service's count already includes the connections of all services.
        let mut active = BTreeMap::new();
        for server in services.into_iter().flat_map(|service| service.servers) {
            if server.active > 0 {
                active.insert((server.pool, server.name), server.active);
            }
        }
        let servers = active.into_iter();
        RemainingConnections {
            clients,
            servers: servers
                .map(|((pool, name), active)| (pool, name, active))
                .collect(),
        }
    }

    fn is_handed_over(&self) -> bool {
        let is_finished =
            |thread: &Option<JoinHandle<()>>| thread.as_ref().is_none_or(JoinHandle::is_finished);
        if !self.proxy.is_finished() || !is_finished(&self.receiver) {
            return false;
        }
        self.proxy.end_handover();
        is_finished(&self.sender)
    }

    async fn close(&mut self, limit: Duration) {
        let status = self.proxy.status_reader();
        let proxy = std::mem::take(&mut self.proxy);
        let stopped = tokio::task::spawn_blocking(move || proxy.stop(limit)).await;
        if let Err(error) = stopped {
            tracing::error!(%error, "failed to stop the proxy");
        }
        self.traces.close().await;
        // After an upgrade, the file belongs to the successor.
        let services = status();
        if self.sender.is_none() && !services.is_empty() {
            let handover = Handover::new(&self.states, &services);
            self.handover_file.write(&handover);
        }
    }
}

impl Traffic {
    /// Returns the number of configurations that have been applied.
    fn revision(&self) -> u64 {
        match &self.engine {
            Some(engine) => engine.revision(),
            None => self.override_store.revision(),
        }
    }
}

/// Returns the explanation of a packet that a proxy service receives.
const fn proxy_step(protocol: ProxyProtocol) -> &'static str {
    match protocol {
        ProxyProtocol::Http => "an http proxy listens there; the server is chosen for each request",
        ProxyProtocol::Tcp => "a tcp proxy listens there; the server is chosen for each connection",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_step_has_the_correct_article() {
        assert!(proxy_step(ProxyProtocol::Http).starts_with("an http proxy"));
        assert!(proxy_step(ProxyProtocol::Tcp).starts_with("a tcp proxy"));
    }
}
