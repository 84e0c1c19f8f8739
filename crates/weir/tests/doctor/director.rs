//! Tests the doctor on a director: it reports packets that the director's own stack drops, other hosts that have the
//! VIP, and faults of servers and links.

use std::net::{Ipv6Addr, TcpStream};
use std::time::Instant;

use super::*;

fn doctor_with(path: &std::path::Path) -> [&str; 3] {
    ["doctor", "-c", path.to_str().expect("path is valid UTF-8")]
}

fn load_rules(world: &World, text: &str) {
    let path = world.path("rules.nft");
    std::fs::write(&path, text).expect("write the file");
    run_shell(world, "director", &format!("nft -f {}", path.display()));
}

fn is_reachable(world: &World) -> bool {
    let line = format!(
        "curl -s -f -o /dev/null -m 3 http://{}/name",
        Family::V4.vip()
    );
    world.output("client", &line).status.success()
}

/// Waits for a response: on a busy machine, the health checks with their short timeouts can fail temporarily.
fn wait_until_reachable(world: &World) {
    wait_for("a response", TIMEOUT, || is_reachable(world));
}

fn wait_for_no_findings(world: &World, doctor: &[&str]) {
    wait_for("a report without findings", TIMEOUT, || {
        run_on(world, "director", doctor).0 == 0
    });
}

#[test]
fn director_firewall_rules_are_reported() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let (vip, server) = (Family::V4.vip(), Family::V4.server(0));
    let text = format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nservers = [\"{server}:80\"]\n\
         check = {{ kind = \"tcp\", interval = \"200ms\", timeout = \"100ms\", rise = 1, fall = 1 }}\n\
         [service.web]\nlisten = [\"{vip}:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n"
    );
    let path = world.write_config(&text);
    let doctor = doctor_with(&path);
    world.start_daemon(&text);
    wait_until_reachable(&world);
    wait_for_no_findings(&world, &doctor);

    let input = "chain input {\n type filter hook input priority 0; policy drop;\n";
    let states = "ct state established,related accept\n";
    load_rules(
        &world,
        &format!("table inet filter {{\n{input} {states} }}\n}}"),
    );
    assert!(!is_reachable(&world));
    assert_fixed_by_command(
        &world,
        "director",
        &doctor,
        "drops client packets for 10.71.0.10:80 because of its policy",
    );
    wait_until_reachable(&world);
    wait_for_no_findings(&world, &doctor);

    run_shell(&world, "director", "nft flush ruleset");
    load_rules(
        &world,
        &format!("table inet filter {{\n{input} tcp dport 80 accept\n }}\n}}"),
    );
    let down = || fix_command(&world, "director", &doctor, "is down").is_some();
    wait_for("the check to mark the server as down", TIMEOUT, down);
    assert_fixed_by_command(
        &world,
        "director",
        &doctor,
        "drops replies from 10.71.0.20 because of its policy",
    );
    wait_for_no_findings(&world, &doctor);

    run_shell(&world, "director", "nft flush ruleset");
    let output = "chain out {\n type filter hook output priority 0; policy accept;\n ip daddr 10.71.0.20 drop\n }";
    load_rules(&world, &format!("table inet filter {{\n{output}\n}}"));
    wait_for("the check to mark the server as down", TIMEOUT, down);
    assert_fixed_by_command(
        &world,
        "director",
        &doctor,
        "drops packets to 10.71.0.20 because of its rule `ip daddr 10.71.0.20 drop`",
    );
    wait_for_no_findings(&world, &doctor);
    wait_until_reachable(&world);
}

