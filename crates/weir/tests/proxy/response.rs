//! Tests how responses are handled: compression, error pages, tunnels, early hints and the total timeout.
//!
//! Also tests the header fields that describe the client to servers, and the retry budget.

use std::io::{Read, Write};
use std::time::Duration;

use super::scripted::{Action, ScriptedServer, send_text};
use super::{Client, GET, Origin, Proxy, free_address};

/// Reads until the connection ends or a read times out.
fn read_to_end(client: &mut Client) -> Vec<u8> {
    let mut received = Vec::new();
    let _ = client.0.read_to_end(&mut received);
    received
}

/// Returns the decoded content of a complete chunked body.
fn decode_chunks(mut body: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let end = body
            .windows(2)
            .position(|two| two == b"\r\n")
            .expect("incomplete chunk size");
        let size = std::str::from_utf8(&body[..end]).expect("chunk size is not UTF-8");
        let size = usize::from_str_radix(size, 16).expect("parse chunk size");
        body = &body[end + 2..];
        if size == 0 {
            assert_eq!(body, b"\r\n");
            return content;
        }
        content.extend_from_slice(&body[..size]);
        body = &body[size + 2..];
    }
}

/// Decompresses data with an independent program.
fn decompress(coding: &str, bytes: &[u8]) -> Vec<u8> {
    const BROTLI: &str =
        "process.stdout.write(require('zlib').brotliDecompressSync(require('fs').readFileSync(0)))";
    let program = match coding {
        "gzip" => ["gzip", "-dc"],
        "zstd" => ["zstd", "-dc"],
        "br" => ["node", "-e"],
        other => panic!("no program for {other}"),
    };
    let mut command = std::process::Command::new(program[0]);
    command.arg(program[1]);
    if coding == "br" {
        command.arg(BROTLI);
    }
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("start decoder");
    let mut input = child.stdin.take().expect("not piped");
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().expect("wait for the process");
    writer
        .join()
        .expect("thread panicked")
        .expect("write to the decoder");
    assert!(output.status.success());
    output.stdout
}

/// Starts a server that sends a response with these header lines and this body on each connection.
fn start_server(lines: &str, body: &str) -> ScriptedServer {
    let text = format!("HTTP/1.1 200 OK\r\n{lines}Connection: close\r\n\r\n{body}");
    ScriptedServer::start(vec![vec![Action::Read, send_text(&text), Action::Close]])
}

fn fetch(proxy: &Proxy, request: &str) -> (String, Vec<u8>) {
    let mut client = Client::connect(proxy.listen);
    client.send(request);
    let received = read_to_end(&mut client);
    let end = received
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .expect("incomplete head");
    let head = String::from_utf8_lossy(&received[..end + 4]).into_owned();
    (head, received[end + 4..].to_vec())
}

/// Returns a request with this `Accept-Encoding`.
fn request_accepting(codings: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: {codings}\r\nConnection: close\r\n\r\n")
}

