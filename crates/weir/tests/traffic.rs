//! Tests that every forwarding method carries real traffic in a network, in both address families.

mod world;

use std::net::SocketAddr;
use std::time::Duration;

use world::client::upload_digest;
use world::{Family, MODES, World, bracketed, privileged, wait_for};

const MIB: usize = 1 << 20;

/// Returns a configuration with a service for TCP 80 and 9000 and for UDP 5300, with two servers of the family.
fn config(family: Family, forward: &str, extra: &str) -> String {
    let vip = bracketed(family.vip());
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n\n\
         [pool.web]\nscheduler = \"rr\"\nservers = [\"{}\", \"{}\"]\n\n\
         [service.web]\nlisten = [\"{vip}:80\", \"{vip}:9000\", \"udp/{vip}:5300\"]\nforward = \"{forward}\"\n\
         {extra}pool = \"web\"\n",
        family.server(0),
        family.server(1)
    )
}

/// Asserts that a method carries all traffic that it must support: both servers respond in turn, a large download and a
/// large upload arrive intact, UDP works in both directions, and a path with a small MTU works.
fn assert_carries_traffic(world: &mut World, family: Family) {
    let vip = family.vip();
    let url = format!("http://{}", bracketed(vip));
    let mut servers = std::collections::BTreeSet::new();
    for _ in 0..6 {
        let body = world
            .get(&format!("{url}/name"))
            .expect("receive a response through the VIP");
        servers.insert(String::from_utf8_lossy(&body).into_owned());
    }
    assert_eq!(servers.len(), 2, "both servers must respond: {servers:?}");

    let big = world.get(&format!("{url}/big")).expect("download");
    let expected = std::fs::read(world.path("big")).expect("read the original");
    assert!(
        big == expected,
        "the download differs: {} bytes of {}",
        big.len(),
        expected.len()
    );

    let sink = SocketAddr::new(vip, 9000);
    assert_eq!(
        world.upload(sink, 4 * MIB).expect("upload"),
        upload_digest(4 * MIB)
    );

    let echo = SocketAddr::new(vip, 5300);
    for length in [1, 512, 1200] {
        let payload = vec![b'x'; length];
        let reply = world
            .udp_exchange(echo, payload.clone())
            .expect("receive the echo");
        assert_eq!(
            &reply[1..],
            payload.as_slice(),
            "the echo of {length} bytes must be unchanged"
        );
    }

    // The path to the servers has an MTU of 1400 bytes: the client must get the ICMP error, and the upload must arrive.
    for n in 0..2 {
        let (flag, prefix) = if family == Family::V6 {
            ("-6 ", 128)
        } else {
            ("", 32)
        };
        world.ip(
            "director",
            &format!(
                "{flag}route add {}/{prefix} dev eth0 mtu 1400",
                family.server(n)
            ),
        );
    }
    let drops_before = world.packet_count("drop_too_big");
    wait_for("a too-big packet drop", Duration::from_secs(15), || {
        let received = world.upload(sink, MIB).expect("upload");
        assert_eq!(received, upload_digest(MIB));
        world.packet_count("drop_too_big") > drops_before
    });

    let status = world.status();
    let servers = status["services"][0]["servers"]
        .as_array()
        .expect("servers is an array")
        .clone();
    assert!(
        servers
            .iter()
            .all(|server| server["connections"].as_u64() > Some(0)),
        "{status:#}"
    );
}

fn assert_method_carries_traffic(
    family: Family,
    forward: &str,
    extra: &str,
    server_arguments: &[&str],
) {
    if !privileged() {
        return;
    }
    for mode in MODES {
        assert_method_carries_traffic_in_mode(mode, family, forward, extra, server_arguments);
    }
}

fn assert_method_carries_traffic_in_mode(
    mode: Option<&'static str>,
    family: Family,
    forward: &str,
    extra: &str,
    server_arguments: &[&str],
) {
    let mut world = World::with_mode(2, mode);
    world.start_nginx(50 * MIB);
    world.start_sink(9000, family);
    if forward == "nat" {
        if extra.is_empty() {
            world.route_replies_through_director();
        }
        world.start_udp_echo(5300, |n| family.server(n));
    } else {
        let vip = family.vip().to_string();
        let mut arguments = vec!["--forward", forward, "--vip", vip.as_str()];
        arguments.extend_from_slice(server_arguments);
        world.prepare_servers(&arguments);
        world.start_udp_echo(5300, |_| family.vip());
    }
    world.start_daemon(&config(family, forward, extra));
    assert_carries_traffic(&mut world, family);
    let expected = if mode.is_some() { "native" } else { "tc" };
    assert_eq!(world.status()["xdp"][0]["mode"], expected);
}

#[test]
fn traffic_passes_with_nat_v4() {
    assert_method_carries_traffic(Family::V4, "nat", "", &[]);
}

#[test]
fn traffic_passes_with_nat_v6() {
    assert_method_carries_traffic(Family::V6, "nat", "", &[]);
}

#[test]
fn traffic_passes_with_snat_v4() {
    assert_method_carries_traffic(Family::V4, "nat", "snat = true\n", &[]);
}

#[test]
fn traffic_passes_with_snat_v6() {
    assert_method_carries_traffic(Family::V6, "nat", "snat = true\n", &[]);
}

#[test]
fn traffic_passes_with_direct_v4() {
    assert_method_carries_traffic(Family::V4, "direct", "", &[]);
}

#[test]
fn traffic_passes_with_direct_v6() {
    assert_method_carries_traffic(Family::V6, "direct", "", &[]);
}

#[test]
fn traffic_passes_with_tunnel_ipip_v4() {
    assert_method_carries_traffic(Family::V4, "tunnel", "", &["--tunnel", "ipip"]);
}

#[test]
fn traffic_passes_with_tunnel_ipip_v6() {
    assert_method_carries_traffic(Family::V6, "tunnel", "", &["--tunnel", "ipip"]);
}

#[test]
fn traffic_passes_with_tunnel_gue_v4() {
    assert_method_carries_traffic(
        Family::V4,
        "tunnel",
        "tunnel = \"gue\"\n",
        &["--tunnel", "gue"],
    );
}

#[test]
fn traffic_passes_with_tunnel_gre_v6() {
    assert_method_carries_traffic(
        Family::V6,
        "tunnel",
        "tunnel = \"gre\"\n",
        &["--tunnel", "gre"],
    );
}

#[test]
fn traffic_passes_with_l3dsr_v4() {
    assert_method_carries_traffic(Family::V4, "l3dsr", "", &[]);
}

#[test]
fn traffic_passes_with_l3dsr_v6() {
    assert_method_carries_traffic(Family::V6, "l3dsr", "", &[]);
}
