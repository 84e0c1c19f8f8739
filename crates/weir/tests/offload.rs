//! Offloads as a machine has them: checksums that the sender left to its device, segments that are cut last. Bulk transfers in both
//! directions through every forward, over veth and a bridge with ethtool's defaults, where one hop finishes checksums itself,
//! so that a receiver's trust in unfinished ones hides nothing.

#[path = "offload/bulk.rs"]
mod bulk;
#[path = "offload/refused.rs"]
mod refused;
#[path = "offload/software.rs"]
mod software;
mod world;

use std::time::Duration;

use world::{Family, World, bracketed, privileged, sh};

const MB: usize = 1_000_000;
/// What `make test` moves, each way.
const SHORT: usize = 20 * MB;
/// What `make soak` moves.
const LONG: usize = 1_000 * MB;
const PORT: u16 = 5001;

/// Offloads of the segment's devices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offloads {
    /// ethtool's defaults, but the director finishes checksums of what it sends.
    Defaults,
    /// The same with GRO at every veth, as bulk over a bridge of containers has it.
    Merging,
}

/// Puts the segment's devices back to the defaults, which a world's are not.
fn set_offloads(world: &World, servers: usize, offloads: Offloads) {
    let wire = world.namespace("wire");
    let gro = if offloads == Offloads::Merging {
        "on"
    } else {
        "off"
    };
    let mut hosts = vec!["client".to_owned(), "director".to_owned()];
    hosts.extend((0..servers).map(|n| format!("server{n}")));
    for host in &hosts {
        let name = world.namespace(host);
        let tx = if host == "director" { "off" } else { "on" };
        sh(&format!(
            "ip netns exec {wire} ethtool -K {host} gro {gro} tx on; ip netns exec {name} ethtool -K eth0 gro {gro} tx {tx}"
        ));
    }
}

fn set_mtu(world: &World, servers: usize, mtu: usize) {
    world.ip("wire", &format!("link set br0 mtu {mtu}"));
    let mut hosts = vec!["client".to_owned(), "director".to_owned()];
    hosts.extend((0..servers).map(|n| format!("server{n}")));
    for host in &hosts {
        world.ip("wire", &format!("link set {host} mtu {mtu}"));
        world.ip(host, &format!("link set eth0 mtu {mtu}"));
    }
}

fn config(family: Family, node: &str, forward: &str) -> String {
    let extra = if forward == "nat" {
        "snat = true\n"
    } else {
        ""
    };
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n{node}[pool.bulk]\nscheduler = \"rr\"\nservers = [\"{}\"]\n\
         [service.bulk]\nlisten = [\"{}:{PORT}\"]\nforward = \"{forward}\"\n{extra}pool = \"bulk\"\n",
        family.server(0),
        bracketed(family.vip())
    )
}

/// A host's count of this name (snmp_counter.rst, TCP).
fn tcp_counter(world: &World, host: &str, name: &str) -> u64 {
    let output = world.output(host, "cat /proc/thread-self/net/snmp");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names.split(' ').position(|it| it == name);
    let value = values.split(' ').nth(at.expect("the counter"));
    value.and_then(|it| it.parse().ok()).expect("a number")
}

/// One transfer each way, and not one wrong checksum.
fn moves(world: &World, family: Family, forward: &str, bytes: usize) {
    let bulk = bulk::move_through(world, family, PORT, bytes);
    for host in ["client", "director", "server0"] {
        assert_eq!(
            tcp_counter(world, host, "InCsumErrors"),
            0,
            "{forward} {family:?}: wrong checksums came to {host}"
        );
    }
    println!("{forward} {family:?}: {bulk}");
}

