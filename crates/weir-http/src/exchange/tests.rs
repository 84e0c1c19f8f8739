//! Tests exchanges with the bytes of a client and a server.

use super::*;
use weir_model::Compression;

use crate::rewrite::Encoding;

fn exchange(request: &str) -> Exchange {
    let limits = HeadLimits {
        connect: true,
        ..HeadLimits::default()
    };
    let request = head::parse_request(request.as_bytes(), &limits, &mut Vec::new());
    Exchange::new(
        &request.unwrap().expect("request head is complete"),
        Underscores::Keep,
    )
}

fn get() -> Exchange {
    exchange("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn post(length: usize) -> Exchange {
    exchange(&format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n"
    ))
}

/// Returns the bytes that the client receives for the server's bytes, and how many of the server's bytes were
/// processed.
fn client_output_with(
    exchange: &mut Exchange,
    input: &str,
    closing: bool,
    edit: &ResponseEdit<'_>,
) -> Result<(String, usize), ParseError> {
    let (mut fields, mut out) = (Vec::new(), Vec::new());
    let limits = HeadLimits::default();
    let step = exchange.process_server_data(
        input.as_bytes(),
        &limits,
        closing,
        edit,
        &mut fields,
        &mut out,
    )?;
    out.extend_from_slice(&input.as_bytes()[step.forward]);
    Ok((String::from_utf8(out).unwrap(), step.consumed))
}

