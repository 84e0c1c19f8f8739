//! Finds servers of `direct` that this machine reaches through a router. `direct` keeps the VIP as the destination
//! address, so the router returns the packets to the director instead of forwarding them to the server.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use weir_model::{Desired, Forward, Pool, Server, Source};
use weir_netlink::{Lookup, Netlink};

/// A server of `direct` that is behind a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedServer {
    /// The server's name.
    pub server: String,
    /// Position of the server's address.
    pub source: Source,
    /// The router.
    pub router: IpAddr,
}

impl RoutedServer {
    /// Returns a one-line description of the finding.
    pub fn message(&self) -> String {
        format!(
            "with `direct`, server {} must be on a network of this machine, but it is reached through the router {}",
            self.server, self.router
        )
    }

    /// Returns the cause.
    pub const fn cause() -> &'static str {
        "`direct` changes only the MAC address: the router returns packets for the VIP to the director"
    }

    /// Returns how to correct the problem.
    pub const fn fix() -> &'static str {
        "use `tunnel` or `l3dsr`, which work through routers, or connect the server to one of this machine's networks"
    }
}

/// Returns the servers of `direct` to which this machine's routes lead through a router, each once, in file order.
/// Returns none if there are more than `servers_max` servers of `direct`.
///
/// # Errors
/// Fails if the routes cannot be looked up.
pub(super) async fn routed_servers(
    desired: &Desired,
    servers_max: usize,
) -> Result<Vec<RoutedServer>, weir_netlink::Error> {
    let servers = match direct_servers(desired, servers_max) {
        Some(servers) if !servers.is_empty() => servers,
        _ => return Ok(Vec::new()),
    };
    let addresses: Vec<IpAddr> = servers.iter().map(|server| server.address).collect();
    let routes = Netlink::open()?.route_get_each(&addresses).await?;
    Ok(behind_routers(&servers, &routes))
}

/// Returns the servers of layer 4 services that use `direct`, each once. Returns `None` if there are more than
/// `servers_max`.
fn direct_servers(desired: &Desired, servers_max: usize) -> Option<Vec<&Server>> {
    let pools: HashMap<&str, &Pool> = desired
        .pools
        .iter()
        .map(|pool| (pool.name.as_str(), pool))
        .collect();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for service in &desired.services {
        let Some(pool) = pools.get(service.pool.as_str()) else {
            continue;
        };
        let servers = pool.servers.iter().chain(&pool.sorry);
        let direct = servers.filter(|server| {
            server.unix.is_none() && server.forward_in(service) == Forward::Direct
        });
        for server in direct.filter(|server| seen.insert((pool.name.as_str(), &server.name))) {
            found.push(server);
            if found.len() > servers_max {
                return None;
            }
        }
    }
    Some(found)
}

/// Returns the servers whose route has a router. `routes` are the routes to the servers, in the same order.
fn behind_routers(servers: &[&Server], routes: &[Lookup]) -> Vec<RoutedServer> {
    let found = servers.iter().zip(routes).filter_map(|(server, route)| {
        let router = route.next_hops.iter().find_map(|hop| hop.gateway)?;
        Some(RoutedServer {
            server: server.name.clone(),
            source: server.source,
            router,
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use weir_config::{Host, parse};
    use weir_netlink::{NextHop, RouteKind};

    use super::*;
    use crate::configuration::Finding;

    #[test]
    fn servers_behind_routers_share_one_warning() {
        let text = "[pool.p]\nservers = [\"10.0.0.5\", \"10.9.0.2:80\",\n  \
            { address = \"10.9.0.3\", forward = \"tunnel\" }, \"10.9.0.4\"]\n\n\
            [service.a]\nforward = \"direct\"\npool = \"p\"\nlisten = [\"192.0.2.1:80\"]\n\n\
            [service.b]\nforward = \"direct\"\npool = \"p\"\nlisten = [\"192.0.2.2:80\"]\n\n\
            [service.c]\nforward = \"l3dsr\"\npool = \"q\"\nlisten = [\"192.0.2.3:80\"]\n\n\
            [pool.q]\nservers = [\"10.9.0.5\"]\n";
        let desired = parse(text, &Host::default()).unwrap().desired;
        let servers = direct_servers(&desired, 3).unwrap();
        assert!(direct_servers(&desired, 2).is_none());
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["10.0.0.5", "10.9.0.2:80", "10.9.0.4"]);
        let route = |gateway: Option<&str>| Lookup {
            kind: RouteKind::Unicast,
            prefsrc: None,
            next_hops: vec![NextHop {
                ifindex: 2,
                gateway: gateway.map(|it| it.parse().unwrap()),
                weight: 1,
                mtu: None,
            }],
        };
        let router = Some("10.0.0.254");
        let found = behind_routers(&servers, &[route(None), route(router), route(router)]);
        let found = found
            .iter()
            .map(|server| Finding::from_routed_server(server, "weir.toml"));
        let found: String = Finding::merge_similar(found)
            .iter()
            .map(Finding::render)
            .collect();
        insta::assert_snapshot!(found);
    }
}
