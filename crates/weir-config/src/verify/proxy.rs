//! Verifies proxy services and their routes, pools and listeners.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::ops::Range;

use weir_model::{Ports, Protocol, ProxyProtocol, Route, RouteAction, SchedulerKind, Underscores};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredConfig, LoweredPool, LoweredProxy, LoweredRoute};
use crate::spelling::header;
use crate::suggest::nearest;
use crate::view::Sink;

use super::earlier_route::EarlierRoutes;
use super::{USED_BY_ROUTE, USED_BY_SERVICE, report_missing_pool};

pub(super) fn verify(
    sink: &mut Sink<'_>,
    lowered: &LoweredConfig,
    pools: &HashMap<&str, &LoweredPool>,
) {
    verify_listeners(sink, lowered);
    verify_routes(sink, lowered, pools);
    for proxy in &lowered.proxies {
        let Some(location) = &proxy.pool else {
            continue;
        };
        let default_pool = proxy.proxy.pool.as_str();
        if !pools.contains_key(default_pool) {
            let user = (&proxy.name, USED_BY_SERVICE);
            report_missing_pool(sink, lowered, pools, default_pool, location, user);
        }
        for name in reachable_pools(lowered, proxy) {
            if let Some(pool) = pools.get(name) {
                verify_servers(sink, proxy, pool);
                report_no_servers(sink, lowered, proxy, pool);
            }
        }
    }
    report_unused_tls(sink, lowered);
}

/// Reports `tls` and `http2` in pools that only layer 4 services use.
fn report_unused_tls(sink: &mut Sink<'_>, lowered: &LoweredConfig) {
    let proxy_pools: BTreeSet<&str> = lowered
        .proxies
        .iter()
        .flat_map(|proxy| reachable_pools(lowered, proxy))
        .collect();
    let layer_4_pools: BTreeSet<&str> = lowered
        .services
        .iter()
        .map(|service| service.service.pool.as_str())
        .collect();
    for pool in &lowered.pools {
        // Unused pools are reported separately.
        let name = pool.pool.name.as_str();
        if proxy_pools.contains(name) || !layer_4_pools.contains(name) {
            continue;
        }
        for (key, location) in [("tls", &pool.tls), ("http2", &pool.http2)] {
            let Some(location) = location else { continue };
            sink.push(
                Diagnostic::new(Code::NoEffect, location, format!("`{key}` has no effect here"))
                    .cause("no proxy service uses this pool, and layer 4 services do not change the payload")
                    .fix(format!("remove `{key}`")),
            );
        }
    }
}

/// Returns the pools that requests to a service may use, without duplicates.
pub(super) fn reachable_pools<'a>(
    lowered: &'a LoweredConfig,
    proxy: &'a LoweredProxy,
) -> BTreeSet<&'a str> {
    let routes = lowered.routes.iter();
    let by_route = routes
        .filter(|route| route.service.0 == proxy.proxy.name)
        .flat_map(|route| route.route.pools());
    by_route.chain([proxy.proxy.pool.as_str()]).collect()
}

/// Reports a condition on a header field that the service does not accept: it removes the field before routing, or
/// rejects the request.
fn report_dropped_headers(sink: &mut Sink<'_>, proxy: &LoweredProxy, route: &LoweredRoute) {
    let mut names = route.route.when.headers.iter().map(|it| &it.name);
    if proxy.proxy.underscores == Underscores::Keep {
        return;
    }
    if let Some(name) = names.find(|name| name.contains('_')) {
        sink.push(
            Diagnostic::new(
                Code::UnreachableRoute,
                &route.location,
                "no request can reach this route",
            )
            .related(
                &proxy.name,
                format!(
                    "the service removes or rejects header fields whose names contain `_`, such as `{name}`"
                ),
            )
            .cause("many servers cannot distinguish `_` from `-` in field names")
            .fix("use `-` in the name, or set underscores = \"keep\" in the service"),
        );
    }
}

