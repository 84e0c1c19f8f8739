//! Tests conditions with parsed requests.

use proptest::prelude::*;
use weir_model::{Network, NetworkSet, RouteAction, TextRegex};

use super::*;
use crate::head::{self, HeadLimits};

fn route(host: Option<HostPattern>, path: Option<&str>) -> Route {
    let mut route = Route::new(RouteAction::Pool("p".to_owned()));
    route.when.hosts.extend(host);
    route.when.paths.extend(path.map(str::to_owned));
    route
}

fn named_condition(name: &str, value: Option<&str>) -> NamedCondition {
    NamedCondition {
        name: name.to_owned(),
        value: value.map(|text| ValuePattern::Exact(text.to_owned())),
    }
}

fn chosen_route(routes: &[Route], text: &str) -> Option<usize> {
    let mut fields = Vec::new();
    let request = head::parse_request(text.as_bytes(), &HeadLimits::default(), &mut fields)
        .unwrap()
        .unwrap();
    let client = "192.0.2.1".parse().unwrap();
    let target = RequestPath::as_received(request.path_in(text.as_bytes()));
    let route_input = RouteInput {
        client,
        target: &target,
        head: text.as_bytes(),
        request: &request,
        fields: &fields,
        tls: TlsProperties::default(),
        secure: false,
    };
    choose(routes, &route_input)
}

#[test]
fn conditions_and_keys_ignore_fields_that_the_client_may_not_set() {
    let head =
        b"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Host: a\r\n\
                 Forwarded: for=x\r\nX-Real-IP: 192.0.2.8\r\nX-User: u\r\n\r\n";
    let mut fields = Vec::new();
    let request = head::parse_request(head, &HeadLimits::default(), &mut fields);
    let request = request.unwrap().unwrap();
    let target = RequestPath::as_received(b"/");
    let rules = |rule| {
        let mut rules = weir_model::ClientFields::default();
        rules.set(weir_model::ClientField::For, Some(rule));
        rules
    };
    use weir_model::FieldRule::{Append, Drop, Keep, Set};
    // Each case is the rule for X-Forwarded-For, whether the client's other fields are removed, and whether
    // X-Forwarded-For is ignored.
    let others = ["x-forwarded-host", "forwarded", "x-real-ip"];
    for (rule, removes_others, ignores_for) in [
        (None, false, false),
        (None, true, true),
        (Some(Keep), true, false),
        (Some(Append), true, false),
        (Some(Set), false, true),
        (Some(Drop), false, true),
    ] {
        crate::mark_untrusted(head, &mut fields, rule.map(rules).as_ref(), removes_others);
        let route_input = RouteInput {
            client: "192.0.2.1".parse().unwrap(),
            target: &target,
            head,
            request: &request,
            fields: &fields,
            tls: TlsProperties::default(),
            secure: false,
        };
        let ignores = |name: &str| {
            let mut only = route(None, None);
            only.when.headers.push(named_condition(name, None));
            choose(&[only], &route_input).is_none()
        };
        assert_eq!(ignores("x-forwarded-for"), ignores_for, "{rule:?}");
        for name in others {
            assert_eq!(ignores(name), removes_others, "{rule:?} {name}");
        }
        assert!(!ignores("x-user"));
        let shown = compared_value(
            ConditionKey::Header,
            Some(&Conditions {
                headers: vec![named_condition("X-Forwarded-For", None)],
                ..Conditions::default()
            }),
            &route_input,
        );
        assert_eq!(shown.contains("ignored"), ignores_for, "{shown}");
    }
}

fn get(host: &str, target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\n\r\n")
}

#[test]
fn server_name_selects_a_route_by_host() {
    let client = "192.0.2.1".parse().unwrap();
    let exact = Some(HostPattern::Exact("a.example".to_owned()));
    let suffix = Some(HostPattern::Suffix(".example".to_owned()));
    let mut routes = vec![route(exact, None), route(suffix, None)];
    for (name, expected) in [
        (Some("a.example"), Some(0)),
        (Some("A.EXAMPLE"), Some(0)),
        (Some("b.example"), Some(1)),
        (Some("b.test"), None),
        (None, None),
    ] {
        assert_eq!(
            choose_for_connection(&routes, name, client),
            expected,
            "{name:?}"
        );
    }
    routes.push(route(None, None));
    for name in [Some("b.test"), None] {
        assert_eq!(choose_for_connection(&routes, name, client), Some(2));
    }
}

