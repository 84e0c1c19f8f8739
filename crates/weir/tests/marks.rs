//! Tests services that listen on firewall marks.
//!
//! An nft rule marks packets to an address of the director, or to an address that is routed to the director. Weir
//! routes the packets to its device and balances them, with and without a daemon, and removes its rules, devices and
//! routes afterwards.

mod world;

use std::collections::BTreeSet;
use std::time::Duration;
use world::{Family, World, bracketed, full_prefix, privileged, sh, wait_for};

const TIMEOUT: Duration = Duration::from_secs(15);

const BIG_BYTES: usize = 1 << 20;
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Returns an address that no interface has. A route sends packets for the address to the director.
fn routed_vip(family: Family) -> std::net::IpAddr {
    let text = match family {
        Family::V4 => "198.51.100.7",
        Family::V6 => "fd98::7",
    };
    text.parse().expect("parse the address")
}

fn config(forward: &str, extra: &str) -> String {
    let mut text = "[node]\ninterfaces = [\"eth0\"]\nmax_flows = 65536\n".to_owned();
    for (family, name) in [(Family::V4, "fwmark"), (Family::V6, "fwmark6")] {
        text += &format!(
            "[pool.{name}]\nscheduler = \"rr\"\nservers = [\"{}\", \"{}\"]\n\
             [service.{name}]\nlisten = [\"{name}/7\"]\nforward = \"{forward}\"\npool = \"{name}\"\n{extra}",
            family.server(0),
            family.server(1)
        );
    }
    text
}

/// Returns a network with two servers and a director. The director forwards packets and sets mark 7 on packets to ports
/// 80 and 81 of the VIPs.
fn prepared_world() -> World {
    let mut world = World::new(2);
    world.start_nginx(BIG_BYTES);
    for n in 0..2 {
        world.start_nginx_on(&format!("server{n}"), n, ":81");
    }
    let director = world.namespace("director");
    sh(&format!(
        "ip netns exec {director} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"
    ));
    let mut rules = String::from(
        "table inet steer { chain in { type filter hook prerouting priority mangle;\n",
    );
    for (family, protocol) in [(Family::V4, "ip"), (Family::V6, "ip6")] {
        for vip in [family.vip(), routed_vip(family)] {
            rules += &format!("{protocol} daddr {vip} tcp dport {{ 80, 81 }} meta mark set 7\n");
        }
        let flag = if family == Family::V6 { "-6 " } else { "" };
        let (vip, prefix) = (routed_vip(family), full_prefix(family));
        let route = format!("{flag}route add {vip}/{prefix} via {}", family.director());
        world.ip("client", &route);
    }
    rules += "}\n}\n";
    let path = world.path("marks.nft");
    std::fs::write(&path, rules).expect("write the file");
    let output = world.output("director", &format!("nft -f {}", path.display()));
    assert!(output.status.success(), "{output:?}");
    world
}

/// Sends `count` requests to an address. Returns the names of the servers that respond.
fn responding_servers(world: &World, vip: std::net::IpAddr, count: u16) -> BTreeSet<String> {
    let fetch = |n| {
        let url = format!("http://{}:{}/name", bracketed(vip), 80 + n % 2);
        let body = world.get_within(5, &url);
        let body = body.unwrap_or_else(|error| panic!("{vip}: {error}: {:#}", world.status()));
        String::from_utf8_lossy(&body).trim().to_owned()
    };
    (0..count).map(fetch).collect()
}

fn both_servers() -> BTreeSet<String> {
    ["server0", "server1"].map(str::to_owned).into()
}

fn assert_serves(world: &World, vip: std::net::IpAddr) {
    assert_eq!(responding_servers(world, vip, 4), both_servers(), "{vip}");
    let body = world.get(&format!("http://{}/big", bracketed(vip)));
    assert_eq!(
        body.expect("download the file"),
        std::fs::read(world.path("big")).expect("read the original")
    );
}

/// Returns the rules, devices and routes of the director, as `ip` shows them.
fn network_state(world: &World) -> String {
    let mut text = String::new();
    for line in [
        "ip rule",
        "ip -6 rule",
        "ip -br link",
        "ip route show table all",
        "ip -6 route show table all",
    ] {
        let output = world.output("director", line);
        text += &String::from_utf8_lossy(&output.stdout);
    }
    text.lines()
        .filter(|line| !line.contains("expires"))
        .map(|line| format!("{}\n", line.trim()))
        .collect()
}

