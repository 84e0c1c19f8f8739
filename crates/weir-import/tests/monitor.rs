//! Tests the import of haproxy's `monitor-uri`.
//!
//! haproxy responds to these requests before all rules, and neither limits nor logs them.

use weir_import::{EmptyEnvironment, Imported, haproxy};

/// Imports a frontend with these lines, starting at line 5.
fn import_frontend(lines: &str) -> Imported {
    let text = format!(
        "defaults\n mode http\nfrontend web\n bind :80\n {lines}\n default_backend app\n\
         backend app\n server a 10.0.0.5:80\n"
    );
    let imported = haproxy("haproxy.cfg", &text, &EmptyEnvironment);
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    imported
}

#[test]
fn monitor_response_has_haproxy_header_fields() {
    let imported = import_frontend("http-request deny\n monitor-uri /up");
    let route = imported.toml.split("[[route]]").nth(1).unwrap_or_default();
    assert!(route.contains("path = \"/up\"\nstatus = 200"), "{route}");
    let fields = "set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]";
    assert!(route.contains(fields), "{route}");
    assert!(imported.losses.is_empty(), "{:#?}", imported.losses);
}

#[test]
fn limits_that_apply_to_the_monitor_are_reported() {
    for limit in [
        "stick-table type ip size 1m expire 30s store http_req_rate(10s)\n http-request track-sc0 src\n \
         http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }",
        "tcp-request connection reject if { src_conn_cur gt 9 }",
    ] {
        let imported = import_frontend(&format!("monitor-uri /up\n {limit}"));
        assert!(imported.toml.contains("limits ="), "{}", imported.toml);
        let mut losses = imported.losses.iter();
        let is_noted = |note: &String| note.starts_with("line 5: ") && note.contains("429");
        assert!(losses.any(is_noted), "{:#?}", imported.losses);
    }
}

#[test]
fn monitor_that_is_not_imported_is_a_loss() {
    for line in [
        "monitor-uri /up?full",
        "monitor-uri /up\n monitor fail if { nbsrv(app) lt 1 }",
        "monitor-net localhost",
    ] {
        let imported = import_frontend(line);
        assert_eq!(imported.losses.len(), 1, "{line}: {:#?}", imported.losses);
    }
    let text = "listen x\n mode tcp\n bind :80\n monitor-uri /up\n server a 10.0.0.5:80\n";
    let imported = haproxy("haproxy.cfg", text, &EmptyEnvironment);
    assert!(imported.losses.is_empty(), "{:#?}", imported.losses);
}
