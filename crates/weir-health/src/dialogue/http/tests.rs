//! Tests the request, and the evaluation of responses that arrive in parts.

use weir_model::{Check, Pattern, Probe, Server};

use super::*;

fn exchange(expected: Http) -> Exchange {
    let server = Server::new("10.0.0.5", "10.0.0.5".parse().unwrap(), None);
    let check = Check::new(Probe::Http(Box::new(expected.clone())));
    Exchange::new(&expected, &Target::new(&check, &server, Some(8080)))
}

/// Returns the outcome of a response that is received in pieces. All piece sizes must produce the same outcome.
fn outcome_of(expected: &Http, response: &[u8], is_closed: bool) -> String {
    let mut last: Option<String> = None;
    for piece_size in 1..=response.len().max(1) {
        let mut exchange = exchange(expected.clone());
        exchange.open();
        let mut outcome = None;
        for piece in response.chunks(piece_size) {
            if let Reply::Finished(end) = exchange.receive(piece) {
                outcome = Some(end);
                break;
            }
        }
        if is_closed && outcome.is_none() {
            outcome = Some(exchange.end());
        }
        let text = outcome.map_or_else(
            || "pending".to_owned(),
            |outcome| format!("{:?}: {}", outcome.verdict, outcome.note),
        );
        if let Some(before) = &last {
            assert_eq!(*before, text, "in pieces of {piece_size} bytes");
        }
        last = Some(text);
    }
    last.unwrap_or_default()
}

fn http_expecting_text(contains: &str) -> Http {
    Http {
        contains: Some(contains.to_owned()),
        ..Http::default()
    }
}

#[test]
fn request_is_complete_and_closes_the_connection() {
    let expected = Http {
        method: "POST".to_owned(),
        path: "/hello?x=1".to_owned(),
        headers: vec![("X-Probe".to_owned(), "weir".to_owned())],
        body: Some("ping".to_owned()),
        ..Http::default()
    };
    let text = String::from_utf8(exchange(expected).open()).unwrap();
    assert_eq!(
        text,
        "POST /hello?x=1 HTTP/1.1\r\nHost: 10.0.0.5:8080\r\nUser-Agent: weir-check\r\n\
         Connection: close\r\nX-Probe: weir\r\nContent-Length: 4\r\n\r\nping"
    );
    let with_host = Http {
        host: Some("www.example".to_owned()),
        ..Http::default()
    };
    let text = String::from_utf8(exchange(with_host).open()).unwrap();
    assert!(text.contains("\r\nHost: www.example\r\n"), "{text}");
}

#[test]
fn host_field_contains_address_and_nondefault_port() {
    let host = |server: &Server, port, is_secure: bool| {
        let check = Check::new(Probe::Http(Box::default()));
        let mut target = Target::new(&check, server, port);
        target.tls = is_secure.then(weir_model::CheckTls::default);
        let request = build_request(&Http::default(), &target);
        let text = String::from_utf8(request).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Host: "));
        line.map(str::to_owned)
    };
    let server = |address: &str| Server::new(address, address.parse().unwrap(), None);
    for (address, port, is_secure, expected) in [
        ("10.0.0.5", Some(80), false, "10.0.0.5"),
        ("10.0.0.5", Some(443), false, "10.0.0.5:443"),
        ("10.0.0.5", Some(80), true, "10.0.0.5:80"),
        ("10.0.0.5", Some(443), true, "10.0.0.5"),
        ("10.0.0.5", None, false, "10.0.0.5"),
        ("fd00::5", Some(80), false, "[fd00::5]"),
        ("fd00::5", Some(8080), false, "[fd00::5]:8080"),
    ] {
        let found = host(&server(address), port, is_secure);
        assert_eq!(found.as_deref(), Some(expected), "{port:?} {is_secure}");
    }
    let unix = Server::on_unix_socket("/run/app.sock");
    assert_eq!(host(&unix, None, false).as_deref(), Some("localhost"));
}

