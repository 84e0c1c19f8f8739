//! The proxy from outside: workers, and the plans that they run by.
//!
//! A configuration takes effect in two steps. [`Proxy::prepare`] does all that can fail (sockets, threads) and changes
//! nothing that clients could notice; [`Proxy::commit`] publishes it. What stays keeps its sockets, loads and counters.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity};
use rustls::ServerConfig;
use rustls::server::ProducesTickets;
use weir_http::{HeadLimits, cookie};
use weir_model::{ClientAuth, Desired, HashKey, NoServer, Pool, ProxyProtocol, RouteAction};

use crate::handover::{Handed, Inlet};
use crate::limit::{Concurrent, Rate};
use crate::log::{Log, Writer};
use crate::plan::{Listeners, Load, Plan, Service, Sharded, Shared, Stickiness, Target, Targets};
use crate::queue::Line;
use crate::status::ServiceStatus;
use crate::worker::Seed;
use crate::{Error, Result, socket, status, tls};

/// Pool, and server as in the file.
type ServerName = (String, String);

/// What is known of each name, over all plans that need it.
#[derive(Debug, Default, Clone)]
struct Known {
    listeners: HashMap<SocketAddr, Arc<Listeners>>,
    loads: HashMap<ServerName, Arc<Load>>,
    versions: HashMap<String, Arc<AtomicU32>>,
    /// By service and server.
    targets: HashMap<(String, ServerName), Arc<Target>>,
    counters: HashMap<String, (Arc<Sharded>, Arc<AtomicU32>)>,
    tickets: HashMap<String, Tickets>,
    /// Who waits, by pool.
    lines: HashMap<String, Arc<Line>>,
    /// By service.
    logs: HashMap<String, Arc<Log>>,
    /// By service.
    tables: HashMap<String, Tables>,
    next_target: u32,
}

/// Tickets, and what was asked of the clients that have them.
#[derive(Debug, Clone)]
struct Tickets {
    client_ca: Option<String>,
    client_auth: ClientAuth,
    keys: Arc<dyn ProducesTickets>,
}

/// What limits clients, and by which limits.
#[derive(Debug, Default, Clone)]
struct Tables {
    kind: (u32, u32, u32, HashKey),
    rate: Option<Arc<Rate>>,
    concurrent: Option<Arc<Concurrent>>,
}

/// A configuration whose sockets are open, and that is not in force.
#[derive(Debug)]
pub struct Prepared {
    known: Known,
    services: Vec<Arc<Service>>,
    weights: HashMap<ServerName, (u32, u32)>,
}

#[derive(Debug)]
struct Thread {
    wake: Arc<OwnedFd>,
    handle: JoinHandle<()>,
}

/// See the module.
#[derive(Debug)]
pub struct Proxy {
    cpus: Vec<usize>,
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    known: Known,
    /// Listening sockets that another process left, by address.
    left: HashMap<SocketAddr, Vec<OwnedFd>>,
    /// Configured weight, and limit of connections.
    weights: HashMap<ServerName, (u32, u32)>,
    /// Weights that hold in place of the configured ones: an operator's word, a check's result.
    effective: HashMap<ServerName, u32>,
    /// Of access logs, once there is one.
    writer: Option<Writer>,
}

impl Default for Proxy {
    fn default() -> Self {
        Self::new()
    }
}

impl Proxy {
    /// Without services, and so far without threads; there will be one for each CPU that the process may use.
    pub fn new() -> Self {
        let cpus = sched_getaffinity(None).map_or_else(
            |_| vec![0],
            |set| {
                (0..CpuSet::MAX_CPU)
                    .filter(|cpu| set.is_set(*cpu))
                    .collect()
            },
        );
        Self {
            cpus,
            shared: Arc::default(),
            threads: Vec::new(),
            known: Known::default(),
            left: HashMap::new(),
            weights: HashMap::new(),
            effective: HashMap::new(),
            writer: None,
        }
    }

    /// Takes over listening sockets with all who wait in their queues, for the next configuration; those that it has no use
    /// for are closed.
    pub fn adopt(&mut self, sockets: Vec<(SocketAddr, OwnedFd)>) {
        for (address, socket) in sockets {
            self.left.entry(address).or_default().push(socket);
        }
    }

