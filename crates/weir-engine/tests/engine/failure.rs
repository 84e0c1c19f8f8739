//! Tests configurations that fail to activate, and a large configuration.

use std::time::Instant;

use crate::director::Director;
use weir_model::{
    Desired, Forward, Listener, Pool, Ports, Scheduler, SchedulerKind, Server, Service,
};

use super::topology::{Topology, is_root};
use super::{BOTH, PORT, VIP, desired, even_shares, fetch};

fn service(index: u16, pool: &str) -> Service {
    let mut service = Service::new(format!("more{index}"), Forward::Direct, pool);
    service.listen.push(Listener {
        protocol: weir_model::Protocol::Tcp,
        address: VIP.parse().unwrap(),
        ports: Ports::One(10_000 + index),
    });
    service
}

#[test]
fn failed_reload_restores_the_previous_configuration() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("failure");
    topology.serve(VIP, PORT);
    topology.run(async |paths| {
        let configuration = desired(Forward::Direct, SchedulerKind::Rr, &BOTH);
        let mut engine = Director::open(paths, &configuration).await.unwrap();
        let mut first = topology.connect(VIP, PORT);
        let before = first.server();

        // The hash tables do not fit, which is detected after some rows have been written.
        let mut larger = configuration.clone();
        larger.services.clear();
        let mut pool = Pool::new("hashed");
        pool.scheduler = Some(Scheduler::new(SchedulerKind::Mh));
        pool.servers = configuration.pools[0].servers.clone();
        larger.pools.push(pool);
        larger
            .services
            .extend((0..40).map(|index| service(index, "hashed")));
        larger.services.extend(configuration.services.clone());
        let error = engine.apply(&larger).await.unwrap_err();
        assert!(
            error.to_string().starts_with("not enough space for"),
            "{error}"
        );

        assert_eq!(first.server(), before);
        assert_eq!(fetch(&topology, 4), even_shares(4));
        engine.tick().await.unwrap();
        let status = engine.snapshot().unwrap();
        assert_eq!(status.revision, 1);
        assert_eq!(status.services.len(), 1);

        let mut no_interface = configuration.clone();
        no_interface.node.vip_interface = Some("missing0".to_owned());
        let error = engine.apply(&no_interface).await.unwrap_err();
        assert_eq!(error.to_string(), "interface missing0 not found");
        assert_eq!(engine.apply(&configuration).await.unwrap().revision, 2);
        assert_eq!(fetch(&topology, 4), even_shares(4));
    });
}

fn large() -> Desired {
    let mut desired = Desired::default();
    desired.node.max_flows = 1 << 12;
    desired.node.max_services = 2_000;
    desired.node.max_servers = 20_000;
    desired.node.interfaces = Some(vec!["d0".to_owned()]);
    for index in 0..1_000u16 {
        let name = format!("pool{index}");
        let mut pool = Pool::new(&name);
        pool.servers = (0..10)
            .map(|server| format!("10.20.{}.{}", index / 20, (index % 20) * 10 + server + 1))
            .map(|address| Server::new(&address, address.parse().unwrap(), None))
            .collect();
        desired.pools.push(pool);
        desired.services.push(service(index, &name));
    }
    desired
}

/// Prints durations, and asserts only that the configuration is active.
#[test]
fn thousand_services_are_reloaded() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("large");
    topology.director_ip("route add 10.20.0.0/16 via 10.8.0.11");
    topology.run(async |paths| {
        let mut configuration = large();
        let started = Instant::now();
        let mut engine = Director::open(paths, &configuration).await.unwrap();
        println!("open: {:?}", started.elapsed());
        let started = Instant::now();
        engine.apply(&configuration).await.unwrap();
        println!("reload without changes: {:?}", started.elapsed());
        configuration.pools[500].servers[3].weight = 7;
        let started = Instant::now();
        engine.apply(&configuration).await.unwrap();
        println!("reload with one changed weight: {:?}", started.elapsed());
        let name = configuration.pools[7].servers[0].name.clone();
        let started = Instant::now();
        let drain = weir_state::Override::Drain;
        engine.set_override("pool7", &name, drain).unwrap();
        println!("drain: {:?}", started.elapsed());
        let started = Instant::now();
        engine.tick().await.unwrap();
        println!("tick: {:?}", started.elapsed());
        assert_eq!(engine.snapshot().unwrap().services.len(), 1_000);
    });
}
