use super::*;
use crate::EmptyEnvironment;
use crate::document::Value;
use crate::haproxy::{line, section, source};

/// Reads the sections of a file.
fn read(text: &str) -> (Vec<Proxy>, Notes) {
    let mut notes = Notes::default();
    let lines = line::read_lines(&EmptyEnvironment, &mut notes, "haproxy.cfg", text);
    let mut proxies = section::read(lines, &mut notes).proxies;
    source::mark_lines(&mut proxies);
    (proxies, notes)
}

/// Returns the keys and the line numbers of the limit of a file's first section, and the notes. The lines begin at line
/// 3, and line 2 is the mode.
fn limit_of(lines: &str) -> (String, Vec<usize>, Vec<String>) {
    let (proxies, mut notes) = read(&format!("frontend f\n mode http\n {lines}\n"));
    let acls = Acls::read(&EmptyEnvironment, &proxies[0].lines, &mut notes);
    let limit = find_limit(&proxies[0], &proxies, &acls, &mut notes);
    let Some(limit) = limit else {
        return (String::new(), Vec::new(), notes.finish());
    };
    let keys = limit.keys.iter().map(|key| match &key.item.value {
        Value::Integer(number) => format!("{} {number}", key.key),
        Value::Text(text) => format!("{} {text}", key.key),
        other => panic!("{other:?}"),
    });
    let keys = keys.collect::<Vec<_>>().join(", ");
    let lines = limit.lines.iter().map(|it| it.line()).collect();
    (keys, lines, notes.finish())
}

const TABLE: &str = "stick-table type ip size 1m expire 30s store gpc0,http_req_rate(10s)";
const TRACK: &str = "http-request track-sc0 src";
const DENY: &str = "http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }";

#[test]
fn rates_are_per_second_and_rounded_up() {
    assert_eq!(rate_per_second(100, 10_000), Some((10, true)));
    assert_eq!(rate_per_second(20, 60_000), Some((1, false)));
    assert_eq!(rate_per_second(21, 10_000), Some((3, false)));
    assert_eq!(rate_per_second(60_000, 1_000), Some((60_000, true)));
    assert_eq!(rate_per_second(60_001, 1_000), None);
    assert_eq!(rate_per_second(100_000, 1_000), None);
    assert_eq!(rate_per_second(u64::MAX, 1_000), None);
}

#[test]
fn counter_is_found_in_every_form_of_the_fetch_method() {
    let table = || Some("t".to_owned());
    for (fetch, expected) in [
        ("sc_http_req_rate(0)", Some((Some('0'), None))),
        ("sc_http_req_rate(2,t)", Some((Some('2'), table()))),
        ("sc_http_req_rate", None),
        ("sc_http_req_rate()", None),
        ("sc1_http_req_rate", Some((Some('1'), None))),
        ("sc1_http_req_rate()", Some((Some('1'), None))),
        ("sc0_http_req_rate(t)", Some((Some('0'), table()))),
        ("sc10_http_req_rate", None),
        ("sc0_http_req_cnt", None),
        ("src_http_req_rate", Some((None, None))),
        ("src_http_req_rate(t)", Some((None, table()))),
        ("sc_conn_rate(0)", None),
    ] {
        assert_eq!(counter_of(fetch), expected, "{fetch}");
    }
}

#[test]
fn threshold_is_the_largest_number_that_the_rule_admits() {
    let text = "frontend f\n acl a src_conn_cur gt 7\n acl b src_conn_cur gt 8\n acl b src_conn_cur gt 9\n";
    let (proxies, mut notes) = read(text);
    let acls = Acls::read(&EmptyEnvironment, &proxies[0].lines, &mut notes);
    for (condition, expected) in [
        ("if { src_conn_cur gt 20 }", Some(20)),
        ("if { src_conn_cur ge 20 }", Some(19)),
        ("if { src_conn_cur gt 1 }", Some(1)),
        ("if { src_conn_cur gt 0 }", None),
        ("if { src_conn_cur ge 1 }", None),
        ("if { src_conn_cur ge 0 }", None),
        ("if { src_conn_cur lt 20 }", None),
        ("if { src_conn_cur gt x }", None),
        ("if { src_conn_cur gt 20 21 }", None),
        ("if { src_conn_cur gt 20 } { src_conn_rate gt 3 }", None),
        ("if { src_conn_cur gt 20 } or a", None),
        ("unless { src_conn_cur gt 20 }", None),
        ("if a", Some(7)),
        ("if !a", None),
        ("unless a", None),
        ("if b", None),
        ("if a a", None),
        ("", None),
    ] {
        let line = read(&format!("frontend f\n http-request deny {condition}\n"))
            .0
            .remove(0)
            .lines
            .remove(0);
        let expected = expected.map(|max| ("src_conn_cur".to_owned(), max));
        assert_eq!(parse_threshold(&line, &acls), expected, "{condition}");
    }
}

