//! Tests haproxy's `http-after-response`, which also changes responses that haproxy generates.

use weir_import::{EmptyEnvironment, Imported, haproxy};

const HSTS: &str = "Strict-Transport-Security: max-age=31536000";
const RULE: &str = "http-after-response set-header Strict-Transport-Security \"max-age=31536000\"";

fn import(frontend: &str, backend: &str) -> Imported {
    let text = format!(
        "defaults\n mode http\nfrontend web\n bind :80\n {frontend}\n default_backend app\n\
         backend app\n {backend}\n server a 10.0.0.5:80\n"
    );
    let imported = haproxy("haproxy.cfg", &text, &EmptyEnvironment);
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    imported
}

/// Returns the route that contains this text.
fn find_route<'t>(imported: &'t Imported, part: &str) -> &'t str {
    let mut routes = imported.toml.split("[[route]]").skip(1);
    let route = routes.find(|route| route.contains(part));
    route.unwrap_or_else(|| panic!("no route with {part}:\n{}", imported.toml))
}

#[test]
fn responses_of_routes_get_the_field_too() {
    let lines = format!(
        "{RULE}\n monitor-uri /up\n http-request redirect scheme https if {{ path /a }}\n \
         http-request deny if {{ path /b }}\n http-request silent-drop if {{ path /c }}\n \
         http-request return status 200 hdr X-A b hdr strict-transport-security no if {{ path /d }}"
    );
    let imported = import(&lines, "http-request deny if { path /e }");
    for part in [
        "\"/up\"", "redirect", "\"/b\"", "\"/d\"", "\"/e\"", "pool =",
    ] {
        let route = find_route(&imported, part);
        assert!(route.contains(HSTS), "{part}: {route}");
    }
    let route = find_route(&imported, "\"/d\"");
    assert!(
        route.contains("X-A: b") && !route.contains(": no\""),
        "{route}"
    );
    let route = find_route(&imported, "close = true");
    assert!(!route.contains(HSTS), "{route}");
    // haproxy responds to the monitor before all rules.
    assert!(
        imported
            .toml
            .split("[[route]]")
            .nth(1)
            .is_some_and(|it| it.contains("/up"))
    );
}

#[test]
fn error_responses_without_the_field_are_reported() {
    let imported = import(RULE, "");
    let losses = &imported.losses;
    assert_eq!(losses.len(), 1, "{losses:#?}");
    assert!(
        losses[0].starts_with("line 5: ") && losses[0].contains("503"),
        "{losses:#?}"
    );
    assert!(imported.unguarded.is_empty());
    let imported = import("http-after-response del-header Server", "");
    assert!(imported.losses.is_empty(), "{:#?}", imported.losses);
    assert!(
        imported
            .toml
            .contains("remove_response_header = [\"Server\"]")
    );
    for field in ["Retry-After", "content-type"] {
        let imported = import(&format!("http-after-response del-header {field}"), "");
        assert_eq!(imported.losses.len(), 1, "{field}");
    }
}

#[test]
fn rules_of_a_backend_change_its_own_responses_only() {
    let deny = "http-request deny if { path /b }";
    let imported = import(
        deny,
        &format!("{RULE}\n http-request deny if {{ path /e }}"),
    );
    assert!(!find_route(&imported, "\"/b\"").contains(HSTS));
    assert!(find_route(&imported, "\"/e\"").contains(HSTS));
    assert!(find_route(&imported, "pool =").contains(HSTS));
}

#[test]
fn after_response_rules_follow_response_rules() {
    let after = "http-after-response set-header X-A after";
    for (frontend, backend) in [
        (
            format!("{after}\n http-response del-header X-A"),
            String::new(),
        ),
        (
            "http-response set-header X-A b".to_owned(),
            after.to_owned(),
        ),
    ] {
        let imported = import(&frontend, &backend);
        let route = find_route(&imported, "pool =");
        assert!(
            route.contains("set_response_header = [\"X-A: after\"]"),
            "{route}"
        );
        assert!(!route.contains("remove_response_header"), "{route}");
    }
    let imported = import(after, "http-after-response set-header X-A inner");
    assert!(find_route(&imported, "pool =").contains("[\"X-A: after\"]"));
}

#[test]
fn change_to_the_location_of_redirects_is_reported() {
    let imported = import("http-after-response set-header Location /", "");
    assert!(
        imported.losses.iter().any(|it| it.contains("not imported")),
        "{imported:#?}"
    );
}

#[test]
fn frontend_without_pool_has_the_field_in_its_503() {
    let text = format!("frontend web\n mode http\n bind :80\n {RULE}\n");
    let imported = haproxy("haproxy.cfg", &text, &EmptyEnvironment);
    assert!(find_route(&imported, "status = 503").contains(HSTS));
}
