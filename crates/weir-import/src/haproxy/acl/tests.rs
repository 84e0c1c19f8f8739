use super::*;

/// Returns a condition as text, with `;` between its keys.
fn describe_condition(condition: &Condition) -> String {
    let texts = [
        ("host", &condition.host),
        ("path", &condition.path),
        ("regex", &condition.regex),
    ];
    let lists = [
        ("methods", &condition.methods),
        ("headers", &condition.headers),
        ("cookies", &condition.cookies),
        ("queries", &condition.queries),
        ("sources", &condition.sources),
    ];
    let texts = texts.into_iter();
    let mut parts: Vec<String> = texts
        .filter_map(|(key, text)| Some(format!("{key} {}", text.as_ref()?)))
        .collect();
    let used = lists.iter().filter(|(_, values)| !values.is_empty());
    parts.extend(used.map(|(key, values)| format!("{key} {}", values.join(", "))));
    let not = condition.not.iter();
    parts.extend(not.map(|(key, values)| format!("not {key} {}", values.join(", "))));
    parts.join("; ")
}

impl Conversion {
    /// Returns the conversion as text, with `or` between alternatives.
    pub(in crate::haproxy) fn describe(&self) -> String {
        match self {
            Self::Always => "always".to_owned(),
            Self::Never => "never".to_owned(),
            Self::Unsupported(reason) => format!("unsupported: {reason}"),
            Self::AnyOf(conditions) => {
                let texts = conditions.iter().map(describe_condition);
                texts.collect::<Vec<_>>().join(" or ")
            }
        }
    }
}

fn convert(acls: &Acls, text: &str, tls: bool) -> Conversion {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    acls.condition(
        &words,
        FrontendContext {
            tls,
            ..FrontendContext::default()
        },
    )
}

#[test]
fn conditions_are_converted() {
    let acls = Acls::default();
    let parse = |text: &str| convert(&acls, text, false);
    assert_eq!(parse("if { ssl_fc }"), Conversion::Never);
    assert_eq!(parse("unless { ssl_fc }"), Conversion::Always);
    assert_eq!(parse("if !{ ssl_fc } TRUE"), Conversion::Always);
    let Conversion::AnyOf(found) = parse("if { path_beg /a /b } { hdr(host) -i X.example }") else {
        panic!("not supported");
    };
    assert_eq!(found.len(), 2);
    assert_eq!(found[1].path.as_deref(), Some("/b*"));
    assert_eq!(found[1].host.as_deref(), Some("x.example"));
    let Conversion::AnyOf(found) = parse("if { src 10.0.0.0/8 ::1 } { path_reg -i ^/a[0-9]+ }")
    else {
        panic!("not supported");
    };
    assert_eq!(found[0].sources, ["10.0.0.0/8", "::1"]);
    assert_eq!(found[0].regex.as_deref(), Some("(?i)^/a[0-9]+"));
    let Conversion::AnyOf(found) = parse("if { path_beg -i /a.b } { req.cook(beta) yes }") else {
        panic!("not supported");
    };
    assert_eq!(found[0].regex.as_deref(), Some("(?i)^/a\\.b"));
    assert_eq!(found[0].cookies, ["beta=yes"]);
    assert_eq!(parse("unless { path -m found }"), Conversion::Never);
    assert_eq!(parse("if { method }"), Conversion::Never);
    let Conversion::AnyOf(found) = parse("if { hdr(host) -m found }") else {
        panic!("not supported");
    };
    assert_eq!(found[0].headers, ["host"]);
    assert!(matches!(
        parse("unless { ssl_fc_sni -m found }"),
        Conversion::Unsupported(_)
    ));
    assert!(matches!(
        parse("if { src office.example }"),
        Conversion::Unsupported(_)
    ));
    assert!(matches!(parse("if { path /a"), Conversion::Unsupported(_)));
    let Conversion::AnyOf(found) = parse("if { path_beg /a } { path_end .b }") else {
        panic!("not supported");
    };
    assert_eq!(found[0].path.as_deref(), Some("/a*"));
    assert_eq!(found[0].regex.as_deref(), Some("^.*\\.b$"));
    assert_eq!(parse("if { path /a } { path /b }"), Conversion::Never);
}

