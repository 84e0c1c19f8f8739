//! Tests persistence and one-packet services with real servers: several ports, reloads, weights and a killed daemon.

mod world;

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use world::{Family, World, bracketed, privileged};

fn config(family: Family, servers: &str, service: &str) -> String {
    let vip = bracketed(family.vip());
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nscheduler = \"rr\"\nservers = [{servers}]\n\
         [service.web]\nlisten = [\"{vip}:80\", \"{vip}:81\"]\nforward = \"nat\"\nsnat = true\npool = \"web\"\n\
         {service}\n"
    )
}

fn servers(family: Family, weights: &[u32]) -> String {
    let tables = weights.iter().enumerate().map(|(n, weight)| {
        format!(
            "{{ address = \"{}\", weight = {weight} }}",
            family.server(n)
        )
    });
    tables.collect::<Vec<_>>().join(", ")
}

fn prepared_world() -> World {
    let mut world = World::new(3);
    world.start_nginx(1024);
    for n in 0..3 {
        world.start_nginx_on(&format!("server{n}"), n, ":81");
    }
    world
}

/// Sends a request to a port of the VIP. Returns the name of the server that responds.
fn responding_server(world: &World, family: Family, port: u16) -> String {
    let url = format!("http://{}:{port}/name", bracketed(family.vip()));
    let body = world
        .get(&url)
        .unwrap_or_else(|error| panic!("{error}: {:#}", world.status()));
    String::from_utf8_lossy(&body).trim().to_owned()
}

/// Sends several requests to both ports. Returns the names of the servers that respond.
fn responding_servers(world: &World, family: Family) -> BTreeSet<String> {
    (0..8)
        .map(|n| responding_server(world, family, 80 + n % 2))
        .collect()
}

fn server_index(name: &str) -> usize {
    name.trim_start_matches("server")
        .parse()
        .expect("parse a number")
}

fn assert_client_keeps_its_server(family: Family) {
    if !privileged() {
        return;
    }
    let mut world = prepared_world();
    let persistent = "persistence = { timeout = \"10m\", netmask = 24, netmask6 = 64 }";
    let pid = world.start_daemon(&config(family, &servers(family, &[1, 1, 1]), persistent));
    let first = responding_server(&world, family, 80);
    let expected = BTreeSet::from([first.clone()]);
    assert_eq!(
        responding_servers(&world, family),
        expected,
        "both ports must reach the same server"
    );
    let status = world.server_status(family.server(server_index(&first)));
    assert_eq!(status["persistent_connections"], 1, "{status:#}");

    world.reload(&config(family, &servers(family, &[1, 2, 3]), persistent));
    assert_eq!(
        responding_servers(&world, family),
        expected,
        "after a reload"
    );

    let mut weights = [1, 1, 1];
    weights[server_index(&first)] = 0;
    world.reload(&config(family, &servers(family, &weights), persistent));
    assert_eq!(responding_servers(&world, family), expected, "at weight 0");

    world.kill_keeper(pid);
    assert_eq!(
        responding_servers(&world, family),
        expected,
        "without the daemon"
    );
    world.start_daemon(&config(family, &servers(family, &weights), persistent));
    assert_eq!(
        responding_servers(&world, family),
        expected,
        "with a new daemon"
    );

    let expire = format!("{persistent}\n[ipvs]\nexpire_quiescent_template = 1");
    world.reload(&config(family, &servers(family, &weights), &expire));
    let second = responding_server(&world, family, 80);
    assert_ne!(second, first, "weight 0 and expire_quiescent_template");
    let expected = BTreeSet::from([second.clone()]);
    assert_eq!(responding_servers(&world, family), expected);

    let server = format!("web/{}", family.server(server_index(&second)));
    world.run_weir(&["server", &server, "drain"]);
    let third = responding_server(&world, family, 81);
    assert!(third != second && third != first, "drained: {third}");
}

#[test]
fn persistent_client_keeps_its_server_v4() {
    assert_client_keeps_its_server(Family::V4);
}

#[test]
fn persistent_client_keeps_its_server_v6() {
    assert_client_keeps_its_server(Family::V6);
}

/// A removed server that is added again gets its clients back.
#[test]
fn readded_server_regains_its_clients() {
    if !privileged() {
        return;
    }
    let (family, persistent) = (Family::V4, "persistence = true");
    let mut world = prepared_world();
    world.start_daemon(&config(family, &servers(family, &[1, 1, 1]), persistent));
    let first = responding_server(&world, family, 80);
    let remaining = (0..3)
        .filter(|n| *n != server_index(&first))
        .map(|n| format!("\"{}\"", family.server(n)))
        .collect::<Vec<_>>()
        .join(", ");
    let connections = |world: &World| {
        world.server_status(family.server(server_index(&first)))["connections"]
            .as_u64()
            .expect("value is a number")
    };
    let before = connections(&world);
    world.reload(&config(family, &remaining, persistent));
    world.reload(&config(family, &servers(family, &[1, 1, 1]), persistent));
    assert_eq!(
        connections(&world),
        before,
        "the server's totals must be restored"
    );
    assert_eq!(responding_servers(&world, family), BTreeSet::from([first]));
}

