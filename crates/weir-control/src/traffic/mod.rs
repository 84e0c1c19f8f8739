//! Both kinds of services under one configuration: the layer 4 engine, where there is something for it, and the proxy.
//!
//! With proxy services alone there is no engine: nothing is loaded, attached or pinned, and no right beyond that to
//! listen is needed. A configuration takes effect on both or on neither: what the proxy needs is opened first, the
//! engine applies, and then the proxy goes over, which cannot fail.

mod conduct;
mod cookie_key;
mod error;
mod left;
mod memory;
mod plane;
mod show;
mod weight;
mod words;

pub use error::{Error, check_rights};

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::SystemTime;

use weir_health::Standing;
use weir_model::{Desired, Pool};
use weir_proxy::ServiceTickets;

use self::conduct::Conducts;
use self::cookie_key::CookieKey;
use self::left::Left;
use self::memory::Memory;
use self::words::Words;
use crate::engine::standing::Standings;
use crate::engine::{self, Engine, Paths};
use crate::keeper::{self, Kept, Link};
use crate::vip::Vips;
use weir_probing::News;

/// The kind of sockets that clients of proxy services come by, for the keeper.
const SOCKETS: &str = "proxy";

/// The keys of TLS tickets, for the keeper: they are never on a disk, and a daemon that is killed leaves them to the
/// next one.
const TICKETS: &str = "tickets";

/// Whether `desired` has something that packets must be taken for. A file without any service has: services may come
/// from ipvsadm.
pub fn needs_engine(desired: &Desired) -> bool {
    !desired.services.is_empty() || desired.proxies.is_empty()
}

/// See the module.
#[derive(Debug)]
pub struct Traffic {
    paths: Paths,
    engine: Option<Engine>,
    /// The proxy's addresses, as long as there is no engine.
    vips: Vips,
    proxy: weir_proxy::Proxy,
    cookie_key: CookieKey,
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
    /// The keys of tickets that the keeper has.
    kept_tickets: Vec<ServiceTickets>,
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
    /// Puts `desired` into force, adopting what is pinned. Must be called inside a tokio runtime, in the network
    /// namespace of the director.
    ///
    /// # Errors
    /// The configuration cannot be had, or the kernel refuses. What ran before goes on.
    pub async fn open(paths: &Paths, desired: &Desired, kept: &mut Kept) -> Result<Self, Error> {
        let mut traffic = Self {
            paths: paths.clone(),
            engine: None,
            vips: Vips::new(&paths.runtime_dir),
            proxy: weir_proxy::Proxy::new(),
            cookie_key: CookieKey::new(&paths.runtime_dir),
            desired: Desired::default(),
            words: Words::read(&paths.runtime_dir),
            standings: Standings::default(),
            conducts: Conducts::default(),
            since: BTreeMap::new(),
            keeper: kept.link.clone(),
            kept: BTreeMap::new(),
            kept_tickets: Vec::new(),
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
        let kept_tickets = kept.take_file(TICKETS).map(File::from);
        let tickets = match kept_tickets {
            Some(mut file) if takeover.is_none() => Left::read(&mut file).tickets(),
            _ => left.as_ref().map(Left::tickets).unwrap_or_default(),
        };
        traffic.proxy.adopt_tickets(tickets);
        let prepared = traffic.prepare(desired)?;
        if let Some(left) = left {
            traffic.inherit(&prepared, left);
        }
        // What an earlier configuration pinned must be told that its services are gone.
        let mut pinned = engine::is_pinned(paths) && check_rights().is_ok();
        if pinned && !needs_engine(desired) && engine::clean_unused(paths).await? {
            pinned = false;
        }
        if needs_engine(desired) || pinned {
            check_rights()?;
            traffic.engine = Some(Engine::open(paths, desired).await?);
        } else {
            traffic.vips.settle(desired).await?;
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

    /// Opens what the proxy needs for a configuration.
    fn prepare(&mut self, desired: &Desired) -> Result<weir_proxy::Prepared, Error> {
        if let Some(key) = self.cookie_key.first_for(desired)? {
            self.proxy.set_cookie_key(key);
        }
        Ok(self.proxy.prepare(desired)?)
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
                standing: Some(Standing::from(known)),
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
        for why in self.proxy.exceeding(desired) {
            tracing::warn!("{why}");
        }
        self.tell_keeper();
        self.leave_tickets();
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

    /// Leaves the keys of tickets to whoever comes after a death; they change once in hours.
    fn leave_tickets(&mut self) {
        let tickets = self.proxy.tickets();
        if tickets == self.kept_tickets {
            return;
        }
        match Left::default().with_tickets(&tickets).write() {
            Ok(file) => self.keeper.keep_file(TICKETS, file.as_fd()),
            Err(error) => {
                tracing::warn!(%error, "TLS sessions are not resumed after a death of the daemon");
                self.keeper.forget_file(TICKETS);
            }
        }
        self.kept_tickets = tickets;
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
