use weir_model::{Check, Pattern, Probe, Server};

use super::*;

fn exchange(wanted: Http) -> Exchange {
    let server = Server::new("10.0.0.5", "10.0.0.5".parse().unwrap(), None);
    let check = Check::new(Probe::Http(Box::new(wanted.clone())));
    Exchange::new(&wanted, &Target::new(&check, &server, Some(8080)))
}

/// The answer in every portion from single bytes to all at once; all must come to the same.
fn told(wanted: &Http, answer: &[u8], closes: bool) -> String {
    let mut said: Option<String> = None;
    for portion in 1..=answer.len().max(1) {
        let mut exchange = exchange(wanted.clone());
        exchange.open();
        let mut outcome = None;
        for piece in answer.chunks(portion) {
            if let Reply::Finished(end) = exchange.receive(piece) {
                outcome = Some(end);
                break;
            }
        }
        if closes && outcome.is_none() {
            outcome = Some(exchange.end());
        }
        let text = outcome.map_or_else(
            || "waits".to_owned(),
            |outcome| format!("{:?}: {}", outcome.verdict, outcome.note),
        );
        if let Some(before) = &said {
            assert_eq!(*before, text, "in portions of {portion}");
        }
        said = Some(text);
    }
    said.unwrap_or_default()
}

fn body(contains: &str) -> Http {
    Http {
        contains: Some(contains.to_owned()),
        ..Http::default()
    }
}

#[test]
fn the_request_is_whole_and_ends_the_connection() {
    let wanted = Http {
        method: "POST".to_owned(),
        path: "/hello?x=1".to_owned(),
        headers: vec![("X-Probe".to_owned(), "weir".to_owned())],
        body: Some("ping".to_owned()),
        ..Http::default()
    };
    let text = String::from_utf8(exchange(wanted).open()).unwrap();
    assert_eq!(
        text,
        "POST /hello?x=1 HTTP/1.1\r\nHost: 10.0.0.5:8080\r\nUser-Agent: weir-check\r\n\
         Connection: close\r\nX-Probe: weir\r\nContent-Length: 4\r\n\r\nping"
    );
    let named = Http {
        host: Some("www.example".to_owned()),
        ..Http::default()
    };
    let text = String::from_utf8(exchange(named).open()).unwrap();
    assert!(text.contains("\r\nHost: www.example\r\n"), "{text}");
}

#[test]
fn a_status_is_enough_where_no_body_is_asked_for() {
    let any = Http::default();
    let ok = b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\nendless";
    assert_eq!(told(&any, ok, false), "Passed: http 200");
    let moved = b"HTTP/1.0 302 Found\r\nLocation: /x\r\n\r\n";
    assert_eq!(told(&any, moved, false), "Passed: http 302");
    let gone = b"HTTP/1.1 503 Service Unavailable\r\n\r\n";
    assert_eq!(
        told(&any, gone, false),
        "Failed: http 503, expected 200-399"
    );
    let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(told(&any, interim, false), "Passed: http 204");
}

#[test]
fn what_is_no_http_fails_at_once() {
    let any = Http::default();
    assert_eq!(
        told(&any, b"SSH-2.0-OpenSSH_9.2\r\n", false)
            .split(':')
            .next(),
        Some("Failed")
    );
    assert_eq!(
        told(&any, b"HTTP/2.0 200\r\n\r\n", false).split(':').next(),
        Some("Failed")
    );
    assert_eq!(
        told(&any, b"HTTP/1.1 2x0 OK\r\n\r\n", false)
            .split(':')
            .next(),
        Some("Failed")
    );
    assert_eq!(told(&any, b"", true), "Failed: closed without an answer");
    assert_eq!(
        told(&any, b"HTTP/1.1 200 OK\r\nA: b", true),
        "Failed: closed within the header"
    );
    assert_eq!(told(&any, b"HTTP/1.1 200 OK\r\nA: b", false), "waits");
}