fn client_output(exchange: &mut Exchange, input: &str) -> (String, usize) {
    client_output_with(exchange, input, false, &ResponseEdit::default()).unwrap()
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";

#[test]
fn response_is_forwarded_up_to_its_end() {
    let mut exchange = get();
    assert!(exchange.request_done() && !exchange.is_answered() && !exchange.response_done());
    assert_eq!(
        (exchange.status(), exchange.response_remaining()),
        (0, None)
    );
    let incomplete = &OK[..OK.len() - 1];
    assert_eq!(client_output(&mut exchange, incomplete), (String::new(), 0));
    assert!(exchange.client_could_persist() && !exchange.client_persists());

    let (text, consumed) = client_output(&mut exchange, &format!("{OK}a"));
    assert_eq!((text, consumed), (format!("{OK}a"), OK.len() + 1));
    assert!(exchange.is_answered() && !exchange.response_done());
    assert_eq!(
        (exchange.status(), exchange.response_remaining()),
        (200, Some(2))
    );
    assert!(!exchange.client_persists() && !exchange.server_persists());
    assert_eq!(
        client_output(&mut exchange, "bcHTTP/1.1"),
        ("bc".to_owned(), 2)
    );
    assert!(exchange.response_done() && exchange.client_persists() && exchange.server_persists());
    assert!(!exchange.client_could_persist(), "the response was sent");
    assert_eq!(client_output(&mut exchange, "more"), (String::new(), 0));
    assert_eq!(exchange.handle_server_end(), ServerEnd::Complete);
}

#[test]
fn response_without_a_body_ends_after_its_head() {
    for text in [
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ] {
        let mut exchange = get();
        let input = format!("{text}rest");
        assert_eq!(
            client_output(&mut exchange, &input),
            (text.to_owned(), text.len())
        );
        assert!(exchange.client_persists() && exchange.response_remaining().is_none());
    }
    let mut exchange = exchange("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(exchange.to_head() && !get().to_head());
    assert_eq!(
        client_output(&mut exchange, &format!("{OK}rest")).1,
        OK.len()
    );
    assert!(exchange.client_persists());
}

#[test]
fn spliced_bytes_count_as_the_body() {
    let mut exchange = post(5);
    assert_eq!(exchange.request_remaining(), Some(5));
    exchange.record_forwarded_request(2);
    assert_eq!(exchange.request_remaining(), Some(3));
    assert!(!exchange.request_done() && !exchange.client_could_persist());
    client_output(&mut exchange, OK);
    assert_eq!(
        exchange.request_remaining(),
        Some(3),
        "the server still expects the rest of the body"
    );
    exchange.record_forwarded_response(2);
    assert_eq!(
        (exchange.response_remaining(), exchange.response_done()),
        (Some(1), false)
    );
    exchange.record_forwarded_response(1);
    assert_eq!(
        (exchange.response_remaining(), exchange.response_done()),
        (None, true)
    );
    exchange.record_forwarded_request(3);
    assert!(exchange.request_done() && exchange.request_remaining().is_none());

    let mut endless = get();
    client_output(&mut endless, "HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(endless.response_remaining(), Some(u64::MAX));
    endless.record_forwarded_response(10);
    assert!(!endless.response_done());
    let mut chunked = get();
    client_output(
        &mut chunked,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    assert_eq!(chunked.response_remaining(), None);
}

#[test]
fn request_body_is_forwarded_up_to_its_end() {
    let mut exchange = post(5);
    assert_eq!(
        exchange.process_client_data(b"ab").unwrap(),
        RequestStep {
            consumed: 2,
            forward_len: 2,
            trailers: Vec::new()
        }
    );
    assert_eq!(
        (exchange.request_content(), exchange.request_done()),
        (2, false)
    );
    let last = exchange.process_client_data(b"cdeGET /").unwrap();
    assert_eq!((last.consumed, last.forward_len), (3, 3));
    assert_eq!(
        (exchange.request_content(), exchange.request_done()),
        (5, true)
    );

    let mut chunked =
        self::exchange("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(chunked.request_remaining(), None);
    let upload = chunked
        .process_client_data(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nGET")
        .unwrap();
    assert_eq!((upload.consumed, upload.forward_len), (20, 20));
    assert_eq!(
        (chunked.request_content(), chunked.request_done()),
        (5, true)
    );
}

#[test]
fn connections_persist_if_both_messages_are_complete() {
    // Each case is a request, a response and whether the proxy is closing, then the `Connection` field that the client
    // receives, and whether the client's and the server's connections persist.
    let close = "Connection: close\r\n";
    let keep = "Connection: keep-alive\r\n";
    let old = "GET / HTTP/1.0\r\nHost: h\r\n";
    let new = "GET / HTTP/1.1\r\nHost: h\r\n";
    for (request, response, closing, connection, client, server) in [
        (format!("{new}\r\n"), "", false, "", true, true),
        (format!("{new}\r\n"), "", true, close, false, true),
        (format!("{new}\r\n"), close, false, "", true, false),
        (format!("{new}{close}\r\n"), "", false, close, false, true),
        (format!("{old}\r\n"), "", false, close, false, true),
        (format!("{old}{keep}\r\n"), "", false, keep, true, true),
        (format!("{old}{keep}\r\n"), "", true, close, false, true),
    ] {
        let mut exchange = exchange(&request);
        assert_eq!(exchange.is_http10(), request.starts_with(old));
        let input = format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n{response}\r\nabc");
        let (text, _) =
            client_output_with(&mut exchange, &input, closing, &ResponseEdit::default()).unwrap();
        let expected = format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n{connection}\r\nabc");
        assert_eq!(text, expected, "{request:?} {response:?}");
        assert_eq!(
            (exchange.client_persists(), exchange.server_persists()),
            (client, server),
            "{request:?} {response:?}"
        );
    }
    // The rest of an incomplete request could be mistaken for the next request.
    let mut early = post(5);
    let (text, _) = client_output(&mut early, &format!("{OK}abc"));
    assert!(text.contains(close), "{text}");
    assert!(!early.client_persists() && !early.server_persists());
    early.record_forwarded_request(5);
    assert!(!early.client_persists() && early.server_persists());
    // A body without a length ends with the connection.
    let mut endless = get();
    let (text, _) = client_output(&mut endless, "HTTP/1.1 200 OK\r\n\r\nabc");
    assert!(text.contains(close), "{text}");
    assert_eq!(endless.handle_server_end(), ServerEnd::Complete);
    assert!(endless.response_done() && !endless.client_persists() && !endless.server_persists());
}

#[test]
fn end_of_server_connection_completes_or_truncates_the_response() {
    let hints = "HTTP/1.1 103 Early Hints\r\n\r\n";
    for (input, end) in [
        ("", ServerEnd::Unanswered),
        ("HTTP/1.1 2", ServerEnd::Unanswered),
        (hints, ServerEnd::Interim),
        (&format!("{hints}{OK}ab"), ServerEnd::Truncated),
        (&format!("{hints}{OK}abc"), ServerEnd::Complete),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
            ServerEnd::Truncated,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            ServerEnd::Complete,
        ),
    ] {
        let mut exchange = get();
        client_output(&mut exchange, input);
        assert_eq!(exchange.handle_server_end(), end, "{input:?}");
    }
}

#[test]
fn interim_responses_are_forwarded_except_to_http10() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let input = format!("{hints}{OK}abc");
    let removed_names = ["link".to_owned()];
    let edit = ResponseEdit {
        remove: &removed_names,
        ..ResponseEdit::default()
    };
    let (text, consumed) = client_output_with(&mut get(), &input, false, &edit).unwrap();
    assert_eq!(
        (text, consumed),
        (input.clone(), input.len()),
        "edits must apply only to the final response"
    );

    let mut old = exchange("GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n");
    let (text, consumed) = client_output(&mut old, &input);
    assert_eq!(consumed, input.len());
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");

    for (count, is_allowed) in [(16, true), (17, false)] {
        let input = format!("{}{OK}", hints.repeat(count));
        let result = client_output_with(&mut get(), &input, false, &ResponseEdit::default());
        assert_eq!(result.is_ok(), is_allowed, "{count}");
    }
}

#[test]
fn http10_client_receives_chunked_bodies_decoded() {
    let mut exchange = exchange("GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n");
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (text, _) = client_output(&mut exchange, &format!("{head}3\r\nab"));
    assert_eq!(text, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nab");
    let (text, consumed) = client_output(&mut exchange, "c\r\n0\r\n\r\nrest");
    assert_eq!((text.as_str(), consumed), ("c", 8));
    assert!(exchange.response_done() && !exchange.client_persists() && exchange.server_persists());
}

#[test]
fn tunnels_forward_all_bytes_unchanged() {
    let upgrade = "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n";
    let connect = "CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n";
    for (request, response, connection) in [
        (
            upgrade,
            switching,
            format!("{switching}Connection: Upgrade\r\n\r\nxyz"),
        ),
        (
            connect,
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n",
            "HTTP/1.1 200 OK\r\n\r\nxyz".to_owned(),
        ),
    ] {
        let mut exchange = exchange(request);
        assert!(!exchange.is_tunnel() && exchange.request_done());
        let input = format!("{response}\r\nxyz");
        assert_eq!(
            client_output(&mut exchange, &input),
            (connection, input.len())
        );
        assert!(exchange.is_tunnel() && exchange.is_answered() && !exchange.request_done());
        assert!(!exchange.response_done() && !exchange.client_persists());
        assert_eq!(exchange.process_client_data(b"up").unwrap().forward_len, 2);
        assert_eq!(client_output(&mut exchange, "down"), ("down".to_owned(), 4));
        assert_eq!(exchange.handle_server_end(), ServerEnd::Complete);
    }
    // The response to a rejected CONNECT is an ordinary response; an unrequested protocol switch is an error.
    let mut refused = exchange(connect);
    assert_eq!(
        client_output(
            &mut refused,
            &format!("{}abc", OK.replace("200 OK", "403 No"))
        )
        .1,
        OK.len() + 3
    );
    assert!(!refused.is_tunnel() && refused.response_done());
    for request in [
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n",
    ] {
        let edit = ResponseEdit::default();
        let result = client_output_with(
            &mut exchange(request),
            &format!("{switching}\r\n"),
            false,
            &edit,
        );
        assert_eq!(result, Err(ParseError::StatusLine));
    }
}

#[test]
fn response_after_a_discarded_one_is_forwarded() {
    let mut exchange = get();
    client_output(
        &mut exchange,
        "HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\n",
    );
    exchange.discard_response();
    assert!(!exchange.is_answered() && exchange.client_could_persist());
    assert_eq!(
        client_output(&mut exchange, &format!("{OK}abc")).0,
        format!("{OK}abc")
    );
    assert_eq!((exchange.status(), exchange.response_done()), (200, true));
}

#[test]
fn content_to_compress_is_passed_to_the_caller() {
    let rules = Compression::default();
    let gzip = ResponseEdit {
        encoding: Some(Encoding {
            rules: &rules,
            negotiated: Some(Coding::Gzip),
        }),
        ..ResponseEdit::default()
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2000\r\n\r\n";
    let mut exchange = get();
    let (mut fields, mut out) = (Vec::new(), Vec::new());
    let input = format!("{head}abc");
    let limits = HeadLimits::default();
    let step = exchange
        .process_server_data(
            input.as_bytes(),
            &limits,
            false,
            &gzip,
            &mut fields,
            &mut out,
        )
        .unwrap();
    assert_eq!((step.consumed, step.forward.len()), (input.len(), 0));
    assert_eq!(&out[step.content_start..], b"abc");
    assert_eq!(exchange.response_coding(), Some(Coding::Gzip));
    assert_eq!(
        exchange.response_remaining(),
        None,
        "the body must pass through the encoder"
    );
    // The encoded body is chunked, even if the server's body ends with its connection.
    let mut endless = get();
    let (text, _) = client_output_with(
        &mut endless,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
        false,
        &gzip,
    )
    .unwrap();
    assert!(
        text.contains("Transfer-Encoding: chunked\r\n") && !text.contains("Connection: close"),
        "{text}"
    );
    exchange.discard_response();
    assert_eq!(exchange.response_coding(), None);
}

#[test]
fn responses_that_cannot_be_compressed_are_not_encoded() {
    let rules = Compression::default();
    let edit = |negotiated| ResponseEdit {
        encoding: Some(Encoding {
            rules: &rules,
            negotiated,
        }),
        ..ResponseEdit::default()
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2000\r\n\r\n";
    let gzip = edit(Some(Coding::Gzip));
    let plain = |request: &str, response: &str, edit: &ResponseEdit<'_>| {
        let mut exchange = self::exchange(request);
        let (text, _) = client_output_with(&mut exchange, response, false, edit).unwrap();
        assert_eq!(exchange.response_coding(), None, "{text}");
        text.contains("Vary: Accept-Encoding")
    };
    let new = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    assert!(
        plain(new, head, &edit(None)),
        "other clients receive a compressed body"
    );
    assert!(!plain("GET / HTTP/1.0\r\nHost: h\r\n\r\n", head, &gzip));
    assert!(!plain(new, &head.replace("text", "video"), &gzip));
    assert!(!plain(new, &head.replace("2000", "0"), &gzip));
    let all_lengths = Compression {
        minimum: 0,
        ..Compression::default()
    };
    let encoding = Encoding {
        rules: &all_lengths,
        negotiated: Some(Coding::Gzip),
    };
    let edit_all = ResponseEdit {
        encoding: Some(encoding),
        ..ResponseEdit::default()
    };
    assert!(
        plain(new, &head.replace("2000", "0"), &edit_all),
        "an empty body must not be encoded"
    );
    let mut to_head = self::exchange("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    let (text, _) = client_output_with(&mut to_head, head, false, &gzip).unwrap();
    assert!(
        text.contains("Content-Encoding: gzip"),
        "as for GET: {text}"
    );
}

#[test]
fn status_is_replaced_except_in_responses_without_content() {
    let edit = ResponseEdit {
        status: Some(404),
        ..ResponseEdit::default()
    };
    for (status, expected) in [
        ("200 OK", ("404 Not Found", 404)),
        ("503 No", ("404 Not Found", 404)),
        ("204 Empty", ("204 Empty", 204)),
        ("304 Same", ("304 Same", 304)),
    ] {
        let mut exchange = get();
        let input = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        let (head, _) = client_output_with(&mut exchange, &input, false, &edit).unwrap();
        assert!(
            head.starts_with(&format!("HTTP/1.1 {}\r\n", expected.0)),
            "{head}"
        );
        let server: u16 = status[..3].parse().unwrap();
        assert_eq!(
            (exchange.status(), exchange.client_status()),
            (server, expected.1)
        );
    }
}
