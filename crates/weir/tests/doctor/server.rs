//! Tests that the doctor reports faults that prevent a server from serving its VIP.
//!
//! It must also report settings that the next boot would discard.

use super::*;

pub(super) const DOCTOR: [&str; 2] = ["real-server", "doctor"];

/// Returns a network without faults: one server behind a director, prepared for the VIP's port 80.
pub(super) fn prepared_world() -> World {
    prepared_for(&format!("{}:80", Family::V4.vip()))
}

/// Like [`prepared_world`], with a VIP as the argument of `weir real-server up`.
fn prepared_for(vip: &str) -> World {
    let mut world = World::new(1);
    world.start_nginx(64);
    world.prepare_direct_servers(&vip);
    world.start_daemon(&config("direct").replace(&format!(", \"{}\"", Family::V4.server(1)), ""));
    assert_enabled_at_boot(&world, "server0");
    wait_for("a response from the server", TIMEOUT, || {
        is_reachable(&world)
    });
    let (code, text) = run_on(&world, "server0", &DOCTOR);
    assert_eq!(code, 0, "{text}");
    world
}

/// Returns whether a client gets a response through the director.
fn is_reachable(world: &World) -> bool {
    let line = format!(
        "curl -s -f -o /dev/null -m 2 http://{}/name",
        Family::V4.vip()
    );
    world.output("client", &line).status.success()
}

/// Asserts that the doctor reports rules that block clients, and that clients are served after the printed fix.
fn assert_blocking_rules_reported(world: &World, rules: &str, expected: &str) {
    std::fs::write(world.path("rules.nft"), format!("flush ruleset\n{rules}"))
        .expect("write the file");
    let line = format!("nft -f {}", world.path("rules.nft").display());
    assert_blocking_command_reported(world, &line, expected);
    run_shell(world, "server0", "nft flush ruleset");
}

fn assert_blocking_command_reported(world: &World, line: &str, expected: &str) {
    run_shell(world, "server0", line);
    assert!(!is_reachable(world), "clients must be blocked: {line}");
    assert_fixed_by_command(world, "server0", &DOCTOR, expected);
    assert!(
        is_reachable(world),
        "clients must be served after the fix: {line}"
    );
}

#[test]
fn server_firewall_rules_are_reported() {
    if !privileged() {
        return;
    }
    let world = prepared_world();
    assert_blocking_rules_reported(
        &world,
        "table inet filter {\n chain input {\n type filter hook input priority 0; policy drop;\n\
         ct state established,related accept\n iifname lo accept\n tcp dport 22 accept\n }\n}",
        "drops client packets for 10.71.0.10:80 direct because of its policy",
    );
    // The rules have the form that iptables uses: the base chain jumps to another chain.
    assert_blocking_rules_reported(
        &world,
        "table ip filter {\n chain web {\n tcp dport { 80, 443 } counter drop\n }\n chain INPUT {\n\
         type filter hook input priority filter; policy accept;\n ip daddr 10.71.0.0/24 counter jump web\n }\n}",
        "because of its rule",
    );
    assert_blocking_rules_reported(
        &world,
        "table inet raw {\n chain first {\n type filter hook prerouting priority raw; policy accept;\n\
         ip daddr 10.71.0.10 drop\n }\n}",
        "inet raw first",
    );
    assert_blocking_rules_reported(
        &world,
        "table inet filter {\n chain out {\n type filter hook output priority 0; policy drop;\n\
         ip saddr 10.71.0.20 accept\n }\n}",
        "drops replies from 10.71.0.10:80 direct because of its policy",
    );
    // Rules that let these clients pass, or that cannot be evaluated, are not findings.
    std::fs::write(
        world.path("rules.nft"),
        "table inet filter {\n chain input {\n type filter hook input priority 0; policy drop;\n\
         ip saddr 203.0.113.0/24 drop\n ct state invalid drop\n ct state established accept\n\
         tcp dport { 22, 80 } accept\n }\n}",
    )
    .expect("write the file");
    run_shell(
        &world,
        "server0",
        &format!("nft -f {}", world.path("rules.nft").display()),
    );
    assert!(is_reachable(&world));
    let (code, text) = run_on(&world, "server0", &DOCTOR);
    assert_eq!(code, 0, "{text}");
}