#[test]
fn only_status_is_checked_without_body_conditions() {
    let any = Http::default();
    let ok = b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\nendless";
    assert_eq!(outcome_of(&any, ok, false), "Passed: http 200");
    let redirect = b"HTTP/1.0 302 Found\r\nLocation: /x\r\n\r\n";
    assert_eq!(outcome_of(&any, redirect, false), "Passed: http 302");
    let unavailable = b"HTTP/1.1 503 Service Unavailable\r\n\r\n";
    assert_eq!(
        outcome_of(&any, unavailable, false),
        "Failed: http 503, expected 200-399"
    );
    let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(outcome_of(&any, interim, false), "Passed: http 204");
}

#[test]
fn header_has_a_maximum_length() {
    for (len, expected) in [
        (HEAD_MAX_BYTES, Reply::More),
        (
            HEAD_MAX_BYTES + 1,
            Reply::Finished(Outcome::failed("header too long")),
        ),
    ] {
        let mut head = b"HTTP/1.1 200 OK\r\nA: ".to_vec();
        head.resize(len, b'a');
        assert_eq!(exchange(Http::default()).receive(&head), expected, "{len}");
    }
}

#[test]
fn chunks_and_their_size_lines_have_a_maximum_length() {
    let push = |bytes: &[u8]| {
        let mut body = Body::default();
        body.chunked = true;
        body.push(bytes)
    };
    assert_eq!(push(&[b'0'; 4096]), Ok(()));
    assert_eq!(push(&[b'0'; 4097]), Err("invalid chunk in the body"));
    assert_eq!(push(b"100000\r\n"), Ok(()));
    assert_eq!(push(b"100001\r\n"), Err("body too long"));
}

#[test]
fn response_to_head_ends_after_its_header() {
    let expected = Http {
        method: "HEAD".to_owned(),
        without: Some(Pattern::new("error").unwrap()),
        ..Http::default()
    };
    for framing in ["Content-Length: 9", "Transfer-Encoding: chunked"] {
        let response = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n");
        let outcome = outcome_of(&expected, response.as_bytes(), false);
        assert_eq!(outcome, "Passed: http 200", "{framing}");
    }
}

#[test]
fn other_protocols_and_truncated_headers_fail() {
    let any = Http::default();
    assert_eq!(
        outcome_of(&any, b"SSH-2.0-OpenSSH_9.2\r\n", false)
            .split(':')
            .next(),
        Some("Failed")
    );
    assert_eq!(
        outcome_of(&any, b"HTTP/2.0 200\r\n\r\n", false)
            .split(':')
            .next(),
        Some("Failed")
    );
    assert_eq!(
        outcome_of(&any, b"HTTP/1.1 2x0 OK\r\n\r\n", false)
            .split(':')
            .next(),
        Some("Failed")
    );
    assert_eq!(
        outcome_of(&any, b"", true),
        "Failed: connection closed without a response"
    );
    assert_eq!(
        outcome_of(&any, b"HTTP/1.1 200 OK\r\nA: b", true),
        "Failed: connection closed before the end of the header"
    );
    assert_eq!(
        outcome_of(&any, b"HTTP/1.1 200 OK\r\nA: b", false),
        "pending"
    );
}

