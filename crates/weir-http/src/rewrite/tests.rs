//! Tests the heads that servers and clients receive.

use weir_model::{HeaderEdit, Template, TextRegex};

use super::*;
use crate::head::{self, HeadLimits};

const CLIENT: Client = Client {
    address: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 107)),
    secure: false,
    trusted: false,
    forwarded: Forwarded::XForwarded,
};

const EDIT: RequestEdit<'static> = RequestEdit {
    set_host: None,
    client: None,
    fields: None,
    host: b"own.example",
    version: "1.1",
    path: None,
    add: b"",
    edits: [None, None],
    close: false,
};

/// Returns the head that the server receives.
fn request(text: &str, edit: &RequestEdit<'_>) -> String {
    let limits = HeadLimits {
        connect: true,
        ..HeadLimits::default()
    };
    let (mut fields, mut out) = (Vec::new(), Vec::new());
    let request = head::parse_request(text.as_bytes(), &limits, &mut fields);
    let request = request.unwrap().expect("head is complete");
    write_request(text.as_bytes(), &request, &fields, edit, &mut out);
    String::from_utf8(out).unwrap()
}

/// Returns the lines that Weir adds to a client's request with `fields`.
fn forwarded_lines(fields: &str, client: Client, route: Option<&HeaderEdits>) -> String {
    let edit = RequestEdit {
        client: Some(client),
        edits: [None, route],
        ..EDIT
    };
    let text = request(&format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"), &edit);
    let rest = text.strip_prefix("GET / HTTP/1.1\r\nHost: h\r\n").unwrap();
    rest.strip_suffix("Via: 1.1 weir\r\n\r\n")
        .unwrap()
        .to_owned()
}

#[test]
fn hop_by_hop_fields_are_not_forwarded() {
    let text = "GET /a?b HTTP/1.1\r\nTE: trailers\r\nA: 1\r\nHost: h\r\nKeep-Alive: 5\r\nB: 2\r\n\
                Proxy-Connection: x\r\nConnection: B\r\nUpgrade: x\r\nHTTP2-Settings: x\r\nC: 3\r\nD: 4\r\n\r\n";
    assert_eq!(
        request(text, &EDIT),
        "GET /a?b HTTP/1.1\r\nA: 1\r\nHost: h\r\nC: 3\r\nD: 4\r\nVia: 1.1 weir\r\n\r\n"
    );
}

#[test]
fn request_line_has_the_path_that_the_server_expects() {
    let other_edit = RequestEdit {
        path: Some(b"/new?q"),
        ..EDIT
    };
    for (line, edit, expected) in [
        ("GET /a?b HTTP/1.1", &EDIT, "GET /a?b HTTP/1.1"),
        ("GET /a?b HTTP/1.0", &EDIT, "GET /a?b HTTP/1.1"),
        ("GET http://h/a HTTP/1.1", &EDIT, "GET /a HTTP/1.1"),
        ("GET http://h?b HTTP/1.1", &EDIT, "GET /?b HTTP/1.1"),
        ("OPTIONS * HTTP/1.1", &EDIT, "OPTIONS * HTTP/1.1"),
        ("CONNECT h:443 HTTP/1.1", &EDIT, "CONNECT h:443 HTTP/1.1"),
        ("GET /a?b HTTP/1.1", &other_edit, "GET /new?q HTTP/1.1"),
        (
            "CONNECT h:443 HTTP/1.1",
            &other_edit,
            "CONNECT h:443 HTTP/1.1",
        ),
    ] {
        let text = request(&format!("{line}\r\nHost: h\r\n\r\n"), edit);
        assert_eq!(text.lines().next(), Some(expected), "{line}");
    }
}

#[test]
fn server_receives_exactly_one_host() {
    for (text, host) in [
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", "h"),
        ("GET / HTTP/1.0\r\n\r\n", "own.example"),
        ("GET http://t:81/ HTTP/1.1\r\nHost: h\r\n\r\n", "t:81"),
        ("GET http://t/ HTTP/1.0\r\n\r\n", "t"),
    ] {
        let output = request(text, &EDIT);
        let hosts: Vec<_> = output
            .lines()
            .filter_map(|line| line.strip_prefix("Host: "))
            .collect();
        assert_eq!(hosts, [host], "{text:?}");
    }
}

#[test]
fn configured_host_replaces_the_received_one() {
    let edit = RequestEdit {
        set_host: Some(b"new.example"),
        ..EDIT
    };
    for received in ["", "Host: h\r\n"] {
        let text = format!("GET / HTTP/1.0\r\nA: 1\r\n{received}B: 2\r\n\r\n");
        assert_eq!(
            request(&text, &edit),
            "GET / HTTP/1.1\r\nHost: new.example\r\nA: 1\r\nB: 2\r\nVia: 1.1 weir\r\n\r\n"
        );
    }
}

#[test]
fn connection_field_of_a_request_depends_on_upgrade_and_close() {
    let close = RequestEdit {
        close: true,
        version: "2",
        add: b"X-Added: 1\r\n",
        ..EDIT
    };
    let end = |fields: &str, edit| {
        let text = request(&format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"), edit);
        text.split_once("Host: h\r\n").unwrap().1.to_owned()
    };
    assert_eq!(
        end("", &close),
        "X-Added: 1\r\nVia: 2 weir\r\nConnection: close\r\n\r\n"
    );
    // The connection is closed after an upgrade in any case.
    assert_eq!(
        end("Connection: upgrade\r\nUpgrade: websocket\r\n", &close),
        "Upgrade: websocket\r\nX-Added: 1\r\nVia: 2 weir\r\nConnection: Upgrade\r\n\r\n"
    );
}

#[test]
fn x_forwarded_fields_extend_those_of_trusted_clients_only() {
    let received_fields = "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: ftp\r\nForwarded: for=x\r\n\
                           X-Real-IP: 5.6.7.8\r\n";
    let new_fields = "X-Forwarded-For: 192.0.2.107\r\nX-Forwarded-Proto: http\r\n";
    assert_eq!(forwarded_lines("", CLIENT, None), new_fields);
    assert_eq!(
        forwarded_lines(received_fields, CLIENT, None),
        new_fields,
        "fields from untrusted clients must be replaced"
    );
    let trusted = Client {
        trusted: true,
        secure: true,
        ..CLIENT
    };
    assert_eq!(
        forwarded_lines("X-Forwarded-For: 9.9.9.9\r\n", trusted, None),
        "X-Forwarded-For: 9.9.9.9, 192.0.2.107\r\nX-Forwarded-Proto: https\r\n"
    );
    assert_eq!(
        forwarded_lines(received_fields, trusted, None),
        "X-Forwarded-Proto: ftp\r\nForwarded: for=x\r\nX-Real-IP: 5.6.7.8\r\nX-Forwarded-For: 1.2.3.4, 192.0.2.107\r\n"
    );
    assert_eq!(
        forwarded_lines("X-Forwarded-Host: a\r\n", CLIENT, None),
        new_fields,
        "untrusted"
    );
}

#[test]
fn forwarded_field_extends_that_of_trusted_clients_only() {
    let standard = Client {
        forwarded: Forwarded::Rfc7239,
        ..CLIENT
    };
    let new_element = "for=192.0.2.107;host=\"h\";proto=http\r\n";
    let received_fields = "Forwarded: for=x\r\nX-Forwarded-For: 1.2.3.4\r\n";
    assert_eq!(
        forwarded_lines(received_fields, standard, None),
        format!("Forwarded: {new_element}")
    );
    let trusted = Client {
        trusted: true,
        ..standard
    };
    assert_eq!(
        forwarded_lines(received_fields, trusted, None),
        format!("X-Forwarded-For: 1.2.3.4\r\nForwarded: for=x, {new_element}")
    );
    assert_eq!(
        forwarded_lines("X-Real-IP: 1.2.3.4\r\n", trusted, None),
        format!("X-Real-IP: 1.2.3.4\r\nForwarded: {new_element}")
    );
    let both = Client {
        forwarded: Forwarded::Both,
        ..trusted
    };
    assert_eq!(
        forwarded_lines(received_fields, both, None),
        format!(
            "X-Forwarded-For: 1.2.3.4, 192.0.2.107\r\nX-Forwarded-Proto: http\r\nForwarded: for=x, {new_element}"
        )
    );
    let v6 = Client {
        address: "2001:db8::7".parse().unwrap(),
        secure: true,
        ..standard
    };
    assert_eq!(
        forwarded_lines("", v6, None),
        "Forwarded: for=\"[2001:db8::7]\";host=\"h\";proto=https\r\n"
    );
    // An HTTP/1.0 request has no host, and there is no default host.
    let edit = RequestEdit {
        client: Some(standard),
        host: b"",
        ..EDIT
    };
    let text = request("GET / HTTP/1.0\r\n\r\n", &edit);
    assert!(
        text.contains("Forwarded: for=192.0.2.107;proto=http\r\n"),
        "{text}"
    );
}

#[test]
fn forwarding_fields_that_a_route_edits_are_not_written() {
    let both = Client {
        forwarded: Forwarded::Both,
        ..CLIENT
    };
    let lines = |route: &HeaderEdits| {
        let text = forwarded_lines("", both, Some(route));
        let names = text
            .lines()
            .map(|line| line.split(':').next().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let sets = |name: &str| HeaderEdits {
        set: vec![HeaderEdit {
            name: name.to_owned(),
            value: Template::literal("x"),
            statuses: Vec::new(),
            file: None,
        }],
        ..HeaderEdits::default()
    };
    let removes = |name: &str| HeaderEdits {
        remove: vec![name.to_owned()],
        ..HeaderEdits::default()
    };
    let all_names = ["X-Forwarded-For", "X-Forwarded-Proto", "Forwarded"];
    assert_eq!(lines(&sets("X-Other")), all_names);
    for name in all_names {
        let other_names: Vec<_> = all_names.into_iter().filter(|it| *it != name).collect();
        assert_eq!(lines(&sets(name)), other_names);
        assert_eq!(lines(&removes(&name.to_lowercase())), other_names);
    }
}

#[test]
fn addresses_are_written_without_leading_zeros() {
    for address in [
        "0.0.0.0",
        "9.10.99.100",
        "109.110.200.255",
        "::1",
        "2001:db8::ffff:1",
    ] {
        let mut out = Vec::new();
        write_address(address.parse().unwrap(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), address);
    }
}

#[test]
fn framing_with_unusual_whitespace_is_normalized() {
    let text = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length:   5 \r\nA: 1\r\n\r\n";
    assert_eq!(
        request(text, &EDIT),
        "POST / HTTP/1.1\r\nHost: h\r\nA: 1\r\nContent-Length: 5\r\nVia: 1.1 weir\r\n\r\n"
    );
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding:chunked\r\nA: 1\r\n\r\n";
    assert_eq!(
        response(text, HopEdit::default(), &ResponseEdit::default()),
        "HTTP/1.1 200 OK\r\nA: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
}

/// Returns the head that the client receives.
fn response(text: &str, hop: HopEdit, edit: &ResponseEdit<'_>) -> String {
    let (mut fields, mut out) = (Vec::new(), Vec::new());
    let response =
        head::parse_response(text.as_bytes(), false, &HeadLimits::default(), &mut fields);
    let response = response.unwrap().expect("head is complete");
    write_response(text.as_bytes(), &response, &fields, hop, edit, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn connection_field_of_a_response_depends_on_the_hop() {
    let hop = HopEdit::default();
    let close = HopEdit { close: true, ..hop };
    let keep = HopEdit {
        keep_alive_10: true,
        ..hop
    };
    let both = HopEdit {
        keep_alive_10: true,
        ..close
    };
    let tunnel = HopEdit {
        tunnel: true,
        ..both
    };
    for (status, hop, expected) in [
        ("200 OK", hop, ""),
        ("200 OK", close, "Connection: close\r\n"),
        ("200 OK", keep, "Connection: keep-alive\r\n"),
        ("200 OK", both, "Connection: close\r\n"),
        ("200 OK", tunnel, ""),
        ("103 Early Hints", both, ""),
        ("101 Switching Protocols", both, "Connection: Upgrade\r\n"),
    ] {
        let text = format!("HTTP/1.1 {status}\r\nConnection: x\r\nA: 1\r\n\r\n");
        let expected = format!("HTTP/1.1 {status}\r\nA: 1\r\n{expected}\r\n");
        assert_eq!(response(&text, hop, &ResponseEdit::default()), expected);
    }
}

#[test]
fn response_framing_fields_depend_on_the_hop() {
    let hop = HopEdit::default();
    let decode = HopEdit {
        decode: true,
        ..hop
    };
    let tunnel = HopEdit {
        tunnel: true,
        ..hop
    };
    let (chunked, length) = ("Transfer-Encoding: chunked\r\n", "Content-Length: 5\r\n");
    for (hop, sent, expected) in [
        (hop, chunked, chunked),
        (hop, length, length),
        (decode, chunked, ""),
        (decode, "Transfer-Encoding:chunked\r\n", ""),
        (decode, length, length),
        (tunnel, chunked, ""),
        (tunnel, length, ""),
        (tunnel, "Content-Length:  5\r\n", ""),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{sent}A: 1\r\n\r\n");
        let expected = format!("HTTP/1.1 200 OK\r\n{expected}A: 1\r\n\r\n");
        let output = response(&text, hop, &ResponseEdit::default());
        assert_eq!(output, expected, "{sent:?} {hop:?}");
    }
}

#[test]
fn response_fields_are_added_and_removed() {
    let remove = ["server".to_owned()];
    let edit = ResponseEdit {
        add: b"X-Added: 1\r\n",
        remove: &remove,
        ..ResponseEdit::default()
    };
    assert_eq!(
        response(
            "HTTP/1.1 200 OK\r\nA: 1\r\nSERVER: x\r\nServers: y\r\n\r\n",
            HopEdit::default(),
            &edit
        ),
        "HTTP/1.1 200 OK\r\nA: 1\r\nServers: y\r\nX-Added: 1\r\n\r\n"
    );
}

#[test]
fn values_of_response_fields_are_replaced_in_order() {
    let replacement = |name: &str, regex: &str, to: &str| HeaderReplacement {
        name: name.to_owned(),
        regex: TextRegex::new(regex).unwrap(),
        to: Template::parse(to).unwrap(),
    };
    let service = [replacement("location", "^http://(.*)$", "https://{1}")];
    let route = [
        replacement("location", "^https://a/(x)?", "/{1}!"),
        replacement("set-cookie", "^([^;]*)", "{1}; Secure"),
    ];
    let remove = ["set-cookie".to_owned()];
    let edit = ResponseEdit {
        replace: [&service, &route],
        cookie: Some(CookieEdit {
            name: b"id",
            signature: b"s1",
            prefix: false,
        }),
        ..ResponseEdit::default()
    };
    let text = "HTTP/1.1 302 Found\r\nLocation:http://a/\r\nA: http://a/\r\nSet-Cookie: id=1\r\nSet-Cookie: b=2; \
                Path=/\r\nlocation: http://c/\r\nLocation: /d\r\n\r\n";
    let other_fields = "HTTP/1.1 302 Found\r\nA: http://a/\r\nLocation: /d\r\n";
    assert_eq!(
        response(text, HopEdit::default(), &edit),
        format!(
            "{other_fields}Location: /!\r\nSet-Cookie: b=2; Secure\r\nlocation: https://c/\r\nSet-Cookie: id=s1\r\n\r\n"
        )
    );
    let edit = ResponseEdit {
        remove: &remove,
        cookie: None,
        ..edit
    };
    assert_eq!(
        response(text, HopEdit::default(), &edit),
        format!("{other_fields}Location: /!\r\nlocation: https://c/\r\n\r\n")
    );
}

#[test]
fn only_the_sticky_cookie_is_changed() {
    let text = "HTTP/1.1 200 OK\r\nSet-Cookie: id=abc; Path=/\r\nSet-Cookie: idx=1\r\nX-Cookie: id=2\r\n\
                set-cookie: id=3\r\n\r\n";
    let other_fields = "HTTP/1.1 200 OK\r\nSet-Cookie: idx=1\r\nX-Cookie: id=2\r\n";
    let output = |prefix| {
        let cookie = CookieEdit {
            name: b"id",
            signature: b"s1",
            prefix,
        };
        let edit = ResponseEdit {
            cookie: Some(cookie),
            ..ResponseEdit::default()
        };
        response(text, HopEdit::default(), &edit)
    };
    assert_eq!(
        output(true),
        format!("{other_fields}Set-Cookie: id=s1~abc; Path=/\r\nSet-Cookie: id=s1~3\r\n\r\n")
    );
    assert_eq!(
        output(false),
        format!("{other_fields}Set-Cookie: id=s1; Path=/\r\nSet-Cookie: id=s1\r\n\r\n")
    );
}

#[test]
fn compressed_response_describes_its_new_content() {
    let hop = HopEdit {
        coding: Some(Coding::Gzip),
        varies: true,
        ..HopEdit::default()
    };
    for framing in [
        "Content-Length: 2000",
        "Content-Length:  2000",
        "Transfer-Encoding: Chunked",
    ] {
        let text = format!(
            "HTTP/1.1 200 OK\r\n{framing}\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\nA: 1\r\n\r\n"
        );
        let output = response(&text, hop, &ResponseEdit::default());
        let mut lines: Vec<_> = output.trim_end().lines().skip(1).collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "A: 1",
                "Content-Encoding: gzip",
                "ETag: W/\"a\"",
                "Transfer-Encoding: chunked",
                "Vary: Accept-Encoding"
            ]
        );
    }
}

#[test]
fn rules_apply_to_individual_fields_about_the_client() {
    use FieldRule::{Append, Drop, Keep, Set};
    let received = "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: ftp\r\nX-Forwarded-Host: x\r\n\
                    X-Forwarded-Port: 9\r\nX-Real-IP: 5.6.7.8\r\n";
    let lines = |fields: &[(ClientField, FieldRule)], secure, route: Option<&HeaderEdits>| {
        let mut rules = ClientFields::default();
        for (field, rule) in fields {
            rules.set(*field, Some(*rule));
        }
        let edit = RequestEdit {
            fields: Some(ClientEdit {
                rules: &rules,
                address: [192, 0, 2, 107].into(),
                client: [198, 51, 100, 7].into(),
                secure,
                port: 8443,
            }),
            edits: [None, route],
            ..EDIT
        };
        let text = request(
            &format!("GET / HTTP/1.1\r\nHost: h\r\n{received}\r\n"),
            &edit,
        );
        let rest = text.strip_prefix("GET / HTTP/1.1\r\nHost: h\r\n").unwrap();
        rest.strip_suffix("Via: 1.1 weir\r\n\r\n")
            .unwrap()
            .to_owned()
    };
    let all = |rule| ClientField::ALL.map(|field| (field, rule));
    assert_eq!(lines(&all(Keep), false, None), received);
    assert_eq!(lines(&all(Drop), false, None), "");
    assert_eq!(
        lines(&all(Set), true, None),
        "X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: h\r\n\
         X-Forwarded-Port: 8443\r\nX-Real-IP: 198.51.100.7\r\n"
    );
    assert_eq!(
        lines(&all(Append), false, None),
        "X-Forwarded-For: 1.2.3.4, 192.0.2.107\r\nX-Forwarded-Proto: ftp, http\r\nX-Forwarded-Host: x, h\r\n\
         X-Forwarded-Port: 9, 8443\r\nX-Real-IP: 5.6.7.8, 198.51.100.7\r\n"
    );
    // The route's own value replaces the field, whatever the rule is.
    let route = HeaderEdits {
        remove: vec!["x-forwarded-port".to_owned()],
        ..HeaderEdits::default()
    };
    let port = [(ClientField::Port, Set)];
    let with_route = lines(&port, false, Some(&route));
    assert!(!with_route.contains("Port: 8443"), "{with_route}");
    assert!(lines(&port, false, None).contains("Port: 8443"));
}

#[test]
fn trailers_are_filtered_like_fields() {
    let mut rules = ClientFields::default();
    rules.set(ClientField::RealIp, Some(FieldRule::Keep));
    let service = HeaderEdits {
        remove: vec!["x-a".to_owned()],
        ..HeaderEdits::default()
    };
    let route = HeaderEdits {
        set: vec![HeaderEdit {
            name: "X-B".to_owned(),
            value: Template::literal("1"),
            statuses: Vec::new(),
            file: None,
        }],
        ..HeaderEdits::default()
    };
    let edit = RequestEdit {
        client: Some(CLIENT),
        fields: Some(ClientEdit {
            rules: &rules,
            address: CLIENT.address,
            client: CLIENT.address,
            secure: false,
            port: 80,
        }),
        edits: [Some(&service), Some(&route)],
        ..EDIT
    };
    let expected = TrailerFilter {
        names: vec!["x-a".to_owned(), "X-B".to_owned()],
        removes_client_fields: true,
        rules,
    };
    assert_eq!(edit.trailer_filter(), expected);
    assert_eq!(EDIT.trailer_filter(), TrailerFilter::default());
}

#[test]
fn conditional_lines_are_added_for_their_statuses() {
    let line = |statuses, replaces| ConditionalLine {
        statuses,
        name: "A",
        line: b"A: new\r\n".to_vec(),
        replaces,
    };
    let head_after = |line: ConditionalLine<'_>, status: Option<u16>| {
        let conditional = [line];
        let edit = ResponseEdit {
            conditional: &conditional,
            ..ResponseEdit::default()
        };
        let hop = HopEdit {
            status,
            ..HopEdit::default()
        };
        let text = response("HTTP/1.1 404 Not Found\r\na: 1\r\nb: 2\r\n\r\n", hop, &edit);
        let (_, fields) = text.split_once("\r\n").unwrap();
        fields.to_owned()
    };
    let unchanged = "a: 1\r\nb: 2\r\n\r\n";
    for (statuses, is_added) in [
        (&[(404, 404)][..], true),
        (&[(200, 299), (400, 499)], true),
        (&[(403, 404)], true),
        (&[(404, 405)], true),
        (&[(200, 403)], false),
        (&[(405, 599)], false),
        (&[], false),
    ] {
        let head = head_after(line(statuses, false), None);
        let expected = match is_added {
            true => "a: 1\r\nb: 2\r\nA: new\r\n\r\n",
            false => unchanged,
        };
        assert_eq!(head, expected, "{statuses:?}");
    }
    let replaced = "b: 2\r\nA: new\r\n\r\n";
    assert_eq!(head_after(line(&[(404, 404)], true), None), replaced);
    assert_eq!(head_after(line(&[(200, 200)], true), None), unchanged);
    // The statuses are compared with the status that the client receives.
    assert_eq!(head_after(line(&[(200, 200)], true), Some(200)), replaced);
}
