//! Tests the import of directives that change response fields, error pages and timeouts, and of `monitor-net`.

use weir_import::{EmptyEnvironment, Imported, haproxy, nginx};

fn assert_valid(imported: Imported) -> Imported {
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    imported
}

fn import(defaults: &str, frontend: &str, backend: &str) -> Imported {
    let text = format!(
        "defaults\n mode http\n timeout connect 2s\n {defaults}\nfrontend web\n bind :80\n {frontend}\n \
         default_backend app\nbackend app\n {backend}\n server a 10.0.0.5:80\n"
    );
    assert_valid(haproxy("haproxy.cfg", &text, &EmptyEnvironment))
}

fn import_location(lines: &str) -> Imported {
    let text = format!(
        "http {{ server {{ listen 80; location / {{ proxy_pass http://10.0.0.5; {lines} }} }} }}\n"
    );
    assert_valid(nginx("nginx.conf", &text, &EmptyEnvironment))
}

/// Asserts that the output contains the text, and that there are no losses.
#[track_caller]
fn assert_imported_without_loss(imported: &Imported, text: &str) {
    assert!(imported.toml.contains(text), "{}", imported.toml);
    let losses: Vec<_> = imported.losses.iter().collect();
    assert!(losses.is_empty(), "{losses:?}");
}

#[test]
fn frontend_replacements_apply_after_those_of_the_backend() {
    let imported = import(
        "",
        "http-response replace-header Location ^http://(.*) https://\\1",
        "http-response replace-header Set-Cookie (.*) \"\\1; Secure\"",
    );
    assert_imported_without_loss(
        &imported,
        "replace_response_header = [{ name = \"Set-Cookie\", regex = \"(.*)\", to = \"{1}; Secure\" }, { name = \
         \"Location\", regex = \"^http://(.*)\", to = \"https://{1}\" }]",
    );
    let old = import(
        "",
        "rspirep ^Location:\\ http://(.*) Location:\\ https://\\1",
        "",
    );
    assert_imported_without_loss(
        &old,
        "{ name = \"Location\", regex = \"(?i)^http://(.*)\", to = \"https://{1}\" }",
    );
}

#[test]
fn replacements_that_weir_cannot_express_are_reported() {
    for rule in [
        "http-response replace-header Location ^http://(.*) https://%[src]\\1",
        "http-response replace-header Location ^http://(?=x) /",
        "http-response replace-value Vary a b",
    ] {
        let imported = import("", rule, "");
        assert_eq!(imported.losses.len(), 1, "{}", imported.toml);
        assert!(!imported.toml.contains("replace_response_header"), "{rule}");
    }
}

#[test]
fn proxy_redirect_changes_location_and_refresh() {
    let imported = import_location("proxy_redirect http://a.b/x/ /y/;");
    assert_imported_without_loss(
        &imported,
        "replace_response_header = [{ name = \"Location\", regex = \"^http://a\\\\.b/x/(.*)$\", to = \"/y/{1}\" }, { \
         name = \"Refresh\", regex = \"^(.*url=)http://a\\\\.b/x/(.*)$\", to = \"{1}/y/{2}\" }]",
    );
    let imported = import_location("proxy_redirect ~*^http://([^:]+):8080(/.*)$ https://$1$2;");
    assert_imported_without_loss(
        &imported,
        "{ name = \"Location\", regex = \"(?i)^http://([^:]+):8080(/.*)$\", to = \"https://{1}{2}\" }",
    );
    let imported = import_location("proxy_redirect http://a/ $scheme://$host/;");
    assert_eq!(imported.losses.len(), 1, "{}", imported.toml);
}

#[test]
fn error_pages_are_files_redirects_or_empty() {
    let imported = import(
        "errorfile 408 /dev/null\n errorloc 503 http://a.b/\n errorloc303 504 /late",
        "",
        "",
    );
    assert_imported_without_loss(
        &imported,
        "error_pages = [{ status = \"408\", file = \"/dev/null\" }, { status = \"503\", redirect = \"http://a.b/\" }, \
         { status = \"504\", redirect = \"/late\", redirect_status = 303 }]",
    );
}

#[test]
fn error_page_with_a_url_is_a_redirect() {
    let text = "http { server { listen 80; error_page 502 504 http://a.b/x; error_page 503 =303 https://c/; location / \
                { proxy_pass http://10.0.0.5; } } }\n";
    let imported = assert_valid(nginx("nginx.conf", text, &EmptyEnvironment));
    assert_imported_without_loss(
        &imported,
        "error_pages = [{ status = \"502,504\", redirect = \"http://a.b/x\" }, { status = \"503\", redirect = \
         \"https://c/\", redirect_status = 303 }]",
    );
}

#[test]
fn timeouts_of_rules_keep_the_other_timeouts() {
    let lines = "http-request set-timeout server 5m if { path_beg /slow }\n timeout tunnel 1h";
    let imported = import("", "use_backend other if { path_beg /other }", lines);
    assert!(
        imported.toml.contains("timeouts = { server = \"5m\" }"),
        "{}",
        imported.toml
    );
    let imported = import(
        "",
        "use_backend two if { path_beg /b }",
        "backend two\n timeout server 9s\n http-request set-timeout tunnel 5m if { path_beg /b/c }",
    );
    assert_imported_without_loss(&imported, "timeouts = { server = \"9s\", tunnel = \"5m\" }");
    assert!(
        imported.toml.contains("timeouts = { server = \"9s\" }"),
        "{}",
        imported.toml
    );
}

#[test]
fn monitor_net_becomes_a_route() {
    let imported = import("", "monitor-net 10.0.0.0/8", "");
    assert_imported_without_loss(&imported, "source = [\"10.0.0.0/8\"]\nstatus = 200\n");
}

/// In nginx, each `add_header` has its own statuses, even if another one adds the same field.
#[test]
fn fields_with_the_same_name_have_their_own_statuses() {
    let limited = |field: &str| {
        format!("{{ header = \"{field}\", status = \"200-201,204,206,301-304,307-308\" }}")
    };
    for (lines, expected) in [
        (
            "add_header X-A 1; add_header X-A 2 always;",
            format!("add_response_header = [{}, \"X-A: 2\"]", limited("X-A: 1")),
        ),
        (
            "add_header Cache-Control no-store always; expires 1h;",
            format!(
                "add_response_header = [\"Cache-Control: no-store\", {}]",
                limited("Cache-Control: max-age=3600")
            ),
        ),
    ] {
        assert_imported_without_loss(&import_location(lines), &expected);
    }
}
