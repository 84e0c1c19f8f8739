use super::*;
use crate::EmptyEnvironment;
use crate::haproxy::{line, section};

/// Reads the sections of a file.
fn read(text: &str) -> (Vec<Proxy>, Notes) {
    let mut notes = Notes::default();
    let lines = line::read_lines(&EmptyEnvironment, &mut notes, "haproxy.cfg", text);
    (section::read(lines, &mut notes).proxies, notes)
}

fn line_of(text: &str) -> Line {
    Line {
        position: Position::FIRST,
        words: text.split_whitespace().map(str::to_owned).collect(),
        uses_capture: false,
        follows_source_change: false,
    }
}

#[test]
fn stages_follow_the_order_in_which_haproxy_evaluates_lines() {
    for (text, expected) in [
        ("tcp-request connection set-src x", 0),
        ("tcp-request session set-src x", 1),
        ("tcp-request content set-src x", 2),
        ("tcp-request inspect-delay 5s", 2),
        ("block if a", 3),
        ("http-request deny", 4),
        ("redirect scheme https", 5),
        ("use_backend a", 6),
        ("http-response set-header a b", LAST_STAGE),
        ("option forwardfor", LAST_STAGE),
        ("default_backend a", LAST_STAGE),
    ] {
        assert_eq!(stage(&line_of(text)), expected, "{text}");
    }
}

#[test]
fn address_changes_after_the_rule_or_its_stage() {
    for (text, expected) in [
        ("http-request set-src hdr(a)", Some((4, 6))),
        ("http-request set-src hdr(a) if b", Some((4, 6))),
        (
            "tcp-request connection set-src src,ipmask(24)",
            Some((0, 6)),
        ),
        ("tcp-request session set-src x", Some((1, 6))),
        ("tcp-request content set-src x", Some((2, 6))),
        // haproxy reads the header after all rules of the stage.
        ("tcp-request connection expect-proxy layer4", Some((1, 0))),
        (
            "tcp-request connection expect-netscaler-cip layer4",
            Some((1, 0)),
        ),
        ("tcp-request session expect-proxy layer4", Some((2, 0))),
        ("bind :80 accept-netscaler-cip 1", Some((0, 0))),
        ("bind :80 accept-proxy", None),
        ("server a accept-netscaler-cip", None),
        ("http-request set-src-port x", None),
        ("http-request deny if set-src", None),
        ("http-request set-header set-src x", None),
        ("http-response set-src x", None),
        ("tcp-request set-src x", None),
    ] {
        assert_eq!(change_point(&line_of(text), 5), expected, "{text}");
    }
}

#[test]
fn lines_that_use_the_address_as_a_value_are_recognized() {
    for (text, expected) in [
        ("acl a src 10.0.0.0/8", false),
        ("balance source", true),
        ("balance roundrobin", false),
        ("balance src", false),
        ("option forwardfor", true),
        ("option forwarded", true),
        ("option httplog", false),
        ("option src", false),
        ("server a 10.0.0.1 send-proxy", true),
        ("server a 10.0.0.1 send-proxy-v2", true),
        ("server src 10.0.0.1", false),
        ("default-server send-proxy", true),
        ("server-template a 1 b send-proxy", true),
        ("http-request set-header X-A %[src]", true),
        ("http-request set-header X-A %[src,ipmask(8)]", true),
        ("http-request set-header X-A a%ci", true),
        ("http-request track-sc0 src", true),
        ("stick on src,ipmask(8)", true),
        ("http-request set-header X-A %[src_port]", false),
        ("http-request set-header X-A b", false),
        ("http-request set-header X-A b if { src 10.0.0.1 }", false),
        ("http-request deny if { src 10.0.0.1 }", false),
    ] {
        assert_eq!(uses_source(&line_of(text)), expected, "{text}");
    }
}

#[test]
fn frontends_use_backends_by_name_or_by_a_computed_name() {
    for (text, expected) in [
        ("frontend f\n default_backend b\n", true),
        ("frontend f\n use_backend b if TRUE\n", true),
        ("frontend f\n use_backend %[path]\n", true),
        ("frontend f\n use_backend a if b\n", false),
        ("frontend f\n default_backend a\n", false),
        ("frontend f\n use-server b\n", false),
        ("frontend f\n option %[path]\n", false),
        ("frontend f\n", false),
        ("listen f\n use_backend b\n", true),
        ("defaults\n default_backend b\nfrontend f\n", true),
        ("backend f\n use_backend b\n", false),
    ] {
        let (proxies, _) = read(text);
        assert_eq!(uses_backend(&proxies[0], "b"), expected, "{text}");
    }
}

