//! Tests expanded templates: rewritten paths, redirects and field values.

use proptest::prelude::*;
use weir_model::{HostPattern, RouteAction, TextRegex, TlsVersion};

use super::*;
use crate::head::{self, HeadLimits};
use crate::path::RequestPath;
use crate::route::TlsProperties;

fn parse_template(text: &str) -> Template {
    Template::parse(text).unwrap()
}

/// Calls `function` with the template context of a request.
fn with_template_context<T>(
    text: &str,
    route: Option<&Route>,
    function: impl FnOnce(&TemplateContext<'_>) -> T,
) -> T {
    let mut fields = Vec::new();
    let request = head::parse_request(text.as_bytes(), &HeadLimits::default(), &mut fields)
        .unwrap()
        .unwrap();
    let target = RequestPath::as_received(request.path_in(text.as_bytes()));
    let client: SocketAddr = "192.0.2.1:4000".parse().unwrap();
    let route_input = RouteInput {
        client: client.ip(),
        target: &target,
        head: text.as_bytes(),
        request: &request,
        fields: &fields,
        tls: TlsProperties {
            version: Some(TlsVersion::V13),
            cipher: Some("TLS13_AES_128_GCM_SHA256"),
            server_name: Some("a.example"),
            client_subject: Some("CN=x\r\ny"),
        },
        secure: true,
    };
    function(&TemplateContext {
        route_input,
        client,
        port: 8443,
        default_host: b"192.0.2.9:80",
        request_id: RequestId::from_client(b"r-1").unwrap(),
        server: None,
        pool: "p",
        route,
        regex: None,
    })
}

fn get(host: &str, target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nX-A: b/c d\r\nCookie: u=v;w\r\n\r\n")
}

fn fill_text(text: &str, encoding: ValueEncoding, request: &str, route: Option<&Route>) -> String {
    with_template_context(request, route, |template_context| {
        let mut out = Vec::new();
        expand(&parse_template(text), encoding, template_context, &mut out);
        String::from_utf8(out).unwrap()
    })
}

fn redirect_location(to: &str, request: &str, route: Option<&Route>) -> String {
    let to = parse_template(to);
    let has_query = to.variables().any(|variable| *variable == Variable::Query);
    let to = match has_query {
        true => to,
        false => to.replacing(&Variable::Path, &Variable::PathAndQuery),
    };
    with_template_context(request, route, |template_context| {
        String::from_utf8(location(&to, template_context)).unwrap()
    })
}

fn route(pattern: Option<&str>, regex: Option<&str>) -> Route {
    let mut route = Route::new(RouteAction::Close);
    route.when.hosts = vec![HostPattern::Exact("h".to_owned())];
    route.when.paths = pattern.map(str::to_owned).into_iter().collect();
    route.when.path_regexes = regex
        .map(|text| TextRegex::new(text).unwrap())
        .into_iter()
        .collect();
    route
}

/// Returns the path and query that the server receives.
fn resulting_target(regex: Option<&str>, to: &str, target: &str, route: &Route) -> String {
    let edit = PathRewrite {
        regex: regex.map(|text| TextRegex::new(text).unwrap()),
        to: parse_template(to),
    };
    let path = with_template_context(&get("h", target), Some(route), |template_context| {
        rewrite_path(&edit, template_context)
    });
    path.map_or_else(String::new, |path| String::from_utf8(path).unwrap())
}

#[test]
fn hidden_value_has_two_hashes_of_the_key() {
    let value = hidden((7 << 64) + 9);
    let halves = ((value >> 64) as u64, value as u64);
    assert_eq!(halves, (siphash((9, 7), b"1"), siphash((9, 7), b"2")));
}

#[test]
fn groups_come_from_the_rewrite_expression() {
    let route = route(None, Some("^/(.)"));
    let path =
        |target: &str| resulting_target(Some("^/a/([^/]*)/(.*)$"), "/b/{2}/{1}", target, &route);
    assert_eq!(path("/a/x/y/z?q=/a/"), "/b/y/z/x?q=/a/");
    assert_eq!(path("/a//"), "/b//");
    assert_eq!(path("/b/x/y"), "", "not changed");
    assert_eq!(resulting_target(Some("x"), "/y", "/a/x?x", &route), "/y?x");
}

#[test]
fn rewritten_path_keeps_the_query() {
    let path = |to: &str, pattern: Option<&str>, target: &str| {
        let route = route(pattern, None);
        resulting_target(None, to, target, &route)
    };
    assert_eq!(
        path("/{rest}", Some("/api/*"), "/api/v1/x?y=/z"),
        "/v1/x?y=/z"
    );
    assert_eq!(path("/new{path}", None, "/a?b"), "/new/a?b");
    assert_eq!(path("/", Some("/*"), "/a"), "/");
    assert_eq!(path("/{rest}", Some("/only"), "/only?q"), "/?q");
    assert_eq!(
        path("/{header.X-A}/{client}", None, "/a"),
        "/b%2Fc%20d/192.0.2.1"
    );
    let by_regex = route(None, Some("^/u/([0-9]+)(/.*)?$"));
    let path = |target: &str| resulting_target(None, "/user{2}/{1}", target, &by_regex);
    assert_eq!(path("/u/7/x?q=/u/8"), "/user/x/7?q=/u/8");
    assert_eq!(path("/u/7"), "/user/7");
}

#[test]
fn redirect_contains_host_and_path() {
    let location = redirect_location(
        "https://{host}{path}#{ x}{",
        &get("a.example:8080", "/x?y=1"),
        None,
    );
    assert_eq!(location, "https://a.example/x?y=1#{ x}{");
    assert_eq!(
        redirect_location("{scheme}://{host}/", &get("[2001:db8::1]:80", "/"), None),
        "https://[2001:db8::1]/"
    );
    let old = "GET /x HTTP/1.0\r\n\r\n";
    assert_eq!(
        redirect_location("https://{host}{path}", old, None),
        "https://192.0.2.9/x"
    );
    for target in ["//evil.example/", "/\\evil.example/", "/\\//evil.example/"] {
        let text = get("a", target);
        assert_eq!(
            redirect_location("{path}", &text, None),
            "/evil.example/",
            "must not name a host"
        );
        assert_eq!(
            redirect_location("https://a{path}", &text, None),
            format!("https://a{target}")
        );
    }
    let absolute = "GET http://a?q HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(
        redirect_location("https://a{path}", absolute, None),
        "https://a/?q"
    );
    assert_eq!(
        redirect_location("https://a/x{path}?{query}", &get("a", "/b?c"), None),
        "https://a/x/b?c"
    );
    assert_eq!(
        redirect_location("https://a/x?{query}", &get("a", "/b"), None),
        "https://a/x",
        "without a query, no question mark"
    );
    for (target, expected) in [("/b", "https://a/x?y=1"), ("/b?c", "https://a/x?y=1&c")] {
        let found = redirect_location("https://a/x?y=1&{query}", &get("a", target), None);
        assert_eq!(found, expected);
    }
    assert_eq!(
        redirect_location("https://a?{query}", &get("a", "/b?c=d"), None),
        "https://a?c=d",
        "the authority ends with `?`"
    );
}