/// On Ethernet, a client's full-size packet leaves no room for the outer header. This needs no action, because clients
/// reduce the size of their packets.
#[test]
fn tunnel_overhead_on_ethernet_is_reported_as_a_note() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let vip = Family::V4.vip().to_string();
    world.prepare_servers(&["--forward", "tunnel", "--vip", &vip]);
    let path = world.write_config(&config("tunnel"));
    let doctor = doctor_with(&path);
    world.start_daemon(&config("tunnel"));
    wait_until_reachable(&world);
    wait_for_no_findings(&world, &doctor);
    let (_, text) = run_on(&world, "director", &doctor);
    let note = "note: tunnel packets on eth0 (MTU 1500) have room for client packets of at most 1480 bytes\n";
    assert!(
        text.contains(note) && text.contains("no problems found"),
        "{text}"
    );
    let [command, option, file] = doctor;
    let (code, json) = run_on(&world, "director", &[command, option, file, "--json"]);
    assert!(code == 0 && json.contains("\"note\": true"), "{json}");
}

/// XDP runs before the firewall rules, which would drop all packets.
#[test]
fn layer_4_traffic_bypasses_the_firewall() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    world.prepare_direct_servers(&Family::V4.vip());
    let path = world.write_config(&config("direct"));
    let doctor = doctor_with(&path);
    world.start_daemon(&config("direct"));
    let chain = |hook| {
        format!("chain {hook}s {{\n type filter hook {hook} priority 0; policy drop;\n }}\n")
    };
    let chains = ["prerouting", "input", "forward", "output"]
        .map(chain)
        .concat();
    wait_for_no_findings(&world, &doctor);
    load_rules(&world, &format!("table ip filter {{\n{chains}}}"));
    wait_until_reachable(&world);
    let (code, text) = run_on(&world, "director", &doctor);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn missing_vip_on_server_is_reported_with_fix_command() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let check = "check = { kind = \"tcp\", via = \"path\", interval = \"200ms\", timeout = \"100ms\", rise = 1, \
                 fall = 1 }";
    let text = config("direct").replace("[service.web]", &format!("{check}\n[service.web]"));
    let path = world.write_config(&text);
    let doctor = doctor_with(&path);
    world.start_daemon(&text);
    let expected = format!("no reply from the VIP {}", Family::V4.vip());
    wait_for("the failed check", TIMEOUT, || {
        fix_command(&world, "director", &doctor, &expected).is_some()
    });
    let fix = fix_command(&world, "director", &doctor, &expected).expect("the server is down");
    let command = format!(
        "weir real-server up --forward direct --vip {}",
        Family::V4.vip()
    );
    assert!(fix.contains(&command), "{fix}");
    // A firewall rule can also be the cause, and `up` would not report it.
    let first = "on that server: weir real-server doctor";
    assert!(fix.starts_with(first), "{fix}");
}

#[test]
fn forward_chains_that_drop_marked_packets_are_reported() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let vip = Family::V4.vip();
    world.prepare_direct_servers(&vip);
    run_shell(&world, "director", "sysctl -qw net.ipv4.ip_forward=1");
    let marking = format!(
        "table ip steer {{\n chain in {{\n type filter hook prerouting priority mangle;\n\
         ip daddr {vip} tcp dport 80 meta mark set 7\n }}\n}}\n"
    );
    load_rules(&world, &marking);
    let text = config("direct").replace(&format!("{vip}:80"), "fwmark/7");
    let path = world.write_config(&text);
    let doctor = doctor_with(&path);
    world.start_daemon(&text);
    wait_until_reachable(&world);
    wait_for_no_findings(&world, &doctor);

    run_shell(&world, "director", "sysctl -qw net.ipv4.ip_forward=0");
    assert!(!is_reachable(&world));
    let expected = "IPv4 forwarding is disabled on this machine";
    assert_fixed_by_command(&world, "director", &doctor, expected);
    wait_until_reachable(&world);

    let forward = "chain passing {\n type filter hook forward priority 0; policy";
    load_rules(
        &world,
        &format!("table ip filter {{\n {forward} drop;\n }}\n}}\n"),
    );
    assert!(!is_reachable(&world));
    assert_fixed_by_command(
        &world,
        "director",
        &doctor,
        "drops packets with fwmark/7 because of its policy",
    );
    wait_until_reachable(&world);

    // Replies go directly to the client, so conntrack considers the client's packets invalid, and the rules drop them.
    run_shell(&world, "director", "nft delete table ip filter");
    load_rules(
        &world,
        &format!("table ip filter {{\n {forward} accept;\n ct state invalid drop\n }}\n}}\n"),
    );
    assert!(!is_reachable(&world));
    let expected = "drops packets with fwmark/7 after the first packet of a connection because of its rule `ct state \
                invalid drop`";
    assert_fixed_by_command(&world, "director", &doctor, expected);
    wait_until_reachable(&world);
}

