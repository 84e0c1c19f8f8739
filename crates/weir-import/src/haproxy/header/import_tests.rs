//! Tests the routes and notes of complete files.

use crate::EmptyEnvironment;

const NO_REQUEST: &str =
    "not imported: haproxy no longer has the request when it evaluates this rule";
const NEVER: &str = "not imported: haproxy no longer has the request when it evaluates this rule, so the rule never \
                     applies";
const AFFECTED: &str = "not imported: haproxy's rules match the changed request, but routes match the request as \
                        received";

/// Imports a frontend with these lines, which begin at line 4, and a backend. Returns the keys of each route except the
/// default pool, and the notes; those about losses begin with `LOST`.
fn import(frontend: &str, backend: &str) -> (Vec<String>, Vec<String>) {
    let text = format!(
        "defaults\n mode http\nfrontend f\n {frontend}\n bind 192.0.2.1:80\n default_backend b\nbackend b\n \
         {backend}\n server a 10.0.0.5:80\nbackend c\n server a 10.0.0.6:80\n"
    );
    let imported = crate::haproxy("haproxy.cfg", &text, &EmptyEnvironment);
    let routes = imported.toml.split("[[route]]").skip(1).map(|route| {
        let lines = route
            .lines()
            .take_while(|line| !line.starts_with(['#', '[']));
        let keys = lines.filter(|line| !line.is_empty() && !line.starts_with("service"));
        let keys = keys.filter(|line| *line != "pool = \"b\"");
        keys.collect::<Vec<_>>().join("; ")
    });
    let notes = imported.notes.iter().map(|note| {
        let is_lost = imported.losses.contains(note);
        let short = note.strip_prefix("line ").unwrap_or(note);
        let (number, rest) = short.split_once(": ").unwrap_or_default();
        let (_, reason) = rest.split_once(": ").unwrap_or_default();
        format!("{}{number}: {reason}", if is_lost { "LOST " } else { "" })
    });
    (routes.collect(), notes.collect())
}

/// Line numbers and reasons.
type ExpectedNotes = &'static [(&'static str, &'static str)];

