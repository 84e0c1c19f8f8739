//! Tests the import of directives from guides for popular programs.

use weir_import::{EmptyEnvironment, Imported, haproxy, nginx};

fn assert_valid(imported: Imported) -> Imported {
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    imported
}

fn import_nginx(text: &str) -> Imported {
    assert_valid(nginx("nginx.conf", text, &EmptyEnvironment))
}

fn import_server(lines: &str) -> Imported {
    import_nginx(&format!("server {{\n listen 80;\n {lines}\n}}\n"))
}

fn import_frontend(lines: &str) -> Imported {
    let text = format!(
        "defaults\n mode http\nfrontend web\n bind :80\n {lines}\n default_backend app\nbackend app\n \
         server a 10.0.0.5:80\n"
    );
    assert_valid(haproxy("haproxy.cfg", &text, &EmptyEnvironment))
}

fn lossless_toml(imported: Imported) -> String {
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    imported.toml
}

/// Returns the first table that contains all of these parts.
fn find_table<'t>(toml: &'t str, parts: &[&str]) -> &'t str {
    let mut tables = toml.split("\n\n");
    let table = tables.find(|table| parts.iter().all(|part| table.contains(part)));
    table.unwrap_or_else(|| panic!("no table with {parts:?}:\n{toml}"))
}

#[test]
fn redirects_with_regular_expressions_become_routes() {
    let toml = lossless_toml(import_server(
        "location /old/ { rewrite ^/old/(.*)$ /new/$1 permanent; proxy_pass http://10.0.0.5; }\n \
         location / { proxy_pass http://10.0.0.6; }\n rewrite ^/legacy$ https://a.example/? redirect;",
    ));
    let old = ["path = \"/old/*\"", "path_regex = \"^/old/(.*)$\""];
    let route = find_table(&toml, &old);
    assert!(route.contains("redirect = \"/new/{1}?{query}\""), "{route}");
    assert!(route.contains("status = 301"), "{route}");
    let route = find_table(&toml, &["path_regex = \"^/legacy$\""]);
    assert!(
        route.contains("redirect = \"https://a.example/\""),
        "{route}"
    );
}

#[test]
fn redirect_after_a_rewrite_is_a_loss() {
    for rules in [
        "rewrite ^/a /b; rewrite ^/b /c permanent; location / { proxy_pass http://10.0.0.5; }",
        "location / { rewrite ^/a /b; rewrite ^/b /c permanent; proxy_pass http://10.0.0.5; }",
    ] {
        let imported = import_server(rules);
        assert!(!imported.losses.is_empty(), "{}", imported.toml);
        assert!(!imported.toml.contains("/c?{query}"), "{}", imported.toml);
    }
}

#[test]
fn capture_groups_become_variables() {
    let toml = lossless_toml(import_server(
        "location ~ ^/a/(.*)$ { proxy_pass http://10.0.0.5/b/$1$is_args$args; }\n \
         location ~ ^/c/(.*)$ { proxy_pass http://10.0.0.5/d/$1; }\n \
         location ~ ^/u/(?<id>[0-9]+)/ { proxy_pass http://10.0.0.5; proxy_set_header X-User $id; }\n \
         location / { proxy_pass http://10.0.0.6; }",
    ));
    assert!(toml.contains("rewrite = \"/b/{1}\""), "{toml}");
    // Without `$args`, nginx does not send the query.
    assert!(toml.contains("rewrite = \"/d/{1}?\""), "{toml}");
    assert!(toml.contains("X-User: {1}"), "{toml}");
}

#[test]
fn numbered_groups_after_rewrite_are_not_imported() {
    let imported = import_server(
        "location ~ ^/a/(.*)$ { rewrite ^/(a) /b/$1 break; proxy_pass http://10.0.0.5; add_header X $1; }",
    );
    assert!(
        !imported.toml.contains("\"X: {1}\""),
        "nginx uses the groups of the rewrite: {}",
        imported.toml
    );
}

