//! Provides a desired state with indexes by name, pool and address, and with hashes for fast comparison.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::ops::Deref;

use crate::{Accept, Desired, Pool, Service};

/// An immutable [`Desired`] with indexes.
#[derive(Debug, Clone, Default)]
pub struct Indexed {
    desired: Desired,
    pools: HashMap<String, usize>,
    services: HashMap<String, usize>,
    /// Indexes of the services that use each pool, in order.
    services_by_pool: HashMap<String, Vec<usize>>,
    /// Indexes of the services that listen on each address, in order; without `socket` services.
    services_by_address: HashMap<IpAddr, Vec<usize>>,
    /// Addresses of proxy services.
    proxy_addresses: HashSet<IpAddr>,
    /// Addresses of virtual routers that accept only packets of services.
    restricted_addresses: HashSet<IpAddr>,
    /// For each service, a hash of everything that its map rows depend on.
    hashes: Vec<u64>,
    hash: u64,
}

/// How many services share a pool and its servers' connection counts; services with `strict_ipvs` are excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// At most one service.
    None,
    /// At most [`Sharing::FEW`] services.
    Few,
    /// More services.
    Many,
}

impl Sharing {
    /// Maximum number of services that are updated individually. Above this number, each service iterates over its
    /// server list.
    pub const FEW: usize = 64;
}

impl From<Desired> for Indexed {
    fn from(desired: Desired) -> Self {
        let (pool_count, service_count) = (desired.pools.len(), desired.services.len());
        let mut indexed = Self::default();
        indexed.pools.reserve(pool_count);
        indexed.services.reserve(service_count);
        indexed.services_by_pool.reserve(pool_count);
        indexed.services_by_address.reserve(service_count);
        for (index, pool) in desired.pools.iter().enumerate() {
            indexed.pools.entry(pool.name.clone()).or_insert(index);
        }
        for (index, service) in desired.services.iter().enumerate() {
            indexed
                .services
                .entry(service.name.clone())
                .or_insert(index);
            match indexed.services_by_pool.get_mut(&service.pool) {
                Some(services) => services.push(index),
                None => drop(
                    indexed
                        .services_by_pool
                        .insert(service.pool.clone(), vec![index]),
                ),
            }
            // The VIP of a socket service need not be an address of any machine.
            let addressed = service.forward.handles_packets();
            for listener in service.listen.iter().filter(|_| addressed) {
                let services = indexed
                    .services_by_address
                    .entry(listener.address)
                    .or_default();
                if services.last() != Some(&index) {
                    services.push(index);
                }
            }
        }
        indexed.proxy_addresses = desired.proxy_addresses().collect();
        let strict = desired.vrrp.iter().filter(|it| it.accept != Accept::All);
        let addresses = strict.flat_map(|it| it.managed_addresses().map(|network| network.address));
        indexed.restricted_addresses = addresses.collect();
        indexed.desired = desired;
        indexed.compute_hashes();
        indexed
    }
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Deref for Indexed {
    type Target = Desired;

    fn deref(&self) -> &Desired {
        &self.desired
    }
}

impl Indexed {
    /// Returns the pool with this name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.desired.pools.get(*self.pools.get(name)?)
    }