#[test]
fn conditions_are_negated() {
    let acls = Acls::default();
    let parse = |text: &str| convert(&acls, text, false);
    let Conversion::AnyOf(found) = parse("if !{ path /a /b } { method GET }") else {
        panic!("not supported");
    };
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].not["path"], ["/a", "/b"]);
    let Conversion::AnyOf(found) = parse("unless { path /a } { method GET }") else {
        panic!("not supported");
    };
    assert_eq!(found.len(), 2);
    assert_eq!(found[1].not["method"], ["GET"]);
}

/// A rule that restricts access may apply to more requests than in haproxy, but never to fewer.
#[test]
fn broadened_condition_omits_unsupported_terms() {
    let acls = Acls::default();
    let words: Vec<String> = [
        "if",
        "{",
        "path",
        "/a",
        "}",
        "{",
        "src_conn_rate",
        "gt",
        "9",
        "}",
    ]
    .map(str::to_owned)
    .to_vec();
    let Conversion::AnyOf(found) = acls.broadened_condition(&words, FrontendContext::default())
    else {
        panic!("not supported");
    };
    assert_eq!(found[0].path.as_deref(), Some("/a"));
    assert_eq!(
        acls.broadened_condition(&words[5..], FrontendContext::default()),
        Conversion::Always
    );
}

/// An environment with one file of values.
struct OneFile;

