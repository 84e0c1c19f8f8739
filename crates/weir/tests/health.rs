//! Tests health checks: a server that dies is not used until it recovers. Also tests quorum, maint, notifications and
//! `weir explain`.
//!
//! A reload, a restart or a different order of servers does not make a dead server usable.

mod world;

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::time::Duration;

use world::{Family, World, privileged, wait_for};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns a configuration with the servers in this order and with this check.
fn config(order: &[usize], pool: &str, check: &str) -> String {
    let servers: Vec<String> = order
        .iter()
        .map(|n| format!("\"{}\"", Family::V4.server(*n)))
        .collect();
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n\n\
         [pool.web]\nscheduler = \"rr\"\nservers = [{}]\n{pool}\n\n\
         [pool.web.check]\ninterval = \"200ms\"\ntimeout = \"200ms\"\nrise = 2\nfall = 2\n{check}\n\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"direct\"\npool = \"web\"\n",
        servers.join(", "),
        Family::V4.vip()
    )
}

const HTTP: &str =
    "kind = \"http\"\npath = \"/name\"\nexpect = { status = 200, body = \"server\" }";

fn prepared_world(servers: usize) -> World {
    let mut world = World::new(servers);
    world.start_nginx(32 << 20);
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&vip);
    world
}

fn state(world: &World, n: usize) -> String {
    let status = world.server_status(Family::V4.server(n));
    status["state"]
        .as_str()
        .expect("state is a string")
        .to_owned()
}

fn wait_for_states(world: &World, states: &[&str]) {
    wait_for(&format!("states {states:?}"), TIMEOUT, || {
        (0..states.len()).all(|n| state(world, n) == states[n])
    });
}

fn start_ab(world: &World, requests: u32) -> Child {
    let url = format!("http://{}/name", Family::V4.vip());
    world
        .command("client", "ab")
        .args(["-q", "-r", "-s", "10", "-c", "4", "-n"])
        .args([&requests.to_string(), &url])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("start ab")
}

/// Waits for `ab`. Returns the numbers of completed and failed requests.
fn request_counts(ab: Child) -> (u32, u32) {
    let output = ab.wait_with_output().expect("wait for ab");
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |label: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(label));
        let word = line.and_then(|line| line.split_whitespace().next());
        word.and_then(|word| word.parse().ok())
            .unwrap_or_else(|| panic!("no {label} in {text}"))
    };
    (number("Complete requests:"), number("Failed requests:"))
}

/// Returns the number of lines in the daemon's log that contain a server's address and `words`.
fn count_log_lines(world: &World, n: usize, words: &str) -> usize {
    let server = Family::V4.server(n).to_string();
    let lines = world.log();
    let lines = lines.lines();
    lines
        .filter(|line| line.contains(&server) && line.contains(words))
        .count()
}

#[test]
fn server_that_dies_under_load_is_removed_and_is_used_after_recovery() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world(3);
    let notified = world.path("notified");
    let notify = format!(
        "notify = [\"/bin/sh\", \"-c\", \"echo $WEIR_POOL/$WEIR_SERVER $WEIR_FROM $WEIR_TO $WEIR_REASON >> {}\"]",
        notified.display()
    );
    world.start_daemon(&config(&[0, 1, 2], &notify, HTTP));
    wait_for_states(&world, &["up", "up", "up"]);
    let reason = world.server_status(Family::V4.server(1))["reason"].clone();
    let reason = reason.as_str().expect("reason is a string");
    assert!(reason.starts_with("http 200 in "), "{reason}");

    let ab = start_ab(&world, 20_000);
    let before = world.received_packets("server1");
    wait_for("load on the server", TIMEOUT, || {
        world.received_packets("server1") > before + 200
    });
    world.kill_nginx(1);
    wait_for_states(&world, &["up", "down", "up"]);
    let status = world.server_status(Family::V4.server(1));
    assert_eq!(status["effective_weight"], 0);
    assert_eq!(status["weight"], 1);
    let refused = format!("{}:80: connection refused", Family::V4.server(1));
    assert_eq!(status["reason"], refused);
    let results = status["checks"][0]["results"]
        .as_str()
        .expect("results is a string");
    assert!(
        results.starts_with('+') && results.ends_with("--"),
        "{results}"
    );
    let line = format!("web/{} up down {refused}", Family::V4.server(1));
    wait_for("the notification", TIMEOUT, || {
        let notified = std::fs::read_to_string(&notified).unwrap_or_default();
        notified.lines().filter(|it| *it == line).count() == 1
    });
    let (complete, failed) = request_counts(ab);
    assert_eq!(complete, 20_000);
    assert!(failed < 20_000 / 2, "{failed} failed");
    // A client may reuse the port of a connection that was open when the server died. The director never saw the end of
    // that connection, so the request fails.
    let (complete, failed) = request_counts(start_ab(&world, 2000));
    assert_eq!(complete, 2000);
    let concurrency = 4;
    assert!(
        failed <= 3 * concurrency,
        "ab counts each failure three times: {failed}"
    );
    let before_return = world.server_status(Family::V4.server(1))["connections"].clone();

    world.start_nginx_on("server1", 1, "");
    wait_for_states(&world, &["up", "up", "up"]);
    assert_eq!(request_counts(start_ab(&world, 2000)), (2000, 0));
    let after_return = world.server_status(Family::V4.server(1))["connections"].clone();
    assert!(
        after_return.as_u64() > before_return.as_u64(),
        "the server must get connections again"
    );
    assert_eq!(
        count_log_lines(&world, 1, "went down"),
        1,
        "{}",
        world.log()
    );
    assert_eq!(
        count_log_lines(&world, 1, "to=\"up\""),
        2,
        "once at startup, once after recovery: {}",
        world.log()
    );
}