/// Reports a route whose service does not exist or is not a proxy service.
fn report_missing_proxy(
    sink: &mut Sink<'_>,
    lowered: &LoweredConfig,
    name: &str,
    location: &Range<usize>,
) {
    if let Some(service) = lowered.services.iter().find(|it| it.service.name == name) {
        // A service without a valid `forward` is reported separately.
        if let Some(forward) = &service.forward {
            let message = format!("service `{name}` is not a proxy service");
            sink.push(
                Diagnostic::new(Code::Contradiction, location, message)
                    .related(forward, "its forwarding method handles packets")
                    .cause("routes select pools for requests, but layer 4 forwarding handles only packets")
                    .fix("set forward = \"proxy\" and protocol = \"http\" in the service, or remove the route"),
            );
        }
        return;
    }
    let names = lowered
        .proxies
        .iter()
        .map(|proxy| proxy.proxy.name.as_str());
    let fix = nearest(name, names).map_or_else(
        || {
            let header = header(&["service", name]);
            format!("add {header} with forward = \"proxy\"")
        },
        |near| format!("did you mean `{near}`?"),
    );
    let message = format!("proxy service `{name}` does not exist");
    sink.push(Diagnostic::new(Code::DanglingPool, location, message).fix(fix));
}

/// Verifies a route's `server`.
fn verify_preferred_server(
    sink: &mut Sink<'_>,
    route: &LoweredRoute,
    pools: &HashMap<&str, &LoweredPool>,
) {
    let options = route.route.options.as_deref();
    let Some(server) = options.and_then(|options| options.server.as_deref()) else {
        return;
    };
    let (Some(location), RouteAction::Pool(name)) = (&route.server, &route.route.action) else {
        return;
    };
    let Some(pool) = pools.get(name.as_str()) else {
        return;
    };
    let mut servers = pool.pool.servers.iter();
    // Servers from `servers_file`, DNS and the API are not known yet.
    if pool.complete && !servers.any(|it| it.name == server) {
        let near = nearest(server, pool.pool.servers.iter().map(|it| it.name.as_str()));
        let fix = near.map_or_else(
            || "specify the server exactly as in the pool".to_owned(),
            |near| format!("did you mean \"{near}\"?"),
        );
        let message = format!("pool `{name}` has no server \"{server}\"");
        sink.push(
            Diagnostic::new(Code::DanglingPool, location, message)
                .related(&pool.name, "the pool")
                .fix(fix),
        );
    }
}

/// Verifies each route: its service, its pools, its server, `forward_auth`, and that requests can reach it.
fn verify_routes(
    sink: &mut Sink<'_>,
    lowered: &LoweredConfig,
    pools: &HashMap<&str, &LoweredPool>,
) {
    let proxies = || lowered.proxies.iter();
    let proxies_by_name: HashMap<&str, &LoweredProxy> = proxies()
        .map(|proxy| (proxy.proxy.name.as_str(), proxy))
        .collect();
    let mut earlier_routes: HashMap<&str, EarlierRoutes<'_>> = HashMap::new();
    for route in &lowered.routes {
        let (name, location) = &route.service;
        let user = (&route.location, USED_BY_ROUTE);
        match proxies_by_name.get(name.as_str()) {
            Some(proxy) if proxy.proxy.protocol == ProxyProtocol::Http => {
                report_dropped_headers(sink, proxy, route);
            }
            // In a tcp service, only the SNI and the client's address are known when a route is selected.
            Some(_) if route.route.is_valid_for_tcp() => {}
            Some(proxy) => sink.push(
                Diagnostic::new(
                    Code::Contradiction,
                    location,
                    format!("service `{name}` does not process HTTP requests"),
                )
                .related(&proxy.name, "its protocol is \"tcp\"")
                .cause("in a tcp service, a route can only compare `host` with the SNI and `source` with the client \
                        address, and its only actions are `pool` and `close`")
                .fix("remove the other conditions and actions, or set protocol = \"http\" in the service"),
            ),
            None => report_missing_proxy(sink, lowered, name, location),
        }
        if let Some(location) = &route.pool {
            for pool in route.route.action.pools() {
                if !pools.contains_key(pool) {
                    report_missing_pool(sink, lowered, pools, pool, location, user);
                }
            }
        }
        if let Some(location) = &route.mirror {
            for mirror in route.route.mirrors() {
                if !pools.contains_key(mirror.pool.as_str()) {
                    report_missing_pool(sink, lowered, pools, &mirror.pool, location, user);
                }
            }
        }
        verify_preferred_server(sink, route, pools);
        verify_forward_auth(sink, lowered, pools, route);
        earlier_routes
            .entry(name.as_str())
            .or_default()
            .add(sink, route);
    }
}

