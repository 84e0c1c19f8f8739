//! Builds a plan's services from the configuration. Keeps existing state, and creates missing state.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use weir_http::{HeadLimits, cookie};
use weir_model::{
    HeaderEdit, HeaderEdits, Pool, ProxyProtocol, RetryOn, Secret, Server, Template, Variable,
};
use weir_select::RetryPolicy;
use weir_select::limit::{ConcurrencyLimit, RateLimit};
use weir_select::route::{Limits, Routes};

use super::{LimitTables, RetainedState, ServerName, Tickets};
use crate::h2::ResetLimit;
use crate::log::Log;
use crate::log::tap::Taps;
use crate::misdirect::{MisdirectRules, Names};
use crate::page::Page;
use crate::plan::{
    Exchanges, ForwardAuth, Listeners, Mirror, PerWorker, RouteOptions, Service, ServiceUsers,
    ShardedCounters, Stickiness, Target, Targets,
};
use crate::trace::Tracer;
use crate::{Error, Result, file_root, socket, tls};

/// Builds one service. Returns the service, the names in its certificates, and its listeners.
#[expect(clippy::too_many_lines, reason = "one step for each group of keys")]
pub(super) fn build_service(
    retained: &mut RetainedState,
    inherited: &mut HashMap<SocketAddr, Vec<OwnedFd>>,
    workers: usize,
    proxy: &weir_model::Proxy,
    pools: &[&Pool],
    tracer: Option<&Arc<Tracer>>,
) -> Result<(Service, Option<Names>, Vec<Arc<Listeners>>)> {
    let listen = listeners(retained, inherited, workers, proxy)?;
    let (counters, clients) = retained
        .counters
        .entry(proxy.name.clone())
        .or_insert_with(|| (Arc::new(ShardedCounters::new(workers)), Arc::default()))
        .clone();
    let limits = &proxy.limits;
    let LimitTables {
        rate,
        concurrent,
        resets,
        ..
    } = limit_tables(retained, proxy);
    file_root::check_roots(proxy)?;
    let (tls, names, expiries) = match build_tls(retained, proxy)? {
        Some(tls::ServiceTlsConfig {
            config,
            names,
            expiries,
        }) => (Some(config), Some(names), expiries),
        None => (None, None, Vec::new()),
    };
    let mut options_of_routes = proxy
        .routes
        .iter()
        .filter_map(|route| route.options.as_ref());
    let has_body_limits = options_of_routes.any(|options| options.max_body.is_some());
    let service = Service {
        name: proxy.name.clone(),
        protocol: proxy.protocol,
        host: proxy
            .listen
            .first()
            .map(ToString::to_string)
            .unwrap_or_default(),
        routes: Routes::new(
            proxy.routes.clone(),
            &pools
                .iter()
                .map(|pool| pool.name.as_str())
                .collect::<Vec<_>>(),
        ),
        max_body_bytes: match has_body_limits {
            true => u64::from(limits.body),
            false => 0,
        },
        options: route_options(retained, proxy, pools),
        auth: service_users(proxy),
        has_forward_auth: proxy
            .routes
            .iter()
            .any(|route| route.forward_auth().is_some()),
        normalize_path: proxy.normalize_path,
        pools: pools
            .iter()
            .map(|pool| build_pool(retained, workers, proxy, pool))
            .collect::<Result<_>>()?,
        tls,
        expiries,
        misdirect: None,
        http2: proxy.http2,
        timeouts: (&proxy.timeouts).into(),
        head: HeadLimits::from(proxy),
        limits: Limits {
            // A route may have a higher limit, so the limit is applied once the route is known.
            max_body_bytes: match has_body_limits {
                true => 0,
                false => u64::from(limits.body),
            },
            rate,
            concurrent,
            key: proxy.limit_key.clone(),
        },
        reset_limit: resets.map(|(_, limit)| limit),
        connections: limits.connections,
        idle_servers: limits.idle_servers as usize,
        max_server_requests: limits.server_requests,
        max_streams: limits.streams,
        retry: RetryPolicy::new(limits.retries, proxy.retry_on.clone()),
        retry_percent: limits.retry_budget,
        forwarded: proxy.forwarded,
        x_forwarded: proxy.x_forwarded,
        request_header: request_header(proxy),
        response_header: proxy.response_header.clone(),
        needs_tls: proxy.needs_tls_properties()
            || pools
                .iter()
                .filter_map(|pool| pool.host.as_ref())
                .flat_map(Template::variables)
                .any(Variable::needs_tls),
        abort_on_close: proxy.abort_on_close && proxy.protocol == ProxyProtocol::Http,
        request_buffering: proxy.request_buffering,
        pages: Page::read_all(proxy)?,
        compression: proxy.compression.clone(),
        x_forwarded_except: proxy.x_forwarded_except.clone(),
        trusted: proxy.trusted.clone(),
        client_ip_header: proxy.client_ip_header.clone(),
        client_ip_skipped: proxy.client_ip_skipped().to_vec(),
        preamble: proxy.proxy_protocol,
        log: log(retained, workers, proxy),
        log_maps: proxy.log_maps.clone(),
        taps: Taps::for_service(&proxy.name),
        tracer: tracer
            .filter(|_| proxy.protocol == ProxyProtocol::Http)
            .cloned(),
        request_id: proxy.request_id.clone(),
        counters,
        exchanges: exchange_counters(retained, workers, proxy, String::new()),
        details: Arc::clone(
            retained
                .details
                .entry(proxy.name.clone())
                .or_insert_with(|| Arc::new(PerWorker::new(workers))),
        ),
        rate_per_minute: limits.per_minute,
        route_exchanges: proxy
            .routes
            .iter()
            .map(|route| {
                let part = format!("route {route}");
                (
                    format!("{route:#}"),
                    exchange_counters(retained, workers, proxy, part),
                )
            })
            .collect(),
        clients,
    };
    Ok((service, names, listen))
}

