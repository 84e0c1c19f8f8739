//! Tests clients that send a request body slowly.
//!
//! Weir connects to a server after it has buffered the body, or immediately if the body must not be buffered.

use super::h2_reset::{DATA, END_HEADERS, END_STREAM, HEADERS, connect_http2, frame};
use super::keeper::wait_until;
use super::scripted::{Action, ScriptedServer};
use super::*;

const HEAD: &str = "POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n";

/// Waits until Weir has read the heads of `count` requests.
fn wait_for_requests(proxy: &Proxy, count: u64) {
    wait_until("the heads of all requests are read", || {
        proxy.status()["services"][0]["requests"].as_u64() == Some(count)
    });
}

#[test]
fn slow_body_occupies_no_server_connection() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    client.send(HEAD);
    wait_for_requests(&proxy, 1);
    for _ in 0..99 {
        client.send("ten bytes.");
    }
    let mut stream = connect_http2(proxy.listen);
    let fields = [
        &[0x83, 0x86, 0x41, 1, b'a', 4, 4],
        &b"/sum"[..],
        &[0x0f, 0x0d, 2, b'1', b'2'],
    ];
    let head = frame(HEADERS, END_HEADERS, 1, &fields.concat());
    let frames = [head, frame(DATA, 0, 1, b"some")].concat();
    stream.write_all(&frames).expect("write");
    wait_for_requests(&proxy, 2);
    assert_eq!(origin.connections(), 0, "expected no server connection yet");
    client.send("ten bytes.");
    let (head, body) = client
        .read_response()
        .expect("read response")
        .expect("no response");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(String::from_utf8_lossy(&body), "1000");
    assert_eq!(origin.connections(), 1);
    // The connection also works if the next request arrives in the same read as the end of the body.
    client.send(HEAD);
    let (rest, next) = ("x".repeat(1000), "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for_requests(&proxy, 3);
    client.send(&(rest + next));
    for status in ["200", "200"] {
        let (head, _) = client
            .read_response()
            .expect("read response")
            .expect("no response");
        assert_eq!(head.split(' ').nth(1), Some(status), "{head}");
    }
    stream
        .write_all(&frame(DATA, END_STREAM, 1, b" content"))
        .expect("write");
    let content = loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).expect("read frame header");
        let mut payload = vec![0; usize::from(header[1]) << 8 | usize::from(header[2])];
        stream.read_exact(&mut payload).expect("read frame payload");
        if header[3] == DATA && !payload.is_empty() {
            break payload;
        }
    };
    assert_eq!(String::from_utf8_lossy(&content), "12");
}

#[test]
fn unbuffered_body_opens_server_connection_immediately() {
    let head = "POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n";
    let long_head = "POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let cases = [
        (
            "chunked",
            "",
            "POST /sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"
                .to_owned(),
        ),
        (
            "100-continue",
            "",
            format!("{head}Expect: 100-continue\r\n\r\n"),
        ),
        (
            "16 KiB of content",
            "",
            long_head.to_owned() + &"x".repeat(16 << 10),
        ),
        (
            "no buffering",
            "request_buffering = false",
            format!("{head}\r\n"),
        ),
    ];
    for (name, service_lines, request) in cases {
        let origin = Origin::start("o");
        let proxy = Proxy::start("http", &[origin.address()], service_lines);
        let mut client = Client::connect(proxy.listen);
        client.send(&request);
        wait_until(&format!("{name}: the server has a connection"), || {
            origin.connections() == 1
        });
    }
    // Weir buffers content that is one byte shorter than 16 KiB.
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    client.send(long_head);
    client.send(&"x".repeat((16 << 10) - 1));
    wait_until("all content has arrived", || {
        let bytes = proxy.status()["services"][0]["bytes_in"].as_u64();
        bytes >= Some((16 << 10) - 1 + long_head.len() as u64)
    });
    assert_eq!(origin.connections(), 0);
    client.send(&"x".repeat(100_000 - (16 << 10) + 1));
    let (_, body) = client
        .read_response()
        .expect("read response")
        .expect("no response");
    assert_eq!(String::from_utf8_lossy(&body), "100000");
}

#[test]
fn incomplete_body_opens_no_server_connection() {
    let origin = Origin::start("o");
    let limit = "timeouts = { client = \"300ms\" }";
    let proxy = Proxy::start("http", &[origin.address()], limit);
    let mut client = Client::connect(proxy.listen);
    let (head, _) = client.fetch(HEAD);
    assert!(head.starts_with("HTTP/1.1 408 "), "{head}");
    // The next client closes its connection.
    let mut client = Client::connect(proxy.listen);
    client.send(HEAD);
    wait_for_requests(&proxy, 2);
    drop(client);
    wait_until("the service has no client", || {
        proxy.status()["services"][0]["clients"].as_u64() == Some(0)
    });
    assert_eq!(origin.connections(), 0);
}

#[test]
fn idempotent_request_with_buffered_body_is_retried() {
    let good = Origin::start("good");
    let bad = ScriptedServer::start(vec![vec![Action::Read, Action::Close]]);
    let servers = [bad.address(), good.address()];
    let retry_on = "retry_on = [\"empty\"]";
    let proxy = Proxy::start("http", &servers, retry_on);
    let text = configuration(proxy.listen, "http", &servers, retry_on);
    let first = "[pool.p]\nscheduler = \"first\"\nmax_ejected = 0\n";
    proxy.reload(&text.replace("[pool.p]\n", first));
    for (method, status) in [("PUT", "200"), ("POST", "502")] {
        let mut client = Client::connect(proxy.listen);
        let before = proxy.status()["services"][0]["requests"].as_u64();
        client.send(&HEAD.replace("POST", method));
        wait_for_requests(&proxy, before.expect("not a number") + 1);
        client.send(&"x".repeat(1000));
        let (head, _) = client
            .read_response()
            .expect("read response")
            .expect("no response");
        assert_eq!(head.split(' ').nth(1), Some(status), "{method}: {head}");
    }
}
