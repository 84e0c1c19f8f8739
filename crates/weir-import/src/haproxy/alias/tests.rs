use super::*;
use crate::EmptyEnvironment;
use crate::haproxy::{line, section};

/// A file with replaced references.
struct Resolved {
    file: File,
    variables: Variables,
    notes: Notes,
}

fn resolve_text(text: &str) -> Resolved {
    let mut notes = Notes::default();
    let lines = line::read_lines(&EmptyEnvironment, &mut notes, "haproxy.cfg", text);
    let mut file = section::read(lines, &mut notes);
    let variables = resolve(&mut file, &mut notes);
    Resolved {
        file,
        variables,
        notes,
    }
}

impl Resolved {
    /// Returns a line of the file; lines with captured fields or variables end with `*`.
    fn line(&self, number: usize) -> String {
        let proxies = self.file.proxies.iter();
        let mut lines = proxies.flat_map(|proxy| proxy.lines.iter().chain(&proxy.defaults));
        let line = lines.find(|line| line.position.line() == number);
        let line = line.expect("a line of a section");
        let mark = if line.uses_capture { "*" } else { "" };
        format!("{}{mark}", line.words.join(" "))
    }
}

#[track_caller]
fn assert_lines(text: &str, expected: &[(usize, &str)]) -> Resolved {
    let resolved = resolve_text(text);
    for (number, line) in expected {
        assert_eq!(resolved.line(*number), *line, "{text}");
    }
    resolved
}

#[test]
fn sockets_between_sections_become_loopback_ports() {
    let reason = |word: &str, port: u16| {
        format!(
            "{word} was replaced with 127.0.0.1:{port}, which all processes on this host can reach"
        )
    };
    let resolved = assert_lines(
        "frontend f\n bind abns@one\n bind unix@/two\n bind /three accept-proxy\n bind unix@/unused\n bind :80\n\
         backend b\n server a abns@one\n server b /two\n server c unix@/three send-proxy\n server d /other\n server e \
         10.0.0.1:80\n option abns@one\n",
        &[
            (2, "bind 127.0.0.1:21000"),
            (3, "bind 127.0.0.1:21001"),
            (4, "bind 127.0.0.1:21002 accept-proxy"),
            (5, "bind unix@/unused"),
            (6, "bind :80"),
            (8, "server a 127.0.0.1:21000"),
            (9, "server b 127.0.0.1:21001"),
            (10, "server c 127.0.0.1:21002 send-proxy"),
            (11, "server d /other"),
            (12, "server e 10.0.0.1:80"),
            (13, "option abns@one"),
        ],
    );
    // Any process can connect to an abstract socket. File permissions protect other sockets, so their notes are losses.
    let mut notes = resolved.notes;
    let losses = [
        format!("line 3: bind unix@/two: {}", reason("unix@/two", 21_001)),
        format!(
            "line 4: bind /three accept-proxy: {}",
            reason("/three", 21_002)
        ),
    ];
    assert_eq!(notes.losses(), losses);
    assert_eq!(
        notes.finish(),
        [
            format!("line 2: bind abns@one: {}", reason("abns@one", 21_000)),
            losses[0].clone(),
            losses[1].clone(),
            format!("line 8: server a abns@one: {}", reason("abns@one", 21_000)),
            format!("line 9: server b /two: {}", reason("/two", 21_001)),
            format!(
                "line 10: server c unix@/three send-proxy: {}",
                reason("unix@/three", 21_002)
            ),
        ]
    );
}

#[test]
fn ports_that_the_file_contains_are_not_used_for_sockets() {
    let resolved = assert_lines(
        "frontend f\n bind abns@one\n bind :21000\nbackend b\n server a abns@one\n server b 10.0.0.1:21001\n server \
         21002\n server c\n",
        &[
            (2, "bind 127.0.0.1:21002"),
            (3, "bind :21000"),
            (5, "server a 127.0.0.1:21002"),
        ],
    );
    assert_eq!(resolved.notes.finish().len(), 2);
    // Several binds of one socket, for example with different options, have the same address.
    assert_lines(
        "frontend f\n bind abns@one\nfrontend g\n bind abns@one\nbackend b\n server a abns@one\n",
        &[(2, "bind 127.0.0.1:21000"), (4, "bind 127.0.0.1:21000")],
    );
}

