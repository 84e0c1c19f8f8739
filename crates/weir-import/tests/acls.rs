//! Tests notes about unused HAProxy ACLs, and rules in named `defaults` sections.

use weir_import::{EmptyEnvironment, Imported, haproxy};

fn import(text: &str) -> Imported {
    let imported = haproxy("haproxy.cfg", text, &EmptyEnvironment);
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    imported
}

/// Imports a frontend with these lines, starting at line 5.
fn import_frontend(lines: &str) -> Imported {
    import(&format!(
        "defaults\n mode http\nfrontend web\n bind :80\n {lines}\n default_backend app\n\
         backend app\n server a 10.0.0.5:80\n"
    ))
}

/// Returns each route's keys, except `service`.
fn routes(imported: &Imported) -> Vec<String> {
    let routes = imported.toml.split("[[route]]").skip(1);
    let keys = routes.map(|route| {
        let lines = route
            .lines()
            .take_while(|line| !line.starts_with(['#', '[']));
        let keys = lines.filter(|line| !line.is_empty() && !line.starts_with("service"));
        keys.collect::<Vec<_>>().join("; ")
    });
    keys.collect()
}

#[test]
fn acl_in_an_imported_rule_causes_no_note() {
    for lines in [
        "acl x sc_http_req_rate(0) gt 20\n stick-table type ip size 1m expire 30s store http_req_rate(10s)\n \
         http-request track-sc0 src\n http-request deny deny_status 429 if x",
        "acl x src_conn_cur gt 20\n tcp-request connection reject if x",
        "acl x src 10.0.0.0/8\n http-request allow if x",
        "acl x path_beg /a\n http-request deny if !x",
        "acl x path_beg /a\n http-request set-header X-A b if x",
        "acl x path_beg /a\n use_backend app if x",
        "acl x path_beg /a\n redirect location /b unless x",
        "acl x src 10.0.0.0/8\n http-response set-header X-A b if x",
    ] {
        let imported = import_frontend(lines);
        let mut notes = imported.notes.iter();
        assert!(
            !notes.any(|note| note.contains("acl x")),
            "{lines}: {:#?}",
            imported.notes
        );
    }
    let tcp = "listen x\n mode tcp\n bind :80\n acl x req.ssl_sni -i a.example\n \
               tcp-request content accept if x\n server a 10.0.0.5:80\n";
    let imported = import(tcp);
    assert!(imported.notes.is_empty(), "{:#?}", imported.notes);
}

#[test]
fn note_about_unused_acl_gives_the_reason() {
    let note = |lines: &str| {
        let imported = import_frontend(lines);
        let mut notes = imported.notes.into_iter();
        notes
            .find(|note| note.starts_with("line 5:"))
            .unwrap_or_default()
    };
    assert!(note("acl x path_beg /a").ends_with("no rule in the section uses it"));
    let lua = "acl x path_beg /a\n http-request lua.f if x";
    assert!(note(lua).ends_with("no rule that uses it is imported"));
}

#[test]
fn rules_in_named_defaults_precede_rules_in_the_section() {
    let text = "defaults plain\n mode http\n\
                defaults base\n mode http\n acl adm path_beg /admin\n http-request deny if adm\n \
                http-request set-header X-A b\n http-response del-header Server\n\
                frontend web from base\n bind :80\n acl adm path_beg /other\n \
                http-request deny deny_status 404 if adm\n default_backend app\n\
                frontend old from plain\n bind :81\n default_backend app\n\
                backend app from plain\n server a 10.0.0.5:80\n";
    let imported = import(text);
    let changes = "set_header = [\"X-A: b\"]; remove_response_header = [\"Server\"]";
    let pool = format!("pool = \"app\"; {changes}");
    let expected = [
        "path = \"/admin*\"; status = 403",
        "path = \"/other*\"; status = 404",
        &pool,
    ];
    assert_eq!(routes(&imported), expected, "{}", imported.toml);
    assert!(imported.notes.is_empty(), "{:#?}", imported.notes);
}

#[test]
fn sections_without_from_use_the_rules_in_the_last_defaults() {
    let text = "defaults base\n mode http\n http-request deny if { path_beg /admin }\n\
                frontend web\n bind :80\n default_backend app\n\
                defaults plain\n mode http\nbackend app\n server a 10.0.0.5:80\n";
    let imported = import(text);
    assert_eq!(routes(&imported), ["path = \"/admin*\"; status = 403"]);
    assert!(imported.losses.is_empty(), "{:#?}", imported.losses);
}

#[test]
fn acls_in_defaults_are_not_visible_in_sections() {
    let text = "defaults base\n mode http\n acl adm path_beg /admin\n http-request deny if adm\n\
                frontend web from base\n bind :80\n use_backend app if adm\n default_backend app\n\
                defaults plain\n mode http\nbackend app\n server a 10.0.0.5:80\n";
    let imported = import(text);
    assert_eq!(routes(&imported), ["path = \"/admin*\"; status = 403"]);
    assert!(
        imported
            .losses
            .iter()
            .any(|note| note.contains("the ACL `adm` is not defined"))
    );
}
