//! Reports pools without servers, and server lists that failed to load. Ignores pools that no request can reach.

use std::collections::{BTreeMap, BTreeSet};

use weir_discovery::{ListSource, Source};
use weir_doctor::Diagnosis;
use weir_model::{Desired, Proxy};

use crate::count::format_count;
use crate::status::{Report, Service};

/// The origin of services that the configuration file defines.
const FILE: &str = "file";

impl Report {
    /// Returns server lists that failed to load, and pools without servers. A pool whose list failed to load is one
    /// finding.
    pub fn pool_findings(&self, desired: &Desired) -> Vec<Diagnosis> {
        let empty_pools = self.empty_pools(desired);
        let mut findings = Vec::new();
        let mut reported_pools = BTreeSet::new();
        for list in &self.sources {
            let Some(problem) = &list.problem else {
                continue;
            };
            let services = empty_pools.get(list.pool.as_str());
            findings.push(failed_list(list, problem, services.map(Vec::as_slice)));
            reported_pools.insert(list.pool.as_str());
        }
        for (pool, services) in empty_pools {
            if !reported_pools.contains(pool) {
                findings.push(self.empty_pool(pool, &services, desired));
            }
        }
        findings
    }

    /// Returns the pools without servers that requests can reach, with the services that use them.
    fn empty_pools(&self, desired: &Desired) -> BTreeMap<&str, Vec<EmptyUse<'_>>> {
        let mut empty_pools: BTreeMap<&str, Vec<EmptyUse<'_>>> = BTreeMap::new();
        for service in &self.services {
            let pools = used_pools(service, desired);
            let has_servers = |pool: &&str| {
                let mut servers = service.servers.iter().filter(|server| !server.removed);
                servers.any(|server| server.pool.as_deref().unwrap_or(&service.pool) == *pool)
            };
            let rejects_all = !pools.iter().any(has_servers);
            for pool in pools.into_iter().filter(|pool| !has_servers(pool)) {
                empty_pools.entry(pool).or_default().push(EmptyUse {
                    service,
                    rejects_all,
                });
            }
        }
        empty_pools
    }

    /// Reports a pool without servers.
    fn empty_pool(&self, pool: &str, services: &[EmptyUse<'_>], desired: &Desired) -> Diagnosis {
        let finding = Diagnosis::new(format!("the pool {pool} has no servers"), effect(services));
        if services.iter().all(|it| it.service.origin != FILE) {
            return finding.fix("weir ipvsadm -a -t|-u|-f SERVICE -r SERVER, with -g, -i or -m");
        }
        if desired.pool(pool).is_some_and(|it| !it.servers.is_empty()) {
            return finding.fix("weir reload: the configuration file lists servers for the pool");
        }
        let header = weir_config::header(&["pool", pool]);
        let lists = self.sources.iter().filter(|list| list.pool == pool);
        let lists = lists.filter(|list| list.kind != ListSource::Api);
        let lists = lists.map(|list| format!(" or {}", list.from));
        finding.fix(format!(
            "add servers to {header}{}",
            lists.collect::<String>()
        ))
    }
}

/// A service that uses a pool without servers.
struct EmptyUse<'a> {
    service: &'a Service,
    /// Whether none of the service's pools has servers.
    rejects_all: bool,
}