#[test]
fn content_is_compressed_if_accepted() {
    let text = "All work and no play makes Jack a dull boy. ".repeat(400);
    let lines = format!(
        "Content-Type: text/html\r\nContent-Length: {}\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\nVary: Cookie\r\n",
        text.len()
    );
    let origin = start_server(&lines, &text);
    let proxy = Proxy::start("http", &[origin.address()], "compression = true");
    for coding in ["gzip", "br", "zstd"] {
        let (head, body) = fetch(
            &proxy,
            &request_accepting(&format!("deflate, {coding};q=0.5")),
        );
        for line in [
            &format!("Content-Encoding: {coding}\r\n"),
            "Transfer-Encoding: chunked\r\n",
            "Vary: Accept-Encoding\r\n",
            "Vary: Cookie\r\n",
            "ETag: W/\"v1\"\r\n",
        ] {
            assert_eq!(head.matches(line).count(), 1, "{line}: {head}");
        }
        for removed in ["Content-Length", "Accept-Ranges"] {
            assert!(!head.contains(removed), "{removed} is in {head}");
        }
        let content = decode_chunks(&body);
        assert!(content.len() < text.len() / 10, "{}", content.len());
        assert_eq!(decompress(coding, &content), text.as_bytes());
    }
    // Other clients receive the response uncompressed, and `Vary` informs caches that the response depends on the
    // request.
    let (head, body) = fetch(&proxy, &request_accepting("gzip;q=0, identity"));
    assert!(head.contains("ETag: \"v1\"\r\n") && head.contains("Vary: Accept-Encoding\r\n"));
    assert!(!head.contains("Content-Encoding"), "{head}");
    assert_eq!(body, text.as_bytes());
    // HTTP/1.0 has no chunked transfer coding.
    let (head, body) = fetch(
        &proxy,
        "GET / HTTP/1.0\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n",
    );
    assert!(!head.contains("Content-Encoding"), "{head}");
    assert_eq!(body, text.as_bytes());
    // The response to HEAD has the header fields of the response to GET.
    let (head, body) = fetch(
        &proxy,
        &request_accepting("gzip").replacen("GET", "HEAD", 1),
    );
    assert!(
        head.contains("Content-Encoding: gzip\r\n") && body.is_empty(),
        "{head}"
    );
}

#[test]
fn route_compression_overrides_service_compression() {
    let text = "All work and no play makes Jack a dull boy. ".repeat(400);
    let lines = format!(
        "Content-Type: text/html\r\nContent-Length: {}\r\n",
        text.len()
    );
    for (service, route, is_compressed) in [(false, true, true), (true, false, false)] {
        let origin = start_server(&lines, &text);
        let extra = format!(
            "compression = {service}\n\n[[route]]\nservice = \"s\"\npath = \"/\"\npool = \"p\"\ncompression = {route}"
        );
        let proxy = Proxy::start("http", &[origin.address()], &extra);
        let (head, _) = fetch(&proxy, &request_accepting("gzip"));
        assert_eq!(
            head.contains("Content-Encoding: gzip\r\n"),
            is_compressed,
            "{head}"
        );
    }
}

#[test]
fn content_that_must_not_be_transformed_is_not_compressed() {
    let text = "x".repeat(2000);
    for lines in [
        "Content-Type: text/html\r\nContent-Encoding: br\r\n",
        "Content-Type: text/html\r\nCache-Control: no-transform\r\n",
        "Content-Type: image/png\r\n",
        "",
    ] {
        let origin = start_server(&format!("{lines}Content-Length: 2000\r\n"), &text);
        let proxy = Proxy::start("http", &[origin.address()], "compression = true");
        let (head, body) = fetch(&proxy, &request_accepting("gzip"));
        assert!(!head.contains("Content-Encoding: gzip"), "{head}");
        assert!(head.contains("Content-Length: 2000\r\n"), "{head}");
        assert_eq!(body, text.as_bytes());
    }
    let partial = "HTTP/1.1 206 Partial Content\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/9\r\n\
     Content-Length: 2\r\n\r\nab";
    let origin = ScriptedServer::start(vec![vec![Action::Read, send_text(partial), Action::Close]]);
    let proxy = Proxy::start("http", &[origin.address()], "compression = true");
    let (head, body) = fetch(&proxy, &request_accepting("gzip"));
    assert!(
        head.contains("Content-Length: 2\r\n") && body == b"ab",
        "{head}"
    );
}

