//! Tests the engine in namespaces with real connections through XDP.
//!
//! A client, a director and two servers are on one bridge. The tests need root. Client 10.8.0.1, director 10.8.0.2,
//! servers 10.8.0.11 and 10.8.0.12, VIP 192.0.2.10 routed to the director.

#[path = "engine/address.rs"]
mod address;
#[path = "engine/director.rs"]
mod director;
#[path = "engine/failure.rs"]
mod failure;
#[path = "engine/flow_sync.rs"]
mod flow_sync;
#[path = "engine/local.rs"]
mod local;
#[path = "engine/network.rs"]
mod network;
#[path = "engine/scale.rs"]
mod scale;
#[path = "engine/topology.rs"]
mod topology;

use std::collections::BTreeMap;

use director::Director;
use topology::{Topology, is_root};
use weir_dataplane::{PinDir, pinned_sizes};
use weir_engine::clean;
use weir_model::{
    Check, Desired, Forward, Listener, Pool, Ports, Probe, Protocol, Scheduler, SchedulerKind,
    Server, Service, Snat,
};
use weir_state::Override;

const VIP: &str = "192.0.2.10";
const PORT: u16 = 8080;

fn desired(forward: Forward, kind: SchedulerKind, servers: &[&str]) -> Desired {
    let mut desired = Desired::default();
    desired.node.max_flows = 1 << 12;
    desired.node.max_servers = 256;
    desired.node.max_services = 64;
    let mut pool = Pool::new("web");
    pool.scheduler = Some(Scheduler::new(kind));
    pool.servers = servers
        .iter()
        .map(|name| Server::new(*name, name.parse().unwrap(), None))
        .collect();
    desired.pools.push(pool);
    let mut service = Service::new("web", forward, "web");
    service.listen.push(Listener {
        protocol: Protocol::Tcp,
        address: VIP.parse().unwrap(),
        ports: Ports::One(PORT),
    });
    desired.services.push(service);
    desired
}

const BOTH: [&str; 2] = ["10.8.0.11", "10.8.0.12"];

/// Opens new connections to the VIP. Returns the number of connections by server.
fn fetch(topology: &Topology, times: usize) -> BTreeMap<String, usize> {
    let mut connections_by_server = BTreeMap::new();
    for _ in 0..times {
        *connections_by_server
            .entry(topology.fetch(VIP, PORT))
            .or_default() += 1;
    }
    connections_by_server
}

fn even_shares(times: usize) -> BTreeMap<String, usize> {
    BOTH.iter()
        .map(|server| ((*server).to_owned(), times / 2))
        .collect()
}

#[test]
fn direct_forwarding_alternates_between_servers() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("direct");
    topology.serve(VIP, PORT);
    topology.run(async |paths| {
        let engine = Director::open(paths, &desired(Forward::Direct, SchedulerKind::Rr, &BOTH))
            .await
            .unwrap();
        assert_eq!(fetch(&topology, 8), even_shares(8));
        let status = engine.snapshot().unwrap();
        assert_eq!(status.services[0].totals.connections, 8);
        let per_server: Vec<u64> = status.services[0]
            .servers
            .iter()
            .map(|server| server.totals.connections)
            .collect();
        assert_eq!(per_server, [4, 4]);
        assert!(status.services[0].totals.packets_in >= 8 * 3);
        assert_eq!(status.interfaces.len(), 1);
        for _ in 0..2 {
            let packet = format!("tcp 10.8.0.1:9 {VIP}:{PORT}").parse().unwrap();
            let explanation = engine.explain_packet(&packet).unwrap();
            assert_eq!(
                explanation.server,
                Some(topology.fetch(VIP, PORT)),
                "{explanation:?}"
            );
        }
    });
}

/// Tests a new server that is in the configuration before its first probe ends.
#[test]
fn server_with_a_check_is_starting_before_its_first_result() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("starting");
    topology.run(async |paths| {
        let mut configuration = desired(Forward::Direct, SchedulerKind::Rr, &BOTH);
        configuration.pools[0].servers[0].checks = Some(vec![Check::new(Probe::Tcp)]);
        let engine = Director::open(paths, &configuration).await.unwrap();
        let status = engine.snapshot().unwrap();
        let servers = status.services[0].servers.iter();
        let states: Vec<_> = servers
            .map(|server| (server.state.as_str(), server.reason.as_str()))
            .collect();
        assert_eq!(
            states,
            [
                ("starting", "no result yet"),
                ("unchecked", "no check configured")
            ]
        );
    });
}

