//! Tests rules of haproxy.cfg that change the client's address: later conditions on `src` have no exact equivalent.

use weir_import::{EmptyEnvironment, Imported, haproxy};

const SET_SRC: &str = "http-request set-src hdr_ip(x-forwarded-for) if { src 127.0.55.0/24 }";
const TAIL: &str = "default_backend app\nuserlist u\n user anna insecure-password geheim\n\
                    backend app\n server a 10.0.0.5:80\nbackend other\n server b 10.0.0.6:80\n";

/// Imports a frontend with these lines, starting at line 5.
fn import_frontend(lines: &[&str]) -> Imported {
    let text = format!(
        "defaults\n mode http\nfrontend web\n bind :80\n {}\n {TAIL}",
        lines.join("\n ")
    );
    haproxy("haproxy.cfg", &text, &EmptyEnvironment)
}

/// Returns the keys of the first route, except for `service`.
fn first_route(imported: &Imported) -> String {
    let toml = &imported.toml;
    let route = toml.split("[[route]]").nth(1).unwrap_or_default();
    let keys = route
        .lines()
        .take_while(|line| !line.starts_with(['#', '[']))
        .filter(|line| !line.is_empty() && !line.starts_with("service"));
    keys.collect::<Vec<_>>().join("; ")
}

/// Returns whether a loss is reported for this line.
fn is_lost(imported: &Imported, line: usize) -> bool {
    let prefix = format!("line {line}: ");
    imported.losses.iter().any(|note| note.starts_with(&prefix))
}

#[test]
fn deny_rule_after_source_change_rejects_all_possible_matches() {
    for (rule, expected) in [
        ("http-request deny if { src 9.9.9.0/24 }", "status = 403"),
        (
            "http-request deny unless { src 9.9.9.0/24 }",
            "status = 403",
        ),
        ("http-request deny if !{ src 9.9.9.0/24 }", "status = 403"),
        (
            "http-request deny if { src 9.9.9.0/24 } { path /a }",
            "path = \"/a\"; status = 403",
        ),
        ("http-request deny if LOCALHOST", "status = 403"),
        ("http-request tarpit if { src 9.9.9.0/24 }", "status = 500"),
        ("http-request reject if { src 9.9.9.0/24 }", "close = true"),
        (
            "http-request return status 403 if { src 9.9.9.0/24 }",
            "status = 403",
        ),
        (
            "http-request auth realm x if !{ http_auth(missing) } { src 9.9.9.0/24 }",
            "status = 401",
        ),
    ] {
        let imported = import_frontend(&[SET_SRC, rule]);
        assert!(is_lost(&imported, 5) && is_lost(&imported, 6), "{rule}");
        assert_eq!(first_route(&imported), expected, "{rule}");
    }
    let imported = import_frontend(&[SET_SRC, "http-request deny if { src 9.9.9.0/24 }"]);
    assert_eq!(imported.unguarded.len(), 1, "{:#?}", imported.unguarded);
}

#[test]
fn acl_is_exact_only_before_source_change() {
    let acl = "acl office src 9.9.9.0/24";
    let imported = import_frontend(&[acl, SET_SRC, "http-request deny if office"]);
    assert_eq!(first_route(&imported), "status = 403");
    assert!(is_lost(&imported, 7));
    let imported = import_frontend(&[acl, "http-request deny if office", SET_SRC]);
    assert_eq!(
        first_route(&imported),
        "source = [\"9.9.9.0/24\"]; status = 403"
    );
    assert!(!is_lost(&imported, 6));
    // haproxy evaluates `tcp-request connection` rules first.
    let reject = "tcp-request connection reject if office";
    let imported = import_frontend(&[acl, SET_SRC, reject]);
    assert_eq!(
        first_route(&imported),
        "source = [\"9.9.9.0/24\"]; close = true"
    );
}

#[test]
fn every_source_change_is_detected() {
    let deny = "http-request deny if { src 9.9.9.0/24 }";
    for change in [
        "tcp-request connection set-src hdr_ip(x)",
        "tcp-request session set-src src,ipmask(24)",
        "tcp-request content set-src hdr_ip(x-forwarded-for)",
        "tcp-request connection expect-proxy layer4 if { src 10.0.0.0/8 }",
        "bind :81 accept-netscaler-cip 1",
    ] {
        // The order of the lines does not matter: the stage of the change precedes that of the rule.
        for lines in [[change, deny], [deny, change]] {
            let imported = import_frontend(&lines);
            assert_eq!(first_route(&imported), "status = 403", "{change}");
        }
    }
    let text = format!(
        "defaults d\n mode http\n {SET_SRC}\nfrontend web from d\n bind :80\n {deny}\n {TAIL}"
    );
    let imported = haproxy("haproxy.cfg", &text, &EmptyEnvironment);
    assert_eq!(first_route(&imported), "status = 403");
    assert!(is_lost(&imported, 3) && is_lost(&imported, 6));
}

