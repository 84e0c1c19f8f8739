//! Tests the dashboard without a browser: headers, access by role, and the values that its script shows.

use std::path::Path;
use std::process::{Command, Stdio};

use super::daemon::AdminDaemon;

/// Sends a request to the Unix socket with these curl arguments. Returns the response, followed by its status code.
fn request_on_socket(daemon: &AdminDaemon, arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sS", "-w", " code=%{http_code}", "--unix-socket"])
        .arg(daemon.directory.join("run/weir.sock"))
        .args(arguments)
        .output()
        .expect("run curl");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn page_needs_no_token_but_its_data_does() {
    let daemon = AdminDaemon::start("tokens = TOKENS\nread_requires_token = true\n");
    let page = daemon.get("/", None);
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let head = page
        .split("\r\n\r\n")
        .next()
        .unwrap_or_default()
        .to_lowercase();
    for header in [
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none'; script-src 'sha256-",
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "x-frame-options: deny",
        "referrer-policy: no-referrer",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
    assert!(!head.contains("unsafe-"), "{head}");
    for path in ["/v1/status", "/v1/caller", "/metrics"] {
        assert!(daemon.get(path, None).starts_with("HTTP/1.1 401"), "{path}");
    }
    let foreign_host = format!(
        "GET / HTTP/1.1\r\nHost: evil.example:{}\r\nConnection: close\r\n\r\n",
        daemon.admin.port()
    );
    assert!(daemon.send_raw(&foreign_host).starts_with("HTTP/1.1 421"));
    for role in ["read", "operate", "write"] {
        let token = daemon.token(role, role);
        assert!(daemon.weir(&["reload"]).0);
        let caller = daemon.get("/v1/caller", Some(&token));
        assert!(
            caller.contains(&format!("{{\"role\":\"{role}\"}}")),
            "{caller}"
        );
        let status = daemon.get("/v1/status", Some(&token));
        assert!(status.contains("\"reloads\":"), "{status}");
    }
}

#[test]
fn requests_from_other_origins_are_rejected() {
    let daemon = AdminDaemon::start("");
    let path = "http://localhost/v1/servers/p/127.0.0.1:1";
    let arguments = ["-d", "{\"state\": \"drain\"}", path];
    let drain_with = |extra: &[&str]| request_on_socket(&daemon, &[extra, &arguments].concat());
    for (fields, code) in [
        (&["-H", "Origin: http://evil.example"][..], "code=403"),
        (&["-H", "Origin: null"], "code=403"),
        (&["-H", "Host: evil.example"], "code=421"),
    ] {
        let text = drain_with(fields);
        assert!(text.ends_with(code), "{fields:?}: {text}");
    }
    assert!(
        daemon
            .weir(&["status", "--json"])
            .1
            .contains("\"state\": \"unchecked\"")
    );
    // The request comes from the page itself, opened through a forwarded port.
    let text = drain_with(&["-H", "Origin: http://localhost"]);
    assert!(text.ends_with("code=200"), "{text}");
    assert!(
        daemon
            .weir(&["status", "--json"])
            .1
            .contains("\"state\": \"drain\"")
    );
    // Over TCP, the page has no token.
    let response = daemon.send_raw(&format!(
        "POST /v1/servers/p/127.0.0.1:1 HTTP/1.1\r\nHost: {0}\r\nOrigin: http://{0}\r\nConnection: close\r\n\
         Content-Length: 18\r\n\r\n{{\"state\": \"ready\"}}",
        daemon.admin
    ));
    assert!(response.starts_with("HTTP/1.1 401"), "{response}");
}

/// Runs the page's script without a browser and returns what it displays for a status document.
fn script_output(status: &str) -> serde_json::Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = root.join("../weir-control/src/dashboard/app.js");
    let output = Command::new("node")
        .arg(root.join("tests/admin/dashboard.js"))
        .arg(script)
        .arg(status)
        .stdin(Stdio::null())
        .output()
        .expect("run node");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_str(&text).expect("parse the output")
}

#[test]
fn certificates_are_sorted_by_expiry() {
    let daemon = AdminDaemon::start("");
    let (_, status) = daemon.weir(&["status", "--json"]);
    let mut status: serde_json::Value = serde_json::from_str(&status).expect("parse the output");
    let certificate = |file: &str, days: i64| {
        serde_json::json!({
            "file": file, "not_after": "2027-01-01T00:00:00Z", "not_after_s": days * 86_400, "days_left": days,
        })
    };
    status["services"][0]["certificates"] = serde_json::json!([
        certificate("/later.pem", 60),
        certificate("/soon.pem", 13),
        certificate("/past.pem", -1)
    ]);
    let page = script_output(&status.to_string());
    assert_eq!(page["problem"], "", "{page:#}");
    assert_eq!(page["hidden"], false, "{page:#}");
    let row =
        |file: &str, days: &str| serde_json::json!(["s", "–", file, "2027-01-01T00:00:00Z", days]);
    let rows = [
        row("/past.pem", "-1"),
        row("/soon.pem", "13"),
        row("/later.pem", "60"),
    ];
    assert_eq!(page["certificates"], serde_json::json!(rows), "{page:#}");
    let marks = serde_json::json!(["number down", "number warning", "number "]);
    assert_eq!(page["marks"], marks, "{page:#}");
}

/// Runs the page's script without a browser on the documents of this daemon.
#[test]
fn script_shows_the_values_of_the_status() {
    let daemon = AdminDaemon::start_with(
        "",
        "\"127.0.0.1:1\", { address = \"127.0.0.1:2\", weight = 3 }",
    );
    assert!(daemon.weir(&["server", "p/127.0.0.1:2", "drain"]).0);
    let (_, status) = daemon.weir(&["status", "--json"]);
    let page = script_output(&status);
    assert_eq!(page["hidden"], true, "no certificates: {page:#}");
    let status: serde_json::Value = serde_json::from_str(&status).expect("parse the output");
    assert_eq!(
        page["summary"], "revision 1, 1 service, 2 servers: 1 drain, 1 unchecked",
        "{page:#}"
    );
    let servers = status["services"][0]["servers"]
        .as_array()
        .expect("servers is not an array");
    let rows = page["rows"].as_array().expect("rows is not an array");
    assert_eq!(rows.len(), servers.len());
    for server in servers {
        let row = rows
            .iter()
            .find(|row| row["address"] == server["address"])
            .expect("row not found");
        for (field, name) in [
            ("state", "state"),
            ("reason", "reason"),
            ("since", "since"),
            ("active", "active_connections"),
        ] {
            assert_eq!(row[field], server[name], "{field}");
        }
    }
    assert_eq!(
        rows[0]["address"], "127.0.0.1:2",
        "drained servers must be first"
    );
    assert_eq!(rows[0]["weight"], "0/3");
    assert_eq!(
        page["posted"][0], "v1/servers/p/127.0.0.1%3A2 {\"state\":\"maint\"} X-None",
        "{page:#}"
    );
    assert_eq!(page["problem"], "");
    // The points that the director recorded before the page was opened precede those that the page itself records.
    assert_eq!(page["history"], 1, "{page:#}");
    assert!(page["times"].as_u64() > Some(1), "{page:#}");
}
