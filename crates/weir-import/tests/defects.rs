//! Tests details of real configuration files that an importer can easily lose.

mod fake_environment;

use fake_environment::FakeEnvironment;
use weir_import::{EmptyEnvironment, Imported, haproxy, keepalived, ldirectord, nginx};

fn import_haproxy(text: &str) -> Imported {
    assert_valid(haproxy("haproxy.cfg", text, &EmptyEnvironment))
}

fn import_nginx(text: &str) -> Imported {
    assert_valid(nginx("nginx.conf", text, &EmptyEnvironment))
}

fn assert_valid(imported: Imported) -> Imported {
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    imported
}

/// Returns the first table that contains all of these parts.
fn find_table<'t>(toml: &'t str, parts: &[&str]) -> &'t str {
    let mut tables = toml.split("\n\n");
    let table = tables.find(|table| parts.iter().all(|part| table.contains(part)));
    table.unwrap_or_else(|| panic!("no table with {parts:?}:\n{toml}"))
}

const BACKEND: &str = "backend app\n server a 10.0.0.5:80\n";

fn import_frontend(lines: &str) -> Imported {
    import_haproxy(&format!(
        "defaults\n mode http\nfrontend web\n bind :80\n {lines}\n default_backend app\n{BACKEND}"
    ))
}

fn import_server(lines: &str) -> Imported {
    import_nginx(&format!(
        "server {{\nlisten 80;\nproxy_set_header Host $host;\n{lines}\n}}\n"
    ))
}

#[test]
fn accept_proxy_applies_only_to_its_bind() {
    let imported = import_haproxy(&format!(
        "defaults\n mode http\nfrontend web\n bind :80\n bind :81 accept-proxy\n default_backend app\n{BACKEND}"
    ));
    let plain = find_table(&imported.toml, &["[service.web]", "0.0.0.0:80"]);
    assert!(!plain.contains("proxy_protocol"), "{plain}");
    let proxied = find_table(&imported.toml, &["[service.web-proxied]", "0.0.0.0:81"]);
    assert!(proxied.contains("proxy_protocol = true"), "{proxied}");
}

#[test]
fn server_names_are_resolved_at_run_time() {
    let text = "defaults\n mode http\nlisten web\n bind :80\n server a app.example:8080 check\n";
    let imported = import_haproxy(text);
    let pool = find_table(&imported.toml, &["[pool.web]"]);
    assert!(
        pool.contains("servers_dns = { name = \"app.example\", port = 8080 }"),
        "{pool}"
    );
    let imported = import_server("location / { proxy_pass http://app.example:8080; }");
    assert!(
        imported
            .toml
            .contains("servers_dns = { name = \"app.example\", port = 8080 }")
    );
    let upstream = "upstream u { server app.example; }\nserver { listen 80; location / { proxy_pass http://u; } }";
    let imported = import_nginx(upstream);
    assert!(
        imported
            .toml
            .contains("servers_dns = { name = \"app.example\", port = 80 }")
    );
}

#[test]
fn backup_of_servers_with_max_conns_is_a_loss() {
    let is_reported = |options: &str| {
        let text = format!(
            "upstream u {{\nserver 10.0.0.5 {options};\nserver 10.0.0.6 backup;\n}}\nserver {{\nlisten 80;\n\
             location / {{ proxy_pass http://u; }}\n}}\n"
        );
        let losses = import_nginx(&text).losses;
        losses
            .iter()
            .any(|loss| loss.contains("nginx also uses a backup"))
    };
    assert!(is_reported("max_conns=10"));
    assert!(!is_reported("weight=2"));
}

#[test]
fn location_without_target_does_not_fall_through() {
    for (content, status) in [("fastcgi_pass 127.0.0.1:9000;", 503), ("empty_gif;", 404)] {
        let lines =
            format!("location /a {{ {content} }}\nlocation / {{ proxy_pass http://10.0.0.5; }}");
        let imported = import_server(&lines);
        let route = find_table(&imported.toml, &["[[route]]", "path = \"/a*\""]);
        assert!(route.contains(&format!("status = {status}")), "{route}");
        assert!(!imported.losses.is_empty());
    }
}

