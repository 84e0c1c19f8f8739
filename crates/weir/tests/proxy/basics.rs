//! Tests the basic behavior of proxy services: balancing, framing, header fields, tunnels, errors, routes and restarts.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weir_testing::free_address;

use super::{Client, GET, Origin, Proxy, configuration};

#[test]
fn requests_on_one_connection_are_balanced_and_server_connections_reused() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[one.address(), two.address()], "");
    let mut client = Client::connect(proxy.listen);
    let mut counts = [0, 0];
    for _ in 0..64 {
        let (head, body) = client.fetch(GET);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        counts[usize::from(body.starts_with(b"two\n"))] += 1;
    }
    // With a fair scheduler, a server gets fewer than 13 of 64 requests in only one run in a million.
    assert!(counts.iter().all(|count| *count >= 13), "{counts:?}");
    assert_eq!(
        one.connections() + two.connections(),
        2,
        "expected one connection to each server"
    );
    let status = proxy.status();
    let service = &status["services"][0];
    assert_eq!(
        (
            service["requests"].as_u64(),
            service["connections"].as_u64()
        ),
        (Some(64), Some(1)),
        "{service:#}"
    );
    assert_eq!(
        (service["forward"].as_str(), service["protocol"].as_str()),
        (Some("proxy"), Some("http"))
    );
    assert!(
        !proxy.directory.join("pins").exists(),
        "a proxy service must not pin BPF objects"
    );
}

#[test]
fn client_address_headers_cannot_be_spoofed() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    let (_, body) = client.fetch(
        "GET /x HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, X-Secret\r\nX-Secret: 1\r\nX-Forwarded-For: \
         192.0.2.9\r\n\
         X-Real-IP: 192.0.2.9\r\nKeep-Alive: 5\r\nAccept: */*\r\n\r\n",
    );
    let forwarded = String::from_utf8_lossy(&body).into_owned();
    assert!(
        forwarded.contains("GET /x HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n"),
        "{forwarded}"
    );
    assert!(
        forwarded
            .contains("X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nVia: 1.1 weir\r\n"),
        "{forwarded}"
    );
    for removed in ["X-Secret", "192.0.2.9", "Keep-Alive"] {
        assert!(!forwarded.contains(removed), "{removed} is in {forwarded}");
    }
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        "trusted = [\"127.0.0.0/8\"]",
    ));
    let (_, body) = client.fetch(
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.9\r\nX-Forwarded-Proto: https\r\n\
     \r\n",
    );
    let forwarded = String::from_utf8_lossy(&body).into_owned();
    assert!(
        forwarded.contains("X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.9, 127.0.0.1\r\n"),
        "{forwarded}"
    );
}

#[test]
fn bodies_are_forwarded_in_every_framing() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    let large = "x".repeat(3_000_000);
    let (_, body) = client.fetch(&format!(
        "POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{large}",
        large.len()
    ));
    assert_eq!(body, large.len().to_string().as_bytes());
    let chunked = "POST /sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n\
     0\r\nT: v\r\n\r\n";
    let (_, body) = client.fetch(chunked);
    assert_eq!(body, b"11");
    // Send two and a half requests in one segment, and then the rest.
    client.send(&format!("{chunked}{GET}GET /sum HT"));
    assert_eq!(client.read_response().unwrap().unwrap().1, b"11");
    assert!(client.read_response().unwrap().is_some());
    assert_eq!(client.fetch("TP/1.1\r\nHost: a\r\n\r\n").1, b"0");
    // The response ends with the server's connection.
    client.send("GET /until-close HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut response = String::new();
    client.0.read_to_string(&mut response).unwrap();
    assert!(
        response.contains("Connection: close\r\n") && response.ends_with("\r\n\r\nuntil the end"),
        "{response}"
    );
    // HTTP/1.0 has no chunked transfer coding.
    let mut http10_client = Client::connect(proxy.listen);
    http10_client.send("GET /chunked HTTP/1.0\r\n\r\n");
    let mut text = String::new();
    http10_client.0.read_to_string(&mut text).unwrap();
    assert!(
        text.ends_with("\r\n\r\nin two parts") && !text.contains("chunked"),
        "{text}"
    );
}

#[test]
fn invalid_requests_are_rejected_without_contacting_a_server() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    for (request, status) in [
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
            400,
        ),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ] {
        let mut client = Client::connect(proxy.listen);
        let (head, _) = client.fetch(request);
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request:?}: {head}"
        );
        assert!(head.contains("Connection: close"), "{head}");
        assert!(
            matches!(client.read_response(), Ok(None)),
            "{request:?}: the connection must be closed"
        );
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn upgraded_connection_is_tunneled() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    let (head, _) = client
        .fetch("GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 101 ") && head.contains("Upgrade: echo"),
        "{head}"
    );
    client.send("hello, world\n");
    let mut echo = [0; 13];
    client.0.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"hello, world\n");
}