#[test]
fn first_matching_route_is_chosen() {
    let exact = || Some(HostPattern::Exact("a.example".to_owned()));
    let suffix = || Some(HostPattern::Suffix(".example".to_owned()));
    let routes = [
        route(exact(), Some("/img/*")),
        route(suffix(), None),
        route(None, Some("/status")),
    ];
    assert_eq!(
        chosen_route(&routes, &get("A.Example:8080", "/img/x?y=/z")),
        Some(0)
    );
    assert_eq!(chosen_route(&routes, &get("a.example.", "/img/")), Some(0));
    assert_eq!(chosen_route(&routes, &get("a.example", "/im")), Some(1));
    assert_eq!(chosen_route(&routes, &get("b.c.example", "/")), Some(1));
    assert_eq!(chosen_route(&routes, &get("example", "/status?x")), Some(2));
    assert_eq!(chosen_route(&routes, &get("notexample", "/status/")), None);
    assert_eq!(
        chosen_route(
            &routes,
            "GET http://a.example/img/1 HTTP/1.1\r\nHost: other\r\n\r\n"
        ),
        Some(0)
    );
    assert_eq!(
        chosen_route(&routes, &get("[2001:db8::1]:80", "/status")),
        Some(2)
    );
}

#[test]
fn methods_and_fields_are_matched() {
    let mut route = route(None, None);
    route.when.methods = vec!["GET".to_owned(), "HEAD".to_owned()];
    route.when.headers = vec![
        named_condition("accept", Some("text/html")),
        named_condition("host", None),
    ];
    assert_eq!(
        chosen_route(std::slice::from_ref(&route), &get("a", "/")),
        Some(0)
    );
    route.when.headers[0] = named_condition("accept", Some("text"));
    assert_eq!(
        chosen_route(std::slice::from_ref(&route), &get("a", "/")),
        None
    );
    route.when.headers.clear();
    route.when.methods = vec!["POST".to_owned()];
    assert_eq!(chosen_route(&[route], &get("a", "/")), None);
}

#[test]
fn query_cookies_and_source_are_matched() {
    let text = "GET /x?v=2&w HTTP/1.1\r\nHost: a\r\nCookie: a=1; beta=yes\r\n\r\n";
    let pair = named_condition;
    let matches = |change: &dyn Fn(&mut Route)| {
        let mut changed = route(None, None);
        change(&mut changed);
        chosen_route(std::slice::from_ref(&changed), text).is_some()
    };
    assert!(matches(
        &|route| route.when.queries = vec![pair("v", Some("2")), pair("w", None)]
    ));
    assert!(!matches(
        &|route| route.when.queries = vec![pair("v", Some("1"))]
    ));
    assert!(!matches(&|route| route.when.queries = vec![pair("x", None)]));
    assert!(matches(
        &|route| route.when.cookies = vec![pair("beta", Some("yes")), pair("a", None)]
    ));
    assert!(!matches(
        &|route| route.when.cookies = vec![pair("beta", Some("no"))]
    ));
    let network = |address: &&str| Network {
        address: address.parse().unwrap(),
        prefix: 24,
    };
    let networks = |addresses: &[&str]| addresses.iter().map(network).collect::<NetworkSet>();
    assert!(matches(
        &|route| route.when.sources = Some(networks(&["10.0.0.0", "192.0.2.0"]))
    ));
    assert!(!matches(
        &|route| route.when.sources = Some(networks(&["10.0.0.0"]))
    ));
}

