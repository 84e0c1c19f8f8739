//! Tests every forwarding method with the offloads of a real machine enabled (checksums and segmentation).
//!
//! The sender leaves checksums and segmentation to its device. Bulk transfers run in both directions over veth and a
//! bridge with ethtool's defaults. One hop computes checksums in software, because receivers accept partial checksums,
//! which would hide errors.

#[path = "offload/bulk.rs"]
mod bulk;
#[path = "offload/container.rs"]
mod container;
#[path = "offload/datagram.rs"]
mod datagram;
#[path = "offload/frames.rs"]
mod frames;
#[path = "offload/mode.rs"]
mod mode;
#[path = "offload/rejection.rs"]
mod rejection;
#[path = "offload/software.rs"]
mod software;
mod world;

use std::net::{IpAddr, SocketAddr};

use bulk::Transfer;
use frames::{Capture, FrameCounts};
use world::{Family, World, bracketed, full_prefix, privileged, sh};

const MB: usize = 1_000_000;
/// Number of bytes that `make test` transfers in each direction.
const SHORT_BYTES: usize = 20 * MB;
/// Number of bytes that `make soak` transfers in each direction.
const LONG_BYTES: usize = 1_000 * MB;
/// Number of bytes in each transfer that measures a rate.
const RATE_BYTES: usize = 300 * MB;
/// Number of transfers that measure the rate without Weir. The fastest one counts, because other programs disturb some
/// of them.
const RATE_ATTEMPTS: usize = 3;
/// Maximum number of transfers that measure the rate with Weir, until one reaches the goal.
const MAX_RATE_ATTEMPTS: usize = 10;
/// The lowest rate at tc relative to the rate of the same network without Weir.
const TC_GOAL: f64 = 0.7;
const PORT: u16 = 5001;
const XDP: &str = "attach = \"xdp\"\n";
/// The forwarding methods and tunnels of the matrix. `nat` translates source addresses too; `make test` only uses the
/// first two where other settings vary.
const METHODS: [&str; 7] = ["nat", "direct", "tunnel", "l3dsr", ROUTED_NAT, "gue", "gre"];
/// `nat` without source translation: replies are routed through the director.
const ROUTED_NAT: &str = "routed nat";

/// Offloads of the segment's devices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offloads {
    /// ethtool's defaults, but the director computes the checksums of the packets that it sends.
    Defaults,
    /// The same, with GRO on every veth, as in container networks with bulk transfers over a bridge.
    WithGro,
}

/// Enables the default offloads, which [`World`] disables, on the segment's devices.
fn set_offloads(world: &World, servers: usize, offloads: Offloads) {
    let wire = world.namespace("wire");
    let gro = if offloads == Offloads::WithGro {
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
            "ip netns exec {wire} ethtool -K {host} gro {gro} tx on; ip netns exec {name} ethtool -K eth0 gro {gro} tx \
             {tx}"
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

/// Returns a service's `forward` and further settings for one of [`METHODS`].
fn settings(method: &str) -> (&str, String) {
    match method {
        "nat" => (method, "snat = true\n".to_owned()),
        ROUTED_NAT => ("nat", String::new()),
        "gue" | "gre" => ("tunnel", format!("tunnel = \"{method}\"\n")),
        _ => (method, String::new()),
    }
}

fn config(family: Family, node: &str, method: &str) -> String {
    let (forward, extra) = settings(method);
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n{node}[pool.bulk]\nscheduler = \"rr\"\nservers = [\"{}\"]\n\
         [service.bulk]\nlisten = [\"{}:{PORT}\"]\nforward = \"{forward}\"\n{extra}pool = \"bulk\"\n",
        family.server(0),
        bracketed(family.vip())
    )
}

/// Prepares the servers for one of [`METHODS`].
fn prepare_servers(world: &World, family: Family, method: &str) {
    let vip = family.vip().to_string();
    match method {
        "nat" => {}
        ROUTED_NAT => world.route_replies_through_director(),
        "gue" | "gre" => {
            world.prepare_servers(&["--forward", "tunnel", "--tunnel", method, "--vip", &vip]);
        }
        _ => world.prepare_servers(&["--forward", method, "--vip", &vip]),
    }
}

/// Returns a host's TCP counter of this name (snmp_counter.rst).
fn tcp_counter(world: &World, host: &str, name: &str) -> u64 {
    let output = world.output(host, "cat /proc/thread-self/net/snmp");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (
        lines.next().expect("the line of names should exist"),
        lines.next().expect("the line of values should exist"),
    );
    let index = names.split(' ').position(|it| it == name);
    let value = values
        .split(' ')
        .nth(index.expect("the counter should exist"));
    value
        .and_then(|it| it.parse().ok())
        .expect("parse the counter")
}

fn is_soak() -> bool {
    std::env::var_os("WEIR_SOAK").is_some()
}

/// Returns the number of bytes to transfer and the MTUs of the links.
fn size_and_mtus() -> (usize, &'static [usize]) {
    if is_soak() {
        (LONG_BYTES, &[1500, 9000])
    } else {
        (SHORT_BYTES, &[1500])
    }
}

/// Returns the methods of tests that also vary other settings: a part of them in `make test`.
fn methods() -> &'static [&'static str] {
    if is_soak() { &METHODS } else { &METHODS[..2] }
}

