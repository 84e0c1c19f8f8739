use super::*;

fn line_at(number: usize, text: &str) -> Line {
    Line {
        position: Position::new(0, number),
        words: text.split_whitespace().map(str::to_owned).collect(),
        uses_capture: false,
        follows_source_change: false,
    }
}

fn line(text: &str) -> Line {
    line_at(1, text)
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn change(text: &str, condition: Option<usize>) -> Change {
    let line = line(text);
    Change {
        action: line.arguments().to_vec(),
        line,
        condition,
        keys: Vec::new(),
    }
}

fn edits_of(text: &str) -> Result<Edits, &'static str> {
    let line = line(text);
    let mut edits = Edits::default();
    apply_rule(&line, line.arguments(), &mut edits)?;
    Ok(edits)
}

#[test]
fn constants_and_groups_are_converted_unless_they_contain_variables() {
    assert_eq!(constant("50%% off").as_deref(), Some("50% off"));
    assert_eq!(constant("%[src]"), None);
    assert_eq!(constant("%ci"), None);
    assert_eq!(constant("{a}"), None);
    assert_eq!(convert_groups(r"/v2/\1").as_deref(), Some("/v2/{1}"));
    assert_eq!(convert_groups(r"/\0"), None);
    assert_eq!(convert_groups(r"/%[src]"), None);
    assert_eq!(convert_groups(r"/{1}"), None);
    assert_eq!(convert_groups("/a{"), None);
}

#[test]
fn supported_values_are_converted() {
    for (value, expected) in [
        ("a b", Some("a b")),
        ("%[src]", Some("{client}")),
        ("%[path]", Some("{path}")),
        ("%[str(map-of-weir-hosts)]", Some("{map.hosts}")),
        ("%[url]", None),
        ("%[pathq]", None),
        ("%[capture.req.uri]", None),
        ("{client}", None),
        ("%[rand]", None),
    ] {
        assert_eq!(convert_value(value).as_deref(), expected, "{value}");
    }
}

#[test]
fn new_path_is_fixed_prefixed_or_without_a_prefix() {
    for (text, expected) in [
        ("/fixed", Some(("^/.*$", "/fixed"))),
        ("/50%%", Some(("^/.*$", "/50%"))),
        ("/v1%[path]", Some(("^/(.*)$", "/v1/{1}"))),
        ("%[src]%[path]", None),
        ("%[path,regsub(^/api/,/)]", Some(("^/api/(.*)$", "/{1}"))),
        (
            "%[path,regsub('^/api','/v2')]",
            Some(("^/api(.*)$", "/v2{1}")),
        ),
        ("%[path,regsub(/api/,/)]", None),
        ("%[path,regsub(^/(a|b)/,/)]", None),
        ("%[path,regsub(^/api$,/)]", None),
        ("%[path,regsub(^/api/,/,g)]", None),
        ("%[path,regsub(^/api/,x)]", None),
        ("%[path,regsub(^/api/)]", None),
        ("fixed", None),
        ("/%[src]", None),
    ] {
        let expected = expected.map(|(regex, path)| (regex.to_owned(), path.to_owned()));
        assert_eq!(new_path(text), expected, "{text}");
    }
}

#[test]
fn uri_replacement_keeps_the_query_only_if_it_ends_with_the_last_group() {
    for (regex, to, expected) in [
        ("^/a/(.*)", r"/b/\1", true),
        ("^/a/(.*)$", r"/b/\1", true),
        ("^/([^/]*)/(.*)", r"/\1/x/\2", true),
        ("^/([^/]*)/(.*)", r"/\2/\1", false),
        ("^/a/(.*)", "/b", false),
        ("^/a/(.*)", r"/\1/\1", false),
        (r"^/a/(.*)\?x(.*)", r"/\2", false),
        ("^/a/(.+)", r"/b/\1", false),
    ] {
        assert_eq!(keeps_query(regex, to), expected, "{regex} {to}");
    }
}

#[test]
fn destination_port_is_replaced_if_all_listeners_have_the_same_port() {
    let action = strings(&["set-header", "X-Port", "%[dst_port]/%fp"]);
    let replaced = |listen: &[&str]| replace_port(&action, &strings(listen)).join(" ");
    assert_eq!(
        replaced(&["192.0.2.1:80", "[::]:80"]),
        "set-header X-Port 80/80"
    );
    for listen in [
        &["192.0.2.1:80", "192.0.2.1:81"][..],
        &["192.0.2.1:$PORT"],
        &[],
    ] {
        assert_eq!(replaced(listen), action.join(" "), "{listen:?}");
    }
}