/// Returns, for each route, the settings that override the service's; empty if no route has any.
fn route_options(
    retained: &mut RetainedState,
    proxy: &weir_model::Proxy,
    pools: &[&Pool],
) -> Vec<Option<Box<RouteOptions>>> {
    if proxy.routes.iter().all(|route| route.options.is_none()) {
        return Vec::new();
    }
    let mut build_options = |route: &weir_model::Route| {
        let options = route.options.as_deref()?;
        let retries = options.retries.unwrap_or(proxy.limits.retries);
        Some(Box::new(RouteOptions {
            timeouts: (&options.timeouts.applied_to(&proxy.timeouts)).into(),
            retry: RetryPolicy::new(
                retries,
                options.retry_on.as_ref().unwrap_or(&proxy.retry_on).clone(),
            ),
            max_body_bytes: u64::from(options.max_body.unwrap_or(proxy.limits.body)),
            compression: options
                .compression
                .clone()
                .unwrap_or_else(|| proxy.compression.clone()),
            logged: options.access_log.unwrap_or(true),
            limits: route_limits(retained, proxy, route, &options.limits),
            all_clients: all_clients(retained, proxy, route, options.max_connections),
            x_forwarded: options.x_forwarded.clone(),
            mirrors: mirrors(retained, proxy, route, pools),
            server: options.server.clone(),
            forward_auth: forward_auth(proxy, route, pools),
        }))
    };
    proxy.routes.iter().map(&mut build_options).collect()
}

/// Returns a route's mirrors. An existing counter of copies in progress is kept if its limit is the same.
fn mirrors(
    retained: &mut RetainedState,
    proxy: &weir_model::Proxy,
    route: &weir_model::Route,
    pools: &[&Pool],
) -> Vec<Arc<Mirror>> {
    let no_retries = RetryOn {
        conditions: Vec::new(),
        statuses: Vec::new(),
    };
    let timeouts = route.options.as_deref().map_or(proxy.timeouts, |options| {
        options.timeouts.applied_to(&proxy.timeouts)
    });
    let mut mirror = |(index, settings): (usize, &weir_model::Mirror)| {
        let name = match index {
            0 => route.to_string(),
            _ => format!("{route} mirror {index}"),
        };
        let key = (proxy.name.clone(), name, settings.concurrent);
        let concurrent = retained.mirrors.entry(key);
        let concurrent =
            concurrent.or_insert_with(|| Arc::new(ConcurrencyLimit::total(settings.concurrent)));
        Some(Arc::new(Mirror {
            pool_index: pools.iter().position(|pool| pool.name == settings.pool)?,
            share: settings.share,
            max_body_bytes: settings.body as usize,
            path: settings.path.clone(),
            is_auth_request: false,
            concurrent: Arc::clone(concurrent),
            retry: RetryPolicy::new(0, no_retries.clone()),
            timeouts: (&timeouts).into(),
        }))
    };
    let settings = route.mirrors().iter().enumerate();
    settings.filter_map(&mut mirror).collect()
}

