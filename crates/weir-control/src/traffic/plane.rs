//! Both kinds of services as the daemon's plane.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use weir_health::{SavedState, Suspended};
use weir_model::Desired;
use weir_netlink::Event;
use weir_sys::Channel;

use super::left::Left;
use super::words::Word;
use super::{Error, Traffic, check_rights, needs_engine};
use crate::api::{OperatorState, ServerRequest};
use crate::daemon::Plane;
use crate::engine::{Claim, Ejected, Engine, Passed};
use crate::explain::{Answer, Packet};
use crate::ipvsadm;
use crate::keeper;
use crate::snapshot::{OpenFiles, Snapshot};
use weir_probing::{News, PoolTurn, ProbeTable as Passages};

impl Plane for Traffic {
    type Error = Error;

    async fn apply(&mut self, desired: &Desired) -> Result<u64, Error> {
        let prepared = self.prepare(desired)?;
        let mut counted = None;
        match &mut self.engine {
            Some(engine) => counted = Some(Plane::apply(engine, desired).await?),
            None if needs_engine(desired) => {
                check_rights()?;
                let engine = Engine::open(&self.paths, desired).await?;
                counted = Some(engine.snapshot()?.revision);
                self.engine = Some(engine);
            }
            None => {
                if let Err(error) = self.vips.settle(desired).await {
                    if let Err(back) = self.vips.settle(&self.desired).await {
                        tracing::warn!(error = %back, "added addresses were not taken back");
                    }
                    return Err(error.into());
                }
            }
        }
        self.go_over(prepared, desired);
        Ok(counted.unwrap_or(self.words.revision()))
    }

    async fn order_server(
        &mut self,
        pool: &str,
        address: &str,
        request: ServerRequest,
    ) -> Result<(), Error> {
        if let Some(engine) = &mut self.engine {
            engine.order_server(pool, address, request).await?;
        }
        let word = match request {
            ServerRequest::State(OperatorState::Drain) => Some(Word::Drain),
            ServerRequest::State(OperatorState::Maint) => Some(Word::Maint),
            ServerRequest::State(OperatorState::Ready) => None,
            ServerRequest::Weight(weight) => Some(Word::Weight(weight)),
        };
        self.words.set(pool, address, word)?;
        let name = (pool.to_owned(), address.to_owned());
        if let Some(since) = self.since.get_mut(&name) {
            *since = SystemTime::now();
        }
        self.reweigh(pool);
        Ok(())
    }

    fn hear(&mut self, news: Vec<News>) -> Result<(), Error> {
        let pools: BTreeSet<String> = news.iter().map(|news| news.pool.clone()).collect();
        self.standings.hear(news.clone());
        pools.iter().for_each(|pool| self.reweigh(pool));
        match &mut self.engine {
            Some(engine) => Ok(engine.hear(news)?),
            None => Ok(()),
        }
    }

    fn known(&self, pool: &str, server: &str) -> Option<SavedState> {
        let engine = self.engine.as_ref();
        engine
            .and_then(|engine| engine.known(pool, server))
            .or_else(|| self.standings.known(pool, server))
    }

    fn is_withdrawn(&self, pool: &str, server: &str) -> bool {
        let word = self.words.get(pool, server);
        matches!(word, Some(Word::Drain | Word::Maint))
    }

    fn ejected(&self) -> BTreeSet<Ejected> {
        let mut all: BTreeSet<_> = self.standings.all_ejected().cloned().collect();
        all.extend(self.engine.iter().flat_map(Engine::ejected));
        all
    }

    fn forgive(&mut self, then: &BTreeSet<Ejected>) -> Result<(), Error> {
        self.forgive_answers(then);
        match &mut self.engine {
            Some(engine) => Ok(engine.forgive(then)?),
            None => Ok(()),
        }
    }

    fn suspended(&self) -> Suspended {
        let mut all = self.words.maintained();
        if let Some(engine) = &self.engine {
            all.extend(engine.suspended());
        }
        all
    }

    fn take_turns(&mut self) -> Vec<PoolTurn> {
        let mut turns = self
            .engine
            .as_mut()
            .map_or_else(Vec::new, Engine::take_turns);
        // Both hear of every pool. Those of layer 4 services are the engine's, used by a proxy or not, and those of
        // ipvsadm.
        let desired = &self.desired;
        let layer_4 = |turn: &PoolTurn| {
            let used = desired.services.iter().any(|it| it.pool == turn.pool);
            used || desired.pool(&turn.pool).is_none()
        };
        turns.retain(layer_4);
        let own = self.standings.take_turns();
        turns.extend(own.into_iter().filter(|turn| !layer_4(turn)));
        turns
    }

    fn passages(&self) -> Option<Passages> {
        self.engine.as_ref().map(Engine::passages)
    }

    fn claim(&self, desired: &Desired) -> Option<Claim> {
        self.engine.as_ref()?.claim(desired)
    }

