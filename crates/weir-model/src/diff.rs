//! The difference of two desired states: what a reload would change, in the operator's words.
//!
//! Things are the same when their names are: a pool or service renamed is one removed and one added. [`Source`] takes
//! no part, so that moving lines about changes nothing. How a change reaches the kernel is not known here.
//!
//! [`Source`]: crate::Source

mod proxy;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use crate::{Check, Desired, Ipvs, Node, Pool, Scheduler, Server, Service, Timeouts};

/// One key that changed, with both values as the operator would write them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The key of the configuration file.
    pub key: &'static str,
    /// Value before.
    pub old: String,
    /// Value after.
    pub new: String,
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.key, self.old, self.new)
    }
}

/// One change between two desired states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// `[node]` differs; at least one edit.
    Node(Vec<Edit>),
    /// `[timeouts]` differs; at least one edit.
    Timeouts(Vec<Edit>),
    /// `[ipvs]` differs; at least one edit.
    Ipvs(Vec<Edit>),
    /// A pool appears with this many servers; they have no changes of their own.
    PoolAdded {
        /// Pool.
        pool: String,
        /// Number of servers.
        servers: usize,
    },
    /// A pool and its servers are gone; they have no changes of their own.
    PoolRemoved {
        /// Pool.
        pool: String,
        /// Number of servers.
        servers: usize,
    },
    /// Keys of a pool differ, other than its servers; at least one edit.
    PoolChanged {
        /// Pool.
        pool: String,
        /// What differs.
        edits: Vec<Edit>,
    },
    /// A server appears in a pool that stays.
    ServerAdded {
        /// Pool.
        pool: String,
        /// Address as in the file.
        server: String,
        /// Configured weight.
        weight: u32,
    },
    /// A server leaves a pool that stays; its flows meet `on_remove`.
    ServerRemoved {
        /// Pool.
        pool: String,
        /// Address as in the file.
        server: String,
    },
    /// Keys of a server differ; at least one edit.
    ServerChanged {
        /// Pool.
        pool: String,
        /// Address as in the file.
        server: String,
        /// What differs.
        edits: Vec<Edit>,
    },
    /// The servers that stay have another order, which schedulers read.
    ServersReordered {
        /// Pool.
        pool: String,
    },
    /// A service appears.
    ServiceAdded {
        /// Service.
        service: String,
        /// Listeners, forward and pool in one line.
        summary: String,
    },
    /// A service is gone.
    ServiceRemoved {
        /// Service.
        service: String,
        /// Listeners, forward and pool in one line.
        summary: String,
    },
    /// Keys of a service differ; at least one edit.
    ServiceChanged {
        /// Service.
        service: String,
        /// What differs.
        edits: Vec<Edit>,
    },
}

/// One line, `+` added, `-` removed, `~` changed.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(edits) => write!(f, "~ node: {}", join(edits)),
            Self::Timeouts(edits) => write!(f, "~ timeouts: {}", join(edits)),
            Self::Ipvs(edits) => write!(f, "~ ipvs: {}", join(edits)),
            Self::PoolAdded { pool, servers } => write!(f, "+ pool {pool}: {}", count(*servers)),
            Self::PoolRemoved { pool, servers } => write!(f, "- pool {pool}: {}", count(*servers)),
            Self::PoolChanged { pool, edits } => write!(f, "~ pool {pool}: {}", join(edits)),
            Self::ServerAdded {
                pool,
                server,
                weight,
            } => write!(f, "+ server {pool}/{server}: weight {weight}"),
            Self::ServerRemoved { pool, server } => write!(f, "- server {pool}/{server}"),
            Self::ServerChanged {
                pool,
                server,
                edits,
            } => write!(f, "~ server {pool}/{server}: {}", join(edits)),
            Self::ServersReordered { pool } => write!(f, "~ pool {pool}: servers in another order"),
            Self::ServiceAdded { service, summary } => write!(f, "+ service {service}: {summary}"),
            Self::ServiceRemoved { service, summary } => {
                write!(f, "- service {service}: {summary}")
            }
            Self::ServiceChanged { service, edits } => {
                write!(f, "~ service {service}: {}", join(edits))
            }
        }
    }
}