impl Environment for OneFile {
    fn read(&self, path: &str) -> Result<String, String> {
        match path {
            "/values" => Ok("# comment\n/a\n\n  /b  \n #/c\n/d#\n".to_owned()),
            _ => Err("no such file".to_owned()),
        }
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn address(&self, _: &str, _: bool) -> Option<std::net::IpAddr> {
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

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns the lines of a file that begins with these lines.
fn lines(texts: &[&str]) -> Vec<Line> {
    let line = |(index, text): (usize, &&str)| Line {
        position: Position::new(0, index + 1),
        words: words(text),
        uses_capture: false,
        follows_source_change: false,
    };
    texts.iter().enumerate().map(line).collect()
}

/// Reads ACLs; also returns the notes.
fn read(texts: &[&str]) -> (Acls, Vec<String>) {
    let mut notes = Notes::default();
    notes.add_file("haproxy.cfg", &texts.join("\n"));
    let acls = Acls::read(&OneFile, &lines(texts), &mut notes);
    (acls, notes.finish())
}

#[test]
fn acl_lines_have_a_name_and_a_criterion() {
    let (acls, notes) = read(&[
        "acl a path /x",
        "acl",
        "acl b",
        "bind a :80",
        "acl a path /y",
        "acl one TRUE",
    ]);
    let reason = "not imported: haproxy requires a name and a criterion";
    assert_eq!(
        notes,
        [
            format!("line 2: acl: {reason}"),
            format!("line 3: acl b: {reason}")
        ]
    );
    let line = |number: usize| Position::new(0, number);
    for (text, expected) in [
        ("if a", &[line(1), line(5)][..]),
        ("unless !one", &[line(6)]),
        ("if b", &[]),
        ("if one a", &[line(6), line(1), line(5)]),
        ("", &[]),
    ] {
        assert_eq!(acls.positions_of(&words(text)), expected, "{text}");
    }
    let mut all: Vec<Position> = acls.all_positions().collect();
    all.sort();
    assert_eq!(all, [line(1), line(5), line(6)]);
    assert_eq!(
        acls.all_words(&words("if a")).join(" "),
        "if a path /x path /y"
    );
    assert_eq!(
        acls.all_words(&words("if !one x")).join(" "),
        "if !one x TRUE"
    );
    // An ACL with several lines has no single criterion.
    assert_eq!(acls.single_criterion("a"), None);
    assert_eq!(acls.single_criterion("b"), None);
    assert_eq!(acls.single_criterion("one"), Some(&words("TRUE")[..]));
}

#[test]
fn values_are_read_from_files() {
    for (text, expected) in [
        ("path -f /values", "path /a /b /d#"),
        ("path -i -f /values /e", "path -i /a /b /d# /e"),
        ("path -f /missing /e", "path -f /missing /e"),
        ("path -f", "path -f"),
        ("path /values", "path /values"),
    ] {
        assert_eq!(
            expand_files(&OneFile, &words(text)).join(" "),
            expected,
            "{text}"
        );
    }
    let (acls, _) = read(&["acl a path -f /values"]);
    let found = acls.condition(&words("if a"), FrontendContext::default());
    assert_eq!(found.describe(), "path /a or path /b or path /d#");
}

/// Conditions and their conversions.
const CONDITIONS: &[(&str, &str)] = &[
    ("", "always"),
    ("if a", "path /x or path /y"),
    ("if { path /a }", "path /a"),
    ("if !{ path /a }", "not path /a"),
    ("if ! { path /a }", "not path /a"),
    ("if !!{ path /a }", "path /a"),
    ("if ! !{ path /a }", "path /a"),
    ("if ! ! ! a", "not path /x, /y"),
    ("if { path /a } or { method PUT }", "path /a or methods PUT"),
    ("if { path /a } || { method PUT }", "path /a or methods PUT"),
    ("if { path /a } || TRUE", "always"),
    ("if { rand(9) } || TRUE", "always"),
    ("if FALSE || { path /a }", "path /a"),
    ("if FALSE || FALSE", "never"),
    ("if { rand(9) } FALSE", "never"),
    ("if { path /a } TRUE", "path /a"),
    ("if mixed", "always"),
    ("if never", "never"),
    ("if rarely", "path /x"),
    ("unless never", "always"),
    ("unless a", "not path /x, /y"),
    ("if { path /a } { path /b }", "never"),
    ("if { path /a /b } { path /b /c }", "path /b"),
    ("if random", "unsupported: routes cannot match rand(9)"),
    (
        "unless { rand(9) }",
        "unsupported: routes cannot match rand(9)",
    ),
    (
        "if { path /a } { rand(9) }",
        "unsupported: routes cannot match rand(9)",
    ),
    (
        "if { path /a } or { rand(9) }",
        "unsupported: routes cannot match rand(9)",
    ),
    ("if other", "unsupported: the ACL `other` is not defined"),
    ("if", "unsupported: a term or a closing brace is missing"),
    ("if !", "unsupported: a term or a closing brace is missing"),
    (
        "if or a",
        "unsupported: a term or a closing brace is missing",
    ),
    (
        "if a or",
        "unsupported: a term or a closing brace is missing",
    ),
    (
        "if { path /a",
        "unsupported: a term or a closing brace is missing",
    ),
    (
        "when a",
        "unsupported: expected `if` or `unless`, found `when`",
    ),
    (
        "if { src 10.0.0.0/8 } { src 10.1.0.0/16 }",
        "unsupported: one route cannot express this combination of conditions",
    ),
];

#[test]
fn conditions_combine_terms() {
    let (acls, _) = read(&[
        "acl a path /x",
        "acl a path /y",
        "acl mixed path /x",
        "acl mixed always_true",
        "acl never always_false",
        "acl rarely always_false",
        "acl rarely path /x",
        "acl random rand(9)",
    ]);
    for (text, expected) in CONDITIONS {
        let found = acls.condition(&words(text), FrontendContext::default());
        assert_eq!(found.describe(), *expected, "{text}");
    }
}

#[test]
fn broadened_condition_applies_to_at_least_the_same_requests() {
    let (acls, _) = read(&["acl a path /x", "acl random rand(9)"]);
    for (text, expected) in [
        ("", "always"),
        ("if a", "path /x"),
        ("if a random", "path /x"),
        ("if a !random", "path /x"),
        ("if random", "always"),
        ("if a or random", "always"),
        ("if FALSE random", "never"),
        ("if a or", "always"),
        // Without a term, the negated condition would apply to fewer requests.
        ("unless a", "always"),
        ("unless random", "always"),
        ("if { src 10.0.0.0/8 } { src 10.1.0.0/16 }", "always"),
    ] {
        let found = acls.broadened_condition(&words(text), FrontendContext::default());
        assert_eq!(found.describe(), expected, "{text}");
    }
}

#[test]
fn condition_excludes_requests_of_earlier_rules() {
    let (acls, _) = read(&[]);
    let convert = |texts: &[&str]| {
        let lines = lines(texts);
        let (line, others) = lines.split_first().expect("a line");
        let (_, condition) = rule::condition(line.arguments());
        let others: Vec<&Line> = others.iter().collect();
        let context = FrontendContext::default();
        let found = acls.condition_except((line, condition), &others, context);
        found.describe()
    };
    let deny = "http-request deny if { path /a }";
    assert_eq!(convert(&[deny]), "path /a");
    assert_eq!(
        convert(&[deny, "http-request allow if { method GET }"]),
        "path /a; not method GET"
    );
    assert_eq!(convert(&[deny, "http-request allow"]), "never");
    assert_eq!(convert(&[deny, "http-request allow if FALSE"]), "path /a");
    assert_eq!(
        convert(&[
            "http-request deny",
            "http-request allow if { method GET }",
            "http-request allow if { src 10.0.0.1 }",
        ]),
        "not method GET; not source 10.0.0.1"
    );
    // An earlier rule changes the address that the other line matches, so the condition is not supported.
    let mut changed = lines(&[deny, "http-request allow if { src 10.0.0.1 }"]);
    changed[1].follows_source_change = true;
    let (_, condition) = rule::condition(changed[0].arguments());
    let context = FrontendContext::default();
    let found = acls.condition_except((&changed[0], condition), &[&changed[1]], context);
    assert!(
        found.describe().contains("changes the client's address"),
        "{found:?}"
    );
}

fn paths(count: usize) -> Conversion {
    let condition = |index: usize| Condition {
        path: Some(format!("/{index}")),
        ..Condition::default()
    };
    Conversion::AnyOf((0..count).map(condition).collect())
}

fn hosts(count: usize) -> Conversion {
    let condition = |index: usize| Condition {
        host: Some(format!("h{index}")),
        ..Condition::default()
    };
    Conversion::AnyOf((0..count).map(condition).collect())
}

fn count(conversion: &Conversion) -> Result<usize, String> {
    match conversion {
        Conversion::AnyOf(conditions) => Ok(conditions.len()),
        other => Err(other.describe()),
    }
}

#[test]
fn a_rule_has_at_most_256_routes() {
    let too_many = Err("unsupported: it requires more than 256 routes".to_owned());
    let any = |count: usize| any_of(vec![Condition::default(); count]);
    assert_eq!(count(&any(1)), Ok(1));
    assert_eq!(count(&any(256)), Ok(256));
    assert_eq!(count(&any(257)), too_many);
    assert_eq!(any(0), Conversion::Never);
    assert_eq!(count(&all_of(&[paths(16), hosts(16)])), Ok(256));
    assert_eq!(count(&all_of(&[paths(257), hosts(1)])), too_many);
    // The limit also applies if a later condition excludes most of the combinations.
    assert_eq!(count(&all_of(&[paths(17), hosts(16), hosts(1)])), too_many);
    assert_eq!(count(&all_of(&[paths(16), hosts(16), hosts(1)])), Ok(16));
    // Each pair excludes requests by path or by method, so the number of combinations doubles.
    let pair = |index: usize| Condition {
        path: Some(format!("/{index}")),
        methods: vec![format!("M{index}")],
        ..Condition::default()
    };
    let pairs = |count: usize| -> Vec<Condition> { (0..count).map(pair).collect() };
    assert_eq!(count(&none_of(&pairs(8))), Ok(256));
    assert_eq!(count(&none_of(&pairs(9))), too_many);
    let without_host = |name: &str| {
        let mut condition = Condition::default();
        condition.not.insert("host", vec![name.to_owned()]);
        condition
    };
    let hosts = [without_host("a"), without_host("b")];
    let not_combinable = Err(format!("unsupported: {NOT_COMBINABLE}"));
    assert_eq!(count(&none_of(&hosts)), not_combinable);
    assert_eq!(
        count(&none_of(&[pairs(9).as_slice(), &hosts].concat())),
        too_many
    );
}