/// The VIP has no port, so the rules are evaluated for the port on which nginx listens.
#[test]
fn rules_that_block_a_listening_port_are_reported() {
    if !privileged() {
        return;
    }
    let mut world = prepared_for(&Family::V4.vip().to_string());
    let closed = "table inet fw {\n chain input {\n type filter hook input priority 0; policy drop;\n\
                  ct state established,related accept\n iifname lo accept\n tcp dport 22 accept\n\
                  meta l4proto { icmp, icmpv6 } accept\n }\n}";
    assert_blocking_rules_reported(
        &world,
        closed,
        "the chain `inet fw input` of nftables drops client packets for 10.71.0.10:80 direct because of its policy",
    );
    assert_blocking_rules_reported(
        &world,
        "table inet fw {\n chain input {\n type filter hook input priority 0; policy accept;\n\
         ip daddr 10.71.0.10 tcp dport 80 drop\n }\n}",
        "drops client packets for 10.71.0.10:80 direct because of its rule",
    );
    // The firewall lets clients reach the service, and deliberately blocks another port.
    world.start_nginx_on("server0", 1, ":9100");
    let open = closed.replace("dport 22", "dport { 22, 80 }");
    std::fs::write(world.path("rules.nft"), open).expect("write the file");
    let line = format!("nft -f {}", world.path("rules.nft").display());
    run_shell(&world, "server0", &line);
    assert!(is_reachable(&world));
    let (code, text) = run_on(&world, "server0", &DOCTOR);
    assert_eq!(code, 0, "{text}");
}

/// Connects a client on another network to the director and to another router.
fn add_remote_client(world: &mut World) {
    world.add_router("router", 50);
    world.register_namespace("remote");
    let [remote, director, router] =
        ["remote", "director", "router"].map(|host| world.namespace(host));
    world::sh(&format!(
        "ip netns add {remote} && ip -n {remote} link set lo up\n\
         ip -n {director} link add eth1 type veth peer name eth0 netns {remote}\n\
         ip -n {router} link add eth1 type veth peer name eth1 netns {remote}\n\
         ip netns exec {director} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1\n\
         for device in eth0 eth1; do\n\
           ip netns exec {remote} sysctl -qw net.ipv6.conf.$device.accept_dad=0\n\
           ip netns exec {remote} ethtool -K $device tx off && ip -n {remote} link set $device up\n\
         done\n\
         ip -n {director} link set eth1 up && ip -n {router} link set eth1 up"
    ));
    world.ip("director", "addr add 10.72.0.1/24 dev eth1");
    world.ip("director", "addr add fd72::1/64 dev eth1 nodad");
    world.ip("remote", "addr add 10.72.0.2/24 dev eth0");
    world.ip("remote", "addr add fd72::2/64 dev eth0 nodad");
    world.ip("remote", "route add default via 10.72.0.1");
    world.ip("remote", "-6 route add default via fd72::1");
    world.ip("router", "route add 10.72.0.2/32 dev eth1");
}

/// The director drops IPv4 packets whose source is one of its own addresses, and forwards such IPv6 packets.
#[test]
fn director_as_default_gateway_is_reported() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    add_remote_client(&mut world);
    world.start_nginx(64);
    let (v4, v6) = (Family::V4.vip().to_string(), Family::V6.vip().to_string());
    world.prepare_servers(&["--forward", "direct", "--vip", &v4, "--vip", &v6]);
    world.ip("server0", "route add default via 10.71.0.3");
    world.ip("server0", "-6 route add default via fd71::3");
    world.start_daemon(&format!(
        "[node]\ninterfaces = [\"eth0\", \"eth1\"]\n[pool.web]\nservers = [\"{}\"]\n[pool.six]\nservers = [\"{}\"]\n\
         [service.web]\nlisten = [\"{v4}:80\"]\npool = \"web\"\nforward = \"direct\"\n\
         [service.six]\nlisten = [\"[{v6}]:80\"]\npool = \"six\"\nforward = \"direct\"\n",
        Family::V4.server(0),
        Family::V6.server(0),
    ));
    let is_reached_from = |host: &str, vip: &str| {
        let line = format!("curl -s -f -o /dev/null -m 2 http://{vip}/name");
        world.output(host, &line).status.success()
    };
    let six = format!("[{v6}]");
    wait_for("responses from the server", TIMEOUT, || {
        is_reached_from("client", &v4) && is_reached_from("remote", &six)
    });
    assert!(
        !is_reached_from("remote", &v4),
        "the director must drop the replies"
    );
    let expected = "the default gateway 10.71.0.3 is the director, which has the VIP 10.71.0.10: it drops replies \
                    whose source is the VIP";
    let fix = fix_command(&world, "server0", &DOCTOR, expected).expect("no finding");
    assert!(fix.contains("route replace default via ROUTER"), "{fix}");
    let is_reported = || fix_command(&world, "server0", &DOCTOR, "is the director").is_some();

    // With a rule, only the replies from the VIP use another gateway.
    world.ip("server0", "route add default via 10.71.0.50 table 71");
    world.ip("server0", "rule add from 10.71.0.10 lookup 71");
    assert!(is_reached_from("remote", &v4) && !is_reported());
    world.ip("server0", "rule del from 10.71.0.10 lookup 71");
    assert!(is_reported());
    world.ip("server0", "route replace default via 10.71.0.50");
    assert!(is_reached_from("remote", &v4) && !is_reported());

    // A router with proxy ARP also replies to requests for the VIP.
    world.ip("director", "addr del 10.71.0.10/32 dev eth0");
    world.ip("router", "route add default dev eth1");
    run_shell(
        &world,
        "router",
        "sysctl -qw net.ipv4.conf.eth0.proxy_arp=1",
    );
    world.ip("router", "route add 10.71.0.10/32 dev eth1");
    run_shell(
        &world,
        "router",
        "sysctl -qw net.ipv4.neigh.eth0.proxy_delay=0",
    );
    let resolves = || {
        world.output("client", "ping -c 1 -W 1 10.71.0.10");
        let neighbor = world.output("client", "ip neigh show to 10.71.0.10");
        String::from_utf8_lossy(&neighbor.stdout).contains("lladdr")
    };
    world.ip("client", "neigh flush dev eth0");
    wait_for("an ARP reply from the router", TIMEOUT, resolves);
    assert!(!is_reported());
}