#[test]
fn unreachable_server_causes_502_and_drained_server_causes_503() {
    let origin = Origin::start("o");
    let dead = free_address();
    let proxy = Proxy::start("http", &[dead], "");
    let mut client = Client::connect(proxy.listen);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 502 "));
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        "",
    ));
    assert!(
        client.fetch(GET).0.starts_with("HTTP/1.1 200 "),
        "the client's connection must stay open"
    );
    let name = format!("p/{}", origin.address());
    assert!(proxy.weir(&["server", &name, "drain"]).0);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 503 "));
    let server = &proxy.status()["services"][0]["servers"][0];
    assert_eq!(
        (
            server["state"].as_str(),
            server["effective_weight"].as_u64()
        ),
        (Some("drain"), Some(0))
    );
    let silent = configuration(proxy.listen, "http", &[origin.address()], "")
        .replace("[pool.p]\n", "[pool.p]\nno_server = \"drop\"\n");
    proxy.reload(&silent);
    client.send(GET);
    assert!(
        matches!(client.read_response(), Ok(None)),
        "expected end of stream without a response"
    );
    let mut client = Client::connect(proxy.listen);
    assert!(proxy.weir(&["server", &name, "ready"]).0);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200 "));
}

#[test]
fn silent_server_causes_504_and_slow_request_head_causes_408() {
    let origin = Origin::start("o");
    let proxy = Proxy::start(
        "http",
        &[origin.address()],
        "timeouts = { server = \"300ms\", request = \"300ms\" }",
    );
    let mut client = Client::connect(proxy.listen);
    assert!(
        client
            .fetch("GET /silence HTTP/1.1\r\nHost: a\r\n\r\n")
            .0
            .starts_with("HTTP/1.1 504 ")
    );
    let mut client = Client::connect(proxy.listen);
    assert!(
        client
            .fetch("GET / HTTP/1.1\r\nHo")
            .0
            .starts_with("HTTP/1.1 408 ")
    );
}