/// Lines of a frontend, and the routes and notes of the file.
const RULES: &[(&str, &[&str], ExpectedNotes)] = &[
    (
        "http-request set-header X-A b if { path /a }",
        &["path = \"/a\"; set_header = [\"X-A: b\"]", ""],
        &[],
    ),
    (
        "http-request set-header X-A b if FALSE",
        &[],
        &[(
            "4",
            "not imported: haproxy never applies it to a client either",
        )],
    ),
    (
        "http-request set-header X-A b if TRUE",
        &["set_header = [\"X-A: b\"]"],
        &[],
    ),
    (
        "http-request set-header X-A b if { rand(9) }",
        &[],
        &[("LOST 4", "not imported: routes cannot match rand(9)")],
    ),
    (
        "http-request set-header X-A %[rand]",
        &[],
        &[(
            "LOST 4",
            "not imported: the value contains an unsupported variable or a name in braces",
        )],
    ),
    (
        "http-response set-header X-A b if { path /a }",
        &[],
        &[("4", NEVER)],
    ),
    (
        "acl a path /a\n http-response set-header X-A b if a",
        &[],
        &[("5", NEVER)],
    ),
    (
        "http-response set-header X-A b if !{ path /a }",
        &[],
        &[("LOST 4", NO_REQUEST)],
    ),
    (
        "acl a path /a\n http-response set-header X-A b if !a",
        &[],
        &[("LOST 5", NO_REQUEST)],
    ),
    (
        "http-response set-header X-A b unless { path /a }",
        &[],
        &[("LOST 4", NO_REQUEST)],
    ),
    (
        "http-response set-header X-A b if { src 10.0.0.1 } or { path /a }",
        &[],
        &[("LOST 4", NO_REQUEST)],
    ),
    (
        "http-response set-header X-A b if { src 10.0.0.1 }",
        &[
            "source = [\"10.0.0.1\"]; set_response_header = [\"X-A: b\"]",
            "",
        ],
        &[],
    ),
    (
        "http-request set-var(txn.p) path\n http-response set-header X-A b if { var(txn.p) /a }",
        &["path = \"/a\"; set_response_header = [\"X-A: b\"]", ""],
        &[],
    ),
    (
        "http-request set-path /b\n use_backend c if { path /a }",
        &["path = \"/a\"; pool = \"c\""],
        &[("LOST 4", AFFECTED)],
    ),
    (
        "http-request set-path /b\n use_backend c if { method PUT }",
        &[
            "path_regex = \"^/.*$\"; method = [\"PUT\"]; pool = \"c\"; rewrite = \"/b\"",
            "method = [\"PUT\"]; pool = \"c\"",
            "path_regex = \"^/.*$\"; rewrite = \"/b\"",
            "",
        ],
        &[],
    ),
    // The rule becomes a key, which does not change the request.
    (
        "http-request set-timeout server 5m\n use_backend c if { hdr(server) x }",
        &[
            "header = [\"server: x\"]; pool = \"c\"; timeouts = { server = \"5m\" }",
            "timeouts = { server = \"5m\" }",
        ],
        &[],
    ),
    (
        "option forwarded",
        &["add_header = [\"Forwarded: proto={scheme};for={client}\"]"],
        &[],
    ),
    (
        "option forwarded proto",
        &[],
        &[(
            "LOST 4",
            "not imported: a route's `add_header` does not support these parameters",
        )],
    ),
    (
        "bind [::1]:81\n option forwarded",
        &[],
        &[(
            "LOST 5",
            "not imported: a route's `add_header` cannot express the format for IPv6 clients; see a service's \
             `forwarded`",
        )],
    ),
    ("option forwardfor", &[], &[]),
    (
        "option forwardfor header X-C",
        &["add_header = [\"X-C: {client}\"]"],
        &[],
    ),
    (
        "option forwardfor if-none",
        &[
            "not = { header = [\"X-Forwarded-For\"] }; add_header = [\"X-Forwarded-For: {client}\"]",
            "",
        ],
        &[],
    ),
    (
        "http-request set-header X-A %[path,map(/m)]",
        &["set_header = [\"X-A: {map.m}\"]"],
        &[],
    ),
    (
        "http-after-response set-header X-A b",
        &["set_response_header = [\"X-A: b\"]"],
        &[(
            "LOST 4",
            "Weir changes the responses of servers and routes, but not its errors (400, 401, 408, 429, 502, 503, 504 \
             and others)",
        )],
    ),
    (
        "http-request set-header Host x",
        &[""],
        &[("LOST 4", "not imported: Host cannot be changed here")],
    ),
];

#[test]
fn rules_of_a_frontend_become_changes_of_routes() {
    for (lines, expected, expected_notes) in RULES {
        let (routes, notes) = import(lines, "");
        assert_eq!(routes, *expected, "{lines}");
        let expected_notes = expected_notes.iter();
        let expected_notes: Vec<String> = expected_notes
            .map(|(line, reason)| format!("{line}: {reason}"))
            .collect();
        assert_eq!(notes, expected_notes, "{lines}");
    }
}

#[test]
fn option_of_the_frontend_takes_precedence_over_that_of_the_backend() {
    let if_none = "option forwardfor if-none";
    let other = "option forwardfor header X-C";
    let added = |name: &str| vec![format!("add_header = [\"{name}: {{client}}\"]")];
    assert_eq!(import("", other).0, added("X-C"));
    assert_eq!(
        import(other, "option forwardfor header X-D").0,
        added("X-C")
    );
    assert_eq!(import(if_none, if_none).0.len(), 2);
    assert_eq!(import("option forwardfor", other).0, [""; 0]);
    // The value becomes the `host` of the pool.
    assert_eq!(
        import("", "http-request set-header Host x"),
        (Vec::new(), Vec::new())
    );
}