/// Describes the effect of a pool without servers.
fn effect(services: &[EmptyUse<'_>]) -> String {
    let effects = services.iter().map(|it| match it.rejects_all {
        true => format!("every client of {} is rejected", it.service.name),
        false => format!("requests that {} sends to it fail", it.service.name),
    });
    effects.collect::<Vec<_>>().join("; ")
}

/// Reports a server list that failed to load. `services` use the pool, which has no servers.
fn failed_list(list: &Source, problem: &str, services: Option<&[EmptyUse<'_>]>) -> Diagnosis {
    let (pool, from) = (&list.pool, &list.from);
    let observation = format!("pool {pool}: failed to load servers from {from}: {problem}");
    let consequence = match (list.servers, services) {
        (0, Some(services)) => format!("the pool has no servers: {}", effect(services)),
        (0, None) => "the list adds no servers to the pool".to_owned(),
        (count, _) => {
            let count = format_count(count as u64, "server");
            format!("the previous list, with {count}, remains in use")
        }
    };
    let fix = match list.kind {
        _ if problem.contains("`weir reload`") => "if the list is correct: weir reload".to_owned(),
        ListSource::File => {
            format!("create or correct {from}: Weir loads a changed list automatically")
        }
        ListSource::Dns => {
            "correct the records, or the name servers of this machine: Weir retries automatically"
                .to_owned()
        }
        ListSource::Api => "correct or remove these servers through the API".to_owned(),
    };
    Diagnosis::new(observation, consequence).fix(fix)
}

/// Returns the pools in a service that requests can reach.
fn used_pools<'a>(service: &'a Service, desired: &Desired) -> BTreeSet<&'a str> {
    let proxy_pools = service.proxy.iter().flat_map(|proxy| &proxy.pools);
    let proxy_pools = proxy_pools.map(|pool| pool.name.as_str());
    let servers = service.servers.iter();
    let server_pools = servers.filter_map(|server| server.pool.as_deref());
    [service.pool.as_str()]
        .into_iter()
        .chain(proxy_pools)
        .chain(server_pools)
        .filter(|pool| is_reachable(service, pool, desired))
        .collect()
}

/// Returns whether requests to a service can reach a pool. All pools of a service that the configuration does not
/// define are reachable.
pub(super) fn is_reachable(service: &Service, pool: &str, desired: &Desired) -> bool {
    let proxy = desired.proxy(&service.name);
    let proxy = proxy.filter(|_| service.proxy.is_some());
    proxy.is_none_or(|proxy| reachable_pools(proxy).contains(pool))
}

