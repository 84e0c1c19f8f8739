use super::*;

fn convert_in(frontend: FrontendContext<'_>, criterion: &str) -> String {
    let words: Vec<String> = criterion.split_whitespace().map(str::to_owned).collect();
    convert_criterion(&words, frontend).describe()
}

fn convert(criterion: &str) -> String {
    convert_in(FrontendContext::default(), criterion)
}

const SOURCE_CHANGED: &str = "unsupported: an earlier rule changes the client's address, but routes match the address \
                              of the connection";

#[test]
fn derived_contexts_keep_the_other_properties() {
    let ports = [80];
    let context = FrontendContext {
        tls: true,
        ports: &ports,
        authenticated: Some(true),
        is_tcp_mode: true,
        is_source_changed: false,
        counters_are_zero: false,
    };
    let line = |follows_source_change: bool| Line {
        position: crate::note::Position::FIRST,
        words: Vec::new(),
        uses_capture: false,
        follows_source_change,
    };
    let assert_unchanged = |derived: FrontendContext<'_>| {
        assert!(derived.tls && derived.is_tcp_mode);
        assert_eq!(derived.ports, ports);
        assert_eq!(derived.authenticated, Some(true));
    };
    for (is_changed, follows, expected) in [
        (false, false, false),
        (false, true, true),
        (true, false, true),
        (true, true, true),
    ] {
        let before = FrontendContext {
            is_source_changed: is_changed,
            ..context
        };
        let after = before.for_line(&line(follows));
        assert_eq!(after.is_source_changed, expected, "{is_changed} {follows}");
        assert!(!after.counters_are_zero);
        assert_unchanged(after);
    }
    let zero = context.with_zero_counters();
    assert!(zero.counters_are_zero && !zero.is_source_changed);
    assert_unchanged(zero);
}

#[test]
fn predefined_acls_are_converted() {
    let describe = |name: &str, is_source_changed: bool| {
        let context = FrontendContext {
            is_source_changed,
            ..FrontendContext::default()
        };
        predefined(name, context).map(|it| it.describe())
    };
    for (name, expected) in [
        ("TRUE", Some("always")),
        ("HTTP", Some("always")),
        ("WAIT_END", Some("always")),
        ("FALSE", Some("never")),
        ("LOCALHOST", Some("sources 127.0.0.0/8")),
        ("METH_GET", Some("methods GET, HEAD")),
        ("METH_POST", Some("methods POST")),
        ("METH_PUT", Some("methods PUT")),
        ("METH_DELETE", Some("methods DELETE")),
        ("METH_HEAD", Some("methods HEAD")),
        ("METH_OPTIONS", Some("methods OPTIONS")),
        ("METH_CONNECT", Some("methods CONNECT")),
        ("METH_TRACE", Some("methods TRACE")),
        ("HTTP_1.0", None),
        ("other", None),
    ] {
        assert_eq!(describe(name, false).as_deref(), expected, "{name}");
        if name != "LOCALHOST" {
            assert_eq!(describe(name, true).as_deref(), expected, "{name}");
        }
    }
    assert_eq!(describe("LOCALHOST", true).as_deref(), Some(SOURCE_CHANGED));
}

