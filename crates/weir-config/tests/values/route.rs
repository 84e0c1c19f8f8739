//! Tests the conditions, actions, changes and options of routes.

use std::time::Duration;

use weir_model::{
    Conditions, ForwardAuth, HashKey, HeaderEdit, HeaderEdits, HeaderReplacement, HostPattern,
    Mirror, NamedCondition, PathRewrite, Route, RouteAction, RouteLimits, RouteOptions,
    RouteTimeouts, Split, StaticFiles, Template, TextRegex, ValuePattern,
};

use crate::{desired, messages, with_service};

fn with_route(lines: &str) -> String {
    with_service(&format!("[[route]]\nservice = \"s\"\n{lines}"))
}

#[track_caller]
fn route(lines: &str) -> Route {
    desired(&with_route(lines)).proxies[0].routes[0].clone()
}

#[track_caller]
fn conditions(lines: &str) -> Conditions {
    route(&format!("pool = \"p\"\n{lines}")).when
}

#[track_caller]
fn options(lines: &str) -> RouteOptions {
    *route(&format!("pool = \"p\"\n{lines}"))
        .options
        .expect("options")
}

/// Asserts that each route has exactly one finding, with this message.
#[track_caller]
fn assert_only_messages(cases: &[(&str, &str)]) {
    for (lines, message) in cases {
        assert_eq!(messages(&with_route(lines)), [*message], "{lines}");
    }
}

fn template(text: &str) -> Template {
    Template::parse(text).expect("a valid template")
}

fn regex(text: &str) -> TextRegex {
    TextRegex::new(text).expect("a valid expression")
}

#[test]
fn host_condition_is_a_name_a_pattern_an_address_or_an_expression() {
    let text = |text: &str| text.to_owned();
    for (host, pattern) in [
        (
            "WWW.a_b-c.example",
            HostPattern::Exact(text("www.a_b-c.example")),
        ),
        ("*.B.example", HostPattern::Suffix(text(".b.example"))),
        ("W*.example", HostPattern::Wildcard(text("w*.example"))),
        ("*.w*.example", HostPattern::Wildcard(text("*.w*.example"))),
        ("192.0.2.1", HostPattern::Exact(text("192.0.2.1"))),
        ("2001:db8::1", HostPattern::Exact(text("2001:db8::1"))),
        ("[2001:DB8::1]", HostPattern::Exact(text("[2001:db8::1]"))),
    ] {
        assert_eq!(
            conditions(&format!("host = \"{host}\"")).hosts,
            [pattern],
            "{host}"
        );
    }
    let hosts = conditions("host = '~^a+\\.example$'").hosts;
    assert_eq!(hosts[0].to_string(), "~^a+\\.example$");
    for host in [
        "",
        "a..example",
        "a b",
        "a.example:80",
        "[a]",
        "[192.0.2.1]",
        "*.",
        "a/b",
    ] {
        let errors = messages(&with_route(&format!("pool = \"p\"\nhost = \"{host}\"")));
        assert_eq!(errors, [format!("invalid host `{host}`")]);
    }
}

#[test]
fn path_and_method_conditions_are_validated_and_unchanged() {
    for path in ["/", "/a*", "*.png", "/~a;b=1,c:@d!$&'()"] {
        assert_eq!(conditions(&format!("path = \"{path}\"")).paths, [path]);
    }
    for path in ["", "a", "/a b", "/a?b", "/a#b", "/\u{e9}", "~a", "^/a"] {
        let errors = messages(&with_route(&format!("pool = \"p\"\npath = \"{path}\"")));
        assert_eq!(errors, [format!("invalid path `{path}`")]);
    }
    assert_eq!(
        conditions("method = [\"GET\", \"M-SEARCH\"]").methods,
        ["GET", "M-SEARCH"]
    );
    for method in ["", "Get", "G T", "G1"] {
        let errors = messages(&with_route(&format!("pool = \"p\"\nmethod = \"{method}\"")));
        assert_eq!(errors, [format!("invalid method `{method}`")]);
    }
}