/// Rules, the counter of a limit, and the line, key and table of the rule that tracks clients for the counter.
const TRACKING: &[(&str, Option<char>, &str)] = &[
    ("http-request track-sc0 src", Some('0'), "3 - -"),
    ("http-request track-sc0 src", None, "3 - -"),
    ("http-request track-sc0 src", Some('1'), "none"),
    ("tcp-request connection track-sc1 src", Some('1'), "3 - -"),
    (
        "tcp-request content track-sc0 src table t",
        Some('0'),
        "3 - t",
    ),
    (
        "http-request track-sc0 hdr(X-A)",
        Some('0'),
        "3 header:X-A -",
    ),
    (
        "http-request track-sc2 req.hdr(X-A) table t",
        Some('2'),
        "3 header:X-A t",
    ),
    ("http-request track-sc0 path", Some('0'), "none"),
    ("http-request track-sc0 cook(c)", Some('0'), "none"),
    ("http-request track-sc0 src if TRUE", Some('0'), "none"),
    ("http-request track-sc0 src table", Some('0'), "none"),
    ("http-request track-sc0 src tables t", Some('0'), "none"),
    ("http-response track-sc0 src", Some('0'), "none"),
    ("http-request set-header track-sc0 src", Some('0'), "none"),
    ("http-request sc-inc-gpc0(0) src", None, "none"),
    (
        "http-request track-sc1 src\n http-request track-sc0 src",
        Some('0'),
        "4 - -",
    ),
    (
        "http-request set-src hdr(a)\n http-request track-sc0 src",
        Some('0'),
        "none",
    ),
    (
        "http-request set-src hdr(a)\n http-request track-sc0 hdr(b)",
        Some('0'),
        "4 header:b -",
    ),
];

#[test]
fn rule_that_tracks_clients_for_a_counter_is_found() {
    for (lines, counter, expected) in TRACKING {
        let (proxies, _) = read(&format!("frontend f\n mode http\n {lines}\n"));
        let found = tracking_rule(&proxies[0], *counter).map(|(line, key, table)| {
            let [key, table] = [key, table].map(|it| it.unwrap_or_else(|| "-".to_owned()));
            format!("{} {key} {table}", line.position.line())
        });
        assert_eq!(found.as_deref().unwrap_or("none"), *expected, "{lines}");
    }
}

#[test]
fn period_is_parsed_from_the_stored_rate() {
    for (line, expected) in [
        ("stick-table type ip store http_req_rate(10s)", Some(10_000)),
        (
            "stick-table store conn_cur,http_req_rate(1m),gpc0 expire 5s",
            Some(60_000),
        ),
        ("stick-table store http_req_rate(1)", Some(1)),
        ("stick-table store http_req_rate(0)", None),
        ("stick-table store http_req_rate(x)", None),
        ("stick-table store conn_rate(10s)", None),
        ("stick-table type ip expire http_req_rate(10s)", None),
        ("stick-table type ip store", None),
    ] {
        let (proxies, _) = read(&format!("backend b\n {line}\n"));
        assert_eq!(period_ms(&proxies[0].lines[0]), expected, "{line}");
    }
}

#[test]
fn rules_about_a_changed_address_are_recognized() {
    let line = |text: &str, follows_source_change: bool| {
        let mut line = read(&format!("frontend f\n {text}\n"))
            .0
            .remove(0)
            .lines
            .remove(0);
        line.follows_source_change = follows_source_change;
        line
    };
    for (fetch, follows, expected) in [
        ("src_conn_cur", true, true),
        ("src_conn_cur", false, false),
        ("sc0_conn_cur", true, false),
    ] {
        let rule = line("http-request deny", follows);
        assert_eq!(counts_changed_source(&rule, fetch), expected, "{fetch}");
    }
    for (text, follows, expected) in [
        ("http-request track-sc0 src", true, true),
        ("http-request track-sc0 src,lower", true, true),
        ("http-request track-sc0 src", false, false),
        ("http-request track-sc0 hdr(a)", true, false),
        ("http-request track-sc0", true, false),
        ("http-request deny", true, false),
    ] {
        assert_eq!(
            tracks_changed_source(&line(text, follows)),
            expected,
            "{text}"
        );
    }
}