/// Verifies the pool of `forward_auth`. It must exist, and its servers must not be services with `forward_auth`,
/// because authorization requests could loop endlessly.
fn verify_forward_auth(
    sink: &mut Sink<'_>,
    lowered: &LoweredConfig,
    pools: &HashMap<&str, &LoweredPool>,
    route: &LoweredRoute,
) {
    let (Some(location), Some(auth)) = (&route.forward_auth, route.route.forward_auth()) else {
        return;
    };
    let Some(pool) = pools.get(auth.pool.as_str()) else {
        let user = (&route.location, USED_BY_ROUTE);
        report_missing_pool(sink, lowered, pools, &auth.pool, location, user);
        return;
    };
    let has_forward_auth = |proxy: &&LoweredProxy| {
        let mut routes = lowered.routes.iter();
        routes.any(|it| it.service.0 == proxy.proxy.name && it.route.forward_auth().is_some())
    };
    for (server, span) in pool.pool.servers.iter().zip(&pool.servers) {
        let is_server_address = |listen: &SocketAddr| {
            let is_address = listen.ip() == server.address
                || listen.ip().is_unspecified() && server.address.is_loopback();
            is_address && server.port.is_none_or(|port| port == listen.port())
        };
        let mut services = lowered.proxies.iter().filter(has_forward_auth);
        let Some(proxy) = services.find(|proxy| proxy.proxy.listen.iter().any(is_server_address))
        else {
            continue;
        };
        let message = format!(
            "server {} is a listener of service `{}`, which also uses `forward_auth`",
            server.name, proxy.proxy.name
        );
        sink.push(
            Diagnostic::new(Code::Contradiction, span, message)
                .related(location, "used here")
                .related(&proxy.name, "this service")
                .cause("authorization requests to a service that uses `forward_auth` can loop endlessly")
                .fix("use the address of the authorizing server"),
        );
    }
}

/// Reports listen addresses of proxies that duplicate those of other proxies, layer 4 services, or `admin`.
fn verify_listeners(sink: &mut Sink<'_>, lowered: &LoweredConfig) {
    let mut owners: HashMap<SocketAddr, (Range<usize>, String)> = HashMap::new();
    for service in &lowered.services {
        let entries = service.service.listen.iter().zip(&service.listen);
        for (listener, location) in
            entries.filter(|(listener, _)| listener.protocol == Protocol::Tcp)
        {
            if let Ports::One(port) = listener.ports {
                let owner = format!("service `{}`", service.service.name);
                owners.insert(
                    SocketAddr::new(listener.address, port),
                    (location.clone(), owner),
                );
            }
        }
    }
    if let (Some(admin), Some(location)) = (&lowered.node.admin, &lowered.admin) {
        owners.insert(
            admin.listen,
            (location.clone(), "the admin address".to_owned()),
        );
    }
    for proxy in &lowered.proxies {
        for (address, location) in proxy.proxy.listen.iter().zip(&proxy.listen) {
            let owner = format!("service `{}`", proxy.proxy.name);
            match owners.get(address) {
                Some((first_span, first_owner)) => sink.push(
                    Diagnostic::new(
                        Code::DuplicateListener,
                        location,
                        format!("tcp/{address} is used twice"),
                    )
                    .label(owner)
                    .related(first_span, first_owner.clone())
                    .fix("remove one of them, or change its address or port"),
                ),
                None => {
                    owners.insert(*address, (location.clone(), owner));
                }
            }
        }
    }
}

