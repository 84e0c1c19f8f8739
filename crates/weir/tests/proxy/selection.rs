//! Server selection, queued clients, header fields for servers, and access logs.

use std::io::{Read, Write};
use std::net::SocketAddr;

use super::origin::Origin;
use super::{Client, GET, Proxy, free_address, wait};

/// Returns a configuration with additional lines in pool and service.
fn text(listen: SocketAddr, protocol: &str, pool: &str, service: &str) -> String {
    format!(
        "[pool.p]\n{pool}\n\n[service.s]\nlisten = [\"{listen}\"]\nforward = \"proxy\"\nprotocol = \"{protocol}\"\n\
         pool = \
         \"p\"\n{service}\n"
    )
}

/// Starts a daemon with that configuration.
fn proxy(protocol: &str, pool: &str, service: &str) -> Proxy {
    let proxy = Proxy::start(protocol, &[free_address()], "");
    proxy.reload(&text(proxy.listen, protocol, pool, service));
    proxy
}

fn servers(origins: &[&Origin]) -> String {
    let all: Vec<String> = origins
        .iter()
        .map(|origin| format!("\"{}\"", origin.address()))
        .collect();
    format!("servers = [{}]", all.join(", "))
}

fn name(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn sticky_cookie_selects_the_server_and_is_hidden_from_it() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let sticky = "scheduler = \"rr\"\nsticky = { cookie = \"SRV\", secret = \"s\" }";
    let proxy = proxy("http", &format!("{}\n{sticky}", servers(&[&one, &two])), "");
    let mut client = Client::connect(proxy.listen);
    let (head, body) = client.fetch(GET);
    let cookie = head
        .lines()
        .find_map(|line| line.strip_prefix("Set-Cookie: SRV="))
        .expect("no cookie");
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax"),
        "{cookie}"
    );
    let sign = cookie.split(';').next().unwrap_or_default().to_owned();
    let first = name(&body);
    for _ in 0..8 {
        let (head, body) = client.fetch(&format!(
            "GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1; SRV={sign}; b=2\r\n\r\n"
        ));
        let seen = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(name(&body), first);
        assert!(seen.contains("Cookie: a=1; b=2\r\n"), "{seen}");
        assert!(!head.contains("Set-Cookie"), "{head}");
    }
    // A cookie that Weir did not set selects no server and is replaced.
    let (head, _) =
        client.fetch("GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV=0000000000000000\r\n\r\n");
    assert!(head.contains("Set-Cookie: SRV="), "{head}");
}

#[test]
fn server_cookie_is_rewritten_or_prefixed() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let both = servers(&[&one, &two]);
    let pool = |mode: &str| {
        format!("{both}\nscheduler = \"rr\"\nsticky = {{ cookie = \"ID\", mode = \"{mode}\" }}")
    };
    let proxy = proxy("http", &pool("prefix"), "");
    let mut client = Client::connect(proxy.listen);
    let fetch = |client: &mut Client| {
        let (head, body) = client.fetch("GET /cookie HTTP/1.1\r\nHost: a\r\n\r\n");
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix("Set-Cookie: ID="));
        (line.expect("no cookie").to_owned(), name(&body))
    };
    let (cookie, first) = fetch(&mut client);
    let value = cookie
        .strip_suffix("; Path=/x")
        .expect("unexpected cookie attributes");
    assert!(value.ends_with("~abc") && value.len() == 20, "{cookie}");
    for _ in 0..4 {
        let (_, body) = client.fetch(&format!(
            "GET / HTTP/1.1\r\nHost: a\r\nCookie: ID={value}\r\n\r\n"
        ));
        assert_eq!(name(&body), first);
        assert!(String::from_utf8_lossy(&body).contains("Cookie: ID=abc\r\n"));
    }
    proxy.reload(&text(proxy.listen, "http", &pool("rewrite"), ""));
    let (cookie, _) = fetch(&mut client);
    assert!(
        cookie.ends_with("; Path=/x") && cookie.len() == 25,
        "{cookie}"
    );
}