#[test]
fn maps_with_strings_and_regular_expressions_select_pools() {
    let imported = import_nginx(
        "map $host $up { default one; b.example two; \"~^v[0-9]\" three; }\n\
         upstream one { server 10.0.0.1; }\nupstream two { server 10.0.0.2; }\n\
         upstream three { server 10.0.0.3; }\n\
         server { listen 80; location / { proxy_pass http://$up; proxy_set_header Host $host; } }\n",
    );
    let toml = lossless_toml(imported);
    let text_route = find_table(&toml, &["[[route]]", "pool = \"two\""]);
    assert!(text_route.contains("host = \"b.example\""), "{text_route}");
    let expression_route = find_table(&toml, &["[[route]]", "pool = \"three\""]);
    assert!(expression_route.contains("~^v[0-9]"), "{expression_route}");
    assert!(expression_route.contains("not = "), "{expression_route}");
}

#[test]
fn streams_are_routed_by_server_name() {
    let imported = import_nginx(
        "stream {\n map $ssl_preread_server_name $name {\n hostnames;\n a.example one;\n \
         .b.example two;\n default one;\n }\n \
         upstream one { server 10.0.0.1:443; }\n upstream two { server 10.0.0.2:443; }\n \
         server { listen 443; ssl_preread on; proxy_pass $name; }\n}\n",
    );
    let toml = lossless_toml(imported);
    assert!(
        find_table(&toml, &["[service.", "protocol = \"tcp\""]).contains("pool = \"one\""),
        "{toml}"
    );
    for host in ["b.example", "*.b.example"] {
        let host = format!("host = \"{host}\"");
        assert!(
            find_table(&toml, &[&host]).contains("pool = \"two\""),
            "{toml}"
        );
    }
}

#[test]
fn map_of_server_names_without_ssl_preread_is_a_loss() {
    let imported = import_nginx(
        "stream {\n map $ssl_preread_server_name $name { default one; }\n upstream one { server 10.0.0.1:443; }\n \
         server { listen 443; proxy_pass $name; }\n}\n",
    );
    assert!(!imported.losses.is_empty());
}

#[test]
fn fallback_page_with_other_fields_is_a_loss() {
    let lines = |fields: &str| {
        format!(
            "root /srv;\n location / {{ try_files $uri /index.html; }}\n location = /index.html {{ {fields} }}"
        )
    };
    let page = lines("add_header Cache-Control no-cache;");
    lossless_toml(import_server(&page));
    lossless_toml(import_server(&lines("")));
    // A route cannot send fields only with files other than the page.
    let imported = import_server(&format!("add_header X-A 1;\n {page}"));
    assert_eq!(imported.losses.len(), 1, "{:?}", imported.losses);
}

#[test]
fn client_rates_and_connections_become_limits() {
    let toml = lossless_toml(import_frontend(
        "stick-table type ip size 100k expire 30s store http_req_rate(10s)\n http-request track-sc0 src\n \
         http-request deny deny_status 429 if { sc_http_req_rate(0) gt 1000 }",
    ));
    assert!(
        toml.contains("limits = { rate = 100, burst = 1000 }"),
        "{toml}"
    );
    let imported = import_frontend("tcp-request connection reject if { src_conn_cur ge 500 }");
    assert!(
        imported.toml.contains("limits = { concurrent = 499 }"),
        "{}",
        imported.toml
    );
    // The rule is a loss, because Weir counts requests instead of connections.
    assert_eq!(imported.losses.len(), 1, "{:?}", imported.losses);
    assert!(!imported.toml.contains("close = true"), "{}", imported.toml);
}