#[test]
fn duplicate_ipv6_vip_is_reported() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let vip = Family::V6.vip();
    world.prepare_direct_servers(&vip);
    let text = format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nservers = [\"{}\", \"{}\"]\n\
         [service.web]\nlisten = [\"[{vip}]:80\"]\nforward = \"direct\"\npool = \"web\"\n",
        Family::V6.server(0),
        Family::V6.server(1)
    );
    let path = world.write_config(&text);
    let doctor = doctor_with(&path);
    world.start_daemon(&text);
    wait_for_no_findings(&world, &doctor);

    world.ip("server1", &format!("addr add {vip}/128 dev eth0 nodad"));
    run_shell(
        &world,
        "director",
        "sysctl -qw net.ipv6.conf.eth0.accept_dad=1",
    );
    world.ip("director", &format!("addr del {vip}/128 dev eth0"));
    world.ip(
        "director",
        &format!("addr add {vip}/128 dev eth0 preferred_lft 0"),
    );
    let dad_failed = "failed duplicate address detection";
    wait_for("the duplicate", TIMEOUT, || {
        fix_command(&world, "director", &doctor, dad_failed).is_some()
    });
    let finding = "replies to neighbor solicitations for the VIP";
    assert_finds(
        &world,
        "director",
        &doctor,
        &[finding, "ip addr del fd71::a/PREFIX dev INTERFACE"],
    );
    world.ip("server1", &format!("addr del {vip}/128 dev eth0"));
    assert_eq!(fix_command(&world, "director", &doctor, finding), None);
    assert_fixed_by_command(&world, "director", &doctor, dad_failed);
    wait_for_no_findings(&world, &doctor);
}

/// A server first has no VIP, then no listener.
#[test]
fn server_that_does_not_reply_is_reported() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let vip = Family::V4.vip();
    world.prepare_direct_servers(&vip);
    let path = world.write_config(&config("direct"));
    let doctor = doctor_with(&path);
    world.start_daemon(&config("direct"));
    wait_for_no_findings(&world, &doctor);
    world.ip("server1", &format!("addr del {vip}/32 dev lo"));
    let no_reply = "server 10.71.0.21 of web does not reply to a SYN for 10.71.0.10:80";
    assert_finds(
        &world,
        "director",
        &doctor,
        &[no_reply, "weir real-server doctor"],
    );
    let (code, text) = run_on(&world, "server1", &["real-server", "doctor", "--fix"]);
    assert!(text.contains("(fixed)"), "{code} {text}");
    assert_eq!(fix_command(&world, "director", &doctor, no_reply), None);
    world.kill_nginx(1);
    let refused = "server 10.71.0.21 of web refuses connections to 10.71.0.10:80";
    wait_for("a refusal", TIMEOUT, || {
        fix_command(&world, "director", &doctor, refused).is_some()
    });
    world.start_nginx_on("server1", 1, "");
    assert_eq!(fix_command(&world, "director", &doctor, refused), None);

    world.ip("director", "link set eth0 down");
    let (_, text) = run_on(&world, "director", &doctor);
    let first = text.lines().next();
    assert_eq!(first, Some("eth0 is down"), "{text}");
    assert_fixed_by_command(&world, "director", &doctor, "eth0 is down");
}

