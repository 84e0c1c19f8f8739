//! A desired state whose parts are found by name, pool and address instead of searched.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Deref;

use crate::{Desired, Pool, Service};

/// A [`Desired`] that changes no more, with what leads to its parts.
#[derive(Debug, Clone, Default)]
pub struct Indexed {
    desired: Desired,
    pools: HashMap<String, usize>,
    services: HashMap<String, usize>,
    /// Services of each pool, in their order.
    users: HashMap<String, Vec<usize>>,
    /// Services at each address, in their order.
    listening: HashMap<IpAddr, Vec<usize>>,
}

impl From<Desired> for Indexed {
    fn from(desired: Desired) -> Self {
        let mut indexed = Self {
            pools: HashMap::with_capacity(desired.pools.len()),
            services: HashMap::with_capacity(desired.services.len()),
            users: HashMap::with_capacity(desired.pools.len()),
            listening: HashMap::with_capacity(desired.services.len()),
            desired: Desired::default(),
        };
        for (at, pool) in desired.pools.iter().enumerate() {
            indexed.pools.entry(pool.name.clone()).or_insert(at);
        }
        for (at, service) in desired.services.iter().enumerate() {
            indexed.services.entry(service.name.clone()).or_insert(at);
            match indexed.users.get_mut(&service.pool) {
                Some(users) => users.push(at),
                None => drop(indexed.users.insert(service.pool.clone(), vec![at])),
            }
            for listener in &service.listen {
                let there = indexed.listening.entry(listener.address).or_default();
                if there.last() != Some(&at) {
                    there.push(at);
                }
            }
        }
        indexed.desired = desired;
        indexed
    }
}

impl Deref for Indexed {
    type Target = Desired;

    fn deref(&self) -> &Desired {
        &self.desired
    }
}

impl Indexed {
    /// The pool of that name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.desired.pools.get(*self.pools.get(name)?)
    }

    /// The service of that name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.desired.services.get(*self.services.get(name)?)
    }

    /// Services that use a pool, in their order.
    pub fn users<'a>(&'a self, pool: &str) -> impl ExactSizeIterator<Item = &'a Service> + use<'a> {
        self.at(self.users.get(pool))
    }

    /// Services that listen at an address, in their order.
    pub fn listening(&self, address: IpAddr) -> impl ExactSizeIterator<Item = &Service> + use<'_> {
        self.at(self.listening.get(&address))
    }

    /// Every address that some service listens at.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = IpAddr> + use<'_> {
        self.listening.keys().copied()
    }

    fn at<'a>(
        &'a self,
        places: Option<&'a Vec<usize>>,
    ) -> impl ExactSizeIterator<Item = &'a Service> + use<'a> {
        let places = places.map(Vec::as_slice).unwrap_or_default();
        places.iter().map(|at| &self.desired.services[*at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Forward, Listener, Ports, Protocol};

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
    fn parts_are_found_in_their_order() {
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
        assert_eq!(names(&mut indexed.users("b")), ["one", "three"]);
        assert_eq!(indexed.users("c").len(), 0);
        let there = "192.0.2.1".parse().unwrap();
        assert_eq!(names(&mut indexed.listening(there)), ["one", "two"]);
        assert_eq!(indexed.addresses().len(), 2);
    }
}