/// Lines that begin at line 3, and the keys and the line numbers of the limit on a client's connections.
const CONCURRENT: &[(&str, &str, &[usize])] = &[
    (
        "http-request deny if { src_conn_cur gt 20 }",
        "concurrent 20",
        &[3],
    ),
    (
        "http-request reject if { src_conn_cur(t) ge 20 }",
        "concurrent 19",
        &[3],
    ),
    (
        "tcp-request connection reject if { src_conn_cur gt 20 }",
        "concurrent 20",
        &[3],
    ),
    (
        "tcp-request content reject if { sc0_conn_cur gt 20 }",
        "concurrent 20",
        &[3],
    ),
    (
        "http-request deny if { sc_conn_cur(0) gt 20 }",
        "concurrent 20",
        &[3],
    ),
    ("http-request deny if { sc10_conn_cur gt 20 }", "", &[]),
    ("http-request deny if { src_conn_rate gt 20 }", "", &[]),
    ("http-request deny if { sc0_conn_rate gt 20 }", "", &[]),
    ("http-request allow if { src_conn_cur gt 20 }", "", &[]),
    ("http-request tarpit if { src_conn_cur gt 20 }", "", &[]),
    (
        "tcp-request connection accept if { src_conn_cur gt 20 }",
        "",
        &[],
    ),
    (
        "tcp-request session reject if { src_conn_cur gt 20 }",
        "",
        &[],
    ),
    ("http-response deny if { src_conn_cur gt 20 }", "", &[]),
    (
        "http-request deny if { path /a }\n http-request deny if { src_conn_cur gt 20 }",
        "concurrent 20",
        &[4],
    ),
    (
        "http-request set-src hdr(a)\n http-request deny if { src_conn_cur gt 20 }",
        "",
        &[],
    ),
    (
        "http-request set-src hdr(a)\n http-request deny if { sc0_conn_cur gt 20 }",
        "concurrent 20",
        &[4],
    ),
    (
        "http-request deny if { sc0_conn_cur gt 20 }\n http-request set-src hdr(a)\n http-request track-sc0 src",
        "",
        &[],
    ),
];

#[test]
fn rejection_of_clients_with_many_connections_becomes_a_limit() {
    for (lines, expected, expected_lines) in CONCURRENT {
        let (keys, found_lines, notes) = limit_of(lines);
        assert_eq!(
            (keys.as_str(), &found_lines[..]),
            (*expected, *expected_lines),
            "{lines}"
        );
        let reason = ": Weir limits the requests of a client, not its connections, and rejects excess requests with \
                      status 429";
        assert_eq!(notes.len(), expected_lines.len(), "{lines}: {notes:?}");
        assert!(notes.iter().all(|note| note.ends_with(reason)), "{notes:?}");
        for (note, line) in notes.iter().zip(*expected_lines) {
            assert!(note.starts_with(&format!("line {line}: ")), "{note}");
        }
    }
}

#[test]
fn rejection_of_clients_with_many_requests_becomes_a_limit() {
    let with_deny = |deny: &str| format!("{TABLE}\n {TRACK}\n {deny}");
    let other_status = "requests above the limit get status 429, and do not count toward the rate";
    for (deny, expected, reasons) in [
        (DENY, "rate 2, burst 20", &[][..]),
        (
            "http-request deny if { sc_http_req_rate(0) gt 20 }",
            "rate 2, burst 20",
            &[other_status],
        ),
        (
            "http-request tarpit deny_status 403 if { sc0_http_req_rate ge 21 }",
            "rate 2, burst 20",
            &[other_status],
        ),
        (
            "http-request reject if { src_http_req_rate gt 20 }",
            "rate 2, burst 20",
            &[other_status],
        ),
        (
            "http-request deny deny_status 429 if { sc_http_req_rate(0) gt 25 }",
            "rate 3, burst 25",
            &["Weir admits 3 per second after the first 25 requests"],
        ),
        (
            "http-request deny deny_status 429 if { sc_http_req_rate(0) gt 100000 }",
            "rate 10000, burst 60000",
            &[],
        ),
        (
            "http-request deny if { sc_http_req_rate(1) gt 20 }",
            "",
            &[],
        ),
        ("http-request deny if { sc_http_req_cnt(0) gt 20 }", "", &[]),
        ("http-request deny if { path /a }", "", &[]),
        (
            "http-request allow if { sc_http_req_rate(0) gt 20 }",
            "",
            &[],
        ),
        (
            "http-response deny if { sc_http_req_rate(0) gt 20 }",
            "",
            &[],
        ),
        (
            "http-request deny if { sc_http_req_rate(0) gt 9999999 }",
            "",
            &[],
        ),
    ] {
        let (keys, lines, notes) = limit_of(&with_deny(deny));
        assert_eq!(keys, expected, "{deny}");
        let expected_lines: &[usize] = if expected.is_empty() { &[] } else { &[5, 4, 3] };
        assert_eq!(lines, expected_lines, "{deny}");
        let reasons = reasons.iter().map(|it| format!("line 5: {deny}: {it}"));
        assert_eq!(notes, reasons.collect::<Vec<_>>(), "{deny}");
    }
}

