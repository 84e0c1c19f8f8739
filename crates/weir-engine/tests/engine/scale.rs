//! Tests that the cost of a reload depends only on its changes.
//!
//! Unchanged rows are not written, so foreign values that the test writes to them remain.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_abi::{Dest, HOPS_PER_DEST, Service as ServiceRow};
use weir_state::Override;

use crate::director::Director;
use weir_dataplane::{Dataplane, Maps, OpenOptions, PinDir, open_readonly};
use weir_model::{Desired, Forward, Listener, Pool, Ports, Protocol, Server, Service};

use super::topology::{Topology, is_root};

const SERVICES: u16 = 30;

fn configuration() -> Desired {
    let mut desired = Desired::default();
    desired.node.max_flows = 1 << 12;
    desired.node.max_services = 64;
    desired.node.max_servers = 256;
    for index in 0..SERVICES {
        let mut pool = Pool::new(format!("pool{index}"));
        pool.servers = (1..=3)
            .map(|server| format!("10.20.{index}.{server}"))
            .map(|name| Server::new(&name, name.parse().unwrap(), None))
            .collect();
        desired.pools.push(pool);
        let mut service = Service::new(format!("s{index}"), Forward::Nat, format!("pool{index}"));
        service.listen.push(Listener {
            protocol: Protocol::Tcp,
            address: IpAddr::from([192, 0, 2, 10 + (index % 3) as u8]),
            ports: Ports::One(1000 + index),
        });
        desired.services.push(service);
    }
    desired
}

const FOREIGN_VALUE: u64 = 0x0000_6e6f_7420_6d65;

/// Writes foreign values to all rows, and removes all listeners and VIPs.
fn write_foreign_values(maps: &Maps) {
    for row in 1..maps.services.entries() {
        let flags = FOREIGN_VALUE as u32;
        let service = ServiceRow {
            flags,
            extent: flags,
            ..maps.services.get(row).unwrap()
        };
        maps.services.set(row, &service).unwrap();
    }
    for row in 1..maps.dests.entries() {
        let dest = Dest {
            service: FOREIGN_VALUE as u32,
            ..maps.dests.get(row).unwrap()
        };
        maps.dests.set(row, &dest).unwrap();
        for slot in 0..HOPS_PER_DEST {
            let mut hop = maps.hop(row, slot).unwrap();
            hop.dmac = FOREIGN_VALUE;
            maps.set_hop(row, slot, &hop).unwrap();
        }
    }
    for key in maps.listeners.keys().unwrap() {
        maps.listeners.remove(&key).unwrap();
    }
    for key in maps.vips.keys().unwrap() {
        maps.vips.remove(&key).unwrap();
    }
}

/// Returns the entries without a foreign value, which the engine has written: the number of services, the servers, the
/// servers with next hops, and the number of listeners and VIPs.
fn written_entries(maps: &Maps) -> (usize, BTreeSet<IpAddr>, BTreeSet<IpAddr>, usize) {
    let services = (1..maps.services.entries())
        .filter(|row| maps.services.get(*row).unwrap().extent != FOREIGN_VALUE as u32)
        .count();
    let address_of = |row: u32| maps.dests.get(row).unwrap().addr.to_ip();
    let (mut dests, mut hops) = (BTreeSet::new(), BTreeSet::new());
    for row in 1..maps.dests.entries() {
        if maps.dests.get(row).unwrap().service != FOREIGN_VALUE as u32 {
            dests.insert(address_of(row));
        }
        if (0..HOPS_PER_DEST).any(|slot| maps.hop(row, slot).unwrap().dmac != FOREIGN_VALUE) {
            hops.insert(address_of(row));
        }
    }
    let listeners_and_vips = maps.listeners.keys().unwrap().len() + maps.vips.keys().unwrap().len();
    (services, dests, hops, listeners_and_vips)
}

fn ips(names: &[&str]) -> BTreeSet<IpAddr> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn reload_writes_only_changed_rows() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("scale");
    topology.director_ip("route add 10.20.0.0/16 via 10.8.0.11");
    topology.run(async |paths| {
        let mut configuration = configuration();
        let mut engine = Director::open(paths, &configuration).await.unwrap();
        let sizes = open_readonly(&PinDir::new(&paths.pin_dir)).unwrap().sizes;
        let options = OpenOptions {
            sizes,
            ..OpenOptions::new(&paths.pin_dir)
        };
        let (plane, _) = Dataplane::open(&options).unwrap();
        let maps = plane.maps();

        write_foreign_values(maps);
        engine.apply(&configuration).await.unwrap();
        assert_eq!(
            written_entries(maps),
            (0, ips(&[]), ips(&[]), 0),
            "no row differs"
        );

        configuration.pools[7].servers[1].weight = 0;
        engine.apply(&configuration).await.unwrap();
        let (services, dests, hops, listeners_and_vips) = written_entries(maps);
        assert_eq!((services, listeners_and_vips), (1, 0));
        assert_eq!(dests, ips(&["10.20.7.2"]), "no other server differs");
        let pool = ips(&["10.20.7.1", "10.20.7.2", "10.20.7.3"]);
        assert!(hops.is_subset(&pool), "{hops:?}");

        write_foreign_values(maps);
        engine
            .set_override("pool9", "10.20.9.3", Override::Drain)
            .unwrap();
        let (services, dests, hops, listeners_and_vips) = written_entries(maps);
        assert_eq!((services, listeners_and_vips), (1, 0));
        assert_eq!(dests, ips(&["10.20.9.3"]));
        let pool = ips(&["10.20.9.1", "10.20.9.2", "10.20.9.3"]);
        assert!(hops.is_subset(&pool), "{hops:?}");

        write_foreign_values(maps);
        configuration.services[11].listen[0].ports = Ports::One(9);
        let name = "10.20.11.4";
        let server = Server::new(name, name.parse().unwrap(), None);
        configuration.pools[11].servers.push(server);
        engine.apply(&configuration).await.unwrap();
        let (services, dests, _, listeners_and_vips) = written_entries(maps);
        assert_eq!(
            (services, listeners_and_vips),
            (1, 1),
            "only the listener; its VIP is unchanged"
        );
        assert_eq!(dests, ips(&[name]));

        write_foreign_values(maps);
        configuration.services.remove(12);
        engine.apply(&configuration).await.unwrap();
        let (services, dests, _, listeners_and_vips) = written_entries(maps);
        assert_eq!(
            (services, listeners_and_vips),
            (1, 0),
            "the service's row is cleared"
        );
        assert_eq!(
            dests,
            ips(&[]),
            "the rows with foreign values are not this service's"
        );
    });
}