/// The kernel would select IPv6 VIPs as the source of packets to the servers, because they have more leading bits in
/// common with the servers' addresses than the director's address has. The servers could not reply, because they have
/// these VIPs too.
#[test]
fn ipv6_vips_are_not_sources_of_packets_to_servers() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    world.ip("director", "addr del fd71::a/128 dev eth0");
    let vips = ["fd71::15", "fd71::16"];
    for vip in vips {
        world.prepare_direct_servers(&vip);
    }
    let check = "{ kind = \"tcp\", interval = \"200ms\", timeout = \"100ms\", rise = 1, fall = 1 }";
    let text = |services: &[&str]| {
        let services = services.iter().map(|vip| {
            let name = vip.replace(':', "-");
            format!("[service.{name}]\nlisten = [\"[{vip}]:80\"]\nforward = \"direct\"\npool = \"web\"\n")
        });
        format!(
            "[node]\nvip_interface = \"eth0\"\n[pool.web]\nservers = [\"fd71::14\"]\ncheck = {check}\n{}",
            services.collect::<String>()
        )
    };
    let path = world.write_config(&text(&vips));
    let doctor = doctor_with(&path);
    world.start_daemon(&text(&vips));
    wait_for_no_findings(&world, &doctor);
    let to_first: SocketAddr = (IpAddr::from(vips[0].parse::<Ipv6Addr>().unwrap()), 80).into();
    let client = world.spawn_on("client", move || {
        TcpStream::connect(to_first).expect("connect")
    });
    let connection = client.join().expect("thread panicked");
    // The reload removes the first VIP from the configuration. The address remains while its connection is open.
    world.reload(&text(&vips[1..]));
    let addresses = world.output("director", "ip -6 -o addr show dev eth0");
    let addresses = String::from_utf8_lossy(&addresses.stdout).into_owned();
    for vip in vips {
        let mut lines = addresses.lines();
        let line = lines.find(|line| line.contains(&format!(" {vip}/128 ")));
        assert!(
            line.is_some_and(|line| line.contains(" deprecated")),
            "{addresses}"
        );
    }
    let route = world.output("director", "ip -6 route get fd71::14");
    let route = String::from_utf8_lossy(&route.stdout).into_owned();
    assert!(route.contains(" src fd71::3 "), "{route}");
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        let server = world.server_status(Family::V6.server(0));
        assert_eq!(server["state"], "up", "{server:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
    wait_for_no_findings(&world, &doctor);
    drop(connection);
    // A different program might add the address without deprecating it.
    world.ip(
        "director",
        "addr replace fd71::16/128 dev eth0 preferred_lft forever",
    );
    let finding = "packets from this director to its servers have the VIP fd71::16 as their source";
    assert_fixed_by_command(&world, "director", &doctor, finding);
    wait_for_no_findings(&world, &doctor);
}

/// If an interface is down or has no carrier, the doctor reports only the interface, because findings about the servers
/// behind it would have the same cause.
#[test]
fn failed_link_causes_one_finding() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let (vip, servers) = (Family::V4.vip(), [0, 1].map(|n| Family::V4.server(n)));
    world.prepare_direct_servers(&vip);
    let check = "check = { kind = \"tcp\", interval = \"200ms\", timeout = \"100ms\", rise = 1, fall = 1 }\n";
    let text = config("direct").replace("\n\n[service", &format!("\n{check}\n[service"));
    let path = world.write_config(&text);
    let doctor = doctor_with(&path);
    world.start_daemon(&text);
    wait_for_no_findings(&world, &doctor);
    let findings = || {
        let (_, text) = run_on(&world, "director", &[&doctor[..], &["--json"]].concat());
        let diagnostics: serde_json::Value =
            serde_json::from_str(&text).expect("output is valid JSON");
        let diagnostics = diagnostics.as_array().expect("value is an array").clone();
        let text = |it: &serde_json::Value| format!("{} | {}", it["seen"], it["why"]);
        diagnostics.iter().map(text).collect::<Vec<_>>()
    };
    let all_down = || {
        let is_down = |server: &IpAddr| world.server_status(*server)["state"] == "down";
        servers.iter().all(is_down)
    };
    let affected = format!("can be reached: {}, {};", servers[0], servers[1]);
    // The other end of the director's link is in the namespace `wire`.
    for (host, link, cause) in [
        ("director", "eth0", "eth0 is down"),
        ("wire", "director", "eth0 has no carrier"),
    ] {
        world.ip(host, &format!("link set {link} down"));
        wait_for("the servers to be down", TIMEOUT, all_down);
        let diagnostics = findings();
        assert_eq!(diagnostics.len(), 1, "{diagnostics:#?}");
        assert!(diagnostics[0].contains(cause), "{diagnostics:#?}");
        assert!(diagnostics[0].contains(&affected), "{diagnostics:#?}");
        world.ip(host, &format!("link set {link} up"));
        wait_for_no_findings(&world, &doctor);
    }
}

