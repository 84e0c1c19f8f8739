use super::*;

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// Returns the condition with the values of one key; `-KEY` is a key of `not`.
fn one(key: &'static str, values: &[&str]) -> Condition {
    let mut condition = Condition::default();
    let first = || values.first().map(|value| (*value).to_owned());
    match key {
        "host" => condition.host = first(),
        "path" => condition.path = first(),
        "path_regex" => condition.regex = first(),
        "method" => condition.methods = strings(values),
        "header" => condition.headers = strings(values),
        "cookie" => condition.cookies = strings(values),
        "query" => condition.queries = strings(values),
        "source" => condition.sources = strings(values),
        other => {
            let key = other.strip_prefix('-').expect("a key of `not`");
            condition.not.insert(key, strings(values));
        }
    }
    condition
}

fn both(conditions: &[(&'static str, &[&str])]) -> Condition {
    let parts = conditions.iter().map(|(key, values)| one(key, values));
    parts.fold(Condition::default(), |all, part| {
        all.and(&part).expect("they can be combined")
    })
}

#[test]
fn condition_on_sources_depends_only_on_the_client() {
    assert!(one("source", &["10.0.0.0/8"]).depends_only_on_client());
    assert!(Condition::default().depends_only_on_client());
    for key in [
        "host",
        "path",
        "path_regex",
        "method",
        "header",
        "cookie",
        "query",
        "-source",
    ] {
        assert!(!one(key, &["a"]).depends_only_on_client(), "{key}");
    }
}

#[test]
fn different_exact_values_exclude_each_other() {
    for (key, first, second, expected) in [
        ("host", &["a"][..], &["b"][..], true),
        ("host", &["a"], &["a"], false),
        ("host", &["*.a"], &["b.a"], false),
        ("host", &["b.a"], &["*.a"], false),
        ("host", &["~a"], &["b"], false),
        ("path", &["/a"], &["/b"], true),
        ("path", &["/a"], &["/*"], false),
        ("method", &["GET", "HEAD"], &["POST"], true),
        ("method", &["GET", "HEAD"], &["POST", "HEAD"], false),
        ("header", &["X: a"], &["X: b"], false),
    ] {
        assert_eq!(
            one(key, first).excludes(&one(key, second)),
            expected,
            "{first:?} {second:?}"
        );
        assert!(
            !one(key, first).excludes(&Condition::default()),
            "{first:?}"
        );
        assert!(
            !Condition::default().excludes(&one(key, second)),
            "{second:?}"
        );
    }
    let get_a = both(&[("host", &["a"]), ("method", &["GET"])]);
    let get_b = both(&[("host", &["b"]), ("method", &["GET"])]);
    assert!(get_a.excludes(&get_b));
}

#[test]
fn values_of_one_key_are_combined_if_one_route_can_require_both() {
    for (key, first, second, expected) in [
        ("host", &["a"][..], &["a"][..], Some(&["a"][..])),
        ("host", &["a"], &["b"], None),
        ("path", &["/a"], &["/a"], Some(&["/a"])),
        ("path_regex", &["a"], &["b"], None),
        ("method", &["GET", "PUT"], &["PUT", "POST"], Some(&["PUT"])),
        ("method", &["GET"], &["PUT"], None),
        // A route cannot require a client to be in two networks.
        (
            "source",
            &["10.0.0.0/8"],
            &["10.0.0.0/8"],
            Some(&["10.0.0.0/8"]),
        ),
        ("source", &["10.0.0.0/8"], &["10.1.0.0/16"], None),
        ("header", &["A: 1"], &["B: 1"], Some(&["A: 1", "B: 1"])),
        ("header", &["A: 1", "A: 2"], &["a: 3"], None),
        (
            "header",
            &["A: 1", "A: 2"],
            &["A: 1", "A: 2"],
            Some(&["A: 1", "A: 2"]),
        ),
        ("header", &["A: 1", "A: 2"], &["a"], Some(&["A: 1", "A: 2"])),
        ("header", &["a"], &["A: 1", "A: 2"], Some(&["A: 1", "A: 2"])),
        ("cookie", &["a=1"], &["b=1"], Some(&["a=1", "b=1"])),
        ("cookie", &["a=1"], &["a=2"], None),
        ("cookie", &["a=1"], &["a=1"], Some(&["a=1"])),
        ("cookie", &["a=1"], &["a"], Some(&["a=1"])),
        ("cookie", &["a"], &["a=1"], Some(&["a=1"])),
        ("query", &["a=1"], &["a=2"], None),
        ("query", &["a"], &["b=1"], Some(&["a", "b=1"])),
        ("-host", &["a", "b"], &["b", "c"], Some(&["a", "b", "c"])),
    ] {
        let combined = one(key, first).and(&one(key, second));
        assert_eq!(
            combined,
            expected.map(|it| one(key, it)),
            "{first:?} {second:?}"
        );
        for (condition, values) in [
            (one(key, first).and(&Condition::default()), first),
            (Condition::default().and(&one(key, second)), second),
        ] {
            assert_eq!(condition, Some(one(key, values)), "{key}");
        }
    }
}

#[test]
fn second_path_becomes_an_expression() {
    let path = |path: &str| one("path", &[path]);
    let expected = Condition {
        regex: Some("^/.*\\.php$".to_owned()),
        ..path("/a*")
    };
    assert_eq!(path("/a*").and(&path("/*.php")), Some(expected.clone()));
    // One route has only one path and one expression.
    assert_eq!(expected.and(&path("/b")), None);
    assert_eq!(path("/b").and(&expected), None);
}

#[test]
fn negation_has_an_alternative_for_each_key() {
    let condition = Condition {
        headers: strings(&["A: 1", "a: 2", "B: 1"]),
        ..both(&[
            ("host", &["h"]),
            ("path", &["/p"]),
            ("path_regex", &["r"]),
            ("method", &["GET", "PUT"]),
            ("source", &["10.0.0.0/8"]),
            ("cookie", &["c=1", "d=1"]),
            ("query", &["q=1"]),
        ])
    };
    let expected = [
        one("-host", &["h"]),
        one("-path", &["/p"]),
        one("-path_regex", &["r"]),
        one("-method", &["GET", "PUT"]),
        one("-source", &["10.0.0.0/8"]),
        one("-header", &["A: 1", "a: 2"]),
        one("-header", &["B: 1"]),
        one("-cookie", &["c=1"]),
        one("-cookie", &["d=1"]),
        one("-query", &["q=1"]),
    ];
    assert_eq!(condition.negated(), expected);
    for (key, negated, values, alternatives) in [
        ("host", "-host", &["a", "b"], 2),
        ("path", "-path", &["a", "b"], 2),
        ("path_regex", "-path_regex", &["a", "b"], 2),
        ("header", "-header", &["a", "b"], 2),
        ("cookie", "-cookie", &["a", "b"], 2),
        ("query", "-query", &["a", "b"], 2),
        ("method", "-method", &["a", "b"], 1),
        ("source", "-source", &["a", "b"], 1),
    ] {
        let expected: Vec<Condition> = match alternatives {
            1 => vec![one(key, values)],
            _ => values.iter().map(|value| one(key, &[value])).collect(),
        };
        assert_eq!(one(negated, values).negated(), expected, "{key}");
    }
}

#[test]
fn names_in_braces_are_variables() {
    for (text, expected) in [
        ("{host}", true),
        ("a {x_y.z-1} b", true),
        ("{ {host}", true),
        ("{}", false),
        ("{host", false),
        ("{a b}", false),
        ("a}", false),
    ] {
        assert_eq!(has_variable(text), expected, "{text}");
    }
}

#[test]
fn addresses_have_a_port_and_ipv6_has_brackets() {
    for (address, expected) in [("192.0.2.1", "192.0.2.1:80"), ("fd00::1", "[fd00::1]:80")] {
        assert_eq!(endpoint(address.parse().expect("an address"), 80), expected);
    }
}

#[test]
fn one_name_of_servers_is_a_value_and_several_are_a_list() {
    let name = |name: &str| Item::new(name, None);
    assert_eq!(servers_dns(Vec::new()), None);
    let one = servers_dns(vec![name("a")]).expect("there is a name");
    assert_eq!(
        (one.key, one.essential, one.item),
        ("servers_dns", true, name("a"))
    );
    let two = servers_dns(vec![name("a"), name("b")]).expect("there are names");
    assert_eq!(two.item.value, Value::List(vec![name("a"), name("b")]));
}

/// Returns the keys of the only route as TOML.
fn written(write: impl Fn(&mut Writer)) -> String {
    let mut writer = Writer::default();
    write(&mut writer);
    let text = writer.document.render().text;
    text.lines()
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

fn written_route(condition: &Condition, action: &Action) -> String {
    written(|writer| writer.route("s", Position::FIRST, condition, action))
}

#[test]
fn conditions_become_keys_of_the_route() {
    let route = |condition: &Condition| {
        let text = written_route(condition, &Action::Close);
        let keys = text
            .strip_prefix("[[route]]\nservice = \"s\"\n")
            .and_then(|keys| keys.strip_suffix("close = true"));
        keys.unwrap_or_else(|| panic!("{text}"))
            .trim_end()
            .to_owned()
    };
    assert_eq!(route(&Condition::default()), "");
    for (key, expected) in [
        ("host", "host = \"a\""),
        ("path", "path = \"a\""),
        ("path_regex", "path_regex = \"a\""),
        ("method", "method = [\"a\"]"),
        ("header", "header = [\"a\"]"),
        ("cookie", "cookie = [\"a\"]"),
        ("query", "query = [\"a\"]"),
        ("source", "source = [\"a\"]"),
        ("-host", "not = { host = [\"a\"] }"),
    ] {
        assert_eq!(route(&one(key, &["a"])), expected);
    }
    for (key, expected) in [
        ("host", "host = { file = \"/f\" }"),
        ("source", "source = [{ file = \"/f\" }]"),
        ("-source", "not = { source = [{ file = \"/f\" }] }"),
    ] {
        assert_eq!(route(&one(key, &["file:/f"])), expected);
    }
}

/// Asserts that a route with the action has these keys.
#[track_caller]
fn assert_keys(action: &Action, expected: &str, pool: Option<&str>) {
    let text = written_route(&Condition::default(), action);
    assert_eq!(text, format!("[[route]]\nservice = \"s\"\n{expected}"));
    assert_eq!(action.pool(), pool, "{action:?}");
}

#[test]
fn actions_with_a_pool_become_keys_of_the_route() {
    let text = |text: &str| text.to_owned();
    for (action, expected, pool) in [
        (Action::Pool(text("p")), "pool = \"p\"", Some("p")),
        (
            Action::PoolWithPath {
                pool: text("p"),
                path: text("/x"),
            },
            "pool = \"p\"\nrewrite = \"/x\"",
            Some("p"),
        ),
        (
            Action::PoolFromMap(text("m"), text("p")),
            "pool = { map = \"m\", default = \"p\" }",
            Some("p"),
        ),
        (
            Action::Split {
                pools: vec![(text("p"), 1), (text("q"), 2)],
                hashed_text: text("{client}"),
            },
            "split = [\"p:1\", \"q:2\"]\nsplit_by = \"{client}\"",
            Some("p"),
        ),
    ] {
        assert_keys(&action, expected, pool);
    }
}

#[test]
fn responses_become_keys_of_the_route() {
    let text = |text: &str| text.to_owned();
    for (action, expected) in [
        (
            Action::Redirect {
                to: text("/x"),
                status: 302,
            },
            "redirect = \"/x\"",
        ),
        (
            Action::Redirect {
                to: text("/x"),
                status: 301,
            },
            "redirect = \"/x\"\nstatus = 301",
        ),
        (
            Action::Respond {
                status: 200,
                body: String::new(),
            },
            "status = 200",
        ),
        (
            Action::Respond {
                status: 200,
                body: text("up"),
            },
            "status = 200\nbody = \"up\"",
        ),
        (
            Action::RespondWithFields {
                status: 200,
                body: String::new(),
                fields: vec![text("A: b")],
            },
            "status = 200\nset_response_header = [\"A: b\"]",
        ),
        (
            Action::RespondWithFields {
                status: 200,
                body: text("up"),
                fields: vec![text("A: b")],
            },
            "status = 200\nbody = \"up\"\nset_response_header = [\"A: b\"]",
        ),
        (
            Action::Restart {
                regex: text("^/a"),
                to: text("/b"),
                start: "first",
            },
            "rewrite = { regex = \"^/a\", to = \"/b\" }\nrestart = \"first\"",
        ),
        (Action::Close, "close = true"),
    ] {
        assert_keys(&action, expected, None);
    }
}

#[test]
fn own_response_fields_are_combined_with_changes() {
    let action = Action::RespondWithFields {
        status: 200,
        body: String::new(),
        fields: strings(&["A: own", "B: own"]),
    };
    for (change, expected) in [
        ("", "set_response_header = [\"A: own\", \"B: own\"]"),
        (
            "request",
            "set_response_header = [\"A: own\", \"B: own\"]\nset_header = [\"a: new\"]",
        ),
        ("set", "set_response_header = [\"B: own\", \"a: new\"]"),
        (
            "add",
            "set_response_header = [\"A: own\", \"B: own\"]\nadd_response_header = [\"a: new\"]",
        ),
        (
            "remove",
            "set_response_header = [\"B: own\"]\nremove_response_header = [\"a\"]",
        ),
    ] {
        let mut edits = Edits::default();
        match change {
            "request" => edits.request.set("a", "new", Position::FIRST),
            "set" => edits.response.set("a", "new", Position::FIRST),
            "add" => edits.response.add("a", "new", Position::FIRST),
            "remove" => edits.response.remove("a", Position::FIRST),
            _ => {}
        }
        let text = written(|writer| {
            let mut notes = Notes::default();
            let condition = Condition::default();
            writer.route_with_edits(
                "s",
                Position::FIRST,
                &condition,
                &action,
                &edits,
                &mut notes,
            );
        });
        assert_eq!(
            text,
            format!("[[route]]\nservice = \"s\"\nstatus = 200\n{expected}"),
            "{change}"
        );
    }
}
