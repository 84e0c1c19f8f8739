//! Both kinds of services under one configuration: the layer 4 engine, where there is something for it, and the proxy.
//!
//! With proxy services alone there is no engine: nothing is loaded, attached or pinned, and no right beyond that to listen is
//! needed. A configuration takes effect on both or on neither: what the proxy needs is opened first, the engine applies, and
//! then the proxy goes over, which cannot fail.

mod conduct;
mod left;
mod memory;
mod words;

pub(crate) use memory::FILE as LEFT;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use weir_health::{Known, Standing, State, Suspended};
use weir_model::{Desired, Pool, Protocol, Server};
use weir_netlink::Event;
use weir_sys::{Capabilities, Capability, Channel};

use self::conduct::Conducts;
use self::left::Left;
use self::memory::Memory;
use self::words::{Word, Words};
use crate::api::{OperatorState, ServerRequest};
use crate::check::{News, Passages, PoolTurn};
use crate::daemon::Plane;
use crate::engine::standing::Standings;
use crate::engine::{self, Claim, Engine, Paths};
use crate::explain::{Answer, Packet};
use crate::ipvsadm;
use crate::keeper::{self, Kept, Link};
use crate::snapshot::{ProxyServerStatus, ProxyStatus, ServerState, Snapshot, VipStatus};

/// What loading, attaching and addressing cannot do without.
const NEEDED: [Capability; 2] = [Capability::NetAdmin, Capability::Bpf];

/// The kind of sockets that clients of proxy services come by, for the keeper.
const SOCKETS: &str = "proxy";