#[test]
fn named_conditions_have_a_name_and_an_optional_value() {
    let named = |name: &str, value: Option<ValuePattern>| NamedCondition {
        name: name.to_owned(),
        value,
    };
    let exact = |text: &str| Some(ValuePattern::Exact(text.to_owned()));
    let wildcard = |text: &str| Some(ValuePattern::Wildcard(text.to_owned()));
    for (text, expected) in [
        ("X-A", named("x-a", None)),
        ("X-A: b c ", named("x-a", exact("b c"))),
        ("X-A:", named("x-a", exact(""))),
        (
            "a!#$%&'+-.^`|~: *x",
            named("a!#$%&'+-.^`|~", wildcard("*x")),
        ),
        (
            "X-A: ~^[a-c]",
            named("x-a", Some(ValuePattern::Regex(regex("^[a-c]")))),
        ),
    ] {
        assert_eq!(
            conditions(&format!("header = \"{text}\"")).headers,
            [expected],
            "{text}"
        );
    }
    for (text, expected) in [
        ("A", named("A", None)),
        ("a=B", named("a", exact("B"))),
        ("a=", named("a", exact(""))),
        ("a=b=c", named("a", exact("b=c"))),
        ("a=*x", named("a", wildcard("*x"))),
        (
            "a=~^[a-c] ?",
            named("a", Some(ValuePattern::Regex(regex("^[a-c] ?")))),
        ),
    ] {
        let parsed_conditions = conditions(&format!("query = \"{text}\"\ncookie = \"{text}\""));
        assert_eq!(
            parsed_conditions.queries, parsed_conditions.cookies,
            "{text}"
        );
        assert_eq!(parsed_conditions.queries, [expected], "{text}");
    }
    for header in ["", ": a", "a b: c", "a*: b"] {
        let errors = messages(&with_route(&format!("pool = \"p\"\nheader = \"{header}\"")));
        let name = header.split(':').next().unwrap_or_default();
        assert_eq!(errors, [format!("invalid header field name `{name}`")]);
    }
    for pair in ["", "=a", "a*=b", "a b=c", "a=b c", "a b=~c", "\u{e9}=a"] {
        for key in ["query", "cookie"] {
            let errors = messages(&with_route(&format!("pool = \"p\"\n{key} = \"{pair}\"")));
            assert_eq!(errors, [format!("invalid {key} condition")], "{pair}");
        }
    }
}

#[test]
fn empty_conditions_are_rejected() {
    for key in [
        "host", "path", "method", "header", "query", "cookie", "source", "scheme",
    ] {
        let errors = messages(&with_route(&format!("pool = \"p\"\n{key} = []")));
        assert_eq!(errors, [format!("`{key}` is empty")]);
    }
}

