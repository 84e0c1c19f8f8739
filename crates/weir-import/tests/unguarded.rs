//! Tests that lost lines that restrict access are reported as unguarded, and that the imported file rejects the clients
//! that they could affect.

use weir_import::{EmptyEnvironment, Imported, haproxy, nginx};

/// Returns the numbers of the lines that are reported as unguarded.
fn unguarded_lines(imported: &Imported) -> Vec<usize> {
    for note in &imported.unguarded {
        assert!(imported.notes.contains(note), "{note}");
    }
    let number = |note: &String| {
        let text = note
            .strip_prefix("line ")
            .expect("note begins with its line");
        text.split(':')
            .next()
            .unwrap_or("")
            .parse()
            .expect("parse the line number")
    };
    let mut lines: Vec<usize> = imported.unguarded.iter().map(number).collect();
    lines.dedup();
    lines
}

/// Imports a frontend with these lines, starting at line 6.
fn import_frontend(lines: &[&str]) -> Imported {
    let text = format!(
        "defaults\n mode http\nfrontend web\n bind :80\n acl internal src 10.0.0.0/8\n {}\n \
         default_backend app\nbackend app\n server a 10.0.0.5:80\n",
        lines.join("\n ")
    );
    haproxy("haproxy.cfg", &text, &EmptyEnvironment)
}

/// Imports a server block with these lines, starting at line 4.
fn import_server(lines: &[&str]) -> Imported {
    let text = format!(
        "upstream app {{ server 10.0.0.5:80; }}\nserver {{\nlisten 80; proxy_set_header Host $host;\n{}\n\
         location / {{ proxy_pass http://app; }}\n}}\n",
        lines.join("\n")
    );
    nginx("nginx.conf", &text, &EmptyEnvironment)
}

#[test]
fn lost_access_rules_of_haproxy_are_reported_as_unguarded() {
    for line in [
        "http-request deny if { req.hdr_cnt(content-length) gt 1 }",
        "http-request auth realm staff unless internal",
        "http-request reject if { src -f nowhere }",
        "http-request silent-drop if { sc_http_req_rate(0) gt 100 }",
        "http-request del-header X-User if { src_conn_rate gt 10 }",
        "tcp-request content reject if { src_conn_rate gt 10 }",
        "http-response deny if { res.hdr(x-secret) -m found }",
        "http-request deny if \"internal",
        // The query can contain the text, but a route's path does not include the query.
        "http-request tarpit if { url_sub -i select }",
    ] {
        let imported = import_frontend(&[line]);
        assert_eq!(
            unguarded_lines(&imported),
            [6],
            "{line}: {:#?}",
            imported.notes
        );
    }
}

#[test]
fn imported_lines_are_not_reported_as_unguarded() {
    let imported = import_frontend(&[
        "http-request deny if { path_beg /admin }",
        "http-request deny if internal",
        "http-request deny if { path_beg /admin } !internal",
        "http-request deny if { hdr(user-agent) -i BadBot }",
        "http-request tarpit if { path_sub -i select } !internal",
        "http-request silent-drop if { path /x }",
        "tcp-request connection reject if !internal",
        "block if internal",
        "use_backend app if !internal",
        "use_backend app if { hdr(host) -i a.example }",
        "option httplog",
        "http-response del-header Server if internal",
    ]);
    assert_eq!(
        unguarded_lines(&imported),
        [0; 0],
        "{:#?}",
        imported.unguarded
    );
    assert!(!imported.notes.is_empty());
    let imported = import_server(&[
        "location /a { allow 10.0.0.0/8; deny all; proxy_pass http://app; }",
        "location = /b { return 403; }",
        "location /c { limit_except GET { deny all; } proxy_pass http://app; }",
        "location /d { internal; }",
        "location /e { location /e/f { deny all; } proxy_pass http://app; }",
        "if ($http_user_agent ~* bot) { return 403; }",
        "access_log /var/log/a;",
    ]);
    assert_eq!(
        unguarded_lines(&imported),
        [0; 0],
        "{:#?}",
        imported.unguarded
    );
}

#[test]
fn lost_access_directives_of_nginx_are_reported_as_unguarded() {
    for line in [
        "auth_request /auth;",
        "satisfy any;",
        "location /a { deny office.example; proxy_pass http://app; }",
        "location /a { location ~ b$ { deny all; } proxy_pass http://app; }",
        "location /a { limit_req zone=one; proxy_pass http://app; }",
        "location @a { deny all; }",
        "valid_referers none example.com;",
        "ssl_crl /etc/crl.pem;",
    ] {
        let imported = import_server(&[line]);
        assert_eq!(
            unguarded_lines(&imported),
            [4],
            "{line}: {:#?}",
            imported.notes
        );
    }
}

/// Returns the status of the route for `/files`.
fn route_status(toml: &str) -> Option<&str> {
    let route = &toml[toml.find("path = \"/files*\"")?..];
    let route = route.split("[[route]]").next()?;
    let line = route.lines().find(|line| line.starts_with("status"))?;
    line.rsplit(' ').next()
}

#[test]
fn location_with_lost_access_rule_rejects_clients() {
    for (guard, expected) in [
        ("auth_request /auth;", "403"),
        ("internal;", "404"),
        (
            "satisfy any; auth_basic staff; auth_basic_user_file users;",
            "401",
        ),
        ("auth_basic staff; auth_basic_user_file users;", "401"),
    ] {
        for content in ["root /srv;", "proxy_pass http://app;"] {
            let imported = import_server(&[&format!("location /files {{ {guard} {content} }}")]);
            let toml = &imported.toml;
            let has_basic_auth = toml.contains("basic_auth");
            assert!(
                has_basic_auth || route_status(toml) == Some(expected),
                "{guard} {content}: {toml}"
            );
        }
    }
}

#[test]
fn lost_haproxy_rule_rejects_clients() {
    for (line, expected) in [
        (
            "http-request auth realm staff unless { path /open }",
            "status = 401",
        ),
        (
            "http-request deny unless { src_port lt 1024 }",
            "status = 403",
        ),
        (
            "http-request deny if { path_beg /admin } { src_port ge 1024 }",
            "path = \"/admin*\"",
        ),
        (
            "http-request silent-drop if { src_port ge 1024 }",
            "close = true",
        ),
        (
            "http-request auth if { path_beg /admin }",
            "path = \"/admin*\"",
        ),
    ] {
        let imported = import_frontend(&[line]);
        assert!(
            imported.toml.contains(expected),
            "{line}: {}",
            imported.toml
        );
        assert!(!imported.losses.is_empty(), "{line}");
    }
}