/// Returns the pools that requests to a proxy service can reach: those of the routes up to the first one that applies
/// to every request, and the service's own pool if requests can match no route.
fn reachable_pools(proxy: &Proxy) -> BTreeSet<&str> {
    let mut pools = BTreeSet::new();
    for route in &proxy.routes {
        pools.extend(route.pools());
        if route.action.map().is_some_and(|map| map.default.is_none()) {
            pools.insert(&proxy.pool);
        }
        if route.always_applies() {
            return pools;
        }
    }
    pools.insert(&proxy.pool);
    pools
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOLS: &str = "[pool.own]\nservers = [\"10.0.0.5\"]\n[pool.other]\nservers = [\"10.0.0.6\"]\n\
                         [pool.third]\nservers = [\"10.0.0.7\"]\n[service.www]\nforward = \"proxy\"\nprotocol = \
                         \"http\"\npool = \"own\"\nlisten = [\"192.0.2.1:80\"]\n";

    fn desired(text: &str) -> Desired {
        let parsed = weir_config::parse(text, &weir_config::Host::default());
        parsed.expect("parse the configuration").desired
    }

    #[test]
    fn routes_determine_reachable_pools() {
        let redirect = "redirect = \"https://{host}{path}\"";
        for (routes, expected) in [
            (vec![], vec!["own"]),
            (vec![redirect], vec![]),
            (vec!["pool = \"other\""], vec!["other"]),
            (
                vec!["path = \"/a/*\"\npool = \"other\""],
                vec!["other", "own"],
            ),
            (
                vec![
                    "path = \"/a/*\"\npool = \"other\"",
                    redirect,
                    "pool = \"third\"",
                ],
                vec!["other"],
            ),
            (
                vec!["not = { path = \"/a/*\" }\nredirect = \"https://{host}{path}\""],
                vec!["own"],
            ),
        ] {
            let routes = routes.iter();
            let routes = routes.map(|keys| format!("[[route]]\nservice = \"www\"\n{keys}\n"));
            let text = format!("{POOLS}{}", routes.collect::<String>());
            let desired = desired(&text);
            let found = reachable_pools(&desired.proxies[0]);
            assert_eq!(found, BTreeSet::from_iter(expected), "{text}");
        }
    }

    /// Returns the status of a layer 4 service `web` whose servers have these addresses; `true` = removed.
    fn report(servers: &[(&str, bool)], lists: Vec<Source>) -> Report {
        let server = |(address, removed): &(&str, bool)| {
            let mut server = serde_json::json!({
                "address": address, "forward": "direct", "weight": 1, "effective_weight": 0, "state": "drain",
                "reason": "", "since": "", "removed": removed, "active_connections": 0, "inactive_connections": 0,
            });
            add_totals(&mut server);
            server
        };
        let servers: Vec<_> = servers.iter().map(server).collect();
        let mut service = serde_json::json!({
            "name": "web", "origin": "file", "listen": [], "vip": "local", "forward": "direct", "scheduler": "rr",
            "pool": "web", "servers": servers,
        });
        add_totals(&mut service);
        Report {
            services: vec![serde_json::from_value(service).expect("parse the service")],
            sources: lists,
            ..Report::default()
        }
    }

    fn add_totals(value: &mut serde_json::Value) {
        for key in [
            "connections",
            "stateless",
            "packets_in",
            "packets_out",
            "bytes_in",
            "bytes_out",
        ] {
            value[key] = 0.into();
        }
    }

    fn list(servers: usize, problem: Option<&str>) -> Source {
        Source {
            pool: "web".to_owned(),
            kind: ListSource::File,
            from: "/run/web".to_owned(),
            servers,
            problem: problem.map(str::to_owned),
        }
    }

    fn found(report: &Report, pool: &str) -> Vec<String> {
        let text = format!(
            "[pool.web]\n{pool}\n[service.web]\nforward = \"direct\"\npool = \"web\"\nlisten = [\"192.0.2.1:80\"]\n"
        );
        let findings = report.pool_findings(&desired(&text));
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn pool_with_only_removed_servers_is_reported() {
        let expected = "the pool web has no servers\n  why:  every client of web is rejected\n  fix:  add servers \
                        to [pool.web]\n";
        for servers in [&[("10.0.0.5", true)][..], &[]] {
            assert_eq!(found(&report(servers, vec![]), ""), [expected]);
        }
        let present = report(&[("10.0.0.5", true), ("10.0.0.6", false)], vec![]);
        assert_eq!(found(&present, ""), [""; 0]);
        let not_reloaded = found(&report(&[], vec![]), "servers = [\"10.0.0.5\"]");
        assert!(
            not_reloaded[0].contains("fix:  weir reload"),
            "{not_reloaded:?}"
        );
        let with_list = found(&report(&[], vec![list(0, None)]), "");
        assert!(
            with_list[0].contains("add servers to [pool.web] or /run/web"),
            "{with_list:?}"
        );
    }

    #[test]
    fn failed_list_is_one_finding_with_its_reason() {
        let missing = vec![list(0, Some("No such file or directory (os error 2)"))];
        let expected = "pool web: failed to load servers from /run/web: No such file or directory (os error 2)\n  \
                        why:  the pool has no servers: every client of web is rejected\n  fix:  create or correct \
                        /run/web: Weir loads a changed list automatically\n";
        assert_eq!(found(&report(&[], missing.clone()), ""), [expected]);
        let others = found(&report(&[("10.0.0.5", false)], missing), "");
        assert!(others[0].contains("adds no servers"), "{others:?}");
        let invalid = vec![list(1, Some("line 1, column 1: unknown key"))];
        let findings = found(&report(&[("10.0.0.5", false)], invalid), "");
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(
            findings[0].contains("the previous list, with 1 server, remains in use"),
            "{findings:?}"
        );
    }
}
