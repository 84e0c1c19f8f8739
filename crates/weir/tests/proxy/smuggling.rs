//! Requests made to be understood in two ways, through Weir to nginx: both must count the same requests. What Weir takes for a
//! body and nginx for a request would show as a line too many in nginx's log.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Seat, free_address};

const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";

struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ways to write that a body is chunked, right ones and wrong ones.
fn codings() -> Vec<String> {
    let mut lines: Vec<String> = [
        "chunked",
        "Chunked",
        "CHUNKED",
        " chunked",
        "\tchunked",
        "chunked ",
        "chunked\t",
        "chunked, identity",
        "identity, chunked",
        "chunked,",
        ",chunked",
        "chunked;",
        "chunked; q=1",
        "\"chunked\"",
        "'chunked'",
        "x-chunked",
        "chunkedx",
        "chunk",
        "gzip",
        "",
        "\u{b}chunked",
        "chunked\u{b}",
        "\0chunked",
        "chunked\r",
        "\u{a0}chunked",
        "chunked chunked",
        "chunked, chunked",
    ]
    .into_iter()
    .map(|value| format!("Transfer-Encoding:{value}\r\n"))
    .collect();
    lines.extend(
        [
            "Transfer-Encoding : chunked\r\n",
            "Transfer-Encoding\t: chunked\r\n",
            " Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding:\r\n chunked\r\n",
            "Transfer-Encoding\r\n: chunked\r\n",
            "X: y\r\n Transfer-Encoding: chunked\r\n",
            "X: y\nTransfer-Encoding: chunked\r\n",
            "X: y\rTransfer-Encoding: chunked\r\n",
            "Transfer_Encoding: chunked\r\n",
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
            "TE: trailers\r\nTransfer-Encoding: chunked\r\n",
        ]
        .map(str::to_owned),
    );
    lines
}

fn lengths() -> Vec<String> {
    let body = HIDDEN.len();
    let mut lines: Vec<String> = [
        format!("{body}"),
        "0".to_owned(),
        "3".to_owned(),
        format!("+{body}"),
        format!("-{body}"),
        format!(" {body} "),
        format!("0{body}"),
        format!("0x{body:x}"),
        format!("{body}, {body}"),
        format!("{body},0"),
        format!("{body};0"),
        format!("{body} 0"),
        "1e2".to_owned(),
        format!("\"{body}\""),
        String::new(),
        "99999999999999999999".to_owned(),
        format!("{body}\u{b}"),
    ]
    .into_iter()
    .map(|value| format!("Content-Length:{value}\r\n"))
    .collect();
    lines.push(format!(
        "Content-Length: {body}\r\nContent-Length: {body}\r\n"
    ));
    lines.push(format!("Content-Length: 0\r\nContent-Length: {body}\r\n"));
    lines.push(format!("Content-Length : {body}\r\n"));
    lines.push(format!("Content_Length: {body}\r\n"));
    lines.push(format!(
        "Connection: Content-Length\r\nContent-Length: {body}\r\n"
    ));
    lines.push(format!("Content-Length:\r\n {body}\r\n"));
    lines
}

/// Every attempt, each to be sent on a connection of its own.
fn attempts() -> Vec<String> {
    let mut attempts = Vec::new();
    let post =
        |fields: &str, body: &str| format!("POST /open HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}");
    let chunked = format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len());
    for coding in codings() {
        for body in [
            format!("0\r\n\r\n{HIDDEN}"),
            chunked.clone(),
            HIDDEN.to_owned(),
        ] {
            attempts.push(post(&coding, &body));
            attempts.push(post(
                &format!("Content-Length: {}\r\n{coding}", body.len()),
                &body,
            ));
            attempts.push(post(&format!("{coding}Content-Length: 4\r\n"), &body));
        }
    }
    for length in lengths() {
        attempts.push(post(&length, HIDDEN));
        attempts.push(format!(
            "GET /open HTTP/1.1\r\nHost: a\r\n{length}\r\n{HIDDEN}"
        ));
        attempts.push(format!(
            "POST /open HTTP/1.0\r\n{length}Connection: keep-alive\r\n\r\n{HIDDEN}"
        ));
    }
    for size in [
        "0",
        "00",
        "0x0",
        "+0",
        "-0",
        " 0",
        "0 ",
        "0\t",
        "0;x",
        "0;x=\"\n\"",
        "0;x\r",
        "g",
        "",
        "\n0",
        "0\u{b}",
        "10000000000000000",
    ] {
        for end in [
            "\r\n\r\n",
            "\n\n",
            "\r\r",
            "\r\n\n",
            "\r\nX: y\r\n\r\n",
            "\r\nContent-Length: 9\r\n\r\n",
            "\r\n X: y\r\n\r\n",
        ] {
            attempts.push(post(
                "Transfer-Encoding: chunked\r\n",
                &format!("{size}{end}{HIDDEN}"),
            ));
            attempts.push(post(
                "Transfer-Encoding: chunked\r\n",
                &format!("1\r\nx\r\n{size}{end}{HIDDEN}"),
            ));
        }
    }
    for line in [
        "GET /open HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/open HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET /open HTTP/1.1\r\nHost: a\r\nX: y\n\n",
        "GET /open\r\n\r\n",
        "GET /open HTTP/1.1\nHost: a\n\n",
        "\r\n\r\nGET /open HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /open HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
        "HEAD /open HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "GET /open HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
    ] {
        attempts.push(format!("{line}{HIDDEN}"));
    }
    attempts
}

#[test]
fn nginx_and_weir_count_the_same_requests() {
    let directory = std::env::temp_dir().join(format!("weir-smuggling-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let address = free_address();
    let (log, file) = (directory.join("log"), directory.join("nginx.conf"));
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {}/{kind};", directory.display()))
        .join(" ");
    let text = format!(
        "daemon off; master_process off; pid {0}/pid; error_log {0}/err;\nevents {{}}\nhttp {{ {temporary} log_format l '$request_uri'; \
         access_log {0}/log l; keepalive_requests 1000000; server {{ listen {address}; location / {{ return 200 ok; }} }} }}\n",
        directory.display()
    );
    fs::write(&file, text).unwrap();
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let child = Command::new("nginx")
        .env("PATH", path)
        .arg("-c")
        .arg(&file)
        .stderr(Stdio::null())
        .spawn()
        .expect("nginx is installed");
    let _nginx = Nginx(child);
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "nginx does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let seat = Seat::start(
        "http",
        &[address],
        "http2 = false\ntimeouts = { request = \"2s\", client = \"2s\", server = \"2s\" }",
    );
    let attempts = attempts();
    assert!(attempts.len() >= 300, "{} attempts", attempts.len());
    let mut refused = 0;
    for attempt in &attempts {
        let mut client = TcpStream::connect(seat.listen).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        // It may be refused before it is all sent.
        let _ = client.write_all(attempt.as_bytes());
        let _ = client.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        refused += usize::from(answer.starts_with(b"HTTP/1.1 400 "));
    }
    let service = &seat.status()["services"][0];
    let (counted, retries) = (
        service["requests"].as_u64().unwrap(),
        service["retries"].as_u64().unwrap(),
    );
    let logged = fs::read_to_string(&log).unwrap().lines().count() as u64;
    assert_eq!(
        (counted, retries),
        (logged, 0),
        "of {} attempts, {refused} refused",
        attempts.len()
    );
    assert!(
        refused > 100 && counted > 100,
        "{refused} refused, {counted} counted: the attempts show nothing"
    );
    let _ = fs::remove_dir_all(&directory);
}