/// Changes the context of a criterion.
type ContextChange = fn(&mut FrontendContext<'_>);

/// Criteria whose result depends on the frontend, each with a change to the default context and the expected result.
const FRONTEND_CRITERIA: &[(&str, ContextChange, &str)] = &[
    ("ssl_fc", |_| {}, "never"),
    ("ssl_fc", |it| it.tls = true, "always"),
    ("ssl_fc 1", |it| it.tls = true, "always"),
    ("ssl_fc true", |_| {}, "never"),
    ("ssl_fc 0", |it| it.tls = true, "never"),
    ("ssl_fc false", |it| it.tls = true, "never"),
    ("ssl_fc false", |_| {}, "always"),
    ("wait_end", |_| {}, "always"),
    ("wait", |_| {}, "unsupported: routes cannot match wait"),
    ("always_true", |_| {}, "always"),
    ("always_false", |_| {}, "never"),
    ("req.proto_http", |_| {}, "always"),
    ("req_proto_http", |_| {}, "always"),
    (
        "req.proto_http",
        |it| it.is_tcp_mode = true,
        "unsupported: routes cannot match req.proto_http",
    ),
    ("http_auth(u)", |it| it.authenticated = Some(true), "always"),
    ("http_auth(u)", |it| it.authenticated = Some(false), "never"),
    (
        "http_auth_group(u) g",
        |it| it.authenticated = Some(true),
        "always",
    ),
    (
        "http_auth(u)",
        |_| {},
        "unsupported: routes cannot match user names and passwords; see `basic_auth`",
    ),
    ("src 10.0.0.1", |_| {}, "sources 10.0.0.1"),
    (
        "src 10.0.0.1",
        |it| it.is_source_changed = true,
        SOURCE_CHANGED,
    ),
    (
        "src_conn_cur gt 5",
        |_| {},
        "unsupported: routes cannot match src_conn_cur",
    ),
    (
        "src_conn_cur gt 5",
        |it| it.counters_are_zero = true,
        "never",
    ),
    (
        "src_conn_cur lt 5",
        |it| it.counters_are_zero = true,
        "always",
    ),
    ("path /a", |it| it.counters_are_zero = true, "path /a"),
];

#[test]
fn criteria_depend_on_the_frontend() {
    for (criterion, change, expected) in FRONTEND_CRITERIA {
        let mut context = FrontendContext::default();
        change(&mut context);
        assert_eq!(convert_in(context, criterion), *expected, "{criterion}");
    }
}

#[test]
fn ports_are_compared_with_those_of_the_listeners() {
    let other = "unsupported: routes cannot compare ports this way";
    let several = "unsupported: the service has listeners on several ports; define a separate service for each port";
    for (criterion, ports, expected) in [
        ("dst_port 80", &[80][..], "always"),
        ("dst_port 80 81", &[80, 81], "always"),
        ("dst_port 80-81", &[80, 81], "always"),
        ("dst_port 81:90 80", &[80, 81, 90], "always"),
        ("dst_port eq 80", &[80], "always"),
        ("dst_port 80:", &[80, 81], "always"),
        ("dst_port 81:", &[80], "never"),
        ("dst_port :81", &[80, 81], "always"),
        ("dst_port :79", &[80], "never"),
        ("dst_port -80", &[80], "always"),
        ("dst_port 80:65536", &[80], "always"),
        ("dst_port 81", &[80], "never"),
        ("dst_port 81:79", &[80], "never"),
        ("dst_port x-90", &[80], "never"),
        ("dst_port 80-x", &[80], "never"),
        ("dst_port 80", &[80, 81], several),
        ("dst_port 80", &[], other),
        ("dst_port", &[80], other),
        ("dst_port eq", &[80], other),
        ("dst_port ge 80", &[80], other),
        ("dst_port gt 80", &[80], other),
        ("dst_port le 80", &[80], other),
        ("dst_port lt 80", &[80], other),
    ] {
        let context = FrontendContext {
            ports,
            ..FrontendContext::default()
        };
        assert_eq!(
            convert_in(context, criterion),
            expected,
            "{criterion} {ports:?}"
        );
    }
}

const SUPPORTED: &[(&str, &str)] = &[
    ("method", "never"),
    ("method GET PUT", "methods GET, PUT"),
    ("method -i get PUT", "methods GET, PUT"),
    ("method -m meth get", "methods get"),
    ("method -m found", "always"),
    ("path -m found", "always"),
    ("pathq -m found", "always"),
    ("url -m found", "always"),
    ("base -m found", "always"),
    ("path", "never"),
    // A criterion without values never matches.
    ("hdr(X-A)", "never"),
    ("cook(c)", "never"),
    ("hdr(X-A) a", "headers X-A: a"),
    ("hdr(X-A) a b c", "headers X-A: a, X-A: b, X-A: c"),
    ("req.fhdr(X-A) a b", "headers X-A: a, X-A: b"),
    (
        "hdr(X-A) -i a-b_c/d e.f",
        "headers X-A: ~(?i)^a-b_c/d$, X-A: ~(?i)^e\\.f$",
    ),
    ("hdr(host) a.b c.d", "host a.b or host c.d"),
    ("hdr(Host) -m beg a.b c.d", "host a.b* or host c.d*"),
    ("hdr(host),lower A.b:80", "host a.b"),
    ("hdr(host),lower,field(1,:) a.b", "host a.b"),
    ("req.hdr_str(host) a.b", "host a.b"),
    ("hdr(host) -m found", "headers host"),
    ("hdr(X-A) -m found", "headers X-A"),
    ("hdr(X-A) -m", "never"),
    ("hdr(X-A) -u id a", "headers X-A: a"),
    ("hdr(X-A) -n -- a", "headers X-A: a"),
    ("cook(c) a", "cookies c=a"),
    ("req.cook(c) a b", "cookies c=a or cookies c=b"),
    ("cook_end(c) a", "cookies c=*a"),
    ("cook_reg(c) ^a", "cookies c=~^a"),
    ("cook(c) -i 1-2", "cookies c=1-2"),
    ("urlp(p) a", "queries p=a"),
    ("url_param_beg(p) a", "queries p=a*"),
    ("urlp(p) -m found", "queries p"),
    ("hdr_ip(host) 192.0.2.1", "host 192.0.2.1"),
    ("req.ssl_sni -m end .a", "host *.a"),
    ("req_ssl_sni a", "host a"),
    ("ssl_fc_sni_reg ^a", "host ~(?i)^a"),
    ("path_dir /a/", "path */a/* or path */a"),
    ("path_beg -i /a", "regex (?i)^/a"),
    ("path_reg /a*", "regex /a*"),
    ("path_reg -i /a", "regex (?i)/a"),
    ("url_beg /a /b", "path /a* or path /b*"),
    ("base_beg a/b c/d", "host a; path /b* or host c; path /d*"),
    ("hdr_dom(host) a", "host ~(^|\\.)a(\\.|$)"),
    ("hdr_dom(host) .a.b.", "host a.b or host *.a.b"),
    ("src ::1 10.0.0.0/8", "sources ::1, 10.0.0.0/8"),
    (
        "src 10.0.0.0/255.0.0.0 192.0.2.0/255.255.255.0",
        "sources 10.0.0.0/8, 192.0.2.0/24",
    ),
    ("src 10.0.0.0/0.0.0.0", "sources 10.0.0.0/0"),
    ("src 10.0.0.0/255.255.255.255", "sources 10.0.0.0/32"),
    ("src 10.0.0.0/32", "sources 10.0.0.0/32"),
    ("src 2001:DB8::/128", "sources 2001:DB8::/128"),
    // The words after `--` are values.
    ("hdr(X-A) -- -i a", "headers X-A: -i, X-A: a"),
    ("hdr(X-A) -i -- -m", "headers X-A: ~(?i)^-m$"),
    ("src -f /a 10.0.0.1", "sources 10.0.0.1, file:/a"),
    ("hdr_cnt(X-A) ge 1", "headers X-A"),
    ("hdr_cnt(X-A) lt 1", "not header X-A"),
];

#[test]
fn criteria_become_conditions() {
    for (criterion, expected) in SUPPORTED {
        let expected = expected.replace("file:", FILE_PREFIX);
        assert_eq!(convert(criterion), expected, "{criterion}");
    }
}

const NO_FILE: &str = "the file with the ACL's values cannot be read";
const NO_FILE_FOR_ROUTE: &str = "the file with the ACL's values cannot be read, and a route reads only networks and \
                                 hosts from files";
const ONLY_NETWORKS: &str = "a route's `source` accepts only addresses and networks";

const UNSUPPORTED: &[(&str, &str)] = &[
    ("", "the criterion is empty"),
    ("rand(9)", "routes cannot match rand(9)"),
    ("cook a", "routes cannot match cook"),
    ("urlp a", "routes cannot match urlp"),
    ("path,upper /a", "routes do not support converters (upper)"),
    (
        "hdr(host),upper a",
        "routes do not support converters (upper)",
    ),
    (
        "hdr(X-A),field(1,:) a",
        "routes do not support converters (field(1,:))",
    ),
    ("path -f", NO_FILE),
    ("path -f relative", NO_FILE),
    ("src -f relative", NO_FILE),
    ("src -f /a -f /b", NO_FILE),
    ("path -M -f /a", "routes do not support map files"),
    ("path -f /a", NO_FILE_FOR_ROUTE),
    ("method -f /a", NO_FILE_FOR_ROUTE),
    ("method -m beg P", "routes cannot match method"),
    ("method_reg ^P", "routes cannot match method_reg"),
    ("hdr(X-A) -f /a", NO_FILE_FOR_ROUTE),
    ("hdr_beg(host) -f /a", NO_FILE_FOR_ROUTE),
    ("cook(host) -f /a", NO_FILE_FOR_ROUTE),
    ("hdr(host) -f /a b", NO_FILE_FOR_ROUTE),
    ("src", ONLY_NETWORKS),
    ("src a.b", ONLY_NETWORKS),
    ("src a.b/8", ONLY_NETWORKS),
    ("src 10.0.0.0/33", ONLY_NETWORKS),
    ("src ::/129", ONLY_NETWORKS),
    ("src 10.0.0.0/255.0.255.0", ONLY_NETWORKS),
    ("src 10.0.0.0/x", ONLY_NETWORKS),
    ("src 10.0.0.0/", ONLY_NETWORKS),
    ("src 10.0.0.1 a.b", ONLY_NETWORKS),
    ("src -f /a a.b", ONLY_NETWORKS),
    ("cook(c) -i a", "routes compare cook(c) case-sensitively"),
    ("path_dom a", "routes cannot compare path_dom this way"),
    ("path_sub -i ä", "routes cannot compare path_sub this way"),
    ("path /a*", "routes cannot compare path this way"),
    ("path_len 5", "routes cannot compare path_len this way"),
    ("pathq /a", "routes cannot compare pathq this way"),
    ("url /a", "routes cannot compare url this way"),
    ("url_sub a", "routes cannot compare url_sub this way"),
    ("url_beg /a?b", "routes cannot compare url_beg this way"),
    ("base /a", "routes cannot compare base this way"),
    ("base a", "routes cannot compare base this way"),
    ("base_end a/b", "routes cannot compare base_end this way"),
    ("base a*/b", "routes cannot compare base this way"),
    ("base a/b*", "routes cannot compare base this way"),
    ("hdr(host) :80", "routes cannot compare hdr(host) this way"),
    ("hdr(host) *.a", "routes cannot compare hdr(host) this way"),
    (
        "hdr_dom(host) .",
        "routes cannot compare hdr_dom(host) this way",
    ),
    (
        "ssl_fc_sni -m found",
        "routes cannot compare ssl_fc_sni this way",
    ),
    (
        "hdr_ip(host) -m found",
        "routes cannot compare hdr_ip(host) this way",
    ),
    ("hdr(X-A) a b*", "routes cannot compare hdr(X-A) this way"),
    ("hdr(X-A) ~a", "routes cannot compare hdr(X-A) this way"),
    (
        "hdr_len(X-A) 5",
        "routes cannot compare hdr_len(X-A) this way",
    ),
    (
        "hdr_cnt(X-A) 1",
        "routes cannot compare the number of fields",
    ),
    (
        "hdr_ip(X-A) 10.0.0.1 -f /a",
        "routes compare hdr_ip(X-A) only with IPv4 addresses and networks /8, /16 and /24",
    ),
    (
        "hdr_ip(X-A,2) 10.0.0.1",
        "routes cannot select an address by its position",
    ),
];

#[test]
fn criteria_without_an_equivalent_have_a_reason() {
    for (criterion, reason) in UNSUPPORTED {
        assert_eq!(
            convert(criterion),
            format!("unsupported: {reason}"),
            "{criterion}"
        );
    }
    // An empty value would match every request.
    for fetch in ["path", "path_beg", "hdr(host)"] {
        let words = [fetch.to_owned(), String::new()];
        let found = convert_criterion(&words, FrontendContext::default()).describe();
        let expected = format!("unsupported: routes cannot compare {fetch} this way");
        assert_eq!(found, expected, "{fetch}");
    }
}

#[test]
fn networks_with_whole_byte_prefixes_become_regular_expressions() {
    for (network, expected) in [
        ("10.1.2.3", Some("10\\.1\\.2\\.3")),
        ("10.1.2.3/32", Some("10\\.1\\.2\\.3")),
        ("10.1.2.3/24", Some("10\\.1\\.2\\.[0-9]+")),
        ("10.1.2.3/16", Some("10\\.1\\.[0-9]+\\.[0-9]+")),
        ("10.1.2.3/8", Some("10\\.[0-9]+\\.[0-9]+\\.[0-9]+")),
        ("10.1.2.3/0", None),
        ("10.1.2.3/12", None),
        ("10.1.2.3/40", None),
        ("10.1.2.3/x", None),
        ("10.1.2", None),
        ("::1", None),
    ] {
        assert_eq!(
            network_expression(network).as_deref(),
            expected,
            "{network}"
        );
    }
}

#[test]
fn converters_follow_the_first_comma_outside_parentheses() {
    for (text, expected) in [
        ("path", ("path", "")),
        ("path,lower", ("path", "lower")),
        ("hdr(a,1),lower", ("hdr(a,1)", "lower")),
        ("hdr(a),field(1,:),lower", ("hdr(a)", "field(1,:),lower")),
        ("a((b,c),d),e", ("a((b,c),d)", "e")),
        ("a),b", ("a)", "b")),
    ] {
        assert_eq!(split_converters(text), expected, "{text}");
    }
    assert_eq!(escape_regex("aZ9/-_.+ é"), "aZ9/-_\\.\\+\\ \\é");
}
