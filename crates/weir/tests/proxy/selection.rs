//! Tests server selection, queued clients, header fields for servers, and access logs.

use std::io::{Read, Write};
use std::net::SocketAddr;

use super::origin::Origin;
use super::{Client, GET, Proxy, free_address, wait_until};

/// Returns a configuration with these lines in its pool and its service.
fn configuration_with(listen: SocketAddr, protocol: &str, pool: &str, service: &str) -> String {
    format!(
        "[pool.p]\n{pool}\n\n[service.s]\nlisten = [\"{listen}\"]\nforward = \"proxy\"\nprotocol = \"{protocol}\"\n\
         pool = \
         \"p\"\n{service}\n"
    )
}

/// Starts a daemon with these lines in its pool and its service.
fn start_proxy(protocol: &str, pool: &str, service: &str) -> Proxy {
    let daemon = Proxy::start(protocol, &[free_address()], "");
    daemon.reload(&configuration_with(daemon.listen, protocol, pool, service));
    daemon
}

/// Returns the `servers` line of a pool.
fn servers(origins: &[&Origin]) -> String {
    let all: Vec<String> = origins
        .iter()
        .map(|origin| format!("\"{}\"", origin.address()))
        .collect();
    format!("servers = [{}]", all.join(", "))
}

/// Returns the first line of a body, which is the server's name.
fn server_name(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn sticky_cookie_selects_the_server_and_is_hidden_from_it() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let sticky = "scheduler = \"rr\"\nsticky = { cookie = \"SRV\", secret = \"s\" }";
    let proxy = start_proxy("http", &format!("{}\n{sticky}", servers(&[&one, &two])), "");
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
    let cookie_value = cookie.split(';').next().unwrap_or_default().to_owned();
    let first = server_name(&body);
    for _ in 0..8 {
        let (head, body) = client.fetch(&format!(
            "GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1; SRV={cookie_value}; b=2\r\n\r\n"
        ));
        let forwarded = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(server_name(&body), first);
        assert!(forwarded.contains("Cookie: a=1; b=2\r\n"), "{forwarded}");
        assert!(!head.contains("Set-Cookie"), "{head}");
    }
    // A cookie that Weir did not set selects no server and is replaced.
    let (head, _) =
        client.fetch("GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV=0000000000000000\r\n\r\n");
    assert!(head.contains("Set-Cookie: SRV="), "{head}");
}

#[test]
fn wlc_uses_all_idle_servers() {
    let origins = ["one", "two", "three"].map(Origin::start);
    let pool = format!(
        "{}\nscheduler = \"wlc\"",
        servers(&origins.each_ref().map(|origin| origin))
    );
    let proxy = start_proxy("http", &pool, "");
    let mut client = Client::connect(proxy.listen);
    let mut count = std::collections::BTreeMap::new();
    for _ in 0..30 {
        let (_, body) = client.fetch(GET);
        *count.entry(server_name(&body)).or_insert(0) += 1;
    }
    // A request is in progress until Weir has processed the whole response, so the servers might not alternate exactly.
    let is_fair = |name: &str| count.get(name).is_some_and(|count| *count >= 5);
    assert!(
        ["one", "two", "three"].iter().all(|name| is_fair(name)),
        "{count:?}"
    );
}

#[test]
fn server_cookie_is_rewritten_or_prefixed() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let both = servers(&[&one, &two]);
    let pool = |mode: &str| {
        format!("{both}\nscheduler = \"rr\"\nsticky = {{ cookie = \"ID\", mode = \"{mode}\" }}")
    };
    let proxy = start_proxy("http", &pool("prefix"), "");
    let mut client = Client::connect(proxy.listen);
    let fetch = |client: &mut Client| {
        let (head, body) = client.fetch("GET /cookie HTTP/1.1\r\nHost: a\r\n\r\n");
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix("Set-Cookie: ID="));
        (line.expect("no cookie").to_owned(), server_name(&body))
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
        assert_eq!(server_name(&body), first);
        assert!(String::from_utf8_lossy(&body).contains("Cookie: ID=abc\r\n"));
    }
    proxy.reload(&configuration_with(
        proxy.listen,
        "http",
        &pool("rewrite"),
        "",
    ));
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
    let proxy = start_proxy("http", &pool("10s"), "");
    let slow = "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(proxy.listen)).collect();
    clients[0].send(slow);
    origin.wait_for_slow();
    let queued = |proxy: &Proxy| proxy.status()["services"][0]["queued"].as_u64();
    for (index, client) in clients.iter_mut().enumerate().skip(1) {
        client.send(slow);
        wait_until("the request is queued", || {
            queued(&proxy) == Some(index as u64)
        });
    }
    for client in &mut clients {
        let (head, body) = client
            .read_response()
            .expect("read response")
            .expect("no response");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(body, b"slow");
    }
    assert_eq!(
        origin.max_concurrent_slow(),
        1,
        "expected at most one concurrent request"
    );
    proxy.reload(&configuration_with(
        proxy.listen,
        "http",
        &pool("100ms"),
        "",
    ));
    clients[0].send(slow);
    wait_until("the slow request is in progress", || {
        proxy.status()["services"][0]["servers"][0]["active_connections"].as_u64() == Some(1)
    });
    assert!(clients[1].fetch(GET).0.starts_with("HTTP/1.1 503 "));
    assert!(clients[0].read_response().expect("read response").is_some());
}

