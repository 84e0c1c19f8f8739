//! Tests the import of `split_clients`, file tests, limits, and lines of nginx.conf that have no effect.

use weir_import::{EmptyEnvironment, Imported, nginx};

fn import_nginx(lines: &str) -> Imported {
    let text =
        format!("upstream a {{ server 10.0.0.5; }}\nupstream b {{ server 10.0.0.6; }}\n{lines}\n");
    let imported = nginx("nginx.conf", &text, &EmptyEnvironment);
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

#[test]
fn file_tests_become_files_of_the_route() {
    for (lines, keys) in [
        (
            "if (!-f $request_filename) {\n proxy_pass http://a;\n break;\n }",
            vec!["try = [\"{path}\"]", "pool = \"a\""],
        ),
        (
            "if (-f $request_filename.html) {\n rewrite (.*) $1.html break;\n }\n if (!-e $request_filename) {\n \
             proxy_pass http://a;\n }",
            vec![
                "try = [\"{path}.html\", \"{path}\", \"{path}/\"]",
                "pool = \"a\"",
            ],
        ),
        (
            "if (!-e $request_filename) {\n rewrite ^(.*)$ /index.html last;\n }",
            vec!["try = [\"{path}\", \"{path}/\", \"/index.html\"]"],
        ),
        (
            "if (!-f $request_filename) {\n return 404;\n }",
            vec!["try = [\"{path}\"]"],
        ),
    ] {
        let imported = import_nginx(&format!(
            "server {{\n listen 80;\n location / {{\n root /srv/www;\n {lines}\n }}\n}}"
        ));
        assert!(imported.losses.is_empty(), "{:?}", imported.losses);
        let route = find_table(&imported.toml, &["[[route]]", "files = "]);
        for key in keys {
            assert!(route.contains(key), "{lines}: {key}: {route}");
        }
    }
    let imported = import_nginx(
        "server {\n listen 80;\n location / {\n root /srv/www;\n if (!-f $request_filename) {\n rewrite ^/(.*)$ \
         /index.php?p=$1 last;\n }\n }\n}",
    );
    assert!(
        imported.losses.iter().any(|it| it.starts_with("line 7:")),
        "{:?}",
        imported.losses
    );
}

#[test]
fn location_without_target_keeps_its_access_rules() {
    let imported = import_nginx(
        "server {\n listen 80;\n allow 10.0.0.0/8;\n deny all;\n location /x {\n content_by_lua_file /x.lua;\n }\n}",
    );
    let lost_lines: Vec<&str> = imported
        .losses
        .iter()
        .filter_map(|it| it.get(..7))
        .collect();
    assert_eq!(lost_lines, ["line 7:", "line 8:"], "{:?}", imported.losses);
    let allow_route = find_table(&imported.toml, &["path = \"/x*\"", "source = "]);
    assert!(allow_route.contains("status = 404"), "{allow_route}");
    find_table(&imported.toml, &["path = \"/x*\"", "status = 403"]);
}

#[test]
fn files_of_a_server_block_that_responds_first_are_not_losses() {
    for response in [
        "return 301 https://a.example$request_uri;",
        "rewrite ^/(.*) http://a.example/$1 permanent;",
    ] {
        let imported = import_nginx(&format!(
            "server {{\n listen 80;\n root /srv/www;\n index index.php;\n client_max_body_size 1m;\n {response}\n}}"
        ));
        assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    }
}

#[test]
fn length_of_an_empty_response_is_not_a_loss() {
    let imported = import_nginx(
        "server {\n listen 80;\n location / {\n if ($request_method = OPTIONS) {\n add_header Content-Length 0;\n \
         return 204;\n }\n proxy_pass http://a;\n }\n}",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
}

#[test]
fn body_limit_above_maximum_is_lowered_or_removed() {
    for (size, key, is_lost) in [
        ("4096m", "4294967295", false),
        ("10g", "0", true),
        ("50m", "52428800", false),
    ] {
        let imported = import_nginx(&format!(
            "server {{\n listen 80;\n client_max_body_size {size};\n location / {{\n proxy_pass http://a;\n }}\n}}"
        ));
        let service = find_table(&imported.toml, &["[service."]);
        assert!(
            service.contains(&format!("limits = {{ body = {key} }}")),
            "{service}"
        );
        assert_eq!(!imported.losses.is_empty(), is_lost, "{size}");
    }
}

#[test]
fn split_selects_the_target_in_several_ways() {
    let split = "split_clients $remote_addr $variant {\n 10% new;\n * old;\n}\n";
    let urls = "split_clients $remote_addr $variant {\n 10% http://b;\n * http://a;\n}\n";
    let map = "map $variant $target {\n new b;\n default a;\n}\n";
    for (blocks, location) in [
        (map, "proxy_pass http://$target;"),
        (map, "proxy_pass http://${target}$request_uri;"),
        (
            "",
            "if ($variant = new) {\n proxy_pass http://b;\n }\n proxy_pass http://a;",
        ),
        (
            "",
            "if ($variant != \"old\") {\n proxy_pass http://b;\n }\n proxy_pass http://a;",
        ),
        (
            "",
            "if ($variant = old) {\n proxy_pass http://a;\n }\n if ($variant = 'new') {\n proxy_pass http://b;\n }",
        ),
        (urls, "proxy_pass $variant;"),
    ] {
        let split = if blocks == urls { "" } else { split };
        let imported = import_nginx(&format!(
            "{blocks}{split}server {{\n listen 80;\n location / {{\n {location}\n }}\n}}"
        ));
        assert!(imported.losses.is_empty(), "{:?}", imported.losses);
        let route = find_table(&imported.toml, &["[[route]]", "split"]);
        assert!(
            route.contains("split = [\"b:1000\", \"a:9000\"]"),
            "{location}: {route}"
        );
    }
}

#[test]
fn conditions_on_a_split_are_lost_with_its_targets() {
    let imported = import_nginx(
        "split_clients $remote_addr $variant {\n 10% new;\n * old;\n}\nserver {\n listen 80;\n location / {\n if \
         ($variant = new) {\n proxy_pass http://b/x;\n }\n proxy_pass http://a;\n }\n}",
    );
    for line in ["line 10:", "line 11:", "line 13:"] {
        let mut losses = imported.losses.iter();
        assert!(
            losses.any(|loss| loss.starts_with(line)),
            "{line} {:?}",
            imported.losses
        );
    }
}

#[test]
fn mirror_of_a_split_has_a_percentage() {
    let imported = import_nginx(
        "split_clients $remote_addr $copy {\n 12.5% b;\n * \"\";\n}\nserver {\n listen 80;\n location / {\n mirror \
         /copy;\n proxy_pass http://a;\n }\n location = /copy {\n internal;\n if ($copy = \"\") {\n return 400;\n }\n \
         proxy_pass http://$copy$request_uri;\n }\n}",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let route = find_table(&imported.toml, &["[[route]]", "mirror = "]);
    assert!(
        route.contains("mirror = { pool = \"b\", percent = 12.50, "),
        "{route}"
    );
}