#[test]
fn relative_paths_of_certificates_are_completed() {
    let text = "global\n crt-base /old\n crt-base /certs\n ca-base /cas\nfrontend f\n bind :80 ssl crt a.pem ca-file \
                ca.pem crt-list list crt /b.pem crt @x/y alpn a.pem\nbackend b\n server s 10.0.0.1 ca-file c.pem\n \
                default-server crt d.pem\n server-template t 3 x crt e.pem\n option crt a.pem\ndefaults\n \
                default-server crt f.pem\nbackend c\n";
    let resolved = assert_lines(
        text,
        &[
            (
                6,
                "bind :80 ssl crt /certs/a.pem ca-file /cas/ca.pem crt-list /etc/haproxy/list crt /b.pem crt @x/y alpn \
                 a.pem",
            ),
            (8, "server s 10.0.0.1 ca-file /cas/c.pem"),
            (9, "default-server crt /certs/d.pem"),
            (10, "server-template t 3 x crt /certs/e.pem"),
            (11, "option crt a.pem"),
            (13, "default-server crt /certs/f.pem"),
        ],
    );
    assert_eq!(certificate_directory(&resolved.file), "/certs");
    let notes = resolved.notes.finish();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].starts_with("line 6: ")
            && notes[0].ends_with("list is a relative path, interpreted relative to /etc/haproxy"),
        "{notes:?}"
    );
    let text = "global\n ca-base /cas\nfrontend f\n bind :80 ssl crt a.pem ca-file ca.pem\n";
    let resolved = assert_lines(
        text,
        &[(4, "bind :80 ssl crt /etc/haproxy/a.pem ca-file /cas/ca.pem")],
    );
    assert_eq!(certificate_directory(&resolved.file), "/etc/haproxy");
    assert_eq!(
        resolved.notes.finish(),
        [
            "line 4: bind :80 ssl crt a.pem ca-file ca.pem: a.pem is a relative path, interpreted relative to \
             /etc/haproxy"
        ]
    );
}

#[test]
fn store_references_are_replaced_only_after_crt() {
    assert_lines(
        "crt-store s\n load crt /a.pem alias a\nfrontend f\n bind :80 ssl crt @s/a crt @s/b ca-file @s/a\nbackend b\n \
         server s 10.0.0.1 crt @s/a\n",
        &[
            (4, "bind :80 ssl crt /a.pem crt @s/b ca-file @s/a"),
            (6, "server s 10.0.0.1 crt /a.pem"),
        ],
    );
}

#[test]
fn references_to_captures_are_replaced_by_index() {
    let rules = " http-request set-header X-0 %[capture.req.hdr(0)]\n http-request set-header X-1 \
                 %[capture.req.hdr(1)]%[capture.req.hdr(0)]\n http-request set-header X-2 %[capture.req.hdr(2)]\n \
                 http-request set-header X-3 b\n";
    let captures =
        "frontend f\n capture request header Host len 9\n http-request capture path len 5\n";
    let zero = "http-request set-header X-0 %[req.hdr(Host)]*";
    let one = "http-request set-header X-1 %[path]%[req.hdr(Host)]*";
    let two = "http-request set-header X-2 %[capture.req.hdr(2)]";
    for other in [
        " capture response header X-A len 9\n",
        " capture cookie c len 9\n",
        " http-request capture path id 0\n",
        " http-request set-header len len\n",
        " http-response capture res.hdr(a) len 9\n",
        " option request header len\n",
        " http-request capture path\n",
        " capture request header\n",
    ] {
        let text = format!(
            "frontend f\n{other}{}{rules}",
            &captures["frontend f\n".len()..]
        );
        assert_lines(
            &text,
            &[
                (5, zero),
                (6, one),
                (7, two),
                (8, "http-request set-header X-3 b"),
            ],
        );
    }
    // Each section has its own captures.
    let text = format!("{captures}frontend g\n{rules}");
    assert_lines(
        &text,
        &[(5, "http-request set-header X-0 %[capture.req.hdr(0)]")],
    );
}