    /// Where clients are taken, and by which sockets.
    pub fn listening(&self) -> impl Iterator<Item = (SocketAddr, &[OwnedFd])> {
        let all = self.known.listeners.iter();
        all.map(|(address, listeners)| (*address, listeners.sockets.as_slice()))
    }

    /// Opens what `desired` needs beyond what is in force.
    ///
    /// # Errors
    /// A socket or a thread cannot be had; nothing changed.
    pub fn prepare(&mut self, desired: &Desired) -> Result<Prepared> {
        let mut known = self.known.clone();
        let mut services = Vec::new();
        for proxy in &desired.proxies {
            let pools = proxy.pools().into_iter().map(|name| desired.pool(name));
            let Some(pools) = pools.collect::<Option<Vec<&Pool>>>() else {
                continue;
            };
            services.push(Arc::new(service(
                &mut known,
                &mut self.left,
                self.cpus.len(),
                proxy,
                &pools,
            )?));
        }
        forget(&mut known, &services);
        let weights = services
            .iter()
            .flat_map(|service| {
                service
                    .pools
                    .iter()
                    .filter_map(|targets| desired.pool(&targets.pool))
            })
            .flat_map(|pool| {
                let name = |server: &weir_model::Server| (pool.name.clone(), server.name.clone());
                let servers = pool.servers.iter().chain(&pool.sorry);
                servers.map(move |server| (name(server), (server.weight, server.max_connections)))
            })
            .collect();
        if !services.is_empty() {
            self.start()?;
        }
        if self.writer.is_none() && services.iter().any(|service| service.log.is_some()) {
            let writer = Writer::start().map_err(|source| Error::Worker { source })?;
            self.writer = Some(writer);
        }
        Ok(Prepared {
            known,
            services,
            weights,
        })
    }

    /// Puts a configuration into force; clients that are served notice nothing.
    pub fn commit(&mut self, prepared: Prepared) {
        self.known = prepared.known;
        self.left.clear();
        self.weights = prepared.weights;
        self.effective
            .retain(|name, _| self.weights.contains_key(name));
        for (name, (weight, most)) in &self.weights {
            if let Some(load) = self.known.loads.get(name) {
                let weight = self.effective.get(name).unwrap_or(weight);
                load.weight.store(*weight, Ordering::Relaxed);
                load.most.store(*most, Ordering::Relaxed);
            }
        }
        for version in self.known.versions.values() {
            version.fetch_add(1, Ordering::Release);
        }
        for log in self.known.logs.values() {
            log.reopen();
            if let Some(writer) = &self.writer {
                writer.add(log);
            }
        }
        self.shared.publish(Plan {
            services: prepared.services,
            targets: self.known.next_target as usize,
        });
        self.wake();
        for line in self.known.lines.values() {
            line.call(usize::MAX);
        }
    }

    fn start(&mut self) -> Result<()> {
        let failed = |source: std::io::Error| Error::Worker { source };
        while let Some(cpu) = self.cpus.get(self.threads.len()).copied() {
            let number = self.threads.len();
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let wake = Arc::new(wake.map_err(|errno| failed(errno.into()))?);
            let seed = Seed::new(number, Arc::clone(&self.shared), Arc::clone(&wake));
            let seed = seed.map_err(|errno| failed(errno.into()))?;
            let handle = std::thread::Builder::new()
                .name(format!("weir-proxy-{number}"))
                .spawn(move || {
                    // Anywhere else it runs too, a little slower.
                    if let Err(error) = weir_sys::pin_thread(cpu) {
                        tracing::debug!(%error, "a worker is not pinned");
                    }
                    seed.grow().run();
                })
                .map_err(failed)?;
            self.threads.push(Thread { wake, handle });
        }
        Ok(())
    }

    fn wake(&self) {
        for thread in &self.threads {
            // A full counter wakes it too.
            let _ = rustix::io::write(&*thread.wake, &1u64.to_ne_bytes());
        }
    }

    /// Whether a proxy service uses this server.
    pub fn has_server(&self, pool: &str, server: &str) -> bool {
        self.weights
            .contains_key(&(pool.to_owned(), server.to_owned()))
    }