/// A transfer each way in a world of its own; in `make soak` longer ones, with both MTUs.
fn bulk(forward: &str, family: Family, node: &str, offloads: Offloads) -> Option<World> {
    if !privileged() {
        return None;
    }
    let soak = std::env::var_os("WEIR_SOAK").is_some();
    let (bytes, mtus) = if soak {
        (LONG, &[1500, 9000][..])
    } else {
        (SHORT, &[1500][..])
    };
    let mut last = None;
    for mtu in mtus {
        let mut world = World::new(1);
        set_offloads(&world, 1, offloads);
        set_mtu(&world, 1, *mtu);
        if forward != "nat" {
            world.prepare_servers(&["--forward", forward, "--vip", &family.vip().to_string()]);
        }
        world.start_director(&config(family, node, forward));
        moves(&world, family, forward, bytes);
        last = Some(world);
    }
    last
}

fn both_families(forward: &str, offloads: Offloads) -> Option<World> {
    bulk(forward, Family::V4, "", offloads)?;
    bulk(forward, Family::V6, "", offloads)
}

#[test]
fn bulk_moves_through_nat_at_length() {
    let Some(world) = both_families("nat", Offloads::Defaults) else {
        return;
    };
    let status = world.status();
    let reason = status["xdp"][0]["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("veth: packets may carry unfinished checksums"),
        "{status:#}"
    );
    assert!(world.packets("pass_unfinished") > 0, "{status:#}");
    assert!(status["ways"]["tc"].as_u64() > Some(0), "{status:#}");
}

#[test]
fn bulk_moves_through_nat_where_every_veth_merges_at_length() {
    both_families("nat", Offloads::Merging);
}

#[test]
fn bulk_moves_through_direct_at_length() {
    both_families("direct", Offloads::Defaults);
}

#[test]
fn bulk_moves_through_direct_where_every_veth_merges_at_length() {
    both_families("direct", Offloads::Merging);
}

#[test]
fn bulk_moves_through_a_tunnel_at_length() {
    both_families("tunnel", Offloads::Defaults);
}

#[test]
fn bulk_moves_through_l3dsr_at_length() {
    both_families("l3dsr", Offloads::Defaults);
}

/// The whole path on socket buffers, which stand for many segments.
#[test]
fn bulk_moves_at_tc_at_length() {
    let node = "attach = \"tc\"\n";
    for (forward, family) in [
        ("nat", Family::V4),
        ("nat", Family::V6),
        ("direct", Family::V6),
        ("tunnel", Family::V4),
        ("l3dsr", Family::V6),
    ] {
        let Some(world) = bulk(forward, family, node, Offloads::Merging) else {
            return;
        };
        let status = world.status();
        assert_eq!(status["xdp"][0]["mode"], "tc", "{status:#}");
        assert_eq!(status["xdp"][0]["reason"], "attach = \"tc\"", "{status:#}");
        assert!(status["ways"]["tc"].as_u64() > Some(10_000), "{status:#}");
        assert_eq!(status["ways"]["xdp"], 0, "{status:#}");
        let text = world.says(&["status"]);
        assert!(text.contains(", tc on eth0"), "{text}");
        assert!(text.contains("packets by way: 100.0 % tc"), "{text}");
    }
}

/// The mode follows the configuration at a reload, in both directions, under a connection that goes on.
#[test]
fn a_reload_changes_the_mode_and_costs_no_connection() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    set_offloads(&world, 1, Offloads::Defaults);
    let text = |attach: &str| config(Family::V4, &format!("attach = \"{attach}\"\n"), "nat");
    world.start_director(&text("auto"));
    let mut slow = bulk::Slow::connect(&world, Family::V4, PORT);
    for (attach, mode) in [("tc", "tc"), ("xdp", "native"), ("auto", "native")] {
        slow.exchanges(Duration::from_secs(10));
        world.reload(&text(attach));
        let status = world.status();
        assert_eq!(
            status["xdp"].as_array().map(Vec::len),
            Some(1),
            "{status:#}"
        );
        assert_eq!(status["xdp"][0]["mode"], mode, "{status:#}");
        slow.exchanges(Duration::from_secs(10));
    }
}