    /// Returns the service with this name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.desired.services.get(*self.services.get(name)?)
    }

    /// Returns whether the director accepts packets to the address that are not for a service, while it has the
    /// address.
    pub fn accepts(&self, address: IpAddr) -> bool {
        !self.restricted_addresses.contains(&address)
    }

    /// Returns the services that use a pool, in order.
    pub fn services_of_pool<'a>(
        &'a self,
        pool: &str,
    ) -> impl ExactSizeIterator<Item = &'a Service> + use<'a> {
        self.services_at(self.services_by_pool.get(pool))
    }

    /// Returns the layer 4 services, except `socket` services, that listen on an address, in order.
    pub fn services_listening_on(
        &self,
        address: IpAddr,
    ) -> impl ExactSizeIterator<Item = &Service> + use<'_> {
        self.services_at(self.services_by_address.get(&address))
    }

    /// Returns every address that a layer 4 or proxy service listens on, except the addresses of `socket` services.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<'_> {
        let proxy_addresses = self.proxy_addresses.iter().copied();
        let proxy_addresses =
            proxy_addresses.filter(|address| !self.services_by_address.contains_key(address));
        self.services_by_address
            .keys()
            .copied()
            .chain(proxy_addresses)
    }

    /// Returns whether a layer 4 or proxy service, other than a `socket` service, listens on an address.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.services_by_address.contains_key(&address) || self.proxy_addresses.contains(&address)
    }

    /// Returns a hash of the services and pools and of the settings that affect them, without source positions. The
    /// hash is the same in every process of the same build.
    pub const fn fingerprint(&self) -> u64 {
        self.hash
    }

    /// Returns the names of the services that differ from `previous` in any setting on which they or their servers
    /// depend: first the removed services by name, then the others in order.
    pub fn changed_since<'a>(&'a self, previous: &'a Self) -> Vec<&'a str> {
        let mut names: Vec<&str> = previous
            .services
            .keys()
            .map(String::as_str)
            .filter(|name| !self.services.contains_key(*name))
            .collect();
        names.sort_unstable();
        let before = |name: &str| Some(previous.hashes[*previous.services.get(name)?]);
        for (service, hash) in self.desired.services.iter().zip(&self.hashes) {
            if before(&service.name) != Some(*hash) {
                names.push(&service.name);
            }
        }
        names
    }

    /// Returns whether no, few or many services share a pool.
    pub fn sharing(&self, pool: &str) -> Sharing {
        let sharing = self.services_of_pool(pool).filter(|user| !user.strict_ipvs);
        match sharing.take(Sharing::FEW + 1).count() {
            0 | 1 => Sharing::None,
            2..=Sharing::FEW => Sharing::Few,
            _ => Sharing::Many,
        }
    }

    fn compute_hashes(&mut self) {
        let Desired {
            files: _,
            node,
            timeouts,
            ipvs,
            // Pools and servers contain copies of the checks that they use.
            checks: _,
            check_authorities: _,
            pools,
            services,
            proxies,
            // Of the virtual routers, the data plane depends only on `accept`, through `restricted_addresses`.
            vrrp: _,
            // The data plane does not depend on this setting, nor on the notifiers and tracing below.
            announce: _,
            sync,
            cluster,
            notifiers: _,
            tracing: _,
        } = &self.desired;
        // The directors divide the SNAT source ports among themselves.
        let directors = sync.as_ref().map(|it| (it.number(), it.directors()));
        // In a group, directors build tables that do not depend on their own checks.
        let common = hash_of((node, timeouts, ipvs, directors, cluster.is_some()));
        let pool_hashes: Vec<u64> = pools.iter().map(hash_of).collect();
        let service_hash = |service: &Service| {
            let pool = self
                .pools
                .get(&service.pool)
                .map(|index| pool_hashes[*index]);
            let addresses = service.listen.iter().map(|it| it.address);
            let accepted: Vec<bool> = addresses.map(|it| self.accepts(it)).collect();
            hash_of((common, service, pool, self.sharing(&service.pool), accepted))
        };
        let hashes: Vec<u64> = services.iter().map(service_hash).collect();
        self.hash = hash_of((common, &pool_hashes, &hashes, proxies));
        self.hashes = hashes;
    }

    fn services_at<'a>(
        &'a self,
        indexes: Option<&'a Vec<usize>>,
    ) -> impl ExactSizeIterator<Item = &'a Service> + use<'a> {
        let indexes = indexes.map(Vec::as_slice).unwrap_or_default();
        indexes.iter().map(|index| &self.desired.services[*index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Forward, Listener, Ports, Protocol, Server};

    fn service(name: &str, pool: &str, address: &str, ports: &[u16]) -> Service {
        let mut service = Service::new(name, Forward::Nat, pool);
        service.listen = ports
            .iter()
            .map(|port| Listener {
                protocol: Protocol::Tcp,
                address: address.parse().unwrap(),
                ports: Ports::One(*port),
            })
            .collect();
        service
    }

    #[test]
    fn lookups_preserve_order() {
        let indexed = Indexed::from(Desired {
            pools: vec![Pool::new("a"), Pool::new("b")],
            services: vec![
                service("one", "b", "192.0.2.1", &[80, 443]),
                service("two", "a", "192.0.2.1", &[25]),
                service("three", "b", "192.0.2.2", &[80]),
            ],
            ..Desired::default()
        });
        let names = |services: &mut dyn Iterator<Item = &Service>| {
            services.map(|it| it.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(indexed.pool("b").map(|pool| pool.name.as_str()), Some("b"));
        assert_eq!(indexed.service("two").map(|it| it.pool.as_str()), Some("a"));
        assert!(indexed.pool("c").is_none() && indexed.service("c").is_none());
        assert_eq!(names(&mut indexed.services_of_pool("b")), ["one", "three"]);
        assert_eq!(indexed.services_of_pool("c").len(), 0);
        let vip = "192.0.2.1".parse().unwrap();
        assert_eq!(
            names(&mut indexed.services_listening_on(vip)),
            ["one", "two"]
        );
        assert_eq!(indexed.addresses().count(), 2);
        assert_eq!(indexed.services.len(), 3);
        assert_eq!((*indexed).services[0].name, "one");
    }

    #[test]
    fn changed_since_returns_dependent_services() {
        let previous = Desired {
            pools: vec![Pool::new("a"), Pool::new("b"), Pool::new("unused")],
            services: vec![
                service("one", "a", "192.0.2.1", &[80]),
                service("two", "b", "192.0.2.1", &[25]),
                service("three", "b", "192.0.2.2", &[80]),
            ],
            ..Desired::default()
        };
        let changed = |change: &dyn Fn(&mut Desired)| {
            let mut wanted = previous.clone();
            change(&mut wanted);
            let (wanted, previous) = (Indexed::from(wanted), Indexed::from(previous.clone()));
            let names = wanted.changed_since(&previous);
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            (names, wanted.fingerprint() == previous.fingerprint())
        };
        let all = ["one", "two", "three"];
        let expect = |names: &[&str], same| (names.iter().map(ToString::to_string).collect(), same);
        assert_eq!(
            changed(&|it| it.services[0].source.line = 9),
            expect(&[], true)
        );
        assert_eq!(
            changed(&|it| it.pools[2].source.line = 9),
            expect(&[], true)
        );
        assert_eq!(
            changed(&|it| it.pools.truncate(2)),
            expect(&[], false),
            "no service uses it"
        );
        let server = || Server::new("10.0.0.1", "10.0.0.1".parse().unwrap(), None);
        assert_eq!(
            changed(&|it| it.pools[0].servers.push(server())),
            expect(&all[..1], false)
        );
        assert_eq!(
            changed(&|it| it.pools[1].servers.push(server())),
            expect(&all[1..], false)
        );
        assert_eq!(
            changed(&|it| it.node.max_flows += 1),
            expect(&all, false),
            "all depend on it"
        );
        let removed = changed(&|it| drop(it.services.remove(1)));
        assert_eq!(
            removed,
            expect(&["two", "three"], false),
            "the other service no longer shares its counts"
        );
        let added = service("new", "a", "192.0.2.3", &[80]);
        assert_eq!(
            changed(&|it| it.services.push(added.clone())),
            expect(&["one", "new"], false)
        );
    }
}