#[test]
fn explanation_matches_the_choice_of_every_deterministic_scheduler() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("schedulers");
    topology.serve(VIP, PORT);
    topology.run(async |paths| {
        // Schedulers differ in how they choose among equal servers, and in whether they use weights.
        let weights = [[1, 1], [1, 2]];
        let configuration_with = |kind, weights: [u32; 2]| {
            let mut configuration = desired(Forward::Direct, kind, &BOTH);
            for (server, weight) in configuration.pools[0].servers.iter_mut().zip(weights) {
                server.weight = weight;
            }
            configuration
        };
        let configuration = configuration_with(SchedulerKind::Rr, weights[0]);
        let mut engine = Director::open(paths, &configuration).await.unwrap();
        let layer4_schedulers = || {
            SchedulerKind::ALL
                .into_iter()
                .filter(|it| it.works_at_layer4())
        };
        let cases = weights
            .into_iter()
            .flat_map(|weights| layer4_schedulers().map(move |kind| (kind, weights)));
        for ((kind, weights), first) in cases.zip((40_000..).step_by(3)) {
            engine
                .apply(&configuration_with(kind, weights))
                .await
                .unwrap();
            assert_eq!(
                engine.snapshot().unwrap().services[0].scheduler,
                kind.as_str()
            );
            for port in first..first + 3 {
                let packet = format!("tcp 10.8.0.1:{port} {VIP}:{PORT}").parse().unwrap();
                let explanation = engine.explain_packet(&packet).unwrap();
                let chosen = topology.fetch_from(port, VIP, PORT);
                let is_random = matches!(
                    kind,
                    SchedulerKind::Twos | SchedulerKind::P2c | SchedulerKind::LeastTime
                );
                assert_eq!(
                    explanation.server.is_none(),
                    is_random,
                    "{kind} {weights:?}: {explanation:?}"
                );
                if let Some(server) = explanation.server.as_ref() {
                    assert_eq!(*server, chosen, "{kind} {weights:?}: {explanation:?}");
                }
            }
        }
    });
}

#[test]
fn nat_replies_return_through_the_director() {
    if !is_root() {
        return;
    }
    // If the kernel does not forward, it returns no routes, and next hops are taken from the client's packets.
    for forwarding in ["0", "1"] {
        let topology = Topology::new("nat");
        topology.director_sysctl("net/ipv4/ip_forward", forwarding);
        topology.serve("0.0.0.0", PORT);
        topology.route_replies_through_director();
        topology.run(async |paths| {
            let engine = Director::open(paths, &desired(Forward::Nat, SchedulerKind::Wrr, &BOTH))
                .await
                .unwrap();
            assert_eq!(
                fetch(&topology, 6),
                even_shares(6),
                "ip_forward {forwarding}"
            );
            let totals = engine.snapshot().unwrap().services[0].totals;
            assert!(totals.packets_out >= 6 * 3, "{totals:?}");
        });
    }
}

#[test]
fn snat_works_without_return_route() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("snat");
    topology.serve("0.0.0.0", PORT);
    topology.run(async |paths| {
        let mut desired = desired(Forward::Nat, SchedulerKind::Rr, &BOTH);
        desired.services[0].snat = Some(Snat::default());
        let _engine = Director::open(paths, &desired).await.unwrap();
        assert_eq!(fetch(&topology, 4), even_shares(4));
    });
}

#[test]
fn reload_keeps_connections_and_sends_new_ones_to_remaining_server() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("reload");
    topology.serve(VIP, PORT);
    topology.run(async |paths| {
        let mut engine = Director::open(paths, &desired(Forward::Direct, SchedulerKind::Rr, &BOTH))
            .await
            .unwrap();
        let mut first = topology.connect(VIP, PORT);
        let before = first.server();
        let others: Vec<&str> = BOTH
            .into_iter()
            .filter(|server| **server != *before)
            .collect();
        let applied = engine
            .apply(&desired(Forward::Direct, SchedulerKind::Rr, &others))
            .await
            .unwrap();
        assert_eq!(applied.revision, 2);
        assert_eq!(first.server(), before, "the connection must continue");
        assert_eq!(
            fetch(&topology, 4),
            BTreeMap::from([(others[0].to_owned(), 4)])
        );
        let servers = &engine.snapshot().unwrap().services[0].servers;
        assert_eq!(
            servers
                .iter()
                .map(|server| server.removed)
                .collect::<Vec<_>>(),
            [false, true]
        );
        let mut without_service = desired(Forward::Direct, SchedulerKind::Rr, &BOTH);
        without_service.services.clear();
        engine.apply(&without_service).await.unwrap();
        assert_eq!(first.server(), before, "even without its service");
        let one_server = desired(Forward::Direct, SchedulerKind::Rr, &others);
        engine.apply(&one_server).await.unwrap();
        engine.tick().await.unwrap();
        assert_eq!(
            engine.snapshot().unwrap().services[0].servers.len(),
            2,
            "the row must be kept until its flow ends"
        );
    });
}

