//! Compares `docs/manual/openapi.json` with the daemon's responses.
//!
//! Each operation is tested with valid, invalid and forbidden requests.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::daemon::{AdminDaemon, Response, connect_from};

/// Maximum size of a request body in bytes; the second limit is for bodies that contain a configuration.
const MAX_BODY: usize = 64 * 1024;
const MAX_TEXT_BODY: usize = 4 << 20;

fn openapi() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/openapi.json");
    serde_json::from_str(&fs::read_to_string(path).expect("read the file"))
        .expect("document is valid JSON")
}

/// An operation in the document.
struct Operation {
    /// The method in upper case.
    method: String,
    /// The path, with parameters in the form `{name}`.
    template: String,
    role: String,
    has_body: bool,
    responses: Value,
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut all_operations = Vec::new();
    for (template, methods) in document["paths"].as_object().expect("paths is an object") {
        for (method, operation) in methods.as_object().expect("methods is an object") {
            all_operations.push(Operation {
                method: method.to_uppercase(),
                template: template.clone(),
                role: operation["x-role"]
                    .as_str()
                    .expect("role is a string")
                    .to_owned(),
                has_body: operation["requestBody"].is_object(),
                responses: operation["responses"].clone(),
            });
        }
    }
    assert!(
        all_operations.len() >= 20,
        "{} operations",
        all_operations.len()
    );
    all_operations
}

impl Operation {
    /// Returns the path with the test's server and service.
    fn path(&self) -> String {
        self.template
            .replace("{pool}/{address}", "p/127.0.0.1:1")
            .replace("{service}", "s")
    }

    fn name(&self) -> String {
        format!("{} {}", self.method, self.template)
    }

    fn max_body(&self) -> usize {
        match self.template.as_str() {
            "/v1/plan" | "/v1/reload" | "/v1/cluster/publish" => MAX_TEXT_BODY,
            _ => MAX_BODY,
        }
    }

    /// Asserts that the document describes the response: status code, content type and body fields.
    fn assert_described(&self, document: &Value, response: &Response, case: &str) {
        let code = response.code();
        let described = &self.responses[code.to_string()];
        let context = format!("{}, {case}: {}", self.name(), response.0);
        assert!(
            described.is_object(),
            "status code is not described: {context}"
        );
        let kind = response.header("content-type").unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default();
        let content = &described["content"][kind];
        assert!(
            content.is_object(),
            "content type is not described: {context}"
        );
        if kind == "application/json" {
            let body: Value = serde_json::from_str(response.body()).expect(&context);
            assert_matches_schema(document, &content["schema"], &body, &context);
        }
    }
}

/// Asserts that a value matches a schema. Supports only the part of JSON Schema that the document uses.
fn assert_matches_schema(document: &Value, schema: &Value, value: &Value, context: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().expect("text contains a name");
        let schema = &document["components"]["schemas"][name];
        return assert_matches_schema(document, schema, value, context);
    }
    let has_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        None => true,
        Some(other) => panic!("type {other} is not supported"),
    };
    assert!(
        has_type,
        "{value} is not of type {}: {context}",
        schema["type"]
    );
    if let Some(choices) = schema["enum"].as_array() {
        assert!(choices.contains(value), "{value}: {context}");
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        let key = required.as_str().expect("name is a string");
        assert!(value.get(key).is_some(), "{key} is missing: {context}");
    }
    for (key, field) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(key) {
            Some(schema) => assert_matches_schema(document, schema, field, context),
            None => assert_ne!(
                schema["additionalProperties"], false,
                "{key} is not described: {context}"
            ),
        }
    }
    for item in value.as_array().into_iter().flatten() {
        assert_matches_schema(document, &schema["items"], item, context);
    }
}