/// Clients wait for a full server even though there is a backup. They use the backup when an operator takes the server
/// out of service.
#[test]
fn backup_does_not_replace_a_full_server() {
    let (regular, backup) = (Origin::start("regular"), Origin::start("backup"));
    let pool = format!(
        "servers = [{{ address = \"{}\", max_connections = 1 }}, {{ address = \"{}\", backup = true }}]\n\
         queue_timeout = \"1m\"",
        regular.address(),
        backup.address()
    );
    let proxy = start_proxy("tcp", &pool, "");
    let name = format!("p/{}", regular.address());
    let fetch = |client: &mut Client| server_name(&client.fetch(GET).1);
    let queue = || {
        let mut client = Client::connect(proxy.listen);
        client.send(GET);
        wait_until("the client is queued", || {
            proxy.status()["services"][0]["queued"].as_u64() == Some(1)
        });
        client
    };
    let responding_server = |mut client: Client| {
        let response = client.read_response().expect("read response");
        server_name(&response.expect("no response").1)
    };
    // A connection of a TCP service keeps its slot until the client closes it.
    let mut first = Client::connect(proxy.listen);
    assert_eq!(fetch(&mut first), "regular");
    let waiting = queue();
    assert!(proxy.weir(&["server", &name, "maint"]).0);
    assert_eq!(responding_server(waiting), "backup");
    assert!(proxy.weir(&["server", &name, "ready"]).0);
    let waiting = queue();
    // Both sides close the connection.
    first.send("GET /until-close HTTP/1.1\r\nHost: a\r\n\r\n");
    first.read_response().expect("read response");
    drop(first);
    assert_eq!(responding_server(waiting), "regular");
}

#[test]
fn proxy_protocol_is_sent_to_servers() {
    let origin = Origin::start("o");
    let pool = format!("{}\nproxy_protocol = \"v1\"", servers(&[&origin]));
    let proxy = start_proxy("http", &pool, "proxy_protocol = true");
    let mut client = Client::connect(proxy.listen);
    let (_, body) = client.fetch(&format!(
        "PROXY TCP4 192.0.2.1 198.51.100.2 4711 80\r\n{GET}"
    ));
    let forwarded = String::from_utf8_lossy(&body).into_owned();
    assert!(
        forwarded.contains("PROXY TCP4 192.0.2.1 198.51.100.2 4711 80\r\nGET / HTTP/1.1\r\n"),
        "{forwarded}"
    );
    assert!(
        forwarded.contains("X-Forwarded-For: 192.0.2.1\r\n"),
        "{forwarded}"
    );
    let (_, body) = client.fetch(GET);
    let forwarded = String::from_utf8_lossy(&body).into_owned();
    assert!(
        forwarded.contains("PROXY TCP4 192.0.2.1"),
        "the connection must have the client's header: {forwarded}"
    );
    // Rules for IPv4 networks also apply to IPv4-mapped IPv6 addresses.
    let route = "[[route]]\nservice = \"s\"\nsource = \"192.0.2.0/24\"\nstatus = 403";
    let with_route = format!("proxy_protocol = true\n{route}");
    proxy.reload(&configuration_with(
        proxy.listen,
        "http",
        &pool,
        &with_route,
    ));
    for (family, prefix) in [("TCP4", ""), ("TCP6", "::ffff:")] {
        let (head, _) = Client::connect(proxy.listen).fetch(&format!(
            "PROXY {family} {prefix}192.0.2.1 {prefix}198.51.100.2 4711 80\r\n{GET}"
        ));
        assert!(head.starts_with("HTTP/1.1 403 "), "{family}: {head}");
    }
    proxy.reload(&configuration_with(
        proxy.listen,
        "http",
        &pool,
        "proxy_protocol = true",
    ));
    // Weir rejects a client that does not send the required header.
    let mut silent = Client::connect(proxy.listen);
    silent.send(GET);
    assert!(matches!(silent.read_response(), Ok(None) | Err(_)));
    // The header has version 2 and arrives in two segments.
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    header.extend_from_slice(&[192, 0, 2, 9, 198, 51, 100, 2, 1, 0, 0, 80]);
    let mut client = Client::connect(proxy.listen);
    client.0.write_all(&header[..14]).expect("write");
    client.0.write_all(&header[14..]).expect("write");
    let (_, body) = client.fetch(GET);
    assert!(
        String::from_utf8_lossy(&body).contains("PROXY TCP4 192.0.2.9 198.51.100.2 256 80\r\n")
    );
    // With `trusted`, only clients in these networks may send the header.
    let service = "proxy_protocol = true\ntrusted = [\"192.0.2.0/24\"]";
    proxy.reload(&configuration_with(proxy.listen, "http", &pool, service));
    let mut client = Client::connect(proxy.listen);
    let (_, body) = client.fetch(GET);
    assert!(String::from_utf8_lossy(&body).contains("PROXY TCP4 127.0.0.1 127.0.0.1 "));
}