/// A server has the VIP on its network interface, so the ARP sysctls have no effect.
#[test]
fn server_replying_to_arp_for_vip_is_reported() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let vip = Family::V4.vip();
    world.prepare_direct_servers(&vip);
    run_shell(
        &world,
        "server1",
        &format!("{} real-server down", env!("CARGO_BIN_EXE_weir")),
    );
    world.ip("server1", &format!("addr add {vip}/32 dev eth0"));
    let path = world.write_config(&config("direct"));
    let doctor = doctor_with(&path);
    world.start_daemon(&config("direct"));
    let finding = "server 10.71.0.21 (";
    assert_finds(
        &world,
        "director",
        &doctor,
        &[
            finding,
            "replies to ARP requests for the VIP 10.71.0.10",
            "on server 10.71.0.21: ip -br addr show to 10.71.0.10 prints the interface that has it, and PREFIX",
            "unless the interface is lo: ip addr del 10.71.0.10/PREFIX dev INTERFACE",
            "weir real-server up --forward direct --vip 10.71.0.10",
        ],
    );
    // While the address is present, `up` fails and names the same fix command.
    let (code, text) = run_on(
        &world,
        "server1",
        &[
            "real-server",
            "up",
            "--forward",
            "direct",
            "--vip",
            "10.71.0.10",
        ],
    );
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("ip addr del 10.71.0.10/32 dev eth0"),
        "{text}"
    );
    world.ip("server1", &format!("addr del {vip}/32 dev eth0"));
    let (code, text) = run_on(
        &world,
        "server1",
        &[
            "real-server",
            "up",
            "--forward",
            "direct",
            "--vip",
            "10.71.0.10",
        ],
    );
    assert_eq!(code, 0, "{text}");
    wait_for_no_findings(&world, &doctor);
}

/// The doctor also checks services that were created with ipvsadm and are not in any file, whether or not a daemon is
/// running.
#[test]
fn ipvsadm_services_are_examined() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    world.prepare_direct_servers(&"10.71.0.10");
    let node = "[node]\ninterfaces = [\"eth0\"]\n";
    let path = world.write_config(node);
    let doctor = doctor_with(&path);
    let daemon = world.start_daemon(node);
    world.run_weir(&["ipvsadm", "-A", "-t", "10.71.0.10:80", "-s", "rr"]);
    for server in ["10.71.0.20", "10.71.0.21"] {
        world.run_weir(&["ipvsadm", "-a", "-t", "10.71.0.10:80", "-r", server, "-g"]);
    }
    wait_for_no_findings(&world, &doctor);
    world.ip("server1", "addr del 10.71.0.10/32 dev lo");
    let no_reply =
        "server 10.71.0.21 of ipvsadm:tcp/10.71.0.10:80 does not reply to a SYN for 10.71.0.10:80";
    assert_finds(&world, "director", &doctor, &[no_reply]);
    // Without `-c`, the doctor checks the active configuration.
    assert_finds(&world, "director", &["doctor"], &[no_reply]);
    world.run_weir(&["ipvsadm", "-A", "-u", "10.71.0.12:53", "-s", "rr"]);
    assert_finds(
        &world,
        "director",
        &doctor,
        &["no interface of this machine has the VIP 10.71.0.12"],
    );
    world.kill_keeper(daemon);
    assert_finds(
        &world,
        "director",
        &doctor,
        &["no daemon is running", no_reply],
    );
}

