//! Tests the `mirror` key of routes.
//!
//! The tests check the copies of requests, and the responses to clients if the mirror is slow or dead.

use std::net::TcpListener;
use std::process::Command;

use super::keeper::wait_until;
use super::origin::Origin;
use super::receiver::Receiver;
use super::{Client, GET, Proxy, free_address, fs};

/// Starts a daemon whose only route sends copies to `mirror`.
fn start_proxy(origin: &Origin, pool: &str, mirror: &str) -> Proxy {
    let daemon = Proxy::start("http", &[free_address()], "");
    daemon.reload(&configuration_with(&daemon, origin, pool, mirror));
    daemon
}

fn configuration_with(proxy: &Proxy, origin: &Origin, pool: &str, mirror: &str) -> String {
    let (server, listen) = (origin.address(), proxy.listen);
    format!(
        "[pool.p]\nservers = [\"{server}\"]\n\n[pool.m]\n{pool}\n\n[service.s]\nlisten = [\"{listen}\"]\nforward = \
         \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n\n[[route]]\nservice = \"s\"\npool = \"p\"\nmirror = {mirror}\n"
    )
}

/// Returns a counter of the service.
fn count(proxy: &Proxy, name: &str) -> u64 {
    let service = &proxy.status()["services"][0];
    let number = service["details"][name].as_u64();
    number.or(service[name].as_u64()).expect("number not found")
}

fn post(path: &str, length: usize) -> String {
    let body = "x".repeat(length);
    format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}")
}

