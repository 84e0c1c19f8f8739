//! Tests checks through a service's own forwarding method.
//!
//! If a server responds to direct probes but its clients would get no reply, the check detects this and reports the
//! reason.

mod world;

use std::time::Duration;

use world::{Family, World, bracketed, full_prefix, privileged, wait_for};

const TIMEOUT: Duration = Duration::from_secs(15);

fn config(family: Family, vip: &str, forward: &str, via: &str) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n\n\
         [pool.web]\nservers = [\"{server}\"]\n\n\
         [pool.web.check]\nkind = \"http\"\npath = \"/name\"\nexpect = {{ body = \"server0\" }}\nvia = \"{via}\"\n\
         interval = \"200ms\"\ntimeout = \"300ms\"\nrise = 1\nfall = 2\n\n\
         [service.web]\nlisten = [\"{vip}:80\"]\npool = \"web\"\n{forward}\n",
        server = family.server(0),
    )
}

fn wait_for_reason(world: &World, family: Family, state: &str, reason: &str) {
    let mut last = String::new();
    let deadline = std::time::Instant::now() + TIMEOUT;
    loop {
        let status = world.server_status(family.server(0));
        if status["state"] == state
            && status["reason"]
                .as_str()
                .is_some_and(|it| it.contains(reason))
        {
            return;
        }
        last.clear();
        last += &status.to_string();
        assert!(
            std::time::Instant::now() < deadline,
            "expected {state} with {reason}, not {last}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Asserts that the doctor suggests `command` for the server, and does not suggest starting its application.
fn assert_doctor_suggests(world: &World, command: &str) {
    let found = world.output_of("doctor");
    assert!(found.contains("is down: server up, path broken"), "{found}");
    assert!(found.contains(command), "{command}: {found}");
    assert!(!found.contains("start its application"), "{found}");
}

fn sysctl(world: &World, host: &str, assignment: &str) {
    let output = world.output(host, &format!("sysctl -qw {assignment}"));
    assert!(output.status.success(), "{assignment}: {output:?}");
}

/// Removes the VIP from the server, asserts that Weir reports this, and adds the VIP again. Applies only to forwarding
/// methods whose servers reply directly.
fn assert_missing_vip_reported(family: Family, forward: &str, options: &[&str]) {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let vip = family.vip().to_string();
    world.prepare_servers(&[options, &["--vip", &vip]].concat());
    world.start_daemon(&config(family, &bracketed(family.vip()), forward, "both"));
    wait_for_reason(&world, family, "up", "http 200");
    let checks = world.server_status(family.server(0))["checks"].clone();
    let checks = checks.as_array().expect("checks is not an array");
    assert_eq!(
        checks.len(),
        2,
        "there must be a check of the server and one through the path"
    );
    let name = checks[1]["check"].as_str().expect("name is not a string");
    assert!(name.contains("through"), "{name}");

    let address = format!("{vip}/{}", full_prefix(family));
    world.ip("server0", &format!("addr del {address} dev lo"));
    let reason = format!("server up, path broken: no reply from the VIP {vip} (");
    wait_for_reason(&world, family, "down", &reason);
    let nodad = if family == Family::V6 { " nodad" } else { "" };
    world.ip("server0", &format!("addr add {address} dev lo{nodad}"));
    wait_for_reason(&world, family, "up", "http 200");

    // If the server itself is down, Weir does not report the path as the reason.
    world.kill_nginx(0);
    wait_for_reason(&world, family, "down", "connection refused");
    let status = world.server_status(family.server(0));
    let refused = format!("{}:80: connection refused", bracketed(family.server(0)));
    assert_eq!(status["reason"], refused, "{status:#}");
}

#[test]
fn missing_vip_is_reported_with_direct_v4() {
    assert_missing_vip_reported(Family::V4, "forward = \"direct\"", &["--forward", "direct"]);
}

#[test]
fn missing_vip_is_reported_with_direct_v6() {
    assert_missing_vip_reported(Family::V6, "forward = \"direct\"", &["--forward", "direct"]);
}

#[test]
fn missing_vip_is_reported_with_l3dsr_v4() {
    assert_missing_vip_reported(
        Family::V4,
        "forward = \"l3dsr\"\ndscp = 7",
        &["--forward", "l3dsr", "--dscp", "7"],
    );
}

#[test]
fn missing_vip_is_reported_with_l3dsr_v6() {
    assert_missing_vip_reported(Family::V6, "forward = \"l3dsr\"", &["--forward", "l3dsr"]);
}

#[test]
fn missing_vip_is_reported_with_tunnels() {
    for (tunnel, options) in [
        ("\"ipip\"", &["--tunnel", "ipip"][..]),
        (
            "{ type = \"gue\", checksum = \"full\" }",
            &["--tunnel", "gue"],
        ),
        (
            "{ type = \"gre\", checksum = \"full\" }",
            &["--tunnel", "gre"],
        ),
    ] {
        let forward = format!("forward = \"tunnel\"\ntunnel = {tunnel}");
        let options = [&["--forward", "tunnel"], options].concat();
        assert_missing_vip_reported(Family::V4, &forward, &options);
        assert_missing_vip_reported(Family::V6, &forward, &options);
    }
}

#[test]
fn server_without_decapsulation_is_down() {
    if !privileged() {
        return;
    }
    for (tunnel, family) in [
        ("ipip", Family::V4),
        ("gre", Family::V4),
        ("gue", Family::V6),
    ] {
        let mut world = World::new(1);
        world.start_nginx(64);
        let forward = format!("forward = \"tunnel\"\ntunnel = \"{tunnel}\"");
        world.start_daemon(&config(family, &bracketed(family.vip()), &forward, "both"));
        wait_for_reason(&world, family, "down", "no decapsulation");
        let vip = family.vip().to_string();
        assert_doctor_suggests(
            &world,
            &format!("weir real-server up --forward tunnel --tunnel {tunnel}"),
        );
        world.prepare_servers(&["--forward", "tunnel", "--tunnel", tunnel, "--vip", &vip]);
        wait_for_reason(&world, family, "up", "http 200");
    }
}

#[test]
fn server_that_replies_to_arp_for_vip_is_reported() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&vip);
    world.start_daemon(&config(Family::V4, &vip, "forward = \"direct\"", "both"));
    wait_for_reason(&world, Family::V4, "up", "http 200");
    sysctl(&world, "server0", "net.ipv4.conf.all.arp_ignore=0");
    sysctl(&world, "server0", "net.ipv4.conf.eth0.arp_ignore=0");
    let reason =
        format!("server up, path broken: the server replies to ARP requests for the VIP {vip}");
    wait_for_reason(&world, Family::V4, "down", &reason);
    assert_doctor_suggests(&world, "weir real-server up --forward direct");
    sysctl(&world, "server0", "net.ipv4.conf.all.arp_ignore=1");
    wait_for_reason(&world, Family::V4, "up", "http 200");
}

#[test]
fn nat_server_without_return_path_is_down() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let vip = "192.0.2.10";
    world.ip("director", &format!("addr add {vip}/32 dev eth0"));
    world.start_daemon(&config(Family::V4, vip, "forward = \"nat\"", "both"));
    let reason = "server up, path broken: no response within";
    wait_for_reason(&world, Family::V4, "down", reason);
    let gateway = format!("ip route replace default via {}", Family::V4.director());
    assert_doctor_suggests(&world, &gateway);
    let route = format!("route add {vip}/32 via {}", Family::V4.director());
    world.ip("server0", &route);
    wait_for_reason(&world, Family::V4, "up", "http 200");
}