#[test]
fn files_action_has_a_root_and_optional_settings() {
    let files = |lines: &str| match route(lines).action {
        RouteAction::Files(files) => StaticFiles::clone(&files),
        other => panic!("{other:?}"),
    };
    assert_eq!(files("files = \"/srv\""), StaticFiles::new("/srv"));
    assert_eq!(
        files("files = { root = \"/srv\" }"),
        StaticFiles::new("/srv")
    );
    for status in [400, 503, 599] {
        let parsed_files = files(&format!("files = \"/srv\"\nstatus = {status}"));
        assert_eq!(parsed_files.missing_status, status);
    }
    let parsed_files = files(
        "files = { root = \"/srv\", strip = \"/static/\", index = [\"a.html\", \"b\"], try = [\"{path}.html\", \
         \"/a..b\"], pool = \"p\" }\nrewrite = \"/x\"\nretries = 1",
    );
    let expected = StaticFiles {
        root: "/srv".to_owned(),
        strip: "/static".to_owned(),
        index: vec!["a.html".to_owned(), "b".to_owned()],
        attempts: vec!["{path}.html".to_owned(), "/a..b".to_owned()],
        missing_status: 404,
        pool: Some("p".to_owned()),
    };
    assert_eq!(parsed_files, expected);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn invalid_files_are_rejected() {
    assert_only_messages(&[
        ("files = \"srv\"", "the directory must be an absolute path"),
        (
            "files = \"/a\\u0000\"",
            "the directory must be an absolute path",
        ),
        (
            "files = { root = \"srv\" }",
            "the directory must be an absolute path",
        ),
        (
            "files = { root = \"/a\", strip = \"b\" }",
            "`strip` must begin with `/`",
        ),
        (
            "files = { root = \"/a\", index = [\"\"] }",
            "invalid entry ``",
        ),
        (
            "files = { root = \"/a\", index = [\"b/c\"] }",
            "invalid entry `b/c`",
        ),
        (
            "files = { root = \"/a\", index = [\".b\"] }",
            "invalid entry `.b`",
        ),
        (
            "files = { root = \"/a\", index = [\"b\\u0000\"] }",
            "invalid entry `b\\0`",
        ),
        (
            "files = { root = \"/a\", try = [\"b\"] }",
            "invalid entry `b`",
        ),
        (
            "files = { root = \"/a\", try = [\"/b/../c\"] }",
            "invalid entry `/b/../c`",
        ),
        (
            "files = { root = \"/a\", try = [\"{path}/..\"] }",
            "invalid entry `{path}/..`",
        ),
        (
            "files = { root = \"/a\", try = [\"/{host}\"] }",
            "invalid entry `/{host}`",
        ),
        (
            "files = { root = \"/a\", try = [\"/b{\"] }",
            "invalid entry `/b{`",
        ),
        (
            "files = { root = \"/a\", try = [\"/b}\"] }",
            "invalid entry `/b}`",
        ),
        (
            "files = { root = \"/a\", try = [\"/b\\u0000\"] }",
            "invalid entry `/b\\0`",
        ),
        (
            "files = \"/a\"\nstatus = 399",
            "the status for missing files is not an error status",
        ),
        (
            "files = { root = \"/a\", pool = \"p\" }\nstatus = 404",
            "`status` has no effect: requests for which no file is found are sent to a pool",
        ),
        (
            "files = \"/a\"\nbody = \"b\"",
            "`files` cannot be combined with `body`",
        ),
        (
            "files = \"/a\"\nretries = 1",
            "`retries` has no effect: the request is not sent to a server",
        ),
    ]);
}

#[test]
fn route_limits_have_a_rate_a_burst_and_a_key() {
    for (fields, per_minute, burst, concurrent, key) in [
        ("rate = 10", 600, 0, 0, HashKey::Source),
        ("rate = 60000", 3_600_000, 0, 0, HashKey::Source),
        ("rate = \"5/s\", key = \"uri\"", 300, 0, 0, HashKey::Uri),
        ("rate = \" 30 / m \", burst = 7", 30, 7, 0, HashKey::Source),
        ("rate = \"3600000/m\"", 3_600_000, 0, 0, HashKey::Source),
        (
            "concurrent = 3, key = \"header:X-Key\"",
            0,
            0,
            3,
            HashKey::Header("x-key".to_owned()),
        ),
        // Without a rate, the duration of a burst is not limited.
        ("concurrent = 3, burst = 1000", 0, 1000, 3, HashKey::Source),
        // A burst lasts at most 32000 seconds at its rate.
        ("rate = 1, burst = 32000", 60, 32_000, 0, HashKey::Source),
    ] {
        let limits = options(&format!("limits = {{ {fields} }}")).limits;
        let expected = RouteLimits {
            per_minute,
            burst,
            concurrent,
            key,
        };
        assert_eq!(limits, expected, "{fields}");
    }
    // A rate of 0 explicitly disables the limit.
    assert_eq!(
        messages(&with_route("pool = \"p\"\nlimits = { rate = 0 }")),
        Vec::<String>::new()
    );
    let bad_rate = "`rate` is not a valid rate, or is out of range";
    assert_only_messages(&[
        ("pool = \"p\"\nlimits = {}", "`limits` sets no limit"),
        (
            "pool = \"p\"\nlimits = { burst = 5 }",
            "`limits` sets no limit",
        ),
        (
            "pool = \"p\"\nlimits = { key = \"uri\" }",
            "`limits` sets no limit",
        ),
        (
            "pool = \"p\"\nlimits = { rate = 1, burst = 32001 }",
            "`burst` is too large for this rate",
        ),
        ("pool = \"p\"\nlimits = { rate = 60001 }", bad_rate),
        ("pool = \"p\"\nlimits = { rate = -1 }", bad_rate),
        ("pool = \"p\"\nlimits = { rate = \"3600001/m\" }", bad_rate),
        ("pool = \"p\"\nlimits = { rate = \"60001/s\" }", bad_rate),
        ("pool = \"p\"\nlimits = { rate = \"5\" }", bad_rate),
        ("pool = \"p\"\nlimits = { rate = \"5/h\" }", bad_rate),
        ("pool = \"p\"\nlimits = { rate = \"x/s\" }", bad_rate),
    ]);
}

#[test]
fn rewrite_is_a_path_with_at_most_one_query() {
    for path in ["/", "/v2/{rest}", "{path}.html", "/a?b={host}", "/{query}"] {
        let path_rewrite = route(&format!(
            "pool = \"p\"\npath = \"/a/*\"\nrewrite = \"{path}\""
        ))
        .edits
        .path;
        assert_eq!(
            path_rewrite,
            Some(PathRewrite {
                regex: None,
                to: template(path)
            })
        );
    }
    let parsed_route =
        route("pool = \"p\"\nrewrite = { regex = \"^/([a-z]+)/([0-9]+)$\", to = \"/{2}/{1}\" }");
    let expected = PathRewrite {
        regex: Some(regex("^/([a-z]+)/([0-9]+)$")),
        to: template("/{2}/{1}"),
    };
    assert_eq!(parsed_route.edits.path, Some(expected));
    for path in [
        "", "a", "{host}/a", "/a b", "/a#b", "/a{b", "/a}b", "/a?b?c", "/\u{e9}",
    ] {
        let errors = messages(&with_route(&format!("pool = \"p\"\nrewrite = \"{path}\"")));
        assert_eq!(errors, [format!("invalid path `{path}`")]);
    }
}

#[test]
fn header_changes_are_converted_to_the_model() {
    let edit = |name: &str, value: &str| HeaderEdit {
        name: name.to_owned(),
        value: template(value),
        statuses: Vec::new(),
        file: None,
    };
    let edits = route(
        "pool = \"p\"\nset_header = [\"X-A:  {client} \"]\nadd_header = [\"x_b:\"]\nremove_header = [\"X-C\"]\n\
         set_response_header = [\"X-D: {server}\"]\nremove_response_header = [\"Server\"]\nresponse_status = 404\n\
         add_response_header = [{ header = \"X-E: e\", status = \"200-299\" }]\n\
         replace_response_header = [{ name = \"Location\", regex = \"^http:(.*)\", to = \"https:{1}\" }]",
    )
    .edits;
    let request = HeaderEdits {
        set: vec![edit("X-A", "{client}")],
        add: vec![edit("x_b", "")],
        remove: vec!["x-c".to_owned()],
        replace: vec![],
    };
    let response = HeaderEdits {
        set: vec![edit("X-D", "{server}")],
        add: vec![HeaderEdit {
            statuses: vec![(200, 299)],
            ..edit("X-E", "e")
        }],
        remove: vec!["server".to_owned()],
        replace: vec![HeaderReplacement {
            name: "location".to_owned(),
            regex: regex("^http:(.*)"),
            to: template("https:{1}"),
        }],
    };
    assert_eq!(
        (edits.request, edits.response, edits.status),
        (request, response, Some(404))
    );
    let parsed_route = route(
        "files = \"/srv\"\nset_response_header = [{ header = \"A: b\", file = \"/index.html\" }]",
    );
    assert_eq!(
        parsed_route.edits.response.set[0].file.as_deref(),
        Some("/index.html")
    );
}

#[test]
fn invalid_header_changes_are_rejected() {
    let bad_value = "the value contains characters that are not allowed in a header field";
    let invalid = [
        ("set_header = [\"A\"]", "expected \"Name: value\""),
        ("set_header = [\": a\"]", "invalid header field name ``"),
        (
            "set_header = [{ header = \"A: b\", status = 200 }]",
            "expected a string, text, found a table",
        ),
        (
            "set_header = [\"A b: c\"]",
            "invalid header field name `A b`",
        ),
        (
            "set_header = [\"Host: c\"]",
            "`Host` cannot be changed here",
        ),
        ("set_header = [\"A: \u{e9}\"]", bad_value),
        ("set_header = [\"A: b\\tc\"]", bad_value),
        (
            "set_header = [\"A: {server}\"]",
            "`{server}` is not known before a server is selected",
        ),
        (
            "remove_header = [\"Upgrade\"]",
            "`Upgrade` cannot be changed here",
        ),
        ("remove_header = [\"\"]", "invalid header field name ``"),
        (
            "response_status = 204",
            "a response with content cannot have status 204",
        ),
        (
            "response_status = 304",
            "a response with content cannot have status 304",
        ),
        (
            "set_response_header = [{ header = \"A: b\", file = \"/c\" }]",
            "`file` has no effect: the route has no `files`",
        ),
        (
            "add_response_header = [{ header = \"A: b\", file = \"/c\" }]",
            "`file` has no effect: the route has no `files`",
        ),
        (
            "replace_response_header = [{ name = \"A\", regex = \"b\", to = \"{path}\" }]",
            "`to` may only use the capture groups of `regex`",
        ),
        (
            "replace_response_header = [{ name = \"A\", regex = \"b\", to = \"\u{e9}\" }]",
            bad_value,
        ),
        (
            "replace_response_header = [{ name = \"A\", regex = \"b\", to = \"{1}\" }]",
            "`{1}` has no value: `regex` has 0 capture groups",
        ),
    ];
    for (line, message) in invalid {
        assert_eq!(
            messages(&with_route(&format!("pool = \"p\"\n{line}"))),
            [message],
            "{line}"
        );
    }
    assert_only_messages(&[(
        "files = \"/srv\"\nset_response_header = [{ header = \"A: b\", file = \"c\" }]",
        "the file path must begin with `/`",
    )]);
}

/// Changes to requests and responses, and whether each applies to responses that Weir generates and to files.
const CHANGES: [(&str, bool, bool); 9] = [
    ("rewrite = \"/x\"", false, false),
    ("response_status = 200", false, false),
    ("set_header = [\"A: b\"]", false, false),
    ("add_header = [\"A: b\"]", false, false),
    ("remove_header = [\"A\"]", false, false),
    ("set_response_header = [\"A: b\"]", true, true),
    ("add_response_header = [\"A: b\"]", true, true),
    ("remove_response_header = [\"A\"]", false, true),
    (
        "replace_response_header = [{ name = \"A\", regex = \"b\", to = \"c\" }]",
        false,
        true,
    ),
];

#[test]
fn changes_are_rejected_if_the_action_ignores_them() {
    for (line, applies_to_response, applies_to_files) in CHANGES {
        let key = line.split(' ').next().unwrap_or_default();
        let message = format!("`{key}` has no effect: the request is not sent to a server");
        for (action, is_valid) in [
            ("pool = \"p\"", true),
            ("split = [\"p:1\"]", true),
            ("files = { root = \"/srv\", pool = \"p\" }", true),
            ("files = { root = \"/srv\" }", applies_to_files),
            ("files = \"/srv\"", applies_to_files),
            ("status = 403", applies_to_response),
            ("redirect = \"/y\"", applies_to_response),
            ("close = true", false),
        ] {
            let errors = messages(&with_route(&format!("{action}\n{line}")));
            let expected = match is_valid {
                true => vec![],
                false => vec![message.clone()],
            };
            assert_eq!(errors, expected, "{action} {line}");
        }
    }
    let text = with_route("path = \"/a\"\nrestart = \"next\"\nrewrite = \"/x\"");
    assert_eq!(messages(&text), Vec::<String>::new());
}

#[test]
fn options_are_rejected_if_the_action_ignores_them() {
    for line in [
        "timeouts = { server = \"1s\" }",
        "retries = 1",
        "retry_on = [\"empty\"]",
        "max_body = \"1KiB\"",
        "compression = true",
        "mirror = \"p\"",
    ] {
        let key = line.split(' ').next().unwrap_or_default();
        let message = format!("`{key}` has no effect: the request is not sent to a server");
        for (action, is_valid) in [
            ("pool = \"p\"", true),
            ("split = [\"p:1\"]", true),
            ("files = { root = \"/srv\", pool = \"p\" }", true),
            ("files = \"/srv\"", false),
            ("status = 403", false),
        ] {
            let errors = messages(&with_route(&format!("{action}\n{line}")));
            assert_eq!(
                errors.contains(&message),
                !is_valid,
                "{action} {line}: {errors:?}"
            );
        }
    }
    for line in [
        "basic_auth = false",
        "limits = { rate = 1 }",
        "max_connections = 1",
    ] {
        let key = line.split(' ').next().unwrap_or_default();
        let message = format!("`{key}` has no effect: the connection is closed");
        assert_eq!(
            messages(&with_route(&format!("close = true\n{line}"))),
            [message]
        );
        let errors = messages(&with_route(&format!("path = \"/a\"\nstatus = 403\n{line}")));
        assert_eq!(errors, Vec::<String>::new(), "{line}");
    }
}

#[test]
fn route_options_are_converted_to_the_model() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let parsed_options = options(
        "timeouts = { client = \"1s\", connect = \"2s\", server = \"3s\", response = \"4s\", tunnel = \"5s\", total = \
         \"6s\" }\nretries = 2\nmax_connections = 9\naccess_log = false\ncompression = false\nserver = \"10.0.0.5:80\"",
    );
    let timeouts = RouteTimeouts {
        client: seconds(1),
        connect: seconds(2),
        server: seconds(3),
        response: seconds(4),
        tunnel: seconds(5),
        total: seconds(6),
    };
    assert_eq!(
        (
            parsed_options.timeouts,
            parsed_options.retries,
            parsed_options.max_connections
        ),
        (timeouts, Some(2), 9)
    );
    assert_eq!(
        (parsed_options.access_log, parsed_options.compression),
        (Some(false), Some(None))
    );
    assert_eq!(parsed_options.server.as_deref(), Some("10.0.0.5:80"));
    assert_eq!(route("pool = \"p\"").options, None);
}

