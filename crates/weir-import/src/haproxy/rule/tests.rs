use super::*;
use crate::EmptyEnvironment;
use crate::note::Position;
use std::net::IpAddr;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn line(text: &str) -> Line {
    Line {
        position: Position::FIRST,
        words: words(text),
        uses_capture: false,
        follows_source_change: false,
    }
}

/// An environment in which a file whose name is a number has that many bytes. Other files contain their own names.
struct FilesBySize;

impl Environment for FilesBySize {
    fn read(&self, path: &str) -> Result<String, String> {
        match path.parse() {
            Ok(size) => Ok("x".repeat(size)),
            Err(_) => Ok(path.to_owned()),
        }
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn address(&self, _: &str, _: bool) -> Option<IpAddr> {
        None
    }

    fn port(&self, _: &str, _: &str) -> Option<u16> {
        None
    }

    fn host_name(&self) -> String {
        String::new()
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

fn respond(status: u64, body: &str) -> Option<Result<Action, String>> {
    Some(Ok(fixed_response(status, body.to_owned())))
}

fn respond_with(status: u64, body: &str, fields: &[&str]) -> Option<Result<Action, String>> {
    Some(Ok(Action::RespondWithFields {
        status,
        body: body.to_owned(),
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
    }))
}

fn parse(text: &str) -> Option<Result<Action, String>> {
    let line = line(text);
    let parsed = parse_rule(&line, &EmptyEnvironment)?;
    Some(parsed.map(|(action, _)| action))
}

/// Parses the options of a redirect; the result is `STATUS TARGET` or an error.
fn redirect(text: &str) -> Result<String, String> {
    match parse_redirect(&words(text), &[])?.0 {
        Action::Redirect { to, status } => Ok(format!("{status} {to}")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn condition_begins_with_if_or_unless() {
    for (text, action, expected) in [
        ("deny if a b", "deny", "if a b"),
        ("deny unless a if b", "deny", "unless a if b"),
        ("deny", "deny", ""),
        ("if a", "", "if a"),
    ] {
        let line_words = words(text);
        let (before, after) = condition(&line_words);
        assert_eq!(before, words(action), "{text}");
        assert_eq!(after, words(expected), "{text}");
    }
}

#[test]
fn rejections_have_the_same_status_as_in_haproxy() {
    for (text, expected) in [
        ("http-request deny", respond(403, "")),
        ("http-request block", respond(403, "")),
        ("http-request deny deny_status 429", respond(429, "")),
        ("http-request deny status 404 if a", respond(404, "")),
        ("http-request tarpit", respond(500, "")),
        ("http-request tarpit deny_status 429", respond(429, "")),
        ("http-request auth realm x", respond(401, "")),
        ("block if a", respond(403, "")),
        ("http-request silent-drop", Some(Ok(Action::Close))),
        (
            "tcp-request connection reject if a",
            Some(Ok(Action::Close)),
        ),
        ("tcp-request content silent-drop", Some(Ok(Action::Close))),
        ("tcp-request connection accept", None),
        ("tcp-request connection", None),
        ("http-request set-header a b", None),
        ("http-request", None),
        (
            "http-request deny deny_status 199",
            Some(Err("invalid response status".to_owned())),
        ),
        (
            "http-request tarpit deny_status 600",
            Some(Err("invalid response status".to_owned())),
        ),
        (
            "http-request deny deny_status",
            Some(Err("invalid response status".to_owned())),
        ),
        (
            "http-request redirect location /a code 301",
            Some(Ok(Action::Redirect {
                to: "/a".to_owned(),
                status: 301,
            })),
        ),
    ] {
        assert_eq!(parse(text), expected, "{text}");
    }
}

#[test]
fn rejection_keeps_only_the_status() {
    for (text, expected) in [
        ("http-request deny content-type a string b if c", Some(403)),
        ("http-request block", Some(403)),
        ("http-request deny deny_status 429 hdr a b", Some(429)),
        ("http-request deny deny_status 99 hdr a b", Some(403)),
        ("http-request tarpit", Some(500)),
        ("http-request return status 200", None),
        ("tcp-request deny", None),
        ("http-request", None),
    ] {
        let line = line(text);
        let status = rejection_of(&line).map(|(action, condition)| {
            assert_eq!(condition.is_empty(), !text.contains(" if "), "{text}");
            match action {
                Action::Respond { status, body } if body.is_empty() => status,
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(status, expected, "{text}");
    }
}

#[test]
fn redirects_are_converted_to_a_status_and_a_target() {
    for (text, expected) in [
        ("scheme https", "302 https://{host}{path}"),
        ("code 301 scheme https", "301 https://{host}{path}"),
        ("prefix https://a.example/", "302 https://a.example{path}"),
        ("prefix /a code 307", "307 /a{path}"),
        ("location /a code 308", "308 /a"),
        ("location /a code 303", "303 /a"),
        ("location /a append-slash", "302 /a"),
        ("location /a drop-query", "302 /a"),
        ("scheme https drop-query", "302 https://{host}{whole}"),
        ("prefix /a drop-query append-slash", "302 /a{whole/}"),
        // In a route's `redirect`, `{path}` includes the query; haproxy's `path` does not.
        ("location https://b%[path]", "302 https://b{whole}"),
        ("location /%[path]", "302 {whole}"),
        ("location %[path]?%[query]", "302 {path}?{query}"),
        ("prefix https://b/%[path]", "302 https://b/{path}{path}"),
        ("location /%[hdr(x)]", "302 /{header.x}"),
    ] {
        assert_eq!(redirect(text), Ok(expected.to_owned()), "{text}");
    }
}

#[test]
fn redirects_without_an_equivalent_are_rejected() {
    for (text, expected) in [
        ("", "haproxy requires a kind of redirect and a target"),
        (
            "code 301",
            "haproxy requires a kind of redirect and a target",
        ),
        ("scheme", "haproxy requires a target"),
        ("location /a code 300", "300 is not a redirect status"),
        ("location /a code x", "0 is not a redirect status"),
        (
            "location /a set-cookie b",
            "a route's `redirect` has no option set-cookie",
        ),
        (
            "location /{a}",
            "a name in braces is a variable in a route's `redirect`",
        ),
        (
            "location /%{+Q}[path]",
            "the target contains an unsupported variable",
        ),
        (
            "location /%[rand]",
            "the target contains an unsupported variable",
        ),
        (
            "scheme https append-slash",
            "a route's `redirect` adds a slash only with drop-query",
        ),
    ] {
        assert_eq!(redirect(text), Err(expected.to_owned()), "{text}");
    }
}

#[test]
fn redirect_without_query_captures_the_path() {
    let routes = |regex: Option<&str>, to: &str| {
        let condition = Condition {
            host: Some("a".to_owned()),
            regex: regex.map(str::to_owned),
            ..Condition::default()
        };
        let routes = routes_without_query(&condition, to)?;
        let routes = routes.into_iter().map(|(condition, to)| {
            assert_eq!(condition.host.as_deref(), Some("a"));
            format!("{} {to}", condition.regex.unwrap_or_default())
        });
        Some(routes.collect::<Vec<String>>())
    };
    for (regex, to, expected) in [
        (None, "x{whole}", Some(&["^/(.*)$ x/{1}"][..])),
        (
            None,
            "x{whole/}",
            Some(&["^/(.*[^/])$ x/{1}/", "^/(.*)$ x/{1}"]),
        ),
        (Some("^/a.*$"), "{whole}", Some(&["^/(a.*)$ /{1}"])),
        (
            Some("^/a/[^/]*$"),
            "{whole/}",
            Some(&["^/(a/[^/]+)$ /{1}/", "^/(a/[^/]*)$ /{1}"]),
        ),
        (Some("^/a[^/]$"), "{whole/}", Some(&["^/(a[^/])$ /{1}/"])),
        (Some("^/a$"), "{whole/}", None),
        (Some("a"), "{whole}", None),
        (Some("^/a"), "{whole}", None),
        (Some("^/(a)$"), "{whole}", None),
        (Some("^/a|b$"), "{whole}", None),
        (Some("^/a\\.b$"), "{whole}", None),
    ] {
        let expected = expected.map(|texts| texts.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(routes(regex, to), expected, "{regex:?} {to}");
    }
    assert!(drops_query("a{whole}") && drops_query("a{whole/}"));
    assert!(!drops_query("a{path}"));
}

#[test]
fn variables_are_replaced_with_those_of_weir() {
    for (text, expected) in [
        ("plain", Some("plain")),
        ("50%%", Some("50%")),
        ("a%[src]b%[dst_port]c", Some("a{client}b{listen_port}c")),
        ("%ci:%cp %fp", Some("{client}:{client_port} {listen_port}")),
        ("%HM,%b/%s", Some("{method},{pool}/{server}")),
        // This is an unknown variable, not `%ci` followed by `x`.
        ("%cix", None),
        ("%si", None),
        ("%", None),
        ("%[src", None),
        ("%[unknown]", None),
        ("%[src_port]", Some("{client_port}")),
        ("%[fc_dst_port]", Some("{listen_port}")),
        ("%[path]", Some("{path}")),
        ("%[capture.req.uri]", Some("{path}")),
        ("%[url]", Some("{path}")),
        ("%[query]", Some("{query}")),
        ("%[uuid]", Some("{request_id}")),
        ("%[uuid(4)]", Some("{request_id}")),
        ("%[uuid(7)]", None),
        ("%[unique-id]", Some("{request_id}")),
        ("%[unique-id(4)]", None),
        ("%[method]", Some("{method}")),
        ("%[capture.req.method]", Some("{method}")),
        ("%[ssl_fc_sni]", Some("{tls_sni}")),
        ("%[req.ssl_sni]", Some("{tls_sni}")),
        ("%[ssl_fc_protocol]", Some("{tls_version}")),
        ("%[be_name]", Some("{pool}")),
        ("%[srv_name]", Some("{server}")),
        ("%[hdr(Host)]", Some("{host}")),
        ("%[req.hdr(X-A)]", Some("{header.X-A}")),
        ("%[req.fhdr(x_a)]", Some("{header.x_a}")),
        ("%[hdr]", None),
        ("%[hdr()]", None),
        ("%[hdr(a,1)]", None),
        ("%[hdr(a.b)]", None),
        ("%[cook(c)]", Some("{cookie.c}")),
        ("%[req.cook(c)]", Some("{cookie.c}")),
        ("%[req.cook]", None),
        ("%[str(text)]", Some("text")),
        ("%[src(1)]", None),
    ] {
        assert_eq!(replace_variables(text).as_deref(), expected, "{text}");
    }
}

#[test]
fn lookups_in_files_become_maps() {
    let lookup = |key: &str, ignore_case: bool, kind: &'static str, default: Option<&str>| Lookup {
        key: key.to_owned(),
        ignore_case,
        file: "/m".to_owned(),
        entries: Vec::new(),
        kind,
        default: default.map(str::to_owned),
    };
    for (text, expected) in [
        (
            "%[path,map(/m)]",
            Some(lookup("{path}", false, "exact", None)),
        ),
        (
            "%[path,map_str(/m,d)]",
            Some(lookup("{path}", false, "exact", Some("d"))),
        ),
        (
            "%[path,map_beg(/m)]",
            Some(lookup("{path}", false, "prefix", None)),
        ),
        (
            "%[src,map_ip(/m)]",
            Some(lookup("{client}", false, "network", None)),
        ),
        (
            "%[path,map_reg(/m)]",
            Some(lookup("{path}", false, "regex", None)),
        ),
        (
            "%[hdr(host),lower,map(/m)]",
            Some(lookup("{host}", true, "exact", None)),
        ),
        (
            "%[hdr(host),field(1,:),lower,map(/m)]",
            Some(lookup("{host}", true, "exact", None)),
        ),
        (
            "%[hdr(host),lower,field(1,:),map(/m)]",
            Some(lookup("{host}", true, "exact", None)),
        ),
        (
            "%[base,map(/m)]",
            Some(lookup("{host}{path}", false, "exact", None)),
        ),
        ("%[path,upper,map(/m)]", None),
        ("%[path,map_end(/m)]", None),
        ("%[path,map(relative)]", None),
        ("%[rand,map(/m)]", None),
        ("%[path]", None),
        ("x%[path,map(/m)]", None),
    ] {
        assert_eq!(parse_lookup(text), expected, "{text}");
    }
}

#[test]
fn computed_backend_name_has_an_entry_for_each_matching_backend() {
    let names: Vec<(String, String)> = [
        ("be_two_x", "pool-2"),
        ("be_one_x", "pool-1"),
        ("be__x", "pool-empty"),
        ("be_a b_x", "pool-space"),
        ("other", "other"),
    ]
    .map(|(name, pool)| (name.to_owned(), pool.to_owned()))
    .into();
    let parse = |text: &str| {
        let lookup = parse_computed_name(text, names.iter().map(|(name, pool)| (name, pool)))?;
        Some((
            lookup.key,
            lookup.ignore_case,
            lookup.entries.join(";"),
            lookup.kind,
        ))
    };
    let entries = "one pool-1;two pool-2".to_owned();
    for (text, ignore_case) in [
        ("be_%[hdr(x)]_x", false),
        ("be_%[hdr(x),lower]_x", true),
        ("be_%[hdr(x),field(1,:),lower]_x", true),
    ] {
        let expected = (
            "{header.x}".to_owned(),
            ignore_case,
            entries.clone(),
            "exact",
        );
        assert_eq!(parse(text), Some(expected), "{text}");
    }
    for text in [
        "be_one_x",
        "be_%[hdr(x)]_%[src]",
        "be_%[hdr(x),upper]_x",
        "be_%[rand]_x",
        "no_such_%[hdr(x)]",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
}

#[test]
fn use_backend_and_redirect_lines_are_parsed() {
    for (text, expected) in [
        ("use_backend a if b", Some(("a", "if b"))),
        ("use_backend a", Some(("a", ""))),
        ("use_backend %[hdr(x)] if b", None),
        ("use_backend a c if b", None),
        ("use_backend", None),
    ] {
        let line = line(text);
        let parsed = parse_use_backend(&line).map(|(name, condition)| (name, condition.join(" ")));
        let expected = expected.map(|(name, condition)| (name, condition.to_owned()));
        assert_eq!(parsed, expected, "{text}");
    }
    let line = line("redirect scheme https if b");
    let (action, condition) = parse_redirect_line(&line).expect("a valid redirect");
    let to = "https://{host}{path}".to_owned();
    assert_eq!(action, Action::Redirect { to, status: 302 });
    assert_eq!(condition, words("if b"));
}

#[test]
fn responses_are_parsed_with_their_body_and_fields() {
    for (text, expected) in [
        ("return", respond(200, "")),
        ("return status 204", respond(204, "")),
        (
            "return content-type text/plain string up",
            respond(200, "up"),
        ),
        (
            "return content-type text/plain;charset=x string up",
            respond(200, "up"),
        ),
        (
            "return content-type text/html string up",
            respond_with(200, "up", &["Content-Type: text/html"]),
        ),
        // Without a body, haproxy ignores the content type.
        ("return content-type text/html", respond(200, "")),
        (
            "return content-type text/plain lf-string %ci",
            respond(200, "{client}"),
        ),
        ("return hdr X-A b", respond_with(200, "", &["X-A: b"])),
        (
            "return hdr X-A %[src]",
            respond_with(200, "", &["X-A: {client}"]),
        ),
        (
            "deny deny_status 451 content-type text/plain string no hdr X-A b",
            respond_with(451, "no", &["X-A: b"]),
        ),
        ("deny content-type text/plain string no", respond(403, "no")),
        ("block hdr X-A b", respond_with(403, "", &["X-A: b"])),
        (
            "tarpit content-type text/plain string no hdr X-A b",
            respond_with(500, "no", &["X-A: b"]),
        ),
        (
            "tarpit deny_status 429 hdr X-A b",
            respond_with(429, "", &["X-A: b"]),
        ),
        // This option is haproxy's default.
        ("deny default-errorfiles", respond(403, "")),
        ("deny deny_status 429 default-errorfiles", respond(429, "")),
        ("tarpit default-errorfiles", respond(500, "")),
    ] {
        assert_eq!(parse(&format!("http-request {text}")), expected, "{text}");
    }
}

#[test]
fn responses_without_an_equivalent_are_rejected() {
    for (text, reason) in [
        ("status 600", "invalid response status"),
        ("string up", "haproxy requires a content-type for the text"),
        (
            "default-errorfiles",
            "a route's response has no option default-errorfiles",
        ),
        (
            "content-type a string {host}",
            "a name in braces is a variable in a route's `body`",
        ),
        (
            "content-type a lf-string {host}",
            "the text contains an unsupported variable or a name in braces",
        ),
        (
            "content-type a lf-string %[url]",
            "the text contains an unsupported variable or a name in braces",
        ),
        (
            "content-type a lf-string %[capture.req.uri]",
            "the text contains an unsupported variable or a name in braces",
        ),
        (
            "content-type a lf-string %[rand]",
            "the text contains an unsupported variable or a name in braces",
        ),
        (
            "hdr X-A {b}",
            "a field contains an unsupported variable or a name in braces",
        ),
        (
            "hdr X-A %[rand]",
            "a field contains an unsupported variable or a name in braces",
        ),
        (
            "content-type a file /x",
            "the file /x cannot be read here: there are no files",
        ),
    ] {
        let expected = Some(Err(reason.to_owned()));
        assert_eq!(
            parse(&format!("http-request return {text}")),
            expected,
            "{text}"
        );
    }
    for text in [
        "deny errorfile /x",
        "deny deny_status 429 errorfiles x",
        "block lf-file /x",
        "tarpit errorfile /x",
    ] {
        let result = parse(&format!("http-request {text}"));
        let is_reported = matches!(&result, Some(Err(error)) if error.starts_with("a route's response has no option"));
        assert!(is_reported, "{text}: {result:?}");
    }
}

#[test]
fn files_of_up_to_16_kib_are_copied() {
    let read = |file: &str| read_body(file, &FilesBySize);
    assert_eq!(read("3").as_deref(), Ok("xxx"));
    assert_eq!(read("16384").map(|text| text.len()), Ok(16_384));
    assert_eq!(
        read("16385"),
        Err("the file 16385 is larger than 16384 bytes; see a route's `files`".to_owned())
    );
    assert_eq!(read("{ }").as_deref(), Ok("{ }"));
    assert!(read("{host}").is_err_and(|reason| reason.contains("a name in braces")));
}