/// The link-layer address of a virtual router with a virtual MAC address differs from that of its director.
#[test]
fn director_with_a_virtual_mac_address_is_recognized_as_the_gateway() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.add_router("router", 50);
    let vip = Family::V4.vip().to_string();
    world.prepare_servers(&["--forward", "direct", "--vip", &vip]);
    world.ip("director", &format!("addr del {vip}/32 dev eth0"));
    world.ip(
        "director",
        "link add vrrp51 link eth0 address 00:00:5e:00:01:33 type macvlan mode bridge",
    );
    world.ip("director", "link set vrrp51 up");
    run_shell(
        &world,
        "director",
        "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.vrrp51.rp_filter=0 net.ipv4.conf.eth0.arp_ignore=1 \
         net.ipv4.conf.vrrp51.arp_ignore=1",
    );
    let is_reported = |gateway: &str| {
        world.ip("server0", &format!("route replace default via {gateway}"));
        let expected =
            format!("the default gateway {gateway} is the director, which has the VIP {vip}");
        fix_command(&world, "server0", &DOCTOR, &expected).is_some()
    };
    // Only the VIP has the virtual MAC address.
    world.ip("director", &format!("addr add {vip}/32 dev vrrp51"));
    assert!(is_reported("10.71.0.3"));
    assert!(!is_reported("10.71.0.50"), "10.71.0.50 is another router");
    // Only the gateway has the virtual MAC address.
    world.ip("director", &format!("addr del {vip}/32 dev vrrp51"));
    world.ip("director", &format!("addr add {vip}/32 dev eth0"));
    world.ip("director", "addr add 10.71.0.77/32 dev vrrp51");
    assert!(is_reported("10.71.0.77"));
}

/// `down` with VIPs leaves the settings for the other VIPs in place.
#[test]
fn removing_one_of_several_vips_is_not_reported_as_a_change() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    let run = |arguments: &[&str]| {
        let (code, text) = run_on(&world, "server0", arguments);
        assert!(code == 0, "{arguments:?}: {text}");
        text
    };
    let up = ["real-server", "up", "--forward"];
    let tunnel = ["tunnel", "--tunnel", "gue", "--vip", "10.71.0.32"];
    run(&[&up[..], &tunnel].concat());
    let l3dsr = ["l3dsr", "--dscp", "10", "--vip", "10.71.0.34"];
    run(&[&up[..], &l3dsr].concat());
    let show = ["real-server", "show"];
    assert!(run(&show).contains("all settings are in place"));
    let steps = run(&["real-server", "down", "--vip", "10.71.0.32"]);
    assert!(steps.contains("remove 10.71.0.32 from lo"), "{steps}");
    let text = run(&show);
    assert!(text.contains("all settings are in place"), "{text}");
    assert_eq!(
        fix_command(&world, "server0", &DOCTOR, "changed since"),
        None
    );
}