#[test]
fn copies_have_head_and_body_and_their_responses_are_discarded() {
    let (origin, mirror) = (Origin::start("o"), Receiver::start());
    mirror.set_status(500);
    let pool = format!(
        "servers = [\"{}\"]\nhost = \"{{header.x-one}}.mirror.example\"",
        mirror.address
    );
    let proxy = start_proxy(&origin, &pool, "{ pool = \"m\", body = 100000 }");
    let mut client = Client::connect(proxy.listen);
    let (head, body) = client.fetch("GET /a?b HTTP/1.1\r\nHost: h\r\nX-One: 1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let forwarded = String::from_utf8_lossy(&body).into_owned();
    assert!(forwarded.contains("\nHost: h\r\n"), "{forwarded}");
    // The bodies arrive with the head, are buffered before Weir selects the server, or arrive while Weir forwards the
    // request.
    for length in [10, 10_000, 90_000] {
        let (head, body) = client.fetch(&post("/sum", length));
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(body, length.to_string().as_bytes());
    }
    let chunked = "POST /sum HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(client.fetch(chunked).1, b"5");
    wait_until("all copies have arrived", || mirror.received().len() == 5);
    let received = mirror.received().clone();
    let first = &received[0].head;
    assert!(
        first.starts_with("GET /a?b HTTP/1.1\r\nHost: 1.mirror.example\r\nX-One: 1\r\n"),
        "{first}"
    );
    assert!(first.contains("X-Forwarded-For: 127.0.0.1\r\n"), "{first}");
    let lengths: Vec<usize> = received[1..4]
        .iter()
        .map(|request| request.body.len())
        .collect();
    assert_eq!(lengths, [10, 10_000, 90_000]);
    assert!(
        received[1..4]
            .iter()
            .all(|request| request.body.iter().all(|byte| *byte == b'x'))
    );
    assert_eq!(received[4].body_text(), "5\r\nhello\r\n0\r\n\r\n");
    // Error responses from the mirror are not failures. Only client requests count for the service.
    let mirror_server = |proxy: &Proxy| {
        let status = proxy.status();
        let servers = status["services"][0]["servers"].as_array().cloned();
        let mut servers = servers.unwrap_or_default().into_iter();
        let name = mirror.address.to_string();
        servers.find(|server| server["address"] == *name)
    };
    wait_until("the responses of the mirror are complete", || {
        mirror_server(&proxy).is_some_and(|server| server["active_connections"] == 0)
    });
    assert_eq!(count(&proxy, "mirrored"), 5);
    assert_eq!(count(&proxy, "mirror_failed"), 0);
    assert_eq!(count(&proxy, "requests"), 5);
    assert_eq!(count(&proxy, "active"), 0);
    let status = proxy.status();
    assert_eq!(
        status["services"][0]["responses"][4].as_u64(),
        Some(0),
        "{status:#}"
    );
}

#[test]
fn long_bodies_and_upgrades_are_not_copied() {
    let (origin, mirror) = (Origin::start("o"), Receiver::start());
    let pool = format!("servers = [\"{}\"]", mirror.address);
    let proxy = start_proxy(&origin, &pool, "{ pool = \"m\", body = 1000 }");
    let mut client = Client::connect(proxy.listen);
    assert_eq!(client.fetch(&post("/sum", 1001)).1, b"1001");
    let body = "x".repeat(1001);
    let chunked = format!(
        "POST /sum HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n{body}\r\n0\r\n\r\n"
    );
    assert_eq!(client.fetch(&chunked).1, b"1001");
    assert_eq!(count(&proxy, "mirror_skipped"), 2);
    let mut upgraded = Client::connect(proxy.listen);
    let (head, _) = upgraded
        .fetch("GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    // If copies have no body, Weir can copy every request.
    proxy.reload(&configuration_with(
        &proxy,
        &origin,
        &pool,
        "{ pool = \"m\", body = 0 }",
    ));
    assert_eq!(client.fetch(&post("/sum", 70_000)).1, b"70000");
    wait_until("the copy has arrived", || !mirror.received().is_empty());
    let received = mirror.received().clone();
    assert_eq!(received.len(), 1, "{received:?}");
    let head = &received[0].head;
    assert!(
        head.starts_with("POST /sum ") && !head.to_ascii_lowercase().contains("content-length"),
        "{head}"
    );
    // With `percent = 0`, Weir copies no request.
    proxy.reload(&configuration_with(
        &proxy,
        &origin,
        &pool,
        "{ pool = \"m\", percent = 0 }",
    ));
    (0..50).for_each(|_| drop(client.fetch(GET)));
    assert_eq!(count(&proxy, "mirrored"), 1);
}

#[test]
fn slow_and_dead_mirrors_do_not_affect_responses() {
    let origin = Origin::start("o");
    // This mirror accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    silent.set_nonblocking(true).expect("set nonblocking");
    let address = silent.local_addr().expect("get local address");
    let slow = format!("servers = [\"{address}\"]");
    let proxy = start_proxy(&origin, &slow, "{ pool = \"m\", concurrent = 4 }");
    let fetch = |times: usize| {
        let mut client = Client::connect(proxy.listen);
        for _ in 0..times {
            let (head, body) = client.fetch(GET);
            assert!(
                head.starts_with("HTTP/1.1 200 ") && body.starts_with(b"o\n"),
                "{head}"
            );
        }
    };
    fetch(100);
    assert_eq!(
        (count(&proxy, "mirrored"), count(&proxy, "mirror_skipped")),
        (4, 96)
    );
    let connections = std::iter::from_fn(|| silent.accept().ok()).collect::<Vec<_>>();
    assert_eq!(connections.len(), 4);
    // The copies fail and release their slots.
    drop(connections);
    wait_until("the failed copies are counted", || {
        count(&proxy, "mirror_failed") == 4
    });
    drop(silent);
    let dead = format!("servers = [\"{}\"]", free_address());
    proxy.reload(&configuration_with(&proxy, &origin, &dead, "\"m\""));
    fetch(100);
    wait_until("the failed copies are counted", || {
        count(&proxy, "mirror_failed") == 104
    });
    assert_eq!(count(&proxy, "mirror_skipped"), 96);
    assert_eq!(count(&proxy, "requests"), 200);
    assert_eq!(
        proxy.status()["services"][0]["responses"][1].as_u64(),
        Some(200)
    );
}

#[test]
fn copies_in_progress_do_not_delay_shutdown() {
    let origin = Origin::start("o");
    let silent = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let address = silent.local_addr().expect("get local address");
    let mut proxy = start_proxy(&origin, &format!("servers = [\"{address}\"]"), "\"m\"");
    // Set a long drain timeout: when it expires, Weir would close and log requests in progress.
    let file = proxy.directory.join("weir.toml");
    let long_drain = format!(
        "[node]\ndrain_timeout = \"10m\"\n\n{}",
        fs::read_to_string(&file).expect("read file")
    );
    proxy.reload(&long_drain);
    drop(Client::connect(proxy.listen).fetch(GET));
    let _copy = silent.accept().expect("accept a connection");
    assert!(proxy.terminate().success());
}

#[test]
fn requests_over_http2_are_copied_to_http2_servers() {
    let origin = Origin::start("o");
    let (second, mirror) = (
        Proxy::start("http", &[free_address()], ""),
        Receiver::start(),
    );
    // The mirror is another Weir that accepts HTTP/2 and forwards to the receiver.
    second.reload(&format!(
        "[pool.p]\nservers = [\"{}\"]\n\n[service.s]\nlisten = [\"{}\"]\nforward = \"proxy\"\nprotocol = \
         \"http\"\npool = \"p\"\n",
        mirror.address, second.listen
    ));
    let pool = format!("servers = [\"{}\"]\nhttp2 = true", second.listen);
    let proxy = start_proxy(&origin, &pool, "\"m\"");
    let output = Command::new("curl")
        .args([
            "-s",
            "--http2-prior-knowledge",
            "--max-time",
            "20",
            "-d",
            "hello",
        ])
        .arg(format!("http://{}/sum", proxy.listen))
        .output()
        .expect("run curl (see tools/install-deps.sh)");
    assert_eq!(output.stdout, b"5");
    wait_until("the copy has arrived", || !mirror.received().is_empty());
    let received = mirror.received().clone();
    assert!(
        received[0].head.starts_with("POST /sum HTTP/1.1\r\n"),
        "{received:?}"
    );
    assert_eq!(received[0].body_text(), "hello");
    assert_eq!(count(&second, "h2_requests"), 1);
    assert_eq!(count(&proxy, "h2_requests"), 1);
    assert_eq!(count(&proxy, "h2_active"), 0);
}

#[test]
fn explain_plan_and_errors_name_the_mirror() {
    let origin = Origin::start("o");
    let pool = "servers = [\"127.0.0.1:1\"]";
    let proxy = start_proxy(
        &origin,
        pool,
        "{ pool = \"m\", percent = 2.5, concurrent = 7 }",
    );
    let description = "2.50 % to pool m, bodies up to 65536 bytes, 7 at once";
    let request = format!("GET http://{}/", proxy.listen);
    let (succeeded, output) = proxy.weir(&["explain", "--request", &request]);
    assert!(
        succeeded && output.contains(&format!("copies: {description}")),
        "{output}"
    );
    let check = |text: &str| {
        let file = proxy.directory.join("other.toml");
        fs::write(&file, text).expect("write file");
        proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")])
    };
    for (mirror, error) in [
        ("\"absent\"", "pool `absent` does not exist"),
        ("{ percent = 5 }", "pool"),
        ("{ pool = \"m\", percent = 101 }", "percent"),
        ("{ pool = \"m\", body = \"1GiB\" }", "body"),
        ("{ pool = \"m\", fraction = 5 }", "did you mean `percent`"),
    ] {
        let (succeeded, output) = check(&configuration_with(&proxy, &origin, pool, mirror));
        assert!(!succeeded && output.contains(error), "{mirror}: {output}");
    }
    let static_response = configuration_with(&proxy, &origin, pool, "\"m\"").replace(
        "service = \"s\"\npool = \"p\"\n",
        "service = \"s\"\nstatus = 204\n",
    );
    let (_, output) = check(&static_response);
    assert!(output.contains("`mirror` has no effect"), "{output}");
}