/// Reports a pool without servers. A service needs no servers if its routes respond to or redirect every request.
fn report_no_servers(
    sink: &mut Sink<'_>,
    lowered: &LoweredConfig,
    proxy: &LoweredProxy,
    pool: &LoweredPool,
) {
    if !pool.pool.servers.is_empty() || !pool.complete {
        return;
    }
    let name = pool.pool.name.as_str();
    let routes = || {
        let routes = lowered
            .routes
            .iter()
            .map(|route| (&route.service.0, &route.route));
        routes
            .filter(|(service, _)| **service == proxy.proxy.name)
            .map(|(_, route)| route)
    };
    let is_pool_of_route = routes().any(|route| route.action.pools().contains(&name));
    let is_default_pool = proxy.proxy.pool == name && !routes().any(Route::always_applies);
    let effect = match (is_default_pool, is_pool_of_route) {
        (false, false) => return,
        (true, _) if routes().next().is_none() => "this service rejects all clients",
        (true, _) => "this service rejects requests that match no route",
        (false, true) => "this service rejects requests that are routed to the pool",
    };
    let message = format!("pool `{name}` has no servers");
    sink.push(
        Diagnostic::new(Code::NoServers, &pool.name, message)
            .related(&proxy.name, effect)
            .fix("add `servers`, or a route that responds to these requests"),
    );
}

/// Reports the first server of a pool that would receive unencrypted traffic on the service's TLS port.
fn report_plain_to_tls_port(sink: &mut Sink<'_>, proxy: &LoweredProxy, pool: &LoweredPool) {
    if proxy.proxy.tls.is_none() || pool.pool.tls.is_some() {
        return;
    }
    let mut servers = pool.pool.servers.iter().zip(&pool.servers);
    let server_without_port =
        servers.find(|(server, _)| server.port.is_none() && server.unix.is_none());
    if let (Some((server, location)), Some(listen)) =
        (server_without_port, proxy.proxy.listen.first())
    {
        let port = listen.port();
        let message = format!(
            "server {} receives unencrypted requests on port {port}",
            server.name
        );
        let example = SocketAddr::new(server.address, 80);
        sink.push(
            Diagnostic::new(Code::PlainToTlsPort, location, message)
                .related(&proxy.name, "this service terminates TLS")
                .cause("a server without a port uses the port of the client's connection")
                .fix(format!(
                    "add the server's port, as in \"{example}\"; or, if the server expects TLS, add `tls` to the pool"
                )),
        );
    }
}

fn verify_servers(sink: &mut Sink<'_>, proxy: &LoweredProxy, pool: &LoweredPool) {
    if let Some(scheduler) = pool.pool.scheduler
        && (!scheduler.kind.works_in_proxy()
            || (scheduler.max_load_percent.is_some() && scheduler.kind != SchedulerKind::Hash))
    {
        sink.push(
            Diagnostic::new(
                Code::NotImplemented,
                &pool.name,
                format!("scheduler \"{scheduler}\" is not built yet for proxy services"),
            )
            .related(&proxy.name, "used by this service")
            .fix("use \"p2c\", \"wlc\" or \"rr\", or a separate pool for this service"),
        );
    }
    if let Some(location) = &pool.http2
        && pool.pool.http2
        && pool.pool.proxy_protocol.is_some()
    {
        let message =
            "`proxy_protocol` describes one client, but an HTTP/2 connection is shared by several";
        sink.push(
            Diagnostic::new(Code::Contradiction, location, message)
                .related(&proxy.name, "used by this service")
                .fix("remove `proxy_protocol` or `http2`"),
        );
    }
    report_plain_to_tls_port(sink, proxy, pool);
    for (server, location) in pool.pool.servers.iter().zip(&pool.servers) {
        let is_server = |address: &SocketAddr| {
            address.ip() == server.address && server.port.is_none_or(|port| port == address.port())
        };
        if let Some(index) = proxy.proxy.listen.iter().position(is_server)
            && let Some(listen) = proxy.listen.get(index)
        {
            sink.push(
                Diagnostic::new(
                    Code::ServerIsVip,
                    location,
                    format!("server {} is the service's own listener", server.name),
                )
                .related(listen, "the listener")
                .cause("the proxy would connect to itself")
                .fix("use the server's own address"),
            );
        }
    }
}
