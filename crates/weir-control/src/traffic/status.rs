//! Collects the status of proxy services.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_model::{Metrics, Pool, Protocol, Server};
use weir_state::{Override, state_before_first_result};

use super::Traffic;
use crate::explain::Packet;
use crate::snapshot::{ProxyServerStatus, ProxyStatus, ServerState, VipStatus};

impl Traffic {
    /// Returns the VIPs that Weir has added, with their interfaces.
    pub(super) fn all_added_vips(&self) -> Vec<(String, IpAddr)> {
        match &self.engine {
            Some(engine) => engine.added_vips().to_vec(),
            None => self.vips.added().iter().cloned().collect(),
        }
    }

    /// Returns the status of the proxy services.
    pub(super) fn proxies(&self) -> Vec<ProxyStatus> {
        let added = self
            .all_added_vips()
            .into_iter()
            .map(|(_, address)| address);
        let added: BTreeSet<IpAddr> = added.collect();
        let mut pools = HashMap::new();
        let now = SystemTime::now();
        let running = self.proxy.status().into_iter();
        running
            .filter_map(|mut numbers| {
                let proxy = self.desired.proxy(&numbers.name)?;
                let scheduler = self
                    .desired
                    .pool(&proxy.pool)?
                    .scheduler
                    .unwrap_or(weir_model::Proxy::default_scheduler(proxy.protocol));
                let servers = std::mem::take(&mut numbers.servers).into_iter();
                let servers = servers.filter_map(|numbers| {
                    if !pools.contains_key(&numbers.pool) {
                        let pool = self.desired.pool(&numbers.pool)?;
                        pools.insert(numbers.pool.clone(), ConfiguredPool::new(pool));
                    }
                    Some(self.server(pools.get(&numbers.pool)?, numbers))
                });
                Some(ProxyStatus {
                    listen: proxy.listen.clone(),
                    vip: vip(proxy, &added),
                    protocol: proxy.protocol,
                    scheduler: scheduler.to_string(),
                    pool: proxy.pool.clone(),
                    pool_state: self.states.exceptional_state(&proxy.pool),
                    servers: servers.collect(),
                    numbers,
                    now,
                })
            })
            .collect()
    }

    fn server(
        &self,
        configured: &ConfiguredPool<'_>,
        numbers: weir_proxy::ServerStatus,
    ) -> ProxyServerStatus {
        let pool = configured.pool;
        let server = configured.servers.get(numbers.name.as_str());
        let configured_weight = server.map_or(0, |server| server.weight);
        let active = self.states.overrides().get(&pool.name, &numbers.name);
        let server_health = self.states.server_health(&pool.name, &numbers.name);
        let initial_state = server.and_then(|server| state_before_first_result(pool, server));
        let (state, reason) = match (active, server_health, initial_state) {
            (Some(Override::Drain), _, _) => (ServerState::Drain, "weir server … drain"),
            (Some(Override::Maint), _, _) => (ServerState::Maint, "weir server … maint"),
            (_, Some(server_health), _) => {
                (server_health.state.into(), server_health.reason.as_str())
            }
            (_, None, Some(state)) => (state.into(), "no result yet"),
            (_, None, None) => (ServerState::Unchecked, "no check configured"),
        };
        let base = active.map_or(configured_weight, Override::weight);
        let visible_health =
            server_health.filter(|_| active.is_none_or(|active| !active.hides_checks()));
        ProxyServerStatus {
            weight: configured_weight,
            check_weight: visible_health
                .and_then(|server_health| server_health.reported_weight(base)),
            state,
            reason: reason.to_owned(),
            since: UNIX_EPOCH
                + match visible_health {
                    Some(server_health) => {
                        let since = server_health.since;
                        self.states.last_change(&pool.name, &numbers.name, since)
                    }
                    None => self
                        .states
                        .since(&pool.name, &numbers.name)
                        .unwrap_or(Duration::ZERO),
                },
            overridden: active.map(|active| active.to_string()),
            ejected: self
                .states
                .ejection(&pool.name, &numbers.name, None)
                .cloned(),
            slow_start: None,
            checks: Vec::new(),
            numbers,
            max_connections: server.map_or(0, |server| server.max_connections),
            backup: server.is_some_and(|server| server.backup),
            histograms: self.desired.node.metrics == Metrics::Full,
        }
    }

    /// Returns the proxy service that receives a connection to the packet's destination: the service with the most
    /// specific listener.
    pub(super) fn proxy_at(&self, packet: &Packet) -> Option<&weir_model::Proxy> {
        if packet.protocol != Protocol::Tcp {
            return None;
        }
        let destination = packet.destination;
        let exact = |proxy: &&weir_model::Proxy| proxy.listen.contains(&destination);
        let any = |proxy: &&weir_model::Proxy| {
            proxy.listen.iter().any(|listen| {
                listen.ip().is_unspecified()
                    && listen.port() == destination.port()
                    && listen.is_ipv4() == destination.is_ipv4()
            })
        };
        let proxies = || self.desired.proxies.iter();
        proxies().find(exact).or_else(|| proxies().find(any))
    }
}

/// A pool with an index of its servers by name, because a pool can have thousands of servers.
struct ConfiguredPool<'a> {
    pool: &'a Pool,
    servers: HashMap<&'a str, &'a Server>,
}

impl<'a> ConfiguredPool<'a> {
    fn new(pool: &'a Pool) -> Self {
        // Insert in reverse order, so that the first of several servers with the same name is kept, as in a linear
        // search.
        let servers = pool.servers.iter().chain(&pool.sorry).rev();
        Self {
            pool,
            servers: servers
                .map(|server| (server.name.as_str(), server))
                .collect(),
        }
    }
}

/// Returns the state of the first address: whether a local socket can bind to it, which a listener requires, and
/// whether Weir has added it.
fn vip(proxy: &weir_model::Proxy, added: &BTreeSet<IpAddr>) -> VipStatus {
    match proxy.listen.first().map(SocketAddr::ip) {
        Some(address) if UdpSocket::bind((address, 0)).is_err() => VipStatus::Absent,
        Some(address) if added.contains(&address) => VipStatus::Added,
        Some(_) => VipStatus::Local,
        None => VipStatus::Absent,
    }
}