#[test]
fn backups_and_sorry_server_are_used_only_when_needed() {
    let (regular, backup, sorry) = (
        Origin::start("regular"),
        Origin::start("backup"),
        Origin::start("sorry"),
    );
    let pool = format!(
        "servers = [\"{}\", {{ address = \"{}\", backup = true }}]\nsorry = \"{}\"",
        regular.address(),
        backup.address(),
        sorry.address()
    );
    let proxy = start_proxy("http", &pool, "");
    let mut client = Client::connect(proxy.listen);
    let fetch_name = |client: &mut Client| server_name(&client.fetch(GET).1);
    for _ in 0..8 {
        assert_eq!(fetch_name(&mut client), "regular");
    }
    let drain = |origin: &Origin| {
        let (succeeded, output) =
            proxy.weir(&["server", &format!("p/{}", origin.address()), "drain"]);
        assert!(succeeded, "{output}");
    };
    drain(&regular);
    assert_eq!(fetch_name(&mut client), "backup");
    drain(&backup);
    assert_eq!(fetch_name(&mut client), "sorry");
    let (succeeded, status) = proxy.weir(&["status", "--json"]);
    assert!(succeeded, "{status}");
    let epoch = "1970-01-01";
    assert!(!status.contains(epoch), "a `since` is the epoch: {status}");
}

#[test]
fn hash_scheduler_sends_equal_keys_to_one_server() {
    let origins: Vec<Origin> = ["a", "b", "c", "d"].map(Origin::start).into();
    let all: Vec<&Origin> = origins.iter().collect();
    let pool = |key: &str| {
        format!(
            "{}\nscheduler = {{ name = \"hash\", key = \"{key}\", max_load = 2 }}",
            servers(&all)
        )
    };
    let proxy = start_proxy("http", &pool("header:X-User"), "");
    let mut client = Client::connect(proxy.listen);
    let mut owners = std::collections::BTreeMap::new();
    for round in 0..3 {
        for user in 0..32 {
            let (_, body) = client.fetch(&format!(
                "GET /{round} HTTP/1.1\r\nHost: a\r\nX-User: u{user}\r\n\r\n"
            ));
            let owner = owners
                .entry(user)
                .or_insert_with(|| server_name(&body))
                .clone();
            assert_eq!(owner, server_name(&body), "user {user}");
        }
    }
    let used: std::collections::BTreeSet<&String> = owners.values().collect();
    assert_eq!(used.len(), 4, "{owners:?}");
    // If a server is removed, only the requests that it would have received go to other servers.
    let removed = server_name(
        &client
            .fetch("GET / HTTP/1.1\r\nHost: a\r\nX-User: u0\r\n\r\n")
            .1,
    );
    let remaining: Vec<&Origin> = all
        .iter()
        .zip(["a", "b", "c", "d"])
        .filter(|(_, name)| *name != removed)
        .map(|(origin, _)| *origin)
        .collect();
    let fewer = format!(
        "{}\nscheduler = {{ name = \"hash\", key = \"header:X-User\" }}",
        servers(&remaining)
    );
    proxy.reload(&configuration_with(proxy.listen, "http", &fewer, ""));
    for (user, owner) in &owners {
        let (_, body) = client.fetch(&format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-User: u{user}\r\n\r\n"
        ));
        assert_eq!(
            server_name(&body) == *owner,
            *owner != removed,
            "user {user} of {owner}"
        );
    }
}

