//! Tests that reloads, crashes and restarts of the daemon break no connection.
//!
//! Also tests that two directors on the same host do not affect each other.

mod world;

use std::process::Output;
use std::time::Duration;

use world::{Family, MODES, World, privileged, wait_for};

fn config(weight: u32) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n\n\
         [pool.web]\nscheduler = \"wrr\"\nservers = [{{ address = \"{}\", weight = {weight} }}, \"{}\"]\n\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"direct\"\npool = \"web\"\n",
        Family::V4.server(0),
        Family::V4.server(1),
        Family::V4.vip()
    )
}

fn prepared_world() -> World {
    prepared_world_with_mode(None)
}

fn prepared_world_with_mode(mode: Option<&'static str>) -> World {
    let mut world = World::with_mode(2, mode);
    world.start_nginx(1024);
    world.prepare_direct_servers(&Family::V4.vip());
    world
}

fn is_soak() -> bool {
    std::env::var_os("WEIR_SOAK").is_some()
}

fn start_ab(world: &World, requests: u32) -> std::process::Child {
    world
        .command("client", "ab")
        .args([
            "-q",
            "-r",
            "-s",
            "10",
            "-c",
            "8",
            "-n",
            &requests.to_string(),
        ])
        .arg(format!("http://{}/name", Family::V4.vip()))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("start ab")
}