/// Without a direct probe, the reason does not state that the server is up.
#[test]
fn path_check_alone_reports_only_the_path() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let vip = Family::V4.vip().to_string();
    world.start_daemon(&config(Family::V4, &vip, "forward = \"direct\"", "path"));
    wait_for_reason(&world, Family::V4, "down", "no reply from the VIP");
    let status = world.server_status(Family::V4.server(0));
    assert!(
        !status["reason"].to_string().contains("server up"),
        "{status:#}"
    );
    world.prepare_direct_servers(&vip);
    wait_for_reason(&world, Family::V4, "up", "http 200");
    wait_for("probes", TIMEOUT, || {
        world.status()["checks"]["probes"].as_u64() > Some(5)
    });
}

/// Two services with separate VIPs use a server through the same pool.
#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn missing_vip_affects_only_its_service() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let (first, second) = (Family::V4.vip().to_string(), "10.71.0.11");
    world.prepare_direct_servers(&first);
    let address = format!("{second}/32");
    world.ip("server0", &format!("addr add {address} dev lo"));
    let forward = "forward = \"direct\"";
    let config = config(Family::V4, &first, forward, "both")
        + &format!("\n[service.other]\nlisten = [\"{second}:80\"]\npool = \"web\"\n{forward}\n");
    let pid = world.start_daemon(&config);
    let wait_for_states = |world: &World, states: [&str; 2]| {
        let mut last = serde_json::Value::Null;
        wait_for(&format!("{states:?}"), TIMEOUT, || {
            last = world.status();
            [0, 1].map(|index| last["services"][index]["servers"][0]["state"].clone()) == states
        });
        last
    };
    wait_for_states(&world, ["up", "up"]);

    world.ip("server0", &format!("addr del {address} dev lo"));
    let reason = format!("server up, path broken: no reply from the VIP {second} (");
    let assert_only_second_is_down = |status: &serde_json::Value| {
        let server = |index: usize| status["services"][index]["servers"][0].clone();
        let (good, bad) = (server(0), server(1));
        assert_eq!(
            (&good["effective_weight"], &bad["effective_weight"]),
            (&1.into(), &0.into())
        );
        assert!(
            !good["reason"].to_string().contains("path broken"),
            "{status:#}"
        );
        assert!(bad["reason"].to_string().contains(&reason), "{status:#}");
        assert_eq!(
            good["checks"].as_array().map(Vec::len),
            Some(2),
            "{status:#}"
        );
    };
    assert_only_second_is_down(&wait_for_states(&world, ["up", "down"]));
    let log = world.log();
    let line = log
        .lines()
        .find(|line| line.contains("server went down for one service"));
    let line = line.unwrap_or_else(|| panic!("no line in {log}"));
    assert!(line.contains("other") && line.contains(second), "{line}");
    assert!(!log.contains("server went down pool="), "{log}");
    let client = Family::V4.host(200);
    let explain = |vip: &str| {
        world.run_weir(&[
            "explain",
            "--packet",
            &format!("tcp {client}:4000 {vip}:80"),
        ])
    };
    assert!(explain(&first).contains("chooses"), "{}", explain(&first));
    let bad = explain(second);
    assert!(
        bad.contains("service other") && bad.contains(&reason),
        "{bad}"
    );
    assert!(world.get(&format!("http://{first}/name")).is_ok());
    let metrics = world.metrics();
    let states = |service: &str| -> Vec<&str> {
        let lines = metrics
            .lines()
            .filter(|line| line.starts_with("weir_server_state{"));
        let label = format!("service=\"{service}\"");
        lines.filter(|line| line.contains(&label)).collect()
    };
    assert!(states("web")[0].contains("state=\"up\""), "{metrics}");
    assert!(states("other")[0].contains("state=\"down\""), "{metrics}");

    // The state survives a reload and a restart of the daemon.
    world.reload(&config.replace("200ms", "250ms"));
    assert_only_second_is_down(&wait_for_states(&world, ["up", "down"]));
    let before = world.status()["services"][1]["servers"][0]["since"].clone();
    world.kill_keeper(pid);
    let slow = config.replace("200ms", "1h");
    let pid = world.start_daemon(&slow);
    let status = wait_for_states(&world, ["up", "down"]);
    assert_only_second_is_down(&status);
    assert_eq!(status["services"][1]["servers"][0]["since"], before);
    world.kill_keeper(pid);
    world.start_daemon(&config);

    world.ip("server0", &format!("addr add {address} dev lo"));
    wait_for_states(&world, ["up", "up"]);
    for vip in [second, &first] {
        world.ip("server0", &format!("addr del {vip}/32 dev lo"));
    }
    wait_for_states(&world, ["down", "down"]);
    world.ip("server0", &format!("addr add {first}/32 dev lo"));
    wait_for_states(&world, ["up", "down"]);
}

