//! Defines the servers that a pool has in another version of a group's configuration.
//!
//! During a rollout, the directors of a group use two versions to select servers. Each director selects by one version,
//! and also has the other one: the next version until it activates that version, the previous version afterwards. With
//! GUE, the other version selects the second hop. With `[sync]`, flows for which the versions select different servers
//! are sent to the other directors, which have rows for the servers of both versions.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::{Desired, Forward, OtherVersion, Pool, SchedulerKind, Server, Service, TunnelKind};

impl Desired {
    /// Returns whether a service's servers forward packets of unknown connections to a second hop. They do so in a
    /// group, with GUE and `maglev`. `pool` is the service's pool.
    pub fn has_second_hop(&self, service: &Service, pool: &Pool) -> bool {
        let is_gue = |server: &Server| {
            server.forward_in(service) == Forward::Tunnel
                && server.tunnel_in(service).kind == TunnelKind::Gue
        };
        self.cluster.is_some()
            && pool.l4_scheduler().kind == SchedulerKind::Maglev
            && pool.servers.iter().any(is_gue)
    }

    /// Returns whether a service uses the servers of another version: for the second hop, or because its flows are
    /// synchronized with directors that use that version. `pool` is the service's pool.
    pub fn uses_other_version(&self, service: &Service, pool: &Pool) -> bool {
        let is_synchronized = self.sync.is_some() && service.forward.handles_packets();
        self.cluster.is_some() && (is_synchronized || self.has_second_hop(service, pool))
    }

    /// Returns whether any service uses the servers of another version.
    pub fn needs_other_version(&self) -> bool {
        if self.cluster.is_none() {
            return false;
        }
        let pools = self.pools_by_name();
        self.services.iter().any(|service| {
            let pool = pools.get(service.pool.as_str());
            pool.is_some_and(|pool| self.uses_other_version(service, pool))
        })
    }

    /// Sets [`Pool::other_version`] of each pool whose services use another version and whose table differs in `other`.
    /// Without `replaces`, pools that already have another version keep it. Returns whether a pool has changed.
    pub fn set_other_version(&mut self, other: &Self, replaces: bool) -> bool {
        let pools = self.pools_by_name();
        let other_pools = other.pools_by_name();
        let other_services: HashMap<&str, &Service> = other
            .services
            .iter()
            .map(|service| (service.name.as_str(), service))
            .collect();
        let mut other_servers: HashMap<String, Vec<Server>> = HashMap::new();
        for service in &self.services {
            let other_pool = other_services
                .get(service.name.as_str())
                .and_then(|service| other_pools.get(service.pool.as_str()));
            let (Some(pool), Some(other_pool)) = (pools.get(service.pool.as_str()), other_pool)
            else {
                continue;
            };
            if self.uses_other_version(service, pool) && !other_servers.contains_key(&pool.name) {
                let differs = table_servers(pool) != table_servers(other_pool);
                let servers = if differs {
                    other_pool.servers.clone()
                } else {
                    Vec::new()
                };
                other_servers.insert(pool.name.clone(), servers);
            }
        }
        let mut has_changed = false;
        for pool in &mut self.pools {
            let Some(servers) = other_servers.remove(&pool.name).filter(|it| !it.is_empty()) else {
                continue;
            };
            let new_version = Some(OtherVersion { servers, replaces });
            if (replaces || pool.other_version.is_none()) && pool.other_version != new_version {
                pool.other_version = new_version;
                has_changed = true;
            }
        }
        has_changed
    }

    /// Sets [`Pool::other_version`] of a pool whose services use another version to the servers that it had before the
    /// last change. Without `replaces`, a pool that already has another version keeps it. Returns whether the pool has
    /// changed.
    pub fn set_servers_before(&mut self, pool: &str, servers: Vec<Server>, replaces: bool) -> bool {
        let Some(index) = self.pools.iter().position(|it| it.name == pool) else {
            return false;
        };
        let pool = &self.pools[index];
        let mut services = self.services.iter();
        let is_used = services
            .any(|service| service.pool == pool.name && self.uses_other_version(service, pool));
        let new_version = Some(OtherVersion { servers, replaces });
        let is_permitted = replaces || pool.other_version.is_none();
        if !is_used || !is_permitted || pool.other_version == new_version {
            return false;
        }
        self.pools[index].other_version = new_version;
        true
    }

    fn pools_by_name(&self) -> HashMap<&str, &Pool> {
        let pools = self.pools.iter();
        pools.map(|pool| (pool.name.as_str(), pool)).collect()
    }
}