#[test]
fn compressed_streams_are_flushed() {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let origin = ScriptedServer::start(vec![vec![
        Action::Read,
        send_text(head),
        send_text("6\r\ndata1\n\r\n"),
        Action::Wait,
        send_text("6\r\ndata2\n\r\n0\r\n\r\n"),
    ]]);
    let proxy = Proxy::start(
        "http",
        &[origin.address()],
        "compression = { codings = [\"gzip\"] }",
    );
    let mut client = Client::connect(proxy.listen);
    client.send(&request_accepting("gzip"));
    // Read up to the end of a flush before the server continues.
    let mut received = Vec::new();
    let mut byte = [0u8; 1];
    while !received.ends_with(b"\x00\x00\xff\xff\r\n") {
        client
            .0
            .read_exact(&mut byte)
            .expect("read the first event");
        received.push(byte[0]);
    }
    origin.resume();
    received.extend(read_to_end(&mut client));
    let body = received
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .expect("incomplete head")
        + 4;
    assert_eq!(
        decompress("gzip", &decode_chunks(&received[body..])),
        b"data1\ndata2\n"
    );
}

#[test]
fn custom_error_pages_are_sent() {
    let proxy = Proxy::start("http", &[free_address()], "");
    let page = proxy.directory.join("later.html");
    std::fs::write(&page, "<h1>later</h1>").expect("write file");
    let listen = proxy.listen;
    let text = |file: &str| {
        super::configuration(
            listen,
            "http",
            &[free_address()],
            &format!(
                "error_pages = [{{ status = \"500-599\", file = \"{file}\" }}]\nlimits = {{ rate = 1, key = \
                 \"header:X\" }}"
            ),
        )
    };
    let file = proxy.directory.join("weir.toml");
    std::fs::write(&file, text("/nowhere/page.html")).expect("write file");
    let (succeeded, output) = proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")]);
    assert!(
        !succeeded && output.contains("/nowhere/page.html"),
        "{output}"
    );
    let (succeeded, output) = proxy.weir(&["reload", "-c", file.to_str().expect("not UTF-8")]);
    assert!(!succeeded, "{output}");
    proxy.reload(&text(page.to_str().expect("not UTF-8")));
    let mut client = Client::connect(listen);
    let (head, body) = client.fetch("GET / HTTP/1.1\r\nHost: h\r\nX: 1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(
        head.contains("Content-Type: text/html; charset=utf-8\r\n"),
        "{head}"
    );
    assert_eq!(body, b"<h1>later</h1>");
    // A status without a page has a plain-text body. 429 also has `Retry-After`.
    let (head, body) = (0..3)
        .map(|_| client.fetch("GET / HTTP/1.1\r\nHost: h\r\nX: 1\r\n\r\n"))
        .find(|(head, _)| head.starts_with("HTTP/1.1 429 "))
        .expect("no request was limited");
    assert!(head.contains("Retry-After: 1\r\n"), "{head}");
    assert_eq!(body, b"429 Too Many Requests\n");
}

#[test]
fn error_page_may_redirect_or_close_the_connection() {
    let pages = "error_pages = [{ status = 502, redirect = \"https://status.example/\", redirect_status = 303 }, { \
                 status = \"404-408\", file = \"/dev/null\" }]\ntimeouts = { request = \"300ms\" }\n[[route]]\nservice \
                 = \"s\"\npath = \"/closed\"\nstatus = 404";
    let proxy = Proxy::start("http", &[free_address()], pages);
    let mut client = Client::connect(proxy.listen);
    let (head, _) = client.fetch("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 303 "), "{head}");
    assert!(
        head.contains("Location: https://status.example/\r\n"),
        "{head}"
    );
    // The same connection serves the next request, and Weir closes it because of that request's error.
    client.send("GET /closed HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(read_to_end(&mut client), b"");
    // An incomplete request times out; the error page for this status also closes the connection.
    let mut client = Client::connect(proxy.listen);
    client.send("GET / HTTP/1.1\r\n");
    assert_eq!(read_to_end(&mut client), b"");
}