/// If a path fails in one of two services, `notify` runs with the server and the service, and again when the path
/// recovers.
#[test]
fn path_change_runs_the_notify_program() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let (first, second) = (Family::V4.vip().to_string(), "10.71.0.11");
    for vip in [&*first, second] {
        world.prepare_direct_servers(&vip);
    }
    world.ip("director", &format!("addr add {second}/32 dev eth0"));
    let list = world.path("changes");
    let command = "echo $WEIR_POOL $WEIR_SERVER $WEIR_SERVICE $WEIR_FROM $WEIR_TO";
    let notify = format!(
        "notify = [\"/bin/sh\", \"-c\", \"{command} >> {}\"]\n",
        list.display()
    );
    let text = config(Family::V4, &first, "forward = \"direct\"", "both")
        .replace("[pool.web]\n", &format!("[pool.web]\n{notify}"));
    world.start_daemon(&format!(
        "{text}[service.other]\nlisten = [\"{second}:80\"]\nforward = \"direct\"\npool = \"web\"\n"
    ));
    let wait_for_notification = |expected: &str| {
        wait_for(expected, TIMEOUT, || {
            let lines = std::fs::read_to_string(&list).unwrap_or_default();
            lines.lines().any(|line| line == expected)
        });
    };
    let server = Family::V4.server(0);
    wait_for("both paths", TIMEOUT, || {
        let status = world.status();
        [0, 1].map(|index| status["services"][index]["servers"][0]["state"].clone()) == ["up", "up"]
    });
    world.ip("server0", &format!("addr del {second}/32 dev lo"));
    wait_for_notification(&format!("web {server} other up down"));
    world.ip("server0", &format!("addr add {second}/32 dev lo"));
    wait_for_notification(&format!("web {server} other down up"));
    let lines = std::fs::read_to_string(&list).expect("read the list");
    assert!(
        !lines.contains(&format!("{server} web")),
        "the path of service `web` must not change: {lines}"
    );
}