#[test]
fn request_limit_uses_the_table_of_the_counter_or_the_tracking_rule() {
    let backend = |name: &str, period: &str| {
        format!("backend {name}\n stick-table type ip size 1m store http_req_rate({period})\n")
    };
    let tables = format!("{}{}", backend("one", "1s"), backend("two", "2s"));
    for (track, fetch, expected) in [
        ("src table one", "sc_http_req_rate(0)", "rate 20, burst 20"),
        ("src table two", "sc_http_req_rate(0)", "rate 10, burst 20"),
        ("src", "sc_http_req_rate(0,two)", "rate 10, burst 20"),
        (
            "src table one",
            "sc_http_req_rate(0,two)",
            "rate 10, burst 20",
        ),
        (
            "hdr(X-A) table two",
            "sc_http_req_rate(0)",
            "rate 10, burst 20, key header:X-A",
        ),
        ("src table three", "sc_http_req_rate(0)", ""),
        // The section itself has no table.
        ("src", "sc_http_req_rate(0)", ""),
    ] {
        let deny = format!("http-request deny deny_status 429 if {{ {fetch} gt 20 }}");
        let (keys, lines, notes) = limit_of(&format!(
            "http-request track-sc0 {track}\n {deny}\n{tables}"
        ));
        assert_eq!(keys, expected, "{track} {fetch}");
        let table_line = if expected.contains("rate 20") { 6 } else { 8 };
        let expected_lines = if expected.is_empty() {
            vec![]
        } else {
            vec![4, 3, table_line]
        };
        assert_eq!(lines, expected_lines, "{track} {fetch}");
        assert_eq!(notes, [""; 0], "{track} {fetch}");
    }
    let deny = "http-request deny if { src_conn_cur gt 9 }";
    let (keys, lines, _) = limit_of(&format!("{TABLE}\n {TRACK}\n {DENY}\n {deny}"));
    assert_eq!(keys, "rate 2, burst 20, concurrent 9");
    assert_eq!(lines, [5, 4, 3, 6]);
}

#[test]
fn limits_on_a_changed_address_are_not_limits_of_clients() {
    let set_src = "http-request set-src hdr(a)";
    let deny = "http-request deny deny_status 429 if { src_http_req_rate gt 20 }";
    for (lines, expected) in [
        (
            format!("{TABLE}\n {TRACK}\n {deny}\n {set_src}"),
            "rate 2, burst 20",
        ),
        (format!("{TABLE}\n {TRACK}\n {set_src}\n {deny}"), ""),
        (
            format!("{TABLE}\n {TRACK}\n {set_src}\n {DENY}"),
            "rate 2, burst 20",
        ),
        (format!("{TABLE}\n {set_src}\n {TRACK}\n {DENY}"), ""),
    ] {
        assert_eq!(limit_of(&lines).0, expected, "{lines}");
    }
}

#[test]
fn notes_state_that_limits_are_per_service() {
    let (proxies, mut notes) =
        read("frontend f\n maxconn 9\n http-request deny\n http-request allow\n");
    let line = |number: usize| Position::new(0, number);
    let keys = [
        Entry::new("rate", 2_u64, line(3)),
        Entry::new("burst", 20_u64, line(4)),
        Entry::new("concurrent", 9_u64, line(3)),
    ];
    assert_eq!(notes.unguarded(), [""; 0]);
    note_services(&proxies[0], &keys, &mut notes);
    assert_eq!(
        notes.losses(),
        [format!("line 3: http-request deny: {PER_SERVICE}")]
    );
    // The output still rejects clients.
    assert_eq!(notes.unguarded(), [""; 0]);
    assert_eq!(
        notes.finish(),
        [
            format!("line 2: maxconn 9: {PER_SERVICE}"),
            format!("line 3: http-request deny: {PER_SERVICE}")
        ]
    );
    let (proxies, mut notes) = read("frontend f\n");
    note_services(
        &proxies[0],
        &[Entry::new("concurrent", 9_u64, line(1))],
        &mut notes,
    );
    assert_eq!(
        notes.finish(),
        [format!("line 1: frontend f: {PER_SERVICE}")]
    );
}