    /// The first request brings up what proxy services alone do without.
    async fn ipvsadm(&mut self, request: &ipvsadm::Request) -> Result<ipvsadm::Answer, Error> {
        let engine = match &mut self.engine {
            Some(engine) => engine,
            none => {
                check_rights()?;
                none.insert(Engine::open(&self.paths, &self.desired).await?)
            }
        };
        Ok(Plane::ipvsadm(engine, request).await?)
    }

    fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut snapshot = match &self.engine {
            Some(engine) => engine.snapshot()?,
            None => Snapshot {
                revision: self.words.revision(),
                ..Snapshot::default()
            },
        };
        snapshot.proxies = self.proxies();
        snapshot.open_files = (!snapshot.proxies.is_empty()).then(|| OpenFiles {
            numbers: self.proxy.descriptors(),
            exceeding: self.proxy.exceeding(&self.desired),
        });
        Ok(snapshot)
    }

    fn added_vips(&self) -> Vec<(String, IpAddr)> {
        self.added()
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
        let same = servers.filter(|it| it.pool == pool && it.name == server);
        // Every service counts those of all.
        open += same.map(|server| server.active).max().unwrap_or(0);
        Ok((open, closed))
    }

    fn explain(&self, packet: &Packet) -> Result<Answer, Error> {
        let answer = match &self.engine {
            Some(engine) => engine.explain_packet(packet)?,
            None => Answer {
                packet: packet.to_string(),
                ..Answer::default()
            },
        };
        match self.proxy_at(packet) {
            // XDP comes before any socket.
            Some(proxy) if answer.service.is_none() => Ok(Answer {
                packet: answer.packet,
                service: Some(proxy.name.clone()),
                at: None,
                pool: Some(proxy.pool.clone()),
                server: None,
                steps: vec![format!(
                    "a {} proxy listens there; the server is chosen for each {}",
                    proxy.protocol.as_str(),
                    match proxy.protocol {
                        weir_model::ProxyProtocol::Http => "request",
                        weir_model::ProxyProtocol::Tcp => "connection",
                    }
                )],
                outcome: Some(format!("proxy service {} takes it", proxy.name)),
            }),
            _ => Ok(answer),
        }
    }

    async fn network_event(&mut self, event: &Event) -> Result<(), Error> {
        match &mut self.engine {
            Some(engine) => Ok(engine.network_event(event).await?),
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

    async fn look(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.look_after_drift().await;
        }
    }

    fn watch_clients(&mut self, passed: &Passed<'_>) -> Result<(), Error> {
        match &mut self.engine {
            Some(engine) => Ok(engine.watch_clients(passed)?),
            None => Ok(()),
        }
    }

    async fn tick(&mut self) -> Result<(), Error> {
        if self.memory.is_due() {
            self.remember();
        }
        self.leave_tickets();
        self.watch_answers();
        match &mut self.engine {
            Some(engine) => Ok(engine.tick().await?),
            None => Ok(self.vips.tick(&self.desired).await?),
        }
    }

    fn bequeath(&mut self) -> io::Result<OwnedFd> {
        let services = self.proxy.status();
        self.bequeathed.clone_from(&services);
        Left::new(self.standings.clone(), &self.since, &services)
            .with_tickets(&self.proxy.tickets())
            .write()
    }

    async fn resume(&mut self) -> Result<(), Error> {
        let Some(engine) = self.engine.as_ref().filter(|it| !it.is_untouched()) else {
            return Ok(());
        };
        engine.leave_counts();
        tracing::warn!("the other program had begun to take over: what it changed is taken back");
        self.engine = Some(Engine::open(&self.paths, &self.desired).await?);
        Ok(())
    }

    fn hand_over(&mut self, channel: Channel) {
        if let Some(engine) = &self.engine {
            engine.leave_counts();
            engine.leave_tc();
        }
        let (outlet, connections) = std::sync::mpsc::channel();
        self.proxy.hand_over(outlet);
        let (status, before) = (
            self.proxy.asks_status(),
            std::mem::take(&mut self.bequeathed),
        );
        self.passage = Some(std::thread::spawn(move || {
            let counts = || Left::since(&status(), &before).write();
            keeper::send(&channel, &connections, counts);
        }));
    }

    fn clients(&self) -> u64 {
        let services = self.proxy.asks_status()();
        services.iter().map(|service| service.clients).sum()
    }

    fn is_handed_over(&self) -> bool {
        let over =
            |thread: &Option<JoinHandle<()>>| thread.as_ref().is_none_or(JoinHandle::is_finished);
        if !self.proxy.is_finished() || !over(&self.arrivals) {
            return false;
        }
        self.proxy.end_hand_over();
        over(&self.passage)
    }

    async fn close(&mut self, limit: Duration) {
        let status = self.proxy.asks_status();
        let proxy = std::mem::take(&mut self.proxy);
        let stopped = tokio::task::spawn_blocking(move || proxy.stop(limit)).await;
        if let Err(error) = stopped {
            tracing::error!(%error, "the proxy did not end as it should");
        }
        // One that was succeeded has nothing to say any more.
        let services = status();
        if self.passage.is_none() && !services.is_empty() {
            let left = Left::new(self.standings.clone(), &self.since, &services);
            self.memory.write(&left);
        }
    }
}