/// nft does not list the rules of iptables-legacy.
#[test]
fn iptables_legacy_rules_are_reported() {
    if !privileged() {
        return;
    }
    let world = prepared_world();
    assert_blocking_command_reported(
        &world,
        "iptables-legacy -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT && iptables-legacy -P INPUT DROP",
        "the chain `filter INPUT` of iptables-legacy drops client packets for 10.71.0.10:80 direct because of its \
         policy",
    );
    run_shell(&world, "server0", "iptables-legacy -P INPUT ACCEPT");
    assert_blocking_command_reported(
        &world,
        "iptables-legacy -t mangle -N web && iptables-legacy -t mangle -A POSTROUTING -s 10.71.0.0/24 -g web && \
         iptables-legacy -t mangle -A web -p tcp -m multiport --sports 80,443 -j DROP",
        "the chain `mangle POSTROUTING` of iptables-legacy drops replies from 10.71.0.10:80 direct because of its rule",
    );
    // Rules that let these clients pass, or that cannot be evaluated, are not findings.
    run_shell(
        &world,
        "server0",
        "iptables-legacy -A INPUT -s 203.0.113.0/24 -j DROP && iptables-legacy -A INPUT -m recent --rcheck -j DROP && \
         ip6tables-legacy -P INPUT DROP",
    );
    assert!(is_reachable(&world));
    let (code, text) = run_on(&world, "server0", &DOCTOR);
    assert_eq!(code, 0, "{text}");
    // Without the tool, the doctor reports the checks that it skips.
    let output = local_command(&world, "server0", "env")
        .args(["PATH=/nowhere", env!("CARGO_BIN_EXE_weir")])
        .args(DOCTOR)
        .output()
        .expect("run weir");
    let text = String::from_utf8_lossy(&output.stdout);
    for fragment in [
        "tables of iptables-legacy are in use (",
        "mangle",
        "tables of ip6tables-legacy are in use (filter)",
    ] {
        assert!(text.contains(fragment), "{fragment:?} is not in {text}");
    }
}

#[test]
fn settings_lost_at_reboot_are_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    world.prepare_direct_servers(&Family::V4.vip());
    let sysctls = "net/ipv4/conf/all/arp_announce, net/ipv4/conf/all/arp_ignore";
    let assert_lost = |settings: &str| {
        let expected =
            format!("only until the next boot: {settings}; no unit or boot script restores them");
        assert_finds(&world, "server0", &DOCTOR, &[&expected]);
    };
    assert_lost(&format!("10.71.0.10 on lo, {sysctls}"));
    run_shell(
        &world,
        "server0",
        "printf 'net.ipv4.conf.all.arp_ignore = 1\nnet.ipv4.conf.all.arp_announce = 2\n' > /etc/sysctl.d/60-weir.conf",
    );
    assert_lost("10.71.0.10 on lo");
    assert_enabled_at_boot(&world, "server0");
    let (code, text) = run_on(&world, "server0", &DOCTOR);
    assert_eq!(code, 0, "{text}");

    // The unit does not restore another VIP, or the programs of a tunnel.
    world.prepare_direct_servers(&"10.71.0.12");
    assert_lost("10.71.0.12 on lo");
    assert_enabled_at_boot(&world, "server0");
    world.prepare_servers(&["--forward", "tunnel", "--vip", "10.71.0.10"]);
    assert_lost("the programs for 10.71.0.10 tunnel ipip");
    let (code, text) = run_on(&world, "server0", &["real-server", "down"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(fix_command(&world, "server0", &DOCTOR, "next boot"), None);
}

/// Another program has added the VIP, so `up` set only the sysctls.
#[test]
fn sysctls_lost_at_reboot_are_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    world.ip("server0", "addr add 10.71.0.10/32 dev lo");
    world.prepare_direct_servers(&Family::V4.vip());
    let expected = "only until the next boot: net/ipv4/conf/all/arp_announce is 2, net/ipv4/conf/all/arp_ignore is 1";
    assert_fixed_by_command(&world, "server0", &DOCTOR, expected);
    run_shell(
        &world,
        "server0",
        "echo 'net.ipv4.conf.all.arp_ignore = 0' > /etc/sysctl.d/90-other.conf",
    );
    assert_fixed_by_command(&world, "server0", &DOCTOR, "90-other.conf sets it to 0");
    // Simulate the next boot: the files restore the settings, so nothing is reported.
    run_shell(
        &world,
        "server0",
        "sysctl -qw net.ipv4.conf.all.arp_ignore=0 && cat /etc/sysctl.d/*.conf | sysctl -q -p -",
    );
    let (code, text) = run_on(&world, "server0", &DOCTOR);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn tentative_ipv6_vip_is_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    let vip = Family::V6.vip();
    world.prepare_direct_servers(&vip);
    assert_eq!(
        fix_command(&world, "server0", &DOCTOR, "duplicate address"),
        None
    );
    world.ip("server0", &format!("addr del {vip}/128 dev lo"));
    world.ip("server0", "link add vips type veth peer name svip");
    run_shell(
        &world,
        "server0",
        "sysctl -qw net.ipv6.conf.vips.accept_dad=1 net.ipv6.conf.vips.dad_transmits=250",
    );
    world.ip("server0", "link set vips up");
    world.ip("server0", "link set svip up");
    world.ip("server0", &format!("addr add {vip}/128 dev vips"));
    assert_fixed_by_command(&world, "server0", &DOCTOR, "on vips is tentative");
}