/// Returns the values that determine the table of a pool's servers.
fn table_servers(pool: &Pool) -> Vec<(IpAddr, Option<u16>, u32)> {
    let servers = pool.servers.iter();
    let mut servers: Vec<_> = servers
        .map(|server| (server.address, server.port, server.weight))
        .collect();
    servers.sort_unstable();
    servers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, FlowSync, Scheduler, Secret, SecretSource};

    fn desired(pool: &str, servers: &[&str]) -> Desired {
        let server = |name: &&str| Server::new(*name, name.parse().unwrap(), None);
        let mut service = Service::new("web", Forward::Tunnel, pool);
        service.tunnel.kind = TunnelKind::Gue;
        let mut pool = Pool::new(pool);
        pool.scheduler = Some(Scheduler::new(SchedulerKind::Maglev));
        pool.servers = servers.iter().map(server).collect();
        Desired {
            cluster: Some(Cluster::new("edge")),
            pools: vec![pool],
            services: vec![service],
            ..Desired::default()
        }
    }

    #[test]
    fn services_with_gue_or_synchronization_in_a_group_use_another_version() {
        let gue = desired("a", &["10.0.0.1"]);
        assert!(gue.needs_other_version());
        for change in [
            &(|it: &mut Desired| it.cluster = None) as &dyn Fn(&mut Desired),
            &|it| it.services[0].tunnel.kind = TunnelKind::Ipip,
            &|it| it.services[0].forward = Forward::Direct,
            &|it| it.pools[0].scheduler = Some(Scheduler::new(SchedulerKind::Wrr)),
            &|it| it.services[0].pool = "absent".to_owned(),
        ] {
            let mut other = gue.clone();
            change(&mut other);
            assert!(!other.needs_other_version());
        }
        let mut synchronized = gue.clone();
        synchronized.services[0].forward = Forward::Direct;
        synchronized.sync = Some(FlowSync {
            listen: "10.0.0.1:8482".parse().unwrap(),
            peers: Vec::new(),
            key: Secret::new(SecretSource::Text, Vec::new()),
        });
        assert!(synchronized.needs_other_version());
        assert!(!synchronized.has_second_hop(&synchronized.services[0], &synchronized.pools[0]));
        synchronized.services[0].forward = Forward::Socket;
        assert!(!synchronized.needs_other_version());
    }

    #[test]
    fn pools_get_the_servers_that_their_services_have_in_the_other_version() {
        let (two, three) = (
            ["10.0.0.1", "10.0.0.2"],
            ["10.0.0.1", "10.0.0.2", "10.0.0.3"],
        );
        let mut active = desired("a", &two);
        assert!(!active.set_other_version(&desired("a", &["10.0.0.2", "10.0.0.1"]), true));
        assert!(active.set_other_version(&desired("b", &three), true));
        let other = active.pools[0].other_version.clone().unwrap();
        assert_eq!((other.servers.len(), other.replaces), (3, true));
        assert!(!active.set_other_version(&desired("b", &three), true));
        // Another version's table remains the second hop, unless it is replaced.
        assert!(!active.set_other_version(&desired("a", &["10.0.0.9"]), false));
        assert!(!active.set_other_version(&desired("a", &two), true));
        assert_eq!(active.pools[0].other_version, Some(other));
        assert!(active.set_other_version(&desired("a", &["10.0.0.9"]), true));

        let before = active.pools[0].servers.clone();
        assert!(!active.set_servers_before("a", before.clone(), false));
        assert!(active.set_servers_before("a", before.clone(), true));
        assert!(!active.set_servers_before("a", before.clone(), true));
        assert!(!active.set_servers_before("b", before.clone(), true));
        // A service without another version does not count, and neither does a service of another pool.
        let mut two_pools = desired("a", &two);
        let mut direct = Service::new("direct", Forward::Direct, "b");
        direct.tunnel.kind = TunnelKind::Gue;
        two_pools.services.push(direct);
        two_pools.pools.push(Pool {
            name: "b".to_owned(),
            ..two_pools.pools[0].clone()
        });
        assert!(!two_pools.set_servers_before("b", before.clone(), true));
        assert!(two_pools.set_servers_before("a", before, true));

        let mut plain = desired("a", &two);
        plain.services[0].forward = Forward::Direct;
        assert!(!plain.set_other_version(&desired("a", &three), true));
    }
}
