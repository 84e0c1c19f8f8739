//! Tests that a reload and a restart change the attach mode in both directions without breaking connections.

use std::net::SocketAddr;
use std::time::Duration;

use super::bulk::EchoConnection;
use super::world::load::{Load, assert_nothing_lost};
use super::world::{Family, World, privileged};
use super::{Offloads, PORT, config, set_offloads, tcp_counter};

const TIMEOUT: Duration = Duration::from_secs(20);

fn attach_config(attach: &str, port: u16) -> String {
    let node = format!("attach = \"{attach}\"\n");
    config(Family::V4, &node, "nat").replace(&format!(":{PORT}\""), &format!(":{port}\""))
}

fn assert_mode(world: &World, mode: &str) {
    let status = world.status();
    assert_eq!(
        status["xdp"].as_array().map(Vec::len),
        Some(1),
        "{status:#}"
    );
    assert_eq!(status["xdp"][0]["mode"], mode, "{status:#}");
}

#[test]
fn attach_mode_change_breaks_no_connection() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    set_offloads(&world, 1, Offloads::Defaults);
    world.start_daemon(&attach_config("auto", PORT));
    let mut connection = EchoConnection::connect(&world, Family::V4, PORT);
    for (attach, mode) in [
        ("tc", "tc"),
        ("xdp", "native"),
        ("auto", "tc"),
        ("xdp", "native"),
    ] {
        connection.exchange(TIMEOUT);
        world.reload(&attach_config(attach, PORT));
        assert_mode(&world, mode);
        connection.exchange(TIMEOUT);
    }
}

/// Clients send continuously with ethtool's defaults. A BPF program that received packets before its settings were
/// correct would send wrong checksums. A daemon that starts after one with native XDP also switches to tc.
#[test]
fn attach_mode_change_under_load_loses_no_packet() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(1024);
    set_offloads(&world, 1, Offloads::Defaults);
    let pid = world.start_daemon(&attach_config("xdp", 80));
    let load = Load::start(&world, SocketAddr::new(Family::V4.vip(), 80));
    load.wait_for_more(150);
    world.kill_keeper(pid);
    world.start_daemon(&attach_config("auto", 80));
    assert_mode(&world, "tc");
    for (attach, mode) in [("xdp", "native"), ("auto", "tc"), ("xdp", "native")] {
        load.wait_for_more(150);
        world.reload(&attach_config(attach, 80));
        assert_mode(&world, mode);
    }
    load.wait_for_more(150);
    assert_nothing_lost(&world, load.stop());
    for host in ["client", "server0"] {
        assert_eq!(tcp_counter(&world, host, "InCsumErrors"), 0, "{host}");
    }
}