    /// The weight that a server is to have in place of the configured one; `None` = the configured one again.
    ///
    /// # Errors
    /// No proxy service uses such a server.
    pub fn set_weight(&mut self, pool: &str, server: &str, weight: Option<u32>) -> Result<()> {
        let name = (pool.to_owned(), server.to_owned());
        let (Some((configured, _)), Some(load)) =
            (self.weights.get(&name), self.known.loads.get(&name))
        else {
            return Err(Error::NoServer {
                pool: name.0,
                server: name.1,
            });
        };
        load.weight
            .store(weight.unwrap_or(*configured), Ordering::Relaxed);
        match weight {
            Some(weight) => self.effective.insert(name, weight),
            None => self.effective.remove(&name),
        };
        if let Some(version) = self.known.versions.get(pool) {
            version.fetch_add(1, Ordering::Release);
        }
        if let Some(line) = self.known.lines.get(pool) {
            line.call(usize::MAX);
        }
        Ok(())
    }

    /// Every service with its servers, in file order.
    pub fn status(&self) -> Vec<ServiceStatus> {
        status::of(&self.shared.plan())
    }

    /// Where the connections of another process come in. Only those of services in force are taken.
    pub fn inlet(&self) -> Inlet {
        Inlet {
            shared: Arc::clone(&self.shared),
            wakes: self
                .threads
                .iter()
                .map(|thread| Arc::clone(&thread.wake))
                .collect(),
            next: 0,
        }
    }

    /// Takes no further clients, and gives those that can go on elsewhere to `outlet`, each as soon as it can; the others end
    /// here, in their own time. The outlet is open until [`end_hand_over`](Self::end_hand_over).
    pub fn hand_over(&mut self, outlet: Sender<Handed>) {
        self.shared.hand_over(outlet);
        self.wake();
    }

    /// Whether no worker has a client any more, after [`hand_over`](Self::hand_over).
    pub fn is_finished(&self) -> bool {
        self.threads
            .iter()
            .all(|thread| thread.handle.is_finished())
    }

    /// Nobody comes in any more either, for whom the outlet would be needed.
    pub fn end_hand_over(&self) {
        self.shared.close_outlet();
    }

    /// Goes on counting where another process stopped; before [`commit`](Self::commit).
    pub fn count_from(&self, prepared: &Prepared, former: &[ServiceStatus]) {
        status::add(&prepared.services, former);
    }

    /// What [`status`](Self::status) says, asked from anywhere and later.
    pub fn asks_status(&self) -> impl Fn() -> Vec<ServiceStatus> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || status::of(&shared.plan())
    }

    /// Takes no further clients and requests; those under way get `limit`, then everything ends.
    pub fn stop(self, limit: Duration) {
        let deadline = Instant::now() + limit;
        self.shared.draining.store(true, Ordering::Release);
        self.wake();
        while Instant::now() < deadline
            && self
                .threads
                .iter()
                .any(|thread| !thread.handle.is_finished())
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        for thread in self.threads {
            if thread.handle.join().is_err() {
                tracing::error!("a worker of the proxy had failed");
            }
        }
        if let Some(writer) = self.writer {
            writer.stop();
        }
    }
}

