//! Tests that tc immediately rejects clients whose packets have partial checksums.
//!
//! Dropped packets do not reach the director's stack, and packets that Weir cannot forward are reported.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::bulk::EchoConnection;
use super::world::{Family, World, privileged, wait_for};
use super::{Offloads, PORT, config, set_offloads, tcp_counter};

const TIMEOUT: Duration = Duration::from_secs(20);
const NODES: [&str; 2] = ["", "attach = \"xdp\"\n"];

fn without_servers(text: &str, family: Family) -> String {
    let servers = format!("servers = [\"{}\"]", family.server(0));
    assert!(text.contains(&servers), "{text}");
    text.replace(&servers, "servers = []")
}

/// Returns the error of a connection to the VIP that no server accepts.
fn connection_error(world: &World, family: Family, limit: Duration) -> ErrorKind {
    let address = SocketAddr::new(family.vip(), PORT);
    let client = world.spawn_on("client", move || {
        TcpStream::connect_timeout(&address, limit)
    });
    let result = client.join().expect("thread panicked");
    result.expect_err("connection must fail").kind()
}

#[test]
fn service_without_servers_rejects_immediately() {
    if !privileged() {
        return;
    }
    for node in NODES {
        for family in [Family::V4, Family::V6] {
            let mut world = World::new(1);
            set_offloads(&world, 1, Offloads::Defaults);
            world.start_daemon(&without_servers(&config(family, node, "nat"), family));
            let kind = connection_error(&world, family, TIMEOUT);
            assert_eq!(kind, ErrorKind::ConnectionRefused, "{node}{family:?}");
            assert!(
                world.packet_count("reject_no_server") > 0,
                "{}",
                world.status()
            );
        }
    }
}

#[test]
fn removing_a_server_resets_its_clients() {
    if !privileged() {
        return;
    }
    for node in NODES {
        let mut world = World::new(1);
        set_offloads(&world, 1, Offloads::Defaults);
        let text = config(Family::V4, node, "nat");
        let text = text.replace("[pool.bulk]\n", "[pool.bulk]\non_remove = \"reset\"\n");
        world.start_daemon(&text);
        let mut connection = EchoConnection::connect(&world, Family::V4, PORT);
        connection.exchange(TIMEOUT);
        world.reload(&without_servers(&text, Family::V4));
        let kind = connection.wait_until_closed(TIMEOUT);
        assert_eq!(kind, Some(ErrorKind::ConnectionReset), "{node}");
    }
}

/// A GRE tunnel with checksums cannot carry packets of many segments.
#[test]
fn uploads_that_stall_because_of_gre_checksums_are_reported() {
    if !privileged() {
        return;
    }
    let family = Family::V4;
    let mut world = World::new(1);
    set_offloads(&world, 1, Offloads::Defaults);
    let vip = family.vip().to_string();
    world.prepare_servers(&["--forward", "tunnel", "--tunnel", "gre", "--vip", &vip]);
    let tunnel = "forward = \"tunnel\"\ntunnel = { type = \"gre\", checksum = \"full\" }\n";
    let text = config(family, "", "tunnel").replace("forward = \"tunnel\"\n", tunnel);
    world.start_daemon(&text);
    let text = world.output_of("check");
    assert!(
        text.contains("[W013]") && text.contains("eth0 is a virtual device"),
        "{text}"
    );
    let text = world.output_of("doctor");
    assert!(!text.contains("drop_gso_tunnel"), "{text}");
    wait_for("the daemon's warning", TIMEOUT, || {
        world
            .log()
            .contains("uploads through service bulk may stall")
    });

    let mut connection = EchoConnection::connect(&world, family, PORT);
    connection.send(&[7; 20_000]);
    wait_for("dropped packets", TIMEOUT, || {
        world.packet_count("drop_gso_tunnel") > 0
    });
    let text = world.output_of("doctor");
    assert!(
        text.contains("the GRE tunnels of service bulk have checksums"),
        "{text}"
    );
}

/// Above the rate limit for replies, Weir drops packets. They must not reach the stack, which would send a reset.
#[test]
fn dropped_packets_do_not_reach_the_local_stack() {
    if !privileged() {
        return;
    }
    for node in NODES {
        let mut world = World::new(1);
        set_offloads(&world, 1, Offloads::Defaults);
        let text = config(Family::V4, node, "nat");
        world.start_daemon(&without_servers(&text, Family::V4));
        let address = SocketAddr::new(Family::V4.vip(), PORT);
        wait_for("dropped packets", TIMEOUT, || {
            let clients = world.spawn_on("client", move || {
                for _ in 0..1500 {
                    let _ = TcpStream::connect_timeout(&address, Duration::from_millis(1));
                }
            });
            clients.join().expect("thread panicked");
            world.packet_count("drop_no_server") > 0
        });
        assert_eq!(tcp_counter(&world, "director", "OutRsts"), 0, "{node}");
    }
}
