//! Tests accepted and rejected heads, and the properties of every prefix of a head.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Option<Request>, ParseError> {
    parse_request(text.as_bytes(), &HeadLimits::default(), &mut Vec::new())
}

fn rejection(text: &str) -> ParseError {
    match parse(text) {
        Err(error) => error,
        other => panic!("{text:?}: {other:?}"),
    }
}

fn parse_response_text(text: &str, to_head: bool) -> Result<Option<Response>, ParseError> {
    parse_response(
        text.as_bytes(),
        to_head,
        &HeadLimits::default(),
        &mut Vec::new(),
    )
}

#[test]
fn ordinary_request_is_parsed() {
    let text =
        "POST /a?b=c HTTP/1.1\r\nhost: example:8080\r\nContent-Length: 12\r\nX:\t y \t\r\n\r\nbody";
    let mut fields = Vec::new();
    let request = parse_request(text.as_bytes(), &HeadLimits::default(), &mut fields)
        .unwrap()
        .unwrap();
    assert_eq!(&text[request.len..], "body");
    assert_eq!(request.method_in(text.as_bytes()), b"POST");
    assert_eq!(request.path_in(text.as_bytes()), b"/a?b=c");
    assert_eq!(
        request.host_in(text.as_bytes(), &fields),
        Some(b"example:8080".as_slice())
    );
    assert_eq!(request.framing, Framing::Length(12));
    assert!(request.keep_alive && !request.http10 && !request.expects_continue && !request.upgrade);
    assert_eq!(fields[2].value_in(text.as_bytes()), b"y");
    assert_eq!(fields[2].name_in(text.as_bytes()), b"X");
}

#[test]
fn keep_alive_depends_on_version_and_connection() {
    let keeps_alive = |version: &str, connection: &str| {
        parse(&format!("GET / {version}\r\nHost: a\r\n{connection}\r\n"))
            .unwrap()
            .unwrap()
            .keep_alive
    };
    assert!(keeps_alive("HTTP/1.1", ""));
    assert!(!keeps_alive("HTTP/1.1", "Connection: x, CLOSE\r\n"));
    assert!(!keeps_alive(
        "HTTP/1.1",
        "Connection: keep-alive\r\nConnection: close\r\n"
    ));
    assert!(!keeps_alive("HTTP/1.0", ""));
    assert!(keeps_alive("HTTP/1.0", "Connection: Keep-Alive\r\n"));
}

#[test]
fn ambiguous_framing_is_rejected() {
    let rejection_of =
        |fields: &str| rejection(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    for fields in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: \r\n",
        "Content-Length: 1234567890123456789\r\n",
    ] {
        assert_eq!(
            rejection_of(fields),
            ParseError::ContentLength,
            "{fields:?}"
        );
    }
    for fields in [
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding:\r\n",
    ] {
        assert_eq!(
            rejection_of(fields),
            ParseError::TransferEncoding,
            "{fields:?}"
        );
    }
    assert!(matches!(
        rejection_of("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        ParseError::TransferEncoding | ParseError::ContentLength
    ));
    assert_eq!(
        rejection("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ParseError::TransferEncoding
    );
}

#[test]
fn malformed_lines_are_rejected() {
    use ParseError as E;

    for (text, error) in [
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", E::LineEnd),
        ("GET / HTTP/x.1\r\n\r\n", E::RequestLine),
        ("GET / HTTP/1.x\r\n\r\n", E::RequestLine),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", E::LineEnd),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", E::Field),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", E::Field),
        ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", E::Folded),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", E::Field),
        ("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", E::Field),
        ("GET / HTTP/1.1\r\nHost: a\r\n: nameless\r\n\r\n", E::Field),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\u{b}: y\r\n\r\n", E::Field),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", E::Target),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", E::RequestLine),
        ("GET /\r\nHost: a\r\n\r\n", E::RequestLine),
        ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", E::RequestLine),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", E::RequestLine),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", E::Version),
        ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", E::Target),
        ("GET /#f HTTP/1.1\r\nHost: a\r\n\r\n", E::Target),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", E::Target),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", E::Target),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", E::Target),
        ("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", E::Target),
        ("GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n", E::Target),
        ("GET / HTTP/1.1\r\n\r\n", E::Host),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", E::Host),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", E::Host),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", E::Host),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n",
            E::Expectation,
        ),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", E::Method),
    ] {
        assert_eq!(rejection(text), error, "{text:?}");
    }
}

