//! Tests VIPs that Weir adds: they are announced, kept while flows need them, then removed.

use crate::director::Director;
use weir_engine::clean;
use weir_model::{
    Desired, Forward, Listener, Pool, Ports, Protocol, SchedulerKind, Server, Service,
};

use super::topology::{Topology, is_root};
use super::{BOTH, PORT, VIP, desired};

const VIP6: &str = "2001:db8::10";

/// Returns a configuration with a VIP of each family on `d0`.
fn with_ipv6_service() -> Desired {
    let mut config = desired(Forward::Direct, SchedulerKind::Rr, &BOTH);
    config.node.vip_interface = Some("d0".to_owned());
    let mut pool = Pool::new("web6");
    let server = "fd00::11";
    pool.servers
        .push(Server::new(server, server.parse().unwrap(), None));
    config.pools.push(pool);
    let mut service = Service::new("web6", Forward::Direct, "web6");
    service.listen.push(Listener {
        protocol: Protocol::Tcp,
        address: VIP6.parse().unwrap(),
        ports: Ports::One(PORT),
    });
    config.services.push(service);
    config
}

#[test]
fn added_vips_are_announced() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("announce");
    for vip in [VIP, VIP6] {
        topology.client_ip(&format!(
            "neigh add {vip} lladdr 02:00:00:00:00:99 dev c0 nud stale"
        ));
    }
    topology.run(async |paths| {
        let _engine = Director::open(paths, &with_ipv6_service()).await.unwrap();
        topology.wait_until_client_resolves(VIP);
        topology.wait_until_client_resolves(VIP6);
    });
}

#[test]
fn added_vips_are_kept_only_while_they_are_needed() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("withdraw");
    topology.serve(VIP, PORT);
    topology.run(async |paths| {
        let has_vip = || topology.director_ip("-o -4 addr").contains(VIP);
        let mut config = desired(Forward::Direct, SchedulerKind::Rr, &BOTH);
        config.node.vip_interface = Some("d0".to_owned());
        let mut without_services = config.clone();
        without_services.services.clear();

        let mut engine = Director::open(paths, &config).await.unwrap();
        assert!(has_vip());
        engine.apply(&without_services).await.unwrap();
        assert!(!has_vip(), "the VIP is not needed");

        engine.apply(&config).await.unwrap();
        let mut connection = topology.connect(VIP, PORT);
        connection.server();
        engine.apply(&without_services).await.unwrap();
        assert!(has_vip(), "a connection needs the VIP");
        connection.server();
        drop(engine);
        clean(paths).await.unwrap();
        assert!(!has_vip());
    });
}

#[test]
fn present_vip_is_kept() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("found");
    topology.director_ip(&format!("addr add {VIP}/32 dev d0"));
    topology.run(async |paths| {
        let mut config = desired(Forward::Direct, SchedulerKind::Rr, &BOTH);
        config.node.vip_interface = Some("d0".to_owned());
        let mut engine = Director::open(paths, &config).await.unwrap();
        config.services.clear();
        engine.apply(&config).await.unwrap();
        drop(engine);
        assert_eq!(clean(paths).await.unwrap().addresses, []);
        assert!(topology.director_ip("-o -4 addr").contains(VIP));
    });
}

#[test]
fn added_ipv6_vip_of_an_earlier_version_is_deprecated() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("deprecate");
    let other = "2001:db8::99";
    topology.director_ip(&format!("addr add {other}/128 dev d0 nodad"));
    topology.run(async |paths| {
        let is_deprecated = |address: &str| {
            let addresses = topology.director_ip("-o -6 addr");
            let mut lines = addresses.lines();
            let line = lines.find(|line| line.contains(&format!(" {address}/128 ")));
            line.expect("the address is missing")
                .contains(" deprecated ")
        };
        let config = with_ipv6_service();
        drop(Director::open(paths, &config).await.unwrap());
        topology.director_ip(&format!(
            "addr change {VIP6}/128 dev d0 preferred_lft forever"
        ));
        assert!(!is_deprecated(VIP6));
        let _engine = Director::open(paths, &config).await.unwrap();
        assert!(is_deprecated(VIP6));
        assert!(!is_deprecated(other), "Weir did not add this address");
    });
}
