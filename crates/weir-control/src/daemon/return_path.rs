//! Warns about a change after which the replies of servers must return through this machine: `nat` without `snat`.
//!
//! If they do not, the servers' checks still pass, but clients time out. Whether a server returns its replies through
//! this machine is known only from its replies to clients of another such service.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_model::{Desired, Forward, Server, Service, Source};
use weir_proxy::Problem;

use crate::configuration::Finding;
use crate::plane::Plane;
use crate::snapshot::Snapshot;

/// Maximum number of servers that a warning names.
const MAX_SERVERS: usize = 5;

/// A service that begins to need replies through this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ChangedPath<'a> {
    service: &'a str,
    /// Position of the service in the new configuration.
    source: Source,
    /// The servers that are not known to send their replies through this machine.
    servers: Vec<&'a Server>,
}

/// Returns the warnings about services that use `nat` without `snat` in the new configuration, but not in the active
/// one. `file` is the name of the new configuration's file.
pub(super) fn return_path_warnings<P: Plane>(
    plane: &P,
    (active, desired): (&Desired, &Desired),
    file: &str,
) -> Vec<Finding> {
    let mut paths = changed_paths(active, desired);
    if paths.is_empty() {
        return Vec::new();
    }
    // A snapshot is taken only if it is needed, because it is expensive.
    let returning = match plane.snapshot() {
        Ok(snapshot) => returning_servers(active, &snapshot),
        Err(error) => {
            tracing::debug!(%error, "failed to read the servers' counters");
            BTreeSet::new()
        }
    };
    for path in &mut paths {
        path.servers
            .retain(|server| !returning.contains(&server.address));
    }
    paths.retain(|path| !path.servers.is_empty());
    let warnings = paths.iter().map(|path| path.finding(file));
    warnings.collect()
}

/// Returns the services whose servers' replies must begin to return through this machine, with these servers.
fn changed_paths<'a>(active: &Desired, desired: &'a Desired) -> Vec<ChangedPath<'a>> {
    let mut paths = Vec::new();
    for service in &desired.services {
        let (Some(before), Some(pool)) =
            (active.service(&service.name), desired.pool(&service.pool))
        else {
            continue;
        };
        let begins = |server: &&Server| {
            must_return(server, service)
                && !must_return(server, before)
                && !server.address.is_loopback()
        };
        let servers: Vec<&Server> = pool.servers.iter().filter(begins).collect();
        if !servers.is_empty() {
            paths.push(ChangedPath {
                service: &service.name,
                source: service.source,
                servers,
            });
        }
    }
    paths
}

/// Returns whether a server's replies to clients of a service must pass through this machine.
fn must_return(server: &Server, service: &Service) -> bool {
    service.snat.is_none() && server.forward_in(service) == Forward::Nat
}

/// Returns the servers whose replies to clients of an active service passed through this machine without `snat`.
fn returning_servers(active: &Desired, snapshot: &Snapshot) -> BTreeSet<IpAddr> {
    let services = snapshot.services.iter().filter(|status| {
        let service = active.service(&status.name);
        service.is_some_and(|service| service.snat.is_none())
    });
    let servers = services.flat_map(|status| &status.servers);
    let returning =
        servers.filter(|server| server.forward == Forward::Nat && server.totals.packets_out > 0);
    returning.map(|server| server.address).collect()
}

impl ChangedPath<'_> {
    fn finding(&self, file: &str) -> Finding {
        let names = self.servers.iter().take(MAX_SERVERS);
        let mut names: Vec<String> = names.map(|server| server.name.clone()).collect();
        let more_count = self.servers.len().saturating_sub(MAX_SERVERS);
        if more_count > 0 {
            names.push(format!("and {more_count} more"));
        }
        let problem = Problem {
            source: self.source,
            message: format!(
                "service {} now uses `nat` without `snat`, and it is not known whether the replies of these servers \
                 return through this machine: {}",
                self.service,
                names.join(", ")
            ),
            cause: "with `nat` and without `snat`, this machine must be the servers' gateway to the clients; otherwise \
                    clients time out, although the checks pass"
                .to_owned(),
            fix: "change the servers' default route to this machine first, or set `snat = true` in the service"
                .to_owned(),
            fatal: false,
        };
        Finding::from_problem(&problem, file)
    }
}

