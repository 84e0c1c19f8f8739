//! What keeps a server from serving its VIP, and what its next boot forgets.

use super::*;

pub(super) const DOCTOR: [&str; 2] = ["real-server", "doctor"];

/// One server behind a director, prepared for the VIP's port 80, and all is well.
pub(super) fn prepared() -> World {
    let mut world = World::new(1);
    world.start_nginx(64);
    let vip = Family::V4.vip().to_string();
    world.prepare_servers(&["--forward", "direct", "--vip", &format!("{vip}:80")]);
    world.start_director(&config("direct").replace(&format!(", \"{}\"", Family::V4.server(1)), ""));
    mends(&world, "server0", &DOCTOR, "until the next boot only");
    wait_for("all is well", PATIENCE, || serves(&world));
    let (code, text) = asked(&world, "server0", &DOCTOR);
    assert_eq!(code, 0, "{text}");
    world
}

/// Whether a client gets an answer through the director.
fn serves(world: &World) -> bool {
    let line = format!(
        "curl -s -f -o /dev/null -m 2 http://{}/name",
        Family::V4.vip()
    );
    world.output("client", &line).status.success()
}

/// Rules that cut clients off are found, and mended by what is said.
fn cut_off(world: &World, rules: &str, seen: &str) {
    std::fs::write(world.path("rules.nft"), format!("flush ruleset\n{rules}")).expect("written");
    let line = format!("nft -f {}", world.path("rules.nft").display());
    does(world, "server0", &line);
    assert!(!serves(world), "the rules cut clients off: {rules}");
    mends(world, "server0", &DOCTOR, seen);
    assert!(serves(world), "mended: {rules}");
    does(world, "server0", "nft flush ruleset");
}

#[test]
fn firewalls_of_servers() {
    if !privileged() {
        return;
    }
    let world = prepared();
    cut_off(
        &world,
        "table inet filter {\n chain input {\n type filter hook input priority 0; policy drop;\n\
         ct state established,related accept\n iifname lo accept\n tcp dport 22 accept\n }\n}",
        "drops clients' packets for 10.71.0.10:80 direct, by its policy",
    );
    // As iptables writes them: the chain of the address family, a chain that is jumped to.
    cut_off(
        &world,
        "table ip filter {\n chain web {\n tcp dport { 80, 443 } counter drop\n }\n chain INPUT {\n\
         type filter hook input priority filter; policy accept;\n ip daddr 10.71.0.0/24 counter jump web\n }\n}",
        "by its rule",
    );
    cut_off(
        &world,
        "table inet raw {\n chain first {\n type filter hook prerouting priority raw; policy accept;\n\
         ip daddr 10.71.0.10 drop\n }\n}",
        "inet raw first",
    );
    cut_off(
        &world,
        "table inet filter {\n chain out {\n type filter hook output priority 0; policy drop;\n\
         ip saddr 10.71.0.20 accept\n }\n}",
        "drops answers of 10.71.0.10:80 direct, by its policy",
    );
    // What lets these clients pass, or cannot be told, is no finding.
    std::fs::write(
        world.path("rules.nft"),
        "table inet filter {\n chain input {\n type filter hook input priority 0; policy drop;\n\
         ip saddr 203.0.113.0/24 drop\n ct state invalid drop\n ct state established accept\n\
         tcp dport { 22, 80 } accept\n }\n}",
    )
    .expect("written");
    does(
        &world,
        "server0",
        &format!("nft -f {}", world.path("rules.nft").display()),
    );
    assert!(serves(&world));
    let (code, text) = asked(&world, "server0", &DOCTOR);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn settings_that_the_next_boot_forgets() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    let vip = Family::V4.vip().to_string();
    world.prepare_servers(&["--forward", "direct", "--vip", &vip]);
    let seen = "until the next boot only: net/ipv4/conf/all/arp_announce is 2, net/ipv4/conf/all/arp_ignore is 1";
    mends(&world, "server0", &DOCTOR, seen);
    does(
        &world,
        "server0",
        "echo 'net.ipv4.conf.all.arp_ignore = 0' > /etc/sysctl.d/90-other.conf",
    );
    mends(&world, "server0", &DOCTOR, "90-other.conf sets it to 0");
    // What was said is what a boot does.
    does(
        &world,
        "server0",
        "sysctl -qw net.ipv4.conf.all.arp_ignore=0 && cat /etc/sysctl.d/*.conf | sysctl -q -p -",
    );
    let (code, text) = asked(&world, "server0", &DOCTOR);
    assert_eq!(code, 0, "{text}");
    // Nothing that Weir has not set is asked for.
    world
        .weir("server0")
        .args(["real-server", "down"])
        .output()
        .expect("weir runs");
    assert_eq!(mend_of(&world, "server0", &DOCTOR, "next boot"), None);
}

#[test]
fn an_ipv6_vip_that_may_not_be_used_yet() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    let vip = Family::V6.vip();
    world.prepare_servers(&["--forward", "direct", "--vip", &vip.to_string()]);
    assert_eq!(
        mend_of(&world, "server0", &DOCTOR, "duplicate address"),
        None
    );
    world.ip("server0", &format!("addr del {vip}/128 dev lo"));
    world.ip("server0", "link add vips type veth peer name svip");
    does(
        &world,
        "server0",
        "sysctl -qw net.ipv6.conf.vips.accept_dad=1 net.ipv6.conf.vips.dad_transmits=250",
    );
    world.ip("server0", "link set vips up");
    world.ip("server0", "link set svip up");
    world.ip("server0", &format!("addr add {vip}/128 dev vips"));
    mends(&world, "server0", &DOCTOR, "on vips is tentative");
}
