//! What proxy services say together with pools, with each other and with the node.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use weir_model::{Ports, Protocol, ProxyProtocol, Route, SchedulerKind, Underscores};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{Lowered, LoweredPool, LoweredProxy, LoweredRoute};
use crate::spelling::header;
use crate::suggest::nearest;
use crate::view::Sink;

use super::dangling;

pub(super) fn verify(sink: &mut Sink<'_>, lowered: &Lowered, pools: &HashMap<&str, &LoweredPool>) {
    listeners(sink, lowered);
    routes(sink, lowered, pools);
    for proxy in &lowered.proxies {
        let Some(place) = &proxy.pool else { continue };
        let own = proxy.proxy.pool.as_str();
        if !pools.contains_key(own) {
            dangling(sink, lowered, pools, own, place, &proxy.name);
        }
        for name in reached(lowered, proxy) {
            if let Some(pool) = pools.get(name) {
                servers(sink, proxy, pool);
                no_servers(sink, lowered, proxy, pool);
            }
        }
    }
    unused_tls(sink, lowered);
}

/// `tls` and `http2` of a pool that packets alone go to.
fn unused_tls(sink: &mut Sink<'_>, lowered: &Lowered) {
    let used: BTreeSet<&str> = lowered
        .proxies
        .iter()
        .flat_map(|proxy| reached(lowered, proxy))
        .collect();
    let layer_4: BTreeSet<&str> = lowered
        .services
        .iter()
        .map(|service| service.service.pool.as_str())
        .collect();
    for pool in &lowered.pools {
        // One that nothing uses is reported as such.
        let name = pool.pool.name.as_str();
        if used.contains(name) || !layer_4.contains(name) {
            continue;
        }
        for (key, place) in [("tls", &pool.tls), ("http2", &pool.http2)] {
            let Some(place) = place else { continue };
            sink.push(
                Diagnostic::new(Code::NoEffect, place, format!("`{key}` has no effect here"))
                    .cause("no proxy service uses this pool, and packets stay as they are")
                    .fix(format!("leave `{key}` out")),
            );
        }
    }
}

/// Pools that a service's requests can come to, each once.
pub(super) fn reached<'a>(lowered: &'a Lowered, proxy: &'a LoweredProxy) -> BTreeSet<&'a str> {
    let routes = lowered.routes.iter();
    let by_route = routes
        .filter(|route| route.service.0 == proxy.proxy.name)
        .flat_map(|route| route.route.action.pools());
    by_route.chain([proxy.proxy.pool.as_str()]).collect()
}

/// Conditions on fields that the service drops before its routes look.
fn unseen_headers(sink: &mut Sink<'_>, proxy: &LoweredProxy, route: &LoweredRoute) {
    let mut names = route.route.headers.iter().map(|(name, _)| name);
    if proxy.proxy.underscores == Underscores::Keep {
        return;
    }
    if let Some(name) = names.find(|name| name.contains('_')) {
        sink.push(
            Diagnostic::new(
                Code::UnreachableRoute,
                &route.place,
                "no request comes to this route",
            )
            .also(
                &proxy.name,
                format!("the service drops fields like `{name}`"),
            )
            .cause("many servers cannot tell `_` from `-` in the names of fields")
            .fix("write `-` in the name, or underscores = \"keep\" in the service"),
        );
    }
}

/// Routes: whose they are, where they lead, and whether a request can come to them.
fn routes(sink: &mut Sink<'_>, lowered: &Lowered, pools: &HashMap<&str, &LoweredPool>) {
    for (at, route) in lowered.routes.iter().enumerate() {
        let (name, place) = &route.service;
        let proxies = || lowered.proxies.iter();
        match proxies().find(|proxy| proxy.proxy.name == *name) {
            Some(proxy) if proxy.proxy.protocol == ProxyProtocol::Http => {
                unseen_headers(sink, proxy, route);
            }
            // The name that a client of TLS asks for is all that is seen there.
            Some(_) if route.route.is_by_name() => {}
            Some(proxy) => sink.push(
                Diagnostic::new(
                    Code::Contradiction,
                    place,
                    format!("service `{name}` sees no requests"),
                )
                .also(&proxy.name, "its protocol is \"tcp\"")
                .cause("of a TLS client's first message `host` is compared, and the connection goes to a `pool`")
                .fix("leave other conditions and answers out, or write protocol = \"http\" there"),
            ),
            None => {
                let near = nearest(name, proxies().map(|proxy| proxy.proxy.name.as_str()));
                let fix = near.map_or_else(
                    || {
                        let header = header(&["service", name]);
                        format!("add {header} with forward = \"proxy\"")
                    },
                    |near| format!("did you mean `{near}`?"),
                );
                let message = format!("there is no proxy service `{name}`");
                sink.push(Diagnostic::new(Code::DanglingPool, place, message).fix(fix));
            }
        }
        if let Some(place) = &route.pool {
            for pool in route.route.action.pools() {
                if !pools.contains_key(pool) {
                    dangling(sink, lowered, pools, pool, place, &route.place);
                }
            }
        }
        let same = |earlier: &&LoweredRoute| {
            earlier.service.0 == *name && earlier.route.covers(&route.route)
        };
        if let Some(earlier) = lowered.routes[..at].iter().find(same) {
            sink.push(
                Diagnostic::new(
                    Code::UnreachableRoute,
                    &route.place,
                    "no request comes to this route",
                )
                .also(&earlier.place, "this one takes them all before")
                .fix("take it out, or put it first"),
            );
        }
    }
}

