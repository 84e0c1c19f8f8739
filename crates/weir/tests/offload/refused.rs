//! Clients that Weir refuses at tc while their packets' checksums are unfinished: they are notified at once, and
//! dropped packets do not reach the director's stack.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::bulk::Slow;
use super::world::{Family, World, privileged, wait_for};
use super::{Offloads, PORT, config, set_offloads, tcp_counter};

const TIMEOUT: Duration = Duration::from_secs(20);
const NODES: [&str; 2] = ["", "attach = \"xdp\"\n"];

fn without_servers(text: &str, family: Family) -> String {
    let servers = format!("servers = [\"{}\"]", family.server(0));
    assert!(text.contains(&servers), "{text}");
    text.replace(&servers, "servers = []")
}

/// How a connection to the VIP ends if no server accepts it.
fn refusal(world: &World, family: Family, limit: Duration) -> ErrorKind {
    let address = SocketAddr::new(family.vip(), PORT);
    let connecting = world.inside("client", move || {
        TcpStream::connect_timeout(&address, limit)
    });
    let connected = connecting.join().expect("no panic");
    connected.expect_err("there is no server").kind()
}

#[test]
fn service_without_servers_rejects_at_once() {
    if !privileged() {
        return;
    }
    for node in NODES {
        for family in [Family::V4, Family::V6] {
            let mut world = World::new(1);
            set_offloads(&world, 1, Offloads::Defaults);
            world.start_director(&without_servers(&config(family, node, "nat"), family));
            let kind = refusal(&world, family, TIMEOUT);
            assert_eq!(kind, ErrorKind::ConnectionRefused, "{node}{family:?}");
            assert!(world.packets("reject_no_server") > 0, "{}", world.status());
        }
    }
}

#[test]
fn removed_server_resets_its_clients() {
    if !privileged() {
        return;
    }
    for node in NODES {
        let mut world = World::new(1);
        set_offloads(&world, 1, Offloads::Defaults);
        let text = config(Family::V4, node, "nat");
        let text = text.replace("[pool.bulk]\n", "[pool.bulk]\non_remove = \"reset\"\n");
        world.start_director(&text);
        let mut slow = Slow::connect(&world, Family::V4, PORT);
        slow.exchanges(TIMEOUT);
        world.reload(&without_servers(&text, Family::V4));
        let kind = slow.ends(TIMEOUT);
        assert_eq!(kind, Some(ErrorKind::ConnectionReset), "{node}");
    }
}

/// Above the limit of replies: a dropped packet does not reach the stack, which would answer with a reset.
#[test]
fn dropped_packets_do_not_reach_the_local_stack() {
    if !privileged() {
        return;
    }
    for node in NODES {
        let mut world = World::new(1);
        set_offloads(&world, 1, Offloads::Defaults);
        let text = config(Family::V4, node, "nat");
        world.start_director(&without_servers(&text, Family::V4));
        let address = SocketAddr::new(Family::V4.vip(), PORT);
        wait_for("packets are dropped", TIMEOUT, || {
            let many = world.inside("client", move || {
                for _ in 0..1500 {
                    let _ = TcpStream::connect_timeout(&address, Duration::from_millis(1));
                }
            });
            many.join().expect("no panic");
            world.packets("drop_no_server") > 0
        });
        assert_eq!(tcp_counter(&world, "director", "OutRsts"), 0, "{node}");
    }
}
