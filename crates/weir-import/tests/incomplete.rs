//! Tests unusual files: templates with placeholders, lines of old versions, malformed lines, and lines whose equivalent
//! in Weir has a different form. All lines with an equivalent must be imported.

use weir_import::{EmptyEnvironment, Imported, haproxy, keepalived, ldirectord};

fn assert_valid(imported: Imported) -> Imported {
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    imported
}

fn import_keepalived(text: &str) -> Imported {
    assert_valid(keepalived("keepalived.conf", text, &EmptyEnvironment))
}

fn import_ldirectord(text: &str) -> Imported {
    assert_valid(ldirectord("ldirectord.cf", text, &EmptyEnvironment))
}

fn import_haproxy(lines: &str) -> Imported {
    let text = format!(
        "defaults\n mode http\nfrontend web\n bind :80\n {lines}\n default_backend app\n\
         backend app\n server a 10.0.0.5:80 check\nbackend other\n server b 10.0.0.6:80 check\n"
    );
    assert_valid(haproxy("haproxy.cfg", &text, &EmptyEnvironment))
}

fn assert_contains_all(imported: &Imported, parts: &[&str]) {
    for part in parts {
        assert!(
            imported.toml.contains(part),
            "no {part}:\n{}",
            imported.toml
        );
    }
}

#[test]
fn instance_with_placeholder_is_imported_disabled() {
    let import = |id: &str, interface: &str| {
        import_keepalived(&format!(
            "vrrp_instance VI_1 {{\n state {{{{ state }}}}\n interface {interface}\n virtual_router_id {id}\n \
             priority 150\n advert_int 2\n virtual_ipaddress {{\n 192.0.2.10/24\n }}\n}}\n"
        ))
    };
    for (id, interface) in [
        ("{{ id }}", "eth0"),
        ("${ID}", "eth0"),
        ("ID_GOES_HERE", "eth0"),
        ("300", "eth0"),
        ("51", "{{ interface }}"),
        ("51", "${INTERFACE}"),
    ] {
        let imported = import(id, interface);
        assert!(imported.losses.is_empty(), "{id}: {:?}", imported.losses);
        assert_contains_all(
            &imported,
            &[
                "[vrrp.VI_1]",
                "enabled = false",
                "priority = 150",
                "advert_interval = \"2s\"",
                "192.0.2.10/24",
            ],
        );
    }
    let complete = import("51", "eth0");
    assert!(!complete.toml.contains("enabled"), "{}", complete.toml);
}

#[test]
fn only_template_statements_are_losses() {
    let imported = import_keepalived(
        "{% if primary %}\nvrrp_instance VI_1 {\n interface eth0\n virtual_router_id 51\n virtual_ipaddress {\n\
         192.0.2.10\n }\n}\n{% endif %}\n",
    );
    assert_eq!(imported.losses.len(), 2, "{:?}", imported.losses);
    assert_contains_all(&imported, &["virtual_router_id = 51", "192.0.2.10"]);
}

#[test]
fn servers_of_virtual_server_with_placeholder_become_a_pool() {
    let imported = import_keepalived(
        "virtual_server {{ vip }} 80 {\n delay_loop 6\n lb_algo rr\n lb_kind DR\n protocol TCP\n\
         real_server 10.0.0.5 80 {\n weight 3\n TCP_CHECK {\n connect_timeout 3\n }\n }\n}\n",
    );
    assert_contains_all(
        &imported,
        &[
            "scheduler = \"rr\"",
            "address = \"10.0.0.5\"",
            "weight = 3",
            "kind = \"tcp\"",
        ],
    );
    assert!(!imported.toml.contains("[service."), "{}", imported.toml);
    // The header, `lb_kind` and `protocol` are lost.
    assert_eq!(imported.losses.len(), 3, "{:?}", imported.losses);
}