#[test]
fn values_of_response_fields_are_replaced() {
    let server = ScriptedServer::start(vec![vec![
        Action::Read,
        send_text(
            "HTTP/1.1 302 Found\r\nLocation: http://inside:8080/a?b\r\nSet-Cookie: a=1; Path=/app\r\nSet-Cookie: \
             b=2\r\nContent-Length: 0\r\n\r\n",
        ),
        Action::Drain,
    ]]);
    let settings = "replace_response_header = [{ name = \"Location\", regex = '^http://inside:8080/(.*)$', to = \
                    \"/{1}\" }]\n[[route]]\nservice = \"s\"\npool = \"p\"\nreplace_response_header = [{ name = \
                    \"set-cookie\", regex = '^(.*; *Path=)/app$', to = \"{1}/; Secure\" }]";
    let proxy = Proxy::start("http", &[server.address()], settings);
    let (head, _) = Client::connect(proxy.listen).fetch(GET);
    for line in [
        "Location: /a?b",
        "Set-Cookie: a=1; Path=/; Secure",
        "Set-Cookie: b=2",
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{head}");
    }
    assert!(!head.contains("inside"), "{head}");
}

#[test]
fn connect_opens_a_tunnel_if_enabled() {
    const CONNECT: &str = "CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n\r\n";
    let plain_origin = Origin::start("o");
    let proxy = Proxy::start("http", &[plain_origin.address()], "");
    let (head, _) = Client::connect(proxy.listen).fetch(CONNECT);
    assert!(
        head.starts_with("HTTP/1.1 405 ") && head.contains("Allow: "),
        "{head}"
    );

    let server = ScriptedServer::start(vec![
        vec![
            Action::Read,
            send_text("HTTP/1.1 200 Established\r\nContent-Length: 3\r\n\r\nhello "),
            Action::Drain,
        ],
        vec![
            Action::Read,
            send_text("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"),
        ],
    ]);
    // The client shuts down its write side before the response. By default, this aborts the request if Weir detects the
    // shutdown in time.
    let proxy = Proxy::start(
        "http",
        &[server.address()],
        "connect = true\nabort_on_close = false",
    );
    let mut client = Client::connect(proxy.listen);
    // Bytes after the head belong to the tunnel, regardless of their content.
    client.send(&format!("{CONNECT}GET /smuggled HTTP/1.1\r\n\r\n"));
    client
        .0
        .shutdown(std::net::Shutdown::Write)
        .expect("shut down the write side");
    let forwarded = server.receive();
    assert!(
        forwarded.starts_with("CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n"),
        "{forwarded}"
    );
    assert_eq!(server.receive(), "GET /smuggled HTTP/1.1\r\n\r\n");
    assert!(server.has_no_further_message());
    let received = String::from_utf8_lossy(&read_to_end(&mut client)).into_owned();
    assert!(
        received.starts_with("HTTP/1.1 200 Established\r\n"),
        "{received}"
    );
    assert!(
        !received.contains("Content-Length") && received.ends_with("\r\n\r\nhello "),
        "{received}"
    );
    // A rejected CONNECT gets an ordinary response.
    let (head, body) = Client::connect(proxy.listen).fetch(CONNECT);
    assert!(head.starts_with("HTTP/1.1 403 ") && body == b"no", "{head}");
    for invalid in [
        "CONNECT far.example HTTP/1.1\r\nHost: far.example\r\n\r\n",
        "CONNECT /path HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        let (head, _) = Client::connect(proxy.listen).fetch(invalid);
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    }
}