#[test]
fn vip_used_as_source_address_is_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    let (v4, v6) = (Family::V4.vip(), Family::V6.vip());
    let (v4_text, v6_text) = (v4.to_string(), v6.to_string());
    world.prepare_servers(&["--forward", "direct", "--vip", &v4_text, "--vip", &v6_text]);
    let source = "as their source";
    assert_eq!(
        fix_command(&world, "server0", &DOCTOR, "not deprecated"),
        None
    );
    assert_eq!(fix_command(&world, "server0", &DOCTOR, source), None);

    // A boot script that does not set preferred_lft leaves this state.
    world.ip(
        "server0",
        &format!("addr replace {v6}/128 dev lo preferred_lft forever"),
    );
    assert_fixed_by_command(&world, "server0", &DOCTOR, "not deprecated");

    // eth0 has another address, so the kernel selects the VIP only because of the route's `src`.
    world.ip(
        "server0",
        &format!("route add 198.51.100.0/24 dev eth0 src {v4}"),
    );
    let expected = format!("to other networks, for example 198.51.100.1, have the VIP {v4}");
    let fix = fix_command(&world, "server0", &DOCTOR, &expected).expect("no finding");
    assert!(
        fix.contains(&format!("remove `src {v4}` from the route")),
        "{fix}"
    );
    world.ip("server0", "route del 198.51.100.0/24 dev eth0");
    assert_eq!(fix_command(&world, "server0", &DOCTOR, source), None);
}

/// The VIP was added manually, without `weir real-server up`.
#[test]
fn unmanaged_vip_on_loopback_is_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    let (vip, other) = ("10.71.0.12", "10.71.0.14");
    let is_reachable_at_vip = || {
        world.ip("client", "neigh flush dev eth0");
        world
            .output("client", &format!("ping -c 1 -W 2 {vip}"))
            .status
            .success()
    };
    assert!(!is_reachable_at_vip());
    world.ip("server0", &format!("addr add {vip}/32 dev lo"));
    assert!(
        is_reachable_at_vip(),
        "the VIP must be reachable on the server"
    );
    let unmanaged = format!("{vip} on lo was not added by `weir real-server up`");
    let (code, text) = run_on(&world, "server0", &DOCTOR);
    assert_eq!(code, 1, "{text}");
    assert!(
        !text.contains("no VIP is configured on this machine"),
        "{text}"
    );
    let program = env!("CARGO_BIN_EXE_weir");
    let assert_fixed = |expected: &str| {
        let fix = fix_command(&world, "server0", &DOCTOR, expected).expect("no fix");
        let fix = fix
            .strip_prefix("weir")
            .expect("the fix is not a Weir command");
        run_shell(&world, "server0", &format!("{program}{fix}"));
        assert_eq!(fix_command(&world, "server0", &DOCTOR, expected), None);
    };
    assert_fixed(&unmanaged);
    assert!(!is_reachable_at_vip());

    // The address is not one of the prepared VIPs.
    world.ip("server0", &format!("addr add {other}/32 dev lo"));
    let expected = format!("{other} on lo was not added");
    assert_fixed(&expected);
    world.ip("server0", "addr add 10.71.0.13/16 dev lo");
    assert_finds(
        &world,
        "server0",
        &DOCTOR,
        &["the VIP 10.71.0.13 has the prefix length 16 on lo"],
    );
    world.ip("server0", "addr del 10.71.0.13/16 dev lo");

    // The server was prepared by other means.
    run_shell(&world, "server0", &format!("{program} real-server down"));
    for address in [vip, other] {
        run_shell(
            &world,
            "server0",
            &format!("ip addr replace {address}/32 dev lo"),
        );
    }
    assert_finds(&world, "server0", &DOCTOR, &[&unmanaged, &expected]);
    for line in ["arp_ignore=1", "arp_announce=2"] {
        run_shell(
            &world,
            "server0",
            &format!("sysctl -qw net.ipv4.conf.all.{line}"),
        );
    }
    let (code, text) = run_on(&world, "server0", &DOCTOR);
    assert_eq!(code, 0, "{text}");
}