#[test]
fn bodies_by_length_by_chunks_and_until_the_end() {
    let up = body("Up");
    let length = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nSite Upand more";
    assert_eq!(told(&up, length, false), "Passed: http 200");
    let beyond = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nSite Up";
    assert_eq!(
        told(&up, beyond, false),
        "Failed: http 200, body without \"Up\""
    );
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6;x=y\r\nSite U\r\n1\r\np\r\n0\r\n\r\n";
    assert_eq!(told(&up, chunks, false), "Passed: http 200");
    let cut = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nSite \r\n";
    assert_eq!(
        told(&up, cut, true),
        "Failed: http 200, closed within the body"
    );
    let broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    assert_eq!(told(&up, broken, false), "Failed: broken chunk in the body");
    let open = b"HTTP/1.0 200 OK\r\n\r\nSite Down";
    assert_eq!(
        told(&up, open, true),
        "Failed: http 200, body without \"Up\""
    );
    assert_eq!(told(&up, open, false), "waits");
}

#[test]
fn endless_answers_end() {
    let piece = [b'a'; 4096];
    let mut fields = exchange(Http::default());
    fields.receive(b"HTTP/1.1 200 OK\r\n");
    let ends = (0..64).find_map(|_| match fields.receive(&piece) {
        Reply::Finished(outcome) => Some(outcome.note),
        _ => None,
    });
    assert_eq!(ends.as_deref(), Some("header without an end"));
    let mut long = exchange(body("Up"));
    long.receive(b"HTTP/1.1 200 OK\r\n\r\n");
    let ends = (0..1024).find_map(|_| match long.receive(&piece) {
        Reply::Finished(outcome) => Some(outcome.note),
        _ => None,
    });
    assert_eq!(ends.as_deref(), Some("body without an end"));
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nUp since\n";

#[test]
fn bodies_match_patterns() {
    let wanted = |regex: Option<&str>, without: Option<&str>| Http {
        pattern: regex.map(|text| Pattern::new(text).unwrap()),
        without: without.map(|text| Pattern::new(text).unwrap()),
        ..Http::default()
    };
    assert_eq!(
        told(&wanted(Some("^Up\\s"), Some("maintenance")), ANSWER, false),
        "Passed: http 200"
    );
    assert_eq!(
        told(&wanted(Some("^since"), None), ANSWER, false),
        "Failed: http 200, body does not match /^since/"
    );
    assert_eq!(
        told(&wanted(None, Some("(?i)UP")), ANSWER, false),
        "Failed: http 200, body matches /(?i)UP/"
    );
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &[b'x'; 2 << 20]].concat();
    let at_once = |wanted: Http| {
        let mut exchange = exchange(wanted);
        exchange.open();
        match exchange.receive(&endless) {
            Reply::Finished(outcome) => format!("{:?}: {}", outcome.verdict, outcome.note),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(at_once(wanted(Some("^xxx"), None)), "Passed: http 200");
    assert_eq!(
        at_once(wanted(Some("y"), None)),
        "Failed: body without an end"
    );
}

#[test]
fn bodies_have_digests() {
    let wanted = |digest| Http {
        digest: Some(digest),
        ..Http::default()
    };
    // md5sum and sha256sum of the same line.
    let md5 = 0xf8ba_c304_b7c2_8c40_dc49_39db_6a32_3697_u128.to_be_bytes();
    let empty = [
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9,
        0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52,
        0xb8, 0x55,
    ];
    assert_eq!(
        told(&wanted(Digest::Md5(md5)), ANSWER, false),
        "Passed: http 200"
    );
    let nothing = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(
        told(&wanted(Digest::Sha256(empty)), nothing, false),
        "Passed: http 200"
    );
    assert_eq!(
        told(&wanted(Digest::Md5(md5)), nothing, false),
        "Failed: http 200, the body's digest is d41d8cd98f00b204e9800998ecf8427e"
    );
}
