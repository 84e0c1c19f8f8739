//! Tests that every wait ends after its timeout. The modules `basics` and `response` test other timeouts.

use super::scripted::{Action, ScriptedServer, send_text};
use super::*;

/// Reads until the connection ends. The test's limit is much shorter than the default timeouts.
fn read_to_end(client: &mut Client) -> String {
    client
        .0
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("set read timeout");
    let mut all = Vec::new();
    // A reset also counts as the end.
    match client.0.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn idle_client_is_closed() {
    let origin = Origin::start("o");
    let proxy = Proxy::start(
        "http",
        &[origin.address()],
        "timeouts = { idle = \"200ms\" }",
    );
    let mut client = Client::connect(proxy.listen);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200"));
    assert_eq!(read_to_end(&mut client), "");
    // Weir also closes the connection to the server.
    let deadline = Instant::now() + Duration::from_secs(30);
    while proxy.status()["services"][0]["servers"][0]["inactive_connections"] != 0 {
        assert!(
            Instant::now() < deadline,
            "the server connection is still open"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn missing_body_causes_408() {
    let server = ScriptedServer::start(vec![vec![Action::Drain]]);
    let limit = "timeouts = { client = \"200ms\" }";
    let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nnot all";
    let proxy = Proxy::start("http", &[server.address()], limit);
    let mut client = Client::connect(proxy.listen);
    client.send(request);
    let output = read_to_end(&mut client);
    assert!(output.starts_with("HTTP/1.1 408 "), "{output}");
    assert!(
        server.has_no_further_message(),
        "the server received a request"
    );
    let extra = format!("{limit}\nrequest_buffering = false");
    let unbuffered = configuration(proxy.listen, "http", &[server.address()], &extra);
    proxy.reload(&unbuffered);
    let mut client = Client::connect(proxy.listen);
    client.send(request);
    let output = read_to_end(&mut client);
    assert!(output.starts_with("HTTP/1.1 408 "), "{output}");
    assert!(server.receive().ends_with("not all"));
}

#[test]
fn slow_body_exceeding_total_timeout_causes_504() {
    let server = ScriptedServer::start(vec![vec![Action::Drain]]);
    let proxy = Proxy::start(
        "http",
        &[server.address()],
        "timeouts = { total = \"200ms\" }",
    );
    let mut client = Client::connect(proxy.listen);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nnot all");
    let output = read_to_end(&mut client);
    assert!(output.starts_with("HTTP/1.1 504 "), "{output}");
}

/// The body is much larger than the socket buffers, and the server does not read it. The client is not at fault.
#[test]
fn body_not_read_by_server_causes_504() {
    let size = 64 << 20;
    for coding in ["Content-Length: 67108864", "Transfer-Encoding: chunked"] {
        let server = ScriptedServer::start(vec![vec![Action::Wait]]);
        let proxy = Proxy::start(
            "http",
            &[server.address()],
            "timeouts = { client = \"2s\", server = \"200ms\" }",
        );
        let mut client = Client::connect(proxy.listen);
        client.send(&format!("POST / HTTP/1.1\r\nHost: a\r\n{coding}\r\n\r\n"));
        let mut sender = client.0.try_clone().expect("duplicate descriptor");
        std::thread::spawn(move || {
            let _ = sender.write_all(b"4000000\r\n");
            // Weir closes the connection before the client has sent the whole body.
            let _ = sender.write_all(&vec![b'x'; size]);
        });
        let output = read_to_end(&mut client);
        assert!(output.starts_with("HTTP/1.1 504 "), "{coding}: {output}");
    }
}

/// The body is much larger than the socket buffers, and the client does not read it.
#[test]
fn client_that_does_not_read_is_closed() {
    let size = 64 << 20;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
    let server = ScriptedServer::start(vec![vec![
        Action::Read,
        send_text(&head),
        Action::Send(vec![b'x'; size]),
    ]]);
    let proxy = Proxy::start(
        "http",
        &[server.address()],
        "timeouts = { client = \"200ms\" }",
    );
    let mut client = Client::connect(proxy.listen);
    client.send(GET);
    // Once the server has the request, the connection counts as a client.
    server.receive();
    let deadline = Instant::now() + Duration::from_secs(30);
    while proxy.status()["services"][0]["clients"] != 0 {
        assert!(Instant::now() < deadline, "the client is still connected");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(read_to_end(&mut client).len() < size);
}

#[test]
fn stalled_response_is_truncated() {
    let server = ScriptedServer::start(vec![vec![
        Action::Read,
        send_text("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
        Action::Drain,
    ]]);
    // `response` limits only the time until the first byte.
    let proxy = Proxy::start(
        "http",
        &[server.address()],
        "timeouts = { server = \"200ms\", response = \"5m\" }",
    );
    let mut client = Client::connect(proxy.listen);
    client.send(GET);
    let output = read_to_end(&mut client);
    assert!(output.ends_with("\r\n\r\nhalf"), "{output}");
}

#[test]
fn response_start_has_its_own_timeout() {
    let server = ScriptedServer::start(vec![vec![Action::Read, Action::Drain]]);
    let proxy = Proxy::start(
        "http",
        &[server.address()],
        "timeouts = { server = \"5m\", response = \"200ms\" }",
    );
    let (head, _) = Client::connect(proxy.listen).fetch(GET);
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
}

/// A listener with a full backlog does not respond.
#[test]
fn server_that_does_not_accept_causes_504() {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .expect("create socket");
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("bind a listener");
    rustix::net::listen(&socket, 0).expect("listen");
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().expect("get local address");
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        queue.push(stream);
    }
    let proxy = Proxy::start("http", &[address], "timeouts = { connect = \"200ms\" }");
    let (head, _) = Client::connect(proxy.listen).fetch(GET);
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
}

#[test]
fn silent_tunnel_is_closed() {
    let server = ScriptedServer::start(vec![vec![Action::Drain]]);
    let proxy = Proxy::start(
        "tcp",
        &[server.address()],
        "timeouts = { tunnel = \"200ms\" }",
    );
    let mut client = Client::connect(proxy.listen);
    client.send("hello");
    assert_eq!(read_to_end(&mut client), "");
    assert_eq!(server.receive(), "hello");
}

/// The access log shows which pool was full or slow, and the duration.
#[test]
fn log_shows_timings_of_failures() {
    let origin = Origin::start("o");
    let directory = std::env::temp_dir().join(format!("weir-log3-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("create directory");
    let file = directory.join("access.log");
    let format = "{target} {status} {pool} {server} {end} {queue_ms} {response_ms}";
    let proxy = Proxy::start("http", &[], "");
    let text = configuration(
        proxy.listen,
        "http",
        &[],
        &format!(
            "access_log = {{ path = \"{}\", format = \"{format}\" }}\ntimeouts = {{ response = \"300ms\" }}",
            file.display()
        ),
    );
    proxy.reload(&text.replace(
        "servers = []",
        &format!(
            "servers = [{{ address = \"{}\", max_connections = 1 }}]\nqueue_timeout = \"200ms\"",
            origin.address()
        ),
    ));
    let mut first = Client::connect(proxy.listen);
    first.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_for_slow();
    let mut second = Client::connect(proxy.listen);
    assert!(second.fetch(GET).0.starts_with("HTTP/1.1 503 "));
    let response = first
        .read_response()
        .expect("read response")
        .expect("no response");
    assert!(response.0.starts_with("HTTP/1.1 504 "), "{}", response.0);
    let read = || fs::read_to_string(&file).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(10);
    while read().lines().count() < 2 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let log_text = read();
    let line = |target: &str| {
        let found = log_text.lines().find(|line| line.starts_with(target));
        let words = found.expect("no line for the target").split(' ');
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let ms = |text: &str| text.parse::<f64>().expect("parse number");
    let full = line("/ ");
    assert_eq!(full[1..5], ["503", "p", "", "sQ"], "{log_text}");
    assert!(ms(&full[5]) >= 150.0, "{log_text}");
    let slow = line("/slow ");
    let server = origin.address().to_string();
    assert_eq!(
        slow[1..5],
        ["504", "p", server.as_str(), "sH"],
        "{log_text}"
    );
    assert!(ms(&slow[6]) >= 250.0, "{log_text}");
    let _ = fs::remove_dir_all(&directory);
}