#[cfg(test)]
mod tests {
    use weir_config::{Host, parse};

    use super::*;

    const POOL: &str = "[pool.web]\nservers = [\"10.0.0.5\", \"10.0.0.6:8080\", { address = \"10.0.0.7\", forward = \
                        \"direct\" }]\n";

    fn desired(services: &[(&str, &str)]) -> Desired {
        let mut text = POOL.to_owned();
        for (index, (name, keys)) in services.iter().enumerate() {
            text += &format!(
                "[service.{name}]\nlisten = [\"192.0.2.1:{}\"]\npool = \"web\"\n{keys}\n",
                80 + index
            );
        }
        parse(&text, &Host::default())
            .expect("parse the configuration")
            .desired
    }

    fn servers(active: &str, new: &str) -> Vec<String> {
        let (active, new) = (desired(&[("web", active)]), desired(&[("web", new)]));
        let paths = changed_paths(&active, &new);
        let servers = paths.iter().flat_map(|path| &path.servers);
        servers.map(|server| server.name.clone()).collect()
    }

    #[test]
    fn removed_snat_requires_replies_through_this_machine() {
        let (nat, snat) = ("forward = \"nat\"", "forward = \"nat\"\nsnat = true");
        let both = ["10.0.0.5", "10.0.0.6:8080"];
        assert_eq!(servers(snat, nat), both);
        assert_eq!(servers("forward = \"direct\"", nat), both);
        assert_eq!(servers(nat, nat), [""; 0]);
        assert_eq!(servers(nat, snat), [""; 0]);
        assert_eq!(servers(snat, "forward = \"tunnel\""), [""; 0]);
        let added = desired(&[("web", snat), ("other", nat)]);
        let active = desired(&[("web", snat)]);
        assert_eq!(changed_paths(&active, &added), [], "a new service");
    }

    /// With `snat`, servers reply to this machine, so packets to clients do not show the route to clients' addresses.
    #[test]
    fn servers_of_other_services_without_snat_are_known() {
        let nat = "forward = \"nat\"";
        let snat = "forward = \"nat\"\nsnat = true";
        for (keys, packets_out, expected) in [
            (nat, 5, vec![IpAddr::from([10, 0, 0, 5])]),
            (nat, 0, vec![]),
            (snat, 5, vec![]),
        ] {
            let active = desired(&[("images", keys)]);
            let mut snapshot = crate::status::tests::director();
            let server = &mut snapshot.services[0].servers[0];
            server.forward = Forward::Nat;
            server.totals.packets_out = packets_out;
            let returning = returning_servers(&active, &snapshot);
            assert_eq!(
                returning.into_iter().collect::<Vec<_>>(),
                expected,
                "{keys} {packets_out}"
            );
        }
    }

    #[test]
    fn warning_names_servers_and_position() {
        let active = desired(&[("web", "forward = \"nat\"\nsnat = true")]);
        let new = desired(&[("web", "forward = \"nat\"")]);
        let paths = changed_paths(&active, &new);
        let text = paths[0].finding("weir.toml").render();
        assert!(
            text.contains("through this machine: 10.0.0.5, 10.0.0.6:8080\n --> weir.toml:3:"),
            "{text}"
        );
        let many = ChangedPath {
            servers: vec![paths[0].servers[0]; 7],
            ..paths[0].clone()
        };
        let text = many.finding("weir.toml").render();
        assert!(text.contains("10.0.0.5, and 2 more\n"), "{text}");
    }
}
