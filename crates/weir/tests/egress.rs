//! Tests the paths to servers and back that depend on the host's network.
//!
//! The cases are unresolved neighbors, a device on which XDP cannot send, servers behind routers, and a kernel with
//! and without forwarding.

mod world;

use std::time::Duration;

use rustix::process::{Signal, kill_process};
use world::{Family, MODES, World, bracketed, full_prefix, privileged, sh, wait_for};

const MIB: usize = 1 << 20;

fn config(family: Family, interface: &str, forward: &str, extra: &str) -> String {
    format!(
        "[node]\ninterfaces = [\"{interface}\"]\n[pool.web]\nscheduler = \"rr\"\nservers = [\"{}\", \"{}\"]\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"{forward}\"\n{extra}pool = \"web\"\n",
        family.server(0),
        family.server(1),
        bracketed(family.vip())
    )
}

fn url(family: Family) -> String {
    format!("http://{}/name", bracketed(family.vip()))
}

fn set_forwarding(world: &World, is_enabled: bool) {
    let value = u8::from(is_enabled);
    sh(&format!(
        "ip netns exec {} sysctl -qw net.ipv4.ip_forward={value} net.ipv6.conf.all.forwarding={value}",
        world.namespace("director")
    ));
}

/// Asserts that the first connection to each server works after all neighbor entries are removed.
fn assert_flushed_neighbors_resolved(family: Family, forward: &str, extra: &str) {
    if !privileged() {
        return;
    }
    for mode in MODES {
        assert_flushed_neighbors_resolved_in_mode(mode, family, forward, extra);
    }
}

fn assert_flushed_neighbors_resolved_in_mode(
    mode: Option<&'static str>,
    family: Family,
    forward: &str,
    extra: &str,
) {
    let mut world = World::with_mode(2, mode);
    world.start_nginx(1024);
    if forward != "nat" {
        world.prepare_servers(&["--forward", forward, "--vip", &family.vip().to_string()]);
    }
    set_forwarding(&world, true);
    world.start_daemon(&config(family, "eth0", forward, extra));
    for _ in 0..4 {
        world.ip("director", "neigh flush all");
        for n in 0..2 {
            let address = family.server(n);
            // A flush does not remove managed neighbor entries.
            world.output("director", &format!("ip neigh del {address} dev eth0"));
        }
        let response = world.get(&url(family));
        assert!(
            response.is_ok(),
            "mode {mode:?}: {response:?} {:#}",
            world.status()
        );
    }
    // Only XDP passes packets with an unresolved next hop to tc, where the program uses the stack's neighbor table.
    let uses_tc = world.packet_count("pass_to_tc") > 0;
    assert_eq!(uses_tc, mode.is_some(), "{:#}", world.status());
}

#[test]
fn flushed_neighbors_are_resolved_with_direct_v4() {
    assert_flushed_neighbors_resolved(Family::V4, "direct", "");
}

#[test]
fn flushed_neighbors_are_resolved_with_nat_v6() {
    assert_flushed_neighbors_resolved(Family::V6, "nat", "snat = true\n");
}

#[test]
fn flushed_neighbors_are_resolved_with_tunnel_v4() {
    assert_flushed_neighbors_resolved(Family::V4, "tunnel", "");
}

/// The data plane itself makes the kernel resolve neighbors, and does not drop packets because of an unknown packet
/// length.
#[test]
fn neighbors_are_resolved_while_daemon_is_stopped() {
    if !privileged() {
        return;
    }
    for (mode, family) in [
        (None, Family::V4),
        (None, Family::V6),
        (Some("xdp"), Family::V4),
    ] {
        let mut world = World::with_mode(2, mode);
        world.start_nginx(1024);
        world.prepare_direct_servers(&family.vip());
        set_forwarding(&world, true);
        world.start_daemon(&config(family, "eth0", "direct", ""));
        world.get(&url(family)).expect("receive a response");
        let daemon = world.suspend_daemon();
        for n in 0..2 {
            let address = family.server(n);
            world.output("director", &format!("ip neigh del {address} dev eth0"));
        }
        // The data plane looks up the route again after a tick.
        std::thread::sleep(Duration::from_millis(1500));
        for _ in 0..2 {
            world.get(&url(family)).expect("receive a response");
        }
        kill_process(daemon, Signal::CONT).expect("send a signal to the process");
    }
}

