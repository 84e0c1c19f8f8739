//! Tests the probes, targets and TLS settings of checks.

use weir_model::{
    Check, CheckAuthority, CheckTls, Digest, DnsRecord, ExchangeStep, Http, Pattern, Probe,
    ProbeTarget, ProxyHeader, Script, Source, Via,
};

use crate::{desired, messages};

fn with_check(fields: &str) -> String {
    format!(
        "[pool.p]\nservers = [\"10.0.0.5:80\"]\ncheck = {{ {fields} }}\n[service.s]\nlisten = [\"192.0.2.1:80\"]\n\
         forward = \"nat\"\npool = \"p\"\n"
    )
}

#[track_caller]
fn check(fields: &str) -> Check {
    desired(&with_check(fields)).pools[0].checks[0].clone()
}

#[track_caller]
fn http(fields: &str) -> Http {
    match check(fields).probe {
        Probe::Http(http) => *http,
        other => panic!("{other:?}"),
    }
}

fn pattern(text: &str) -> Option<Pattern> {
    Some(Pattern::new(text).expect("parse expression"))
}

fn script(command: &[&str], user: &str, dynamic: bool) -> Probe {
    Probe::Script(Script {
        command: command.iter().map(|it| (*it).to_owned()).collect(),
        user: user.to_owned(),
        dynamic,
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn kind_determines_the_probe() {
    let text = |text: &str| text.to_owned();
    for (fields, probe) in [
        ("kind = \"tcp\"", Probe::Tcp),
        ("kind = \"tls\"", Probe::Tcp),
        ("kind = \"ping\"", Probe::Ping),
        ("kind = \"redis\"", Probe::Redis),
        ("kind = \"grpc\"", Probe::Grpc { service: text("") }),
        (
            "kind = \"grpc\", service = \"shop.Cart\"",
            Probe::Grpc {
                service: text("shop.Cart"),
            },
        ),
        (
            "kind = \"smtp\"",
            Probe::Smtp {
                helo: text("localhost"),
            },
        ),
        (
            "kind = \"smtp\", helo = \"lb.example\"",
            Probe::Smtp {
                helo: text("lb.example"),
            },
        ),
        ("kind = \"mysql\"", Probe::Mysql { user: text("weir") }),
        (
            "kind = \"mysql\", user = \"u\"",
            Probe::Mysql { user: text("u") },
        ),
        (
            "kind = \"postgres\"",
            Probe::Postgres {
                user: text("postgres"),
            },
        ),
        (
            "kind = \"postgres\", user = \"u\"",
            Probe::Postgres { user: text("u") },
        ),
        ("kind = \"agent\"", Probe::Agent { send: None }),
        (
            "kind = \"agent\", send = \"a\\n\"",
            Probe::Agent {
                send: Some(text("a\n")),
            },
        ),
        (
            "kind = \"file\", file = \"/w\"",
            Probe::File { path: text("/w") },
        ),
        (
            "kind = \"script\", command = \"/bin/x\", user = \"u\"",
            script(&["/bin/x"], "u", false),
        ),
        (
            "kind = \"script\", command = [\"/bin/x\", \"a b\"], user = \"u\", dynamic = true",
            script(&["/bin/x", "a b"], "u", true),
        ),
        (
            "kind = \"udp\", payload = \"00 fF9a\"",
            Probe::Udp {
                payload: vec![0, 0xff, 0x9a],
                bytes: None,
            },
        ),
        (
            "kind = \"udp\", payload = \"\", expect = { bytes = \"10 xX 0a\" }",
            Probe::Udp {
                payload: vec![],
                bytes: Some(vec![Some(0x10), None, Some(0x0a)]),
            },
        ),
        (
            "kind = \"tcp\", exchange = [{ expect = \"220\" }, { send = \"QUIT\", regex = \"^221\" }]",
            Probe::Exchange(vec![
                ExchangeStep {
                    expect: text("220"),
                    ..ExchangeStep::default()
                },
                ExchangeStep {
                    send: text("QUIT"),
                    regex: pattern("^221"),
                    ..ExchangeStep::default()
                },
            ]),
        ),
    ] {
        assert_eq!(check(fields).probe, probe, "{fields}");
    }
}

#[test]
fn dns_probe_has_a_record_type_and_an_expected_address() {
    let dns = |record, answer: Option<&str>| Probe::Dns {
        name: "www.example".to_owned(),
        record,
        answer: answer.map(|it| it.parse().expect("parse address")),
    };
    for (fields, probe) in [
        ("", dns(DnsRecord::A, None)),
        (", record = \"AAAA\"", dns(DnsRecord::Aaaa, None)),
        (", record = \"TXT\"", dns(DnsRecord::Txt, None)),
        (
            ", expect = { answer = \"10.0.0.7\" }",
            dns(DnsRecord::A, Some("10.0.0.7")),
        ),
    ] {
        let fields = format!("kind = \"dns\", query = \"www.example\"{fields}");
        assert_eq!(check(&fields).probe, probe, "{fields}");
    }
}

/// RFC 1035 section 2.3.4.
#[test]
fn dns_name_has_at_most_253_bytes_and_labels_at_most_63() {
    let name = |lengths: &[usize]| {
        let labels: Vec<String> = lengths.iter().map(|length| "a".repeat(*length)).collect();
        labels.join(".")
    };
    for (lengths, is_valid) in [
        (&[63][..], true),
        (&[64][..], false),
        (&[63, 63, 63, 61][..], true),
        (&[63, 63, 63, 62][..], false),
    ] {
        let name = name(lengths);
        let found = messages(&with_check(&format!("kind = \"dns\", query = \"{name}\"")));
        let expected = match is_valid {
            true => vec![],
            false => vec![format!("`{name}` is not a valid DNS name")],
        };
        assert_eq!(found, expected);
    }
}

#[test]
fn http_probe_has_the_configured_request_and_conditions() {
    assert_eq!(http("kind = \"http\""), Http::default());
    assert_eq!(http("kind = \"http\", version = \"1.0\"").minor_version, 0);
    assert_eq!(http("kind = \"http\", version = \"1.1\"").minor_version, 1);
    let found = http(
        "kind = \"http\", method = \"M-SEARCH\", path = \"/a?b=%20c\", host = \"www.example\", body = \"x\\ny\", \
         headers = [\"X-A: b \", \"x_c:\"], expect = { status = \"200-299, 304\", body = \"Up\", regex = \"U.\", \
         without = \"Down\", digest = \"d41d8cd98f00b204e9800998ecf8427e\" }",
    );
    let expected = Http {
        method: "M-SEARCH".to_owned(),
        path: "/a?b=%20c".to_owned(),
        minor_version: 1,
        host: Some("www.example".to_owned()),
        headers: vec![
            ("X-A".to_owned(), "b".to_owned()),
            ("x_c".to_owned(), String::new()),
        ],
        body: Some("x\ny".to_owned()),
        status: vec![(200, 299), (304, 304)],
        contains: Some("Up".to_owned()),
        pattern: pattern("U."),
        without: pattern("Down"),
        // The MD5 digest of an empty string (RFC 1321 appendix A.5).
        digest: Some(Digest::Md5([
            0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0x00, 0xb2, 0x04, 0xe9, 0x80, 0x09, 0x98, 0xec, 0xf8,
            0x42, 0x7e,
        ])),
    };
    assert_eq!(found, expected);
}

#[test]
fn sha_256_digest_has_64_hexadecimal_digits() {
    // The SHA-256 digest of an empty string.
    let digest = "E3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let found = http(&format!(
        "kind = \"http\", expect = {{ digest = \"{digest}\" }}"
    ));
    let found = found.digest.expect("the digest is missing");
    assert!(matches!(found, Digest::Sha256(_)));
    assert!(
        found.to_string().ends_with(&digest.to_lowercase()),
        "{found}"
    );
}

#[test]
fn status_condition_is_a_list_of_codes_and_ranges() {
    for (status, expected) in [
        ("204", vec![(204, 204)]),
        ("\"100-599\"", vec![(100, 599)]),
        ("\"200 - 299,404\"", vec![(200, 299), (404, 404)]),
        ("\"200-200\"", vec![(200, 200)]),
    ] {
        let found = http(&format!(
            "kind = \"http\", expect = {{ status = {status} }}"
        ));
        assert_eq!(found.status, expected, "{status}");
    }
    for status in ["99", "600", "300-299", "", "2xx", "200-", "200,,204"] {
        let text = with_check(&format!(
            "kind = \"http\", expect = {{ status = \"{status}\" }}"
        ));
        assert_eq!(
            messages(&text),
            [format!("`{status}` is not a list of status codes")]
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn invalid_probe_settings_are_rejected() {
    for (fields, message) in [
        ("kind = \"http\", path = \"x\"", "`x` is not a valid path"),
        (
            "kind = \"http\", path = \"/a b\"",
            "`/a b` is not a valid path",
        ),
        (
            "kind = \"http\", path = \"/\\u0007\"",
            "`path` contains a control character",
        ),
        (
            "kind = \"http\", host = \"a\\n\"",
            "`host` contains a control character",
        ),
        ("kind = \"http\", method = \"\"", "`` is not a valid method"),
        (
            "kind = \"http\", method = \"G T\"",
            "`G T` is not a valid method",
        ),
        (
            "kind = \"http\", headers = [\"a\"]",
            "`a` is not a valid header field",
        ),
        (
            "kind = \"http\", headers = [\": a\"]",
            "`: a` is not a valid header field",
        ),
        (
            "kind = \"http\", headers = [\"a b: c\"]",
            "`a b: c` is not a valid header field",
        ),
        (
            "kind = \"http\", headers = [\"a: b\\n\"]",
            "`a: b\\n` is not a valid header field",
        ),
        (
            "kind = \"http\", expect = { digest = \"\" }",
            "`` is not a valid digest",
        ),
        (
            "kind = \"http\", expect = { answer = \"10.0.0.1\" }",
            "`answer` is not a valid condition for this kind of check",
        ),
        (
            "kind = \"smtp\", helo = \"a\\n\"",
            "`helo` contains a control character",
        ),
        (
            "kind = \"udp\", payload = \"0\"",
            "expected hexadecimal bytes, found `0`",
        ),
        (
            "kind = \"udp\", payload = \"0g\"",
            "expected hexadecimal bytes, found `0g`",
        ),
        (
            "kind = \"udp\", payload = \"g0\"",
            "expected hexadecimal bytes, found `g0`",
        ),
        (
            "kind = \"udp\", payload = \"0x\"",
            "expected hexadecimal bytes, found `0x`",
        ),
        (
            "kind = \"udp\", payload = \"00 xx\"",
            "wildcards are not allowed in `payload`",
        ),
        (
            "kind = \"udp\", payload = \"00\", expect = { status = 200 }",
            "`status` is not a valid condition for this kind of check",
        ),
        (
            "kind = \"file\", file = \"w\"",
            "`w` is not an absolute path",
        ),
        (
            "kind = \"file\", file = \"/w\\n\"",
            "`file` contains a control character",
        ),
        ("kind = \"script\", command = []", "`command` is empty"),
        (
            "kind = \"script\", command = \"x\"",
            "`x` is not an absolute path",
        ),
        (
            "kind = \"script\", command = \"/a\\u0000\"",
            "`/a\\0` contains a NUL character",
        ),
        (
            "kind = \"script\", command = [\"x\", \"/y\"]",
            "`x` is not an absolute path",
        ),
        (
            "kind = \"script\", command = \"/a b\"",
            "arguments must be separate list elements",
        ),
        (
            "kind = \"tcp\", exchange = [{ expect = \"a\" }, { send = \"b\" }]",
            "the last step of `exchange` has neither `expect` nor `regex`",
        ),
        (
            "kind = \"tcp\", address = \"10.0.0.9:80\"",
            "a port is not allowed in `10.0.0.9:80`",
        ),
        (
            "kind = \"tcp\", address = \"10.0.0.9\", source = \"fd00::1\"",
            "source fd00::1 and address 10.0.0.9 have different address families",
        ),
        (
            "kind = \"tcp\", address = \"10.0.0.9\", via = \"path\"",
            "probes that take the forwarding path are sent to the VIP, not to `address`",
        ),
    ] {
        assert_eq!(messages(&with_check(fields)), [message], "{fields}");
    }
    // A `digest` of the right length with an invalid digit.
    let digest = "g41d8cd98f00b204e9800998ecf8427e";
    let text = with_check(&format!(
        "kind = \"http\", expect = {{ digest = \"{digest}\" }}"
    ));
    assert_eq!(
        messages(&text),
        [format!("`{digest}` is not a valid digest")]
    );
}

#[test]
fn target_of_a_check_is_configurable() {
    assert_eq!(check("kind = \"tcp\"").target, ProbeTarget::default());
    let target = check(
        "kind = \"tcp\", address = \"10.0.0.9\", port = 81, source = \"10.0.0.1\", interface = \"eth0\", \
         proxy_protocol = \"v1\"",
    )
    .target;
    let expected = ProbeTarget {
        address: "10.0.0.9".parse().ok(),
        port: Some(81),
        source: "10.0.0.1".parse().ok(),
        interface: Some("eth0".to_owned()),
        proxy_protocol: Some(ProxyHeader::V1),
        via: Via::Server,
        tls: None,
    };
    assert_eq!(target, expected);
    assert_eq!(
        check("kind = \"tcp\", via = \"both\"").target.via,
        Via::Both
    );
}

#[test]
fn tls_of_a_check_depends_on_its_kind() {
    let tls = |verify, ca: Option<&str>, server_name: Option<&str>| {
        Some(CheckTls {
            verify,
            ca: ca.map(str::to_owned),
            server_name: server_name.map(str::to_owned),
        })
    };
    for (fields, expected) in [
        ("kind = \"http\", host = \"a.example\"", None),
        ("kind = \"grpc\"", None),
        ("kind = \"grpc\", tls = true", tls(true, None, None)),
        ("kind = \"tls\"", tls(true, None, None)),
        ("kind = \"https\"", tls(true, None, None)),
        (
            "kind = \"https\", host = \"a.example:8443\"",
            tls(true, None, Some("a.example")),
        ),
        (
            "kind = \"https\", host = \"a.example\", server_name = \"b.example\", ca = \"/ca.pem\", verify = false",
            tls(false, Some("/ca.pem"), Some("b.example")),
        ),
    ] {
        assert_eq!(check(fields).target.tls, expected, "{fields}");
    }
    for key in ["verify = false", "ca = \"/ca.pem\"", "server_name = \"a\""] {
        let found = messages(&with_check(&format!("kind = \"grpc\", {key}")));
        let name = key.split(' ').next().unwrap_or_default();
        assert_eq!(
            found,
            [format!(
                "`{name}` has no effect: this check does not use TLS"
            )]
        );
    }
    let found = messages(&with_check("kind = \"https\", ca = \"ca.pem\""));
    assert_eq!(found, ["`ca.pem` is not an absolute path"]);
}

#[test]
fn authorities_of_verifying_checks_are_listed_with_their_positions() {
    let authorities = |fields: &str| desired(&with_check(fields)).check_authorities;
    let authority = |ca: Option<&str>, column| CheckAuthority {
        ca: ca.map(str::to_owned),
        source: Source {
            line: 3,
            column,
            file: 0,
        },
    };
    assert_eq!(authorities("kind = \"https\""), [authority(None, 11)]);
    assert_eq!(
        authorities("kind = \"https\", ca = \"/ca.pem\""),
        [authority(Some("/ca.pem"), 27)]
    );
    assert_eq!(authorities("kind = \"https\", verify = false"), []);
    assert_eq!(authorities("kind = \"http\""), []);
}

/// Keys that are valid only for some kinds of checks, each with a value.
const KEYS: [(&str, &str); 27] = [
    ("port", "80"),
    ("via", "\"server\""),
    ("source", "\"10.0.0.1\""),
    ("interface", "\"eth0\""),
    ("proxy_protocol", "\"v1\""),
    ("path", "\"/\""),
    ("method", "\"GET\""),
    ("version", "\"1.1\""),
    ("host", "\"a.example\""),
    ("headers", "[]"),
    ("body", "\"x\""),
    ("expect", "{}"),
    ("verify", "true"),
    ("ca", "\"/ca\""),
    ("server_name", "\"a.example\""),
    ("exchange", "[]"),
    ("tls", "true"),
    ("service", "\"a\""),
    ("helo", "\"a\""),
    ("user", "\"a\""),
    ("query", "\"a\""),
    ("record", "\"A\""),
    ("payload", "\"00\""),
    ("command", "\"/x\""),
    ("dynamic", "true"),
    ("file", "\"/x\""),
    ("send", "\"x\""),
];

#[test]
fn each_kind_of_check_has_its_own_keys() {
    const STREAM: &str = "port via source interface proxy_protocol";
    const HTTP: &str = "path method version host headers body expect";
    const TLS: &str = "verify ca server_name";
    for (kind, valid) in [
        ("tcp", [STREAM, "exchange", ""]),
        ("http", [STREAM, HTTP, ""]),
        ("https", [STREAM, HTTP, TLS]),
        ("tls", [STREAM, TLS, "exchange"]),
        ("grpc", [STREAM, TLS, "tls service"]),
        ("smtp", [STREAM, "helo", ""]),
        ("redis", [STREAM, "", ""]),
        ("mysql", [STREAM, "user", ""]),
        ("postgres", [STREAM, "user", ""]),
        ("agent", [STREAM, "send", ""]),
        (
            "dns",
            ["port via source interface", "query record", "expect"],
        ),
        ("udp", ["port via source interface", "payload", "expect"]),
        ("ping", ["source interface", "", ""]),
        ("script", ["command dynamic", "user", ""]),
        ("file", ["file", "", ""]),
    ] {
        for (key, value) in KEYS {
            let found = messages(&with_check(&format!("kind = \"{kind}\", {key} = {value}")));
            let message = format!("`{key}` is not valid for `{kind}` checks");
            let is_valid = valid.iter().any(|keys| keys.split(' ').any(|it| it == key));
            assert_eq!(
                !found.contains(&message),
                is_valid,
                "{kind} {key}: {found:?}"
            );
        }
        let found = messages(&with_check(&format!("kind = \"{kind}\"")));
        let expected: Vec<String> = match kind {
            "dns" => vec!["a `dns` check requires `query`".to_owned()],
            "udp" => vec!["a `udp` check requires `payload`".to_owned()],
            "script" => vec!["a `script` check requires `command`".to_owned()],
            "file" => vec!["a `file` check requires `file`".to_owned()],
            _ => vec![],
        };
        assert_eq!(found, expected, "{kind}");
    }
}