/// Without persistence, Weir sends the datagrams of one socket to every server in turn.
#[test]
fn one_packet_services_schedule_every_datagram() {
    if !privileged() {
        return;
    }
    for family in [Family::V4, Family::V6] {
        let mut world = World::new(3);
        world.prepare_direct_servers(&family.vip());
        world.start_udp_echo(5300, |_| family.vip());
        world.start_daemon(&format!(
            "[node]\ninterfaces = [\"eth0\"]\n[pool.echo]\nscheduler = \"rr\"\nservers = [\"{}\", \"{}\", \"{}\"]\n\
             [service.echo]\nlisten = [\"udp/{}:5300\"]\nforward = \"direct\"\npool = \"echo\"\none_packet = true\n",
            family.server(0),
            family.server(1),
            family.server(2),
            bracketed(family.vip())
        ));
        let to = SocketAddr::new(family.vip(), 5300);
        let client = world.spawn_on("client", move || {
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any).expect("bind a UDP socket");
            socket.connect(to).expect("connect the socket");
            socket
                .set_read_timeout(Some(Duration::from_secs(20)))
                .expect("set the read timeout");
            let mut servers = Vec::new();
            let mut buffer = [0; 64];
            for _ in 0..9 {
                socket.send(b"hello").expect("send a datagram");
                socket.recv(&mut buffer).expect("receive a reply");
                servers.push(buffer[0]);
            }
            servers
        });
        let servers = client.join().expect("client thread panicked");
        for round in servers.chunks(3) {
            assert_eq!(
                round.iter().collect::<BTreeSet<_>>().len(),
                3,
                "{servers:?}"
            );
        }
        let status = world.status();
        assert_eq!(status["flows"]["entries"], 0, "{status:#}");
        assert_eq!(status["services"][0]["connections"], 9, "{status:#}");
    }
}

/// The sorry server serves only while no other server is usable.
#[test]
fn sorry_server_takes_over() {
    if !privileged() {
        return;
    }
    let family = Family::V4;
    let world = &mut prepared_world();
    let text = |weight: u32| {
        format!(
            "{}sorry = \"{}\"\n[service.web]\nlisten = [\"{}:80\"]\nforward = \"nat\"\nsnat = true\npool = \"web\"\n",
            format_args!(
                "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nscheduler = \"rr\"\nservers = [{}]\n",
                servers(family, &[weight, weight])
            ),
            family.server(2),
            family.vip()
        )
    };
    let responding = |world: &World| -> BTreeSet<String> {
        (0..4)
            .map(|_| responding_server(world, family, 80))
            .collect()
    };
    world.start_daemon(&text(1));
    let both_servers = BTreeSet::from(["server0".to_owned(), "server1".to_owned()]);
    assert_eq!(responding(world), both_servers);
    world.reload(&text(0));
    assert_eq!(responding(world), BTreeSet::from(["server2".to_owned()]));
    world.reload(&text(1));
    assert_eq!(responding(world), both_servers);
}

/// Servers accept connections up to their thresholds, counted across all services of the pool.
#[test]
fn upper_threshold_limits_connections() {
    if !privileged() {
        return;
    }
    let family = Family::V4;
    let world = &mut prepared_world();
    let text = |first: u32, second: u32| {
        format!(
            "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nscheduler = \"wlc\"\nservers = [\
             {{ address = \"{}\", max_connections = {first} }}, {{ address = \"{}\", max_connections = {second} }}]\n\
             [service.one]\nlisten = [\"{vip}:80\"]\nforward = \"nat\"\nsnat = true\npool = \"web\"\n\
             [service.two]\nlisten = [\"{vip}:81\"]\nforward = \"nat\"\nsnat = true\npool = \"web\"\n",
            family.server(0),
            family.server(1),
            vip = family.vip()
        )
    };
    world.start_daemon(&text(3, 2));
    let address = |port| SocketAddr::new(family.vip(), port);
    assert_eq!(world.open_connections(address(80), 4), 4);
    // A closed connection also counts in the other service until its entry expires.
    assert_eq!(
        world.open_connections(address(81), 4),
        1,
        "{:#}",
        world.status()
    );
    let overloaded = |n: usize| world.server_status(family.server(n))["overloaded"].clone();
    assert_eq!((overloaded(0), overloaded(1)), (true.into(), true.into()));
    assert!(
        world.packet_count("reject_no_server") > 0,
        "clients must be rejected"
    );
    world.reload(&text(3, 4));
    assert_eq!(
        world.open_connections(address(81), 4),
        2,
        "{:#}",
        world.status()
    );
    world.reload(&text(0, 0));
    assert_eq!(
        world.open_connections(address(80), 6),
        6,
        "{:#}",
        world.status()
    );
}