#[test]
fn all_directives_on_one_line_are_read() {
    let imported = import_nginx(
        "server { listen 80; location /a { return 403; } location / { proxy_set_header Host $host; \
         proxy_pass http://10.0.0.5; unknown_directive on; } }",
    );
    assert!(imported.toml.contains("status = 403"));
    assert_eq!(imported.losses.len(), 1, "{:?}", imported.losses);
}

#[test]
fn first_server_block_with_a_name_gets_its_requests() {
    let imported = import_nginx(
        "server { listen 80; server_name a.example; location / { return 201; } }\n\
         server { listen 80; server_name a.example b.example; location / { return 202; } }",
    );
    assert!(
        !imported.toml.contains("host = \"a.example\""),
        "{}",
        imported.toml
    );
    let route = find_table(&imported.toml, &["host = \"b.example\""]);
    assert!(route.contains("status = 202"), "{route}");
}

#[test]
fn return_444_closes_the_connection() {
    let imported = import_server("return 444;");
    assert!(imported.toml.contains("close = true"), "{}", imported.toml);
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn servers_get_the_host_of_proxy_pass_by_default() {
    let imported =
        import_nginx("server { listen 80; location / { proxy_pass http://10.0.0.5:8080; } }");
    let imported_host = imported.toml.contains("host = \"10.0.0.5:8080\"");
    let is_noted = imported.losses.iter().any(|note| note.contains("host"));
    assert!(imported_host || is_noted, "{}", imported.toml);
    let imported = import_server("location / { proxy_pass http://10.0.0.5:8080; }");
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn added_header_without_always_applies_to_some_statuses() {
    let imported = import_server(
        "location / { proxy_pass http://10.0.0.5; add_header X-A a; add_header X-B $host always; }",
    );
    let route = find_table(&imported.toml, &["[[route]]"]);
    assert!(
        route.contains("{ header = \"X-A: a\", status = \"200-201,204,206,301-304,307-308\" }")
    );
    assert!(route.contains("\"X-B: {host}\""), "{route}");
}

#[test]
fn partial_host_matches_become_patterns() {
    for (matcher, host) in [
        ("hdr_beg(host) -i www.", "www.*"),
        ("hdr_end(host) .example", "*.example"),
        ("hdr_sub(host) img", "*img*"),
        ("hdr_reg(host) ^a[0-9]", "~(?i)^a[0-9]"),
    ] {
        let imported = import_frontend(&format!("http-request deny if {{ {matcher} }}"));
        let route = find_table(&imported.toml, &["[[route]]", "status = 403"]);
        assert!(route.contains(&format!("host = \"{host}\"")), "{route}");
    }
}

#[test]
fn redirect_options_are_accepted_in_any_order() {
    let imported = import_frontend("redirect code 301 location https://a.example/ if { path /b }");
    let route = find_table(&imported.toml, &["[[route]]", "path = \"/b\""]);
    assert!(
        route.contains("redirect = \"https://a.example/\"\nstatus = 301"),
        "{route}"
    );
}

#[test]
fn backend_rules_apply_to_its_requests() {
    let imported = import_haproxy(
        "defaults\n mode http\nfrontend web\n bind :80\n use_backend b if { path_beg /b }\n default_backend a\n\
         backend a\n server a 10.0.0.5:80\n\
         backend b\n option forwardfor\n http-request deny if { method POST }\n server b 10.0.0.6:80\n",
    );
    let deny_route = find_table(&imported.toml, &["path = \"/b*\"", "status = 403"]);
    assert!(deny_route.contains("method = [\"POST\"]"), "{deny_route}");
    let route = find_table(&imported.toml, &["path = \"/b*\"", "pool = \"b\""]);
    assert!(
        route.contains("add_header = [\"X-Forwarded-For: {client}\"]"),
        "{route}"
    );
}

#[test]
fn client_address_is_appended_to_forwarded_for() {
    let imported = import_frontend("option forwardfor");
    let service = find_table(&imported.toml, &["[service.web]"]);
    assert!(
        service.contains("x_forwarded = { for = \"append\" }"),
        "{service}"
    );
    let imported = import_server(
        "location / { proxy_pass http://10.0.0.5; proxy_set_header X-Real-IP $remote_addr; \
         proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }",
    );
    assert!(imported.toml.contains("x_forwarded = { for = \"append\" }"));
    assert!(
        imported.toml.contains("X-Real-IP: {client}"),
        "{}",
        imported.toml
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn set_path_becomes_a_rewrite() {
    let imported = import_frontend("http-request set-path \"%[path,regsub(^/api/,/)]\"");
    let route = find_table(&imported.toml, &["path_regex = \"^/api/(.*)$\"", "rewrite"]);
    assert!(route.contains("rewrite = \"/{1}\""), "{route}");
}

#[test]
fn values_of_server_cookies_are_imported_if_haproxy_uses_them() {
    let listen = |cookie: &str, server: &str| {
        import_haproxy(&format!(
            "defaults\n mode http\nlisten web\n bind :80\n{cookie} server a {server}\n"
        ))
    };
    for mode in ["insert indirect", "rewrite", "prefix"] {
        let imported = listen(&format!(" cookie S {mode}\n"), "10.0.0.5:80 cookie x");
        assert!(imported.losses.is_empty(), "{:?}", imported.losses);
        assert!(
            imported.toml.contains("cookie = \"x\""),
            "{}",
            imported.toml
        );
    }
    let imported = listen(" cookie S insert\n", "app.example:80 cookie x backup");
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let entry =
        "servers_dns = { name = \"app.example\", backup = true, port = 80, cookie = \"x\" }";
    assert!(imported.toml.contains(entry), "{}", imported.toml);
    let imported = listen("", "10.0.0.5:80 cookie x");
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    assert!(!imported.toml.contains("cookie"), "{}", imported.toml);
    for (cookie, server) in [
        (" cookie S insert\n", "10.0.0.5:80 cookie x~y"),
        (" cookie S insert\n", "app.example:80 cookie x\\#y"),
        (" cookie S postonly\n", "10.0.0.5:80 cookie x"),
    ] {
        let imported = listen(cookie, server);
        let mut losses = imported.losses.iter();
        assert!(
            losses.any(|loss| loss.contains("server a")),
            "{server}: {:?}",
            imported.losses
        );
        assert!(!imported.toml.contains("cookie = \"x"), "{}", imported.toml);
    }
}

#[test]
fn limits_that_apply_to_several_services_are_reported() {
    let frontend = |bind: &str| {
        import_haproxy(&format!(
            "frontend web\n mode http\n bind :80\n{bind} maxconn 9\n \
             stick-table type ip size 1m expire 30s store http_req_rate(10s)\n \
             http-request track-sc0 src\n \
             http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 20 }}\n \
             default_backend app\n{BACKEND}"
        ))
    };
    let is_noted = |notes: &[String], text: &str| {
        let mut notes = notes.iter();
        notes.any(|note| note.contains(text) && note.contains("applies to each service"))
    };
    let imported = frontend(" bind :443 ssl crt /a.pem\n");
    assert!(is_noted(&imported.losses, "sc_http_req_rate(0) gt 20"));
    assert!(is_noted(&imported.notes, "maxconn 9"));
    let imported = frontend("");
    assert!(!is_noted(&imported.notes, ""), "{:?}", imported.notes);
}

#[test]
fn certificate_of_missing_store_is_a_loss() {
    let imported = import_haproxy(&format!(
        "frontend web\n mode http\n bind :443 ssl crt @store/site\n default_backend app\n{BACKEND}"
    ));
    assert!(
        !imported.toml.contains("certificates = \"@"),
        "{}",
        imported.toml
    );
    assert!(!imported.losses.is_empty());
}

#[test]
fn key_file_must_have_the_name_of_its_certificate() {
    let tls = |pair: &str| {
        import_nginx(&format!(
            "server {{ listen 443 ssl; {pair} location / {{ return 204; }} }}"
        ))
    };
    let imported = tls("ssl_certificate /etc/ssl/a.crt; ssl_certificate_key /etc/ssl/a.key;");
    assert!(
        imported.toml.contains("certificates = \"/etc/ssl/a.crt\""),
        "{}",
        imported.toml
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let imported = tls("ssl_certificate /etc/ssl/a.pem; ssl_certificate_key /etc/ssl/b.pem;");
    assert_eq!(imported.losses.len(), 1, "{:?}", imported.losses);
}

#[test]
fn statistics_section_is_not_imported_as_service() {
    let imported =
        import_haproxy("listen stats\n mode http\n bind :8404\n stats enable\n stats uri /\n");
    assert!(!imported.toml.contains("[service"), "{}", imported.toml);
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn http_version_1_1_and_tcp_mode_are_not_losses() {
    let imported =
        import_server("location / { proxy_pass http://10.0.0.5; proxy_http_version 1.1; }");
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let imported =
        import_haproxy("defaults\n mode tcp\nlisten a\n bind :80\n server a 10.0.0.5:80\n");
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn rules_of_an_unused_backend_are_losses() {
    let imported = import_haproxy(&format!(
        "defaults\n mode http\nfrontend web\n bind :80\n use_backend b if {{ src_conn_rate gt 9 }}\n \
         default_backend app\n{BACKEND}backend b\n http-request deny if {{ path /x }}\n server b 10.0.0.6:80\n"
    ));
    let is_noted = |text: &str| imported.losses.iter().any(|note| note.contains(text));
    assert!(is_noted("use_backend b"), "{:?}", imported.losses);
    assert!(is_noted("http-request deny"), "{:?}", imported.losses);
}

#[test]
fn comments_and_losses_precede_their_table() {
    let imported = import_haproxy(
        "# the shop\nlisten web\n mode http\n bind :80\n source 10.0.0.9\n server a 10.0.0.5:80\n",
    );
    let pool = find_table(&imported.toml, &["[pool.web]"]);
    assert!(pool.contains("# the shop\n"), "{}", imported.toml);
    assert!(
        imported.toml.contains("# LOST line 5: source 10.0.0.9"),
        "{}",
        imported.toml
    );
    assert!(
        imported.toml.ends_with("(LOST above): 5\n"),
        "{}",
        imported.toml
    );
}

#[test]
fn lines_that_keepalived_ignores_are_not_losses() {
    let text = "virtual_server 192.0.2.1 80 {\n nat_mask 255.255.255.0\n lb_kind DR\n protocol TCP\n \
                real_server 10.0.0.5 80 {\n weight 1\n TCP_CHECK {\n connect_timeout 3\n nb_get_retry 3\n }\n }\n}\n";
    let imported = assert_valid(keepalived("keepalived.conf", text, &EmptyEnvironment));
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    assert!(!imported.notes.is_empty());
}

#[test]
fn names_of_several_servers_become_a_list() {
    let imported = import_haproxy(
        "defaults\n mode http\nlisten web\n bind :80\n server a one.example:8080 check weight 3\n \
         server b two.example:8080 check maxconn 9\n server c 10.0.0.5:8080 check\n",
    );
    let pool = find_table(&imported.toml, &["[pool.web]"]);
    assert!(
        pool.contains(
            "servers_dns = [{ name = \"one.example\", weight = 3, port = 8080 }, \
             { name = \"two.example\", max_connections = 9, port = 8080 }]"
        ),
        "{pool}"
    );
    assert!(pool.contains("\"10.0.0.5:8080\""), "{pool}");
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let imported = import_nginx(
        "upstream u { server one.example; server two.example weight=2; }\n\
         server { listen 80; location / { proxy_pass http://u; } }",
    );
    assert!(imported.toml.contains(
        "servers_dns = [{ name = \"one.example\", port = 80 }, { name = \"two.example\", port = 80, weight = 2 }]"
    ));
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn weights_of_server_listed_twice_are_summed() {
    let imported = import_haproxy(
        "defaults\n mode http\nlisten web\n bind :80\n server a 10.0.0.5:80 weight 2\n server b 10.0.0.5:80\n",
    );
    assert!(imported.toml.contains("weight = 3"), "{}", imported.toml);
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn forwardfor_except_becomes_x_forwarded_except() {
    let imported = import_frontend("option forwardfor except 127.0.0.0/8");
    let service = find_table(&imported.toml, &["[service.web]"]);
    assert!(
        service.contains("x_forwarded = { for = \"append\", except = [\"127.0.0.0/8\"] }"),
        "{service}"
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn listener_port_becomes_a_constant_or_a_variable() {
    let imported = import_frontend("http-request set-header X-Forwarded-Port %[dst_port]");
    assert!(
        imported.toml.contains("\"X-Forwarded-Port: 80\""),
        "{}",
        imported.toml
    );
    let imported = import_frontend("bind :81\n http-request set-header X-Port %[dst_port]");
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    assert!(
        imported.toml.contains("\"X-Port: {listen_port}\""),
        "{}",
        imported.toml
    );
}

#[test]
fn fields_of_generated_responses_are_imported() {
    let imported = import_server(
        "location /a { return 301 https://a.example/; add_header X-A a; }\n\
         location /b { return 404; add_header X-B b; add_header X-C c always; }",
    );
    let redirect = find_table(&imported.toml, &["path = \"/a*\""]);
    assert!(
        redirect.contains("add_response_header = [\"X-A: a\"]"),
        "{redirect}"
    );
    let response = find_table(&imported.toml, &["path = \"/b*\""]);
    assert!(
        response.contains("add_response_header = [\"X-C: c\"]"),
        "{response}"
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn location_that_denies_all_needs_no_target() {
    let imported = import_server("location /a { deny all; }\nlocation / { return 204; }");
    let route = find_table(&imported.toml, &["path = \"/a*\""]);
    assert!(route.contains("status = 403"), "{route}");
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn forwarded_for_of_one_location_does_not_apply_to_others() {
    let imported = import_server(
        "location /a { proxy_pass http://10.0.0.5; proxy_set_header Host $host; \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }\n\
         location /b { proxy_pass http://10.0.0.5; proxy_set_header Host $host; \
         proxy_set_header X-Forwarded-For $remote_addr; }\nlocation / { proxy_pass http://10.0.0.5; }",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let service = find_table(&imported.toml, &["[service."]);
    assert!(
        service.contains("x_forwarded = { for = \"append\" }"),
        "{service}"
    );
    let append_route = find_table(&imported.toml, &["path = \"/a*\""]);
    assert!(!append_route.contains("x_forwarded"), "{append_route}");
    let replace_route = find_table(&imported.toml, &["path = \"/b*\""]);
    assert!(
        replace_route.contains("set_header = [\"X-Forwarded-For: {client}\"]"),
        "{replace_route}"
    );
    assert!(!replace_route.contains("x_forwarded"), "{replace_route}");
    let last_route = imported
        .toml
        .rsplit("[[route]]")
        .next()
        .expect("the output has a route");
    assert!(
        last_route.contains("x_forwarded = { for = \"keep\" }"),
        "{last_route}"
    );
    assert!(!last_route.contains("path"), "{last_route}");
}

#[test]
fn forwarded_for_of_one_server_block_does_not_apply_to_others() {
    let imported = import_nginx(
        "server { listen 80 default_server; location / { proxy_pass http://10.0.0.5; \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; } }\n\
         server { listen 80; server_name b.example; location / { proxy_pass http://10.0.0.6; } }",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let other = find_table(&imported.toml, &["host = \"b.example\""]);
    assert!(
        other.contains("x_forwarded = { for = \"keep\" }"),
        "{other}"
    );
}

#[test]
fn deny_unless_rejects_the_other_requests() {
    let imported = import_frontend("http-request deny unless { src 10.0.0.0/8 }");
    let route = find_table(&imported.toml, &["[[route]]", "status = 403"]);
    assert!(
        route.contains("not = { source = [\"10.0.0.0/8\"] }"),
        "{route}"
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    // If routes do not support the condition, every request is rejected, and the rule is reported.
    let imported = import_frontend("http-request deny unless { src_port lt 1024 }");
    let route = find_table(&imported.toml, &["[[route]]", "status = 403"]);
    assert!(!route.contains("source"), "{route}");
    assert_eq!(imported.unguarded.len(), 1, "{:?}", imported.unguarded);
}

#[test]
fn auth_basic_becomes_basic_auth_of_the_route() {
    let imported = import_server(
        "location /a { auth_basic Staff; auth_basic_user_file /etc/nginx/users; proxy_pass http://10.0.0.5; }\n\
         location / { return 204; }",
    );
    let route = find_table(&imported.toml, &["path = \"/a*\""]);
    assert!(
        route.contains("basic_auth = { file = \"/etc/nginx/users\", realm = \"Staff\" }"),
        "{route}"
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn authentication_without_a_file_admits_every_client() {
    let imported = import_server("location / { auth_basic Staff; proxy_pass http://10.0.0.5; }");
    assert!(!imported.toml.contains("basic_auth"), "{}", imported.toml);
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let is_noted = |note: &String| note.contains("admits every client");
    assert!(imported.notes.iter().any(is_noted), "{:?}", imported.notes);
}

#[test]
fn limit_except_rejects_other_methods() {
    let imported = import_server(
        "location /a { limit_except GET { deny all; } proxy_pass http://10.0.0.5; }\n\
         location / { return 204; }",
    );
    let reject_route = find_table(&imported.toml, &["path = \"/a*\"", "status = 403"]);
    assert!(
        reject_route.contains("not = { method = [\"GET\", \"HEAD\"] }"),
        "{reject_route}"
    );
    let (first, second) = (
        imported.toml.find("status = 403"),
        imported.toml.find("path = \"/a*\"\npool"),
    );
    assert!(first < second, "{}", imported.toml);
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn missing_error_page_is_noted_and_not_imported() {
    let text = "server { listen 80; root /srv;\n error_page 502 /a.html;\n error_page 404 /b.html;\n \
                location / { return 204; } }";
    let environment = FakeEnvironment {
        files: &[("/srv/a.html", "")],
        ..FakeEnvironment::default()
    };
    let imported = assert_valid(nginx("nginx.conf", text, &environment));
    assert!(
        imported.toml.contains("file = \"/srv/a.html\""),
        "{}",
        imported.toml
    );
    assert!(!imported.toml.contains("b.html"), "{}", imported.toml);
    let is_noted =
        |note: &String| note.starts_with("line 3:") && note.contains("/srv/b.html does not exist");
    assert!(imported.notes.iter().any(is_noted), "{:?}", imported.notes);
}

#[test]
fn service_with_local_address_group_is_imported_without_the_group() {
    let text = "local_address_group laddr_g1 {\n 192.168.100.200\n}\n\
                virtual_server 192.0.2.1 80 {\n lb_kind NAT\n laddr_group_name laddr_g1\n protocol TCP\n \
                real_server 10.0.0.5 80 {\n weight 1\n }\n}\n";
    let imported = assert_valid(keepalived("keepalived.conf", text, &EmptyEnvironment));
    let service = find_table(&imported.toml, &["[service."]);
    assert!(service.contains("192.0.2.1:80"), "{service}");
    assert!(imported.toml.contains("10.0.0.5"), "{}", imported.toml);
    let is_noted = |line: &str| imported.notes.iter().any(|note| note.starts_with(line));
    assert!(
        is_noted("line 1:") && is_noted("line 6:"),
        "{:?}",
        imported.notes
    );
}

#[test]
fn comments_in_other_encodings_are_imported() {
    // `weir import` replaces bytes that are not UTF-8 in the same way.
    let text = String::from_utf8_lossy(
        b"# der gro\xdfe Laden\nlisten web\n mode http\n bind :80\n server a 10.0.0.5:80\n",
    );
    let imported = import_haproxy(&text);
    assert!(imported.toml.contains("# der gro"), "{}", imported.toml);
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn equal_checks_of_pools_become_one_check() {
    let haproxy = "defaults\n mode http\n option httpchk GET /up\nfrontend web\n bind :80\n \
                   use_backend b if { path_beg /b }\n default_backend a\n\
                   backend a\n server a 10.0.0.5:80 check\nbackend b\n server b 10.0.0.6:80 check\n";
    let real = |address: &str| {
        format!(
            "real_server {address} 80 {{\n weight 1\n TCP_CHECK {{\n connect_timeout 3\n }}\n }}\n"
        )
    };
    let keepalived_text = format!(
        "virtual_server 192.0.2.1 80 {{\n lb_kind DR\n protocol TCP\n {}}}\n\
         virtual_server 192.0.2.2 80 {{\n lb_kind DR\n protocol TCP\n {}}}\n",
        real("10.0.0.5"),
        real("10.0.0.6")
    );
    let ldirectord_text = "checkinterval=5\n\
                           virtual=192.0.2.1:80\n\treal=10.0.0.5:80 gate\n\tservice=http\n\trequest=\"up\"\n\
                           virtual=192.0.2.2:80\n\treal=10.0.0.6:80 gate\n\tservice=http\n\trequest=\"up\"\n";
    for imported in [
        import_haproxy(haproxy),
        assert_valid(keepalived(
            "keepalived.conf",
            &keepalived_text,
            &EmptyEnvironment,
        )),
        assert_valid(ldirectord(
            "ldirectord.cf",
            ldirectord_text,
            &EmptyEnvironment,
        )),
    ] {
        let toml = &imported.toml;
        assert_eq!(toml.matches("[check.").count(), 1, "{toml}");
        assert_eq!(toml.matches("\ncheck = \"").count(), 2, "{toml}");
        assert!(!toml.contains(".check]"), "{toml}");
    }
}

#[test]
fn limits_of_a_location_become_limits_of_its_route() {
    let imported = import_nginx(
        "limit_req_zone $binary_remote_addr zone=one:10m rate=5r/s;\n\
         limit_req_zone $binary_remote_addr zone=two:10m rate=5r/s;\n\
         server { listen 80; proxy_set_header Host $host;\n\
         location /a { limit_req zone=one burst=9 nodelay; proxy_pass http://10.0.0.5; }\n\
         location /b { limit_req zone=two nodelay; proxy_pass http://10.0.0.5; }\n\
         location /c { limit_req zone=two nodelay; proxy_pass http://10.0.0.5; } }",
    );
    let route = find_table(&imported.toml, &["path = \"/a*\""]);
    assert!(
        route.contains("limits = { rate = 5, burst = 10 }"),
        "{route}"
    );
    // nginx counts the requests of two locations together if they share a zone.
    assert!(!find_table(&imported.toml, &["path = \"/b*\""]).contains("\nlimits"));
    let lost_lines: Vec<&str> = imported.losses.iter().map(|note| &note[..7]).collect();
    assert_eq!(lost_lines, ["line 2:", "line 5:", "line 6:"]);
}

#[test]
fn http_rules_of_checks_without_http_are_not_losses() {
    let imported = import_haproxy(
        "defaults\n mode tcp\nlisten web\n bind :80\n option httpchk GET /up\n http-check expect status 200\n \
         option ssl-hello-chk\n server a 10.0.0.5:443 check\n",
    );
    assert!(
        imported.toml.contains("kind = \"tls\""),
        "{}",
        imported.toml
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let is_noted = |note: &String| note.starts_with("line 6:") && note.contains("ignores it");
    assert!(imported.notes.iter().any(is_noted), "{:?}", imported.notes);
}

#[test]
fn location_after_return_in_if_is_not_a_loss() {
    let imported = import_server(
        "if ($ssl_protocol = \"\") { return 301 https://a.example$request_uri; }\n\
         location / { proxy_pass http://10.0.0.5; }",
    );
    assert!(
        imported
            .toml
            .contains("redirect = \"https://a.example{path}\""),
        "{}",
        imported.toml
    );
    assert!(!imported.toml.contains("10.0.0.5"), "{}", imported.toml);
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    // A location after a rule that rejects more requests than in nginx is a loss.
    let imported = import_server(
        "if ($geoip_country = XX) { return 403; }\nlocation / { proxy_pass http://10.0.0.5; }",
    );
    assert_eq!(imported.losses.len(), 2, "{:?}", imported.losses);
}

#[test]
fn line_that_every_location_overrides_is_not_a_loss() {
    let imported = import_server(
        "add_header X-A a always;\nlocation /a { return 204; add_header X-B b; }\n\
         location / { proxy_pass http://10.0.0.5; add_header X-B b; }",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    assert!(!imported.toml.contains("X-A"), "{}", imported.toml);
    let imported = import_server(
        "location /a { proxy_pass http://10.0.0.5; proxy_set_header Host $host; proxy_set_header X-B b; }",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn later_check_option_replaces_earlier_ones() {
    let imported = import_haproxy(
        "defaults\n mode tcp\n option httpchk\nlisten web\n bind :80\n option ssl-hello-chk\n \
         server a 10.0.0.5:443 check\n",
    );
    assert!(
        imported.toml.contains("kind = \"tls\""),
        "{}",
        imported.toml
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn mode_of_a_backend_causes_no_note() {
    let imported = import_haproxy(
        "defaults\n mode http\nfrontend web\n bind :80\n default_backend app\n\
         backend app\n mode http\n server a 10.0.0.5:80\n",
    );
    assert!(imported.toml.contains("protocol = \"http\""));
    assert!(imported.notes.is_empty(), "{:?}", imported.notes);
}

#[test]
fn unix_sockets_of_servers_are_imported() {
    let text = "global\n chroot /var/lib/haproxy\ndefaults\n mode http\nlisten web\n bind :80\n server a /run/a.sock \
                check weight 3\n server b unix@/run/b.sock\n server c abns@app\n";
    let imported = import_haproxy(text);
    let pool = find_table(&imported.toml, &["[pool.web]"]);
    for part in [
        "unix:/var/lib/haproxy/run/a.sock",
        "weight = 3",
        "unix:/var/lib/haproxy/run/b.sock",
    ] {
        assert!(pool.contains(part), "{part}: {pool}");
    }
    assert!(!pool.contains("app\""), "{pool}");
    assert!(
        format!("{:?}", imported).contains("Weir does not support abns@"),
        "{imported:?}"
    );
    let imported = import_nginx(
        "upstream app { server unix:/run/a.sock weight=2; server unix:/run/b.sock backup; }\nserver {\nlisten 80;\n\
         location / { proxy_pass http://app; }\nlocation /x/ { proxy_pass http://unix:/run/x.sock:/y/; }\n}\n",
    );
    let pool = find_table(&imported.toml, &["[pool.app]"]);
    for part in [
        "unix:/run/a.sock",
        "weight = 2",
        "unix:/run/b.sock",
        "backup = true",
    ] {
        assert!(pool.contains(part), "{part}: {pool}");
    }
    let pool = find_table(&imported.toml, &["[pool.\"x.sock\"]"]);
    for part in ["unix:/run/x.sock", "host = \"localhost\""] {
        assert!(pool.contains(part), "{part}: {pool}");
    }
    assert!(
        imported.toml.contains("rewrite = \"/y/{rest}\""),
        "{}",
        imported.toml
    );
}