#[test]
fn marked_packets_are_balanced_with_nat() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world();
    let before = network_state(&world);
    let text = config("nat", "snat = true\n");
    let pid = world.start_daemon(&text);
    for family in FAMILIES {
        assert_serves(&world, family.vip());
        assert_serves(&world, routed_vip(family));
    }
    let status = world.status();
    assert_eq!(status["services"][0]["listen"][0], "fwmark/7", "{status:#}");
    assert!(
        status["services"][0]["connections"].as_u64() >= Some(10),
        "{status:#}"
    );
    assert_eq!(
        status["xdp"].as_array().map(Vec::len),
        Some(1),
        "{status:#}"
    );

    world.kill_keeper(pid);
    for family in FAMILIES {
        assert_serves(&world, family.vip());
    }
    let pid = world.start_daemon(&text);
    for family in FAMILIES {
        assert_serves(&world, family.vip());
    }
    let during = network_state(&world);
    assert_eq!(during.matches("fwmark 0x7 ").count(), 2, "{during}");

    // Without the services, no packet is routed to the device. After they are added again, all packets are.
    world.reload("[node]\ninterfaces = [\"eth0\"]\nmax_flows = 65536\n");
    world.reload(&text);
    assert_serves(&world, Family::V4.vip());
    world.kill_keeper(pid);
    world.run_weir(&["clean"]);
    assert_eq!(network_state(&world), before);
}

/// Tests a forwarding method whose servers reply directly.
fn assert_balanced_with_direct_replies(forward: &str, extra: &str) {
    if !privileged() {
        return;
    }
    let mut world = prepared_world();
    let vips: Vec<String> = FAMILIES
        .into_iter()
        .flat_map(|family| [family.vip(), routed_vip(family)])
        .map(|vip| vip.to_string())
        .collect();
    let mut arguments = vec!["--forward", forward];
    for vip in &vips {
        arguments.extend(["--vip", vip]);
    }
    world.prepare_servers(&arguments);
    world.start_daemon(&config(forward, extra));
    for family in FAMILIES {
        assert_serves(&world, family.vip());
        assert_serves(&world, routed_vip(family));
    }
}

#[test]
fn marked_packets_are_balanced_with_direct() {
    assert_balanced_with_direct_replies("direct", "");
}

#[test]
fn marked_packets_are_balanced_with_tunnel() {
    assert_balanced_with_direct_replies("tunnel", "");
}

/// Clients of a service without servers are rejected. A mark without a service has no effect.
#[test]
fn mark_without_servers_is_rejected_and_mark_without_service_passes() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world();
    let text = "[node]\ninterfaces = [\"eth0\"]\nmax_flows = 65536\n[pool.web]\nservers = []\n\
         [service.web]\nlisten = [\"fwmark/7\", \"fwmark6/8\"]\nforward = \"nat\"\npool = \"web\"\n";
    world.start_daemon(text);
    let fetch_error = |vip| {
        let url = format!("http://{}/name", bracketed(vip));
        world
            .get_within(3, &url)
            .expect_err("the request succeeded")
    };
    for vip in [Family::V4.vip(), routed_vip(Family::V4)] {
        let error = fetch_error(vip);
        assert!(error.contains("(7)"), "{error}");
    }
    assert!(
        world.packet_count("reject_no_server") >= 2,
        "{:#}",
        world.status()
    );
    // Nothing listens on the director itself.
    let error = fetch_error(Family::V6.vip());
    assert!(error.contains("(7)"), "{error}");
}

/// This is the usual purpose of marks in IPVS: a client's flows to several ports go to the same server.
#[test]
fn ipvsadm_mark_groups_ports_of_client() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world();
    world.route_replies_through_director();
    let pid = world.start_daemon("[node]\ninterfaces = [\"eth0\"]\nmax_flows = 65536\n");
    let ipvsadm = |line: &str| {
        let arguments: Vec<&str> = ["ipvsadm"]
            .into_iter()
            .chain(line.split_whitespace())
            .collect();
        world.run_weir(&arguments)
    };
    for family in FAMILIES {
        let flag = if family == Family::V6 { " -6" } else { "" };
        ipvsadm(&format!("-A -f 7{flag} -s rr"));
        for n in 0..2 {
            let server = bracketed(family.server(n));
            ipvsadm(&format!("-a -f 7{flag} -r {server}:0 -m"));
        }
        assert_eq!(
            responding_servers(&world, family.vip(), 4),
            both_servers(),
            "{family:?}"
        );
        ipvsadm(&format!("-E -f 7{flag} -s rr -p 600"));
        for vip in [family.vip(), routed_vip(family)] {
            let servers = responding_servers(&world, vip, 4);
            assert_eq!(
                servers.len(),
                1,
                "{vip}: {servers:?}\n{}\n{:#}",
                ipvsadm("-L -c -n"),
                world.status()
            );
        }
    }
    let listing = ipvsadm("-L -n");
    assert!(listing.contains("FWM  7 rr persistent 600\n"), "{listing}");
    assert!(
        listing.contains("FWM  7 IPv6 rr persistent 600\n"),
        "{listing}"
    );
    let connections = ipvsadm("-L -c -n");
    for (client, mark) in [("10.71.0.2", "0.0.0.7"), ("[fd71::2]", "[0:7::]")] {
        let fragments = [
            "IP",
            "ASSURED",
            &format!("{client}:0"),
            &format!("{mark}:0"),
        ];
        let is_listed = connections.lines().any(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            fragments.iter().all(|fragment| columns.contains(fragment))
        });
        assert!(is_listed, "{client}: {connections}");
    }

    world.kill_keeper(pid);
    assert_eq!(responding_servers(&world, Family::V4.vip(), 4).len(), 1);
    // Without the daemon, ipvsadm itself changes the rules.
    let output = world
        .weir("director")
        .args(["ipvsadm", "-D", "-f", "7"])
        .output()
        .expect("run weir");
    assert!(output.status.success(), "{output:?}");
    world
        .get_within(3, &format!("http://{}/name", Family::V4.vip()))
        .expect_err("the request succeeded");
    assert_eq!(responding_servers(&world, Family::V6.vip(), 4).len(), 1);
}