#[test]
fn alternatives_and_negations_are_matched() {
    let text = "GET /a/x?v=1&v=2 HTTP/1.1\r\nHost: www.example\r\nAccept: text/html\r\nX-A: 1\r\nX-A: 2\r\n\r\n";
    let matches = |change: &dyn Fn(&mut Conditions, &mut Conditions)| {
        let mut changed = route(None, None);
        let mut not = Conditions::default();
        change(&mut changed.when, &mut not);
        changed.not = (!not.is_empty()).then(|| Box::new(not));
        chosen_route(std::slice::from_ref(&changed), text).is_some()
    };
    let exact = |host: &str| HostPattern::Exact(host.to_owned());
    let wild = |name: &str, value: &str| NamedCondition {
        name: name.to_owned(),
        value: Some(ValuePattern::Wildcard(value.to_owned())),
    };
    let regex = |name: &str, value: &str| NamedCondition {
        name: name.to_owned(),
        value: Some(ValuePattern::Regex(TextRegex::new(value).unwrap())),
    };
    assert!(matches(
        &|when, _| when.hosts = vec![exact("a"), exact("www.example")]
    ));
    assert!(!matches(
        &|_, not| not.hosts = vec![exact("a"), exact("www.example")]
    ));
    assert!(matches(&|_, not| not.hosts = vec![exact("a"), exact("b")]));
    assert!(matches(
        &|when, _| when.hosts = vec![HostPattern::Wildcard("w*.ex*".to_owned())]
    ));
    let host = |text: &str| HostPattern::Regex(TextRegex::ignoring_case(text).unwrap());
    assert!(matches(&|when, _| when.hosts = vec![host("^WWW")]));
    assert!(matches(
        &|when, _| when.paths = vec!["/b/*".to_owned(), "*x".to_owned()]
    ));
    // Values of one name are alternatives; names are not.
    let pair = named_condition;
    assert!(matches(
        &|when, _| when.headers = vec![pair("x-a", Some("3")), pair("x-a", Some("2"))]
    ));
    assert!(!matches(
        &|when, _| when.headers = vec![pair("x-a", Some("1")), pair("x-b", None)]
    ));
    assert!(!matches(
        &|_, not| not.headers = vec![pair("x-b", None), pair("x-a", Some("2"))]
    ));
    assert!(matches(
        &|_, not| not.headers = vec![pair("x-b", None), pair("x-a", Some("3"))]
    ));
    assert!(matches(
        &|when, _| when.headers = vec![wild("accept", "text/*")]
    ));
    assert!(matches(
        &|when, _| when.headers = vec![regex("accept", "^text/(html|plain)$")]
    ));
    // Later values of a parameter are compared too.
    assert!(matches(&|when, _| when.queries = vec![pair("v", Some("2"))]));
    assert!(!matches(&|_, not| not.queries = vec![pair("v", Some("2"))]));
    // An empty set of networks matches no client.
    assert!(!matches(
        &|when, _| when.sources = Some(NetworkSet::default())
    ));
    assert!(!matches(
        &|when, _| when.tls_versions = vec![TlsVersion::V13]
    ));
    assert!(!matches(
        &|when, _| when.client_cert_subjects = vec![ValuePattern::Wildcard("*".to_owned())]
    ));
}

#[test]
fn unmet_condition_is_returned() {
    let text = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut fields = Vec::new();
    let request = head::parse_request(text.as_bytes(), &HeadLimits::default(), &mut fields)
        .unwrap()
        .unwrap();
    let target = RequestPath::as_received(b"/a");
    let route_input = RouteInput {
        client: "192.0.2.1".parse().unwrap(),
        target: &target,
        head: text.as_bytes(),
        request: &request,
        fields: &fields,
        tls: TlsProperties::default(),
        secure: false,
    };
    let mut changed = route(Some(HostPattern::Exact("h".to_owned())), Some("/b"));
    assert_eq!(
        first_unmet_condition(&changed, &route_input, route_input.host()),
        Some((ConditionKey::Path, false))
    );
    changed.when.paths.clear();
    assert_eq!(
        first_unmet_condition(&changed, &route_input, route_input.host()),
        None
    );
    let not = Conditions {
        methods: vec!["GET".to_owned()],
        ..Conditions::default()
    };
    changed.not = Some(Box::new(not));
    assert_eq!(
        first_unmet_condition(&changed, &route_input, route_input.host()),
        Some((ConditionKey::Method, true))
    );
}

proptest! {
    /// Compares `glob` with its definition: a star matches nothing, or one byte and then the rest.
    #[test]
    fn glob_matches_its_definition(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
        fn slow(pattern: &[u8], text: &[u8]) -> bool {
            match pattern {
                [] => text.is_empty(),
                [b'*', rest @ ..] => slow(rest, text) || (!text.is_empty() && slow(pattern, &text[1..])),
                [byte, rest @ ..] => text.first() == Some(byte) && slow(rest, &text[1..]),
            }
        }
        prop_assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), slow(pattern.as_bytes(), text.as_bytes()));
    }
}