#[test]
fn full_server_queues_clients_up_to_the_timeout() {
    let origin = Origin::start("o");
    let pool = |timeout: &str| {
        format!(
            "servers = [{{ address = \"{}\", max_connections = 1 }}]\nqueue_timeout = \"{timeout}\"",
            origin.address()
        )
    };
    let proxy = proxy("http", &pool("10s"), "");
    let slow = "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(proxy.listen)).collect();
    clients[0].send(slow);
    origin.wait_for_slow();
    let queued = |proxy: &Proxy| proxy.status()["services"][0]["queued"].as_u64();
    for (at, client) in clients.iter_mut().enumerate().skip(1) {
        client.send(slow);
        wait("it waits", || queued(&proxy) == Some(at as u64));
    }
    for client in &mut clients {
        let (head, body) = client
            .response()
            .expect("read response")
            .expect("no response");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(body, b"slow");
    }
    assert_eq!(
        origin.slow_at_once(),
        1,
        "expected at most one concurrent request"
    );
    proxy.reload(&text(proxy.listen, "http", &pool("100ms"), ""));
    clients[0].send(slow);
    wait("it is under way", || {
        proxy.status()["services"][0]["servers"][0]["active_connections"].as_u64() == Some(1)
    });
    assert!(clients[1].fetch(GET).0.starts_with("HTTP/1.1 503 "));
    assert!(clients[0].response().expect("read response").is_some());
}

#[test]
fn proxy_protocol_is_sent_to_servers() {
    let origin = Origin::start("o");
    let pool = format!("{}\nproxy_protocol = \"v1\"", servers(&[&origin]));
    let proxy = proxy("http", &pool, "proxy_protocol = true");
    let mut client = Client::connect(proxy.listen);
    let (_, body) = client.fetch(&format!(
        "PROXY TCP4 192.0.2.1 198.51.100.2 4711 80\r\n{GET}"
    ));
    let seen = String::from_utf8_lossy(&body).into_owned();
    assert!(
        seen.contains("PROXY TCP4 192.0.2.1 198.51.100.2 4711 80\r\nGET / HTTP/1.1\r\n"),
        "{seen}"
    );
    assert!(seen.contains("X-Forwarded-For: 192.0.2.1\r\n"), "{seen}");
    let (_, body) = client.fetch(GET);
    let seen = String::from_utf8_lossy(&body).into_owned();
    assert!(
        seen.contains("PROXY TCP4 192.0.2.1"),
        "a connection without the header: {seen}"
    );
    // Rules for IPv4 networks apply to an address that is written as an IPv6 address.
    let route = "[[route]]\nservice = \"s\"\nsource = \"192.0.2.0/24\"\nstatus = 403";
    let with_route = format!("proxy_protocol = true\n{route}");
    proxy.reload(&text(proxy.listen, "http", &pool, &with_route));
    for (family, prefix) in [("TCP4", ""), ("TCP6", "::ffff:")] {
        let (head, _) = Client::connect(proxy.listen).fetch(&format!(
            "PROXY {family} {prefix}192.0.2.1 {prefix}198.51.100.2 4711 80\r\n{GET}"
        ));
        assert!(head.starts_with("HTTP/1.1 403 "), "{family}: {head}");
    }
    proxy.reload(&text(proxy.listen, "http", &pool, "proxy_protocol = true"));
    // A client that must send the header and does not is rejected.
    let mut silent = Client::connect(proxy.listen);
    silent.send(GET);
    assert!(matches!(silent.response(), Ok(None) | Err(_)));
    // The header in two segments, and the other version.
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    header.extend_from_slice(&[192, 0, 2, 9, 198, 51, 100, 2, 1, 0, 0, 80]);
    let mut client = Client::connect(proxy.listen);
    client.0.write_all(&header[..14]).expect("write");
    client.0.write_all(&header[14..]).expect("write");
    let (_, body) = client.fetch(GET);
    assert!(
        String::from_utf8_lossy(&body).contains("PROXY TCP4 192.0.2.9 198.51.100.2 256 80\r\n")
    );
    // With `trusted`, only these clients may specify another client address.
    let service = "proxy_protocol = true\ntrusted = [\"192.0.2.0/24\"]";
    proxy.reload(&text(proxy.listen, "http", &pool, service));
    let mut client = Client::connect(proxy.listen);
    let (_, body) = client.fetch(GET);
    assert!(String::from_utf8_lossy(&body).contains("PROXY TCP4 127.0.0.1 127.0.0.1 "));
}