#[test]
fn x_forwarded_port_of_requests_becomes_a_key() {
    for (text, expected) in [
        ("http-request set-header X-Forwarded-Port %[dst_port]", true),
        ("http-request set-header x-forwarded-port %fp", true),
        ("http-response set-header X-Forwarded-Port %fp", false),
        ("http-request add-header X-Forwarded-Port %fp", false),
        ("http-request set-header X-Port %fp", false),
        ("http-request set-header X-Forwarded-Port 80", false),
        ("http-request del-header X-Forwarded-Port", false),
    ] {
        let line = line(text);
        let keys = forwarded_port(&line, line.arguments());
        let fields = vec![Entry::new("port", "set", line.position).essential()];
        let key = Entry::new("x_forwarded", fields, line.position);
        assert_eq!(
            keys,
            if expected { vec![key] } else { Vec::new() },
            "{text}"
        );
    }
}

#[test]
fn set_timeout_rules_become_timeout_keys() {
    for (text, expected) in [
        ("http-request set-timeout server 5m", Some(("server", "5m"))),
        (
            "http-request set-timeout client 10s",
            Some(("client", "10s")),
        ),
        ("http-request set-timeout tunnel 1h", Some(("tunnel", "1h"))),
        ("http-request set-timeout connect 1h", None),
        ("http-request set-timeout server x", None),
        ("http-request set-header server 5m", None),
        ("http-response set-timeout server 5m", None),
        ("http-request set-timeout server", None),
    ] {
        let line = line(text);
        let expected = expected.map(|(key, time)| {
            let timeouts = vec![Entry::new(key, time, line.position)];
            Entry::new("timeouts", timeouts, line.position)
        });
        assert_eq!(timeout_key(&line, line.arguments()), expected, "{text}");
    }
}

#[test]
fn change_affects_later_routes_that_match_the_field_or_path() {
    let with = |change: fn(&mut Condition)| {
        let mut condition = Condition::default();
        change(&mut condition);
        condition
    };
    let header = with(|it| it.headers = vec!["X-A: b".to_owned()]);
    let host = with(|it| it.host = Some("a".to_owned()));
    let path = with(|it| it.path = Some("/a".to_owned()));
    let regex = with(|it| it.regex = Some("^/a".to_owned()));
    for (text, condition, expected) in [
        ("http-request set-header x-a c", &header, true),
        ("http-request del-header X-B", &header, false),
        ("http-request set-header Host c", &host, true),
        ("http-request set-header X-A c", &host, false),
        ("http-request set-header Host c", &path, false),
        ("http-request set-path /b", &path, true),
        ("http-request replace-path a b", &regex, true),
        ("http-request replace-uri a b", &path, true),
        ("http-request set-path /b", &host, false),
        ("http-response set-header X-A c", &header, false),
    ] {
        for (action, route_line, line_number, is_evaluated_later) in [
            (Action::Close, 5, 4, true),
            (Action::Close, 5, 5, true),
            (Action::Close, 5, 6, false),
            // haproxy selects the backend last.
            (Action::Pool("a".to_owned()), 5, 6, true),
        ] {
            let route = (Position::new(0, route_line), condition.clone(), action);
            let is_affected = is_affected_by(&route, &line_at(line_number, text));
            assert_eq!(
                is_affected,
                expected && is_evaluated_later,
                "{text} {route:?}"
            );
        }
    }
}

#[test]
fn supported_rules_that_change_requests_or_responses_are_edits() {
    for (text, expected) in [
        ("http-request set-header a b", true),
        ("http-request set-path /b", true),
        ("http-request set-timeout server 1s", true),
        ("http-request set-status 200", false),
        ("http-request deny", false),
        ("http-response set-header a b", true),
        ("http-response add-header a b", true),
        ("http-response del-header a", true),
        ("http-response set-status 200", true),
        ("http-response replace-header a b c", true),
        ("http-response set-path /b", false),
        ("http-after-response set-header a b", true),
        ("http-after-response replace-header a b c", false),
        ("tcp-request set-header a b", false),
    ] {
        assert_eq!(is_edit(&line(text)), expected, "{text}");
    }
}