#[test]
fn mirrors_have_a_pool_a_share_and_a_path() {
    assert_eq!(options("mirror = \"p\"").mirrors, [Mirror::new("p")]);
    let parsed_options = options(
        "mirror = [\"p\", { pool = \"p\", percent = 12.5, body = \"1KiB\", concurrent = 5, path = \"/copies\" }]",
    );
    let expected = Mirror {
        pool: "p".to_owned(),
        share: 1250,
        body: 1024,
        concurrent: 5,
        path: Some("/copies".to_owned()),
    };
    assert_eq!(parsed_options.mirrors, [Mirror::new("p"), expected]);
    let eight = format!("mirror = [{}]", "\"p\", ".repeat(8));
    assert_eq!(options(&eight).mirrors.len(), 8);
    for path in ["x", "/a?b", "/a#b", "/a b"] {
        let line = format!("pool = \"p\"\nmirror = {{ pool = \"p\", path = \"{path}\" }}");
        assert_eq!(
            messages(&with_route(&line)),
            [format!("invalid path `{path}`")]
        );
    }
}

#[test]
fn forward_auth_copies_and_sets_header_fields() {
    let forward_auth = options("forward_auth = { pool = \"p\" }").forward_auth;
    let expected = ForwardAuth {
        pool: "p".to_owned(),
        path: "/".to_owned(),
        timeout: Duration::from_secs(5),
        copy: vec![],
        set: vec![],
    };
    assert_eq!(forward_auth, Some(expected));
    let forward_auth = options(
        "forward_auth = { pool = \"p\", path = \"/v?a=b\", timeout = \"1s\", copy_header = [\"X-A\", \"X-B: X-C\"], \
         set_header = [\"X-D: {path}\", \"X-E: {path}?{query}\"] }",
    )
    .forward_auth
    .expect("`forward_auth` is set");
    assert_eq!(
        (forward_auth.path.as_str(), forward_auth.timeout),
        ("/v?a=b", Duration::from_secs(1))
    );
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(forward_auth.copy, [pair("X-A", "X-A"), pair("X-B", "X-C")]);
    // Without `{query}`, `{path}` includes the query.
    assert_ne!(forward_auth.set[0].value, template("{path}"));
    assert_eq!(forward_auth.set[1].value, template("{path}?{query}"));
    for (fields, message) in [
        ("path = \"v\"", "invalid path `v`"),
        ("path = \"/a b\"", "invalid path `/a b`"),
        ("path = \"/{host}\"", "invalid path `/{host}`"),
        ("path = \"/a#b\"", "invalid path `/a#b`"),
        ("copy_header = [\"Host\"]", "`Host` cannot be changed here"),
        (
            "copy_header = [\"A: b c\"]",
            "invalid header field name `b c`",
        ),
        ("copy_header = [\"A\", \"a: B\"]", "`a` is listed twice"),
    ] {
        let line = format!("pool = \"p\"\nforward_auth = {{ pool = \"p\", {fields} }}");
        assert_eq!(messages(&with_route(&line)), [message], "{fields}");
    }
}

