//! Tests that Weir detects, without a check and only from client packets, that a server accepts no connections.

mod world;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use world::{Family, World, bracketed, privileged, wait_for};

const TIMEOUT: Duration = Duration::from_secs(30);

fn config(family: Family, forward: &str, servers: usize, pool: &str) -> String {
    let servers: Vec<String> = (0..servers)
        .map(|n| format!("\"{}\"", family.server(n)))
        .collect();
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n\n\
         [pool.web]\nscheduler = \"rr\"\nservers = [{}]\n{pool}\n\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"{forward}\"\npool = \"web\"\n",
        servers.join(", "),
        bracketed(family.vip())
    )
}

/// Starts clients that open sequential and concurrent connections until the network is removed.
fn start_clients(world: &World, family: Family) -> Child {
    let url = format!("http://{}/name", bracketed(family.vip()));
    let request = format!("curl -s -o /dev/null --connect-timeout 3 -m 4 {url}");
    let line =
        format!("for n in 1 2 3 4 5 6; do (while :; do {request}; sleep 0.1; done) & done; wait");
    world
        .command("client", "sh")
        .args(["-c", &line])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start sh")
}

fn ejection_reason(world: &World, family: Family, n: usize) -> Option<String> {
    let server = world.server_status(family.server(n));
    server["ejected"]["reason"].as_str().map(str::to_owned)
}

fn assert_ejected_and_returns(family: Family, forward: &str, fault: &str, repair: &str) {
    if !privileged() {
        return;
    }
    let mut world = World::new(3);
    world.start_nginx(64);
    if forward == "direct" {
        let vip = family.vip().to_string();
        world.prepare_direct_servers(&vip);
    } else {
        world.route_replies_through_director();
    }
    world.start_daemon(&config(family, forward, 3, ""));
    let clients = start_clients(&world, family);
    world.kill_on_drop(clients);
    wait_for("traffic on every server", TIMEOUT, || {
        (0..3).all(|n| {
            let server = world.server_status(family.server(n));
            server["connections"].as_u64() > Some(5)
        })
    });
    let sh = |line: &str| {
        let output = world.command("server1", "sh").args(["-ec", line]).output();
        let output = output.expect("run sh");
        assert!(output.status.success(), "{line}: {output:?}");
    };
    sh(fault);
    let started = Instant::now();
    wait_for("the ejection", TIMEOUT, || {
        ejection_reason(&world, family, 1).is_some()
    });
    println!("ejected after {:?}", started.elapsed());
    assert!(
        ejection_reason(&world, family, 1).is_some_and(|reason| reason.contains("unanswered SYNs"))
    );
    let server = world.server_status(family.server(1));
    assert_eq!(
        (&server["effective_weight"], &server["weight"]),
        (&0.into(), &1.into())
    );
    assert_eq!(
        server["state"], "unchecked",
        "ejection must not depend on checks"
    );
    assert!(world.metrics().contains("weir_server_ejected{"));
    let log = world.log();
    // On a slow machine, the server may have failed its retry in the meantime and have been ejected for longer.
    assert_eq!(log.matches("seconds=10\n").count(), 1, "{log}");
    // Weir never ejects the other servers, and the ejected server returns automatically.
    sh(repair);
    let before = world.server_status(family.server(1))["connections"].as_u64();
    wait_for("the server to return", TIMEOUT, || {
        let server = world.server_status(family.server(1));
        server["ejected"].is_null()
            && server["connections"].as_u64() > before.map(|count| count + 5)
    });
    assert!((0..3).all(|n| ejection_reason(&world, family, n).is_none()));
    assert_eq!(world.log().matches("is being retried").count(), 1);
}

const DROPS: (&str, &str) = (
    "nft 'add table inet t; add chain inet t in { type filter hook input priority 0; }; add rule inet t in tcp dport \
     80 tcp flags & (syn|ack) == syn drop'",
    "nft delete table inet t",
);
const RESETS: (&str, &str) = (
    "nft 'add table inet t; add chain inet t in { type filter hook input priority 0; }; add rule inet t in tcp dport \
     80 tcp flags & (syn|ack) == syn reject with tcp reset'",
    "nft delete table inet t",
);

#[test]
fn server_that_drops_syns_is_ejected() {
    assert_ejected_and_returns(Family::V4, "direct", DROPS.0, DROPS.1);
}

#[test]
fn server_that_resets_connections_is_ejected() {
    assert_ejected_and_returns(Family::V4, "direct", RESETS.0, RESETS.1);
}

#[test]
fn nat_server_that_resets_connections_is_ejected() {
    assert_ejected_and_returns(Family::V6, "nat", RESETS.0, RESETS.1);
}

#[test]
fn ejections_do_not_exceed_max_ejected() {
    if !privileged() {
        return;
    }
    let family = Family::V4;
    let mut world = World::new(3);
    world.start_nginx(64);
    let vip = family.vip().to_string();
    world.prepare_direct_servers(&vip);
    world.start_daemon(&config(family, "direct", 3, ""));
    let clients = start_clients(&world, family);
    world.kill_on_drop(clients);
    for n in [0, 1] {
        world.kill_nginx(n);
    }
    wait_for("one server to be ejected", TIMEOUT, || {
        (0..3).any(|n| ejection_reason(&world, family, n).is_some())
    });
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        let ejected = (0..3).filter(|n| ejection_reason(&world, family, *n).is_some());
        assert_eq!(
            ejected.count(),
            1,
            "50 % of three servers must allow one ejection"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    // If no ejection is allowed, ejected servers return.
    world.reload(&config(family, "direct", 3, "max_ejected = 0"));
    wait_for("all servers to return", TIMEOUT, || {
        (0..3).all(|n| ejection_reason(&world, family, n).is_none())
    });
}