#[test]
fn host_of_an_absolute_target_is_used() {
    let text = b"GET http://b.example:81?q HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut fields = Vec::new();
    let request = parse_request(text, &HeadLimits::default(), &mut fields)
        .unwrap()
        .unwrap();
    assert_eq!(
        request.host_in(text, &fields),
        Some(b"b.example:81".as_slice())
    );
    assert_eq!(request.path_in(text), b"?q");
    assert!(fields[0].dropped);
}

#[test]
fn limits_are_enforced() {
    let limits = HeadLimits {
        connect: false,
        underscores: weir_model::Underscores::Drop,
        head: 60,
        target: 10,
        fields: 2,
    };
    let parse = |text: &str| parse_request(text.as_bytes(), &limits, &mut Vec::new());
    assert_eq!(
        parse("GET /12345678901 HTTP/1.1\r\n"),
        Err(ParseError::TargetTooLong)
    );
    assert_eq!(parse("GET /123456789 HTTP/1.1\r\n"), Ok(None));
    assert_eq!(
        parse("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\n\r\n"),
        Err(ParseError::TooManyFields)
    );
    let head = |length: usize| {
        format!(
            "GET / HTTP/1.1\r\nA: {}\r\nHost: a\r\n\r\n",
            "b".repeat(length)
        )
    };
    let capacity = 60 - head(0).len();
    assert!(matches!(parse(&head(capacity)), Ok(Some(_))));
    assert_eq!(parse(&head(capacity + 1)), Err(ParseError::HeadTooLarge));
    assert_eq!(parse(&"A".repeat(60)), Ok(None));
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}", "b".repeat(60));
    assert_eq!(parse(&long), Err(ParseError::HeadTooLarge));
    assert_eq!(parse(&"A".repeat(61)), Err(ParseError::HeadTooLarge));
}

