//! Tests the import of nginx's `set`, `map`, `geo`, named locations and `mirror`.

use weir_import::{EmptyEnvironment, Imported, nginx};

fn import(lines: &str) -> Imported {
    nginx("nginx.conf", lines, &EmptyEnvironment)
}

/// Imports a server block with these lines.
fn import_server(lines: &str) -> Imported {
    import(&format!("server {{ listen 80;\n{lines}\n}}"))
}

/// Returns the first table that contains all of these texts.
fn find_table<'t>(toml: &'t str, texts: &[&str]) -> &'t str {
    let tables: Vec<&str> = toml.split("\n\n").collect();
    let table = tables
        .iter()
        .find(|table| texts.iter().all(|text| table.contains(text)));
    table.unwrap_or_else(|| panic!("no table with {texts:?} in {toml}"))
}

#[track_caller]
fn assert_lossless(imported: &Imported) {
    assert!(
        imported.losses.is_empty(),
        "{:?}\n{}",
        imported.losses,
        imported.toml
    );
}

#[test]
fn last_address_is_used_unless_nginx_searches_recursively() {
    for (recursive, has_key) in [("", true), ("real_ip_recursive on;", false)] {
        let imported = import_server(&format!(
            "set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; {recursive}\n\
             location / {{ proxy_pass http://10.0.0.5; }}"
        ));
        assert_lossless(&imported);
        let key = "client_ip_recursive = false";
        assert_eq!(imported.toml.contains(key), has_key, "{}", imported.toml);
    }
}

#[test]
fn variables_with_one_value_are_replaced() {
    let imported = import_server(
        "set $app http://10.0.0.5:8080;\nset $where 'a $host';\n\
         location / { set $more ${where}-b; proxy_set_header X-A $more; proxy_pass $app; }\n\
         location /b { set $app http://10.0.0.6; proxy_pass $app; }",
    );
    assert_lossless(&imported);
    assert!(
        imported.toml.contains("\"10.0.0.5:8080\""),
        "{}",
        imported.toml
    );
    assert!(
        imported.toml.contains("\"X-A: a {host}-b\""),
        "{}",
        imported.toml
    );
    let route = find_table(&imported.toml, &["path = \"/b*\""]);
    assert!(route.contains("pool = \"10.0.0.6\""), "{route}");
}

#[test]
fn variables_that_routes_cannot_express_are_losses() {
    for lines in [
        "set $app $geoip_country;\nlocation / { proxy_pass http://$app; }",
        "location ~ ^/(.*) { set $name $1; proxy_set_header X-A $name; proxy_pass http://10.0.0.5; }",
        // If the URL contains a variable, nginx sends the URL's path for every request, which routes cannot express.
        "set $app http://10.0.0.5/x/;\nlocation /y/ { proxy_pass $app; }",
        "if ($http_a ~ x) { set $app http://10.0.0.5; }\nlocation / { proxy_pass $app; }",
    ] {
        let imported = import_server(lines);
        assert!(!imported.losses.is_empty(), "{lines}: {}", imported.toml);
    }
}

#[test]
fn values_that_depend_on_conditions_become_conditions() {
    let imported = import_server(
        "set $block 0;\nif ($http_user_agent ~* bot) { set $block 1; }\nif ($cookie_pass = yes) { set $block 0; }\n\
         if ($block = 1) { return 403; }\nlocation / { proxy_pass http://10.0.0.5; }",
    );
    assert_lossless(&imported);
    let route = find_table(&imported.toml, &["status = 403"]);
    assert!(
        route.contains("header = [\"user-agent: ~(?i)bot\"]"),
        "{route}"
    );
    assert!(
        route.contains("not = { cookie = [\"pass=yes\"] }"),
        "{route}"
    );
    // The second `set` appends to the first one's value.
    let imported = import_server(
        "if ($request_method = POST) { set $test P; }\nif ($http_x_a = b) { set $test \"${test}C\"; }\n\
         if ($test = PC) { return 405; }\nlocation / { proxy_pass http://10.0.0.5; }",
    );
    assert_lossless(&imported);
    let route = find_table(&imported.toml, &["status = 405"]);
    assert!(route.contains("method = [\"POST\"]"), "{route}");
    assert!(route.contains("header = [\"x-a: b\"]"), "{route}");
    // Each value becomes a separate target.
    let imported = import_server(
        "location / { set $up http://10.0.0.5; if ($cookie_beta = 1) { set $up http://10.0.0.6; } proxy_pass $up; }",
    );
    assert_lossless(&imported);
    let route = find_table(&imported.toml, &["[[route]]", "cookie = [\"beta=1\"]"]);
    assert!(route.contains("pool = \"10.0.0.6\""), "{route}");
    assert!(
        imported.toml.contains("\npool = \"10.0.0.5\""),
        "{}",
        imported.toml
    );
}

