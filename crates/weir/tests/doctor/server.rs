//! Tests that the doctor reports faults that prevent a server from serving its VIP, and settings that the next boot
//! would discard.

use super::*;

pub(super) const DOCTOR: [&str; 2] = ["real-server", "doctor"];

/// Returns a network without faults: one server behind a director, prepared for the VIP's port 80.
pub(super) fn prepared_world() -> World {
    let mut world = World::new(1);
    world.start_nginx(64);
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&format!("{vip}:80"));
    world.start_daemon(&config("direct").replace(&format!(", \"{}\"", Family::V4.server(1)), ""));
    assert_fixed_by_command(&world, "server0", &DOCTOR, "only until the next boot");
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

/// Asserts that the doctor reports rules that block clients, and that the printed fix repairs them.
fn assert_blocking_rules_reported(world: &World, rules: &str, seen: &str) {
    std::fs::write(world.path("rules.nft"), format!("flush ruleset\n{rules}"))
        .expect("write the file");
    let line = format!("nft -f {}", world.path("rules.nft").display());
    assert_blocking_command_reported(world, &line, seen);
    run_shell(world, "server0", "nft flush ruleset");
}

fn assert_blocking_command_reported(world: &World, line: &str, seen: &str) {
    run_shell(world, "server0", line);
    assert!(!is_reachable(world), "clients must be blocked: {line}");
    assert_fixed_by_command(world, "server0", &DOCTOR, seen);
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
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&vip);
    let seen = "only until the next boot: net/ipv4/conf/all/arp_announce is 2, net/ipv4/conf/all/arp_ignore is 1";
    assert_fixed_by_command(&world, "server0", &DOCTOR, seen);
    run_shell(
        &world,
        "server0",
        "echo 'net.ipv4.conf.all.arp_ignore = 0' > /etc/sysctl.d/90-other.conf",
    );
    assert_fixed_by_command(&world, "server0", &DOCTOR, "90-other.conf sets it to 0");
    // The findings are about the settings after the next boot.
    run_shell(
        &world,
        "server0",
        "sysctl -qw net.ipv4.conf.all.arp_ignore=0 && cat /etc/sysctl.d/*.conf | sysctl -q -p -",
    );
    let (code, text) = run_on(&world, "server0", &DOCTOR);
    assert_eq!(code, 0, "{text}");
    // Settings that Weir does not change are not reported.
    world
        .weir("server0")
        .args(["real-server", "down"])
        .output()
        .expect("run weir");
    assert_eq!(fix_command(&world, "server0", &DOCTOR, "next boot"), None);
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

    // This is the state that a boot script leaves if it does not set preferred_lft.
    world.ip(
        "server0",
        &format!("addr replace {v6}/128 dev lo preferred_lft forever"),
    );
    assert_fixed_by_command(&world, "server0", &DOCTOR, "not deprecated");

    // The interface has other addresses, and no route requires one of them as its source.
    world.ip(
        "server0",
        &format!("route add 198.51.100.0/24 dev eth0 src {v4}"),
    );
    let seen = format!("to 198.51.100.1 have the VIP {v4}");
    assert_eq!(
        fix_command(&world, "server0", &DOCTOR, &seen).as_deref(),
        Some("")
    );
    world.ip("server0", "route del 198.51.100.0/24 dev eth0");
    assert_eq!(fix_command(&world, "server0", &DOCTOR, source), None);
}

/// The VIP was added by hand, without `weir real-server up`.
#[test]
fn unmanaged_vip_on_loopback_is_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    let (vip, other) = ("10.71.0.12", "10.71.0.14");
    let answers_arp = || {
        world.ip("client", "neigh flush dev eth0");
        world
            .output("client", &format!("ping -c 1 -W 2 {vip}"))
            .status
            .success()
    };
    assert!(!answers_arp());
    world.ip("server0", &format!("addr add {vip}/32 dev lo"));
    assert!(answers_arp(), "this is the reported fault");
    let unprotected = format!("{vip} on lo was not added by `weir real-server up`");
    let (code, text) = run_on(&world, "server0", &DOCTOR);
    assert_eq!(code, 1, "{text}");
    assert!(
        !text.contains("no VIP is configured on this machine"),
        "{text}"
    );
    let program = env!("CARGO_BIN_EXE_weir");
    let assert_fixed = |seen: &str| {
        let fix = fix_command(&world, "server0", &DOCTOR, seen).expect("the finding has a fix");
        let fix = fix
            .strip_prefix("weir")
            .expect("the fix is a command of Weir");
        run_shell(&world, "server0", &format!("{program}{fix}"));
        assert_eq!(fix_command(&world, "server0", &DOCTOR, seen), None);
    };
    assert_fixed(&unprotected);
    assert!(!answers_arp());

    // The address is not among the prepared ones.
    world.ip("server0", &format!("addr add {other}/32 dev lo"));
    let seen = format!("{other} on lo was not added");
    assert_fixed(&seen);
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
    assert_finds(&world, "server0", &DOCTOR, &[&unprotected, &seen]);
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