/// Returns a route's `forward_auth` settings.
fn forward_auth(
    proxy: &weir_model::Proxy,
    route: &weir_model::Route,
    pools: &[&Pool],
) -> Option<Arc<ForwardAuth>> {
    let rules = route.forward_auth()?;
    let no_retries = RetryOn {
        conditions: Vec::new(),
        statuses: Vec::new(),
    };
    let timeouts = weir_model::ProxyTimeouts {
        total: Some(rules.timeout),
        ..proxy.timeouts
    };
    Some(Arc::new(ForwardAuth {
        rules: rules.clone(),
        mirror: Arc::new(Mirror {
            // If the pool does not exist, the response to every request is 503.
            pool_index: pools
                .iter()
                .position(|pool| pool.name == rules.pool)
                .unwrap_or(usize::MAX),
            share: 0,
            max_body_bytes: 0,
            path: None,
            is_auth_request: true,
            concurrent: Arc::new(ConcurrencyLimit::total(weir_model::ForwardAuth::CONCURRENT)),
            retry: RetryPolicy::new(0, no_retries),
            timeouts: (&timeouts).into(),
        }),
    }))
}

/// Returns a route's limits for each client. Existing tables are kept if the limits are the same.
fn route_limits(
    retained: &mut RetainedState,
    proxy: &weir_model::Proxy,
    route: &weir_model::Route,
    limits: &weir_model::RouteLimits,
) -> Option<Limits> {
    if limits.per_minute == 0 && limits.concurrent == 0 {
        return None;
    }
    let key = (proxy.name.clone(), route.to_string(), limits.clone());
    let (rate, concurrent) = retained.route_limits.entry(key).or_insert_with(|| {
        let rate = RateLimit::for_route(limits.per_minute, limits.burst());
        let concurrent = ConcurrencyLimit::for_route(limits.concurrent);
        (
            (limits.per_minute > 0).then(|| Arc::new(rate)),
            (limits.concurrent > 0).then(|| Arc::new(concurrent)),
        )
    });
    Some(Limits {
        max_body_bytes: 0,
        rate: rate.clone(),
        concurrent: concurrent.clone(),
        key: limits.key.clone(),
    })
}

/// Returns the counter for a route's requests in progress. An existing counter is kept if its limit is the same.
fn all_clients(
    retained: &mut RetainedState,
    proxy: &weir_model::Proxy,
    route: &weir_model::Route,
    limit: u32,
) -> Option<Arc<ConcurrencyLimit>> {
    let key = (proxy.name.clone(), route.to_string(), limit);
    (limit > 0).then(|| {
        let retained = retained.all_clients.entry(key);
        Arc::clone(retained.or_insert_with(|| Arc::new(ConcurrencyLimit::total(limit))))
    })
}

/// Returns the users for a service and its routes; `None` = `basic_auth` is not used.
fn service_users(proxy: &weir_model::Proxy) -> Option<ServiceUsers> {
    let route_users = |route: &weir_model::Route| route.options.as_ref()?.basic_auth.clone();
    let routes: Vec<_> = proxy.routes.iter().map(route_users).collect();
    let is_used = proxy.basic_auth.is_some() || routes.iter().any(Option::is_some);
    is_used.then(|| ServiceUsers {
        service: proxy.basic_auth.clone(),
        routes,
    })
}

/// Sets each service's rules for misdirected requests, which depend on the TLS settings of the other services. `parts`
/// and `services` are in the same order.
pub(super) fn set_misdirect(
    services: &mut [Service],
    parts: Vec<(&weir_model::Proxy, Option<Names>)>,
) {
    let parts: Vec<_> = parts
        .into_iter()
        .map(|(proxy, names)| proxy.tls.as_ref().zip(names.map(Arc::new)))
        .collect();
    for (index, service) in services.iter_mut().enumerate() {
        let Some(Some((tls, own_names))) = parts.get(index) else {
            continue;
        };
        let other_parts = parts
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index);
        let others =
            other_parts.filter_map(|(_, part)| part.as_ref().map(|(tls, names)| (*tls, names)));
        service.misdirect = MisdirectRules::new(tls, own_names, others);
    }
}