#[test]
fn parts_of_a_path_cannot_select_a_host() {
    let rest = route(Some("/go/*"), None);
    assert_eq!(
        redirect_location("/{rest}", &get("h", "/go//evil.example/"), Some(&rest)),
        "/evil.example/"
    );
    let location = redirect_location(
        "https://{rest}",
        &get("h", "/go/evil.example/x"),
        Some(&rest),
    );
    assert_eq!(location, "https://evil.example%2Fx");
    assert_eq!(
        redirect_location("{rest}", &get("h", "/go/http:evil"), Some(&rest)),
        "http%3Aevil"
    );
    let group = route(None, Some("^/go(/.*)$"));
    assert_eq!(
        redirect_location("https://a{1}", &get("h", "/go/x/y"), Some(&group)),
        "https://a/x/y"
    );
    assert_eq!(
        redirect_location("{header.X-A}", &get("h", "/"), None),
        "b%2Fc%20d"
    );
}

#[test]
fn every_variable_has_a_value() {
    let mut route = route(Some("/a/*"), Some("(b)"));
    route.source.line = 12;
    let text = "{client} {client_port} {listen_port} {scheme} {host} {path} {query} {method} {pool} {route} \
                {tls_version} {tls_sni} {client_cert_subject} {header.x-a} {cookie.u} {1} {rest} {request_id} \
                {header.none}{cookie.none}.";
    assert_eq!(
        fill_text(
            text,
            ValueEncoding::Field,
            &get("H:80", "/a/b?c"),
            Some(&route)
        ),
        "192.0.2.1 4000 8443 https H /a/b c GET p 12 1.3 a.example CN=x__y b/c d v b b \
         r-1 ."
    );
    assert_eq!(
        fill_text(
            "{forwarded_for}",
            ValueEncoding::Field,
            &get("h", "/"),
            None
        ),
        "192.0.2.1"
    );
    let forwarded = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 198.51.100.7\r\nx-forwarded-for: \
                     198.51.100.8\r\n\r\n";
    assert_eq!(
        fill_text("{forwarded_for}", ValueEncoding::Field, forwarded, None),
        "198.51.100.7, 198.51.100.8, 192.0.2.1"
    );
    assert_eq!(
        fill_text("{tls_cipher}", ValueEncoding::Field, &get("h", "/"), None),
        "TLS13_AES_128_GCM_SHA256"
    );
    assert_eq!(
        fill_text("{server}", ValueEncoding::Field, &get("h", "/"), None),
        "\0"
    );
    assert_eq!(
        fill_text(
            "{client_cert_subject}",
            ValueEncoding::Body,
            &get("h", "/"),
            None
        ),
        "CN=x__y"
    );
}