#[test]
fn upgrade_needs_both_fields_and_is_not_h2c() {
    let upgrades = |fields: &str| {
        parse(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
            .unwrap()
            .unwrap()
            .upgrade
    };
    assert!(upgrades(
        "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    ));
    assert!(!upgrades("Upgrade: websocket\r\n"));
    assert!(!upgrades("Connection: Upgrade\r\n"));
    assert!(!upgrades(
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"
    ));
    assert!(!upgrades(
        "Connection: Upgrade\r\nUpgrade: websocket, H2C\r\n"
    ));
    assert!(!upgrades(
        "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n"
    ));
}

#[test]
fn response_framing_depends_on_status_and_fields() {
    let framing =
        |text: &str, to_head| parse_response_text(text, to_head).unwrap().unwrap().framing;
    assert_eq!(
        framing("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false),
        Framing::Length(5)
    );
    assert_eq!(
        framing("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true),
        Framing::None
    );
    assert_eq!(
        framing("HTTP/1.1 204 No Content\r\n\r\n", false),
        Framing::None
    );
    assert_eq!(
        framing(
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            false
        ),
        Framing::None
    );
    assert_eq!(
        framing("HTTP/1.1 200\r\nTransfer-Encoding: Chunked\r\n\r\n", false),
        Framing::Chunked
    );
    assert_eq!(
        framing("HTTP/1.0 200 OK\r\n\r\n", false),
        Framing::UntilClose
    );
    for invalid in [
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\nX: y\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        assert!(parse_response_text(invalid, false).is_err(), "{invalid:?}");
    }
}

#[test]
fn head_end_is_found_incrementally() {
    let text = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
    let end = text.len() - 4;
    for offset in 0..end {
        assert_eq!(head_end(&text[..offset], 0), Ok(None), "{offset}");
        assert_eq!(head_end(text, offset), Ok(Some(end)), "{offset}");
    }
    assert_eq!(
        head_end(b"GET / HTTP/1.1\nHost", 0),
        Err(ParseError::LineEnd)
    );
}

proptest! {
    #[test]
    fn arbitrary_input_does_not_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut fields = Vec::new();
        let _ = parse_request(&input, &HeadLimits::default(), &mut fields);
        let _ = parse_response(&input, false, &HeadLimits::default(), &mut fields);
        let _ = head_end(&input, 0);
    }

    /// A prefix of a nearly valid request is not complete before the empty line, and is not rejected if the whole
    /// request is valid.
    #[test]
    fn prefixes_are_incomplete_or_rejected(cut in 0usize..1000, noise in prop::sample::select(vec!["", " ", "\r", "\n", "\0", ":", "chunked", "5"]), at in 0usize..80) {
        let mut text = "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: x\r\nX: y\r\n\r\n".to_owned();
        text.insert_str(at.min(text.len()), noise);
        let complete = parse(&text);
        let cut = cut % text.len();
        let prefix = parse(&text[..cut]);
        if let Ok(Some(request)) = &prefix {
            prop_assert_eq!(complete, Ok(Some(request.clone())));
        } else if let (Err(_), Ok(Some(_))) = (&prefix, &complete) {
            prop_assert!(false, "{:?} is rejected as a prefix but accepted as a whole", text);
        }
    }
}

/// Returns the fields that are forwarded, and the number of fields removed because of a `_` in their names.
fn forwarded_fields(rule: weir_model::Underscores) -> Result<(Vec<String>, u16), ParseError> {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nX_A: 1\r\nX-B: 2\r\nContent_Length: 3\r\n\r\n";
    let limits = HeadLimits {
        underscores: rule,
        ..HeadLimits::default()
    };
    let mut fields = Vec::new();
    let request = parse_request(text.as_bytes(), &limits, &mut fields)?.unwrap();
    let names = fields.iter().map(|field| field.name_in(text.as_bytes()));
    let names = names.map(|name| String::from_utf8(name.to_vec()).unwrap());
    Ok((names.collect(), request.removed_underscores))
}

#[test]
fn fields_with_underscores_are_handled_as_configured() {
    use weir_model::Underscores::{Drop, Keep, Reject};
    let all = ["Host", "X_A", "X-B", "Content_Length"].map(str::to_owned);
    assert_eq!(forwarded_fields(Keep), Ok((all.to_vec(), 0)));
    let remaining = ["Host", "X-B"].map(str::to_owned);
    assert_eq!(forwarded_fields(Drop), Ok((remaining.to_vec(), 2)));
    assert_eq!(forwarded_fields(Reject), Err(ParseError::Underscore));
}

#[test]
fn request_without_underscores_is_accepted_by_every_policy() {
    for underscores in [Underscores::Keep, Underscores::Drop, Underscores::Reject] {
        let limits = HeadLimits {
            underscores,
            ..HeadLimits::default()
        };
        let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let request = parse_request(text, &limits, &mut Vec::new());
        assert!(matches!(request, Ok(Some(_))), "{underscores:?}");
    }
}

#[test]
fn repeated_fields_that_servers_interpret_differently_are_rejected() {
    for field in ["Upgrade: websocket\r\n", "Expect: 100-continue\r\n"] {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{field}{field}\r\n");
        assert_eq!(rejection(&text), ParseError::Repeated, "{field}");
    }
}

#[test]
fn expectation_is_forwarded_if_a_body_follows() {
    let expects = |version: &str, framing: &str| {
        let text = format!("POST / {version}\r\nHost: a\r\nExpect: 100-Continue\r\n{framing}\r\n");
        let mut fields = Vec::new();
        let request = parse_request(text.as_bytes(), &HeadLimits::default(), &mut fields);
        let request = request.unwrap().unwrap();
        let expect = fields
            .iter()
            .find(|field| field.name == Name::Expect)
            .unwrap();
        assert_eq!(expect.dropped, !request.expects_continue);
        request.expects_continue
    };
    assert!(expects("HTTP/1.1", "Content-Length: 1\r\n"));
    assert!(expects("HTTP/1.1", "Transfer-Encoding: chunked\r\n"));
    assert!(!expects("HTTP/1.1", ""));
    assert!(!expects("HTTP/1.0", "Content-Length: 1\r\n"));
}

#[test]
fn up_to_two_empty_lines_precede_a_request() {
    for (text, expected_len) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27),
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 29),
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 31),
    ] {
        let request = parse(text).unwrap().unwrap();
        assert_eq!(request.len, expected_len);
        assert_eq!(request.method_in(text.as_bytes()), b"GET");
        assert_eq!(request.path_in(text.as_bytes()), b"/");
    }
    let three = "\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(rejection(three), ParseError::RequestLine);
}

#[test]
fn connect_target_is_a_host_with_a_port() {
    let limits = HeadLimits {
        connect: true,
        ..HeadLimits::default()
    };
    let parse = |target: &str| {
        let text = format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut fields = Vec::new();
        let request = parse_request(text.as_bytes(), &limits, &mut fields)?.unwrap();
        assert_eq!(request.path_in(text.as_bytes()), b"");
        let host = request.host_in(text.as_bytes(), &fields).unwrap();
        Ok(String::from_utf8(host.to_vec()).unwrap())
    };
    for target in ["a:443", "192.0.2.1:8443", "[2001:db8::1]:443"] {
        assert_eq!(parse(target), Ok(target.to_owned()));
    }
    for target in ["a", "a:", "a:x", "[::1]", "u@a:443", "/", "http://a:80/"] {
        assert_eq!(parse(target), Err(ParseError::Target), "{target}");
    }
}

