//! Tests the import of checks, emails, cookies and options of addresses.

use weir_import::{EmptyEnvironment, Imported, haproxy, keepalived, nginx};

fn assert_valid(imported: Imported) -> Imported {
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    imported
}

fn import_haproxy(text: &str) -> Imported {
    assert_valid(haproxy("haproxy.cfg", text, &EmptyEnvironment))
}

fn import_nginx(lines: &str) -> Imported {
    let text = format!("upstream a {{ server 10.0.0.5; }}\n{lines}\n");
    assert_valid(nginx("nginx.conf", &text, &EmptyEnvironment))
}

/// Returns the first table that contains this text.
fn find_table<'t>(toml: &'t str, text: &str) -> &'t str {
    let mut tables = toml.split("\n\n");
    let table = tables.find(|table| table.contains(text));
    table.unwrap_or_else(|| panic!("no table with {text}:\n{toml}"))
}

#[test]
fn checks_and_agents_are_imported_with_their_options() {
    let check = |lines: &str| {
        import_haproxy(&format!(
            "listen l\n mode http\n bind :80\n {lines}\n server a 10.0.0.5:80 check\n"
        ))
    };
    let imported = check(
        "option httpchk\n http-check send meth GET uri /up ver HTTP/1.1 hdr Host x hdr X-A b",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    for key in ["host = \"x\"", "headers = [\"X-A: b\"]", "path = \"/up\""] {
        assert!(imported.toml.contains(key), "{key}: {}", imported.toml);
    }
    let imported = check(
        "option tcp-check\n default-server agent-check agent-port 99 agent-inter 5s agent-send up",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    for key in [
        "kind = \"agent\"",
        "port = 99",
        "interval = \"5s\"",
        "send = \"up\"",
    ] {
        assert!(imported.toml.contains(key), "{key}: {}", imported.toml);
    }
}

#[test]
fn unset_variable_in_an_option_does_not_drop_the_server() {
    let imported = import_haproxy(
        "listen l\n mode http\n bind :80\n server a 10.0.0.5:80 \"${OPTION}\" weight 3\n",
    );
    assert!(imported.toml.contains("weight = 3"), "{}", imported.toml);
    assert!(
        imported.losses[0].contains("OPTION is not set"),
        "{:?}",
        imported.losses
    );
}

#[test]
fn sections_with_equal_email_settings_share_a_receiver() {
    let section = |name: &str, to: &str| {
        format!(
            "listen {name}\n mode tcp\n bind :{to}\n email-alert mailers m\n email-alert from a@b.example\n \
             email-alert to {to}@b.example\n server a 10.0.0.5:80 check\n"
        )
    };
    let text = format!(
        "mailers m\n mailer x 192.0.2.1:25\n{}{}{}",
        section("one", "81"),
        section("two", "82"),
        section("three", "83").replace("83@", "81@")
    );
    let imported = import_haproxy(&text);
    let first = find_table(&imported.toml, "[notify.mail]");
    assert!(first.contains("pools = [\"one\", \"three\"]"), "{first}");
    let second = find_table(&imported.toml, "[notify.mail-2]");
    assert!(second.contains("pools = [\"two\"]"), "{second}");
}

#[test]
fn requests_without_a_location_get_status_404() {
    let routes = |locations: &str| {
        let imported = import_nginx(&format!("server {{\n listen 80;\n{locations}\n}}\n"));
        imported.toml.matches("status = 404").count()
    };
    assert_eq!(routes("location /a { proxy_pass http://a; }"), 1);
    assert_eq!(routes("location / { proxy_pass http://a; }"), 0);
}

#[test]
fn identifying_cookie_is_set_with_its_attributes() {
    let imported = import_nginx(
        "server {\n listen 80;\n userid on;\n userid_name id;\n userid_expires 1d;\n userid_domain a.example;\n \
         location / { proxy_pass http://a; }\n}\n",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let cookie = "Set-Cookie: id={request_id}; Max-Age=86400; Domain=a.example; Path=/";
    assert!(imported.toml.contains(cookie), "{}", imported.toml);
}

#[test]
fn address_options_are_losses_only_if_they_have_an_effect() {
    let import = |options: &str| {
        let text = format!(
            "vrrp_instance v {{\n interface eth0\n virtual_router_id 5\n virtual_ipaddress {{\n {options}\n }}\n}}\n"
        );
        assert_valid(keepalived("keepalived.conf", &text, &EmptyEnvironment))
    };
    let plain = import("192.0.2.1/24").toml;
    for options in [
        "dev eth0",
        "label eth0:1",
        "brd +",
        "scope global",
        "home",
        "preferred_lft forever",
    ] {
        let imported = import(&format!("192.0.2.1/24 {options}"));
        assert!(
            imported.losses.is_empty(),
            "{options}: {:?}",
            imported.losses
        );
        assert_eq!(imported.toml, plain, "{options}");
    }
    for options in ["scope link", "mngtmpaddr", "preferred_lft 0", "metric 5"] {
        let imported = import(&format!("192.0.2.1/24 {options}"));
        assert_eq!(imported.losses.len(), 1, "{options}");
    }
    assert!(import("fd00::1/128 preferred_lft 0").losses.is_empty());
    assert!(import("fd00::1 preferred_lft 0").losses.is_empty());
    assert_eq!(import("fd00::1/64 preferred_lft 0").losses.len(), 1);
}
