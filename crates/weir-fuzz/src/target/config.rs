//! Fuzzes configuration files and server lists.

use weir_config::{Host, members, parse, parse_json, render};

use super::texts;

/// Parses `weir.toml`, and renders its errors.
pub(super) fn toml(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Err(problems) = parse(text, &Host::default()) {
        assert!(!problems.is_empty(), "rejected without a reason");
        let _ = render(&problems, text, "weir.toml", false);
    }
}

/// Parses a configuration in JSON, and renders its errors.
pub(super) fn json(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Err(problems) = parse_json(text, &Host::default()) {
        assert!(!problems.is_empty(), "rejected without a reason");
        let _ = render(&problems, text, "weir.json", false);
    }
}

/// Parses a server list that another program wrote.
pub(super) fn list(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = members(text);
    }
}

pub(super) fn toml_seeds() -> Vec<Vec<u8>> {
    texts(&[
        r#"[node]
interfaces = ["lo"]
[pool.web]
scheduler = { name = "mh", flags = ["mh-port"] }
servers = ["10.0.0.5", { address = "10.0.0.6", weight = 2, max_connections = 5 }]
[pool.web.check]
kind = "http"
expect = { status = "200-299", body = "Up" }
interval = "2s"
[service.web]
listen = ["192.0.2.10:80", "udp/[2001:db8::1]:*", "fwmark/3"]
forward = "direct"
pool = "web"
persistence = { timeout = "5m", netmask = 24 }
"#,
        r#"[pool.a]
servers = ["127.0.0.1:8080"]
[service.www]
listen = ["0.0.0.0:8080"]
forward = "proxy"
protocol = "http"
pool = "a"
limits = { body = "10MiB", concurrent = 5 }
[[route]]
service = "www"
host = "static.example"
path = "/img/*"
pool = "a"
set_header = { X-A = "b" }
"#,
    ])
}

pub(super) fn json_seeds() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"pool":{"a":{"servers":["10.0.0.1"]}},"service":{"s":{"listen":["192.0.2.1:80"],"forward":"nat","pool":"a"}}}"#,
    ])
}

pub(super) fn list_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "10.0.0.5:80 weight=2 # a\n[2001:db8::5]:80\n",
        r#"["10.0.0.5", {"address": "10.0.0.6:81", "weight": 3}]"#,
        r#"{"servers": []}"#,
    ])
}
