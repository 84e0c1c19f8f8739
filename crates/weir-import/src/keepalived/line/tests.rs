use super::*;
use crate::EmptyEnvironment;

/// A host with this name and these files.
struct Host(&'static str, Vec<(&'static str, &'static str)>);

impl Environment for Host {
    fn read(&self, path: &str) -> Result<String, String> {
        let mut files = self.1.iter();
        let file = files.find(|(name, text)| *name == path && *text != "unreadable");
        file.map(|(_, text)| (*text).to_owned())
            .ok_or_else(|| "it cannot be read".to_owned())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        let prefix = pattern.strip_suffix('*');
        let is_match = |name: &str| match prefix {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        let names = self.1.iter().map(|(name, _)| (*name).to_owned());
        names.filter(|name| is_match(name)).collect()
    }

    fn address(&self, _: &str, _: bool) -> Option<std::net::IpAddr> {
        None
    }

    fn port(&self, _: &str, _: &str) -> Option<u16> {
        None
    }

    fn host_name(&self) -> String {
        self.0.to_owned()
    }

    fn variable(&self, name: &str) -> Option<String> {
        (name == "HOME").then(|| "/root".to_owned())
    }
}

fn texts(lines: Vec<Line>) -> Vec<String> {
    lines.into_iter().map(|line| line.text).collect()
}

fn read(text: &str) -> (Vec<String>, Vec<String>) {
    let mut notes = Notes::default();
    let lines = read_lines(&EmptyEnvironment, &mut notes, "f", text);
    (texts(lines), notes.finish())
}

/// Asserts the lines of a file, and its notes. Notes about losses begin with `!`.
#[track_caller]
fn assert_lines(host: &Host, name: &str, text: &str, lines: &[&str], expected_notes: &[&str]) {
    let mut notes = Notes::default();
    let found = texts(read_lines(host, &mut notes, name, text));
    assert_eq!(found, lines, "{text}");
    let losses = notes.losses();
    let mark = |note: String| match losses.contains(&note) {
        true => format!("!{note}"),
        false => note,
    };
    let marked: Vec<String> = notes.finish().into_iter().map(mark).collect();
    assert_eq!(marked, expected_notes, "{text}");
}

#[test]
fn braces_are_split_off_and_comments_removed() {
    let (lines, notes) = read("a \"x{#\" { b c } # d\n  e\\#f !g\n");
    assert_eq!(lines, ["a \"x{#\"", "{", "b c", "}", "e#f"]);
    assert!(notes.is_empty());
}

#[test]
fn conditions_definitions_and_sequences_are_applied() {
    let text = "$A=1\n@other x\n@^other y $A\n~SEQ(n, 2) z $n\n$B=p q \\\n  r\n$B s\n";
    let (lines, notes) = read(text);
    assert_eq!(lines, ["y 1", "z 1", "z 2", "p q", "r s"]);
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("line 2: @other x: not imported"));
}

#[test]
fn missing_included_file_is_noted() {
    let (_, notes) = read("include /etc/none*\nincluder x\n");
    assert_eq!(
        notes,
        [
            "line 1: include /etc/none*: not imported: no such file",
            "line 2: includer x: not imported: no such file, and keepalived rejects the file",
        ]
    );
}

#[test]
fn comments_end_lines_except_in_quotes() {
    for (text, expected) in [
        ("a # b", &["a"][..]),
        ("a!b", &["a"]),
        ("# a", &[]),
        ("a \"#b!\" # c", &["a \"#b!\""]),
        ("a \\# b \\!c", &["a # b !c"]),
        ("a \"\\# b\" c", &["a \"\\# b\" c"]),
        ("a \\n \\", &["a \\n \\"]),
        ("a \"\\\"# b\" # c", &["a \"\\\"# b\""]),
        ("\ta\t\n\n b", &["a", "b"]),
        ("a}b{c", &["a", "}", "b", "{", "c"]),
        ("a \"{\" \"}", &["a \"{\" \"}"]),
        // Placeholders of templates are words.
        ("a ${X} {{ y }} z", &["a ${X} {{y}} z"]),
        ("a \"{{ y }}\" z", &["a \"{{ y }}\" z"]),
        ("a {{ y", &["a", "{", "{", "y"]),
    ] {
        let (lines, _) = read(text);
        assert_eq!(lines, expected, "{text}");
    }
    for (text, expected) in [
        ("a \"b", &["line 1: a \"b: unterminated quote"][..]),
        ("a \"b\"", &[]),
        ("a # \"b", &[]),
        (
            "a\nb \0 c",
            &["line 2: b \0 c: not imported: the line contains a NUL byte"],
        ),
        (
            "{% if a %}\nb",
            &[
                "line 1: {% if a %}: not imported: it is a template statement; the lines of all branches are imported",
            ],
        ),
    ] {
        let (_, notes) = read(text);
        assert_eq!(notes, expected, "{text}");
    }
    assert_eq!(read("a\n{% if b %}\nc\nd \0\n").0, ["a", "c"]);
}

#[test]
fn placeholders_have_a_name() {
    for (text, expected) in [
        ("${A} b", Some(4)),
        ("${A_NAME}", Some(9)),
        ("{{ a }} b", Some(7)),
        ("{{a}}", Some(5)),
        ("${}", None),
        ("{{ }}", None),
        ("${a", None),
        ("{{a}", None),
        ("{a}", None),
        ("${a{b}", None),
        ("{{a\nb}}", None),
        ("x${a}", None),
    ] {
        assert_eq!(placeholder_length(text), expected, "{text}");
    }
    for (line, expected) in [
        ("{% if a %}", true),
        (" {%- end -%} ", true),
        ("{% if a", false),
        ("a %}", false),
        ("a", false),
    ] {
        assert_eq!(is_statement(line), expected, "{line}");
    }
}

#[test]
fn conditions_select_lines_for_the_host() {
    let host = Host("one", Vec::new());
    let unmatched = "not imported: the condition does not match this host, one";
    let rows: &[(&str, &[&str], &[&str])] = &[
        ("@one a b", &["a b"], &[]),
        ("@one\ta", &["a"], &[]),
        ("@^two a", &["a"], &[]),
        ("@one @^two a", &["a"], &[]),
        (
            "@^one a\n@one b",
            &["b"],
            &[&format!("line 1: @^one a: {unmatched}")],
        ),
        (
            "@one @two a\n",
            &[],
            &[&format!("line 1: @one @two a: {unmatched}")],
        ),
        // If no condition matches, the file may be for other hosts.
        (
            "@two a\nb",
            &["b"],
            &[&format!("!line 1: @two a: {unmatched}")],
        ),
        (
            "@one",
            &[],
            &["!line 1: @one: not imported: nothing follows the condition"],
        ),
        // A definition can begin with a condition.
        ("$A=@one a\n$A", &["a"], &[]),
        (
            "$A=@two a\n$A b",
            &[],
            &[&format!("!line 2: $A b: {unmatched}")],
        ),
    ];
    for (text, lines, notes) in rows {
        assert_lines(&host, "f", text, lines, notes);
    }
}

#[test]
fn definitions_can_have_several_lines() {
    let host = Host("one", Vec::new());
    let rows: &[(&str, &[&str], &[&str])] = &[
        ("$A=x y\n$A z", &["x y z"], &[]),
        ("$A=\\\nx\n$A", &["x"], &[]),
        ("$A=x \\\n y \\\n z\n$A", &["x", "y", "z"], &[]),
        ("$A=x \\\n\\\n y\n$A", &["x", "y"], &[]),
        ("$A=x \\\n\n$A y", &["x y"], &[]),
        ("$A=x \\\n # y\nz $A", &["z x"], &[]),
        (
            "$A=x \\",
            &[],
            &["line 1: $A=x \\: not imported: $A is never used"],
        ),
        (
            "$A=x\n$A=y",
            &[],
            &["line 1: $A=x: not imported: $A is never used"],
        ),
        ("$A=x ${_HASH} y\n$A", &["x"], &[]),
        ("$A=a {\\\nb\\\n}\n$A", &["a", "{", "b", "}"], &[]),
        // The lines of a definition can define other names.
        (
            "$B=x \\\ny $N\n$A=$N=1\\\n$B\\\n$N=2\\\n$B\n$A",
            &["x", "y 1", "x", "y 2"],
            &[],
        ),
        (
            "$A=@two x\\\n@one y\\\n~SEQ(n, 2) z $n\n$A",
            &["y", "z 1", "z 2"],
            &["line 4: $A: not imported: the condition does not match this host, one"],
        ),
        (
            "$A=x \\\n$A\n$A",
            &["x"; MAX_DEPTH - 1],
            &["!line 3: $A: not imported: too many lines, or definitions are nested too deeply"],
        ),
        (
            "$A=$A\n$A",
            &[],
            &["!line 2: $A: not imported: the definition refers to itself"],
        ),
        (
            "a ${_INSTANCE} ${_ENV HOME} ${_PWD}",
            &["a one /root /etc"],
            &[],
        ),
        (
            "a ${_ENV NONE}",
            &[],
            &["!line 1: a ${_ENV NONE}: not imported: ${_ENV NONE} is not set here"],
        ),
    ];
    for (text, lines, notes) in rows {
        assert_lines(&host, "/etc/f", text, lines, notes);
    }
}

#[test]
fn sequences_can_be_nested_and_used_in_definitions() {
    let host = Host("one", Vec::new());
    let rows: &[(&str, &[&str], &[&str])] = &[
        ("~SEQ(n, 2) ~SEQ(m, 2) $n$m", &["11", "12", "21", "22"], &[]),
        ("$A=2\n~SEQ(n, $A) x$n", &["x1", "x2"], &[]),
        ("$A=~SEQ(n, 2) x $n\n$A", &["x 1", "x 2"], &[]),
        ("~SEQ(n, 2) @^one x\n", &[], &[]),
        ("~LST(n, a, b) include $n", &[], &[]),
    ];
    for (text, lines, _) in rows {
        let mut notes = Notes::default();
        assert_eq!(
            texts(read_lines(&host, &mut notes, "f", text)),
            *lines,
            "{text}"
        );
    }
    for text in ["~SEQ(n, 2", "$A=$A\n~SEQ(n, $A) x"] {
        let mut notes = Notes::default();
        assert!(
            read_lines(&host, &mut notes, "f", text).is_empty(),
            "{text}"
        );
        let notes = notes.finish();
        let expected = "not imported: keepalived rejects this sequence";
        assert!(
            notes.iter().any(|it| it.ends_with(expected)),
            "{text}: {notes:?}"
        );
    }
    for (depth, expected) in [(MAX_DEPTH, 1), (MAX_DEPTH + 1, 0)] {
        let text = format!("{}x", "~SEQ(n, 1) ".repeat(depth));
        let (lines, notes) = read(&text);
        assert_eq!(lines.len(), expected, "{depth}");
        assert_eq!(notes.len(), 1 - expected, "{depth}: {notes:?}");
    }
}

#[test]
fn reading_stops_after_the_limit() {
    let read = |text: &str| {
        let mut notes = Notes::default();
        let lines = read_limited_lines(&EmptyEnvironment, &mut notes, ("f", text), 3);
        (texts(lines).join(" "), notes.finish())
    };
    let (too_many, nested, defined) = (
        "not imported: there are too many lines",
        "not imported: too many lines, or sequences are nested too deeply",
        "not imported: too many lines, or definitions are nested too deeply",
    );
    for (text, lines, notes) in [
        ("a\nb\nc", "a b c", vec![]),
        (
            "a\nb\nc\nd\ne",
            "a b c d",
            vec![format!("line 4: d: {too_many}")],
        ),
        ("~SEQ(n, 3) $n", "1 2 3", vec![]),
        (
            "$A=a \\\nb \\\nc \\\nd\n$A",
            "a b c",
            vec![format!("line 5: $A: {defined}")],
        ),
        (
            "~SEQ(n, 9) $n",
            "1 2 3 4",
            vec![
                format!("line 1: ~SEQ(n, 9) $n: {nested}"),
                format!("line 1: ~SEQ(n, 9) $n: {too_many}"),
            ],
        ),
    ] {
        assert_eq!(read(text), (lines.to_owned(), notes), "{text}");
    }
}

#[test]
fn files_are_included_relative_to_the_including_file() {
    let files = vec![
        ("/etc/k/one", "a ${_PWD}\ninclude sub/two"),
        ("/etc/k/sub/two", "b ${_PWD}\ninclude /etc/k/three"),
        ("/etc/k/three", "c\n$A=3 \\"),
        ("/etc/k/closed", "unreadable"),
        ("four", "d ${_PWD}"),
        ("/five", "e ${_PWD}"),
    ];
    let host = Host("one", files);
    let rows: &[(&str, &str, &[&str], &[&str])] = &[
        (
            "/etc/k/f",
            "include one\nx ${_PWD} $A",
            &["a /etc/k", "b /etc/k/sub", "c", "x /etc/k 3"],
            &[],
        ),
        (
            "/etc/k/f",
            "includem \"t*\"",
            &["c"],
            &["/etc/k/three line 2: $A=3 \\: not imported: $A is never used"],
        ),
        ("f", "include\tfour", &["d"], &[]),
        ("/f", "include /five", &["e /"], &[]),
        (
            "/etc/k/f",
            "include closed",
            &[],
            &["!line 1: include closed: not imported: /etc/k/closed: it cannot be read"],
        ),
        (
            "/etc/k/f",
            "includew none",
            &[],
            &[
                "!line 1: includew none: not imported: no such file, and keepalived rejects the file",
            ],
        ),
        ("/etc/k/f", "includex one", &["includex one"], &[]),
        ("/etc/k/f", "include", &["include"], &[]),
    ];
    for (name, text, lines, notes) in rows {
        assert_lines(&host, name, text, lines, notes);
    }
}

#[test]
fn number_and_depth_of_included_files_are_limited() {
    let note = "not imported: includes are nested too deeply, or too many files are included";
    let host = Host("one", vec![("self", "a\ninclude self")]);
    let mut notes = Notes::default();
    let lines = read_lines(&host, &mut notes, "f", "include self");
    assert_eq!(lines.len(), MAX_DEPTH);
    assert_eq!(
        notes.finish(),
        [format!("self line 2: include self: {note}")]
    );

    for (count, expected) in [(999, 1), (1000, 0)] {
        let mut files = vec![("many", ""); count];
        files.push(("last", "a"));
        let host = Host("one", files);
        let mut notes = Notes::default();
        let lines = read_lines(&host, &mut notes, "f", "include many\ninclude last");
        assert_eq!(lines.len(), expected, "{count}");
        assert_eq!(notes.finish().len(), 1 - expected, "{count}");
    }
}

#[test]
fn include_lines_have_a_pattern() {
    for (line, expected) in [
        ("include a", Some((false, "a"))),
        ("include\t a b ", Some((false, "a b"))),
        ("includer a", Some((true, "a"))),
        ("includea a", Some((true, "a"))),
        ("includem a", Some((true, "a"))),
        ("includew a", Some((true, "a"))),
        ("includeb a", Some((true, "a"))),
        ("includex a", None),
        ("included a", None),
        ("include", None),
        ("a include", None),
    ] {
        assert_eq!(parse_include(line), expected, "{line}");
    }
    for (name, expected) in [("/etc/k/f", "/etc/k"), ("/f", "/"), ("a/f", "a"), ("f", "")] {
        assert_eq!(directory(name), expected, "{name}");
    }
}