/// Builds a service's TLS configuration from the current certificate files. Generated ticket keys are kept if the
/// client authentication is the same.
fn build_tls(
    retained: &mut RetainedState,
    proxy: &weir_model::Proxy,
) -> Result<Option<tls::ServiceTlsConfig>> {
    let Some(settings) = &proxy.tls else {
        return Ok(None);
    };
    let tls_error = |source| Error::Tls {
        owner: format!("service {}", proxy.name),
        source,
    };
    let is_unchanged = |tickets: &&Tickets| {
        let (ca, auth) = (&tickets.client_ca, tickets.client_auth);
        ca == &settings.client_ca
            && auth == settings.client_auth
            && !tickets.keys.has_configured_keys()
    };
    let keys = match retained.tickets.get(&proxy.name).filter(is_unchanged) {
        Some(tickets) if settings.ticket_keys.is_empty() => Arc::clone(&tickets.keys),
        _ => tls::Tickets::for_service(&proxy.name, settings)
            .map(Arc::new)
            .map_err(|source| {
                tls_error(tls::CertificateError::Rejected {
                    path: settings.certificates_text().into(),
                    source,
                })
            })?,
    };
    let protocols: &[&[u8]] = match proxy.protocol {
        ProxyProtocol::Http if proxy.http2 => &[b"h2", b"http/1.1"],
        ProxyProtocol::Http => &[b"http/1.1"],
        ProxyProtocol::Tcp => &[],
    };
    let config = tls::server_config(settings, protocols, Arc::<tls::Tickets>::clone(&keys))
        .map_err(tls_error)?;
    let tickets = Tickets {
        client_ca: settings.client_ca.clone(),
        client_auth: settings.client_auth,
        keys,
    };
    retained.tickets.insert(proxy.name.clone(), tickets);
    Ok(Some(config))
}

/// Builds a pool for a service. Existing targets are kept unless their TLS or HTTP/2 settings have changed.
fn build_pool(
    retained: &mut RetainedState,
    workers: usize,
    proxy: &weir_model::Proxy,
    pool: &Pool,
) -> Result<Targets> {
    let protocols: &[&[u8]] = match proxy.protocol {
        ProxyProtocol::Http if pool.http2 => &[b"h2"],
        ProxyProtocol::Http => &[b"http/1.1"],
        ProxyProtocol::Tcp => &[],
    };
    let connector = pool.tls.as_ref().map(|settings| {
        tls::TlsConnector::new(settings, protocols).map_err(|source| Error::Tls {
            owner: format!("pool {}", pool.name),
            source,
        })
    });
    let queue = Arc::clone(retained.queues.entry(pool.name.clone()).or_default());
    let by_backup = |backup: bool| {
        pool.servers
            .iter()
            .filter(move |server| server.backup == backup)
    };
    let regular_count = by_backup(false).count();
    let servers = by_backup(false).chain(by_backup(true)).chain(&pool.sorry);
    let servers: Vec<&Server> = servers.collect();
    let list: Vec<Arc<Target>> = servers
        .iter()
        .map(|server| target(retained, workers, &proxy.name, pool, server))
        .collect();
    let sticky = pool.sticky.as_ref().map(|kind| Stickiness {
        cookie_values: servers
            .iter()
            .map(|server| match &server.cookie {
                Some(value) => value.as_bytes().into(),
                None => {
                    let secret = kind.secret.as_ref().or(retained.cookie_key.as_ref());
                    let secret = secret.map_or(&b""[..], Secret::expose);
                    cookie::sign(secret, &server.name).into()
                }
            })
            .collect(),
        attributes: kind.attributes(proxy.tls.is_some()).to_owned(),
        kind: kind.clone(),
    });
    Ok(Targets {
        list,
        tiers: [regular_count, pool.servers.len()],
        hash_key: pool.hash_key.clone(),
        sticky,
        host: pool.host.clone(),
        preamble: pool.proxy_protocol,
        queue,
        queue_ms: u64::try_from(pool.queue_timeout.as_millis()).unwrap_or(u64::MAX / 2),
        pool: pool.name.clone(),
        tls: connector.transpose()?,
        http2: pool.http2,
        no_server: pool.no_server,
        scheduler: pool
            .scheduler
            .unwrap_or(weir_model::Proxy::default_scheduler(proxy.protocol)),
        version: Arc::clone(retained.versions.entry(pool.name.clone()).or_default()),
        exchanges: exchange_counters(retained, workers, proxy, format!("pool {}", pool.name)),
    })
}

