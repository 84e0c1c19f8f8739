//! Tests fragmented datagrams, and echo requests to a VIP.

mod world;

use std::net::SocketAddr;

use world::{Family, World, bracketed, full_prefix, privileged};

fn config(family: Family, forward: &str, extra: &str) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.echo]\nscheduler = \"rr\"\nservers = [\"{}\", \"{}\"]\n\
         [service.echo]\nlisten = [\"udp/{}:5300\"]\nforward = \"{forward}\"\n{extra}pool = \"echo\"\n",
        family.server(0),
        family.server(1),
        bracketed(family.vip())
    )
}

/// Asserts that fragmented datagrams pass in both directions, to and from both servers.
fn assert_fragments_pass(family: Family, forward: &str, extra: &str) {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    if forward == "nat" {
        world.start_udp_echo(5300, |n| family.server(n));
    } else {
        world.prepare_servers(&["--forward", forward, "--vip", &family.vip().to_string()]);
        world.start_udp_echo(5300, |_| family.vip());
    }
    world.start_daemon(&config(family, forward, extra));
    let to = SocketAddr::new(family.vip(), 5300);
    let mut servers = std::collections::BTreeSet::new();
    for round in 0..6_u8 {
        let payload: Vec<u8> = (0..4000_u16).map(|i| (i % 251) as u8 ^ round).collect();
        let reply = world.udp_exchange(to, payload.clone());
        let reply = reply.unwrap_or_else(|| panic!("no echo: {:#}", world.status()));
        assert!(
            reply[1..] == payload,
            "the reply ({} bytes) does not match the payload",
            reply.len()
        );
        servers.insert(reply[0]);
    }
    assert_eq!(servers.len(), 2, "both servers must reply");
}

#[test]
fn fragments_pass_with_nat_v4() {
    assert_fragments_pass(Family::V4, "nat", "snat = true\n");
}

#[test]
fn fragments_pass_with_nat_v6() {
    assert_fragments_pass(Family::V6, "nat", "snat = true\n");
}

#[test]
fn fragments_pass_with_direct_v4() {
    assert_fragments_pass(Family::V4, "direct", "");
}

#[test]
fn fragments_pass_with_direct_v6() {
    assert_fragments_pass(Family::V6, "direct", "");
}

#[test]
fn fragments_pass_with_tunnel_v4() {
    assert_fragments_pass(Family::V4, "tunnel", "");
}

#[test]
fn fragments_pass_with_l3dsr_v6() {
    assert_fragments_pass(Family::V6, "l3dsr", "");
}

/// The director replies to echo requests for a VIP, whether the VIP is one of its addresses or is only routed to it.
#[test]
fn vip_replies_to_icmp_echo() {
    if !privileged() {
        return;
    }
    for family in [Family::V4, Family::V6] {
        let mut world = World::new(2);
        world.start_daemon(&config(family, "direct", ""));
        let ping = |world: &World| {
            let line = format!("ping -n -c 3 -i 0.2 -W 2 {}", family.vip());
            let output = world.output("client", &line);
            assert!(
                output.status.success(),
                "{}{:#}",
                String::from_utf8_lossy(&output.stdout),
                world.status()
            );
        };
        ping(&world);
        let (vip, length) = (family.vip(), full_prefix(family));
        world.ip("director", &format!("addr del {vip}/{length} dev eth0"));
        let flag = if family == Family::V6 { "-6 " } else { "" };
        let route = format!("{flag}route add {vip}/{length} via {}", family.director());
        world.ip("client", &route);
        ping(&world);
    }
}