#[test]
fn response_for_missing_file_has_fields_of_the_error_page() {
    let toml = lossless_toml(import_server(
        "root /srv;\n error_page 404 /index.html;\n \
         location ~* \\.png$ { add_header X-Image yes always; add_header X-All a always; try_files $uri =404; }\n \
         location / { try_files $uri /index.html; add_header X-Page yes always; add_header X-All a always; }",
    ));
    let image = find_table(&toml, &["[[route]]", "png"]);
    for part in [
        "{ header = \"X-Image: yes\", status = \"200-403,405-599\" }",
        "{ header = \"X-Page: yes\", status = \"404\" }",
        "\"X-All: a\"",
    ] {
        assert!(image.contains(part), "{part}: {image}");
    }
}

#[test]
fn text_of_return_has_the_default_content_type() {
    let toml = lossless_toml(import_server(
        "default_type application/json;\n location /a { return 200 '{}'; }\n location /b { return 404; }\n \
         location /c { return 200 x; add_header Content-Type text/x; }",
    ));
    let route =
        |path: &str| find_table(&toml, &["[[route]]", &format!("path = \"{path}*\"")]).to_owned();
    assert!(
        route("/a").contains("Content-Type: application/json"),
        "{toml}"
    );
    assert!(!route("/b").contains("Content-Type"), "{toml}");
    assert!(route("/c").contains("Content-Type: text/x"), "{toml}");
}

#[test]
fn field_that_is_set_twice_is_sent_twice() {
    let toml = lossless_toml(import_server(
        "location / { proxy_pass http://10.0.0.5; proxy_set_header X-Forwarded-For $remote_addr; \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-A 1; \
         proxy_set_header X-A 2; proxy_set_header X-B $proxy_add_x_forwarded_for; }",
    ));
    let route = find_table(&toml, &["[[route]]"]);
    assert!(
        route.contains("\"X-Forwarded-For: {client}\", \"X-A: 1\", \"X-B: {forwarded_for}\""),
        "{route}"
    );
    assert!(
        route.contains("add_header = [\"X-Forwarded-For: {forwarded_for}\", \"X-A: 2\"]"),
        "{route}"
    );
}

#[test]
fn userid_sets_a_cookie_for_clients_without_one() {
    let toml = lossless_toml(import_nginx(
        "userid on;\nuserid_name seen;\nuserid_domain a.example;\nuserid_expires 365d;\n\
         userid_p3p 'policyref=\"/p\"';\n\
         upstream u { server 10.0.0.5; }\n\
         server { listen 80; location / { proxy_pass http://u; proxy_set_header Host $host; } }\n\
         server { listen 80; server_name b.example; userid off; return 404; }\n",
    ));
    let first = find_table(&toml, &["[[route]]", "not = { cookie = [\"seen\"] }"]);
    let cookie = "\"Set-Cookie: seen={request_id}; Max-Age=31536000; Domain=a.example; Path=/\"";
    assert!(first.contains(cookie), "{first}");
    assert!(first.contains("P3P: policyref="), "{first}");
    assert_eq!(toml.matches("seen={request_id}").count(), 1, "{toml}");
}

#[test]
fn redirect_of_a_server_block_keeps_the_query_and_groups() {
    let toml = lossless_toml(import_server(
        "rewrite ^/(.*) http://a.example/b?c=d$1 permanent;\n location / { proxy_pass http://10.0.0.5; }",
    ));
    let route = find_table(&toml, &["path_regex = \"^/(.*)\""]);
    assert!(
        route.contains("redirect = \"http://a.example/b?c=d{1}&{query}\""),
        "{route}"
    );
    let toml = lossless_toml(import_server("rewrite ^/(.*) http://a.example/b/ last;"));
    assert!(
        toml.contains("redirect = \"http://a.example/b/?{query}\""),
        "{toml}"
    );
}

