use super::*;

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// Returns a condition with the values of one key; `-KEY` is a key of `not`.
fn key_condition(key: &'static str, values: &[&str]) -> Condition {
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

fn all_of(conditions: &[(&'static str, &[&str])]) -> Condition {
    let parts = conditions
        .iter()
        .map(|(key, values)| key_condition(key, values));
    parts.fold(Condition::default(), |all, part| {
        all.and(&part).expect("the conditions can be combined")
    })
}

#[test]
fn condition_on_sources_depends_only_on_the_client() {
    assert!(key_condition("source", &["10.0.0.0/8"]).depends_only_on_client());
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
        assert!(
            !key_condition(key, &["a"]).depends_only_on_client(),
            "{key}"
        );
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
        ("host", &["b"], &["~a"], false),
        ("path", &["/a"], &["/b"], true),
        ("path", &["/a"], &["/*"], false),
        ("method", &["GET", "HEAD"], &["POST"], true),
        ("method", &["GET", "HEAD"], &["POST", "HEAD"], false),
        ("header", &["X: a"], &["X: b"], false),
    ] {
        assert_eq!(
            key_condition(key, first).excludes(&key_condition(key, second)),
            expected,
            "{first:?} {second:?}"
        );
        assert!(
            !key_condition(key, first).excludes(&Condition::default()),
            "{first:?}"
        );
        assert!(
            !Condition::default().excludes(&key_condition(key, second)),
            "{second:?}"
        );
    }
    let get_a = all_of(&[("host", &["a"]), ("method", &["GET"])]);
    let get_b = all_of(&[("host", &["b"]), ("method", &["GET"])]);
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
        // The values of one list may be alternatives.
        ("cookie", &["a=1", "a=2"], &["a=1", "a=2"], None),
        ("cookie", &["b"], &["a=1", "a=2"], None),
        ("query", &["a=1"], &["a=2"], None),
        ("query", &["a"], &["b=1"], Some(&["a", "b=1"])),
        ("-host", &["a", "b"], &["b", "c"], Some(&["a", "b", "c"])),
    ] {
        let combined = key_condition(key, first).and(&key_condition(key, second));
        assert_eq!(
            combined,
            expected.map(|values| key_condition(key, values)),
            "{first:?} {second:?}"
        );
        for (condition, values) in [
            (key_condition(key, first).and(&Condition::default()), first),
            (
                Condition::default().and(&key_condition(key, second)),
                second,
            ),
        ] {
            assert_eq!(condition, Some(key_condition(key, values)), "{key}");
        }
    }
}

#[test]
fn second_path_becomes_an_expression() {
    let path = |path: &str| key_condition("path", &[path]);
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
        ..all_of(&[
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
        key_condition("-host", &["h"]),
        key_condition("-path", &["/p"]),
        key_condition("-path_regex", &["r"]),
        key_condition("-method", &["GET", "PUT"]),
        key_condition("-source", &["10.0.0.0/8"]),
        key_condition("-header", &["A: 1", "a: 2"]),
        key_condition("-header", &["B: 1"]),
        key_condition("-cookie", &["c=1"]),
        key_condition("-cookie", &["d=1"]),
        key_condition("-query", &["q=1"]),
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
            1 => vec![key_condition(key, values)],
            _ => values
                .iter()
                .map(|value| key_condition(key, &[value]))
                .collect(),
        };
        assert_eq!(key_condition(negated, values).negated(), expected, "{key}");
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
        ("{/}", false),
        ("{}x", false),
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

/// Returns the written tables as TOML, without empty lines.
fn rendered(write: impl Fn(&mut Writer)) -> String {
    let mut writer = Writer::default();
    write(&mut writer);
    let text = writer.document.render().text;
    text.lines()
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

fn written_route(condition: &Condition, action: &Action) -> String {
    rendered(|writer| writer.route("s", Position::FIRST, condition, action))
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
        assert_eq!(route(&key_condition(key, &["a"])), expected);
    }
    for (key, expected) in [
        ("host", "host = { file = \"/f\" }"),
        ("source", "source = [{ file = \"/f\" }]"),
        ("-source", "not = { source = [{ file = \"/f\" }] }"),
    ] {
        assert_eq!(route(&key_condition(key, &["file:/f"])), expected);
    }
}

/// Asserts that a route with the action has these keys, and that the action uses this pool.
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
        let text = rendered(|writer| {
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

#[test]
fn own_response_field_that_a_change_removes_is_not_written() {
    let action = Action::RespondWithFields {
        status: 200,
        body: String::new(),
        fields: strings(&["A: own"]),
    };
    let mut edits = Edits::default();
    edits.response.remove("A", Position::FIRST);
    let expected = "[[route]]\nservice = \"s\"\nstatus = 200\nremove_response_header = [\"A\"]";
    assert_eq!(
        edited_routes(&Condition::default(), &action, &edits).0,
        expected
    );
}

/// Returns the routes with these edits as TOML, and the notes.
fn edited_routes(condition: &Condition, action: &Action, edits: &Edits) -> (String, Vec<String>) {
    let mut notes = Notes::default();
    notes.add_file("f", "x\ny\nz\n");
    let mut writer = Writer::default();
    writer.route_with_edits("s", Position::FIRST, condition, action, edits, &mut notes);
    let text = writer.document.render().text;
    let lines = text.lines().filter(|line| !line.is_empty());
    (lines.collect::<Vec<_>>().join("\n"), notes.finish())
}

/// Returns edits with a request header field, `access_log`, another key, and these rewrites.
fn edits(rewrites: &[&str]) -> Edits {
    let mut edits = Edits::default();
    edits.request.set("A", "1", Position::FIRST);
    edits.keys = vec![
        Entry::implied("access_log", false),
        Entry::implied("retries", 1_u64),
    ];
    let rewrites = rewrites.iter().enumerate();
    edits.rewrites = rewrites
        .map(|(index, regex)| {
            (
                (*regex).to_owned(),
                "/x".to_owned(),
                Position::new(0, index + 2),
            )
        })
        .collect();
    edits
}

const EDITED_KEYS: &str = "set_header = [\"A: 1\"]\naccess_log = false\nretries = 1";

#[test]
fn each_rewrite_is_a_route_before_the_route() {
    let pool = Action::Pool("p".to_owned());
    let (text, notes) = edited_routes(
        &key_condition("host", &["h"]),
        &pool,
        &edits(&["^/a", "^/b"]),
    );
    let start = "[[route]]\nservice = \"s\"\nhost = \"h\"";
    let rewritten = |regex: &str| {
        format!(
            "{start}\npath_regex = \"{regex}\"\npool = \"p\"\nrewrite = \"/x\"\n{EDITED_KEYS}\n"
        )
    };
    let (first, second) = (rewritten("^/a"), rewritten("^/b"));
    assert_eq!(
        text,
        format!("{first}{second}{start}\npool = \"p\"\n{EDITED_KEYS}")
    );
    assert!(notes.is_empty());
    let (text, _) = edited_routes(&Condition::default(), &pool, &edits(&[]));
    let expected = format!("[[route]]\nservice = \"s\"\npool = \"p\"\n{EDITED_KEYS}");
    assert_eq!(text, expected);
}

#[test]
fn only_rewrite_of_a_route_with_an_expression_or_a_split_is_its_key() {
    let pool = Action::Pool("p".to_owned());
    let split = Action::Split {
        pools: vec![("p".to_owned(), 1), ("q".to_owned(), 2)],
        hashed_text: "{client}".to_owned(),
    };
    let note = |line: &str| {
        format!(
            "{line}: not imported for these requests: a route with its own regular expression or a split allows \
             only one rewrite"
        )
    };
    let split_keys = "split = [\"p:1\", \"q:2\"]\nsplit_by = \"{client}\"";
    for (condition, action, keys) in [
        (
            key_condition("path_regex", &["r"]),
            &pool,
            "path_regex = \"r\"\npool = \"p\"",
        ),
        (Condition::default(), &split, split_keys),
    ] {
        let start = format!("[[route]]\nservice = \"s\"\n{keys}\n");
        let (text, notes) = edited_routes(&condition, action, &edits(&["^/a"]));
        let rewrite = "rewrite = { regex = \"^/a\", to = \"/x\" }";
        assert_eq!(text, format!("{start}{rewrite}\n{EDITED_KEYS}"));
        assert!(notes.is_empty());
        let (text, notes) = edited_routes(&condition, action, &edits(&["^/a", "^/b"]));
        assert_eq!(text, format!("{start}{EDITED_KEYS}"));
        assert_eq!(notes, [note("line 2: y"), note("line 3: z")]);
    }
}

#[test]
fn route_that_closes_the_connection_has_only_the_log_key() {
    let (text, _) = edited_routes(&Condition::default(), &Action::Close, &edits(&["^/a"]));
    assert_eq!(
        text,
        "[[route]]\nservice = \"s\"\nclose = true\naccess_log = false"
    );
    let respond = Action::Respond {
        status: 204,
        body: String::new(),
    };
    let (text, _) = edited_routes(&Condition::default(), &respond, &edits(&["^/a"]));
    assert_eq!(
        text,
        format!("[[route]]\nservice = \"s\"\nstatus = 204\n{EDITED_KEYS}")
    );
}

#[test]
fn files_and_passwords_have_a_rejection_status() {
    let files = Action::Files(vec![Entry::implied("root", "/srv")], Position::FIRST);
    let pool = Action::Pool("p".to_owned());
    let with_password = Edits {
        keys: vec![Entry::implied("basic_auth", "users")],
        ..Edits::default()
    };
    for (action, changes, expected) in [
        (&files, Edits::default(), Some(404)),
        (&pool, Edits::default(), None),
        (&pool, edits(&[]), None),
        (&pool, with_password.clone(), Some(401)),
        (&files, with_password, Some(401)),
    ] {
        let mut writer = Writer::default();
        let mut notes = Notes::default();
        let condition = Condition::default();
        writer.route_with_edits(
            "s",
            Position::FIRST,
            &condition,
            action,
            &changes,
            &mut notes,
        );
        let table = &writer.document.tables[0];
        assert_eq!(table.rejection_status, expected, "{action:?} {changes:?}");
    }
    assert_keys(&files, "files = { root = \"/srv\" }", None);
}

/// Returns a pool as TOML. Each server has checks of the listed kinds; `dns` lists those of the servers from DNS.
fn written_pool(servers: &[&[&str]], dns: Option<&[&str]>) -> String {
    let probes = |kinds: &[&str]| -> Vec<Probe> {
        let kinds = kinds.iter();
        kinds
            .map(|kind| Probe::new(kind, Position::FIRST))
            .collect()
    };
    let servers = servers.iter().enumerate().map(|(index, kinds)| PoolServer {
        position: Position::FIRST,
        entries: vec![Entry::implied("address", format!("10.0.0.{index}"))],
        probes: probes(kinds),
    });
    let pool = Pool {
        position: Position::FIRST,
        name: "p".to_owned(),
        entries: vec![Entry::implied("scheduler", "wrr")],
        servers: servers.collect(),
        probes: dns.map(probes),
        lines: vec![Position::new(0, 3)],
    };
    let text = rendered(|writer| writer.write_pool(pool.clone()));
    text.replace("servers = [\n  ", "[")
        .replace(",\n]", "]")
        .replace(",\n  ", ", ")
}

#[test]
fn checks_that_all_servers_share_become_checks_of_the_pool() {
    let start = "[pool.p]\nscheduler = \"wrr\"\n";
    let check = |kind: &str| format!("[pool.p.check]\nkind = \"{kind}\"");
    let element = |kind: &str| format!("[[pool.p.check]]\nkind = \"{kind}\"");
    let named = |kind: &str| format!("[check.p-{kind}]\nkind = \"{kind}\"\n");
    let (zero, one) = ("{ address = \"10.0.0.0\" }", "{ address = \"10.0.0.1\" }");
    for (servers, expected) in [
        (&[][..], format!("{start}servers = []")),
        (&[&[][..]], format!("{start}[{zero}]")),
        (
            &[&["tcp"][..], &["tcp"]],
            format!("{start}[{zero}, {one}]\n{}", check("tcp")),
        ),
        (
            &[&["tcp", "http"]],
            format!("{start}[{zero}]\n{}\n{}", element("tcp"), element("http")),
        ),
        (
            &[&["tcp"], &["http"]],
            format!(
                "{}{}{start}[{{ address = \"10.0.0.0\", check = [\"p-tcp\"] }}, \
                 {{ address = \"10.0.0.1\", check = [\"p-http\"] }}]",
                named("tcp"),
                named("http")
            ),
        ),
        (
            &[&["tcp"], &[]],
            format!(
                "{}{start}[{{ address = \"10.0.0.0\", check = [\"p-tcp\"] }}, {one}]",
                named("tcp")
            ),
        ),
    ] {
        assert_eq!(written_pool(servers, None), expected, "{servers:?}");
    }
}

#[test]
fn checks_of_servers_from_dns_become_checks_of_the_pool() {
    let start = "[pool.p]\nscheduler = \"wrr\"\n";
    let check = "[pool.p.check]\nkind = \"tcp\"";
    let named = |kind: &str| format!("[check.p-{kind}]\nkind = \"{kind}\"\n");
    let zero = "{ address = \"10.0.0.0\" }";
    for (servers, dns, expected) in [
        (
            &[][..],
            &["tcp"][..],
            format!("{start}servers = []\n{}", check),
        ),
        (
            &[&["tcp"][..]],
            &["tcp"],
            format!("{start}[{zero}]\n{}", check),
        ),
        (
            &[&["http"]],
            &["tcp"],
            format!(
                "{}{start}[{{ address = \"10.0.0.0\", check = [\"p-http\"] }}]\n{}",
                named("http"),
                check
            ),
        ),
        // The check of the servers from DNS is not for the other servers.
        (
            &[&[]],
            &["tcp"],
            format!(
                "{start}[{{ address = \"10.0.0.0\", check = [] }}]\n{}",
                check
            ),
        ),
        (&[&[]], &[], format!("{start}[{zero}]")),
        (
            &[&["tcp"]],
            &[],
            format!(
                "{}{start}[{{ address = \"10.0.0.0\", check = [\"p-tcp\"] }}]",
                named("tcp")
            ),
        ),
    ] {
        assert_eq!(
            written_pool(servers, Some(dns)),
            expected,
            "{servers:?} {dns:?}"
        );
    }
}

#[test]
fn pool_without_servers_is_written_once() {
    let mut names = Vec::new();
    let text = rendered(|writer| {
        writer.pool_without_servers(Position::FIRST);
        writer.pool_without_servers(Position::new(0, 2));
    });
    assert_eq!(text, "[pool.no-servers]\nservers = []");
    let mut writer = Writer::default();
    writer.names.claim("no-servers");
    for _ in 0..2 {
        names.push(writer.pool_without_servers(Position::FIRST));
    }
    assert_eq!(names, ["no-servers-2", "no-servers-2"]);
}
