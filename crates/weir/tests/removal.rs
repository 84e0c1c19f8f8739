//! Servers that leave while connections go on: what `on_remove` says, quiescing, and what operators say at run time.

mod world;

use std::process::{Child, Stdio};
use std::time::Duration;

use world::{Family, World, privileged, wait_for};

const MIB: usize = 1 << 20;

fn config(on_remove: &str, servers: &str) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nscheduler = \"rr\"\non_remove = \"{on_remove}\"\nservers = [{servers}]\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"direct\"\npool = \"web\"\n",
        Family::V4.vip()
    )
}

fn prepared(big_bytes: usize) -> World {
    let mut world = World::new(2);
    world.start_nginx(big_bytes);
    world.prepare_servers(&[
        "--forward",
        "direct",
        "--vip",
        &Family::V4.vip().to_string(),
    ]);
    world
}

fn name(world: &World) -> String {
    let url = format!("http://{}/name", Family::V4.vip());
    let body = world.get(&url).expect("an answer");
    String::from_utf8_lossy(&body).trim().to_owned()
}

/// A download that lasts some seconds, begun.
fn slow_download(world: &World) -> Child {
    let child = world
        .command("client", "curl")
        .args(["-sS", "--max-time", "30", "--limit-rate", "3M", "-o"])
        .arg(world.path("came"))
        .arg(format!("http://{}/big", Family::V4.vip()))
        .stderr(Stdio::piped())
        .spawn()
        .expect("curl starts");
    wait_for("the first bytes", Duration::from_secs(10), || {
        std::fs::metadata(world.path("came")).is_ok_and(|facts| facts.len() > 0)
    });
    child
}

/// A download by the first server, which the configuration then replaces by the second.
fn replaced_under_a_download(on_remove: &str) -> (World, std::process::Output, bool) {
    let mut world = prepared(12 * MIB);
    world.start_director(&config(on_remove, "\"10.71.0.20\""));
    let curl = slow_download(&world);
    let after = config(on_remove, "\"10.71.0.21\"");
    let path = world.write_config(&after);
    let plan = world.says(&["plan", "-c", path.to_str().expect("a path")]);
    assert!(
        plan.contains("10.71.0.20") && plan.contains("1 live flow"),
        "the plan names what it touches: {plan}"
    );
    world.reload(&after);
    assert_eq!(name(&world), "server1");
    let output = curl.wait_with_output().expect("curl ends");
    let came = std::fs::read(world.path("came")).unwrap_or_default();
    let whole = came == std::fs::read(world.path("big")).expect("the original");
    (world, output, whole)
}

#[test]
fn keep_lets_a_download_end() {
    if !privileged() {
        return;
    }
    let (_world, output, whole) = replaced_under_a_download("keep");
    assert!(
        output.status.success() && whole,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn reset_ends_a_download() {
    if !privileged() {
        return;
    }
    let (world, output, whole) = replaced_under_a_download("reset");
    assert!(!output.status.success() && !whole, "{:#}", world.status());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.to_lowercase().contains("reset"),
        "the client is told: {said} {:#}",
        world.status()
    );
}

#[test]
fn reschedule_moves_packets_to_another_server() {
    if !privileged() {
        return;
    }
    let (world, output, whole) = replaced_under_a_download("reschedule");
    // The other server does not know the connection and says so itself.
    assert!(!output.status.success() && !whole, "{:#}", world.status());
    assert!(world.server_status(Family::V4.server(1))["connections"].as_u64() >= Some(2));
}

#[test]
fn weight_zero_quiesces() {
    if !privileged() {
        return;
    }
    let mut world = prepared(12 * MIB);
    world.start_director(&config("keep", "\"10.71.0.20\""));
    let curl = slow_download(&world);
    world.reload(&config(
        "keep",
        "{ address = \"10.71.0.20\", weight = 0 }, \"10.71.0.21\"",
    ));
    for _ in 0..4 {
        assert_eq!(name(&world), "server1");
    }
    assert!(curl.wait_with_output().expect("curl ends").status.success());
    let expected = std::fs::read(world.path("big")).expect("the original");
    assert!(std::fs::read(world.path("came")).expect("the copy") == expected);
}

#[test]
fn an_operators_word_survives_restarts() {
    if !privileged() {
        return;
    }
    let mut world = prepared(1024);
    let text = config("keep", "\"10.71.0.20\", \"10.71.0.21\"");
    let mut pid = world.start_director(&text);
    let first = || Family::V4.server(0);
    for (word, state, weight) in [
        (&["drain"][..], "drain", 0),
        (&["maint"], "maint", 0),
        (&["weight", "0"], "unchecked", 0),
        (&["weight", "5"], "unchecked", 5),
        (&["ready"], "unchecked", 1),
    ] {
        let arguments = [&["server", "web/10.71.0.20"], word].concat();
        world.says(&arguments);
        for restart in [false, true] {
            if restart {
                world.kill_director(pid);
                pid = world.start_director(&text);
            }
            let server = world.server_status(first());
            assert_eq!(
                server["state"], state,
                "{word:?} restart {restart}: {server:#}"
            );
            assert_eq!(
                server["effective_weight"], weight,
                "{word:?} restart {restart}: {server:#}"
            );
            let names: Vec<String> = (0..4).map(|_| name(&world)).collect();
            let reached = names.iter().any(|name| name == "server0");
            assert_eq!(reached, weight > 0, "{word:?} restart {restart}: {names:?}");
        }
    }
}