/// Starts a daemon that requires tokens. Returns it with a token for each role.
fn daemon() -> (AdminDaemon, [(&'static str, String); 3]) {
    let daemon = AdminDaemon::start("tokens = TOKENS\nread_requires_token = true\n");
    let tokens = ["read", "operate", "write"].map(|role| (role, daemon.token(role, role)));
    let (reloaded, printed) = daemon.weir(&["reload"]);
    assert!(reloaded, "{printed}");
    (daemon, tokens)
}

#[test]
fn rejections_match_the_openapi_document() {
    let document = openapi();
    let (daemon, tokens) = daemon();
    let write = Some(tokens[2].1.as_str());
    let ranks = ["none", "read", "operate", "write", "owner"];
    let rank = |role: &str| {
        ranks
            .iter()
            .position(|it| *it == role)
            .expect("the role should exist")
    };
    for operation in operations(&document) {
        let (method, path) = (operation.method.as_str(), operation.path());
        let check = |response: &Response, code: u16, case: &str| {
            let name = operation.name();
            assert_eq!(response.code(), code, "{name}, {case}: {}", response.0);
            operation.assert_described(&document, response, case);
        };
        let unknown = Some("0123456789abcdef0123456789abcdef");
        let response = daemon.fetch(method, &path, unknown, "");
        check(&response, 401, "an unknown token");
        if operation.role != "none" {
            let response = daemon.fetch(method, &path, None, "");
            check(&response, 401, "no token");
        }
        for (role, token) in &tokens {
            if rank(role) < rank(&operation.role) {
                let response = daemon.fetch(method, &path, Some(token), "");
                check(&response, 403, "a lower role");
            }
        }
        let line = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        let host = format!("Host: {}\r\n", daemon.admin);
        let raw = |fields: &str| Response(daemon.send_raw(&format!("{line}{fields}\r\n")));
        check(&raw("Host: evil.example\r\n"), 421, "a different host");
        check(&raw(&format!("{host}{host}")), 400, "two hosts");
        let origin = format!("{host}Origin: http://evil.example\r\n");
        check(&raw(&origin), 403, "a different origin");
        let large_body = "x".repeat(operation.max_body() + 1);
        let response = daemon.fetch(method, &path, write, &large_body);
        check(&response, 413, "a large body");
        if operation.has_body && operation.role != "owner" {
            for body in ["{", "[]", "{\"no_such_key\": 1}"] {
                let response = daemon.fetch(method, &path, write, body);
                let code = response.code();
                assert!(
                    [400, 422].contains(&code),
                    "{method} {path}: {}",
                    response.0
                );
                operation.assert_described(&document, &response, body);
            }
        }
    }
}

/// Placeholder for a body that contains the configuration as text.
const TEXT: &str = "TEXT";

/// Path template for a server.
const SERVER: &str = "/v1/servers/{pool}/{address}";

/// Method, path template in the document, path and query, body, and expected status code.
const CASES: &[(&str, &str, &str, &str, u16)] = &[
    ("GET", "/", "/", "", 200),
    ("GET", "/v1/caller", "/v1/caller", "", 200),
    ("GET", "/v1/status", "/v1/status", "", 200),
    ("GET", "/metrics", "/metrics", "", 200),
    ("GET", "/v1/history", "/v1/history", "", 200),
    ("GET", "/v1/history", "/v1/history?service=s", "", 200),
    ("GET", "/v1/history", "/v1/history?servce=s", "", 400),
    (
        "GET",
        "/v1/history",
        "/v1/history?service=s&service=t",
        "",
        400,
    ),
    (
        "POST",
        "/v1/explain",
        "/v1/explain",
        "{\"request\": \"GET http://127.0.0.1/\"}",
        200,
    ),
    (
        "POST",
        "/v1/explain",
        "/v1/explain",
        "{\"request\": \"nonsense\"}",
        422,
    ),
    ("POST", "/v1/explain", "/v1/explain", "{}", 422),
    ("POST", "/v1/plan", "/v1/plan", "", 200),
    ("POST", "/v1/plan", "/v1/plan", TEXT, 200),
    ("POST", "/v1/reload", "/v1/reload", TEXT, 200),
    ("POST", "/v1/reload", "/v1/reload", "", 200),
    (
        "POST",
        "/v1/reload",
        "/v1/reload",
        "{\"path\": \"/etc/x\"}",
        403,
    ),
    ("POST", "/v1/ipvsadm", "/v1/ipvsadm", "\"listing\"", 422),
    (
        "POST",
        "/v1/upgrade",
        "/v1/upgrade",
        "{\"program\": \"/bin/true\"}",
        403,
    ),
    ("GET", SERVER, "/v1/servers/p/127.0.0.1:1", "", 200),
    ("GET", SERVER, "/v1/servers/p/127.0.0.77", "", 422),
    ("GET", SERVER, "/v1/servers/p/%ff", "", 400),
    (
        "POST",
        SERVER,
        "/v1/servers/p/127.0.0.1:1",
        "{\"weight\": 2}",
        200,
    ),
    (
        "POST",
        SERVER,
        "/v1/servers/p/127.0.0.1:1",
        "{\"state\": \"drain\"}",
        200,
    ),
    (
        "POST",
        SERVER,
        "/v1/servers/p/127.0.0.1:1",
        "{\"weight\": 65536}",
        422,
    ),
    (
        "POST",
        SERVER,
        "/v1/servers/%ff/127.0.0.1:1",
        "{\"weight\": 2}",
        400,
    ),
    ("PUT", SERVER, "/v1/servers/p/127.0.0.9:1", "", 200),
    (
        "PUT",
        SERVER,
        "/v1/servers/p/127.0.0.9:1",
        "{\"weight\": 3}",
        200,
    ),
    ("PUT", SERVER, "/v1/servers/p/x%ff", "", 400),
    ("DELETE", SERVER, "/v1/servers/p/127.0.0.9:1", "", 200),
    ("DELETE", SERVER, "/v1/servers/p/127.0.0.1:1", "", 422),
    ("DELETE", SERVER, "/v1/servers/p/%ff", "", 400),
    (
        "POST",
        "/v1/node",
        "/v1/node",
        "{\"state\": \"ready\"}",
        200,
    ),
    ("GET", "/v1/cluster", "/v1/cluster", "", 422),
    (
        "POST",
        "/v1/cluster/publish",
        "/v1/cluster/publish",
        "{\"text\": \"\"}",
        422,
    ),
    ("GET", "/v1/log", "/v1/log", "", 200),
    ("POST", "/v1/log", "/v1/log", "{\"filter\": \"info\"}", 200),
    ("POST", "/v1/log", "/v1/log", "{\"filter\": \"loud\"}", 422),
    ("GET", "/v1/tap/{service}", "/v1/tap/none", "", 404),
    ("GET", "/v1/tap/{service}", "/v1/tap/s?mach=x", "", 422),
    ("GET", "/v1/tap/{service}", "/v1/tap/%ff", "", 400),
];

#[test]
fn responses_match_the_openapi_document() {
    let document = openapi();
    let (daemon, tokens) = daemon();
    let token = Some(tokens[2].1.as_str());
    let operations = operations(&document);
    let text = fs::read_to_string(daemon.config()).expect("read the file");
    let text = json!({ "text": text, "color": false }).to_string();
    let mut called_operations = Vec::new();
    for &(method, template, path, body, code) in CASES {
        let body = if body == TEXT { &text } else { body };
        let mut all = operations.iter();
        let operation = all.find(|it| it.method == method && it.template == template);
        let operation = operation.unwrap_or_else(|| panic!("{method} {template}"));
        let response = daemon.fetch(method, path, token, body);
        let case = format!("{path} {body}");
        assert_eq!(response.code(), code, "{method} {case}: {}", response.0);
        operation.assert_described(&document, &response, &case);
        called_operations.push(operation.name());
    }
    for operation in &operations {
        assert!(
            called_operations.contains(&operation.name()),
            "{}",
            operation.name()
        );
    }
}

#[test]
fn responses_to_unknown_paths_and_methods_match_the_document() {
    let document = openapi();
    let (daemon, tokens) = daemon();
    let write = tokens[2].1.as_str();
    let api_error = json!({ "$ref": "#/components/schemas/ApiError" });
    let operations = operations(&document);
    for operation in &operations {
        let path = operation.path();
        let mut allowed: Vec<&str> = operations
            .iter()
            .filter(|it| it.template == operation.template)
            .map(|it| it.method.as_str())
            .collect();
        if allowed.contains(&"GET") {
            allowed.push("HEAD");
        }
        allowed.sort_unstable();
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
            if allowed.contains(&method) {
                continue;
            }
            let response = daemon.fetch(method, &path, Some(write), "");
            let context = format!("{method} {path}: {}", response.0);
            assert_eq!(response.code(), 405, "{context}");
            let allow = response.header("allow").expect(&context);
            let mut allow: Vec<&str> = allow.split(',').map(str::trim).collect();
            allow.sort_unstable();
            assert_eq!(allow, allowed, "{context}");
            let body = serde_json::from_str(response.body()).expect(&context);
            assert_matches_schema(&document, &api_error, &body, &context);
        }
    }
    for path in [
        "/healthz",
        "/v1",
        "/v1/",
        "/v1/status/",
        "/v1/servers/p",
        "/v2/status",
        "/stats",
    ] {
        let response = daemon.fetch("GET", path, Some(write), "");
        let context = format!("{path}: {}", response.0);
        assert_eq!(response.code(), 404, "{context}");
        let body: Value = serde_json::from_str(response.body()).expect(&context);
        assert_matches_schema(&document, &api_error, &body, &context);
        assert!(
            body["error"]
                .as_str()
                .expect("value is a string")
                .contains("/v1/status"),
            "{context}"
        );
    }
    // The HTTP library enforces these limits, so the response has the right status code but no body.
    let field = format!("X: {}\r\n", "x".repeat(500 * 1024));
    let line = format!("GET /v1/status HTTP/1.1\r\nHost: {}\r\n", daemon.admin);
    let response = daemon.send_raw(&format!("{line}{field}\r\n"));
    assert!(response.starts_with("HTTP/1.1 431"), "{response}");
}

#[test]
fn tap_response_has_the_requested_type() {
    let document = openapi();
    let (daemon, tokens) = daemon();
    let operation = operations(&document);
    let operation = operation
        .iter()
        .find(|it| it.template == "/v1/tap/{service}");
    let operation = operation.expect("the operation of the tap should exist");
    for (query, expected) in [
        ("", "text/plain"),
        ("?json=false", "text/plain"),
        ("?json", "application/x-ndjson"),
        ("?json=true", "application/x-ndjson"),
    ] {
        let mut stream = connect_from(1, daemon.admin);
        let limit = Duration::from_secs(10);
        stream
            .set_read_timeout(Some(limit))
            .expect("set the read timeout");
        let request = format!(
            "GET /v1/tap/s{query} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            daemon.admin, tokens[1].1
        );
        stream.write_all(request.as_bytes()).expect("send");
        // The response body is endless.
        let mut head = String::new();
        let mut lines = BufReader::new(Read::by_ref(&mut stream));
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(
                lines.read_line(&mut head).expect("read a line"),
                0,
                "{head}"
            );
        }
        let response = Response(head);
        assert_eq!(response.code(), 200, "{query}: {}", response.0);
        operation.assert_described(&document, &response, query);
        let kind = response
            .header("content-type")
            .expect("response has a content type");
        assert!(kind.starts_with(expected), "{query}: {kind}");
    }
}
