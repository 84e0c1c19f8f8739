//! Tests the status with and without a daemon, metrics, the API, explanations, and the VIPs that Weir adds and removes.

mod world;

use world::{Family, World, privileged};

const NODE: &str = "[node]\ninterfaces = [\"eth0\"]\n";

fn config(node: &str) -> String {
    format!(
        "{node}[pool.web]\nscheduler = \"rr\"\nservers = [\"10.71.0.20\", \"10.71.0.21\"]\n\
         [service.web]\nlisten = [\"{}:80\", \"10.71.0.11:80\"]\nforward = \"direct\"\npool = \"web\"\n",
        Family::V4.vip()
    )
}

fn addresses(world: &World) -> String {
    let output = world.output("director", "ip -o addr show dev eth0");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn added_vips_are_removed_and_existing_ones_are_kept() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    let pid = world.start_daemon(&config(&format!("{NODE}vip_interface = \"eth0\"\n")));
    assert!(
        addresses(&world).contains("10.71.0.11/32"),
        "{}",
        addresses(&world)
    );
    let line = "ping -n -c 1 -W 2 10.71.0.11";
    assert!(
        world.output("client", line).status.success(),
        "the added VIP must be reachable"
    );
    world.kill_keeper(pid);
    world.run_weir(&["clean"]);
    let remaining = addresses(&world);
    assert!(
        !remaining.contains("10.71.0.11"),
        "the added VIP must be removed: {remaining}"
    );
    assert!(
        remaining.contains("10.71.0.10/32"),
        "the existing VIP must be kept: {remaining}"
    );
}

#[test]
fn status_without_daemon_reads_pinned_data_plane() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(1024);
    world.prepare_direct_servers(&Family::V4.vip());
    let pid = world.start_daemon(&config(NODE));
    let url = format!("http://{}/name", Family::V4.vip());
    for _ in 0..4 {
        world.get(&url).expect("receive a response");
    }
    world.kill_keeper(pid);
    for _ in 0..3 {
        world
            .get(&url)
            .expect("receive a response without a daemon");
    }
    let output = world
        .weir("director")
        .args(["status", "--json"])
        .output()
        .expect("run weir");
    assert_eq!(
        output.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let status: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("parse the output");
    assert_eq!(status["services"][0]["name"], "web", "{status:#}");
    assert_eq!(status["services"][0]["connections"], 7, "{status:#}");
}

#[test]
fn api_is_served_on_socket_and_tcp() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(1024);
    world.prepare_direct_servers(&Family::V4.vip());
    world.start_daemon(&config(&format!("{NODE}admin = \"127.0.0.1:9900\"\n")));
    let url = format!("http://{}/name", Family::V4.vip());
    for _ in 0..2 {
        world.get(&url).expect("receive a response");
    }
    let expected = "weir_service_connections_total{service=\"web\",pool=\"web\"} 2";
    assert!(world.metrics().contains(expected), "{}", world.metrics());
    let output = world.output("director", "curl -sS -f http://127.0.0.1:9900/metrics");
    assert!(String::from_utf8_lossy(&output.stdout).contains(expected));
    let output = world.output("director", "curl -sS -f http://127.0.0.1:9900/v1/status");
    for text in [world.api("/v1/status").into_bytes(), output.stdout] {
        let status: serde_json::Value = serde_json::from_slice(&text).expect("parse the status");
        assert_eq!(status["services"][0]["connections"], 2, "{status:#}");
    }
    let refused = world.output(
        "director",
        "curl -sS -o /dev/null -w %{http_code} -X POST http://127.0.0.1:9900/v1/reload",
    );
    let code = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(
        code.starts_with('4'),
        "a change over TCP must require a token: {code}"
    );
}

#[test]
fn explanation_names_the_server_of_the_next_connection() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(1024);
    world.prepare_direct_servers(&Family::V4.vip());
    world.start_daemon(&config(NODE));
    for _ in 0..4 {
        let explanation =
            world.run_weir(&["explain", "--packet", "tcp 10.71.0.2:40000 10.71.0.10:80"]);
        let expected = [("10.71.0.20", "server0\n"), ("10.71.0.21", "server1\n")];
        let text = world.run_weir(&[
            "explain",
            "--json",
            "--packet",
            "tcp 10.71.0.2:40000 10.71.0.10:80",
        ]);
        let json: serde_json::Value = serde_json::from_str(&text).expect("parse the explanation");
        let body = world
            .get("http://10.71.0.10/name")
            .expect("receive a response");
        let (selected, _) = expected
            .into_iter()
            .find(|(_, name)| name.as_bytes() == body)
            .expect("unknown server");
        assert_eq!(json["server"], selected, "{explanation}{json:#}");
        assert!(
            explanation.contains("web") && explanation.contains(selected),
            "{explanation}"
        );
    }
    let explanation = world.run_weir(&["explain", "--packet", "tcp 10.71.0.2:40000 10.71.0.10:81"]);
    assert!(explanation.contains("no service"), "{explanation}");
}