#[test]
fn variables_that_one_rule_sets_are_replaced() {
    let use_line = |name: &str| format!(" http-request set-header X-A %[var({name})]\n");
    let constant = "http-request set-header X-A %[path]*";
    for (rules, name, expected) in [
        (" http-request set-var(txn.a) path\n", "txn.a", constant),
        (" http-request set-var(txn.a) path if TRUE\n", "txn.a", ""),
        (
            " http-request set-var(txn.a) path\n http-request set-var(txn.a) query\n",
            "txn.a",
            "",
        ),
        (
            " http-request set-var(txn.a) path\n http-request set-var(txn.a) query if TRUE\n",
            "txn.a",
            "",
        ),
        (" http-request set-var(txn.a) path\n", "txn.b", ""),
        (" http-request set-var(txn.a) path query\n", "txn.a", ""),
        (" http-response set-var(txn.a) path\n", "txn.a", ""),
        (" http-request unset-var(txn.a)\n", "txn.a", ""),
        (" http-request set-var-fmt(txn.a) path\n", "txn.a", ""),
        (
            " http-request set-var(txn.a) var(txn.b)\n http-request set-var(txn.b) path\n",
            "txn.a",
            "http-request set-header X-A %[var(txn.b)]*",
        ),
        (
            " http-request set-var(txn.b) path\n http-request set-var(txn.a) var(txn.b)\n",
            "txn.a",
            constant,
        ),
    ] {
        let text = format!("frontend f\n{rules}{}", use_line(name));
        let unchanged = use_line(name);
        let expected = if expected.is_empty() {
            unchanged.trim()
        } else {
            expected
        };
        assert_lines(&text, &[(text.lines().count(), expected)]);
    }
}

#[test]
fn rule_that_sets_a_variable_is_lost_with_the_rules_that_use_it() {
    let set = "http-request set-var(txn.a) path";
    let text = format!("frontend f\n {set}\n http-request set-header X-A %[var(txn.a)]\n");
    let notes_of = |text: &str, is_lost: bool, is_remarked: bool| {
        let mut resolved = resolve_text(text);
        if is_lost {
            resolved.notes.add(Position::new(0, 3), "lost");
        }
        if is_remarked {
            resolved.notes.remark(Position::new(0, 3), "changed");
        }
        assert!(sets_variable(&resolved.variables, Position::new(0, 2)));
        assert!(!sets_variable(&resolved.variables, Position::new(0, 3)));
        note_variables(&resolved.variables, &mut resolved.notes);
        let losses = resolved.notes.losses();
        let notes = resolved.notes.finish();
        let on_line_2 = |notes: Vec<String>| {
            let selected = notes.into_iter().filter(|it| it.starts_with("line 2: "));
            selected.collect::<Vec<_>>()
        };
        (on_line_2(notes), on_line_2(losses))
    };
    assert_eq!(notes_of(&text, false, false), (Vec::new(), Vec::new()));
    assert_eq!(notes_of(&text, false, true), (Vec::new(), Vec::new()));
    let note =
        format!("line 2: {set}: not imported: a rule that uses the variable is not imported");
    assert_eq!(
        notes_of(&text, true, false),
        (vec![note.clone()], vec![note])
    );
    let unused = format!("frontend f\n {set}\n http-request deny\n");
    let note = format!("line 2: {set}: not imported: no rule uses the variable");
    assert_eq!(notes_of(&unused, false, false), (vec![note], Vec::new()));
}