/// Why a configuration cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The layer 4 part.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The proxy part.
    #[error(transparent)]
    Proxy(#[from] weir_proxy::Error),
    /// Rights.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// Rights that layer 4 services could not do without.
    #[error("missing {}: run as root, or grant them (systemd: AmbientCapabilities=)", .names.join(", "))]
    Capabilities {
        /// The kernel's names.
        names: Vec<&'static str>,
    },
    /// Operators' words cannot be remembered.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// Whether `desired` has something that packets must be taken for. A file without any service has: services may come from
/// ipvsadm.
pub fn needs_engine(desired: &Desired) -> bool {
    !desired.services.is_empty() || desired.proxies.is_empty()
}

/// Whether the process may do what layer 4 services need.
///
/// # Errors
/// It may not.
pub fn check_rights() -> Result<(), Error> {
    let missing = Capabilities::effective()?.missing(&NEEDED);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.into_iter().map(Capability::name).collect();
    Err(Error::Capabilities { names })
}

/// See the module.
#[derive(Debug)]
pub struct Traffic {
    paths: Paths,
    engine: Option<Engine>,
    proxy: weir_proxy::Proxy,
    desired: Desired,
    words: Words,
    /// What checks say of the proxy's servers.
    standings: Standings,
    /// What clients' requests say of them.
    conducts: Conducts,
    /// When a server's state began, by pool and name.
    since: BTreeMap<(String, String), SystemTime>,
    keeper: Link,
    /// How many sockets of each address the keeper has.
    kept: BTreeMap<SocketAddr, usize>,
    /// Connections that go to another daemon: who sends them.
    passage: Option<JoinHandle<()>>,
    /// Connections that come from another daemon: who takes them in.
    arrivals: Option<JoinHandle<()>>,
    /// The counts that the other daemon has already.
    bequeathed: Vec<weir_proxy::ServiceStatus>,
    /// For whoever comes after this daemon, however it ends.
    memory: Memory,
}

impl Traffic {
    /// Puts `desired` into force, adopting what is pinned. Must be called inside a tokio runtime, in the network namespace of
    /// the director.
    ///
    /// # Errors
    /// The configuration cannot be had, or the kernel refuses. What ran before goes on.
    pub async fn open(paths: &Paths, desired: &Desired, kept: &mut Kept) -> Result<Self, Error> {
        let mut traffic = Self {
            paths: paths.clone(),
            engine: None,
            proxy: weir_proxy::Proxy::new(),
            desired: Desired::default(),
            words: Words::read(&paths.runtime_dir),
            standings: Standings::default(),
            conducts: Conducts::default(),
            since: BTreeMap::new(),
            keeper: kept.link.clone(),
            kept: BTreeMap::new(),
            passage: None,
            arrivals: None,
            bequeathed: Vec::new(),
            memory: Memory::new(&paths.runtime_dir),
        };
        let left = kept.take(SOCKETS);
        for (address, _) in &left {
            *traffic.kept.entry(*address).or_default() += 1;
        }
        traffic.proxy.adopt(left);
        let mut takeover = kept.takeover.take();
        let left = match &mut takeover {
            Some(takeover) => Some(Left::read(&mut takeover.state)),
            None => traffic.memory.read(),
        };
        let tickets = left.as_ref().map(Left::tickets);
        traffic.proxy.adopt_tickets(tickets.unwrap_or_default());
        let prepared = traffic.proxy.prepare(desired)?;
        if let Some(left) = left {
            traffic.inherit(&prepared, left);
        }
        // What an earlier configuration pinned must be told that its services are gone.
        let pinned = paths.pin_dir.exists() && check_rights().is_ok();
        if needs_engine(desired) || pinned {
            check_rights()?;
            traffic.engine = Some(Engine::open(paths, desired).await?);
        }
        traffic.recall(desired);
        traffic.go_over(prepared, desired);
        if let Some(takeover) = takeover {
            let mut inlet = traffic.proxy.inlet();
            traffic.arrivals = Some(std::thread::spawn(move || {
                keeper::receive(&takeover.channel, &mut inlet, |inlet, mut file| {
                    inlet.count(&Left::read(&mut file).services());
                });
            }));
        }
        Ok(traffic)
    }

    /// Goes on where another daemon stopped.
    fn inherit(&mut self, prepared: &weir_proxy::Prepared, left: Left) {
        self.proxy.count_from(prepared, &left.services());
        for (pool, servers) in left.since {
            let named = servers
                .into_iter()
                .map(|(server, since)| ((pool.clone(), server), since));
            self.since.extend(named);
        }
        self.standings = left.standings;
    }

    /// Goes on from what the engine remembers of servers.
    fn recall(&mut self, desired: &Desired) {
        let Some(engine) = &self.engine else { return };
        let news = proxied_servers(desired).into_iter();
        let news = news.filter_map(|(pool, server)| {
            let known = engine.known(&pool.name, &server.name)?;
            Some(News {
                pool: pool.name.clone(),
                server: server.name.clone(),
                standing: Some(Standing::new(known.state, known.since)),
            })
        });
        self.standings.hear(news.collect());
    }

    /// Leaves the proxy's counts to whoever comes next, where there is a proxy.
    fn remember(&mut self) {
        let services = self.proxy.status();
        if !services.is_empty() {
            let left = Left::new(self.standings.clone(), &self.since, &services);
            self.memory.write(&left);
        }
    }

    fn go_over(&mut self, prepared: weir_proxy::Prepared, desired: &Desired) {
        self.proxy.commit(prepared);
        self.tell_keeper();
        self.desired = desired.clone();
        let now = SystemTime::now();
        let mut since = std::mem::take(&mut self.since);
        for (pool, server) in proxied_servers(desired) {
            let name = (pool.name.clone(), server.name.clone());
            let began = since.remove(&name).unwrap_or(now);
            self.since.insert(name, began);
        }
        self.words.count_revision(desired);
        let pools: BTreeSet<String> = proxied_servers(desired)
            .into_iter()
            .map(|(pool, _)| pool.name.clone())
            .collect();
        pools.iter().for_each(|pool| self.reweigh(pool));
    }

    /// The keeper holds what is listened on, so that no death closes it.
    fn tell_keeper(&mut self) {
        let mut former = std::mem::take(&mut self.kept);
        for (address, sockets) in self.proxy.listening() {
            let held = former.remove(&address).unwrap_or(0);
            for (number, socket) in sockets.iter().enumerate().skip(held) {
                self.keeper.keep(SOCKETS, address, number, socket.as_fd());
            }
            self.kept.insert(address, sockets.len());
        }
        for (address, count) in former {
            (0..count).for_each(|number| self.keeper.forget(SOCKETS, address, number));
        }
    }

    /// Gives the proxy the weights that follow from configuration, operators' words and checks.
    fn reweigh(&mut self, pool: &str) {
        let Some(pool) = self.desired.pool(pool) else {
            return;
        };
        let words = &self.words;
        let base = |server: &Server| {
            let word = words.get(&pool.name, &server.name);
            word.map_or(server.weight, Word::weight)
        };
        self.standings.settle(pool, &base);
        let (weighed, _) = self.standings.weigh(pool, &base);
        let own = pool.servers.iter().zip(weighed);
        let own = own.map(|(server, weighed)| (server, weighed.effective));
        let sorry = pool.sorry.iter().map(|server| {
            let serves = self.standings.sorry_serves(pool);
            (server, if serves { base(server).max(1) } else { 0 })
        });
        for (server, effective) in own.chain(sorry) {
            let weight = Some(effective).filter(|weight| *weight != server.weight);
            let keeps = self.keeps_clients(pool, server);
            self.proxy.keep_sticky(&pool.name, &server.name, keeps);
            if self.proxy.has_server(&pool.name, &server.name)
                && let Err(error) = self.proxy.set_weight(&pool.name, &server.name, weight)
            {
                tracing::warn!(%error, "a server's weight did not reach the proxy");
            }
        }
    }

    /// Whether clients that belong to a server of weight 0 still come: an operator's 0 quiesces; down and drained are another matter.
    fn keeps_clients(&self, pool: &Pool, server: &Server) -> bool {
        let standing = self.standings.get(&pool.name, &server.name);
        let is_up = standing.is_none_or(|standing| standing.state != State::Down);
        let quiesced = match self.words.get(&pool.name, &server.name) {
            Some(Word::Drain | Word::Maint) => false,
            Some(Word::Weight(weight)) => weight == 0,
            None => server.weight == 0,
        };
        quiesced && is_up
    }

    fn proxies(&self) -> Vec<ProxyStatus> {
        let running = self.proxy.status();
        let known = running
            .iter()
            .filter_map(|status| Some((self.desired.proxy(&status.name)?, status)));
        known
            .filter_map(|(proxy, status)| {
                let scheduler = self
                    .desired
                    .pool(&proxy.pool)?
                    .scheduler
                    .unwrap_or(weir_model::Proxy::default_scheduler(proxy.protocol));
                Some(ProxyStatus {
                    listen: proxy.listen.clone(),
                    vip: vip(proxy.listen.first().map(SocketAddr::ip)),
                    protocol: proxy.protocol,
                    scheduler: scheduler.to_string(),
                    pool: proxy.pool.clone(),
                    servers: status
                        .servers
                        .iter()
                        .filter_map(|server| {
                            Some(self.server(self.desired.pool(&server.pool)?, server))
                        })
                        .collect(),
                    numbers: status.clone(),
                })
            })
            .collect()
    }

    fn server(&self, pool: &Pool, numbers: &weir_proxy::ServerStatus) -> ProxyServerStatus {
        let mut servers = pool.servers.iter().chain(&pool.sorry);
        let configured = servers
            .find(|server| server.name == numbers.name)
            .map_or(0, |server| server.weight);
        let word = self.words.get(&pool.name, &numbers.name);
        let standing = self.standings.get(&pool.name, &numbers.name);
        let (state, reason) = match (word, standing) {
            (Some(Word::Drain), _) => (ServerState::Drain, "weir server … drain"),
            (Some(Word::Maint), _) => (ServerState::Maint, "weir server … maint"),
            (_, Some(standing)) => (standing.state.into(), standing.reason.as_str()),
            _ => (ServerState::Unchecked, "no check configured"),
        };
        let base = word.map_or(configured, Word::weight);
        let by_checks = standing.filter(|_| !matches!(word, Some(Word::Drain | Word::Maint)));
        let name = (pool.name.clone(), numbers.name.clone());
        ProxyServerStatus {
            weight: configured,
            check_weight: by_checks.and_then(|standing| standing.brings(base)),
            state,
            reason: reason.to_owned(),
            since: match by_checks {
                Some(standing) => SystemTime::UNIX_EPOCH + standing.since,
                None => self
                    .since
                    .get(&name)
                    .copied()
                    .unwrap_or(SystemTime::UNIX_EPOCH),
            },
            overridden: word.map(|word| word.to_string()),
            ejected: self.standings.ejection(&pool.name, &numbers.name).cloned(),
            slow_start: None,
            checks: Vec::new(),
            numbers: numbers.clone(),
        }
    }

    /// The proxy service that a connection to that address reaches: the most specific listener's.
    fn proxy_at(&self, packet: &Packet) -> Option<&weir_model::Proxy> {
        if packet.protocol != Protocol::Tcp {
            return None;
        }
        let to = packet.destination;
        let exact = |proxy: &&weir_model::Proxy| proxy.listen.contains(&to);
        let any = |proxy: &&weir_model::Proxy| {
            proxy.listen.iter().any(|listen| {
                listen.ip().is_unspecified()
                    && listen.port() == to.port()
                    && listen.is_ipv4() == to.is_ipv4()
            })
        };
        let proxies = || self.desired.proxies.iter();
        proxies().find(exact).or_else(|| proxies().find(any))
    }
}

/// Servers of pools that proxy services use, once for each.
fn proxied_servers(desired: &Desired) -> Vec<(&Pool, &weir_model::Server)> {
    let used = |pool: &&Pool| {
        desired
            .proxies
            .iter()
            .any(|proxy| proxy.pools().contains(&pool.name.as_str()))
    };
    let pools = desired.pools.iter().filter(used);
    pools
        .flat_map(|pool| pool.servers.iter().map(move |server| (pool, server)))
        .collect()
}

/// Whether a socket of this machine can have the address, which is what a listener needs.
fn vip(address: Option<IpAddr>) -> VipStatus {
    match address {
        Some(address) if UdpSocket::bind((address, 0)).is_ok() => VipStatus::Local,
        _ => VipStatus::Absent,
    }
}

impl Plane for Traffic {
    type Error = Error;

    async fn apply(&mut self, desired: &Desired) -> Result<u64, Error> {
        let prepared = self.proxy.prepare(desired)?;
        let mut counted = None;
        match &mut self.engine {
            Some(engine) => counted = Some(Plane::apply(engine, desired).await?),
            None if needs_engine(desired) => {
                check_rights()?;
                let engine = Engine::open(&self.paths, desired).await?;
                counted = Some(engine.snapshot()?.revision);
                self.engine = Some(engine);
            }
            None => {}
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

    fn known(&self, pool: &str, server: &str) -> Option<Known> {
        let engine = self.engine.as_ref();
        engine
            .and_then(|engine| engine.known(pool, server))
            .or_else(|| self.standings.known(pool, server))
    }

    fn suspended(&self) -> Suspended {
        let mut all = self.words.maintained();
        if let Some(engine) = &self.engine {
            all.extend(engine.suspended());
        }
        all
    }

    fn take_turns(&mut self) -> Vec<PoolTurn> {
        // Pools that both kinds of services use are the engine's.
        let mut turns = self
            .engine
            .as_mut()
            .map_or_else(Vec::new, Engine::take_turns);
        let layer_4 = |pool: &str| self.desired.services.iter().any(|it| it.pool == pool);
        let own = self.standings.take_turns();
        turns.extend(own.into_iter().filter(|turn| !layer_4(&turn.pool)));
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
        Ok(snapshot)
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
            None => Ok(()),
        }
    }

    async fn look(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.look_after_drift().await;
        }
    }

    fn watch_clients(&mut self) -> Result<(), Error> {
        match &mut self.engine {
            Some(engine) => Ok(engine.watch_clients()?),
            None => Ok(()),
        }
    }

    async fn tick(&mut self) -> Result<(), Error> {
        if self.memory.is_due() {
            self.remember();
        }
        self.watch_answers();
        match &mut self.engine {
            Some(engine) => Ok(engine.tick().await?),
            None => Ok(()),
        }
    }

    fn bequeath(&mut self) -> io::Result<OwnedFd> {
        let services = self.proxy.status();
        self.bequeathed.clone_from(&services);
        Left::new(self.standings.clone(), &self.since, &services)
            .with_tickets(&self.proxy.tickets())
            .write()
    }

    fn hand_over(&mut self, channel: Channel) {
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
