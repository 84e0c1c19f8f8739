//! Provides HTTP/1 requests that two parsers could interpret differently, by kind of ambiguity.

/// Bytes after each request, which a server interprets either as its body or as the next request.
pub(super) const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";

/// The kind of ambiguity and the bytes.
pub(super) type Case = (&'static str, String);

/// Returns valid and invalid header lines that declare a chunked body.
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

fn post(fields: &str, body: &str) -> String {
    format!("POST /open HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}")
}

/// Returns a request with these lines after `Host`, followed by a second request.
fn get(lines: &str) -> String {
    format!("GET /open HTTP/1.1\r\nHost: a\r\n{lines}\r\n{HIDDEN}")
}

/// Returns the cases about the ends of bodies and lines. The tests send them to every server.
#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(super) fn framing() -> Vec<Case> {
    let mut cases = Vec::new();
    let chunked = format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len());
    for coding in codings() {
        for body in [
            format!("0\r\n\r\n{HIDDEN}"),
            chunked.clone(),
            HIDDEN.to_owned(),
        ] {
            let length = format!("Content-Length: {}\r\n{coding}", body.len());
            cases.push(("coding", post(&coding, &body)));
            cases.push(("coding", post(&length, &body)));
            cases.push((
                "coding",
                post(&format!("{coding}Content-Length: 4\r\n"), &body),
            ));
        }
    }
    for length in lengths() {
        cases.push(("length", post(&length, HIDDEN)));
        cases.push((
            "length",
            format!("GET /open HTTP/1.1\r\nHost: a\r\n{length}\r\n{HIDDEN}"),
        ));
        cases.push((
            "length",
            format!("POST /open HTTP/1.0\r\n{length}Connection: keep-alive\r\n\r\n{HIDDEN}"),
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
            let coding = "Transfer-Encoding: chunked\r\n";
            cases.push(("chunk", post(coding, &format!("{size}{end}{HIDDEN}"))));
            cases.push((
                "chunk",
                post(coding, &format!("1\r\nx\r\n{size}{end}{HIDDEN}")),
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
        "GET /open HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: \
         AAMAAABk\r\n\r\n",
        "HEAD /open HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "GET /open HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
    ] {
        cases.push(("line", format!("{line}{HIDDEN}")));
    }
    cases
}

/// Returns requests with an unusual header line.
fn header_lines() -> Vec<String> {
    let mut cases = Vec::new();
    for line in [
        "X: y\n",
        "X: y\r",
        "X: y\r\r\n",
        "X: y\n\r\n",
        "X y\r\n",
        ": y\r\n",
        "X : y\r\n",
        "X\t: y\r\n",
        " X: y\r\n",
        "\tX: y\r\n",
        "X: y\r\n z\r\n",
        "X: y\r\n\tz\r\n",
        "X: \r\n",
        "X:\r\n",
        "X: y\0z\r\n",
        "X\0: y\r\n",
        "X: y\u{b}\r\n",
        "X: y\u{7f}\r\n",
        "X\u{e9}: y\r\n",
        "X(: y\r\n",
        "X\": y\r\n",
        "X/: y\r\n",
        "X@: y\r\n",
        "{X}: y\r\n",
        "X: y\r\nGET /hidden HTTP/1.1\r\n",
    ] {
        cases.push(get(line));
    }
    cases
}

fn targets() -> Vec<String> {
    [
        "/open?x=y",
        "/open?",
        "/open??",
        "/open/../open",
        "/open//open",
        "/open/%2e%2e/open",
        "/open%2fx",
        "/open%00",
        "/open%",
        "/open%zz",
        "/open%0d%0aX:y",
        "/open\\x",
        "/open;x",
        "/open#x",
        "/open\"x",
        "/open<x>",
        "/open|x",
        "/open^x",
        "/open{x}",
        "/open`x",
        "/open x",
        "/open\tx",
        "/open\u{b}x",
        "/open\0",
        "open",
        "//open",
        "*",
        "",
        "http://a/open",
        "HTTP://a/open",
        "https://a/open",
        "ftp://a/open",
        "http:///open",
        "http://a@b/open",
        "http://a:b/open",
        "http://a:99999/open",
        "http://a,b/open",
        "http://[::1/open",
        "http://[::1]/open",
        "http://a?open",
        "http:/open",
        "a:80",
    ]
    .into_iter()
    .map(|target| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n{HIDDEN}"))
    .collect()
}

fn hosts() -> Vec<String> {
    let mut cases: Vec<String> = [
        "",
        "b",
        "b:80",
        "b:",
        "b:0",
        "b:65535",
        "b:65536",
        "b:99999",
        "b:x",
        "b:-1",
        "b:+80",
        "b: 80",
        "b:80:80",
        ":80",
        "b,c",
        "b, c",
        "b c",
        "b\tc",
        "b;c",
        "b/c",
        "b\\c",
        "b?c",
        "b#c",
        "b@c",
        "b:c@d",
        "b%00",
        "b%0d%0a",
        "b%2f",
        "b%",
        "b%41",
        "b_c",
        "b.",
        ".b",
        "b..c",
        "[::1]",
        "[::1]:80",
        "[::1",
        "::1",
        "[::1]80",
        "[::1%25lo]",
        "[v1.x]",
        "[]",
        "10.0.0.1",
        "\"b\"",
        "<b>",
        "b\0",
        "b\u{e9}",
    ]
    .into_iter()
    .map(|host| format!("GET /open HTTP/1.1\r\nHost: {host}\r\n\r\n{HIDDEN}"))
    .collect();
    for lines in [
        "",
        "Host: a\r\nHost: b\r\n",
        "Host: a\r\nHost: a\r\n",
        "Host : a\r\n",
        " Host: a\r\n",
        "X: y\r\n Host: a\r\n",
        "Host: a\r\n b\r\n",
        "Connection: Host\r\nHost: a\r\n",
        "hOsT: a\r\n",
    ] {
        cases.push(format!("GET /open HTTP/1.1\r\n{lines}\r\n{HIDDEN}"));
    }
    cases
}

fn methods() -> Vec<String> {
    let mut cases = Vec::new();
    for method in [
        "G(T", "GET\t", " GET", "GET ", "G\0ET", "G\u{e9}T", "\"GET\"", "GET,POST", "", "CONNECT",
        "GET/", "G=T", "{GET}", "[GET]", "G@T",
    ] {
        cases.push(format!(
            "{method} /open HTTP/1.1\r\nHost: a\r\n\r\n{HIDDEN}"
        ));
    }
    for method in ["GET", "HEAD", "POST"] {
        for (fields, body) in [
            ("Content-Length: 0\r\n", ""),
            ("Content-Length: 1\r\n", "x"),
            ("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n\r\n"),
        ] {
            cases.push(format!(
                "{method} /open?m HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}{HIDDEN}"
            ));
        }
    }
    cases
}

fn expectations() -> Vec<String> {
    let mut cases = Vec::new();
    for value in [
        "100-continue",
        "100-Continue",
        "100-continue ",
        "100-continue, x",
        "x, 100-continue",
        "100-continue;x",
        "200-ok",
        "",
    ] {
        for (fields, body) in [
            ("", ""),
            ("Content-Length: 1\r\n", "x"),
            ("Content-Length: 0\r\n", ""),
            ("Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n\r\n"),
        ] {
            cases.push(format!(
                "POST /open?e HTTP/1.1\r\nHost: a\r\n{fields}Expect: {value}\r\n\r\n{body}{HIDDEN}"
            ));
        }
    }
    for lines in [
        "Expect: 100-continue\r\nExpect: 100-continue\r\n",
        "Expect: x\r\nExpect: 100-continue\r\n",
        "Expect: 100-continue\r\nExpect: x\r\n",
    ] {
        cases.push(post(
            &format!("{lines}Content-Length: 1\r\n"),
            &format!("x{HIDDEN}"),
        ));
    }
    cases
}

fn upgrades() -> Vec<String> {
    let mut cases = Vec::new();
    for value in [
        "h2c",
        "H2C",
        "h2",
        "h2c, websocket",
        "websocket, h2c",
        "websocket,h2c",
        "TLS/1.0, h2c",
        "",
        ",",
        "h2c\r\nUpgrade: websocket",
        "websocket\r\nUpgrade: h2c",
        "h2c\r\nUpgrade: h2c",
    ] {
        for connection in [
            "Upgrade",
            "upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk",
            "close",
        ] {
            cases.push(get(&format!(
                "Connection: {connection}\r\nUpgrade: {value}\r\n"
            )));
        }
    }
    cases
}

fn versions() -> Vec<String> {
    [
        "HTTP/0.9",
        "HTTP/1.2",
        "HTTP/1.10",
        "HTTP/1.01",
        "HTTP/2.0",
        "HTTP/1",
        "HTTP/1.",
        "HTTP/.1",
        "HTTP/1.1 ",
        " HTTP/1.1",
        "http/1.1",
        "HTTP/1.1x",
        "HTTP/11",
        "HTTP/1,1",
        "HTTP/-1.1",
        "HTP/1.1",
        "HTTP/ 1.1",
        "HTTP/1.\u{b}1",
        "",
    ]
    .into_iter()
    .map(|version| format!("GET /open {version}\r\nHost: a\r\n\r\n{HIDDEN}"))
    .chain([
        format!("GET /open HTTP/1.0\r\n\r\n{HIDDEN}"),
        format!("GET /open HTTP/1.0\r\nConnection: keep-alive\r\n\r\n{HIDDEN}"),
        format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{HIDDEN}"),
    ])
    .collect()
}

fn pipelines() -> Vec<String> {
    let plain_request = "GET /open HTTP/1.1\r\nHost: a\r\n\r\n";
    let length = "POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx";
    let chunked =
        "POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    let mut cases = Vec::new();
    for first in [plain_request, length, chunked] {
        for second in [plain_request, length, chunked] {
            for between in ["", "\r\n", "\r\n\r\n", "\n"] {
                cases.push(format!("{first}{between}{second}{HIDDEN}"));
            }
        }
    }
    cases
}

fn spoofs() -> Vec<String> {
    let mut cases = Vec::new();
    for name in [
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Real-IP",
        "Forwarded",
        "Via",
        "X-Original-URL",
        "X-Rewrite-URL",
        "Content-Length",
        "Transfer-Encoding",
        "Host",
        "Cookie",
    ] {
        cases.push(get(&format!("Connection: close, {name}\r\n")));
        cases.push(get(&format!("Connection: {name}\r\nKeep-Alive: 1\r\n")));
    }
    cases
}

/// Returns the cases with a `_` that a server may read as `-`.
fn underscores() -> Vec<String> {
    let mut cases = Vec::new();
    let chunked = format!("0\r\n\r\n{HIDDEN}");
    for line in [
        "Transfer_Encoding: chunked",
        "TRANSFER_ENCODING: chunked",
        "transfer_Encoding:chunked",
        "Content_Length: 4",
        "content_length: 0",
        "X_Forwarded_For: 6.6.6.6",
        "_Host: b",
        "Host_: b",
    ] {
        cases.push(post(
            &format!("{line}\r\nContent-Length: {}\r\n", chunked.len()),
            &chunked,
        ));
        cases.push(get(&format!("{line}\r\n")));
        cases.push(get(&format!(
            "Connection: {}\r\n{line}\r\n",
            &line[..line.find(':').unwrap_or(0)]
        )));
        cases.push(post(
            "Transfer-Encoding: chunked\r\n",
            &format!("1\r\nx\r\n0\r\n{line}\r\n\r\n{HIDDEN}"),
        ));
    }
    cases
}

/// Returns all cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = framing();
    for (name, texts) in [
        ("header line", header_lines()),
        ("target", targets()),
        ("host", hosts()),
        ("method", methods()),
        ("expect", expectations()),
        ("upgrade", upgrades()),
        ("version", versions()),
        ("pipeline", pipelines()),
        ("spoof", spoofs()),
        ("underscore", underscores()),
    ] {
        cases.extend(texts.into_iter().map(|text| (name, text)));
    }
    let mut unique = std::collections::HashSet::new();
    cases.retain(|(_, text)| unique.insert(text.clone()));
    cases
}