#[test]
fn backups_and_sorry_server_are_used_only_when_needed() {
    let (own, backup, sorry) = (
        Origin::start("own"),
        Origin::start("backup"),
        Origin::start("sorry"),
    );
    let pool = format!(
        "servers = [\"{}\", {{ address = \"{}\", backup = true }}]\nsorry = \"{}\"",
        own.address(),
        backup.address(),
        sorry.address()
    );
    let proxy = proxy("http", &pool, "");
    let mut client = Client::connect(proxy.listen);
    let fetch_name = |client: &mut Client| name(&client.fetch(GET).1);
    for _ in 0..8 {
        assert_eq!(fetch_name(&mut client), "own");
    }
    let drain = |origin: &Origin| {
        let (done, output) = proxy.weir(&["server", &format!("p/{}", origin.address()), "drain"]);
        assert!(done, "{output}");
    };
    drain(&own);
    assert_eq!(fetch_name(&mut client), "backup");
    drain(&backup);
    assert_eq!(fetch_name(&mut client), "sorry");
    let (done, status) = proxy.weir(&["status", "--json"]);
    assert!(done, "{status}");
    let epoch = "1970-01-01";
    assert!(!status.contains(epoch), "a `since` is the epoch: {status}");
}

#[test]
fn hash_maps_equal_keys_to_one_server() {
    let origins: Vec<Origin> = ["a", "b", "c", "d"].map(Origin::start).into();
    let all: Vec<&Origin> = origins.iter().collect();
    let pool = |key: &str| {
        format!(
            "{}\nscheduler = {{ name = \"hash\", key = \"{key}\", max_load = 2 }}",
            servers(&all)
        )
    };
    let proxy = proxy("http", &pool("header:X-User"), "");
    let mut client = Client::connect(proxy.listen);
    let mut owners = std::collections::BTreeMap::new();
    for round in 0..3 {
        for user in 0..32 {
            let (_, body) = client.fetch(&format!(
                "GET /{round} HTTP/1.1\r\nHost: a\r\nX-User: u{user}\r\n\r\n"
            ));
            let owner = owners.entry(user).or_insert_with(|| name(&body)).clone();
            assert_eq!(owner, name(&body), "user {user}");
        }
    }
    let used: std::collections::BTreeSet<&String> = owners.values().collect();
    assert_eq!(used.len(), 4, "{owners:?}");
    // Removing a server moves only its own requests.
    let gone = name(
        &client
            .fetch("GET / HTTP/1.1\r\nHost: a\r\nX-User: u0\r\n\r\n")
            .1,
    );
    let left: Vec<&Origin> = all
        .iter()
        .zip(["a", "b", "c", "d"])
        .filter(|(_, name)| *name != gone)
        .map(|(origin, _)| *origin)
        .collect();
    let fewer = format!(
        "{}\nscheduler = {{ name = \"hash\", key = \"header:X-User\" }}",
        servers(&left)
    );
    proxy.reload(&text(proxy.listen, "http", &fewer, ""));
    for (user, owner) in &owners {
        let (_, body) = client.fetch(&format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-User: u{user}\r\n\r\n"
        ));
        assert_eq!(
            name(&body) == *owner,
            *owner != gone,
            "user {user} of {owner}"
        );
    }
}

#[test]
fn least_time_prefers_the_fastest_server() {
    let (quick, slow) = (Origin::start("quick"), Origin::start("slow"));
    let pool = format!("{}\nscheduler = \"least-time\"", servers(&[&slow, &quick]));
    let proxy = proxy("http", &pool, "");
    let mut client = Client::connect(proxy.listen);
    let mut counts = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..60 {
        let (_, body) = client.fetch("GET /lag HTTP/1.1\r\nHost: a\r\n\r\n");
        *counts.entry(name(&body)).or_default() += 1;
    }
    assert!(counts["quick"] > 50, "{counts:?}");
}

