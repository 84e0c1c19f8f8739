//! Provides the proxy's interface: starts the workers, and prepares and activates their plans.
//!
//! A configuration is applied in two steps. [`Proxy::prepare`] does everything that can fail (sockets, threads) and has
//! no effect on clients; [`Proxy::commit`] activates the result. Unchanged parts keep their sockets, loads and
//! counters.

mod service;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity};
use weir_model::{ClientAuth, Desired, HashKey, OnRemove, Pool, RouteLimits, Secret};
use weir_select::Load;
use weir_select::limit::{ConcurrencyLimit, RateLimit};

use crate::descriptor::{self, Descriptors, TABLE};
use crate::h2::ResetLimit;
use crate::handover::{HandedOverConnection, HandoverReceiver};
use crate::log::{Log, Writer};
use crate::plan::Details;
use crate::plan::{
    Exchanges, Listeners, PerWorker, Plan, Service, ShardedCounters, SharedState, Target,
};
use crate::queue::Queue;
use crate::status::ServiceStatus;
use crate::trace::{TraceQueue, Tracer};
use crate::worker::WorkerConfig;
use crate::{Error, Result, ServiceTickets, status, tls};

/// Pool, and the server's address as in the configuration file.
type ServerName = (String, String);

/// State that is kept from one plan to the next, by name.
#[derive(Debug, Default, Clone)]
struct RetainedState {
    listeners: HashMap<SocketAddr, Arc<Listeners>>,
    loads: HashMap<ServerName, Arc<Load>>,
    versions: HashMap<String, Arc<AtomicU32>>,
    /// By service and server.
    targets: HashMap<(String, ServerName), Arc<Target>>,
    counters: HashMap<String, (Arc<ShardedCounters>, Arc<AtomicU32>)>,
    /// By service and part of the service: empty for the whole service, `pool NAME`, or `route CONDITIONS`.
    exchanges: HashMap<(String, String), Arc<PerWorker<Exchanges>>>,
    /// By service.
    details: HashMap<String, Arc<PerWorker<Details>>>,
    tickets: HashMap<String, Tickets>,
    /// By pool.
    queues: HashMap<String, Arc<Queue>>,
    /// By service.
    logs: HashMap<String, Arc<Log>>,
    /// By service.
    tables: HashMap<String, LimitTables>,
    /// By service, route and limits.
    route_limits: HashMap<(String, String, RouteLimits), RouteTables>,
    /// By service, route and limit.
    all_clients: HashMap<(String, String, u32), Arc<ConcurrencyLimit>>,
    /// Counters of copies in progress, by service, route and limit.
    mirrors: HashMap<(String, String, u32), Arc<ConcurrencyLimit>>,
    /// The key that signs the cookies of pools without a configured secret.
    cookie_key: Option<Secret>,
    next_target: u32,
}

/// Tables that limit the request rate and the concurrent requests of a route's clients.
type RouteTables = (Option<Arc<RateLimit>>, Option<Arc<ConcurrencyLimit>>);

/// Ticket keys, and the client authentication under which tickets were issued.
#[derive(Debug, Clone)]
struct Tickets {
    client_ca: Option<String>,
    client_auth: ClientAuth,
    keys: Arc<tls::Tickets>,
}

/// The tables that limit clients, and the limits that they were created for.
#[derive(Debug, Default, Clone)]
struct LimitTables {
    limits: (u32, u32, u32, HashKey),
    rate: Option<Arc<RateLimit>>,
    concurrent: Option<Arc<ConcurrencyLimit>>,
    /// The limit on HTTP/2 stream resets, with its rate.
    resets: Option<(u32, Arc<ResetLimit>)>,
}

/// A configuration whose sockets are open, but which is not active yet.
#[derive(Debug)]
pub struct PreparedPlan {
    retained: RetainedState,
    pub(crate) services: Vec<Arc<Service>>,
    pub(crate) listen: Vec<(Arc<Listeners>, Arc<Service>)>,
    weights: HashMap<ServerName, (u32, u32)>,
    /// Pools with `on_remove = "reset"`: connections to their removed servers are closed.
    reset_pools: HashSet<String>,
}

#[derive(Debug)]
struct Thread {
    wake: Arc<OwnedFd>,
    handle: JoinHandle<()>,
}

/// The proxy: its workers, and the plan that they use.
#[derive(Debug)]
pub struct Proxy {
    cpus: Vec<usize>,
    shared: Arc<SharedState>,
    threads: Vec<Thread>,
    retained: RetainedState,
    /// Listening sockets that another process handed over, by address.
    inherited: HashMap<SocketAddr, Vec<OwnedFd>>,
    /// For each server, the configured weight and maximum number of connections.
    weights: HashMap<ServerName, (u32, u32)>,
    /// Weights that replace the configured ones, because of overrides or check results.
    effective: HashMap<ServerName, u32>,
    /// The thread that writes access logs; `None` until a service has a log.
    writer: Option<Writer>,
    /// Can be upgraded while another process may still hand over clients; see [`HandoverReceiver`].
    receiver_open: Weak<()>,
    traces: Arc<TraceQueue>,
}