#[test]
fn maps_become_conditions_pools_and_tables() {
    let imported = import(
        "map $http_user_agent $bad { default 0; ~*curl 1; wget 1; }\n\
         geo $inside { default 0; 10.0.0.0/8 1; 192.168.0.0/16 1; }\n\
         server { listen 80; if ($bad) { return 403; }\nif ($inside = 0) { return 401; }\n\
         location / { proxy_pass http://10.0.0.5; } }",
    );
    assert_lossless(&imported);
    let route = find_table(&imported.toml, &["status = 403"]);
    assert!(
        route.contains("header = [\"user-agent: ~(?i)curl\", \"user-agent: ~(?i)^wget$\"]"),
        "{route}"
    );
    let route = find_table(&imported.toml, &["status = 401"]);
    assert!(
        route.contains("not = { source = [\"10.0.0.0/8\", \"192.168.0.0/16\"] }"),
        "{route}"
    );
    let imported = import(
        "map $host $up { default 10.0.0.5; b.example 10.0.0.6; }\nmap \"$host:$http_x_a\" $label { a.example:b two; \
         default one; }\n\
         server { listen 80; location / { proxy_set_header X-Label $label; proxy_pass http://$up; } }",
    );
    assert_lossless(&imported);
    let route = find_table(&imported.toml, &["[[route]]", "host = \"b.example\""]);
    assert!(route.contains("pool = \"10.0.0.6\""), "{route}");
    let map = find_table(&imported.toml, &["[map.label]"]);
    assert!(map.contains("key = \"{host}:{header.x-a}\""), "{map}");
    assert!(map.contains("entries = [\"a.example:b two\"]"), "{map}");
    assert!(map.contains("default = \"one\""), "{map}");
    assert!(
        imported.toml.contains("\"X-Label: {map.label}\""),
        "{}",
        imported.toml
    );
    // Expressions with different values may overlap.
    let imported = import(
        "map $http_a $up { default 0; ~x 1; ~y 2; }\n\
         server { listen 80; if ($up = 2) { return 403; }\nlocation / { proxy_pass http://10.0.0.5; } }",
    );
    assert!(!imported.losses.is_empty(), "{}", imported.toml);
}

#[test]
fn named_locations_receive_requests_for_missing_files() {
    let imported = import_server(
        "root /srv/www;\nlocation / { try_files $uri $uri/index.html @app; }\n\
         location @app { proxy_set_header X-A b; proxy_pass http://10.0.0.5; }",
    );
    assert_lossless(&imported);
    let route = find_table(&imported.toml, &["files = {"]);
    assert!(
        route.contains("try = [\"{path}\", \"{path}/index.html\"]")
            && route.contains("pool = \"10.0.0.5\""),
        "{route}"
    );
    assert!(route.contains("set_header = [\"X-A: b\"]"), "{route}");
    // Without `root`, nginx has no files to serve.
    let imported = import_server(
        "location / { try_files $uri @app; }\nlocation @app { proxy_pass http://10.0.0.5; }",
    );
    assert_lossless(&imported);
    assert!(!imported.toml.contains("files"), "{}", imported.toml);
    let imported = import_server(
        "location /a/ { root /srv/www; error_page 404 = @app; }\nlocation @app { proxy_pass http://10.0.0.5; }",
    );
    assert_lossless(&imported);
    assert!(find_table(&imported.toml, &["path = \"/a/*\""]).contains("pool = \"10.0.0.5\""));
    // A named location that no line refers to, or that does more than `proxy_pass`, is a loss.
    for named in [
        "location / { proxy_pass http://10.0.0.5; }\nlocation @app { proxy_pass http://10.0.0.6; }",
        "root /srv/www;\nlocation / { try_files $uri @app; }\nlocation @app { rewrite ^ /x break; proxy_pass \
         http://10.0.0.5; }",
    ] {
        assert!(!import_server(named).losses.is_empty(), "{named}");
    }
}

#[test]
fn rates_per_minute_are_imported() {
    let zone = "limit_req_zone $binary_remote_addr zone=z:1m rate=30r/m;\n";
    let imported = import(&format!(
        "{zone}server {{ listen 80; location /a {{ limit_req zone=z burst=5 nodelay; proxy_pass http://10.0.0.5; }} }}"
    ));
    assert_lossless(&imported);
    let route = find_table(&imported.toml, &["path = \"/a*\""]);
    assert!(
        route.contains("limits = { rate = \"30/m\", burst = 6 }"),
        "{route}"
    );
    let imported = import(&format!(
        "{zone}server {{ listen 80; limit_req zone=z nodelay; location /a {{ proxy_pass http://10.0.0.5; }} }}"
    ));
    assert_lossless(&imported);
    assert!(
        imported
            .toml
            .contains("limits = { rate = \"30/m\", burst = 1"),
        "{}",
        imported.toml
    );
}