#[test]
fn lines_of_a_virtual_service_are_imported_without_indentation() {
    let imported = import_ldirectord(
        "virtual=192.0.2.1:80\nreal=10.0.0.5:80 masq\n  real=10.0.0.6:80 masq\n\n    scheduler=rr\n\
         request=index.html\n",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    assert_contains_all(
        &imported,
        &[
            "10.0.0.5:80",
            "10.0.0.6:80",
            "scheduler = \"rr\"",
            "path = \"/index.html\"",
        ],
    );
    // Without a valid service, the lines are lost.
    let imported = import_ldirectord(
        "virtual=192.0.2.1:80\n real=10.0.0.5:80 masq\nvirtual=???\nreal=10.0.0.6:80 masq\n",
    );
    assert!(!imported.toml.contains("\"10.0.0.6"), "{}", imported.toml);
    assert!(!imported.losses.is_empty());
}

#[test]
fn ldirectord_ipv6_services_and_old_directives_are_imported() {
    let imported = import_ldirectord(
        "timeout=7\nvirtual=[2001:db8::1]:80\n    real=[fd00::1]:80 masq\n    checktype=connect\n",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    assert_contains_all(
        &imported,
        &["[2001:db8::1]:80", "fd00::1", "timeout = \"7s\""],
    );
}

#[test]
fn checks_with_perl_modules_become_scripts() {
    let import = |lines: &str| {
        let text = format!("virtual=192.0.2.1:389\n    real=10.0.0.5:389 masq\n{lines}");
        let imported = import_ldirectord(&text);
        assert!(imported.losses.is_empty(), "{:?}", imported.losses);
        imported.toml
    };
    let sql = import(
        "    service=mysql\n    login=\"u\"\n    passwd=\"secret\"\n    database=\"d\"\n    request=\"select 1\"\n",
    );
    assert!(
        sql.contains("\"mysql\", \"database\", \"d\", \"u\", \"secret\", \"select 1\"]"),
        "{sql}"
    );
    let ldap = import("    service=ldap\n    request=\"dc=x\"\n    receive=\"dc\"\n");
    assert!(
        ldap.contains("\"ldap\", \"\", \"\", \"dc=x\", \"dc\"]"),
        "{ldap}"
    );
    let ftp = import(
        "    service=ftp\n    login=\"u\"\n    passwd=\"p\"\n    request=\"a.txt\"\n    receive=\"ok\"\n",
    );
    assert!(ftp.contains("\"u\", \"p\", \"/a.txt\", \"ok\"]"), "{ftp}");
}

#[test]
fn forwardfor_with_options_becomes_a_header_change() {
    let imported = import_haproxy("option forwardfor except 10.0.0.0/8 header X-Client if-none");
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    assert_contains_all(&imported, &["X-Client: {client}"]);
    assert!(!imported.toml.contains("x_forwarded"), "{}", imported.toml);
}

#[test]
fn responses_keep_media_type_and_fields() {
    let imported = import_haproxy(
        "http-request return status 200 content-type application/json hdr X-A b string \"{}\" if { path /up }",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    assert_contains_all(
        &imported,
        &[
            "body = \"{}\"",
            "[\"X-A: b\", \"Content-Type: application/json\"]",
        ],
    );
    // The rule rejects requests even if its page cannot be read.
    let imported = import_haproxy(
        "http-request deny deny_status 451 content-type text/html file /none.html if { path /x }",
    );
    assert_eq!(imported.losses.len(), 1, "{:?}", imported.losses);
    assert_contains_all(&imported, &["status = 451", "path = \"/x\""]);
}

#[test]
fn expected_statuses_of_checks_become_ranges() {
    let import = |expect: &str| {
        let text = format!(
            "defaults\n mode http\nlisten web\n bind :80\n option httpchk\n http-check connect port 81\n \
             http-check expect {expect}\n server a 10.0.0.5:80 check\n"
        );
        let imported = assert_valid(haproxy("haproxy.cfg", &text, &EmptyEnvironment));
        assert!(imported.losses.is_empty(), "{:?}", imported.losses);
        imported.toml
    };
    assert!(import("rstatus (2|3)[0-9][0-9]").contains("status = \"200-399\""));
    assert!(import("comment x ! rstatus ^5").contains("status = \"100-499\""));
    assert!(import("! status 200,204").contains("status = \"100-199,201-203,205-599\""));
    assert!(import("status 200").contains("port = 81"));
}

#[test]
fn addresses_in_fields_become_regular_expressions() {
    let imported =
        import_haproxy("use_backend other if { hdr_ip(X-Forwarded-For,-1) 10.0.0.0/8 192.0.2.9 }");
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    assert_contains_all(
        &imported,
        &[
            r#""X-Forwarded-For: ~(^|,)\\s*10\\.[0-9]+\\.[0-9]+\\.[0-9]+\\s*$""#,
            r#""X-Forwarded-For: ~(^|,)\\s*192\\.0\\.2\\.9\\s*$""#,
        ],
    );
}

#[test]
fn computed_backend_names_become_a_map() {
    let imported = import_haproxy("use_backend %[req.hdr(host),lower]");
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    assert_contains_all(
        &imported,
        &[
            "entries = [\"app app\", \"other other\"]",
            "default = \"app\"",
        ],
    );
}

#[test]
fn unused_lines_are_not_losses() {
    let imported = import_haproxy(
        "timeout client-fin 5s\n timeout tarpit 5s\n stick-table type ip size 1m expire 1m\n \
         http-request track-sc0 src\n http-request set-header X-Secure yes if { ssl_fc }",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    // If a rule depends on them, such lines are losses.
    let imported = import_haproxy(
        "stick-table type ip size 1m expire 1m store gpc0\n http-request track-sc0 src\n \
         http-request deny if { sc0_get_gpc0 gt 0 }",
    );
    assert_eq!(imported.losses.len(), 3, "{:?}", imported.losses);
}
