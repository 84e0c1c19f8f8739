//! Finds servers of `direct` that this machine reaches through a router.
//!
//! `direct` keeps the VIP as the destination address, so the router returns the packets to the director instead of
//! forwarding them to the server.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use weir_model::{Desired, Forward, Pool, Server, Source};
use weir_netlink::{Lookup, Netlink};

/// A server of `direct` that is behind a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedServer {
    /// The server's name.
    pub server: String,
    /// The pool, if a server list adds the server to it.
    pub listed_in: Option<String>,
    /// Position of the server's address, or of the pool if a list adds the server.
    pub source: Source,
    /// The router.
    pub router: IpAddr,
}

impl RoutedServer {
    /// Returns a one-line description of the finding.
    pub fn message(&self) -> String {
        let Self { server, router, .. } = self;
        let list = self.listed_in.as_ref();
        let list = list.map_or_else(String::new, |pool| format!(" in a list of pool {pool}"));
        format!(
            "with `direct`, server {server}{list} must be on a network of this machine, but it is reached through the \
             router {router}"
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
    let addresses: Vec<IpAddr> = servers.iter().map(|(_, server)| server.address).collect();
    let routes = Netlink::open()?.route_get_each(&addresses).await?;
    Ok(behind_routers(&servers, &routes))
}

/// Returns the servers that layer 4 services use with `direct`, and their pools. Each server of a pool occurs once.
/// Returns `None` if there are more than `servers_max`.
fn direct_servers(desired: &Desired, servers_max: usize) -> Option<Vec<(&Pool, &Server)>> {
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
            found.push((*pool, server));
            if found.len() > servers_max {
                return None;
            }
        }
    }
    Some(found)
}

/// Returns the servers whose route has a router. `routes` are the routes to the servers, in the same order.
fn behind_routers(servers: &[(&Pool, &Server)], routes: &[Lookup]) -> Vec<RoutedServer> {
    let found = servers.iter().zip(routes);
    let found = found.filter_map(|((pool, server), route)| {
        let router = route.next_hops.iter().find_map(|hop| hop.gateway)?;
        // A listed server has no position in the file.
        let is_listed = server.source.line == 0;
        Some(RoutedServer {
            server: server.name.clone(),
            listed_in: is_listed.then(|| pool.name.clone()),
            source: if is_listed {
                pool.source
            } else {
                server.source
            },
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
    use crate::configuration::{Finding, with_listed_servers};

    fn route(gateway: Option<&str>) -> Lookup {
        Lookup {
            kind: RouteKind::Unicast,
            prefsrc: None,
            next_hops: vec![NextHop {
                ifindex: 2,
                gateway: gateway.map(|it| it.parse().unwrap()),
                weight: 1,
                mtu: None,
            }],
        }
    }

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
        let names = servers.iter().map(|(_, server)| server.name.as_str());
        let names: Vec<&str> = names.collect();
        assert_eq!(names, ["10.0.0.5", "10.9.0.2:80", "10.9.0.4"]);
        let router = Some("10.0.0.254");
        let routed_servers = behind_routers(&servers, &[route(None), route(router), route(router)]);
        let findings = routed_servers
            .iter()
            .map(|server| Finding::from_routed_server(server, "weir.toml"));
        let text: String = Finding::merge_similar(findings)
            .iter()
            .map(Finding::render)
            .collect();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn listed_servers_are_reported_at_the_position_of_their_pool() {
        let directory = std::env::temp_dir().join(format!("weir-listed-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let list = directory.join("list");
        std::fs::write(&list, "10.0.0.6\n10.9.0.7 weight=2\n").unwrap();
        // The daemon stores the servers of the API and of DNS.
        let members_text = r#"[["p", "api", "10.9.0.8\n"], ["other", "dns", "10.9.0.9\n"]]"#;
        std::fs::write(directory.join("members.json"), members_text).unwrap();
        let text = format!(
            "[service.a]\nforward = \"direct\"\npool = \"p\"\nlisten = [\"192.0.2.1:80\"]\n\n\
             [pool.p]\nservers = [\"10.9.0.5\"]\nservers_file = \"{}\"\n",
            list.display()
        );
        let desired = parse(&text, &Host::default()).unwrap().desired;
        let desired = with_listed_servers(&desired, &directory);
        std::fs::remove_dir_all(&directory).unwrap();
        let servers = direct_servers(&desired, usize::MAX).unwrap();
        let router = Some("10.0.0.254");
        let routes = [route(router), route(None), route(router), route(router)];
        let routed_servers = behind_routers(&servers, &routes);
        let routed_servers = routed_servers
            .iter()
            .map(|it| (it.source.line, it.message()));
        let end =
            "must be on a network of this machine, but it is reached through the router 10.0.0.254";
        let message = |server| format!("with `direct`, server {server} in a list of pool p {end}");
        let expected = [
            (7, format!("with `direct`, server 10.9.0.5 {end}")),
            (6, message("10.9.0.7")),
            (6, message("10.9.0.8")),
        ];
        assert_eq!(routed_servers.collect::<Vec<_>>(), expected);
    }
}