#[test]
fn new_engine_adopts_the_running_data_plane() {
    if !is_root() {
        return;
    }
    for state_is_lost in [false, true] {
        let topology = Topology::new("adopt");
        topology.serve(VIP, PORT);
        topology.run(async |paths| {
            let configuration = desired(Forward::Direct, SchedulerKind::Rr, &BOTH);
            let mut first = {
                let mut engine = Director::open(paths, &configuration).await.unwrap();
                engine
                    .set_override("web", BOTH[0], Override::Drain)
                    .unwrap();
                topology.connect(VIP, PORT)
            };
            let before = first.server();
            assert_eq!(before, BOTH[1], "the other server is drained");
            assert_eq!(
                first.server(),
                before,
                "the data plane must work without an engine"
            );
            if state_is_lost {
                std::fs::remove_file(paths.runtime_dir.join("state.json")).unwrap();
            }
            let engine = Director::open(paths, &configuration).await.unwrap();
            assert_eq!(first.server(), before);
            let status = engine.snapshot().unwrap();
            assert_eq!(status.services[0].totals.connections, 1);
            let drained = status.services[0].servers[0].overridden.as_deref();
            assert_eq!(drained, if state_is_lost { None } else { Some("drain") });
            assert_eq!(engine.live_flows("web", Some(BOTH[1])), 1);
        });
    }
}

#[test]
fn flows_are_migrated_to_a_larger_table() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("resize");
    topology.serve(VIP, PORT);
    topology.run(async |paths| {
        let mut configuration = desired(Forward::Direct, SchedulerKind::Wlc, &BOTH);
        let mut engine = Director::open(paths, &configuration).await.unwrap();
        let mut first = topology.connect(VIP, PORT);
        let before = first.server();
        configuration.node.max_flows *= 4;
        configuration.node.max_servers *= 2;
        engine.apply(&configuration).await.unwrap();
        assert_eq!(first.server(), before);
        assert_eq!(engine.live_flows("web", None), 1);
        assert_eq!(engine.snapshot().unwrap().services[0].totals.connections, 1);
    });
}

/// Tests a pinned address filter with a different size, and tables that are larger than configured.
#[test]
fn tables_of_a_different_build_keep_size_and_counters() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("build");
    topology.serve(VIP, PORT);
    topology.run(async |paths| {
        let mut configuration = desired(Forward::Direct, SchedulerKind::Wlc, &BOTH);
        configuration.node.max_servers *= 2;
        drop(Director::open(paths, &configuration).await.unwrap());
        let mut first = topology.connect(VIP, PORT);
        let before = first.server();
        let filter = paths.pin_dir.join("state-1/weir_filters");
        std::fs::remove_file(&filter).unwrap();
        let output = std::process::Command::new("bpftool")
            .args(["map", "create"])
            .arg(&filter)
            .args(["type", "array", "key", "4", "value", "16384"])
            .args(["entries", "1", "name", "weir_filters", "flags", "1024"])
            .output();
        assert!(output.expect("run bpftool").status.success());

        let sizes = || pinned_sizes(&PinDir::new(&paths.pin_dir)).unwrap().unwrap();
        let larger = sizes();
        configuration.node.max_servers /= 2;
        let engine = Director::open(paths, &configuration).await.unwrap();
        assert_eq!(sizes(), larger);
        assert_eq!(first.server(), before);
        assert_eq!(engine.live_flows("web", Some(&before)), 1);
        assert_eq!(engine.snapshot().unwrap().services[0].totals.connections, 1);
    });
}

#[test]
fn resize_for_more_servers_keeps_shared_counters() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("room");
    topology.serve(VIP, PORT);
    topology.run(async |paths| {
        let mut configuration = desired(Forward::Direct, SchedulerKind::Wlc, &BOTH);
        let mut second = configuration.services[0].clone();
        second.name = "second".to_owned();
        second.listen[0].ports = Ports::One(PORT + 1);
        configuration.services.push(second);
        let mut engine = Director::open(paths, &configuration).await.unwrap();
        let mut first = topology.connect(VIP, PORT);
        let before = first.server();
        configuration.node.max_servers *= 2;
        engine.apply(&configuration).await.unwrap();
        assert_eq!(first.server(), before);
        let mut next = topology.connect(VIP, PORT);
        assert_ne!(
            next.server(),
            before,
            "wlc must select the server without a connection"
        );
    });
}

#[test]
fn connections_that_begin_during_migration_continue() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("moving");
    topology.serve(VIP, PORT);
    let mut connections = topology.connect_during(VIP, PORT, async |paths| {
        let mut configuration = desired(Forward::Direct, SchedulerKind::Rr, &BOTH);
        // The address is local, so the stack would reset a connection if it received one of its packets.
        configuration.node.vip_interface = Some("d0".to_owned());
        let mut engine = Director::open(paths, &configuration).await.unwrap();
        for _ in 0..4 {
            configuration.node.max_flows *= 2;
            engine.apply(&configuration).await.unwrap();
        }
    });
    for connection in &mut connections {
        connection.server();
    }
}

#[test]
fn clean_reverts_all_changes() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("clean");
    topology.run(async |paths| {
        let before = topology.director_network();
        let mut configuration = desired(Forward::Direct, SchedulerKind::Rr, &BOTH);
        configuration.node.vip_interface = Some("d0".to_owned());
        drop(Director::open(paths, &configuration).await.unwrap());
        assert_ne!(topology.director_network(), before);
        let report = clean(paths).await.unwrap();
        assert!(report.data_plane);
        assert_eq!(report.addresses.len(), 1);
        assert_eq!(topology.director_network(), before);
        assert!(!clean(paths).await.unwrap().data_plane);
    });
}