/// What changes from `old` to `new`: node, timeouts, `[ipvs]`, pools with their servers, services; in each the removed and
/// changed in the old order, then the added in the new.
///
/// Linear in the number of pools, servers and services; empty when nothing differs.
pub fn diff(old: &Desired, new: &Desired) -> Vec<Change> {
    let mut changes = Vec::new();
    let edits = node_edits(&old.node, &new.node);
    if !edits.is_empty() {
        changes.push(Change::Node(edits));
    }
    let edits = timeouts_edits(&old.timeouts, &new.timeouts);
    if !edits.is_empty() {
        changes.push(Change::Timeouts(edits));
    }
    let edits = ipvs_edits(&old.ipvs, &new.ipvs);
    if !edits.is_empty() {
        changes.push(Change::Ipvs(edits));
    }
    diff_pools(&old.pools, &new.pools, &mut changes);
    diff_services(&old.services, &new.services, &mut changes);
    proxy::diff(&old.proxies, &new.proxies, &mut changes);
    changes
}

/// Whether both have the same names at the same places: then none has to be looked up.
fn in_step<T>(old: &[T], new: &[T], name: impl Fn(&T) -> &str) -> bool {
    old.len() == new.len() && old.iter().zip(new).all(|(old, new)| name(old) == name(new))
}

fn diff_pools(old: &[Pool], new: &[Pool], changes: &mut Vec<Change>) {
    if in_step(old, new, |pool| &pool.name) {
        for (pool, now) in old.iter().zip(new) {
            changed_pool(pool, now, changes);
        }
        return;
    }
    let after: HashMap<&str, &Pool> = new.iter().map(|pool| (pool.name.as_str(), pool)).collect();
    let before: HashSet<&str> = old.iter().map(|pool| pool.name.as_str()).collect();
    for pool in old {
        match after.get(pool.name.as_str()) {
            None => changes.push(Change::PoolRemoved {
                pool: pool.name.clone(),
                servers: pool.servers.len(),
            }),
            Some(now) => changed_pool(pool, now, changes),
        }
    }
    for pool in new
        .iter()
        .filter(|pool| !before.contains(pool.name.as_str()))
    {
        changes.push(Change::PoolAdded {
            pool: pool.name.clone(),
            servers: pool.servers.len(),
        });
    }
}

fn changed_pool(before: &Pool, now: &Pool, changes: &mut Vec<Change>) {
    let edits = pool_edits(before, now);
    if !edits.is_empty() {
        changes.push(Change::PoolChanged {
            pool: before.name.clone(),
            edits,
        });
    }
    diff_servers(before, now, changes);
}

fn diff_servers(old: &Pool, new: &Pool, changes: &mut Vec<Change>) {
    let pool = &old.name;
    if in_step(&old.servers, &new.servers, |server| &server.name) {
        for (before, now) in old.servers.iter().zip(&new.servers) {
            changed_server(pool, before, now, changes);
        }
        return;
    }
    let after: HashMap<&str, &Server> = new
        .servers
        .iter()
        .map(|server| (server.name.as_str(), server))
        .collect();
    let before: HashSet<&str> = old
        .servers
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    for server in &old.servers {
        match after.get(server.name.as_str()) {
            None => changes.push(Change::ServerRemoved {
                pool: pool.clone(),
                server: server.name.clone(),
            }),
            Some(now) => changed_server(pool, server, now, changes),
        }
    }
    for server in new
        .servers
        .iter()
        .filter(|server| !before.contains(server.name.as_str()))
    {
        let (server, weight) = (server.name.clone(), server.weight);
        changes.push(Change::ServerAdded {
            pool: pool.clone(),
            server,
            weight,
        });
    }
    let stays_old = old
        .servers
        .iter()
        .map(|server| &server.name)
        .filter(|name| after.contains_key(name.as_str()));
    let stays_new = new
        .servers
        .iter()
        .map(|server| &server.name)
        .filter(|name| before.contains(name.as_str()));
    if !stays_old.eq(stays_new) {
        changes.push(Change::ServersReordered { pool: pool.clone() });
    }
}

fn changed_server(pool: &str, before: &Server, now: &Server, changes: &mut Vec<Change>) {
    let edits = server_edits(before, now);
    if !edits.is_empty() {
        changes.push(Change::ServerChanged {
            pool: pool.to_owned(),
            server: before.name.clone(),
            edits,
        });
    }
}

fn diff_services(old: &[Service], new: &[Service], changes: &mut Vec<Change>) {
    if in_step(old, new, |service| &service.name) {
        for (service, now) in old.iter().zip(new) {
            changed_service(service, now, changes);
        }
        return;
    }
    let after: HashMap<&str, &Service> = new
        .iter()
        .map(|service| (service.name.as_str(), service))
        .collect();
    let before: HashSet<&str> = old.iter().map(|service| service.name.as_str()).collect();
    for service in old {
        match after.get(service.name.as_str()) {
            None => {
                let summary = summary(service);
                changes.push(Change::ServiceRemoved {
                    service: service.name.clone(),
                    summary,
                });
            }
            Some(now) => changed_service(service, now, changes),
        }
    }
    for service in new
        .iter()
        .filter(|service| !before.contains(service.name.as_str()))
    {
        changes.push(Change::ServiceAdded {
            service: service.name.clone(),
            summary: summary(service),
        });
    }
}