/// Returns the target for a server. An existing target is kept unless its TLS or HTTP/2 settings have changed; then a
/// new target with the same counters replaces it.
fn target(
    retained: &mut RetainedState,
    workers: usize,
    service: &str,
    pool: &Pool,
    server: &Server,
) -> Arc<Target> {
    let name = (pool.name.clone(), server.name.clone());
    let load = Arc::clone(retained.loads.entry(name.clone()).or_default());
    let queue = Arc::clone(retained.queues.entry(pool.name.clone()).or_default());
    let key = (service.to_owned(), name);
    let previous = retained.targets.get(&key);
    if let Some(target) = previous
        && target.tls == pool.tls
        && target.http2 == pool.http2
    {
        return Arc::clone(target);
    }
    let (counters, exchanges, recent) = match previous {
        Some(previous) => (
            Arc::clone(&previous.counters),
            Arc::clone(&previous.exchanges),
            Arc::clone(&previous.recent),
        ),
        None => (
            Arc::new(ShardedCounters::new(workers)),
            Arc::new(PerWorker::new(workers)),
            Arc::new(PerWorker::new(workers)),
        ),
    };
    let target = Arc::new(Target {
        id: retained.next_target,
        name: server.name.clone(),
        address: server.address,
        port: server.port,
        unix: server.unix.clone(),
        load,
        tls: pool.tls.clone(),
        http2: pool.http2,
        seed: cookie::siphash((0, 0), server.name.as_bytes()),
        queue,
        counters,
        exchanges,
        recent,
    });
    retained.next_target += 1;
    retained.targets.insert(key, Arc::clone(&target));
    target
}

/// Returns the counters for a service, or for `part` of it. Existing counters are kept.
fn exchange_counters(
    retained: &mut RetainedState,
    workers: usize,
    proxy: &weir_model::Proxy,
    part: String,
) -> Arc<PerWorker<Exchanges>> {
    let retained = retained.exchanges.entry((proxy.name.clone(), part));
    Arc::clone(retained.or_insert_with(|| Arc::new(PerWorker::new(workers))))
}

/// Returns a service's listeners: existing ones, ones with inherited sockets, or new ones.
fn listeners(
    retained: &mut RetainedState,
    inherited: &mut HashMap<SocketAddr, Vec<OwnedFd>>,
    workers: usize,
    proxy: &weir_model::Proxy,
) -> Result<Vec<Arc<Listeners>>> {
    let mut all_listeners = Vec::with_capacity(proxy.listen.len());
    for address in &proxy.listen {
        if let Some(listeners) = retained.listeners.get(address) {
            all_listeners.push(Arc::clone(listeners));
            continue;
        }
        let mut sockets = inherited.remove(address).unwrap_or_default();
        while sockets.len() < workers {
            let socket = socket::listen(*address).map_err(|source| Error::Listen {
                service: proxy.name.clone(),
                address: *address,
                source,
            });
            sockets.push(socket?);
        }
        let listeners = Arc::new(Listeners {
            address: *address,
            sockets,
            workers,
        });
        retained.listeners.insert(*address, Arc::clone(&listeners));
        all_listeners.push(listeners);
    }
    Ok(all_listeners)
}

/// Returns the tables that limit a service's clients. Existing tables are kept if the limits are the same.
fn limit_tables(retained: &mut RetainedState, proxy: &weir_model::Proxy) -> LimitTables {
    let limits = &proxy.limits;
    let burst = limits.burst();
    let current = (
        limits.per_minute,
        burst,
        limits.concurrent,
        proxy.limit_key.clone(),
    );
    let tables = retained.tables.entry(proxy.name.clone()).or_default();
    if tables.limits != current {
        *tables = LimitTables {
            rate: (limits.per_minute > 0)
                .then(|| Arc::new(RateLimit::for_service(limits.per_minute, burst))),
            concurrent: (limits.concurrent > 0)
                .then(|| Arc::new(ConcurrencyLimit::new(limits.concurrent))),
            resets: tables.resets.take(),
            limits: current,
        };
    }
    let is_unchanged = |(rate, _): &(u32, _)| *rate == limits.resets;
    if !tables.resets.as_ref().is_some_and(is_unchanged) {
        let resets = ResetLimit::new(limits.resets);
        tables.resets = resets.map(|resets| (limits.resets, Arc::new(resets)));
    }
    tables.clone()
}

