//! A lost line that keeps clients out is always marked as such.

use weir_import::{EmptyEnvironment, Imported, haproxy, nginx};

/// Returns the marked lines by number.
fn marked(imported: &Imported) -> Vec<usize> {
    for note in &imported.unguarded {
        assert!(imported.notes.contains(note), "{note}");
    }
    let number = |note: &String| {
        let rest = note.strip_prefix("line ").expect("a line");
        rest.split(':')
            .next()
            .unwrap_or("")
            .parse()
            .expect("a number")
    };
    let mut marked: Vec<usize> = imported.unguarded.iter().map(number).collect();
    marked.dedup();
    marked
}

/// Lines from 6 on are in the frontend.
fn of_frontend(lines: &[&str]) -> Imported {
    let text = format!(
        "defaults\n mode http\nfrontend web\n bind :80\n acl internal src 10.0.0.0/8\n {}\n \
         default_backend app\nbackend app\n server a 10.0.0.5:80\n",
        lines.join("\n ")
    );
    haproxy("haproxy.cfg", &text, &EmptyEnvironment)
}

/// Lines from 4 on are in the server block.
fn of_server(lines: &[&str]) -> Imported {
    let text = format!(
        "upstream app {{ server 10.0.0.5:80; }}\nserver {{\nlisten 80;\n{}\n\
         location / {{ proxy_pass http://app; }}\n}}\n",
        lines.join("\n")
    );
    nginx("nginx.conf", &text, &EmptyEnvironment)
}

#[test]
fn lost_rules_of_haproxy_are_marked() {
    for line in [
        "http-request deny if { path_beg /admin } !internal",
        "http-request deny if { hdr(user-agent) -i BadBot }",
        "http-request deny if { req.hdr_cnt(content-length) gt 1 }",
        "http-request tarpit if { url_sub -i select } !internal",
        "http-request auth realm staff unless internal",
        "http-request reject if { src -f /nowhere }",
        "http-request silent-drop if { sc_http_req_rate(0) gt 100 }",
        "http-request del-header X-User if internal",
        "tcp-request connection reject if !internal",
        "tcp-request content reject if { src_conn_rate gt 10 }",
        "http-response deny if { res.hdr(x-secret) -m found }",
        "use_backend app if !internal",
        "block if internal",
        "http-request deny if \"internal",
    ] {
        let imported = of_frontend(&[line]);
        assert_eq!(marked(&imported), [6], "{line}: {:#?}", imported.notes);
    }
}

#[test]
fn imported_lines_are_not_marked() {
    let imported = of_frontend(&[
        "http-request deny if { path_beg /admin }",
        "http-request deny if internal",
        "use_backend app if { hdr(host) -i a.example }",
        "option httplog",
        "http-response del-header Server if internal",
    ]);
    assert_eq!(marked(&imported), [0; 0], "{:#?}", imported.unguarded);
    assert!(!imported.notes.is_empty());
    let imported = of_server(&[
        "location /a { allow 10.0.0.0/8; deny all; proxy_pass http://app; }",
        "location = /b { return 403; }",
        "access_log /var/log/a;",
    ]);
    assert_eq!(marked(&imported), [0; 0], "{:#?}", imported.unguarded);
}

#[test]
fn lost_directives_of_nginx_are_marked() {
    for line in [
        "auth_basic staff;",
        "auth_request /auth;",
        "satisfy any;",
        "location /a { auth_basic staff; proxy_pass http://app; }",
        "location /a { limit_except GET { deny all; } proxy_pass http://app; }",
        "location /a { internal; }",
        "location /a { deny office.example; proxy_pass http://app; }",
        "location /a { location /a/b { deny all; } proxy_pass http://app; }",
        "location /a { limit_req zone=one; proxy_pass http://app; }",
        "location @a { deny all; }",
        "if ($http_user_agent ~* bot) { return 403; }",
        "valid_referers none example.com;",
        "ssl_crl /etc/crl.pem;",
    ] {
        let imported = of_server(&[line]);
        assert_eq!(marked(&imported), [4], "{line}: {:#?}", imported.notes);
    }
}

#[test]
fn location_with_authentication_gets_403() {
    for guard in [
        "auth_basic staff;",
        "auth_request /auth;",
        "internal;",
        "satisfy any;",
    ] {
        let imported = of_server(&[&format!("location /files {{ {guard} root /srv; }}")]);
        let toml = &imported.toml;
        let route = toml.find("path = \"/files*\"").expect("a route");
        assert!(toml[route..].contains("status = 403"), "{guard}: {toml}");
        assert_eq!(marked(&imported), [4], "{guard}: {:#?}", imported.notes);
    }
}