#[test]
fn end_of_body_depends_on_length_chunks_or_close() {
    let up = http_expecting_text("Up");
    let length = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nSite Upand more";
    assert_eq!(outcome_of(&up, length, false), "Passed: http 200");
    let beyond = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nSite Up";
    assert_eq!(
        outcome_of(&up, beyond, false),
        "Failed: http 200, body does not contain \"Up\""
    );
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6;x=y\r\nSite U\r\n1\r\np\r\n0\r\n\r\n";
    assert_eq!(outcome_of(&up, chunks, false), "Passed: http 200");
    let cut = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nSite \r\n";
    assert_eq!(
        outcome_of(&up, cut, true),
        "Failed: http 200, connection closed before the end of the body"
    );
    let broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    assert_eq!(
        outcome_of(&up, broken, false),
        "Failed: invalid chunk in the body"
    );
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (chunks, expected) in [
        ("2\r\nUp--0\r\n\r\n", "invalid chunk in the body"),
        ("2000000\r\n", "body too long"),
        ("0\r\n", "http 200, body does not contain \"Up\""),
    ] {
        let outcome = outcome_of(&up, format!("{head}{chunks}").as_bytes(), false);
        assert_eq!(outcome, format!("Failed: {expected}"), "{chunks:?}");
    }
    let mut long = exchange(up.clone());
    long.receive(head.as_bytes());
    assert_eq!(
        long.receive(&[b'0'; 4096]),
        Reply::More,
        "size line of 4096 bytes"
    );
    let invalid = Outcome::failed("invalid chunk in the body");
    assert_eq!(long.receive(b"0"), Reply::Finished(invalid));
    let open = b"HTTP/1.0 200 OK\r\n\r\nSite Down";
    assert_eq!(
        outcome_of(&up, open, true),
        "Failed: http 200, body does not contain \"Up\""
    );
    assert_eq!(outcome_of(&up, open, false), "pending");
}

#[test]
fn endless_responses_fail() {
    let piece = [b'a'; 4096];
    let mut fields = exchange(Http::default());
    fields.receive(b"HTTP/1.1 200 OK\r\n");
    let result = (0..64).find_map(|_| match fields.receive(&piece) {
        Reply::Finished(outcome) => Some(outcome.note),
        _ => None,
    });
    assert_eq!(result.as_deref(), Some("header too long"));
    let mut long = exchange(http_expecting_text("Up"));
    long.receive(b"HTTP/1.1 200 OK\r\n\r\n");
    let result = (0..1024).find_map(|_| match long.receive(&piece) {
        Reply::Finished(outcome) => Some(outcome.note),
        _ => None,
    });
    assert_eq!(result.as_deref(), Some("body too long"));
}

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nUp since\n";

#[test]
fn body_must_match_patterns() {
    let expected = |regex: Option<&str>, without: Option<&str>| Http {
        pattern: regex.map(|text| Pattern::new(text).unwrap()),
        without: without.map(|text| Pattern::new(text).unwrap()),
        ..Http::default()
    };
    assert_eq!(
        outcome_of(
            &expected(Some("^Up\\s"), Some("maintenance")),
            RESPONSE,
            false
        ),
        "Passed: http 200"
    );
    assert_eq!(
        outcome_of(&expected(Some("^since"), None), RESPONSE, false),
        "Failed: http 200, body does not match /^since/"
    );
    assert_eq!(
        outcome_of(&expected(None, Some("(?i)UP")), RESPONSE, false),
        "Failed: http 200, body matches /(?i)UP/"
    );
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &[b'x'; 2 << 20]].concat();
    let outcome_of_endless_body = |expected: Http| {
        let mut exchange = exchange(expected);
        exchange.open();
        match exchange.receive(&endless) {
            Reply::Finished(outcome) => format!("{:?}: {}", outcome.verdict, outcome.note),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        outcome_of_endless_body(expected(Some("^xxx"), None)),
        "Passed: http 200"
    );
    assert_eq!(
        outcome_of_endless_body(expected(Some("y"), None)),
        "Failed: body too long"
    );
}

#[test]
fn body_must_have_the_expected_digest() {
    let expected = |digest| Http {
        digest: Some(digest),
        ..Http::default()
    };
    // The MD5 digest of the body of `RESPONSE`, and the SHA-256 digest of an empty body.
    let md5 = 0xf8ba_c304_b7c2_8c40_dc49_39db_6a32_3697_u128.to_be_bytes();
    let empty = [
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9,
        0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52,
        0xb8, 0x55,
    ];
    assert_eq!(
        outcome_of(&expected(Digest::Md5(md5)), RESPONSE, false),
        "Passed: http 200"
    );
    let nothing = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(
        outcome_of(&expected(Digest::Sha256(empty)), nothing, false),
        "Passed: http 200"
    );
    assert_eq!(
        outcome_of(&expected(Digest::Md5(md5)), nothing, false),
        "Failed: http 200, body digest is d41d8cd98f00b204e9800998ecf8427e"
    );
}
