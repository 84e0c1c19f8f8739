//! Tests a nearly full flow table: with `nat`, no client is rejected while less than 90 % of the slots are in use.
//!
//! `status` shows the fill level and the rejections.

mod world;

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use world::{Family, World, bracketed, privileged, wait_for};

const PORT: u16 = 5300;

fn config(max_flows: u32) -> String {
    let family = Family::V4;
    format!(
        "[node]\ninterfaces = [\"eth0\"]\nmax_flows = {max_flows}\n\
         [pool.echo]\nservers = [\"{}\"]\n\
         [service.echo]\nlisten = [\"udp/{}:{PORT}\"]\nforward = \"nat\"\npool = \"echo\"\n",
        family.server(0),
        bracketed(family.vip())
    )
}

/// Sends one datagram from each port, without waiting for responses.
fn send_from(world: &World, ports: std::ops::Range<u16>) {
    let (from, to) = (Family::V4.client(), SocketAddr::new(Family::V4.vip(), PORT));
    let sender = world.spawn_on("client", move || {
        for port in ports {
            let socket = UdpSocket::bind((from, port))?;
            socket.send_to(b"x", to)?;
        }
        Ok::<(), std::io::Error>(())
    });
    sender
        .join()
        .expect("client thread panicked")
        .expect("bind sockets");
}

fn active_flows(world: &World) -> u64 {
    let server = world.server_status(Family::V4.server(0));
    server["active_connections"]
        .as_u64()
        .expect("value is a number")
}

/// Asserts that all flows have entries, and that none was rejected.
#[track_caller]
fn assert_all_flows_have_entries(world: &World, flows: u64) {
    let all_are_counted = || active_flows(world) + world.packet_count("drop_no_place") >= flows;
    wait_for("flows", Duration::from_secs(20), all_are_counted);
    assert_eq!(
        world.packet_count("drop_no_place"),
        0,
        "{:#}",
        world.status()
    );
    assert_eq!(active_flows(world), flows);
}

#[test]
fn nat_accepts_flows_until_table_is_90_percent_full() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.route_replies_through_director();
    world.start_udp_echo(PORT, |n| Family::V4.server(n));
    world.start_daemon(&config(8192));
    // A flow takes two slots.
    let first = 10_000;
    let small = 8192 / 20 * 9;
    send_from(&world, first..first + small);
    assert_all_flows_have_entries(&world, small.into());
    // The new table, to which the flows are moved, is filled to the same level.
    world.reload(&config(16_384));
    let large = 16_384 / 20 * 9;
    send_from(&world, first + small..first + large);
    assert_all_flows_have_entries(&world, large.into());
    // A full table rejects flows, and the status reports this.
    send_from(&world, first + large..first + large + 1500);
    let has_rejected = || world.packet_count("drop_no_place") > 0;
    wait_for("rejected flows", Duration::from_secs(20), has_rejected);
    assert!(
        active_flows(&world) > u64::from(large),
        "{:#}",
        world.status()
    );
}