/// One socket address twice, among proxies, with a layer 4 service of the same precision, or with `admin`.
fn listeners(sink: &mut Sink<'_>, lowered: &Lowered) {
    let mut first: HashMap<SocketAddr, (std::ops::Range<usize>, String)> = HashMap::new();
    for service in &lowered.services {
        let entries = service.service.listen.iter().zip(&service.listen);
        for (listener, place) in entries.filter(|(listener, _)| listener.protocol == Protocol::Tcp)
        {
            if let Ports::One(port) = listener.ports {
                let owner = format!("service `{}`", service.service.name);
                first.insert(
                    SocketAddr::new(listener.address, port),
                    (place.clone(), owner),
                );
            }
        }
    }
    if let (Some(admin), Some(place)) = (&lowered.node.admin, &lowered.admin) {
        first.insert(
            admin.listen,
            (place.clone(), "the admin address".to_owned()),
        );
    }
    for proxy in &lowered.proxies {
        for (address, place) in proxy.proxy.listen.iter().zip(&proxy.listen) {
            let owner = format!("service `{}`", proxy.proxy.name);
            match first.get(address) {
                Some((before, other)) => sink.push(
                    Diagnostic::new(
                        Code::DuplicateListener,
                        place,
                        format!("tcp/{address} is claimed twice"),
                    )
                    .label(owner)
                    .also(before, other.clone())
                    .fix("take one of them out, or change its address or port"),
                ),
                None => {
                    first.insert(*address, (place.clone(), owner));
                }
            }
        }
    }
}

/// A pool without servers that requests can come to. A service whose routes answer and redirect every request needs none.
fn no_servers(sink: &mut Sink<'_>, lowered: &Lowered, proxy: &LoweredProxy, pool: &LoweredPool) {
    if !pool.pool.servers.is_empty() || !pool.complete {
        return;
    }
    let name = pool.pool.name.as_str();
    let routes = || {
        let all = lowered
            .routes
            .iter()
            .map(|route| (&route.service.0, &route.route));
        all.filter(|(service, _)| **service == proxy.proxy.name)
            .map(|(_, route)| route)
    };
    let by_route = routes().any(|route| route.action.pools().contains(&name));
    let takes_the_rest = proxy.proxy.pool == name && !routes().any(Route::is_for_all);
    let what = match (takes_the_rest, by_route) {
        (false, false) => return,
        (true, _) if routes().next().is_none() => "this service refuses all clients",
        (true, _) => "this service refuses requests that no route answers",
        (false, true) => "routes of this service lead to it, and their requests are refused",
    };
    let message = format!("pool `{name}` has no servers");
    sink.push(
        Diagnostic::new(Code::NoServers, &pool.name, message)
            .also(&proxy.name, what)
            .fix("add `servers`, or answer these requests by a route"),
    );
}

fn servers(sink: &mut Sink<'_>, proxy: &LoweredProxy, pool: &LoweredPool) {
    if let Some(scheduler) = pool.pool.scheduler
        && (!scheduler.kind.works_in_proxy()
            || (scheduler.max_load_percent.is_some() && scheduler.kind != SchedulerKind::Hash))
    {
        sink.push(
            Diagnostic::new(
                Code::NotBuilt,
                &pool.name,
                format!("scheduler \"{scheduler}\" is not built yet for proxy services"),
            )
            .also(&proxy.name, "this one uses the pool")
            .fix("choose \"p2c\", \"wlc\" or \"rr\", or give this service a pool of its own"),
        );
    }
    if let Some(place) = &pool.http2
        && pool.pool.http2
        && pool.pool.proxy_protocol.is_some()
    {
        let message = "`proxy_protocol` speaks of one client, and an HTTP/2 connection serves many";
        sink.push(
            Diagnostic::new(Code::Contradiction, place, message)
                .also(&proxy.name, "this one uses the pool")
                .fix("leave one of them out"),
        );
    }
    for (server, place) in pool.pool.servers.iter().zip(&pool.servers) {
        let own = |address: &SocketAddr| {
            address.ip() == server.address && server.port.is_none_or(|port| port == address.port())
        };
        if let Some(at) = proxy.proxy.listen.iter().position(own)
            && let Some(listen) = proxy.listen.get(at)
        {
            sink.push(
                Diagnostic::new(
                    Code::ServerIsVip,
                    place,
                    format!("server {} is the service's own listener", server.name),
                )
                .also(listen, "the listener")
                .cause("the proxy would connect to itself")
                .fix("name the server's own address"),
            );
        }
    }
}