/// Asserts that clients of a `nat` service are served, with or without forwarding by the kernel.
fn assert_nat_serves_clients(with_forwarding: bool) {
    if !privileged() {
        return;
    }
    for (family, extra) in [(Family::V4, ""), (Family::V6, "snat = true\n")] {
        let mut world = World::new(2);
        world.start_nginx(1024);
        world.route_replies_through_director();
        set_forwarding(&world, with_forwarding);
        world.start_daemon(&config(family, "eth0", "nat", extra));
        for _ in 0..6 {
            world.get(&url(family)).expect("receive a response");
        }
    }
}

#[test]
fn nat_serves_clients_with_kernel_forwarding() {
    assert_nat_serves_clients(true);
}

#[test]
fn nat_serves_clients_without_kernel_forwarding() {
    assert_nat_serves_clients(false);
}

/// The servers are on a separate segment behind a bridge, and XDP cannot send on the bridge.
#[test]
fn servers_behind_a_bridge_are_reached() {
    if !privileged() {
        return;
    }
    for mode in MODES {
        assert_egress_through_bridge(mode);
    }
}

fn assert_egress_through_bridge(mode: Option<&'static str>) {
    let mut world = World::with_mode(2, mode);
    world.start_nginx(MIB);
    let (director, wire) = (world.namespace("director"), world.namespace("wire"));
    for line in [
        "link add br1 type bridge forward_delay 0 mcast_snooping 0".to_owned(),
        "link set br1 up".to_owned(),
        "link set server0 master br1".to_owned(),
        "link set server1 master br1".to_owned(),
        format!("link add back type veth peer name eth1 netns {director}"),
        "link set back master br1 up".to_owned(),
    ] {
        world.ip("wire", &line);
    }
    sh(&format!("ip netns exec {wire} ethtool -K back tx off"));
    for line in [
        "link add br1 type bridge forward_delay 0 mcast_snooping 0",
        "link set eth1 master br1",
        "link set eth1 up",
        "link set br1 up",
        "addr add 10.71.0.4/32 dev br1",
        "route add 10.71.0.20/31 dev br1 src 10.71.0.4",
    ] {
        world.ip("director", line);
    }
    let text = config(
        Family::V4,
        "eth0\", \"br1",
        "nat",
        "snat = { addresses = [\"10.71.0.4\"] }\n",
    );
    world.start_daemon(&text);
    let expected = std::fs::read(world.path("big")).expect("read the original");
    for _ in 0..4 {
        let body = world.get(&format!("http://{}/big", Family::V4.vip()));
        let body = body.unwrap_or_else(|error| panic!("{error}: {:#}", world.status()));
        assert!(
            body == expected,
            "the received file ({} bytes) differs from the original",
            body.len()
        );
    }
    let uses_tc = world.packet_count("pass_to_tc") > 0;
    assert_eq!(uses_tc, mode.is_some(), "{:#}", world.status());
}

/// The servers are in another network behind two routers with routes of equal cost. Then one router fails.
#[test]
fn requests_succeed_again_after_one_of_two_routers_fails() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.add_router("router0", 30);
    world.add_router("router1", 31);
    let family = Family::V4;
    // The server addresses are in a second network that is reachable only through the routers.
    for n in 0..2_u16 {
        let (host, remote) = (format!("server{n}"), format!("10.72.0.{}", 20 + n));
        world.ip(&host, &format!("addr add {remote}/32 dev lo"));
        for router in 0..2 {
            world.ip(
                &format!("router{router}"),
                &format!("route add {remote}/32 via {}", family.host(20 + n)),
            );
        }
        world.ip(
            "director",
            &format!(
                "route add {remote}/32 nexthop via {} nexthop via {}",
                family.host(30),
                family.host(31)
            ),
        );
        world.ip(
            &host,
            &format!(
                "route add {}/{} via {}",
                family.director(),
                full_prefix(family),
                family.host(30)
            ),
        );
    }
    world.start_nginx(1024);
    set_forwarding(&world, true);
    let text = config(family, "eth0", "nat", "snat = true\n").replace("10.71.0.2", "10.72.0.2");
    world.start_daemon(&text);
    for _ in 0..16 {
        world.get(&url(family)).expect("receive a response");
    }
    for router in 0..2 {
        assert!(
            world.received_packets(&format!("router{router}")) > 20,
            "both routers must be used"
        );
    }
    for n in 0..2 {
        world.ip(
            "director",
            &format!(
                "route replace 10.72.0.{}/32 via {}",
                20 + n,
                family.host(30)
            ),
        );
    }
    world.ip("router1", "link set eth0 down");
    wait_for(
        "all requests to succeed again",
        Duration::from_secs(20),
        || (0..8).all(|_| world.get_within(1, &url(family)).is_ok()),
    );
}