impl Default for Proxy {
    fn default() -> Self {
        Self::new()
    }
}

impl Proxy {
    /// Creates a proxy without services and threads. There will be one worker for each CPU that the process may use.
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
            traces: Arc::new(TraceQueue::new(cpus.len())),
            cpus,
            shared: Arc::default(),
            threads: Vec::new(),
            retained: RetainedState::default(),
            inherited: HashMap::new(),
            weights: HashMap::new(),
            effective: HashMap::new(),
            writer: None,
            receiver_open: Weak::new(),
        }
    }

    /// Takes over listening sockets, including the clients in their backlogs, for the next configuration. Sockets that
    /// it does not need are closed.
    pub fn adopt(&mut self, sockets: Vec<(SocketAddr, OwnedFd)>) {
        for (address, socket) in sockets {
            self.inherited.entry(address).or_default().push(socket);
        }
    }

    /// Takes over another process's ticket keys for the next configuration.
    pub fn adopt_tickets(&mut self, tickets: Vec<ServiceTickets>) {
        for adopted in tickets {
            // Clients without a valid ticket need one full handshake.
            let Ok(keys) = tls::Tickets::new(adopted.keys) else {
                continue;
            };
            let tickets = Tickets {
                client_ca: adopted.client_ca,
                client_auth: adopted.client_auth,
                keys: Arc::new(keys),
            };
            self.retained.tickets.insert(adopted.service, tickets);
        }
    }

    /// Sets the key that signs the cookies of pools without a configured secret. Takes effect with the next
    /// configuration.
    pub fn set_cookie_key(&mut self, key: Secret) {
        self.retained.cookie_key = Some(key);
    }

    /// Returns all services' ticket keys for another process, except for configured keys.
    pub fn tickets(&self) -> Vec<ServiceTickets> {
        let is_generated = |(_, tickets): &(&String, &Tickets)| !tickets.keys.has_configured_keys();
        let tickets = self.retained.tickets.iter().filter(is_generated);
        let service = |(service, tickets): (&String, &Tickets)| ServiceTickets {
            service: service.clone(),
            client_ca: tickets.client_ca.clone(),
            client_auth: tickets.client_auth,
            keys: tickets.keys.keys(),
        };
        let mut service_tickets: Vec<ServiceTickets> = tickets.map(service).collect();
        service_tickets.sort_by(|a, b| a.service.cmp(&b.service));
        service_tickets
    }

    /// Returns the listening addresses and their sockets.
    pub fn listening_sockets(&self) -> impl Iterator<Item = (SocketAddr, &[OwnedFd])> {
        let listeners = self.retained.listeners.iter();
        listeners.map(|(address, listeners)| (*address, listeners.sockets.as_slice()))
    }

    /// Opens everything that `desired` needs in addition to the active configuration.
    ///
    /// # Errors
    /// Fails if a file, socket or thread cannot be used; the active configuration is unchanged.
    pub fn prepare(&mut self, desired: &Desired) -> Result<PreparedPlan> {
        let mut retained = self.retained.clone();
        let (mut built, mut service_listeners, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        let tracer = desired.tracing.as_ref();
        let tracer = tracer.map(|settings| Arc::new(Tracer::new(settings, &self.traces)));
        for proxy in &desired.proxies {
            let pools = proxy.pools().into_iter().map(|name| desired.pool(name));
            let Some(pools) = pools.collect::<Option<Vec<&Pool>>>() else {
                continue;
            };
            let workers = self.cpus.len();
            let (service, names, listeners) = service::build_service(
                &mut retained,
                &mut self.inherited,
                workers,
                proxy,
                &pools,
                tracer.as_ref(),
            )?;
            parts.push((proxy, names));
            built.push(service);
            service_listeners.push(listeners);
        }
        service::set_misdirect(&mut built, parts);
        let (mut services, mut listen) = (Vec::new(), Vec::new());
        for (service, listeners) in built.into_iter().zip(service_listeners) {
            let service = Arc::new(service);
            listen.extend(
                listeners
                    .into_iter()
                    .map(|listeners| (listeners, Arc::clone(&service))),
            );
            services.push(service);
        }
        service::drop_unused(&mut retained, &services, &listen);
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
        let pools = desired.pools.iter();
        let reset_pools = pools.filter(|pool| pool.on_remove == OnRemove::Reset);
        Ok(PreparedPlan {
            retained,
            services,
            listen,
            weights,
            reset_pools: reset_pools.map(|pool| pool.name.clone()).collect(),
        })
    }

    /// Activates a configuration. Connected clients are not affected, except by the removal of their server from a pool
    /// with `on_remove = "reset"`.
    pub fn commit(&mut self, prepared: PreparedPlan) {
        let old = std::mem::replace(&mut self.retained, prepared.retained);
        let mut closes_connections = false;
        for (name, load) in &old.loads {
            if prepared.reset_pools.contains(&name.0) && !self.retained.loads.contains_key(name) {
                load.close_connections.store(true, Ordering::Relaxed);
                closes_connections = true;
            }
        }
        self.inherited.clear();
        self.weights = prepared.weights;
        self.effective
            .retain(|name, _| self.weights.contains_key(name));
        for (name, (weight, max_connections)) in &self.weights {
            if let Some(load) = self.retained.loads.get(name) {
                let weight = self.effective.get(name).unwrap_or(weight);
                load.weight.store(*weight, Ordering::Relaxed);
                load.limit.store(*max_connections, Ordering::Relaxed);
            }
        }
        for version in self.retained.versions.values() {
            version.fetch_add(1, Ordering::Release);
        }
        for log in self.retained.logs.values() {
            log.reopen();
            if let Some(writer) = &self.writer {
                writer.add(log);
            }
        }
        TABLE.count_open(self.weights.len());
        let removed = self.removed_services(&prepared.services);
        self.shared.publish(Plan {
            services: prepared.services,
            listen: prepared.listen,
            removed,
            targets: self.retained.next_target as usize,
        });
        if closes_connections {
            self.shared.withdrawals.fetch_add(1, Ordering::Release);
        }
        self.wake();
        for queue in self.retained.queues.values() {
            queue.wake(usize::MAX);
        }
    }

    /// Returns the previous services that are not in `services`, if another process may still hand over their clients.
    fn removed_services(&self, services: &[Arc<Service>]) -> Vec<Arc<Service>> {
        if self.receiver_open.strong_count() == 0 {
            return Vec::new();
        }
        let plan = self.shared.plan();
        let mut names = HashSet::new();
        names.extend(services.iter().map(|service| service.name.as_str()));
        let previous = plan.services.iter().chain(&plan.removed);
        previous
            .filter(|service| names.insert(service.name.as_str()))
            .map(Arc::clone)
            .collect()
    }

    fn start(&mut self) -> Result<()> {
        let worker_error = |source: std::io::Error| Error::Worker { source };
        while let Some(cpu) = self.cpus.get(self.threads.len()).copied() {
            let number = self.threads.len();
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let wake = Arc::new(wake.map_err(|errno| worker_error(errno.into()))?);
            let has_other_workers = self.cpus.len() > 1;
            let config = WorkerConfig::new(
                number,
                Arc::clone(&self.shared),
                Arc::clone(&wake),
                has_other_workers,
            );
            let config = config.map_err(|errno| worker_error(errno.into()))?;
            let handle = std::thread::Builder::new()
                .name(format!("weir-proxy-{number}"))
                .spawn(move || {
                    // Pinning is only an optimization.
                    if let Err(error) = weir_sys::pin_thread(cpu) {
                        tracing::debug!(%error, "failed to pin a worker thread to its CPU");
                    }
                    config.build().run();
                })
                .map_err(worker_error)?;
            self.threads.push(Thread { wake, handle });
        }
        Ok(())
    }

    fn wake(&self) {
        for thread in &self.threads {
            // A full counter wakes the worker as well.
            let _ = rustix::io::write(&*thread.wake, &1u64.to_ne_bytes());
        }
    }

    /// Returns whether a proxy service uses this server.
    pub fn has_server(&self, pool: &str, server: &str) -> bool {
        self.weights
            .contains_key(&(pool.to_owned(), server.to_owned()))
    }

    /// Sets the weight that replaces the configured one; `None` restores the configured weight.
    ///
    /// # Errors
    /// Fails if no proxy service uses the server.
    pub fn set_weight(&mut self, pool: &str, server: &str, weight: Option<u32>) -> Result<()> {
        let name = (pool.to_owned(), server.to_owned());
        let (Some((configured, _)), Some(load)) =
            (self.weights.get(&name), self.retained.loads.get(&name))
        else {
            return Err(Error::NoServer {
                pool: name.0,
                server: name.1,
            });
        };
        let was_withdrawn = load.is_withdrawn();
        load.weight
            .store(weight.unwrap_or(*configured), Ordering::Relaxed);
        let is_newly_withdrawn = !was_withdrawn && load.is_withdrawn();
        match weight {
            Some(weight) => self.effective.insert(name, weight),
            None => self.effective.remove(&name),
        };
        if let Some(version) = self.retained.versions.get(pool) {
            version.fetch_add(1, Ordering::Release);
        }
        if let Some(queue) = self.retained.queues.get(pool) {
            queue.wake(usize::MAX);
        }
        if is_newly_withdrawn {
            self.close_idle_to_withdrawn();
        }
        Ok(())
    }

    /// Makes the workers close idle connections to servers that accept no clients.
    fn close_idle_to_withdrawn(&self) {
        self.shared.withdrawals.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// Sets whether a server with weight 0 still serves clients whose cookies name it: true for a quiesced server,
    /// false for one that is down or drained.
    pub fn set_sticky_while_quiesced(&self, pool: &str, server: &str, is_sticky: bool) {
        if let Some(load) = self
            .retained
            .loads
            .get(&(pool.to_owned(), server.to_owned()))
        {
            let was_withdrawn = load.is_withdrawn();
            load.sticky_while_quiesced
                .store(is_sticky, Ordering::Relaxed);
            if !was_withdrawn && load.is_withdrawn() {
                self.close_idle_to_withdrawn();
            }
        }
    }

    /// Sets whether connections to a server are closed because failed checks removed it from a pool with `on_remove =
    /// "reset"`. Must be called after [`Self::set_weight`], so that no connection is opened in between.
    pub fn set_close_connections(&self, pool: &str, server: &str, close: bool) {
        if let Some(load) = self
            .retained
            .loads
            .get(&(pool.to_owned(), server.to_owned()))
            && load.close_connections.swap(close, Ordering::Relaxed) != close
            && close
        {
            self.close_idle_to_withdrawn();
        }
    }

    /// Returns the status of every service with its servers, in file order.
    pub fn status(&self) -> Vec<ServiceStatus> {
        status::service_statuses(&self.shared.plan())
    }

    /// Samples the totals, to record peak rates. Must be called once per second.
    pub fn sample_rates(&self) {
        status::sample_rates(&self.shared.plan());
    }

    /// Returns the queue of traced requests that have ended.
    pub const fn traces(&self) -> &Arc<TraceQueue> {
        &self.traces
    }

    /// Returns the proxy's file descriptor counts and limits.
    pub fn descriptors(&self) -> Descriptors {
        TABLE.status()
    }

    /// Returns a problem for each service in the active configuration whose limits need more descriptors than are
    /// available.
    pub fn excessive_limits(&self, desired: &Desired) -> Vec<String> {
        let problems = descriptor::excessive_limits_now(desired).into_iter();
        problems
            .map(|problem| format!("{}: {}", problem.message, problem.cause))
            .collect()
    }

    /// Returns the receiver of connections from another process. It accepts connections for active services, and for
    /// services that were active at the time of this call.
    pub fn handover_receiver(&mut self) -> HandoverReceiver {
        let open = Arc::new(());
        self.receiver_open = Arc::downgrade(&open);
        HandoverReceiver {
            _open: open,
            shared: Arc::clone(&self.shared),
            wake_fds: self
                .threads
                .iter()
                .map(|thread| Arc::clone(&thread.wake))
                .collect(),
            next_worker: 0,
        }
    }

    /// Stops accepting clients, and sends each client that another process can serve to `sender` as soon as possible.
    /// Other clients finish in this process. The channel stays open until [`end_handover`](Self::end_handover).
    pub fn hand_over(&mut self, sender: Sender<HandedOverConnection>) {
        self.shared.hand_over(sender);
        self.wake();
    }

    /// Returns whether all workers have finished after [`hand_over`](Self::hand_over).
    pub fn is_finished(&self) -> bool {
        self.threads
            .iter()
            .all(|thread| thread.handle.is_finished())
    }

    /// Closes the channel to the other process. Must be called when all workers have finished and no more connections
    /// arrive through the [`HandoverReceiver`].
    pub fn end_handover(&self) {
        self.shared.close_handover_sender();
    }

    /// Adds another process's counts to those in `prepared`. Must be called before [`commit`](Self::commit).
    pub fn add_previous_counts(&self, prepared: &PreparedPlan, previous: &[ServiceStatus]) {
        status::add_counts(&prepared.services, previous);
    }

    /// Returns a function that returns [`status`](Self::status) at any time, from any thread.
    pub fn status_reader(&self) -> impl Fn() -> Vec<ServiceStatus> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || status::service_statuses(&shared.plan())
    }

    /// Stops accepting clients and requests. Requests in progress have up to `limit` to finish; then all connections
    /// are closed.
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
                tracing::error!("a proxy worker thread panicked");
            }
        }
        if let Some(writer) = self.writer {
            writer.stop();
        }
    }
}