/// Measures the same path with the director as a plain router, before Weir runs there. `make soak` compares the
/// transfers with this baseline. The servers receive the packets of host `from` with the source `client`. Returns
/// `None` in the short form.
fn transfer_without_weir(
    world: &World,
    family: Family,
    from: &str,
    client: IpAddr,
) -> Option<Transfer> {
    if !is_soak() {
        return None;
    }
    let through_director =
        |to: IpAddr| format!("{to}/{} via {}", full_prefix(family), family.director());
    let set_forwarding = |value: u8| {
        sh(&format!(
            "ip netns exec {} sysctl -qw net.ipv4.ip_forward={value} net.ipv6.conf.all.forwarding={value}",
            world.namespace("director")
        ));
    };
    let to_server = through_director(family.server(0));
    let routes = [("client", to_server), ("server0", through_director(client))];
    set_forwarding(1);
    for (host, route) in &routes {
        world.ip(host, &format!("route add {route}"));
    }
    let to = SocketAddr::new(family.server(0), PORT);
    let baseline = fastest_transfer(world, family, from, to, RATE_ATTEMPTS, |_| false);
    for (host, route) in &routes {
        world.ip(host, &format!("route del {route}"));
    }
    set_forwarding(0);
    Some(baseline)
}

/// Runs up to `attempts` transfers until `is_enough`, and returns the fastest one.
fn fastest_transfer(
    world: &World,
    family: Family,
    from: &str,
    to: SocketAddr,
    attempts: usize,
    is_enough: impl Fn(&Transfer) -> bool,
) -> Transfer {
    let mut fastest = bulk::transfer(world, family, from, to, RATE_BYTES);
    for _ in 1..attempts {
        if is_enough(&fastest) {
            break;
        }
        fastest = fastest.fastest(bulk::transfer(world, family, from, to, RATE_BYTES));
    }
    fastest
}

/// Compares the rate through Weir with the rate without it. Asserts the goal for tc: both rates are measured in the
/// same network, one after the other, and the fastest of several transfers counts on both sides. Other programs can
/// only make a transfer slower, so further attempts do not hide a slow path.
fn assert_rate(world: &World, family: Family, method: &str, from: &str, baseline: &Transfer) {
    let status = world.status();
    let is_tc = status["xdp"][0]["mode"] == "tc";
    let to = SocketAddr::new(family.vip(), PORT);
    let is_enough = |bulk: &Transfer| !is_tc || bulk.ratio_to(baseline).reaches(TC_GOAL);
    let bulk = fastest_transfer(world, family, from, to, MAX_RATE_ATTEMPTS, is_enough);
    let ratio = bulk.ratio_to(baseline);
    let goal = if is_tc {
        format!(" (goal: ≥ {TC_GOAL} ×)")
    } else {
        String::new()
    };
    println!("  with Weir {bulk}; without Weir {baseline}; ratio {ratio}{goal}");
    assert!(
        !is_tc || ratio.reaches(TC_GOAL),
        "{method} {family:?}: {ratio}{goal}: {bulk}, without Weir {baseline}"
    );
}

/// Runs a transfer in each direction between a host and the server. Asserts that no checksum is wrong, according to the
/// stacks' counters and, unless GRO changes the frames, in frames captured from the director.
fn assert_transfer(
    world: &World,
    family: Family,
    method: &str,
    from: &str,
    baseline: Option<Transfer>,
) {
    let (bytes, _) = size_and_mtus();
    let gro = String::from_utf8_lossy(&world.output("server0", "ethtool -k eth0").stdout)
        .contains("generic-receive-offload: on");
    let hosts = if gro { &[][..] } else { &["client", "server0"] };
    let captures = hosts
        .iter()
        .map(|host| Capture::start(world, host, family))
        .collect::<Vec<_>>();
    let to = SocketAddr::new(family.vip(), PORT);
    let bulk = bulk::transfer(world, family, from, to, bytes);
    let counts: Vec<FrameCounts> = captures.into_iter().map(Capture::stop).collect();
    assert!(
        counts.iter().all(|counts| counts.wrong_checksums == 0),
        "{method} {family:?}: wrong checksums in frames to {hosts:?}: {counts:?}"
    );
    assert!(
        counts.last().is_none_or(|counts| counts.frames > 0),
        "{counts:?}"
    );
    for host in [from, "client", "director", "server0"] {
        assert_eq!(
            tcp_counter(world, host, "InCsumErrors"),
            0,
            "{method} {family:?}: {host} received wrong checksums"
        );
    }
    let status = world.status();
    let mode = status["xdp"][0]["mode"].as_str().unwrap_or_default();
    println!("{method} {family:?} {mode}: {bulk}");
    if let Some(baseline) = baseline {
        assert_rate(world, family, method, from, &baseline);
    }
}