#[test]
fn least_time_prefers_the_fastest_server() {
    let (quick, slow) = (Origin::start("quick"), Origin::start("slow"));
    let pool = format!("{}\nscheduler = \"least-time\"", servers(&[&slow, &quick]));
    let proxy = start_proxy("http", &pool, "");
    let mut client = Client::connect(proxy.listen);
    let mut counts = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..60 {
        let (_, body) = client.fetch("GET /lag HTTP/1.1\r\nHost: a\r\n\r\n");
        *counts.entry(server_name(&body)).or_default() += 1;
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
    let proxy = start_proxy(
        "http",
        &pool,
        &format!("{log}\ntimeouts = {{ server = \"200ms\" }}"),
    );
    let mut client = Client::connect(proxy.listen);
    client.fetch("GET /x?y=1 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: test \"1\"\r\n\r\n");
    client.fetch("GET /silence HTTP/1.1\r\nHost: a\r\n\r\n");
    Client::connect(proxy.listen).fetch("GET / HTTP/1.1\r\nHost : a\r\n\r\n");
    // No timeout may end the request before the proxy detects that the client has closed the connection.
    proxy.reload(&configuration_with(proxy.listen, "http", &pool, &log));
    let mut aborting = Client::connect(proxy.listen);
    aborting.send("GET /silence HTTP/1.1\r\nHost: aborted\r\n\r\n");
    wait_until("the silent request is in progress", || {
        proxy.status()["services"][0]["servers"][0]["active_connections"].as_u64() == Some(1)
    });
    drop(aborting);
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("the access log has four lines", || {
        read().lines().count() >= 4
    });
    let server = origin.address();
    let log_text = read();
    for line in [
        format!("127.0.0.1 GET /x?y=1 a.example 200 p {server} -- test \\x221\\x22\n"),
        format!("127.0.0.1 GET /silence a 504 p {server} sH \n"),
        "127.0.0.1    400   PR \n".to_owned(),
        format!("127.0.0.1 GET /silence aborted 0 p {server} CH \n"),
    ] {
        assert!(log_text.contains(&line), "{line} is not in {log_text}");
    }
    // After a rename, a reload creates the file again.
    std::fs::rename(&file, directory.join("old")).expect("rename file");
    proxy.reload(&configuration_with(
        proxy.listen,
        "http",
        &pool,
        &format!("access_log = {{ path = \"{path}\", format = \"json\" }}"),
    ));
    let mut client = Client::connect(proxy.listen);
    client.fetch(GET);
    wait_until("the access log has a JSON line", || !read().is_empty());
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
fn large_bodies_are_forwarded_in_both_directions() {
    let origin = Origin::start("o");
    let proxy = start_proxy("http", &servers(&[&origin]), "");
    let mut client = Client::connect(proxy.listen);
    for round in 0..3 {
        let (_, body) = client.fetch("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        let is_expected = body
            .iter()
            .enumerate()
            .all(|(index, byte)| *byte == (index % 251) as u8);
        assert!(body.len() == 5_000_000 && is_expected, "round {round}");
        let (_, body) = client.fetch(GET);
        assert_eq!(server_name(&body), "o");
    }
    assert_eq!(origin.connections(), 1, "the connection must be reused");
    let echo = Origin::start_tcp();
    let tunnel = start_proxy("tcp", &servers(&[&echo]), "");
    let stream = std::net::TcpStream::connect(tunnel.listen).expect("connect");
    let sent: Vec<u8> = (0..8_000_000u32).map(|index| (index % 253) as u8).collect();
    let mut writer = stream.try_clone().expect("duplicate descriptor");
    let copy = sent.clone();
    let thread = std::thread::spawn(move || {
        writer.write_all(&copy).expect("write");
        writer
            .shutdown(std::net::Shutdown::Write)
            .expect("shut down the write side");
    });
    let mut received = Vec::new();
    (&stream)
        .read_to_end(&mut received)
        .expect("read to the end");
    thread.join().expect("thread panicked");
    assert!(
        received == sent,
        "{} of {} bytes received",
        received.len(),
        sent.len()
    );
}

#[test]
fn weight_0_keeps_sticky_clients_and_drain_does_not() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let sticky = "scheduler = \"rr\"\nsticky = { cookie = \"SRV\" }";
    let proxy = start_proxy("http", &format!("{}\n{sticky}", servers(&[&one, &two])), "");
    let mut client = Client::connect(proxy.listen);
    let (head, body) = client.fetch(GET);
    let cookie_value = head
        .lines()
        .find_map(|line| line.strip_prefix("Set-Cookie: SRV="))
        .and_then(|cookie| cookie.split(';').next())
        .expect("no cookie");
    let with_cookie = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV={cookie_value}\r\n\r\n");
    let (first, address) = match server_name(&body).as_str() {
        "one" => ("one", one.address()),
        _ => ("two", two.address()),
    };
    let server = format!("p/{address}");
    let (succeeded, output) = proxy.weir(&["server", &server, "weight", "0"]);
    assert!(succeeded, "{output}");
    for _ in 0..4 {
        assert_eq!(server_name(&client.fetch(&with_cookie).1), first);
        assert_ne!(server_name(&client.fetch(GET).1), first);
    }
    let (succeeded, output) = proxy.weir(&["server", &server, "drain"]);
    assert!(succeeded, "{output}");
    assert_ne!(server_name(&client.fetch(&with_cookie).1), first);
}