/// `cache_bypass`: while no server is usable, packets continue to their original destination.
#[test]
fn cache_bypass_passes_packets_without_usable_server() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world();
    let mut servers = Vec::new();
    for family in FAMILIES {
        // The routed VIP is an address of server 0, so packets that Weir does not balance arrive there.
        let (vip, prefix) = (routed_vip(family), full_prefix(family));
        world.ip("server0", &format!("addr add {vip}/{prefix} dev lo"));
        let flag = if family == Family::V6 { "-6 " } else { "" };
        let route = format!("{flag}route add {vip}/{prefix} via {}", family.server(0));
        world.ip("director", &route);
        servers.push(format!(
            "{{ address = \"{}\", weight = 0 }}",
            family.server(1)
        ));
    }
    let text = |bypass: u8| {
        format!(
            "[node]\ninterfaces = [\"eth0\"]\nmax_flows = 65536\n[ipvs]\ncache_bypass = {bypass}\n\
             [pool.four]\nservers = [{}]\n[service.four]\nlisten = [\"fwmark/7\"]\nforward = \"direct\"\npool = \
             \"four\"\n\
             [pool.six]\nservers = [{}]\n[service.six]\nlisten = [\"fwmark6/7\"]\nforward = \"direct\"\npool = \
             \"six\"\n",
            servers[0], servers[1]
        )
    };
    world.start_daemon(&text(0));
    let fetch = |vip| world.get_within(3, &format!("http://{}/name", bracketed(vip)));
    for family in FAMILIES {
        fetch(routed_vip(family)).expect_err("the request succeeded");
    }
    world.reload(&text(1));
    for family in FAMILIES {
        let body = fetch(routed_vip(family))
            .unwrap_or_else(|error| panic!("{error}: {:#}", world.status()));
        assert_eq!(body, b"server0\n");
        fetch(family.vip()).expect_err("the request to the director's own address succeeded");
    }
    assert!(
        world.packet_count("pass_bypass") >= 2,
        "{:#}",
        world.status()
    );
}

/// Changes rules, routes and devices as `networkctl reconfigure`, a script, or an operator's mistake would.
#[test]
fn mark_rules_routes_and_devices_are_restored() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world();
    let pid = world.start_daemon(&config("nat", "snat = true\n"));
    assert_serves(&world, Family::V4.vip());
    let before = network_state(&world);
    let peer_device = before
        .split_whitespace()
        .find(|word| word.starts_with("weir1@"))
        .and_then(|word| word.split('@').next())
        .expect("weir0 has no peer")
        .to_owned();
    let assert_repaired = |count: u32, line: &str| {
        let output = world.output("director", line);
        assert!(output.status.success(), "{line}: {output:?}");
        wait_for(line, TIMEOUT, || world.status()["drift"]["marks"] == count);
        for family in FAMILIES {
            assert_serves(&world, family.vip());
            assert_serves(&world, routed_vip(family));
        }
        assert_eq!(
            world.log().matches("the route for marked packets").count(),
            count as usize,
            "{line}: {}",
            world.log()
        );
    };
    assert_repaired(1, "ip rule del pref 0 fwmark 7");
    assert_eq!(network_state(&world), before);
    assert_repaired(2, "ip -6 rule flush protocol 87");
    assert_repaired(3, "ip link set weir0 down");
    assert_repaired(4, "ip link del weir0");
    assert_repaired(5, &format!("ip link set {peer_device} down"));
    world.kill_keeper(pid);
    let output = world.output("director", "ip rule del pref 0 fwmark 7");
    assert!(output.status.success(), "{output:?}");
    world.start_daemon(&config("nat", "snat = true\n"));
    wait_for("the repair after a restart", TIMEOUT, || {
        world.status()["drift"]["marks"] == 1
    });
    assert_serves(&world, Family::V4.vip());
}