/// Returns the changes to request headers, including the request identifier.
fn request_header(proxy: &weir_model::Proxy) -> HeaderEdits {
    let mut edits = proxy.request_header.clone();
    if let Some(name) = &proxy.request_id {
        edits.set.push(HeaderEdit {
            name: name.clone(),
            value: Template::parse("{request_id}").unwrap_or_default(),
            statuses: Vec::new(),
            file: None,
        });
    }
    edits
}

/// Returns a service's log. An existing log is kept if its settings are the same.
fn log(
    retained: &mut RetainedState,
    workers: usize,
    proxy: &weir_model::Proxy,
) -> Option<Arc<Log>> {
    let kind = proxy.access_log.as_ref()?;
    let previous = retained.logs.get(&proxy.name);
    let is_unchanged = |log: &&Arc<Log>| log.kind == *kind && log.protocol == proxy.protocol;
    if let Some(log) = previous.filter(is_unchanged) {
        return Some(Arc::clone(log));
    }
    let log = Arc::new(Log::new(kind, proxy.protocol, &proxy.name, workers));
    retained.logs.insert(proxy.name.clone(), Arc::clone(&log));
    Some(log)
}

/// Drops the state that no service uses. Listening sockets close when the last worker has released them.
pub(super) fn drop_unused(
    state: &mut RetainedState,
    services: &[Arc<Service>],
    listen: &[(Arc<Listeners>, Arc<Service>)],
) {
    let addresses: HashSet<SocketAddr> = listen
        .iter()
        .map(|(listeners, _)| listeners.address)
        .collect();
    state
        .listeners
        .retain(|address, _| addresses.contains(address));
    state
        .counters
        .retain(|name, _| services.iter().any(|service| service.name == *name));
    state.exchanges.retain(|(name, part), _| {
        let mut services = services.iter();
        services.any(|service| {
            let pool = |pool: &Targets| part.strip_prefix("pool ") == Some(&pool.pool);
            let route = |(label, _): &(String, _)| part.strip_prefix("route ") == Some(label);
            service.name == *name
                && (part.is_empty()
                    || service.pools.iter().any(pool)
                    || service.route_exchanges.iter().any(route))
        })
    });
    state
        .details
        .retain(|name, _| services.iter().any(|service| service.name == *name));
    state
        .tickets
        .retain(|name, _| services.iter().any(|service| service.name == *name));
    state.logs.retain(|name, _| {
        services
            .iter()
            .any(|service| service.log.is_some() && service.name == *name)
    });
    state
        .tables
        .retain(|name, _| services.iter().any(|service| service.name == *name));
    // Drop the tables that only `state` refers to.
    state.route_limits.retain(|_, (rate, concurrent)| {
        let rate = rate
            .as_ref()
            .is_some_and(|table| Arc::strong_count(table) > 1);
        rate || concurrent
            .as_ref()
            .is_some_and(|table| Arc::strong_count(table) > 1)
    });
    for tables in [&mut state.all_clients, &mut state.mirrors] {
        tables.retain(|_, table| Arc::strong_count(table) > 1);
    }
    state.queues.retain(|pool, _| {
        services
            .iter()
            .any(|service| service.pools.iter().any(|targets| targets.pool == *pool))
    });
    let ids: HashSet<u32> = services
        .iter()
        .flat_map(|service| service.targets().map(|target| target.id))
        .collect();
    state.targets.retain(|_, target| ids.contains(&target.id));
    let names: HashSet<ServerName> = state.targets.keys().map(|(_, name)| name.clone()).collect();
    state.loads.retain(|name, _| names.contains(name));
    state.versions.retain(|pool, _| {
        services
            .iter()
            .any(|service| service.pools.iter().any(|targets| targets.pool == *pool))
    });
}