#[test]
fn connect_has_no_body() {
    let limits = HeadLimits {
        connect: true,
        ..HeadLimits::default()
    };
    let parse = |fields: &str| {
        let text = format!("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let request = parse_request(text.as_bytes(), &limits, &mut Vec::new())?;
        Ok(request.unwrap().method)
    };
    assert_eq!(parse(""), Ok(Method::Connect));
    for framing in ["Content-Length: 1\r\n", "Transfer-Encoding: chunked\r\n"] {
        assert_eq!(parse(framing), Err(ParseError::Method), "{framing}");
    }
}

#[test]
fn idempotent_methods_match_rfc_9110() {
    for (name, method, idempotent) in [
        ("GET", Method::Get, true),
        ("HEAD", Method::Head, true),
        ("PUT", Method::Put, true),
        ("DELETE", Method::Delete, true),
        ("OPTIONS", Method::Options, true),
        ("TRACE", Method::Trace, true),
        ("POST", Method::Post, false),
        ("PATCH", Method::Other, false),
        ("get", Method::Other, false),
    ] {
        let request = parse(&format!("{name} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        let parsed = request.unwrap().unwrap().method;
        assert_eq!((parsed, parsed.is_idempotent()), (method, idempotent));
    }
    assert!(!Method::Connect.is_idempotent());
}

#[test]
fn other_protocol_is_recognized_by_its_version() {
    for (line, other) in [
        ("OPTIONS rtsp://a RTSP/1.0\r\nCSeq: 1\r\n", true),
        ("INVITE sip:a SIP/2.0", true),
        ("GET / HTTP/3.0\r\n", false),
        ("GET / HTTP/1.1 x\r\n", false),
        ("GET / x y\r\n", false),
        ("GET /\r\n", false),
        ("\x16\x03\x01", false),
    ] {
        assert_eq!(is_other_protocol(line.as_bytes()), other, "{line}");
    }
}

#[test]
fn large_response_heads_are_rejected() {
    let limits = HeadLimits {
        head: 60,
        ..HeadLimits::default()
    };
    let parse = |text: &str| parse_response(text.as_bytes(), false, &limits, &mut Vec::new());
    let head = |length: usize| format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "b".repeat(length));
    let capacity = 60 - head(0).len();
    assert!(matches!(parse(&head(capacity)), Ok(Some(_))));
    assert_eq!(parse(&head(capacity + 1)), Err(ParseError::HeadTooLarge));
    assert_eq!(parse(&"H".repeat(60)), Ok(None));
    assert_eq!(parse(&"H".repeat(61)), Err(ParseError::HeadTooLarge));
    let incomplete = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(60));
    assert_eq!(parse(&incomplete), Err(ParseError::HeadTooLarge));
}

#[test]
fn response_without_a_body_has_no_framing_fields() {
    let dropped = |text: &str| {
        let mut fields = Vec::new();
        let response = parse_response(text.as_bytes(), false, &HeadLimits::default(), &mut fields);
        response.unwrap().unwrap();
        fields.iter().map(|field| field.dropped).collect::<Vec<_>>()
    };
    let fields = "A: 1\r\nContent-Length: 0\r\nConnection: x\r\nUpgrade: y\r\n\r\n";
    for (status, expected) in [
        ("200 OK", [false, false, true, true]),
        ("204 No", [false, true, true, true]),
        ("103 Early", [false, true, true, true]),
        ("101 Switch", [false, true, true, false]),
        ("426 Upgrade", [false, false, true, false]),
        ("304 Not", [false, false, true, true]),
    ] {
        let text = format!("HTTP/1.1 {status}\r\n{fields}");
        assert_eq!(dropped(&text), expected, "{status}");
    }
}

#[test]
fn limits_come_from_the_service() {
    let mut proxy = weir_model::Proxy::new("www", weir_model::ProxyProtocol::Http, "p");
    proxy.limits.head = 4096;
    proxy.limits.fields = 7;
    proxy.connect = true;
    proxy.underscores = Underscores::Keep;
    let limits = HeadLimits::from(&proxy);
    assert_eq!((limits.head, limits.target), (4096, 2048));
    assert_eq!((limits.fields, limits.connect), (7, true));
    assert_eq!(limits.underscores, Underscores::Keep);
}