#[test]
fn client_address_is_the_last_one_that_is_not_trusted() {
    let trusted = [("10.0.0.0", 8), ("2001:db8::", 32)].map(|(address, prefix)| Network {
        address: address.parse().unwrap(),
        prefix,
    });
    for (values, expected) in [
        (&["192.0.2.1"][..], Some("192.0.2.1")),
        (&["192.0.2.9, 192.0.2.1", "10.0.0.2"], Some("192.0.2.1")),
        (
            &["192.0.2.1:80 , [2001:db8::1]:443", "[2001:db8::2]"],
            Some("192.0.2.1"),
        ),
        (&["::ffff:192.0.2.1"], Some("192.0.2.1")),
        // All addresses are trusted, but nothing is known about addresses before invalid text.
        (&["10.0.0.3, 10.0.0.2"], Some("10.0.0.3")),
        (&["192.0.2.1, unknown, 10.0.0.2"], Some("10.0.0.2")),
        (&["192.0.2.1, unknown"], None),
        (&["192.0.2.1,"], None),
        (&[], None),
    ] {
        let mut head = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Fo: 192.0.2.7\r\n".to_owned();
        for value in values {
            head.push_str(&format!("x-forwarded-FOR: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut fields = Vec::new();
        head::parse_request(head.as_bytes(), &HeadLimits::default(), &mut fields).unwrap();
        let found = client_address(head.as_bytes(), &fields, "x-forwarded-for", &trusted);
        let expected: Option<IpAddr> = expected.map(|text| text.parse().unwrap());
        assert_eq!(found, expected, "{values:?}");
    }
}

/// Calls `check` with a request with these fields, sent over TLS to the name `a.example`.
fn with_request(fields: &str, check: &dyn Fn(RouteInput<'_>)) {
    let text = format!("GET /p?q=1 HTTP/1.1\r\nHost: H:81\r\n{fields}\r\n");
    let mut fields = Vec::new();
    let request = head::parse_request(text.as_bytes(), &HeadLimits::default(), &mut fields);
    let request = request.unwrap().unwrap();
    let target = RequestPath::as_received(request.path_in(text.as_bytes()));
    check(RouteInput {
        client: "192.0.2.1".parse().unwrap(),
        target: &target,
        head: text.as_bytes(),
        request: &request,
        fields: &fields,
        tls: TlsProperties {
            version: Some(weir_model::TlsVersion::V13),
            cipher: None,
            server_name: Some("a.example"),
            client_subject: Some("CN=client"),
        },
        secure: true,
    });
}

#[test]
fn compared_values_are_shown_as_text() {
    use ConditionKey as Key;
    let conditions = Conditions {
        headers: vec![named_condition("X-A", None)],
        ..Conditions::default()
    };
    with_request("x-a: 1\r\nX-A: \u{e9}\r\nCookie: c=d\r\n", &|route_input| {
        let shown = |key| compared_value(key, Some(&conditions), &route_input);
        for (key, expected) in [
            (Key::Method, "GET"),
            (Key::Scheme, "https"),
            (Key::Host, "H"),
            (Key::Path, "/p"),
            (Key::PathRegex, "/p"),
            (Key::Query, "q=1"),
            (Key::Cookie, "Cookie: c=d"),
            (Key::Header, "x-a: 1, X-A: \u{e9}"),
            (Key::Source, "192.0.2.1"),
            (Key::TlsVersion, "an unknown value"),
            (Key::TlsSni, "an unknown value"),
            (Key::ClientCertSubject, "an unknown value"),
        ] {
            assert_eq!(shown(key), expected, "{key:?}");
        }
    });
    with_request("X-A: \t\r\n", &|route_input| {
        assert_eq!(compared_value(Key::Cookie, None, &route_input), "none");
        assert_eq!(compared_value(Key::Header, None, &route_input), "none");
        let shown = compared_value(Key::Header, Some(&conditions), &route_input);
        assert_eq!(shown, "X-A: none");
        let http = RouteInput {
            secure: false,
            ..route_input
        };
        assert_eq!(compared_value(Key::Scheme, None, &http), "http");
    });
}

#[test]
fn conditions_on_scheme_and_tls_match_the_connection() {
    use weir_model::TlsVersion;
    let exact = |text: &str| ValuePattern::Exact(text.to_owned());
    let host = |text: &str| HostPattern::Exact(text.to_owned());
    type Change = Box<dyn Fn(&mut Conditions)>;
    let cases: [(Change, bool); 8] = [
        (Box::new(|it| it.schemes = vec![Scheme::Https]), true),
        (Box::new(|it| it.schemes = vec![Scheme::Http]), false),
        (
            Box::new(|it| it.tls_versions = vec![TlsVersion::V12, TlsVersion::V13]),
            true,
        ),
        (
            Box::new(|it| it.tls_versions = vec![TlsVersion::V12]),
            false,
        ),
        (
            Box::new(move |it| it.tls_snis = vec![host("b.example"), host("A.example")]),
            true,
        ),
        (Box::new(move |it| it.tls_snis = vec![host("h")]), false),
        (
            Box::new(move |it| it.client_cert_subjects = vec![exact("CN=client")]),
            true,
        ),
        (
            Box::new(move |it| it.client_cert_subjects = vec![exact("CN=other")]),
            false,
        ),
    ];
    for (index, (change, expected)) in cases.iter().enumerate() {
        let mut only = route(None, None);
        change(&mut only.when);
        with_request("", &|route_input| {
            let routes = [only.clone()];
            assert_eq!(
                choose(&routes, &route_input).is_some(),
                *expected,
                "{index}"
            );
            let plain = RouteInput {
                tls: TlsProperties::default(),
                ..route_input
            };
            let is_scheme = !only.when.schemes.is_empty();
            let found = choose(&routes, &plain).is_some();
            assert_eq!(found, is_scheme && *expected, "{index} without TLS");
        });
    }
}

#[test]
fn hosts_from_files_match_exactly_or_by_pattern() {
    let hosts = vec![
        HostPattern::Exact("a.example".to_owned()),
        HostPattern::Suffix(".b.example".to_owned()),
        HostPattern::Wildcard("*.c.*".to_owned()),
    ];
    let mut only = route(None, None);
    let set = weir_model::HostSet::new(vec![("hosts".to_owned(), hosts)]);
    only.when.host_set = Some(set.into());
    for (host, expected) in [
        ("a.example", true),
        ("A.EXAMPLE:8080", true),
        ("x.b.example", true),
        ("b.example", false),
        (".b.example", false),
        ("x.c.test", true),
        ("c.test", false),
        ("other", false),
    ] {
        let found = chosen_route(&[only.clone()], &get(host, "/"));
        assert_eq!(found.is_some(), expected, "{host}");
    }
}

#[test]
fn suffix_matches_only_longer_hosts() {
    let suffix = HostPattern::Suffix(".b.example".to_owned());
    for (host, expected) in [
        ("x.B.example", true),
        (".b.example", false),
        ("b.example", false),
    ] {
        assert_eq!(host_matches(&suffix, host.as_bytes()), expected, "{host}");
    }
}

#[test]
fn strip_port_removes_the_port_and_a_trailing_dot() {
    for (host, expected) in [
        ("a.example", "a.example"),
        ("a.example:8080", "a.example"),
        ("a.example.", "a.example"),
        ("a.example.:80", "a.example"),
        ("a.example:", "a.example"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("[2001:db8::1]:443", "[2001:db8::1]"),
        ("", ""),
    ] {
        assert_eq!(strip_port(host.as_bytes()), expected.as_bytes(), "{host}");
    }
}

#[test]
fn connections_are_selected_by_name_and_source() {
    let network = |address: &str| Network {
        address: address.parse().unwrap(),
        prefix: 24,
    };
    let sources = |address| Some(NetworkSet::from_iter([network(address)]));
    let exact = || Some(HostPattern::Exact("a.example".to_owned()));
    let mut both = route(exact(), None);
    both.when.sources = sources("192.0.2.0");
    let mut by_source = route(None, None);
    by_source.when.sources = sources("198.51.100.0");
    let mut not_source = route(None, None);
    not_source.not = Some(Box::new(Conditions {
        sources: sources("203.0.113.0"),
        ..Conditions::default()
    }));
    let routes = [both, by_source, not_source];
    for (name, client, expected) in [
        (Some("a.example"), "192.0.2.1", Some(0)),
        (Some("b.example"), "192.0.2.1", Some(2)),
        (None, "192.0.2.1", Some(2)),
        (Some("a.example"), "198.51.100.1", Some(1)),
        (Some("a.example"), "203.0.113.1", None),
    ] {
        let found = choose_for_connection(&routes, name, client.parse().unwrap());
        assert_eq!(found, expected, "{name:?} {client}");
    }
}

#[test]
fn scheme_is_the_first_value_of_the_forwarded_field() {
    for (fields, expected) in [
        ("", None),
        ("X-Forwarded-Proto: https\r\n", Some(Scheme::Https)),
        ("x-forwarded-proto:  HTTP , https\r\n", Some(Scheme::Http)),
        ("X-Forwarded-Proto: wss\r\n", None),
        ("X-Forwarded-Protocol: https\r\n", None),
        (
            "X-Forwarded-Proto: http\r\nX-Forwarded-Proto: https\r\n",
            Some(Scheme::Http),
        ),
    ] {
        with_request(fields, &|route_input| {
            let scheme = forwarded_scheme(route_input.head, route_input.fields);
            assert_eq!(scheme, expected, "{fields}");
        });
    }
}