#[test]
fn tcp_directions_close_independently() {
    let origin = Origin::start_tcp();
    let proxy = Proxy::start("tcp", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    let large = vec![7u8; 5_000_000];
    let (mut sender, data) = (client.0.try_clone().unwrap(), large.clone());
    let writer = std::thread::spawn(move || {
        sender.write_all(&data).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    client.0.read_to_end(&mut received).unwrap();
    writer.join().unwrap();
    assert!(
        received == large,
        "{} of {} bytes received",
        received.len(),
        large.len()
    );
}

#[test]
fn open_requests_finish_after_sigterm() {
    let origin = Origin::start("o");
    let mut proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    client.fetch(GET);
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_for_slow();
    let listen = proxy.listen;
    let reader = std::thread::spawn(move || {
        let response = client.read_response();
        (response, client)
    });
    let status = proxy.terminate();
    let (response, _client) = reader.join().unwrap();
    let (head, body) = response.unwrap().unwrap();
    assert!(
        head.contains("Connection: close") && body == b"slow",
        "{head}"
    );
    assert!(status.success(), "{status}");
    assert!(TcpStream::connect(listen).is_err());
}

#[test]
fn counters_survive_restart_and_crash() {
    let origin = Origin::start("o");
    let mut proxy = Proxy::start("http", &[origin.address()], "");
    let fetch = |proxy: &Proxy, times: usize| {
        let mut client = Client::connect(proxy.listen);
        (0..times).for_each(|_| drop(client.fetch(GET)));
    };
    let counters = |proxy: &Proxy| {
        let service = &proxy.status()["services"][0];
        let server = &service["servers"][0];
        let number = |value: &serde_json::Value| value.as_u64().expect("not a number");
        (
            number(&service["requests"]),
            number(&service["responses"][1]),
            number(&server["connections"]),
        )
    };
    fetch(&proxy, 5);
    let before = counters(&proxy);
    assert_eq!((before.0, before.1), (5, 5));
    assert!(proxy.terminate().success());
    proxy.start_again();
    assert_eq!(counters(&proxy), before);
    fetch(&proxy, 2);
    let before = counters(&proxy);
    assert_eq!(before.0, 7);
    let file = proxy.directory.join("run/proxy-left.json");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !fs::read_to_string(&file).is_ok_and(|text| text.contains(",7,")) {
        assert!(Instant::now() < deadline, "the counters are not saved");
        std::thread::sleep(Duration::from_millis(20));
    }
    proxy.child.kill().expect("send signal");
    proxy.child.wait().expect("wait for the process");
    proxy.start_again();
    assert_eq!(counters(&proxy), before);
}

#[test]
fn proxy_runs_without_privileges() {
    if !weir_testing::require_root() {
        return;
    }
    let directory =
        std::env::temp_dir().join(format!("weir-proxy-rootless-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let listen = free_address();
    let origin = Origin::start("o");
    fs::write(
        directory.join("weir.toml"),
        configuration(listen, "http", &[origin.address()], ""),
    )
    .unwrap();
    // Copy the program, because the build directory may be inaccessible to other users. Another process makes the copy:
    // otherwise, a child that another test starts could inherit the descriptor open for writing, and the file could not
    // be executed (ETXTBSY).
    let sh = "cp \"$1\" \"$2/weir\" && chown -R 65534:65534 \"$2\"";
    let copy_status = Command::new("sh")
        .args(["-c", sh, "sh", env!("CARGO_BIN_EXE_weir")])
        .arg(&directory)
        .status();
    assert!(copy_status.unwrap().success());
    let mut child = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--bounding-set=-all",
            "--pdeathsig=KILL",
        ])
        .arg(directory.join("weir"))
        .args(["run", "-c"])
        .arg(directory.join("weir.toml"))
        .env("WEIR_RUNTIME_DIR", directory.join("run"))
        .stdin(Stdio::null())
        .stderr(fs::File::create(directory.join("log")).unwrap())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(listen).is_err() {
        let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
        assert!(
            Instant::now() < deadline && child.try_wait().unwrap().is_none(),
            "{log}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        Client::connect(listen)
            .fetch(GET)
            .0
            .starts_with("HTTP/1.1 200 ")
    );
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn routes_select_pools_redirects_or_responses() {
    let (web, images) = (Origin::start("web"), Origin::start("images"));
    let proxy = Proxy::start("http", &[web.address()], "");
    let routes = format!(
        "\n[pool.images]\nservers = [\"{}\"]\n\n[[route]]\nservice = \"s\"\nhost = \"*.static.example\"\npath = \
         \"/img/*\"\npool = \
         \"images\"\n\n[[route]]\nservice = \"s\"\npath = \"/old/*\"\nredirect = \"https://{{host}}{{path}}\"\nstatus \
         = 308\n\n\
         [[route]]\nservice = \"s\"\nmethod = [\"DELETE\"]\nstatus = 403\nbody = \"never\"\n",
        images.address()
    );
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[web.address()],
        &routes,
    ));
    let mut client = Client::connect(proxy.listen);
    let mut fetch = |method: &str, host: &str, path: &str| {
        let (head, body) =
            client.fetch(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        (head, String::from_utf8_lossy(&body).into_owned())
    };
    assert!(
        fetch("GET", "a.static.example:80", "/img/x?y")
            .1
            .starts_with("images\n")
    );
    assert!(
        fetch("GET", "static.example", "/img/x")
            .1
            .starts_with("web\n")
    );
    let (head, _) = fetch("GET", "b.example", "/old/x?y=1");
    assert!(
        head.starts_with("HTTP/1.1 308 ")
            && head.contains("Location: https://b.example/old/x?y=1\r\n"),
        "{head}"
    );
    let (head, body) = fetch("DELETE", "b.example", "/");
    assert!(
        head.starts_with("HTTP/1.1 403 ") && body == "never",
        "{head}"
    );
    assert!(
        fetch("GET", "b.example", "/").1.starts_with("web\n"),
        "the connection must stay open"
    );
    let port = proxy.listen.port();
    let explain = |url: &str| {
        proxy
            .weir(&["explain", "--request", &format!("GET http://{url}")])
            .1
    };
    let output = explain(&format!("a.static.example:{port}/img/x"));
    let selection = format!(
        "service s forwards the request to {}, the only usable server of pool images\n",
        images.address()
    );
    assert!(
        output.contains("-> pool images) matches\n") && output.ends_with(&selection),
        "{output}"
    );
    let output = explain(&format!("b.example:{port}/old/x"));
    assert!(
        output.ends_with("redirect 308 to https://b.example/old/x\n"),
        "{output}"
    );
    let status = proxy.status();
    let servers = status["services"][0]["servers"].as_array().unwrap();
    let addresses: Vec<Option<&str>> = servers
        .iter()
        .map(|server| server["address"].as_str())
        .collect();
    assert_eq!(
        addresses,
        [
            Some(web.address().to_string().as_str()),
            Some(images.address().to_string().as_str())
        ]
    );
}