#[test]
fn split_lists_pools_with_weights() {
    let action = route("split = [\"p:0\", \"p:65535\"]\nsplit_by = \"{client}\"").action;
    let expected = Split {
        parts: vec![("p".to_owned(), 0), ("p".to_owned(), 65_535)],
        by: Some(template("{client}")),
    };
    assert_eq!(action, RouteAction::Split(expected));
    let syntax_error = "expected \"POOL:WEIGHT\"";
    assert_only_messages(&[
        ("split = [\"p:1\", \"p\"]", syntax_error),
        ("split = [\"p:1\", \":1\"]", syntax_error),
        ("split = [\"p:1\", \"p:x\"]", syntax_error),
        ("split = [\"p:1\", \"p:65536\"]", syntax_error),
        ("split = [\"p:0\"]", "all weights of this split are 0"),
        (
            "split = [\"p:1\"]\nstatus = 404",
            "`split` cannot be combined with `pool`, `redirect`, `status` or `body`",
        ),
        (
            "pool = \"p\"\nsplit_by = \"{client}\"",
            "`split_by` has no effect without `split`",
        ),
    ]);
}

#[test]
fn redirect_has_a_target_and_a_status() {
    let redirect = |lines: &str| match route(lines).action {
        RouteAction::Redirect { to, status } => (to, status),
        other => panic!("{other:?}"),
    };
    assert_eq!(redirect("redirect = \"/x\""), (template("/x"), 302));
    assert_eq!(redirect("redirect = \"/x\"\nstatus = 308").1, 308);
    let with_query = "https://{host}{path}?{query}";
    assert_eq!(
        redirect(&format!("redirect = \"{with_query}\"")).0,
        template(with_query)
    );
    // Without `{query}`, `{path}` includes the query.
    assert_ne!(redirect("redirect = \"{path}\"").0, template("{path}"));
    assert_only_messages(&[
        ("redirect = \"\"", "invalid redirect target"),
        ("redirect = \"/a b\"", "invalid redirect target"),
        ("redirect = \"/\\u007f\"", "invalid redirect target"),
        (
            "redirect = \"/x\"\nstatus = 304",
            "304 is not a redirect status",
        ),
        (
            "redirect = \"/x\"\nstatus = 400",
            "400 is not a redirect status",
        ),
        (
            "redirect = \"/x\"\nbody = \"a\"",
            "`body` is not valid with `redirect`",
        ),
        (
            "redirect = \"/x\"\npool = \"p\"",
            "`redirect` and `pool` are mutually exclusive",
        ),
        (
            "status = 404\npool = \"p\"",
            "`status` is only valid without a pool",
        ),
        (
            "body = \"a\"\npool = \"p\"",
            "`body` is only valid without a pool",
        ),
    ]);
}

#[test]
fn restart_uses_only_variables_of_the_request_head() {
    for (variable, is_known) in [
        ("client", true),
        ("forwarded_for", true),
        ("cookie.a", true),
        ("header.a", true),
        ("host", true),
        ("path", true),
        ("query", true),
        ("method", true),
        ("tls_version", true),
        ("tls_cipher", true),
        ("tls_sni", true),
        ("client_cert_subject", true),
        ("rest", true),
        ("client_port", false),
        ("listen_port", false),
        ("request_id", false),
        ("route", false),
        ("scheme", false),
        ("pool", false),
    ] {
        let lines = format!("path = \"/a*\"\nrestart = \"next\"\nrewrite = \"/{{{variable}}}\"");
        let message = "a `rewrite` with `restart` contains a variable that has no value yet";
        let errors = messages(&with_route(&lines));
        assert_eq!(
            errors.iter().any(|it| it == message),
            !is_known,
            "{variable}: {errors:?}"
        );
    }
    assert_only_messages(&[(
        "restart = \"next\"\npath = \"/a\"",
        "`restart` requires `rewrite`",
    )]);
}