#[test]
fn ssl_on_makes_addresses_use_tls_except_on_port_80() {
    let imported = import_nginx(
        "server { listen 80; listen 8443; ssl on; ssl_certificate /c/a.crt; ssl_certificate_key /c/a.key;\n\
         error_page 497 https://$host$uri; location / { proxy_pass http://10.0.0.5; } }\n",
    );
    let toml = &imported.toml;
    assert!(
        find_table(toml, &["0.0.0.0:8443"]).contains("tls = "),
        "{toml}"
    );
    assert!(
        !find_table(toml, &["0.0.0.0:80\""]).contains("tls = "),
        "{toml}"
    );
    let route = find_table(toml, &["redirect"]);
    assert!(
        route.contains("redirect = \"https://{host}{1}\""),
        "{route}"
    );
    assert!(!route.contains("status"), "302 is the default: {route}");
    let imported = import_nginx(
        "server { listen 80; ssl on; ssl_certificate /c/a.crt; ssl_certificate_key /c/a.key;\n\
         location / { proxy_pass http://10.0.0.5; } }\n",
    );
    assert!(imported.toml.contains("status = 400"), "{}", imported.toml);
}

#[test]
fn nested_locations_inherit_lines_but_nested_expressions_are_losses() {
    let toml = lossless_toml(import_server(
        "location /a/ { proxy_set_header X-A 1; proxy_pass http://10.0.0.5;\n \
         location /a/b/ { proxy_pass http://10.0.0.6; }\n \
         location = /a/c { proxy_pass http://10.0.0.7; proxy_set_header X-B 2; }\n }",
    ));
    let prefix = find_table(&toml, &["path = \"/a/b/*\""]);
    assert!(
        prefix.contains("pool = \"10.0.0.6\"") && prefix.contains("X-A: 1"),
        "{prefix}"
    );
    let exact = find_table(&toml, &["path = \"/a/c\""]);
    assert!(
        exact.contains("X-B: 2") && !exact.contains("X-A"),
        "{exact}"
    );
    let imported = import_server(
        "location /a/ { proxy_pass http://10.0.0.5; location ~ b$ { proxy_pass http://10.0.0.6; } }",
    );
    assert!(!imported.losses.is_empty(), "{}", imported.toml);
}

#[test]
fn page_of_try_files_has_the_fields_of_its_location() {
    let toml = lossless_toml(import_server(
        "root /srv; location / { try_files $uri $uri/ /index.html;\n \
         location = /index.html { add_header Cache-Control no-store; } }",
    ));
    let route = toml.rsplit("\n\n").next().unwrap_or_default();
    assert!(
        route.contains("header = \"Cache-Control: no-store\"")
            && route.contains("file = \"/index.html\""),
        "{route}"
    );
}

#[test]
fn error_page_of_missing_file_is_proxied() {
    let toml = lossless_toml(import_server(
        "location / { proxy_pass http://10.0.0.5; }\n location /docs/ { root /srv; error_page 404 /missing; }\n \
         location /none/ { error_page 404 /missing; }",
    ));
    for path in ["path = \"/docs/*\"", "path = \"/none/*\""] {
        let route = find_table(&toml, &[path, "method = [\"GET\", \"HEAD\"]"]);
        assert!(route.contains("rewrite = \"/missing?\""), "{route}");
        assert!(route.contains("response_status = 404"), "{route}");
        assert!(route.contains("pool = \"10.0.0.5\""), "{route}");
    }
}

#[test]
fn host_with_a_backslash_is_sent() {
    let toml = lossless_toml(import_server(
        "location / { proxy_pass http://10.0.0.5; proxy_set_header Host \\$host; }",
    ));
    assert!(
        toml.contains("host = \"\\\\{host}\"") || toml.contains("host = '\\{host}'"),
        "{toml}"
    );
}

#[test]
fn status_of_responses_is_replaced() {
    let toml = lossless_toml(import_frontend("http-response set-status 503"));
    assert!(toml.contains("response_status = 503"), "{toml}");
    let imported = import_frontend("http-response set-status 304");
    assert!(!imported.losses.is_empty(), "{}", imported.toml);
}