fn changed_service(before: &Service, now: &Service, changes: &mut Vec<Change>) {
    let edits = service_edits(before, now);
    if !edits.is_empty() {
        changes.push(Change::ServiceChanged {
            service: before.name.clone(),
            edits,
        });
    }
}

/// Collects the keys whose values differ; values are formatted only then.
struct Edits(Vec<Edit>);

impl Edits {
    fn compare<T: PartialEq>(
        mut self,
        key: &'static str,
        old: T,
        new: T,
        show: impl Fn(&T) -> String,
    ) -> Self {
        if old != new {
            self.0.push(Edit {
                key,
                old: show(&old),
                new: show(&new),
            });
        }
        self
    }
}

fn node_edits(old: &Node, new: &Node) -> Vec<Edit> {
    Edits(Vec::new())
        .compare(
            "interfaces",
            &old.interfaces,
            &new.interfaces,
            |names| match names {
                Some(names) => names.join(", "),
                None => "from the routes".to_owned(),
            },
        )
        .compare(
            "vip_interface",
            &old.vip_interface,
            &new.vip_interface,
            |name| or_none(name.as_ref()),
        )
        .compare("admin", &old.admin, &new.admin, |admin| {
            or_none(admin.as_ref())
        })
        .compare("max_flows", old.max_flows, new.max_flows, u32::to_string)
        .compare(
            "max_servers",
            old.max_servers,
            new.max_servers,
            u32::to_string,
        )
        .compare(
            "max_services",
            old.max_services,
            new.max_services,
            u32::to_string,
        )
        .compare("syn_budget", old.syn_budget, new.syn_budget, u32::to_string)
        .compare(
            "drain_timeout",
            old.drain_timeout,
            new.drain_timeout,
            duration,
        )
        .0
}

fn timeouts_edits(old: &Timeouts, new: &Timeouts) -> Vec<Edit> {
    Edits(Vec::new())
        .compare("tcp", old.tcp, new.tcp, duration)
        .compare("tcp_fin", old.tcp_fin, new.tcp_fin, duration)
        .compare("udp", old.udp, new.udp, duration)
        .0
}

fn ipvs_edits(old: &Ipvs, new: &Ipvs) -> Vec<Edit> {
    let number = |on: &bool| u8::from(*on).to_string();
    let seconds = |value: &Duration| value.as_secs().to_string();
    Edits(Vec::new())
        .compare(
            "expire_nodest_conn",
            old.expire_nodest_conn,
            new.expire_nodest_conn,
            number,
        )
        .compare(
            "expire_quiescent_template",
            old.expire_quiescent_template,
            new.expire_quiescent_template,
            number,
        )
        .compare(
            "conn_reuse_mode",
            old.conn_reuse_mode,
            new.conn_reuse_mode,
            u8::to_string,
        )
        .compare("sloppy_tcp", old.sloppy_tcp, new.sloppy_tcp, number)
        .compare("drop_entry", old.drop_entry, new.drop_entry, u8::to_string)
        .compare("amemthresh", old.amemthresh, new.amemthresh, u32::to_string)
        .compare(
            "schedule_icmp",
            old.schedule_icmp,
            new.schedule_icmp,
            number,
        )
        .compare("cache_bypass", old.cache_bypass, new.cache_bypass, number)
        .compare(
            "lblc_expiration",
            old.lblc_expiration,
            new.lblc_expiration,
            seconds,
        )
        .compare(
            "lblcr_expiration",
            old.lblcr_expiration,
            new.lblcr_expiration,
            seconds,
        )
        .0
}