/// Runs a transfer in each direction in a separate network. `make soak` runs longer transfers, with both MTUs.
fn run_transfer(method: &str, family: Family, node: &str, offloads: Offloads) -> Option<World> {
    if !privileged() {
        return None;
    }
    let (_, mtus) = size_and_mtus();
    let mut last = None;
    for mtu in mtus {
        let mut world = World::new(1);
        set_offloads(&world, 1, offloads);
        set_mtu(&world, 1, *mtu);
        let baseline = transfer_without_weir(&world, family, "client", family.client());
        prepare_servers(&world, family, method);
        world.start_daemon(&config(family, node, method));
        assert_transfer(&world, family, method, "client", baseline);
        last = Some(world);
    }
    last
}

/// Tests both families, in veth's default mode and with native XDP. Returns the networks for IPv6.
fn run_both_families(method: &str, offloads: Offloads) -> Option<[World; 2]> {
    run_transfer(method, Family::V4, "", offloads)?;
    run_transfer(method, Family::V4, XDP, offloads)?;
    let default_mode = run_transfer(method, Family::V6, "", offloads)?;
    Some([
        default_mode,
        run_transfer(method, Family::V6, XDP, offloads)?,
    ])
}

/// Native XDP leaves single packets with partial checksums to tc, which balances all packets.
#[test]
fn bulk_transfer_works_with_nat_soak() {
    let Some([default_mode, xdp]) = run_both_families("nat", Offloads::Defaults) else {
        return;
    };
    let status = default_mode.status();
    assert_eq!(status["xdp"][0]["mode"], "tc", "{status:#}");
    assert_eq!(
        status["xdp"][0]["reason"], "veth: packets may carry partial checksums",
        "{status:#}"
    );
    assert_eq!(status["ways"]["xdp"], 0, "{status:#}");
    let text = default_mode.run_weir(&["status"]);
    assert!(text.contains(", tc on eth0"), "{text}");
    assert!(text.contains("packets by path: 100.0 % tc"), "{text}");

    let status = xdp.status();
    assert_eq!(status["xdp"][0]["mode"], "native", "{status:#}");
    assert_eq!(
        status["xdp"][0]["reason"],
        "attach = \"xdp\"; veth: packets may carry partial checksums; such packets go to tc",
        "{status:#}"
    );
    assert!(xdp.packet_count("pass_unfinished") > 0, "{status:#}");
    assert!(status["ways"]["tc"].as_u64() > Some(0), "{status:#}");
}

#[test]
fn bulk_transfer_works_with_nat_and_gro_on_every_veth_soak() {
    run_both_families("nat", Offloads::WithGro);
}

#[test]
fn bulk_transfer_works_with_direct_soak() {
    run_both_families("direct", Offloads::Defaults);
}

#[test]
fn bulk_transfer_works_with_direct_and_gro_on_every_veth_soak() {
    run_both_families("direct", Offloads::WithGro);
}

#[test]
fn bulk_transfer_works_with_nat_without_source_translation_soak() {
    run_both_families(ROUTED_NAT, Offloads::Defaults);
}

#[test]
fn bulk_transfer_works_with_tunnel_soak() {
    run_both_families("tunnel", Offloads::Defaults);
}

#[test]
fn bulk_transfer_works_with_gue_soak() {
    run_both_families("gue", Offloads::Defaults);
}

#[test]
fn bulk_transfer_works_with_gre_soak() {
    run_both_families("gre", Offloads::Defaults);
}

#[test]
fn bulk_transfer_works_with_l3dsr_soak() {
    run_both_families("l3dsr", Offloads::Defaults);
}

/// If the configuration requires tc, the whole path works on socket buffers that contain many segments.
#[test]
fn bulk_transfer_works_at_tc_soak() {
    let Some(world) = run_transfer("nat", Family::V4, "attach = \"tc\"\n", Offloads::WithGro)
    else {
        return;
    };
    let status = world.status();
    assert_eq!(status["xdp"][0]["mode"], "tc", "{status:#}");
    assert_eq!(status["xdp"][0]["reason"], "attach = \"tc\"", "{status:#}");
    assert!(status["ways"]["tc"].as_u64() > Some(10_000), "{status:#}");
}