#[test]
fn access_log_records_requests() {
    let origin = Origin::start("o");
    let directory = std::env::temp_dir().join(format!("weir-log-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("create directory");
    let file = directory.join("access.log");
    let (pool, path) = (servers(&[&origin]), file.display());
    let format = "{client} {method} {target} {host} {status} {pool} {server} {end} {agent}";
    let log = format!("access_log = {{ path = \"{path}\", format = \"{format}\" }}");
    let proxy = proxy(
        "http",
        &pool,
        &format!("{log}\ntimeouts = {{ server = \"200ms\" }}"),
    );
    let mut client = Client::connect(proxy.listen);
    client.fetch("GET /x?y=1 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: test \"1\"\r\n\r\n");
    client.fetch("GET /silence HTTP/1.1\r\nHost: a\r\n\r\n");
    Client::connect(proxy.listen).fetch("GET / HTTP/1.1\r\nHost : a\r\n\r\n");
    // No timeout ends the request before the proxy detects that the client has closed.
    proxy.reload(&text(proxy.listen, "http", &pool, &log));
    let mut gone = Client::connect(proxy.listen);
    gone.send("GET /silence HTTP/1.1\r\nHost: left\r\n\r\n");
    wait("a request is under way", || {
        proxy.status()["services"][0]["servers"][0]["active_connections"].as_u64() == Some(1)
    });
    drop(gone);
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    wait("four lines", || read().lines().count() >= 4);
    let server = origin.address();
    let written = read();
    for line in [
        format!("127.0.0.1 GET /x?y=1 a.example 200 p {server} -- test \\x221\\x22\n"),
        format!("127.0.0.1 GET /silence a 504 p {server} sH \n"),
        "127.0.0.1    400   PR \n".to_owned(),
        format!("127.0.0.1 GET /silence left 0 p {server} CH \n"),
    ] {
        assert!(written.contains(&line), "{line} in {written}");
    }
    // The file was renamed. A reload opens it again.
    std::fs::rename(&file, directory.join("old")).expect("rename file");
    proxy.reload(&text(
        proxy.listen,
        "http",
        &pool,
        &format!("access_log = {{ path = \"{path}\", format = \"json\" }}"),
    ));
    let mut client = Client::connect(proxy.listen);
    client.fetch(GET);
    wait("a line of JSON", || !read().is_empty());
    let line: serde_json::Value =
        serde_json::from_str(read().lines().next().unwrap_or_default()).expect("parse JSON");
    assert_eq!(
        (line["status"].as_u64(), line["method"].as_str()),
        (Some(200), Some("GET")),
        "{line}"
    );
    let _ = std::fs::remove_dir_all(&directory);
}

#[test]
fn large_bodies_pass_in_both_directions() {
    let origin = Origin::start("o");
    let proxy = proxy("http", &servers(&[&origin]), "");
    let mut client = Client::connect(proxy.listen);
    for round in 0..3 {
        let (_, body) = client.fetch("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        let right = body
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == (at % 251) as u8);
        assert!(body.len() == 5_000_000 && right, "round {round}");
        let (_, body) = client.fetch(GET);
        assert_eq!(name(&body), "o");
    }
    assert_eq!(origin.connections(), 1, "the connection must be reused");
    let echo = Origin::start_tcp();
    let tunnel = self::proxy("tcp", &servers(&[&echo]), "");
    let stream = std::net::TcpStream::connect(tunnel.listen).expect("connect");
    let sent: Vec<u8> = (0..8_000_000u32).map(|at| (at % 253) as u8).collect();
    let mut writer = stream.try_clone().expect("duplicate descriptor");
    let copy = sent.clone();
    let thread = std::thread::spawn(move || {
        writer.write_all(&copy).expect("write");
        writer
            .shutdown(std::net::Shutdown::Write)
            .expect("shut down writing");
    });
    let mut got = Vec::new();
    (&stream).read_to_end(&mut got).expect("read to the end");
    thread.join().expect("thread panicked");
    assert!(got == sent, "{} of {}", got.len(), sent.len());
}

#[test]
fn weight_0_keeps_sticky_clients_and_drain_does_not() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let sticky = "scheduler = \"rr\"\nsticky = { cookie = \"SRV\" }";
    let proxy = proxy("http", &format!("{}\n{sticky}", servers(&[&one, &two])), "");
    let mut client = Client::connect(proxy.listen);
    let (head, body) = client.fetch(GET);
    let sign = head
        .lines()
        .find_map(|line| line.strip_prefix("Set-Cookie: SRV="))
        .and_then(|cookie| cookie.split(';').next())
        .expect("no cookie");
    let known = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV={sign}\r\n\r\n");
    let (first, address) = match name(&body).as_str() {
        "one" => ("one", one.address()),
        _ => ("two", two.address()),
    };
    let server = format!("p/{address}");
    let (done, output) = proxy.weir(&["server", &server, "weight", "0"]);
    assert!(done, "{output}");
    for _ in 0..4 {
        assert_eq!(name(&client.fetch(&known).1), first);
        assert_ne!(name(&client.fetch(GET).1), first);
    }
    let (done, output) = proxy.weir(&["server", &server, "drain"]);
    assert!(done, "{output}");
    assert_ne!(name(&client.fetch(&known).1), first);
}
