//! The engine as the daemon's plane.

use std::net::IpAddr;

use weir_health::{SavedState, Suspended};
use weir_model::Desired;
use weir_netlink::Event;

use super::Plane;
use crate::api::{OperatorState, ServerRequest};
use crate::engine::{Claim, Engine, Error, OverrideChange, Passed};
use crate::explain::{Answer, Packet};
use crate::ipvsadm;
use crate::snapshot::Snapshot;
use weir_probing::{News, PoolTurn, ProbeTable as Passages};

impl Plane for Engine {
    type Error = Error;

    async fn apply(&mut self, desired: &Desired) -> Result<u64, Error> {
        Ok(Engine::apply(self, desired).await?.revision)
    }

    async fn order_server(
        &mut self,
        pool: &str,
        address: &str,
        request: ServerRequest,
    ) -> Result<(), Error> {
        let change = match request {
            ServerRequest::State(OperatorState::Drain) => OverrideChange::Drain,
            ServerRequest::State(OperatorState::Maint) => OverrideChange::Maint,
            ServerRequest::State(OperatorState::Ready) => OverrideChange::Ready,
            ServerRequest::Weight(weight) => OverrideChange::Weight(weight),
        };
        self.set_override(pool, address, change).await
    }

    fn hear(&mut self, news: Vec<News>) -> Result<(), Error> {
        Engine::hear(self, news)
    }

    fn known(&self, pool: &str, server: &str) -> Option<SavedState> {
        Engine::known(self, pool, server)
    }

    fn suspended(&self) -> Suspended {
        Engine::suspended(self)
    }

    fn take_turns(&mut self) -> Vec<PoolTurn> {
        Engine::take_turns(self)
    }

    fn passages(&self) -> Option<Passages> {
        Some(Engine::passages(self))
    }

    fn claim(&self, desired: &Desired) -> Option<Claim> {
        Engine::claim(self, desired)
    }

    async fn ipvsadm(&mut self, request: &ipvsadm::Request) -> Result<ipvsadm::Answer, Error> {
        Ok(match request {
            ipvsadm::Request::Edits(edits) => ipvsadm::Answer::Edits(self.edit_table(edits).await),
            ipvsadm::Request::Listing => ipvsadm::Answer::Listing(self.listing()?),
            ipvsadm::Request::Connections => ipvsadm::Answer::Connections(self.connections()?),
            ipvsadm::Request::Timeouts => ipvsadm::Answer::Timeouts(self.timeouts()),
        })
    }

    fn snapshot(&self) -> Result<Snapshot, Error> {
        Engine::snapshot(self)
    }

    fn added_vips(&self) -> Vec<(String, IpAddr)> {
        Self::added_vips(self).to_vec()
    }

    fn live_flows(&self, service: &str, server: Option<&str>) -> u64 {
        Engine::live_flows(self, service, server)
    }

    fn explain(&self, packet: &Packet) -> Result<Answer, Error> {
        self.explain_packet(packet)
    }

    async fn network_event(&mut self, event: &Event) -> Result<(), Error> {
        Engine::network_event(self, event).await
    }

    async fn look(&mut self) {
        Engine::look_after_drift(self).await;
    }

    fn watch_clients(&mut self, passed: &Passed<'_>) -> Result<(), Error> {
        Engine::watch_clients(self, passed)
    }

    async fn tick(&mut self) -> Result<(), Error> {
        Engine::tick(self).await
    }
}