proptest! {
    /// No input from a client adds a line to a head, or a space or control character to a URL.
    #[test]
    fn values_add_no_delimiters(
        field in "[ -~\t]{0,12}",
        target in "/[!$-~]{0,12}",
        text in "(\\{(header\\.x-a|path|query|host|rest|1|cookie\\.u)\\}|/|a|:){1,6}",
    ) {
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nX-A: {field}\r\n\r\n");
        let route = route(Some("*"), Some("(.*)"));
        let value = fill_text(&text, ValueEncoding::Field, &request, Some(&route));
        prop_assert!(!value.contains(['\r', '\n', '\0']));
        let location = redirect_location(&text, &request, Some(&route));
        prop_assert!(!location.contains(|c: char| c.is_ascii_control() || c == ' '), "{}", location);
        prop_assert!(text.starts_with("//") || !location.starts_with("//"), "{}", location);
    }
}

#[test]
fn invalid_request_ids_of_clients_are_rejected() {
    let id = RequestId::from_client(b"a-1_:/+=.~Z").unwrap();
    assert_eq!(id.to_bytes(), b"a-1_:/+=.~Z");
    for wrong in [&b""[..], b"a b", b"a\r\nb", b"\xff", &[b'a'; 65]] {
        assert_eq!(RequestId::from_client(wrong), None);
    }
    assert!(RequestId::from_client(&[b'a'; 64]).is_some());
}

#[test]
fn generated_request_ids_are_hexadecimal_and_differ_by_key() {
    let text = |key| String::from_utf8(RequestId::Generated(key).to_bytes()).unwrap();
    let id = text(1);
    assert!(id.len() == 32 && id.bytes().all(|byte| b"0123456789abcdef".contains(&byte)));
    assert_eq!(id, text(1));
    for other in [text(0), text(1 | 1 << 64)] {
        assert_ne!(id[..16], other[..16]);
        assert_ne!(id[16..], other[16..]);
    }
}

#[test]
fn keys_exclude_fields_that_the_client_may_not_set() {
    let request = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 198.51.100.7\r\nX-Real-IP: 198.51.100.8\r\n\r\n";
    let text = parse_template("{forwarded_for} {header.X-Real-IP}");
    with_template_context(request, None, |template_context| {
        let mut fields = template_context.route_input.fields.to_vec();
        for (removes_others, expected) in [
            (false, "198.51.100.7, 192.0.2.1 198.51.100.8"),
            (true, "192.0.2.1 "),
        ] {
            crate::mark_untrusted(request.as_bytes(), &mut fields, None, removes_others);
            let route_input = RouteInput {
                fields: &fields,
                ..template_context.route_input
            };
            let context = TemplateContext {
                route_input,
                ..*template_context
            };
            assert_eq!(key_text(&text, &context), expected.as_bytes());
            let mut value = Vec::new();
            expand(&text, ValueEncoding::Field, &context, &mut value);
            assert_eq!(value, b"198.51.100.7, 192.0.2.1 198.51.100.8", "not a key");
        }
    });
}

#[test]
fn map_keys_are_text_with_hosts_in_lower_case() {
    let map = |key: &str, entries: &[(&str, &str)]| {
        let entries = entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let kind = weir_model::MapKind::Exact;
        let entries = weir_model::MapEntries::new(kind, false, entries, |_| None).unwrap();
        ValueMap {
            name: "m".to_owned(),
            key: parse_template(key),
            default: Some("none".to_owned()),
            entries: entries.into(),
        }
    };
    let key = |text: &str, host: &str| {
        with_template_context(&get(host, "/P?q"), None, |template_context| {
            let map = map(text, &[]);
            String::from_utf8(map_key(&map, template_context).into_owned()).unwrap()
        })
    };
    for (text, host, expected) in [
        ("{host}", "H.Example:81", "h.example"),
        ("{host}", "h.example", "h.example"),
        ("{path}", "h", "/P"),
        ("{header.x-a}", "h", "b/c d"),
        ("{client_port}", "h", "4000"),
        ("{host}:{path}", "H", "h:/P"),
        ("fixed", "h", "fixed"),
    ] {
        assert_eq!(key(text, host), expected, "{text} {host}");
    }

    // A map's value is used in text, in a field and in the log.
    let found = map("{host}", &[("h", "1")]);
    let text = parse_template("{map.m}-{host}").with_maps(|_| Some(found.clone().into()));
    let text = text.unwrap();
    for (host, expected) in [("H", "1-H"), ("other", "none-other")] {
        with_template_context(&get(host, "/"), None, |template_context| {
            let mut out = Vec::new();
            expand(&text, ValueEncoding::Field, template_context, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
            let values: Vec<Vec<u8>> = text
                .variables()
                .map(|variable| template_context.text(variable))
                .collect();
            let (value, host) = expected.split_once('-').unwrap();
            assert_eq!(values, [value.as_bytes(), host.as_bytes()]);
        });
    }
}

#[test]
fn request_ids_are_shown_as_text() {
    let client_id = RequestId::from_client(b"r-1").unwrap();
    assert_eq!(format!("{client_id:?}"), "r-1");
    let generated = format!("{:?}", RequestId::Generated(7));
    assert_eq!(generated, format!("{:032x}", hidden(7)));
    assert_eq!(generated.len(), 32);
}