#[test]
fn sections_change_the_address_only_with_rules_that_apply_in_their_mode() {
    for (text, expected) in [
        ("listen f\n mode http\n http-request set-src x\n", true),
        // haproxy ignores `http-request` in mode tcp.
        ("listen f\n mode tcp\n http-request set-src x\n", false),
        (
            "listen f\n mode tcp\n tcp-request content set-src x\n",
            true,
        ),
        (
            "listen f\n mode http\n tcp-request content set-src x\n",
            true,
        ),
        ("listen f\n mode http\n http-request deny\n", false),
        ("listen f\n mode tcp\n", false),
        (
            "defaults d\n mode http\n http-request set-src x\nlisten f from d\n",
            true,
        ),
    ] {
        let (proxies, _) = read(text);
        assert_eq!(changes_source(&proxies[0]), expected, "{text}");
    }
}

/// Files, and the numbers of the lines that haproxy evaluates after a change to the address.
const MARKED: &[(&str, &[usize])] = &[
    (
        "frontend f\n mode http\n tcp-request content reject\n http-request deny\n http-request set-src x\n \
         http-request deny\n tcp-request content reject\n use_backend b\n",
        // The mode takes effect last, so it counts as a later line.
        &[2, 6, 8],
    ),
    (
        "frontend f\n mode tcp\n tcp-request content reject\n tcp-request connection expect-proxy layer4\n \
         tcp-request connection reject\n tcp-request session reject\n",
        &[2, 3, 6],
    ),
    (
        "frontend f\n mode tcp\n tcp-request connection reject\n bind :80 accept-netscaler-cip 1\n",
        &[2, 3, 4],
    ),
    // A rule of the backend precedes the responses of its frontend.
    (
        "frontend f\n mode http\n http-request deny\n http-response del-header a\n use_backend b\nbackend b\n mode \
         http\n http-request set-src x\n http-request deny\n",
        &[2, 4, 7, 9],
    ),
    (
        "frontend f\n mode http\n http-response del-header a\n use_backend c\nbackend b\n mode http\n http-request \
         set-src x\nbackend c\n mode http\n http-request deny\n",
        &[6],
    ),
    // The rules of a frontend do not affect another frontend that uses a backend with the same name.
    (
        "frontend b\n mode http\n http-request set-src x\nfrontend f\n mode http\n option forwardfor\n use_backend \
         b\nbackend b\n mode http\n",
        &[2],
    ),
    ("frontend f\n mode http\n http-request deny\n", &[]),
];

#[test]
fn lines_after_a_change_to_the_address_are_marked() {
    for (text, expected) in MARKED {
        let (mut proxies, _) = read(text);
        mark_lines(&mut proxies);
        let lines = proxies.iter().flat_map(|proxy| &proxy.lines);
        let marked = lines.filter(|line| line.follows_source_change);
        let marked: Vec<usize> = marked.map(|line| line.position.line()).collect();
        assert_eq!(marked, *expected, "{text}");
    }
}

#[test]
fn imported_lines_that_use_the_changed_address_as_value_are_reported() {
    const SET_SRC: &str = "http-request set-src x";
    let notes_of = |frontend: &str, backend: &str, are_used: bool| {
        let (mut proxies, mut notes) = read(&format!(
            "frontend f\n mode http\n {frontend}\n option forwardfor\n default_backend b\nbackend b\n mode http\n \
             {backend}\n balance source\nbackend other\n mode http\n balance source\n"
        ));
        mark_lines(&mut proxies);
        let lines = proxies.iter().flat_map(|proxy| &proxy.lines);
        let used = lines
            .map(|line| line.position)
            .filter(|_| are_used)
            .collect();
        note_values(&proxies, &used, &mut notes);
        notes.losses()
    };
    let note = |line: &str| {
        format!(
            "{line}: an earlier rule changes the client's address, but Weir uses the address of the connection"
        )
    };
    let frontend = note("line 4: option forwardfor");
    let backend = note("line 9: balance source");
    assert_eq!(
        notes_of(SET_SRC, "", true),
        [frontend.clone(), backend.clone()]
    );
    assert_eq!(notes_of("", SET_SRC, true), [frontend, backend]);
    assert_eq!(notes_of("", "", true), [""; 0]);
    assert_eq!(notes_of(SET_SRC, "", false), [""; 0]);
    // Only the condition of the second rule uses the address.
    let deny = "http-request set-src x\n http-request set-header a b if { src 10.0.0.1 }";
    assert_eq!(notes_of(deny, "", true).len(), 2);
}