fn assert_no_request_failed(output: &Output, requests: u32) {
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |label: &str| -> Option<u32> {
        text.lines().find_map(|line| {
            line.strip_prefix(label)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
    };
    assert_eq!(
        number("Complete requests:"),
        Some(requests),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(number("Failed requests:"), Some(0), "{text}");
}

#[test]
fn no_request_fails_during_reloads_soak() {
    if !privileged() {
        return;
    }
    for mode in MODES {
        assert_no_request_fails_during_reloads(mode);
    }
}

fn assert_no_request_fails_during_reloads(mode: Option<&'static str>) {
    let mut world = prepared_world_with_mode(mode);
    world.start_daemon(&config(1));
    let (requests, reloads) = if is_soak() {
        (1_000_000, 1_500)
    } else {
        (10_000, 100)
    };
    let ab = start_ab(&world, requests);
    for round in 0..reloads {
        let path = world.write_config(&config(1 + round % 3));
        let output = world
            .weir("director")
            .arg("reload")
            .arg("-c")
            .arg(path)
            .output()
            .expect("run weir");
        assert!(
            output.status.success(),
            "reload {round}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    assert_no_request_failed(&ab.wait_with_output().expect("wait for ab"), requests);
    assert!(world.status()["revision"].as_u64() >= Some(reloads.into()));
}

#[test]
fn no_request_fails_while_daemon_is_killed() {
    if !privileged() {
        return;
    }
    for mode in MODES {
        assert_no_request_fails_during_kills(mode);
    }
}

fn assert_no_request_fails_during_kills(mode: Option<&'static str>) {
    let mut world = prepared_world_with_mode(mode);
    let mut pid = world.start_daemon(&config(2));
    let requests = 20_000;
    let ab = start_ab(&world, requests);
    for _ in 0..3 {
        world.kill_keeper(pid);
        let before = world.received_packets("server0");
        wait_for(
            "traffic to continue without a daemon",
            Duration::from_secs(10),
            || world.received_packets("server0") > before + 1000,
        );
        pid = world.start_daemon(&config(2));
    }
    assert_no_request_failed(&ab.wait_with_output().expect("wait for ab"), requests);
    let totals = |world: &World| world.status()["services"][0]["connections"].as_u64();
    let before = totals(&world);
    assert!(before > Some(0));
    world.kill_keeper(pid);
    world.start_daemon(&config(2));
    assert_eq!(totals(&world), before, "totals must survive the restart");
}

#[test]
fn invalid_file_changes_nothing() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world();
    world.start_daemon(&config(1));
    let before = world.status();
    let path = world.write_config("[pool.web]\nservers = [\"10.0.0.300\"]\n[servce.x]\n");
    let output = world
        .weir("director")
        .arg("reload")
        .arg("-c")
        .arg(path)
        .output()
        .expect("run weir");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("did you mean") && errors.contains("10.0.0.300"),
        "all mistakes must be reported: {errors}"
    );
    assert_eq!(world.status()["revision"], before["revision"]);
    assert_eq!(
        world
            .get(&format!("http://{}/name", Family::V4.vip()))
            .map(|body| body.len()),
        Ok("server0\n".len())
    );
}

#[test]
fn clean_removes_all_objects() {
    if !privileged() {
        return;
    }
    for mode in MODES {
        assert_clean_leaves_nothing(mode);
    }
}

fn assert_clean_leaves_nothing(mode: Option<&'static str>) {
    let mut world = prepared_world_with_mode(mode);
    let pid = world.start_daemon(&config(1));
    let output = world
        .weir("director")
        .arg("clean")
        .output()
        .expect("run weir");
    assert_eq!(
        output.status.code(),
        Some(1),
        "clean must fail while a daemon runs"
    );
    world.kill_keeper(pid);
    let output = world
        .weir("director")
        .arg("clean")
        .output()
        .expect("run weir");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!world.pin_dir("director").exists());
    for name in ["in-force.toml", "configuration", "state.json", "weir.sock"] {
        let path = world.path("run-director").join(name);
        assert!(path.symlink_metadata().is_err(), "{}", path.display());
    }
    let links = world.output("director", "ip -details link show eth0");
    assert!(
        !String::from_utf8_lossy(&links.stdout).contains("xdp"),
        "the XDP program must be detached"
    );
    let tc_programs = world.output("director", "bpftool net show dev eth0");
    let tc_programs = String::from_utf8_lossy(&tc_programs.stdout).into_owned();
    assert!(!tc_programs.contains("weir_"), "{tc_programs}");
}

#[test]
fn no_request_fails_during_upgrades_and_kills_soak() {
    if !privileged() {
        return;
    }
    for mode in MODES {
        assert_no_request_fails_during_upgrades(mode);
    }
}

fn assert_no_request_fails_during_upgrades(mode: Option<&'static str>) {
    let mut world = prepared_world_with_mode(mode);
    let keeper = world.start_daemon(&config(1));
    let (requests, rounds) = if is_soak() {
        (1_000_000, 50)
    } else {
        (20_000, 2)
    };
    let mut ab = start_ab(&world, requests);
    let mut last_count = 0;
    for _ in 0..rounds {
        let connections = world.status()["services"][0]["connections"].as_u64();
        assert!(
            connections >= Some(last_count),
            "{connections:?} connections, {last_count} before"
        );
        last_count = connections.unwrap_or(0);
        world.run_weir(&["upgrade"]);
        // Wait, because the keeper exits if the daemon exits within 250 ms of its start several times.
        std::thread::sleep(Duration::from_millis(500));
        // Kill the daemon, which is the keeper's child.
        world::sh(&format!("pkill -KILL -P {keeper}"));
        wait_for("the next daemon to start", Duration::from_secs(20), || {
            let output = world.weir("director").arg("status").output();
            output.is_ok_and(|output| output.status.success())
        });
        if ab.try_wait().expect("query the process state").is_some() {
            break;
        }
    }
    assert_no_request_failed(&ab.wait_with_output().expect("wait for ab"), requests);
}

#[test]
fn two_directors_do_not_interfere() {
    if !privileged() {
        return;
    }
    let (mut first, mut second) = (prepared_world(), prepared_world());
    first.start_daemon(&config(1));
    let pid = second.start_daemon(&config(1));
    let url = format!("http://{}/name", Family::V4.vip());
    for _ in 0..4 {
        first.get(&url).expect("first request");
        second.get(&url).expect("second request");
    }
    second.kill_keeper(pid);
    let output = second
        .weir("director")
        .arg("clean")
        .output()
        .expect("run weir");
    assert!(output.status.success());
    wait_for(
        "a response from the first director",
        Duration::from_secs(20),
        || first.get(&url).is_ok(),
    );
    assert_eq!(
        first.status()["services"][0]["connections"]
            .as_u64()
            .map(|n| n >= 4),
        Some(true)
    );
}