#[test]
fn source_change_in_frontend_or_backend_affects_backend_rules() {
    let deny = "http-request deny if { src 9.9.9.0/24 }";
    let exact = "source = [\"9.9.9.0/24\"]; status = 403";
    for (frontend, backend, expected) in [
        ("", "", exact),
        (SET_SRC, "", "status = 403"),
        ("", SET_SRC, "status = 403"),
    ] {
        let text = format!(
            "defaults\n mode http\nfrontend web\n bind :80\n {frontend}\n default_backend app\n\
             backend app\n {backend}\n {deny}\n server a 10.0.0.5:80\n"
        );
        let imported = haproxy("haproxy.cfg", &text, &EmptyEnvironment);
        assert_eq!(first_route(&imported), expected, "{frontend} {backend}");
        assert_eq!(is_lost(&imported, 9), expected != exact);
    }
}

#[test]
fn rules_that_use_a_changed_source_are_lost() {
    let imported = import_frontend(&[SET_SRC, "use_backend other if { src 9.9.9.0/24 }"]);
    assert!(!imported.toml.contains("source ="), "{}", imported.toml);
    assert!(is_lost(&imported, 6));
    let allow = "http-request allow if { src 9.9.9.0/24 }";
    let deny = "http-request deny if { path /a }";
    let imported = import_frontend(&[SET_SRC, allow, deny]);
    assert_eq!(first_route(&imported), "path = \"/a\"; status = 403");
    assert!(is_lost(&imported, 7));
    let imported = import_frontend(&[allow, SET_SRC, deny]);
    assert!(first_route(&imported).contains("not = { source = [\"9.9.9.0/24\"] }"));
    assert!(!is_lost(&imported, 7));
    let set_header = "http-request set-header X-Client %[src]";
    let imported = import_frontend(&[SET_SRC, set_header]);
    assert!(is_lost(&imported, 6));
}

#[test]
fn password_is_required_from_all_clients_if_the_condition_is_unknown() {
    let auth = "http-request auth realm x if !{ http_auth(u) } { src 9.9.9.0/24 }";
    let imported = import_frontend(&[SET_SRC, auth]);
    assert!(first_route(&imported).contains("basic_auth"));
    assert!(!imported.toml.contains("source ="), "{}", imported.toml);
    assert!(is_lost(&imported, 6));
}

#[test]
fn limit_on_changed_addresses_is_not_imported() {
    let table = "stick-table type ip size 1m expire 30s store http_req_rate(10s)";
    let track = "http-request track-sc0 src";
    let deny = "http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }";
    let imported = import_frontend(&[table, SET_SRC, track, deny]);
    assert!(!imported.toml.contains("rate ="), "{}", imported.toml);
    assert!(!imported.toml.contains("status = 429"), "{}", imported.toml);
    assert!(is_lost(&imported, 8));
    assert_eq!(imported.unguarded.len(), 1, "{:#?}", imported.unguarded);
    let imported = import_frontend(&[table, track, SET_SRC, deny]);
    assert!(imported.toml.contains("rate = 2"), "{}", imported.toml);
}

#[test]
fn rule_with_lost_limit_rejects_only_by_its_other_conditions() {
    for (rule, expected) in [
        ("http-request deny if { src_conn_cur gt 9 }", ""),
        ("http-request deny unless { src_conn_cur lt 9 }", ""),
        ("http-request tarpit if { sc_http_req_rate(0) gt 9 }", ""),
        (
            "http-request deny if { path /a } { sc_get_gpc0(0) gt 0 }",
            "",
        ),
        (
            "http-request deny if { path /a } or { src_conn_rate gt 9 }",
            "path = \"/a\"; status = 403",
        ),
        (
            "http-request deny unless { path /a } { src_conn_rate le 9 }",
            "not = { path = [\"/a\"] }; status = 403",
        ),
        // The result of a condition on the changed address is unknown, but must not admit clients.
        (
            "http-request deny if { src 9.9.9.0/24 } or { src_conn_rate gt 9 }",
            "status = 403",
        ),
        (
            "http-request deny if { src 9.9.9.0/24 } { src_conn_rate gt 9 }",
            "",
        ),
        (
            "http-request deny unless { sc_get_gpt0(0) gt 0 }",
            "status = 403",
        ),
    ] {
        let imported = import_frontend(&[SET_SRC, rule]);
        assert_eq!(first_route(&imported), expected, "{rule}");
        assert!(is_lost(&imported, 6), "{rule}");
        let unguarded = &imported.unguarded;
        assert_eq!(unguarded.len(), 1, "{rule}: {unguarded:#?}");
    }
    let allow = "http-request allow if { src_conn_rate lt 9 }";
    let imported = import_frontend(&[allow, "http-request deny"]);
    assert_eq!(first_route(&imported), "");
    assert!(is_lost(&imported, 6));
}