#[test]
fn rules_become_edits_of_requests_or_responses() {
    let position = Position::new(0, 1);
    let expect = |fill: &dyn Fn(&mut Edits)| {
        let mut edits = Edits::default();
        fill(&mut edits);
        Ok(edits)
    };
    for (text, expected) in [
        (
            "http-request set-header X-A %[src]",
            expect(&|it| it.request.set("X-A", "{client}", position)),
        ),
        (
            "http-response set-header X-A b",
            expect(&|it| it.response.set("X-A", "b", position)),
        ),
        (
            "http-after-response add-header X-A b",
            expect(&|it| it.response.add("X-A", "b", position)),
        ),
        (
            "http-request add-header X-A b",
            expect(&|it| it.request.add("X-A", "b", position)),
        ),
        (
            "http-request del-header X-A",
            expect(&|it| it.request.remove("X-A", position)),
        ),
        (
            "http-response set-status 404",
            expect(&|it| it.replace_keys(&[Entry::new("response_status", 404_u64, position)])),
        ),
        (
            r"http-response replace-header X-A (.*) b\1",
            expect(&|it| {
                it.replacements.push(Replacement {
                    name: "X-A".to_owned(),
                    regex: "(.*)".to_owned(),
                    to: "b{1}".to_owned(),
                    position,
                });
            }),
        ),
        (
            "http-request replace-path ^/a /b",
            expect(&|it| {
                it.rewrites
                    .push(("^/a".to_owned(), "/b".to_owned(), position));
            }),
        ),
        (
            r"http-request replace-uri ^/a/(.*) /b/\1",
            expect(&|it| {
                it.rewrites
                    .push(("^/a/(.*)".to_owned(), "/b/{1}".to_owned(), position));
            }),
        ),
        (
            "http-request set-path /b",
            expect(&|it| {
                it.rewrites
                    .push(("^/.*$".to_owned(), "/b".to_owned(), position));
            }),
        ),
    ] {
        assert_eq!(edits_of(text), expected, "{text}");
    }
}

#[test]
fn rules_without_an_equivalent_and_second_rewrites_are_rejected() {
    for (text, reason) in [
        ("http-request set-header X-A %[rand]", UNSUPPORTED_VALUE),
        ("http-request add-header X-A {client}", UNSUPPORTED_VALUE),
        (
            "http-response set-status 204",
            "responses with this status have no content",
        ),
        (
            "http-response replace-header a (.*) %[src]",
            "the new value depends on more than the old one",
        ),
        (
            "http-response replace-header a (?=b) c",
            "Weir does not support the regular expression",
        ),
        (
            "http-request replace-path a %[src]",
            "the new path depends on more than the old path",
        ),
        (
            "http-request replace-path a b",
            "the new path does not begin with a slash",
        ),
        (
            "http-request set-path %[src]",
            "the new path depends on more than the old path",
        ),
        (
            "http-after-response set-header Location /a",
            "Weir sets this field in its own responses",
        ),
        (
            "http-request replace-uri ^/a/ /b",
            "a route has no equivalent",
        ),
        (
            "http-request del-header X-A -m beg",
            "a route has no equivalent",
        ),
        ("http-request set-header X-A", "a route has no equivalent"),
    ] {
        assert_eq!(edits_of(text), Err(reason), "{text}");
    }
    for second in [
        "http-request set-path /c",
        "http-request replace-path ^/a /c",
    ] {
        let mut edits = edits_of("http-request set-path /b").expect("a supported rule");
        let second = line(second);
        assert_eq!(
            apply_rule(&second, second.arguments(), &mut edits),
            Err("a route rewrites the path only once")
        );
    }
}