#[test]
fn dead_server_stays_down_after_restart_and_reload() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world(3);
    // With `start = "up"`, a server whose state was lost would be usable until two probes have failed.
    let check = format!("{HTTP}\nstart = \"up\"");
    let mut pid = world.start_daemon(&config(&[0, 1, 2], "", &check));
    world.kill_nginx(1);
    wait_for_states(&world, &["up", "down", "up"]);
    let since = world.server_status(Family::V4.server(1))["since"].clone();
    for order in [[2, 1, 0], [1, 0, 2], [0, 2, 1]] {
        world.reload(&config(&order, "", &check));
        assert_eq!(request_counts(start_ab(&world, 300)), (300, 0), "{order:?}");
    }
    // A changed check of the same server continues from the previous check's state.
    let tcp = "kind = \"tcp\"\nstart = \"up\"";
    world.reload(&config(&[2, 1, 0], "", tcp));
    assert_eq!(
        request_counts(start_ab(&world, 300)),
        (300, 0),
        "changed check"
    );
    world.kill_keeper(pid);
    assert_eq!(state(&world, 1), "down", "state without a daemon");
    pid = world.start_daemon(&config(&[0, 1, 2], "", tcp));
    assert_eq!(
        request_counts(start_ab(&world, 300)),
        (300, 0),
        "after a restart"
    );
    let status = world.server_status(Family::V4.server(1));
    assert_eq!(
        (&status["state"], &status["since"]),
        (&"down".into(), &since)
    );
    // The restarted server is up again.
    world.start_nginx_on("server1", 1, "");
    wait_for_states(&world, &["up", "up", "up"]);
    world.kill_keeper(pid);
}

/// Within the hysteresis band, the pool's state depends on its previous state.
#[test]
fn pool_keeps_its_quorum_state_after_a_crash() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world(1);
    let text = config(&[0], "quorum = 10\nquorum_hysteresis = 5", HTTP);
    let mut pid = world.start_daemon(&text);
    let server = format!("web/{}", Family::V4.server(0));
    let pool_state = |world: &World| world.status()["services"][0]["pool_state"].clone();
    for (weight, expected) in [
        ("10", "below quorum".into()),
        ("15", serde_json::Value::Null),
    ] {
        wait_for_states(&world, &["up"]);
        world.run_weir(&["server", &server, "weight", weight]);
        world.run_weir(&["server", &server, "weight", "10"]);
        for _ in 0..2 {
            assert_eq!(pool_state(&world), expected, "{weight}");
            world.kill_keeper(pid);
            pid = world.start_daemon(&text);
            wait_for_states(&world, &["up"]);
        }
    }
    world.kill_keeper(pid);
}

/// No check result or other event triggers the evaluation of this pool's state.
#[test]
fn unchecked_pool_is_below_its_quorum_from_the_start() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let text = format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nservers = [\"{}\"]\nquorum = 2\n[service.web]\n\
         listen = [\"{}:80\"]\nforward = \"direct\"\npool = \"web\"\n",
        Family::V4.server(0),
        Family::V4.vip()
    );
    let pid = world.start_daemon(&text);
    assert_eq!(world.status()["services"][0]["pool_state"], "below quorum");
    wait_for("the log line about the pool state", TIMEOUT, || {
        world.log().contains("pool state changed")
    });
    world.kill_keeper(pid);
    world.start_daemon(&text);
    assert_eq!(world.status()["services"][0]["pool_state"], "below quorum");
}

#[test]
fn maint_stops_probes_and_ready_resumes_them() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world(1);
    world.start_daemon(&config(&[0], "", HTTP));
    wait_for_states(&world, &["up"]);
    let since = |world: &World| {
        let since = world.server_status(Family::V4.server(0))["since"].clone();
        since.as_str().expect("since is a string").to_owned()
    };
    let up_since = since(&world);
    let server = format!("web/{}", Family::V4.server(0));
    world.run_weir(&["server", &server, "maint"]);
    let status = world.server_status(Family::V4.server(0));
    assert_eq!(status["state"], "maint");
    let packet = format!("tcp 10.71.0.2:1000 {}:80", Family::V4.vip());
    let text = world.run_weir(&["explain", "--packet", &packet]);
    let excluded = "accepts no new flows: maint, set with `weir server`";
    assert!(text.contains(excluded), "{text}");
    assert_eq!(
        status["checks"],
        serde_json::Value::Null,
        "no check must run"
    );
    assert_eq!(world.status()["checks"], serde_json::Value::Null);
    wait_for("a later `since`", TIMEOUT, || {
        world.run_weir(&["server", &server, "maint"]);
        world.run_weir(&["server", &server, "ready"]);
        // Times have a resolution of one second.
        since(&world) > up_since
    });
    wait_for_states(&world, &["up"]);
    wait_for("a probe result", TIMEOUT, || {
        let status = world.server_status(Family::V4.server(0));
        status["checks"][0]["results"]
            .as_str()
            .is_some_and(|results| !results.is_empty())
    });
}