#[test]
fn mirror_is_imported_with_pool_and_limits() {
    let text = |lines: &str, target: &str| {
        format!(
            "upstream test {{ server 10.0.0.9; }}\nserver {{ listen 80; client_max_body_size 100k;\n\
             location / {{ mirror /mirror; {lines} proxy_pass http://10.0.0.5; }}\n\
             location = /mirror {{ internal; proxy_pass {target}; }} }}"
        )
    };
    let imported = import(&text("", "http://test$request_uri"));
    assert_lossless(&imported);
    let route = find_table(&imported.toml, &["mirror = {"]);
    assert!(
        route.contains("mirror = { pool = \"test\", body = 102400, concurrent = 10000 }"),
        "{route}"
    );
    // Clients cannot request the mirror's location.
    assert!(find_table(&imported.toml, &["path = \"/mirror\""]).contains("status = 404"));
    let imported = import(&text("mirror_request_body off;", "http://test$request_uri"));
    assert_lossless(&imported);
    assert!(imported.toml.contains("body = 0"), "{}", imported.toml);
    let imported = import(&text("", "http://test"));
    assert_lossless(&imported);
    let route = find_table(&imported.toml, &["mirror = {"]);
    assert!(route.contains("path = \"/mirror\" }"), "{route}");
    // Weir cannot add a prefix to the request's path.
    let imported = import(&text("", "http://test/x$request_uri"));
    assert!(
        !imported.losses.is_empty() && !imported.toml.contains("mirror ="),
        "{}",
        imported.toml
    );
}

#[test]
fn location_has_its_own_retries_and_compression() {
    let imported = import_server(
        "gzip on;\nproxy_next_upstream error;\nlocation / { proxy_pass http://10.0.0.5; }\n\
         location /a/ { gzip off; proxy_next_upstream error http_503; proxy_next_upstream_tries 3; \
         proxy_pass http://10.0.0.5; }\n\
         location /b/ { gzip_types text/css; proxy_pass http://10.0.0.5; }",
    );
    assert_lossless(&imported);
    let service = find_table(&imported.toml, &["[service."]);
    assert!(service.contains("types = [\"text/html\"]"), "{service}");
    assert!(
        service.contains("retry_on = [\"connect\", \"empty\"]"),
        "{service}"
    );
    let route = find_table(&imported.toml, &["path = \"/a/*\""]);
    for key in [
        "compression = false",
        "retry_on = [\"connect\", \"empty\", \"503\"]",
        "retries = 2",
    ] {
        assert!(route.contains(key), "{key}: {route}");
    }
    let route = find_table(&imported.toml, &["path = \"/b/*\""]);
    assert!(
        route.contains("types = [\"text/html\", \"text/css\"]"),
        "{route}"
    );
}

#[test]
fn standard_nginx_conf_has_no_losses() {
    // Debian and nginx.org install this file.
    assert_lossless(&import(
        "user www-data;\nworker_processes auto;\npid /run/nginx.pid;\nevents { worker_connections 768; }\n\
         http {\nsendfile on;\ntcp_nopush on;\ntypes_hash_max_size 2048;\ninclude /etc/nginx/mime.types;\n\
         default_type application/octet-stream;\naccess_log /var/log/nginx/access.log;\n\
         error_log /var/log/nginx/error.log;\nkeepalive_timeout 65;\n\
         server { listen 80; location / { proxy_pass http://10.0.0.5; } }\n}",
    ));
}

#[test]
fn host_with_variables_becomes_host_of_the_pool() {
    let pool = |listen: &str, value: &str| {
        let imported = import(&format!(
            "server {{ listen {listen}; server_name www.example;\nproxy_set_header Host {value};\n\
             location / {{ proxy_pass http://10.0.0.5; }} }}"
        ));
        assert_lossless(&imported);
        let pool = find_table(&imported.toml, &["[pool."]);
        let mut lines = pool.lines();
        lines
            .find_map(|line| line.strip_prefix("host = "))
            .map(str::to_owned)
    };
    assert_eq!(pool("80", "$host"), None);
    assert_eq!(pool("8080", "$http_host"), None);
    // Clients send this port in `Host`; nginx's `$host` does not contain it.
    assert_eq!(pool("8080", "$host").as_deref(), Some("\"{host}\""));
    assert_eq!(
        pool("80", "$host:$server_port").as_deref(),
        Some("\"{host}:{listen_port}\"")
    );
    assert_eq!(
        pool("80", "$server_name").as_deref(),
        Some("\"www.example\"")
    );
    assert_eq!(pool("80", "$proxy_host").as_deref(), Some("\"10.0.0.5\""));
    for value in ["$upstream_addr", "a/b", "$geoip_country"] {
        let imported = import_server(&format!(
            "location / {{ proxy_set_header Host {value}; proxy_pass http://10.0.0.5; }}"
        ));
        assert!(!imported.losses.is_empty(), "{value}: {}", imported.toml);
    }
}