fn pool_edits(old: &Pool, new: &Pool) -> Vec<Edit> {
    let sorry = |pool: &Pool| {
        let server = pool.sorry.as_ref()?;
        Some(match &server.checks {
            Some(checks) => format!("{}, check {}", server.name, kinds(checks)),
            None => server.name.clone(),
        })
    };
    Edits(Vec::new())
        .compare(
            "scheduler",
            old.scheduler,
            new.scheduler,
            |scheduler: &Option<Scheduler>| match scheduler {
                Some(scheduler) => scheduler.to_string(),
                None => "by default".to_owned(),
            },
        )
        .compare("sorry", sorry(old), sorry(new), |name| {
            or_none(name.as_ref())
        })
        .compare(
            "servers_file",
            old.servers_file.clone(),
            new.servers_file.clone(),
            |file| or_none(file.as_ref()),
        )
        .compare(
            "servers_dns",
            old.servers_dns.clone(),
            new.servers_dns.clone(),
            |dns| or_none(dns.as_ref().map(|dns| &dns.name)),
        )
        .compare("no_server", old.no_server, new.no_server, |value| {
            value.as_str().to_owned()
        })
        .compare("on_remove", old.on_remove, new.on_remove, |value| {
            value.as_str().to_owned()
        })
        .compare("check", &old.checks, &new.checks, |checks| kinds(checks))
        .compare("scheduler.key", &old.hash_key, &new.hash_key, |key| {
            key.to_string()
        })
        .compare(
            "queue_timeout",
            old.queue_timeout,
            new.queue_timeout,
            duration,
        )
        .compare("sticky", &old.sticky, &new.sticky, |sticky| {
            sticky.as_ref().map_or("none".to_owned(), |sticky| {
                format!("{} {}", sticky.cookie, sticky.mode.as_str())
            })
        })
        .compare(
            "proxy_protocol",
            old.proxy_protocol,
            new.proxy_protocol,
            |version| version.map_or("none".to_owned(), |version| version.as_str().to_owned()),
        )
        .compare("health", &old.health, &new.health, |health| {
            health.to_string()
        })
        .0
}

fn server_edits(old: &Server, new: &Server) -> Vec<Edit> {
    Edits(Vec::new())
        .compare("weight", old.weight, new.weight, u32::to_string)
        .compare("backup", old.backup, new.backup, bool::to_string)
        .compare(
            "max_connections",
            old.max_connections,
            new.max_connections,
            u32::to_string,
        )
        .compare(
            "min_connections",
            old.min_connections,
            new.min_connections,
            u32::to_string,
        )
        .compare("forward", old.forward, new.forward, or_service)
        .compare("tunnel", old.tunnel, new.tunnel, or_service)
        .compare("check", &old.checks, &new.checks, |checks| {
            checks
                .as_ref()
                .map_or_else(|| "the pool's".to_owned(), |checks| kinds(checks))
        })
        .0
}

fn service_edits(old: &Service, new: &Service) -> Vec<Edit> {
    Edits(Vec::new())
        .compare("listen", old.listens_on(), new.listens_on(), |listen| {
            listen.join(", ")
        })
        .compare("forward", old.forward, new.forward, |forward| {
            forward.to_string()
        })
        .compare("tunnel", old.tunnel, new.tunnel, |tunnel| {
            tunnel.to_string()
        })
        .compare("snat", &old.snat, &new.snat, |snat| or_none(snat.as_ref()))
        .compare("dscp", old.dscp, new.dscp, u8::to_string)
        .compare("pool", &old.pool, &new.pool, |pool| (*pool).clone())
        .compare(
            "strict_ipvs",
            old.strict_ipvs,
            new.strict_ipvs,
            bool::to_string,
        )
        .compare(
            "persistence",
            old.persistence,
            new.persistence,
            |persistence| or_none(persistence.as_ref()),
        )
        .compare(
            "one_packet",
            old.one_packet,
            new.one_packet,
            bool::to_string,
        )
        .0
}

fn summary(service: &Service) -> String {
    format!(
        "{} {} to pool {}",
        service.listens_on().join(", "),
        service.forward,
        service.pool
    )
}

fn join(edits: &[Edit]) -> String {
    edits
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

fn count(servers: usize) -> String {
    format!("{servers} server{}", if servers == 1 { "" } else { "s" })
}

fn or_none<T: fmt::Display>(value: Option<&T>) -> String {
    value.map_or_else(|| "none".to_owned(), ToString::to_string)
}

fn or_service<T: fmt::Display>(value: &Option<T>) -> String {
    value
        .as_ref()
        .map_or_else(|| "the service's".to_owned(), ToString::to_string)
}

/// What the checks ask and how often, `http every 2s`.
fn kinds(checks: &[Check]) -> String {
    let kind = |check: &Check| {
        format!(
            "{} every {}",
            check.probe.as_str(),
            duration(&check.timing.interval)
        )
    };
    match checks {
        [] => "none".to_owned(),
        _ => checks.iter().map(kind).collect::<Vec<_>>().join(" and "),
    }
}

/// The largest unit that divides it, as the configuration file takes it.
pub(crate) fn duration(value: &Duration) -> String {
    let millis = value.as_millis();
    for (unit, size) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
    ] {
        if millis != 0 && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}