#[test]
fn early_hints_precede_the_response() {
    let origin = ScriptedServer::start(vec![vec![
        Action::Read,
        send_text("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"),
        Action::Wait,
        send_text("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    ]]);
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    let (hints, _) = client.fetch(GET);
    assert_eq!(
        hints,
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
    );
    origin.resume();
    let (head, body) = client
        .read_response()
        .expect("read response")
        .expect("no response");
    assert!(head.starts_with("HTTP/1.1 200 ") && body == b"ok", "{head}");
}

#[test]
fn forwarded_field_describes_the_client() {
    let origin = Origin::start("o");
    let forward = |service_lines: &str, request: &str| {
        let proxy = Proxy::start("http", &[origin.address()], service_lines);
        String::from_utf8_lossy(&Client::connect(proxy.listen).fetch(request).1).into_owned()
    };
    let claims = "GET / HTTP/1.1\r\nHost: h:81\r\nForwarded: for=192.0.2.9\r\nX-Forwarded-For: 192.0.2.9\r\n\r\n";
    let forwarded = forward("forwarded = \"rfc7239\"", claims);
    assert!(
        forwarded.contains("\r\nForwarded: for=127.0.0.1;host=\"h:81\";proto=http\r\n"),
        "{forwarded}"
    );
    assert!(
        !forwarded.contains("X-Forwarded") && !forwarded.contains("192.0.2.9"),
        "{forwarded}"
    );
    let forwarded = forward("forwarded = \"both\"\ntrusted = [\"127.0.0.0/8\"]", claims);
    assert!(
        forwarded
            .contains("\r\nForwarded: for=192.0.2.9, for=127.0.0.1;host=\"h:81\";proto=http\r\n")
            && forwarded.contains("\r\nX-Forwarded-For: 192.0.2.9, 127.0.0.1\r\n"),
        "{forwarded}"
    );
    let forwarded = forward("", claims);
    assert!(!forwarded.contains("\r\nForwarded:"), "{forwarded}");
    assert!(forwarded.contains("\r\nVia: 1.1 weir\r\n"), "{forwarded}");
    let forwarded = forward("", "GET / HTTP/1.0\r\n\r\n");
    assert!(forwarded.contains("\r\nVia: 1.0 weir\r\n"), "{forwarded}");
}

#[test]
fn total_timeout_causes_504_or_truncates_response() {
    // Each part arrives well within the server's timeout.
    let slow_server = ScriptedServer::start(vec![vec![
        Action::Read,
        send_text("HTTP/1.1 103 Early Hints\r\n\r\n"),
        Action::Wait,
        Action::Wait,
    ]]);
    let proxy = Proxy::start(
        "http",
        &[slow_server.address()],
        "timeouts = { total = \"500ms\" }",
    );
    let mut client = Client::connect(proxy.listen);
    client.send(GET);
    let (hints, _) = client
        .read_response()
        .expect("read response")
        .expect("no early hints");
    assert!(hints.starts_with("HTTP/1.1 103 "), "{hints}");
    let (head, _) = client
        .read_response()
        .expect("read response")
        .expect("no response");
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
    // Weir truncates a response that has begun, and the client can detect this.
    let endless = ScriptedServer::start(vec![vec![
        Action::Read,
        send_text("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
        Action::Wait,
    ]]);
    let proxy = Proxy::start(
        "http",
        &[endless.address()],
        "timeouts = { total = \"500ms\" }",
    );
    let mut client = Client::connect(proxy.listen);
    client
        .0
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("set read timeout");
    client.send(GET);
    let received = String::from_utf8_lossy(&read_to_end(&mut client)).into_owned();
    assert!(received.ends_with("\r\n\r\nhalf"), "{received}");
}

#[test]
fn retry_budget_limits_retries() {
    // Both servers read the request and close the connection without a response.
    let first_server = ScriptedServer::start(vec![vec![Action::Read, Action::Close]]);
    let second_server = ScriptedServer::start(vec![vec![Action::Read, Action::Close]]);
    let proxy = Proxy::start(
        "http",
        &[first_server.address(), second_server.address()],
        "limits = { retry_budget = 0, idle_servers = 0 }",
    );
    // Send requests until the initial budget is used up. The budget is five hundred retries for each worker, plus ten
    // per second.
    let mut requests = 0;
    let mut before = 0;
    loop {
        for _ in 0..200 {
            Client::connect(proxy.listen).fetch(GET);
        }
        requests += 200;
        let retries = proxy.status()["services"][0]["retries"]
            .as_u64()
            .expect("not a number");
        if retries - before < 100 {
            break;
        }
        before = retries;
        assert!(
            requests < 50_000,
            "{retries} retries of {requests} requests"
        );
    }
}
