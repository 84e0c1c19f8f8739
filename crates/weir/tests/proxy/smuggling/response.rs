//! Provides responses that two parsers could interpret differently, and a server that sends them.
//!
//! The responses are grouped by kind of ambiguity. Each is tested with an HTTP/1.0 and an HTTP/1.1 client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::request::Case;

/// A second response after the expected one. No client may receive it as a response.
const SECOND: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nSECOND";

/// How long the server waits for another request after a case before it closes the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

fn response_with(lines: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}\r\n{body}")
}

fn status_lines() -> Vec<String> {
    [
        "HTTP/1.1 200 OK",
        "HTTP/1.1 200",
        "HTTP/1.1 200 ",
        "HTTP/1.0 200 OK",
        "HTTP/1.2 200 OK",
        "HTTP/2.0 200 OK",
        "HTTP/0.9 200 OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1\t200 OK",
        "http/1.1 200 OK",
        " HTTP/1.1 200 OK",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1 099 OK",
        "HTTP/1.1 -20 OK",
        "HTTP/1.1 2x0 OK",
        "HTTP/1.1 200OK",
        "HTTP/1.1 999 OK",
        "HTTP/1.1 200 O\0K",
        "HTTP/1.1 200 O\rK",
        "HTTP/1.1 200 \u{e9}",
        "HTTP/1 200 OK",
        "HTTP/1.10 200 OK",
        "ICY 200 OK",
        "200 OK",
        "",
        "SSH-2.0-x",
    ]
    .into_iter()
    .map(|line| format!("{line}\r\nContent-Length: 2\r\n\r\nok{SECOND}"))
    .collect()
}

fn lengths() -> Vec<String> {
    let second_length = SECOND.len();
    let mut lines: Vec<String> = [
        "0".to_owned(),
        "2".to_owned(),
        format!("{second_length}"),
        "+2".to_owned(),
        "-2".to_owned(),
        "02".to_owned(),
        "0x2".to_owned(),
        "2, 2".to_owned(),
        "2,0".to_owned(),
        "2 0".to_owned(),
        "2;0".to_owned(),
        "\"2\"".to_owned(),
        String::new(),
        "99999999999999999999".to_owned(),
        "2\u{b}".to_owned(),
    ]
    .into_iter()
    .map(|value| format!("Content-Length: {value}\r\n"))
    .collect();
    lines.extend(
        [
            "Content-Length: 2\r\nContent-Length: 2\r\n",
            "Content-Length: 0\r\nContent-Length: 2\r\n",
            "Content-Length : 2\r\n",
            "Content-Length:\r\n 2\r\n",
            "Content_Length: 2\r\n",
            "Connection: Content-Length\r\nContent-Length: 2\r\n",
            "Connection: close\r\nContent-Length: 2\r\n",
        ]
        .map(str::to_owned),
    );
    lines
        .iter()
        .map(|line| response_with(line, SECOND))
        .collect()
}

fn codings() -> Vec<String> {
    let body = format!("2\r\nok\r\n0\r\n\r\n{SECOND}");
    let mut cases = Vec::new();
    for value in [
        "chunked",
        "Chunked",
        "chunked ",
        "\tchunked",
        "chunked, identity",
        "identity, chunked",
        "gzip, chunked",
        "chunked,",
        "chunked;q=1",
        "\"chunked\"",
        "xchunked",
        "chunk",
        "identity",
        "",
        "\u{b}chunked",
        "chunked\0",
        "chunked, chunked",
    ] {
        let line = format!("Transfer-Encoding: {value}\r\n");
        cases.push(response_with(&line, &body));
        cases.push(response_with(
            &format!("Content-Length: 2\r\n{line}"),
            &body,
        ));
    }
    for lines in [
        "Transfer-Encoding : chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\n",
        "X: y\nTransfer-Encoding: chunked\r\n",
        "Transfer_Encoding: chunked\r\nContent-Length: 2\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
    ] {
        cases.push(response_with(lines, &body));
    }
    cases.push(chunked_http10(&body));
    cases
}