#[test]
fn changes_apply_to_requests_that_meet_their_condition() {
    let path = |path: &str| Condition {
        path: Some(path.to_owned()),
        ..Condition::default()
    };
    let mut changes = Changes::default();
    assert!(changes.is_empty());
    let first = changes.condition(vec![path("/a")]);
    let second = changes.condition(vec![path("/b")]);
    assert_eq!((first, second), (0, 1));
    assert_eq!(changes.condition(vec![path("/a")]), first);
    for (text, condition) in [
        ("http-request set-header X-A a", Some(first)),
        ("http-request set-header X-B b", Some(second)),
        ("http-request set-header X-C c", None),
        ("http-after-response set-header X-D d", Some(second)),
    ] {
        assert_eq!(changes.add(change(text, condition)), Ok(()), "{text}");
    }
    assert_eq!(
        changes.add(change("http-request set-header X-A %[rand]", None)),
        Err(UNSUPPORTED_VALUE)
    );
    assert!(!changes.is_empty());
    let request_fields = |applied: &[bool]| {
        let edits = changes.edits(applied);
        assert_eq!(edits.response, Edits::default().response);
        ["X-A", "X-B", "X-C"].map(|name| edits.request.is_set(name))
    };
    assert_eq!(request_fields(&[true, false]), [true, false, true]);
    assert_eq!(request_fields(&[false, true]), [false, true, true]);
    assert_eq!(request_fields(&[]), [false, false, true]);
    assert!(changes.last_edits(&[false, true]).response.is_set("X-D"));
    assert!(!changes.last_edits(&[true, false]).response.is_set("X-D"));
}