/// The active director has the standby's VIP and replies to ARP requests for it. This is not a fault.
#[test]
fn missing_vip_on_keepalived_standby_is_not_reported() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let vip = Family::V4.vip();
    world.prepare_direct_servers(&format!("{vip}:80"));
    let text = config("direct").replace(&format!(", \"{}\"", Family::V4.server(1)), "");
    let path = world.write_config(&text);
    let doctor = doctor_with(&path);
    world.start_daemon(&text);
    wait_for_no_findings(&world, &doctor);

    run_shell(&world, "director", &format!("ip addr del {vip} dev eth0"));
    world.add_router("other", 77);
    world.ip("other", &format!("addr add {vip}/32 dev eth0"));
    let other_host = format!("replies to ARP requests for the VIP {vip}");
    let missing = format!("no interface of this machine has the VIP {vip}");
    assert_finds(&world, "director", &doctor, &[&other_host, &missing]);
    let keepalived = format!("vrrp_instance a {{\n virtual_ipaddress {{\n  {vip}/32\n }}\n}}\n");
    std::fs::write(world.path("keepalived/keepalived.conf"), keepalived).expect("write the file");
    wait_for_no_findings(&world, &doctor);
    let check = ["check", "-c", path.to_str().expect("path is valid UTF-8")];
    let (code, text) = run_on(&world, "director", &check);
    assert!(
        code == 0 && !text.contains("no interface of this machine"),
        "{text}"
    );

    run_shell(
        &world,
        "director",
        &format!("ip addr add {vip}/32 dev eth0"),
    );
    assert_finds(&world, "director", &doctor, &["two directors are active"]);
}

/// The kernel removes neighbor entries that have not been used for a while. This is not a fault.
#[test]
fn neighbors_are_resolved_before_they_are_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    let (reachable, absent) = (Family::V4.server(0), Family::V4.host(99));
    let text = config("nat").replace(&Family::V4.server(1).to_string(), &absent.to_string());
    let path = world.write_config(&text);
    world.ip("director", "neigh flush all");
    let (_, text) = run_on(&world, "director", &doctor_with(&path));
    assert!(!text.contains(&format!("server {reachable}")), "{text}");
    assert!(text.contains(&format!("server {absent}")), "{text}");
}

/// The doctor examines the services of the last active configuration, and the daemon's status.
#[test]
fn invalid_file_does_not_hide_other_findings() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let server = Family::V4.server(0);
    let text = format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nservers = [\"{server}:80\"]\n\
         check = {{ kind = \"tcp\", interval = \"200ms\", timeout = \"100ms\", rise = 1, fall = 1 }}\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"nat\"\npool = \"web\"\n",
        Family::V4.vip()
    );
    world.start_daemon(&text);
    world.write_config("[node]\ninterfaces = [\"eth0\"]\nnonsense = 1\n");
    let path = world.path("weir.toml");
    world.ip("director", &format!("addr flush to {}", Family::V4.vip()));
    // No server listens on the port.
    let down = format!("server {server}:80 of ");
    for doctor in [&["doctor"][..], &doctor_with(&path)] {
        wait_for("the result of the check", TIMEOUT, || {
            run_on(&world, "director", doctor).1.contains(&down)
        });
        assert_finds(
            &world,
            "director",
            doctor,
            &[
                "nonsense",
                "Weir cannot start or reload with this file",
                "the other findings are those of the last active configuration",
                &format!("fix:  weir check -c {}", path.display()),
                &format!(
                    "no interface of this machine has the VIP {}",
                    Family::V4.vip()
                ),
            ],
        );
    }
}