fn chunked_http10(body: &str) -> String {
    format!("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
}

fn chunks() -> Vec<String> {
    let mut cases = Vec::new();
    for size in [
        "2",
        "02",
        "0x2",
        "+2",
        "-2",
        " 2",
        "2 ",
        "2\t",
        "2;x",
        "2;x=\"\n\"",
        "2\u{b}",
        "g",
        "",
        "\n2",
        "10000000000000002",
    ] {
        for end in ["\r\n", "\n", "\r"] {
            cases.push(response_with(
                "Transfer-Encoding: chunked\r\n",
                &format!("{size}{end}ok\r\n0\r\n\r\n{SECOND}"),
            ));
        }
    }
    for tail in [
        "0\r\nX: y\r\n\r\n",
        "0\r\nContent-Length: 9\r\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\n\n",
        "0\r\r",
        "00\r\n\r\n",
        "0;x\r\n\r\n",
        "0\r\nX y\r\n\r\n",
        "0\r\n",
    ] {
        cases.push(response_with(
            "Transfer-Encoding: chunked\r\n",
            &format!("2\r\nok\r\n{tail}{SECOND}"),
        ));
    }
    cases
}

fn header_lines() -> Vec<String> {
    [
        "X: y\n",
        "X: y\r",
        "X y\r\n",
        ": y\r\n",
        "X : y\r\n",
        " X: y\r\n",
        "X: y\r\n z\r\n",
        "X: y\0\r\n",
        "X\0: y\r\n",
        "X(: y\r\n",
        "X: \r\n",
        "X: y\u{7f}\r\n",
        "Set-Cookie: a=b\r\n",
        "X: y\r\n\tz\r\n",
        "X_Y: z\r\n",
        "Connection: X\r\nX: y\r\n",
    ]
    .into_iter()
    .map(|line| {
        response_with(
            &format!("Content-Length: 2\r\n{line}"),
            &format!("ok{SECOND}"),
        )
    })
    .collect()
}

fn statuses() -> Vec<String> {
    let mut cases = Vec::new();
    for status in [
        "100 Continue",
        "101 Switching Protocols",
        "102 Processing",
        "103 Early Hints",
        "199 X",
        "204 No Content",
        "205 X",
        "304 X",
    ] {
        cases.push(format!(
            "HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok{SECOND}"
        ));
        cases.push(format!("HTTP/1.1 {status}\r\n\r\n{SECOND}"));
    }
    cases.push("HTTP/1.1 100 Continue\r\n\r\n".repeat(20) + SECOND);
    cases.push("HTTP/1.1 100 Continue\r\n\r\n".to_owned());
    cases.push(String::new());
    cases.push("HTTP/1.1 200 OK\r\nContent-Le".to_owned());
    cases.push(format!("\r\n{SECOND}"));
    cases.push(format!("{SECOND}{SECOND}"));
    cases
}

/// Returns all cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (name, texts) in [
        ("status line", status_lines()),
        ("length", lengths()),
        ("coding", codings()),
        ("chunk", chunks()),
        ("header line", header_lines()),
        ("status", statuses()),
    ] {
        cases.extend(texts.into_iter().map(|text| (name, text)));
    }
    let mut unique = std::collections::HashSet::new();
    cases.retain(|(_, text)| unique.insert(text.clone()));
    cases
}

/// Starts a server that responds to `/response/N` with case number N, and to every other path with the path itself.
pub(super) fn serve(cases: Arc<Vec<Case>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let address = listener.local_addr().expect("get local address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let cases = Arc::clone(&cases);
            // The test closes connections intentionally.
            std::thread::spawn(move || serve_connection(stream, &cases).unwrap_or(()));
        }
    });
    address
}

fn serve_connection(mut stream: TcpStream, cases: &[Case]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let text = String::from_utf8_lossy(&head);
        let path = text.split(' ').nth(1).unwrap_or_default();
        let number = path
            .strip_prefix("/response/")
            .and_then(|number| number.parse::<usize>().ok());
        match number.and_then(|number| cases.get(number)) {
            Some((_, bytes)) => {
                stream.write_all(bytes.as_bytes())?;
                stream.set_read_timeout(Some(CLOSE_TIMEOUT))?;
            }
            None => {
                let length = path.len();
                stream.write_all(
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{path}").as_bytes(),
                )?;
                stream.set_read_timeout(None)?;
            }
        }
    }
}

/// Returns the first error that a strict HTTP/1.1 parser finds in the bytes that a client received, or `None`.
/// `is_http10` = the client uses HTTP/1.0.
pub(super) fn find_error(mut bytes: &[u8], is_http10: bool) -> Option<String> {
    loop {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Some("an incomplete head".to_owned());
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        bytes = &bytes[end + 4..];
        let status = head.get(9..12).unwrap_or_default().to_owned();
        if status.starts_with('1') {
            if is_http10 {
                return Some("an interim response to an HTTP/1.0 client".to_owned());
            }
            continue;
        }
        let value = |name: &str| {
            let mut all = head.lines().filter_map(|line| line.split_once(':'));
            all.find(|(found, _)| *found == name)
                .map(|(_, value)| value.trim().to_owned())
        };
        if value("transfer-encoding").is_some() {
            if is_http10 {
                return Some("a transfer coding in a response to an HTTP/1.0 client".to_owned());
            }
            return find_chunk_error(bytes);
        }
        if status == "204" || status == "304" {
            return (!bytes.is_empty()).then(|| "a body after status 204 or 304".to_owned());
        }
        let length = value("content-length")?.parse::<usize>().ok();
        let Some(length) = length else {
            return Some("an invalid Content-Length".to_owned());
        };
        return (bytes.len() > length).then(|| format!("{} excess bytes", bytes.len() - length));
    }
}

/// Returns the first error in a chunked body, or `None`. A truncated body is not an error, because clients detect it.
fn find_chunk_error(mut bytes: &[u8]) -> Option<String> {
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let digits = line.split(';').next().unwrap_or_default();
        let Ok(size) = usize::from_str_radix(digits, 16) else {
            return Some(format!("an invalid chunk size in {line:?}"));
        };
        bytes = &bytes[end + 2..];
        if size == 0 {
            while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
                bytes = &bytes[end + 2..];
                if end == 0 {
                    return (!bytes.is_empty())
                        .then(|| format!("{} bytes after the last chunk", bytes.len()));
                }
            }
            return None;
        }
        bytes = bytes.get(size + 2..)?;
    }
}
