//! Provides HTTP/2 requests whose meaning could change in HTTP/1.1, by kind of ambiguity, and a client that sends them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::request::HIDDEN;

type Field = (Vec<u8>, Vec<u8>);

/// A stream with its fields, content and trailers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Case {
    pub(super) name: &'static str,
    fields: Vec<Field>,
    content: Option<Vec<u8>>,
    trailers: Vec<Field>,
}

fn field(name: &str, value: &str) -> Field {
    (name.as_bytes().to_vec(), value.as_bytes().to_vec())
}

fn pseudo(method: &str, path: &str, authority: &str) -> Vec<Field> {
    vec![
        field(":method", method),
        field(":scheme", "http"),
        field(":path", path),
        field(":authority", authority),
    ]
}

fn case(name: &'static str, fields: Vec<Field>, content: Option<&str>) -> Case {
    Case {
        name,
        fields,
        content: content.map(|text| text.as_bytes().to_vec()),
        trailers: Vec::new(),
    }
}

/// Returns a request with an additional field: a POST with this content, or a GET without content.
fn case_with(name: &'static str, added: Field, content: Option<&str>) -> Case {
    let method = if content.is_some() { "POST" } else { "GET" };
    let mut fields = pseudo(method, "/open", "a");
    fields.push(added);
    case(name, fields, content)
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn add_framing_cases(cases: &mut Vec<Case>) {
    let hidden_length = HIDDEN.len();
    let lengths = [
        format!("{hidden_length}"),
        "0".to_owned(),
        "3".to_owned(),
        format!("+{hidden_length}"),
        format!("-{hidden_length}"),
        format!("0{hidden_length}"),
        format!("0x{hidden_length:x}"),
        format!("{hidden_length}, {hidden_length}"),
        format!("{hidden_length},0"),
        format!("{hidden_length} 0"),
        format!(" {hidden_length}"),
        "1e2".to_owned(),
        String::new(),
        "99999999999999999999".to_owned(),
        format!("{hidden_length}\r\nX: y"),
        format!("{}", hidden_length + 1),
    ];
    for length in &lengths {
        cases.push(case_with(
            "length",
            field("content-length", length),
            Some(HIDDEN),
        ));
        cases.push(case_with("length", field("content-length", length), None));
    }
    let mut twice = pseudo("POST", "/open", "a");
    twice.extend([
        field("content-length", "0"),
        field("content-length", &hidden_length.to_string()),
    ]);
    cases.push(case("length", twice, Some(HIDDEN)));
    let chunked = format!("0\r\n\r\n{HIDDEN}");
    for coding in [
        "chunked",
        "Chunked",
        "identity",
        "gzip, chunked",
        "chunked\r\nX: y",
        "",
        " chunked",
        "x",
    ] {
        for content in [Some(chunked.as_str()), Some(HIDDEN), None] {
            cases.push(case_with(
                "coding",
                field("transfer-encoding", coding),
                content,
            ));
        }
    }
    cases.push(case_with(
        "coding",
        field("transfer_encoding", "chunked"),
        Some(&chunked),
    ));
    cases.push(case_with(
        "coding",
        field("content_length", "4"),
        Some(&chunked),
    ));
    for content in ["", "0\r\n\r\n", &chunked, HIDDEN] {
        cases.push(case("content", pseudo("POST", "/open", "a"), Some(content)));
        cases.push(case("content", pseudo("GET", "/open", "a"), Some(content)));
        cases.push(case("content", pseudo("HEAD", "/open", "a"), Some(content)));
        cases.push(case(
            "content",
            pseudo("DELETE", "/open", "a"),
            Some(content),
        ));
    }
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn add_field_cases(cases: &mut Vec<Case>) {
    for (name, value) in [
        ("connection", "close"),
        ("connection", "keep-alive"),
        ("connection", "host"),
        ("keep-alive", "5"),
        ("proxy-connection", "close"),
        ("upgrade", "h2c"),
        ("upgrade", "websocket"),
        ("http2-settings", "AAMAAABk"),
        ("te", "trailers"),
        ("te", "chunked"),
        ("te", "trailers, chunked"),
        ("expect", "100-continue"),
        ("expect", "x"),
    ] {
        cases.push(case_with("hop", field(name, value), None));
        cases.push(case_with("hop", field(name, value), Some("x")));
    }
    for name in [
        "X",
        "Content-Length",
        "x y",
        "x:",
        "x\r\ny",
        "x\ny",
        "x\0",
        "",
        " x",
        "x ",
        "x\t",
        "x(",
        "x\"",
        "x\u{e9}",
        "x_y",
        "_",
        "x/y",
        "x@y",
        "x: y\r\nhost",
        "transfer-encoding: chunked\r\nx",
        "{x}",
        "x[",
        "x=y",
        "x,y",
        "x;y",
        "x\u{7f}",
    ] {
        cases.push(case_with("name", field(name, "y"), None));
    }
    for value in [
        "y\r\nz: w",
        "y\nz: w",
        "y\rz",
        "y\0z",
        "\r\n",
        "\n",
        " y",
        "y ",
        "\ty",
        "y\u{7f}",
        "y\u{1}",
        "\u{e9}",
        "y\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n",
        "y\r\ntransfer-encoding: chunked",
    ] {
        for name in ["x", "cookie", "user-agent"] {
            cases.push(case_with("value", field(name, value), None));
        }
    }
    for name in [
        "x_forwarded_for",
        "x_real_ip",
        "x-forwarded-for",
        "x-real-ip",
        "forwarded",
    ] {
        cases.push(case_with("spoof", field(name, "6.6.6.6"), None));
    }
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn add_target_cases(cases: &mut Vec<Case>) {
    for path in [
        "/open?x",
        "/open?",
        "//open",
        "/open//x",
        "/open/../x",
        "/open#x",
        "/open x",
        "/open HTTP/1.1",
        "/open HTTP/1.1\r\nX: y",
        "/open\r\n",
        "/open\0",
        "/open\t",
        "",
        "open",
        "*",
        "http://a/open",
        "/open%00",
        "/open%0d%0a",
        "/open\\x",
        "/open\"",
        "/open<x>",
        "/open\u{e9}",
        "/open{x}",
        "/open^",
        "/open`",
        "/open|",
    ] {
        cases.push(case("path", pseudo("GET", path, "a"), None));
    }
    for authority in [
        "b",
        "b:80",
        "b:",
        "b:99999",
        "b:x",
        "b,c",
        "b c",
        "b%00",
        "b%0d",
        "[::1]",
        "[::1",
        "::1",
        "a@b",
        "b/c",
        "b?c",
        "b#c",
        "b\\c",
        "b_c",
        "",
        ":80",
        "b\r\nX: y",
        "b\0",
        "b\t",
        "b\u{e9}",
        "b:80:80",
        "\"b\"",
    ] {
        cases.push(case("authority", pseudo("GET", "/open", authority), None));
    }
    for method in [
        "GET ",
        " GET",
        "G ET",
        "GET /x HTTP/1.1\r\nX: y\r\n\r\n",
        "GET\r\n",
        "G(T",
        "",
        "get",
        "CONNECT",
        "PRI",
        "G\0T",
        "GET\t",
    ] {
        cases.push(case("method", pseudo(method, "/open", "a"), None));
    }
    for host in ["a", "b", "", "b,c", "b\r\nX: y"] {
        cases.push(case_with("host", field("host", host), None));
        let mut without_authority = pseudo("GET", "/open", "a");
        without_authority.pop();
        without_authority.push(field("host", host));
        cases.push(case("host", without_authority, None));
    }
    for index in 0..4 {
        let mut missing = pseudo("GET", "/open", "a");
        let removed = missing.remove(index);
        cases.push(case("pseudo", missing.clone(), None));
        missing.extend([field("x", "y"), removed.clone()]);
        cases.push(case("pseudo", missing, None));
        let mut twice = pseudo("GET", "/open", "a");
        twice.push(removed);
        cases.push(case("pseudo", twice, None));
    }
    for (name, value) in [
        (":status", "200"),
        (":x", "y"),
        (":protocol", "websocket"),
        (":", "x"),
        (":path", "/other"),
    ] {
        cases.push(case_with("pseudo", field(name, value), None));
    }
    for scheme in ["https", "ftp", "", "http://a/", "http\r\n", "HTTP"] {
        let mut other = pseudo("GET", "/open", "a");
        other[1] = field(":scheme", scheme);
        cases.push(case("scheme", other, None));
    }
}

fn add_trailer_cases(cases: &mut Vec<Case>) {
    for (name, value) in [
        ("x", "y"),
        ("x_y", "z"),
        ("x_forwarded_for", "6.6.6.6"),
        ("content-length", "9"),
        ("transfer-encoding", "chunked"),
        ("host", "b"),
        (":path", "/x"),
        ("x", "y\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("x\r\ny", "z"),
        ("X", "y"),
        ("connection", "close"),
        ("x", ""),
        ("", "y"),
        ("te", "trailers"),
    ] {
        let mut case = case("trailer", pseudo("POST", "/open", "a"), Some("x"));
        case.trailers.push(field(name, value));
        cases.push(case);
    }
}

/// Returns all cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    add_framing_cases(&mut cases);
    add_field_cases(&mut cases);
    add_target_cases(&mut cases);
    add_trailer_cases(&mut cases);
    let mut unique = std::collections::HashSet::new();
    cases.retain(|case| {
        unique.insert((
            case.fields.clone(),
            case.content.clone(),
            case.trailers.clone(),
        ))
    });
    cases
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("too long");
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Returns an HPACK block of literal fields without indexing (RFC 7541 section 6.2.2). Names and values may have at
/// most 126 bytes.
fn block(fields: &[Field]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(
                u8::try_from(text.len())
                    .ok()
                    .filter(|length| *length < 127)
                    .expect("too long"),
            );
            block.extend_from_slice(text);
        }
    }
    block
}

/// A client connection that is used as long as Weir keeps it open.
pub(super) struct Connection {
    stream: TcpStream,
    next_id: u32,
    is_open: bool,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).expect("connect");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("set read timeout");
        let _ = stream.set_nodelay(true);
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, 0, &[]));
        stream.write_all(&bytes).expect("write");
        Self {
            stream,
            next_id: 1,
            is_open: true,
        }
    }

    /// Returns whether another stream can be opened.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Sends the case and reads to the end of the stream. Returns the content, or `None` if the stream was reset or the
    /// connection closed.
    pub(super) fn send(&mut self, case: &Case) -> Option<Vec<u8>> {
        let id = self.next_id;
        self.next_id += 2;
        let ends_stream = case.content.is_none();
        let mut bytes = frame(1, 4 | u8::from(ends_stream), id, &block(&case.fields));
        if let Some(content) = &case.content {
            bytes.extend(frame(0, u8::from(case.trailers.is_empty()), id, content));
            if !case.trailers.is_empty() {
                bytes.extend(frame(1, 5, id, &block(&case.trailers)));
            }
        }
        if self.stream.write_all(&bytes).is_err() {
            self.is_open = false;
            return None;
        }
        self.read_stream(id)
    }

    /// Reads to the end of the stream. Returns the same values as `send`.
    fn read_stream(&mut self, id: u32) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        loop {
            let mut header = [0; 9];
            let mut payload = Vec::new();
            let result = self.stream.read_exact(&mut header).and_then(|()| {
                let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
                payload.resize(length as usize, 0);
                self.stream.read_exact(&mut payload)
            });
            let stream_id = u32::from_be_bytes([header[5] & 0x7f, header[6], header[7], header[8]]);
            match (result, header[3]) {
                (Err(_), _) | (_, 7) => {
                    self.is_open = false;
                    return None;
                }
                (_, 3) if stream_id == id => return None,
                (_, 0) if stream_id == id => {
                    content.extend_from_slice(&payload);
                    // Extend the window by the number of bytes that were read.
                    let increment = header[..3]
                        .iter()
                        .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                    if increment > 0 {
                        let _ = self
                            .stream
                            .write_all(&frame(8, 0, 0, &increment.to_be_bytes()));
                    }
                }
                _ => {}
            }
            if matches!(header[3], 0 | 1) && stream_id == id && header[4] & 1 != 0 {
                return Some(content);
            }
        }
    }
}

/// Returns a control request. Its response is known.
pub(super) fn control_request(path: &str) -> Case {
    case("canary", pseudo("GET", path, "a"), None)
}