#[test]
fn failed_check_with_on_failure_remove_applies_on_remove() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world(1);
    world.start_nginx_on("server0", 7, ":8081");
    let check = "kind = \"http\"\nport = 8081\npath = \"/name\"\non_failure = \"remove\"";
    world.start_daemon(&config(&[0], "on_remove = \"reset\"", check));
    wait_for_states(&world, &["up"]);
    let url = format!("http://{}/big", Family::V4.vip());
    let download = world
        .command("client", "curl")
        .args([
            "-sS",
            "-o",
            "/dev/null",
            "--limit-rate",
            "2M",
            "-m",
            "60",
            &url,
        ])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("start curl");
    wait_for("the download to start", TIMEOUT, || {
        world.server_status(Family::V4.server(0))["active_connections"] == 1
    });
    world.kill_nginx(7);
    wait_for_states(&world, &["down"]);
    let mut curl_output = String::new();
    let output = download.wait_with_output().expect("wait for curl");
    let _ = write!(curl_output, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        !output.status.success() && curl_output.contains("reset by peer"),
        "{curl_output}"
    );
    world.start_nginx_on("server0", 7, ":8081");
    wait_for_states(&world, &["up"]);
    assert_eq!(request_counts(start_ab(&world, 100)), (100, 0));
}

#[test]
fn notify_programs_run_for_pools_and_services() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world(1);
    let notified = world.path("notified");
    let program = world.path("notify");
    let script = format!(
        "#!/bin/sh\necho pool=$WEIR_POOL server=$WEIR_SERVER service=$WEIR_SERVICE $WEIR_FROM $WEIR_TO >> {}\n",
        notified.display()
    );
    std::fs::write(&program, script).expect("write the program");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("set the file mode");
    let notify = format!("notify = \"{}\"", program.display());
    world.start_daemon(&config(&[0], &notify, HTTP));
    wait_for_states(&world, &["up"]);
    let count = |line: &str| {
        let notified = std::fs::read_to_string(&notified).unwrap_or_default();
        notified.lines().filter(|it| *it == line).count()
    };
    let wait_until_notified_once = |expected: &[&str]| {
        wait_for(&format!("notifications {expected:?}"), TIMEOUT, || {
            expected.iter().all(|line| count(line) == 1)
        });
    };
    world.kill_nginx(0);
    wait_for_states(&world, &["down"]);
    wait_until_notified_once(&[
        "pool=web server= service= up down",
        "pool=web server= service=web up down",
    ]);
    let log_line =
        "pool state changed pool=\"web\" from=\"up\" to=\"down\" cause=\"no server is usable\"";
    assert_eq!(world.log().matches(log_line).count(), 1, "{}", world.log());
    world.start_nginx_on("server0", 0, "");
    wait_for_states(&world, &["up"]);
    wait_until_notified_once(&[
        "pool=web server= service= down up",
        "pool=web server= service=web down up",
    ]);
    // An override can also make the last server of a pool unusable.
    let server = format!("web/{}", Family::V4.server(0));
    world.run_weir(&["server", &server, "drain"]);
    wait_for("the second notification", TIMEOUT, || {
        count("pool=web server= service=web up down") == 2
    });
}

/// While a server recovers, `weir explain` shows the last result of its check, not the reason why it went down.
#[test]
fn explain_shows_last_result_of_recovering_server() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world(1);
    world.kill_nginx(0);
    let text = config(&[0], "", "kind = \"tcp\"").replace("rise = 2", "rise = 100");
    world.start_daemon(&text);
    let explain = |world: &World| {
        let packet = format!("tcp 10.71.0.2:1000 {}:80", Family::V4.vip());
        let output = world
            .weir("director")
            .args(["explain", "--packet", &packet])
            .output();
        String::from_utf8_lossy(&output.expect("run weir").stdout).into_owned()
    };
    wait_for("the server to be down", TIMEOUT, || {
        state(&world, 0) == "down"
    });
    let refused = "accepts no new flows: 10.71.0.20:80: connection refused";
    wait_for("the explanation", TIMEOUT, || {
        explain(&world).contains(refused)
    });
    world.start_nginx_on("server0", 0, "");
    wait_for("a successful probe", TIMEOUT, || {
        let reason = world.server_status(Family::V4.server(0))["reason"].clone();
        reason.as_str().is_some_and(|it| it.contains("of 100"))
    });
    let text = explain(&world);
    assert_eq!(state(&world, 0), "down");
    assert!(!text.contains("refused"), "{text}");
    assert!(
        text.contains("accepts no new flows: tcp connected in"),
        "{text}"
    );
}