fn service(
    known: &mut Known,
    left: &mut HashMap<SocketAddr, Vec<OwnedFd>>,
    workers: usize,
    proxy: &weir_model::Proxy,
    pools: &[&Pool],
) -> Result<Service> {
    let mut listen = Vec::new();
    for address in &proxy.listen {
        let listeners = match known.listeners.get(address) {
            Some(listeners) => Arc::clone(listeners),
            None => {
                let mut sockets = left.remove(address).unwrap_or_default();
                while sockets.len() < workers {
                    let opened = socket::listen(*address).map_err(|source| Error::Listen {
                        service: proxy.name.clone(),
                        address: *address,
                        source,
                    });
                    sockets.push(opened?);
                }
                let listeners = Arc::new(Listeners {
                    address: *address,
                    sockets,
                    workers,
                });
                known.listeners.insert(*address, Arc::clone(&listeners));
                listeners
            }
        };
        listen.push(listeners);
    }
    let (counters, clients) = known
        .counters
        .entry(proxy.name.clone())
        .or_insert_with(|| (Arc::new(Sharded::new(workers)), Arc::default()))
        .clone();
    let limits = &proxy.limits;
    let Tables {
        rate, concurrent, ..
    } = tables(known, proxy);
    Ok(Service {
        name: proxy.name.clone(),
        protocol: proxy.protocol,
        listen,
        host: proxy
            .listen
            .first()
            .map(ToString::to_string)
            .unwrap_or_default(),
        leads: proxy
            .routes
            .iter()
            .map(|route| {
                let place = |name: &str| pools.iter().position(|pool| pool.name == name);
                match &route.action {
                    RouteAction::Pool(name) => place(name).map(|at| (at, 1)).into_iter().collect(),
                    RouteAction::Split(parts) => parts
                        .iter()
                        .filter_map(|(name, weight)| Some((place(name)?, *weight)))
                        .collect(),
                    RouteAction::Redirect { .. } | RouteAction::Answer { .. } => Vec::new(),
                }
            })
            .collect(),
        routes: proxy.routes.clone(),
        pools: pools
            .iter()
            .map(|pool| targets(known, workers, proxy, pool))
            .collect::<Result<_>>()?,
        tls: secure(known, proxy)?,
        http2: proxy.http2,
        timeouts: (&proxy.timeouts).into(),
        head: HeadLimits {
            head: limits.head as usize,
            target: limits.head as usize / 2,
            fields: limits.fields as usize,
        },
        body_most: u64::from(limits.body),
        rate,
        concurrent,
        limit_key: proxy.limit_key.clone(),
        retries: limits.retries,
        connections: limits.connections,
        idle_servers: limits.idle_servers as usize,
        forwarded: proxy.forwarded,
        trusted: proxy.trusted.clone(),
        preamble: proxy.proxy_protocol,
        log: log(known, workers, proxy),
        counters,
        clients,
    })
}

/// TLS with a service's clients, from certificates as they are now.
fn secure(known: &mut Known, proxy: &weir_model::Proxy) -> Result<Option<Arc<ServerConfig>>> {
    let Some(wanted) = &proxy.tls else {
        return Ok(None);
    };
    let failed = |source| Error::Tls {
        owner: format!("service {}", proxy.name),
        source,
    };
    let same = |tickets: &&Tickets| {
        tickets.client_ca == wanted.client_ca && tickets.client_auth == wanted.client_auth
    };
    let keys = match known.tickets.get(&proxy.name).filter(same) {
        Some(tickets) => Arc::clone(&tickets.keys),
        None => tls::tickets().map_err(|source| {
            failed(tls::CertificateError::Refused {
                path: wanted.certificates.clone().into(),
                source,
            })
        })?,
    };
    let protocols: &[&[u8]] = match proxy.protocol {
        ProxyProtocol::Http if proxy.http2 => &[b"h2", b"http/1.1"],
        ProxyProtocol::Http => &[b"http/1.1"],
        ProxyProtocol::Tcp => &[],
    };
    let config = tls::config(wanted, protocols, Arc::clone(&keys)).map_err(failed)?;
    let tickets = Tickets {
        client_ca: wanted.client_ca.clone(),
        client_auth: wanted.client_auth,
        keys,
    };
    known.tickets.insert(proxy.name.clone(), tickets);
    Ok(Some(config))
}

