//! What there is to be seen of proxy services.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::SystemTime;

use weir_model::{Pool, Protocol};

use super::Traffic;
use super::words::Word;
use crate::explain::Packet;
use crate::snapshot::{ProxyServerStatus, ProxyStatus, ServerState, VipStatus};

impl Traffic {
    /// Addresses that Weir added, by interface.
    pub(super) fn added(&self) -> Vec<(String, IpAddr)> {
        match &self.engine {
            Some(engine) => engine.added_vips().to_vec(),
            None => self.vips.added().iter().cloned().collect(),
        }
    }

    /// What status says of the proxy services.
    pub(super) fn proxies(&self) -> Vec<ProxyStatus> {
        let running = self.proxy.status();
        let added = self.added().into_iter().map(|(_, address)| address);
        let added: BTreeSet<IpAddr> = added.collect();
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
                    vip: vip(proxy, &added),
                    protocol: proxy.protocol,
                    scheduler: scheduler.to_string(),
                    pool: proxy.pool.clone(),
                    regime: self.standings.unusual(&proxy.pool),
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
            check_weight: by_checks.and_then(|standing| standing.reported_weight(base)),
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
            ejected: self
                .standings
                .ejection(&pool.name, &numbers.name, None)
                .cloned(),
            slow_start: None,
            checks: Vec::new(),
            numbers: numbers.clone(),
        }
    }

    /// The proxy service that a connection to that address reaches: the most specific listener's.
    pub(super) fn proxy_at(&self, packet: &Packet) -> Option<&weir_model::Proxy> {
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

/// Whether a socket of this machine can have the first address, which is what a listener needs.
fn vip(proxy: &weir_model::Proxy, added: &BTreeSet<IpAddr>) -> VipStatus {
    match proxy.listen.first().map(SocketAddr::ip) {
        Some(address) if UdpSocket::bind((address, 0)).is_err() => VipStatus::Absent,
        Some(address) if added.contains(&address) => VipStatus::Added,
        Some(_) => VipStatus::Local,
        None => VipStatus::Absent,
    }
}