#[test]
fn generated_responses_get_changes_of_later_and_authentication_rules() {
    let mut changes = Changes::default();
    changes.add_keys(vec![Entry::implied("retry_on", "500")]);
    assert!(!changes.is_empty());
    let position = Position::new(0, 1);
    let authentication = Change {
        keys: vec![Entry::implied("basic_auth", Vec::<Entry>::new())],
        ..change("http-request auth", None)
    };
    for rule in [
        change("http-request set-header X-A a", None),
        change("http-after-response set-header X-B b", None),
        authentication,
    ] {
        assert_eq!(changes.add(rule), Ok(()));
    }
    let actions = |precedes: bool| {
        let applicable = changes.for_response(|it| {
            assert_eq!(it, position);
            precedes
        });
        assert!(applicable.options.is_empty());
        applicable
            .rules
            .iter()
            .map(|it| it.line.words[1].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(actions(false), ["set-header"]);
    assert_eq!(actions(true), ["set-header", "auth"]);
}

fn with(change: impl FnOnce(&mut Condition)) -> Condition {
    let mut condition = Condition::default();
    change(&mut condition);
    condition
}

fn header(name: &str) -> Condition {
    with(|it| it.headers = vec![name.to_owned()])
}

fn path(path: &str) -> Condition {
    with(|it| it.path = Some(path.to_owned()))
}

fn source(network: &str) -> Condition {
    with(|it| it.sources = vec![network.to_owned()])
}

/// Returns changes that set the fields X-1, X-2 and so on, on lines 1, 2 and so on, each under a condition with the
/// listed alternatives.
fn changes_with(conditions: &[&[Condition]]) -> Changes {
    let mut changes = Changes::default();
    for (index, alternatives) in conditions.iter().enumerate() {
        let condition = changes.condition(alternatives.to_vec());
        let number = index + 1;
        let text = format!("http-request set-header X-{number} a");
        let rule = Change {
            line: line_at(number, &text),
            ..change(&text, Some(condition))
        };
        assert_eq!(changes.add(rule), Ok(()));
    }
    changes
}

/// Returns each route as `CONDITION: FIELDS`, and the numbers of the lines with a note.
fn routes(
    condition: &Condition,
    frontend: &Changes,
    backend: &Changes,
) -> (Vec<String>, Vec<usize>) {
    let mut notes = Notes::default();
    notes.add_file("haproxy.cfg", &"\n".repeat(20));
    let route_variants = variants(condition, frontend, backend, &mut notes);
    let routes = route_variants.into_iter().map(|(condition, edits)| {
        let names = (1..10).map(|number| format!("X-{number}"));
        let names: Vec<String> = names.filter(|name| edits.request.is_set(name)).collect();
        let condition = Conversion::AnyOf(vec![condition]).describe();
        format!("{condition}: {}", names.join(" "))
    });
    let routes = routes.collect();
    let lines = notes.losses_by_line().into_iter().map(|(position, note)| {
        let reason =
            "not imported for some requests: a route cannot combine its condition with others";
        assert!(note.ends_with(reason), "{note}");
        position.line()
    });
    (routes, lines.collect())
}

#[test]
fn conditions_of_changes_split_a_route() {
    let every = Condition::default();
    let none = Changes::default();
    for (condition, conditions, expected, lines) in [
        (&every, &[][..], &[": "][..], &[][..]),
        (
            &every,
            &[&[header("a")][..]],
            &["headers a: X-1", ": "],
            &[],
        ),
        (
            &path("/x"),
            &[&[header("a")], &[header("b")]],
            &[
                "path /x; headers a, b: X-1 X-2",
                "path /x; headers a: X-1",
                "path /x; headers b: X-2",
                "path /x: ",
            ],
            &[],
        ),
        (
            &every,
            &[&[path("/a"), path("/b")]],
            &["path /a: X-1", "path /b: X-1", ": "],
            &[],
        ),
        // The route's condition implies that of the change.
        (
            &path("/a"),
            &[&[path("/a"), path("/b")]],
            &["path /a: X-1"],
            &[],
        ),
        (&path("/a"), &[&[path("/b")]], &["path /a: "], &[]),
        // A route cannot require a client to be in two networks.
        (
            &source("10.0.0.0/8"),
            &[&[header("a")], &[source("10.0.0.1")]],
            &["headers a; sources 10.0.0.0/8: X-1", "sources 10.0.0.0/8: "],
            &[2],
        ),
        (
            &source("10.0.0.1"),
            &[&[source("10.0.0.1"), source("10.0.0.2")]],
            &["sources 10.0.0.1: X-1"],
            &[1],
        ),
    ] {
        let changes = changes_with(conditions);
        let expected: Vec<String> = expected.iter().map(|it| (*it).to_owned()).collect();
        let actual = routes(condition, &changes, &none);
        assert_eq!(actual, (expected.clone(), lines.to_vec()), "{conditions:?}");
        assert_eq!(routes(condition, &none, &changes), actual, "{conditions:?}");
        // Without its rules, a condition has no effect.
        let without_rules = Changes {
            rules: Vec::new(),
            ..changes
        };
        assert_eq!(routes(condition, &without_rules, &none).0.len(), 1);
    }
}

#[test]
fn route_is_split_by_the_changes_of_frontend_and_backend() {
    let frontend = changes_with(&[&[header("a")]]);
    let mut backend = changes_with(&[&[header("a")], &[header("b")]]);
    backend.rules.remove(0);
    let (actual, lines) = routes(&Condition::default(), &frontend, &backend);
    assert_eq!(
        actual,
        [
            "headers a, b: X-1 X-2",
            "headers a: X-1",
            "headers b: X-2",
            ": "
        ]
    );
    assert_eq!(lines, [0; 0]);
}

#[test]
fn route_is_split_into_a_limited_number_of_routes() {
    let names: Vec<Condition> = ["a", "b", "c", "d", "e", "f", "g", "h"].map(header).into();
    let conditions: Vec<&[Condition]> = names.iter().map(std::slice::from_ref).collect();
    for (count, expected, lines) in [(6, 64, &[][..]), (7, 128, &[]), (8, 128, &[8])] {
        let changes = changes_with(&conditions[..count]);
        let (actual, noted_lines) = routes(&Condition::default(), &changes, &Changes::default());
        assert_eq!(
            (actual.len(), &noted_lines[..]),
            (expected, lines),
            "{count}"
        );
    }
}

#[test]
fn variables_with_a_constant_value_are_replaced() {
    let action = strings(&["set-header", "X-A", "%[ssl_fc]/%[ssl_fc_protocol]/%[src]"]);
    let uuid = strings(&["set-header", "X-A", "%[uuid()]"]);
    let replaced = |action: &[String], tls: bool| {
        let mut notes = Notes::default();
        notes.add_file("haproxy.cfg", "rule");
        let context = FrontendContext {
            tls,
            ..FrontendContext::default()
        };
        let words = replace_constants(action, &line("rule"), context, &mut notes);
        assert_eq!(notes.losses(), [""; 0]);
        (words.join(" "), notes.finish())
    };
    assert_eq!(
        replaced(&action, true),
        (
            "set-header X-A 1/TLSv%[ssl_fc_protocol]/%[src]".to_owned(),
            Vec::new()
        )
    );
    assert_eq!(
        replaced(&action, false),
        ("set-header X-A 0//%[src]".to_owned(), Vec::new())
    );
    let remark = "line 1: rule: Weir's identifiers have 32 hexadecimal digits without dashes; access logs contain \
                  `{request_id}`";
    assert_eq!(
        replaced(&uuid, true),
        (
            "set-header X-A %[uuid()]".to_owned(),
            vec![remark.to_owned()]
        )
    );
}