fn targets(
    known: &mut Known,
    workers: usize,
    proxy: &weir_model::Proxy,
    pool: &Pool,
) -> Result<Targets> {
    let protocols: &[&[u8]] = match proxy.protocol {
        ProxyProtocol::Http if pool.http2 => &[b"h2"],
        ProxyProtocol::Http => &[b"http/1.1"],
        ProxyProtocol::Tcp => &[],
    };
    let back = pool.tls.as_ref().map(|wanted| {
        tls::Back::new(wanted, protocols).map_err(|source| Error::Tls {
            owner: format!("pool {}", pool.name),
            source,
        })
    });
    let line = Arc::clone(known.lines.entry(pool.name.clone()).or_default());
    let by_backup = |backup: bool| pool.servers.iter().filter(move |one| one.backup == backup);
    let own = by_backup(false).count();
    let servers = by_backup(false).chain(by_backup(true)).chain(&pool.sorry);
    let list = servers.map(|server| {
        let name = (pool.name.clone(), server.name.clone());
        let load = known.loads.entry(name.clone()).or_default();
        let load = Arc::clone(load);
        let of = (proxy.name.clone(), name);
        let former = known.targets.get(&of);
        if let Some(target) = former
            && target.tls == pool.tls
            && target.http2 == pool.http2
        {
            return Arc::clone(target);
        }
        let counters = former.map_or_else(
            || Arc::new(Sharded::new(workers)),
            |former| Arc::clone(&former.counters),
        );
        let target = Arc::new(Target {
            id: known.next_target,
            name: server.name.clone(),
            address: server.address,
            port: server.port,
            load,
            tls: pool.tls.clone(),
            http2: pool.http2,
            seed: cookie::siphash((0, 0), server.name.as_bytes()),
            line: Arc::clone(&line),
            counters,
        });
        known.next_target += 1;
        known.targets.insert(of, Arc::clone(&target));
        target
    });
    let list: Vec<Arc<Target>> = list.collect();
    let sticky = pool.sticky.as_ref().map(|kind| Stickiness {
        signs: list
            .iter()
            .map(|target| cookie::sign(&kind.secret, &target.name))
            .collect(),
        kind: kind.clone(),
    });
    Ok(Targets {
        list,
        tiers: [own, pool.servers.len()],
        hash_key: pool.hash_key.clone(),
        sticky,
        preamble: pool.proxy_protocol,
        line,
        queue_ms: u64::try_from(pool.queue_timeout.as_millis()).unwrap_or(u64::MAX / 2),
        pool: pool.name.clone(),
        tls: back.transpose()?,
        http2: pool.http2,
        silent: pool.no_server == NoServer::Drop,
        scheduler: pool
            .scheduler
            .unwrap_or(weir_model::Proxy::default_scheduler(proxy.protocol)),
        version: Arc::clone(known.versions.entry(pool.name.clone()).or_default()),
    })
}

/// What is counted of a service's clients: the former tables where they count the same.
fn tables(known: &mut Known, proxy: &weir_model::Proxy) -> Tables {
    let limits = &proxy.limits;
    let burst = match limits.burst {
        0 => limits.rate,
        burst => burst,
    };
    let kind = (
        limits.rate,
        burst,
        limits.concurrent,
        proxy.limit_key.clone(),
    );
    let tables = known.tables.entry(proxy.name.clone()).or_default();
    if tables.kind != kind {
        *tables = Tables {
            rate: (limits.rate > 0).then(|| Arc::new(Rate::new(limits.rate, burst))),
            concurrent: (limits.concurrent > 0)
                .then(|| Arc::new(Concurrent::new(limits.concurrent))),
            kind,
        };
    }
    tables.clone()
}

/// The log of a service: the former one where it is the same.
fn log(known: &mut Known, workers: usize, proxy: &weir_model::Proxy) -> Option<Arc<Log>> {
    let kind = proxy.access_log.as_ref()?;
    let former = known.logs.get(&proxy.name);
    if let Some(log) = former.filter(|log| log.kind == *kind) {
        return Some(Arc::clone(log));
    }
    let log = Arc::new(Log::new(kind, &proxy.name, workers));
    known.logs.insert(proxy.name.clone(), Arc::clone(&log));
    Some(log)
}

/// Drops what no service has any more; its sockets close when the last worker has let go.
fn forget(known: &mut Known, services: &[Arc<Service>]) {
    let listening: HashSet<SocketAddr> = services
        .iter()
        .flat_map(|service| service.listen.iter().map(|listen| listen.address))
        .collect();
    known
        .listeners
        .retain(|address, _| listening.contains(address));
    known
        .counters
        .retain(|name, _| services.iter().any(|service| service.name == *name));
    known
        .tickets
        .retain(|name, _| services.iter().any(|service| service.name == *name));
    known.logs.retain(|name, _| {
        services
            .iter()
            .any(|service| service.log.is_some() && service.name == *name)
    });
    known
        .tables
        .retain(|name, _| services.iter().any(|service| service.name == *name));
    known.lines.retain(|pool, _| {
        services
            .iter()
            .any(|service| service.pools.iter().any(|targets| targets.pool == *pool))
    });
    let ids: HashSet<u32> = services
        .iter()
        .flat_map(|service| service.targets().map(|target| target.id))
        .collect();
    known.targets.retain(|_, target| ids.contains(&target.id));
    let used: HashSet<ServerName> = known.targets.keys().map(|(_, name)| name.clone()).collect();
    known.loads.retain(|name, _| used.contains(name));
    known.versions.retain(|pool, _| {
        services
            .iter()
            .any(|service| service.pools.iter().any(|targets| targets.pool == *pool))
    });
}
