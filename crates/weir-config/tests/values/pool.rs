//! Tests the servers, names and cookies of pools.

use weir_model::{Forward, Pool, ServersDns, ServersRecord, Sticky, StickyMode, TunnelKind};

use crate::{desired, messages, with_service};

fn with_pool(lines: &str) -> String {
    with_service("").replace("[service.s]", &format!("{lines}\n[service.s]"))
}

#[track_caller]
fn pool(lines: &str) -> Pool {
    desired(&with_pool(lines)).pools[0].clone()
}

#[test]
fn pool_host_is_a_name_with_an_optional_port() {
    let longest = "a".repeat(255);
    for host in [
        "www.example",
        "{host}",
        "{host}:8080",
        "[2001:db8::1]:80",
        &longest,
    ] {
        let found = pool(&format!("host = \"{host}\"")).host.expect("not set");
        assert_eq!(found.as_str(), host);
    }
    let too_long = "a".repeat(256);
    for host in [
        "", "a b", "a/b", "a?b", "a#b", "a@b", "a}", "\u{e9}", &too_long,
    ] {
        let found = messages(&with_pool(&format!("host = \"{host}\"")));
        assert_eq!(found, [format!("invalid host `{host}`")]);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn servers_dns_labels_have_at_most_63_bytes() {
    let with_dns = |fields: &str| {
        let servers = format!("servers_dns = {{ {fields} }}");
        with_service("").replace("servers = [\"10.0.0.5:80\"]", &servers)
    };
    let dns = |fields: &str| desired(&with_dns(fields)).pools[0].servers_dns.clone();
    assert_eq!(
        dns("name = \"a_B-1.example.\""),
        [ServersDns::new("a_B-1.example")]
    );
    let found = dns(
        "name = \"a\", record = \"A\", port = 8080, resolvers = [\"10.0.0.1\", \"[fd00::1]:5353\"], weight = 7, \
         max_connections = 9, backup = true",
    );
    let expected = ServersDns {
        record: ServersRecord::A,
        port: Some(8080),
        resolvers: vec![
            "10.0.0.1:53".parse().expect("parse address"),
            "[fd00::1]:5353".parse().expect("parse address"),
        ],
        weight: 7,
        max_connections: 9,
        backup: true,
        ..ServersDns::new("a")
    };
    assert_eq!(found, [expected]);
    assert_eq!(
        dns("name = \"a\", record = \"SRV\"")[0].record,
        ServersRecord::Srv
    );
    let label = "a".repeat(63);
    let longest = [label.as_str(), &label, &label, &"a".repeat(61)].join(".");
    for name in [label.clone(), longest.clone()] {
        assert_eq!(dns(&format!("name = \"{name}\"")), [ServersDns::new(&name)]);
    }
    for name in [
        "",
        ".",
        "a..b",
        "a b",
        "a:80",
        &format!("{label}a"),
        &format!("{longest}a"),
    ] {
        let found = messages(&with_dns(&format!("name = \"{name}\"")));
        assert_eq!(found, [format!("`{name}` is not a valid DNS name")]);
    }
    for (fields, message) in [
        (
            "record = \"SRV\", port = 1",
            "`port` is not allowed with SRV records, which contain ports",
        ),
        (
            "record = \"SRV\", weight = 1",
            "`weight` is not allowed with SRV records, which contain weights",
        ),
        (
            "cookie = \"c\"",
            "`cookie` has no effect: the pool has no `sticky`",
        ),
    ] {
        assert_eq!(
            messages(&with_dns(&format!("name = \"a\", {fields}"))),
            [message],
            "{fields}"
        );
    }
    let text = with_dns("name = \"a\"")
        .replace("{ name = \"a\" }", "[{ name = \"a\" }, { name = \"a\" }]");
    assert_eq!(messages(&text), ["`a` is listed twice"]);
    let text = with_dns("name = \"a\", cookie = \"c#d\"");
    let text = text.replace("[service.s]", "sticky = { cookie = \"c\" }\n[service.s]");
    assert_eq!(messages(&text), ["`#` is not allowed in this value"]);
}

#[test]
fn sticky_cookie_has_a_name_and_attributes() {
    let found = pool("sticky = { cookie = \"SRV!\" }")
        .sticky
        .expect("not set");
    let expected = Sticky {
        cookie: "SRV!".to_owned(),
        mode: StickyMode::Insert,
        secret: None,
        attributes: None,
        private: false,
    };
    assert_eq!(found, expected);
    let found = pool(
        "sticky = { cookie = \"a\", attributes = \"Path=/; Secure\", private = true, mode = \"insert\" }",
    );
    let found = found.sticky.expect("not set");
    assert_eq!(
        (found.attributes.as_deref(), found.private),
        (Some("Path=/; Secure"), true)
    );
    for (sticky, message) in [
        ("cookie = \"\"", "invalid cookie name ``"),
        ("cookie = \"a b\"", "invalid cookie name `a b`"),
        ("cookie = \"a=b\"", "invalid cookie name `a=b`"),
        ("cookie = \"\u{e9}\"", "invalid cookie name `\u{e9}`"),
        (
            "cookie = \"a\", attributes = \"\\t\"",
            "the value contains characters that are not allowed in a header field",
        ),
        (
            "cookie = \"a\", mode = \"prefix\", private = true",
            "`private` has no effect: Weir inserts cookies only with `mode = \"insert\"`",
        ),
    ] {
        assert_eq!(
            messages(&with_pool(&format!("sticky = {{ {sticky} }}"))),
            [message],
            "{sticky}"
        );
    }
    let with_cookie = |cookie: &str| {
        let server = format!("{{ address = \"10.0.0.5:80\", cookie = \"{cookie}\" }}");
        let text = with_pool("sticky = { cookie = \"a\" }");
        text.replace(
            "servers = [\"10.0.0.5:80\"]",
            &format!("servers = [{server}]"),
        )
    };
    let found = desired(&with_cookie("a!#=b")).pools[0].servers[0]
        .cookie
        .clone();
    assert_eq!(found.as_deref(), Some("a!#=b"));
    for cookie in ["", "a b", "a,b", "a;b", "a~b"] {
        assert_eq!(
            messages(&with_cookie(cookie)),
            [format!("invalid cookie value `{cookie}`")]
        );
    }
}

fn with_servers(servers: &str) -> String {
    format!(
        "[pool.p]\nservers = [{servers}]\ncheck = {{ kind = \"ping\" }}\n[service.s]\nlisten = [\"[2001:db8::1]:80\", \
         \"192.0.2.1:80\"]\nforward = \"tunnel\"\npool = \"p\"\n"
    )
}

#[test]
fn server_settings_are_in_the_model() {
    let found = desired(&with_servers(
        "{ address = \"10.0.0.5\", weight = 7, max_connections = 5, min_connections = 5, tunnel = \"gre\", check = { \
         kind = \"tcp\", port = 1 } }, { address = \"10.0.0.6\", forward = \"tunnel\" }",
    ));
    let [first, second] = &found.pools[0].servers[..] else {
        panic!("expected two servers")
    };
    assert_eq!(
        (first.weight, first.max_connections, first.min_connections),
        (7, 5, 5)
    );
    assert_eq!(
        (first.tunnel.map(|it| it.kind), first.backup),
        (Some(TunnelKind::Gre), false)
    );
    assert_eq!(first.checks.as_ref().map(Vec::len), Some(1));
    assert_eq!(
        (second.weight, second.backup, second.checks.as_ref()),
        (1, false, None)
    );
    assert_eq!(second.forward, Some(Forward::Tunnel));
    for (fields, message) in [
        (
            "max_connections = 5, min_connections = 6",
            "`min_connections` exceeds `max_connections`",
        ),
        (
            "min_connections = 1",
            "`min_connections` exceeds `max_connections`",
        ),
        (
            "cookie = \"c\"",
            "`cookie` has no effect: the pool has no `sticky`",
        ),
    ] {
        let server = format!("{{ address = \"10.0.0.5\", {fields} }}");
        assert_eq!(messages(&with_servers(&server)), [message], "{fields}");
    }
}

#[test]
fn duplicate_servers_are_rejected() {
    for (servers, message) in [
        (
            "\"10.0.0.5\", \"10.0.0.5\"",
            "server 10.0.0.5 is listed twice",
        ),
        (
            "\"10.0.0.5:80\", \"10.0.0.5:80\"",
            "server 10.0.0.5:80 is listed twice",
        ),
    ] {
        assert_eq!(messages(&with_servers(servers)), [message]);
    }
    assert_eq!(
        messages(&with_servers("\"10.0.0.5\", \"10.0.0.6\"")),
        Vec::<String>::new()
    );
    let with_sorry = |sorry: &str| {
        let sorry = format!("sorry = \"{sorry}\"\n[service.s]");
        with_servers("\"10.0.0.5\", \"10.0.0.6\"").replace("[service.s]", &sorry)
    };
    let message = "the sorry server 10.0.0.6 is one of the pool's servers";
    assert_eq!(messages(&with_sorry("10.0.0.6")), [message]);
    assert_eq!(messages(&with_sorry("10.0.0.7")), Vec::<String>::new());
}

/// A single digit is probably part of the address.
#[test]
fn note_about_a_possible_port_requires_two_digits() {
    assert_eq!(
        messages(&with_servers("\"fd00::1:9\"")),
        Vec::<String>::new()
    );
    assert_eq!(
        messages(&with_servers("\"fd00::1:10\"")),
        ["`fd00::1:10` is an address without a port"]
    );
}

#[test]
fn backup_server_is_in_the_model() {
    let backup = "\"10.0.0.5:80\", { address = \"10.0.0.6:80\", backup = true }";
    let text = with_pool("").replace("\"10.0.0.5:80\"", backup);
    let servers = desired(&text).pools[0].servers.clone();
    let backups: Vec<bool> = servers.iter().map(|server| server.backup).collect();
    assert_eq!(backups, [false, true]);
}

/// Weights are integers and grow from 1.
#[test]
fn slow_start_requires_a_weight_above_1() {
    let with_server = |server: &str| {
        let text = with_servers(server);
        text.replace("[service.s]", "slow_start = \"10s\"\n[service.s]")
    };
    let none = Vec::<String>::new();
    let message = "`slow_start` has no effect: no weight is above 1";
    for (servers, expected) in [
        ("\"10.0.0.5\"", vec![message.to_owned()]),
        (
            "\"10.0.0.5\", { address = \"10.0.0.6\", weight = 2 }",
            none.clone(),
        ),
        ("{ address = \"10.0.0.6\", weight = 10 }", none.clone()),
    ] {
        assert_eq!(messages(&with_server(servers)), expected, "{servers}");
    }
    // The servers in a file are not known yet.
    let listed = with_server("\"10.0.0.5\"");
    let listed = listed.replace("[service.s]", "servers_file = \"/list\"\n[service.s]");
    assert_eq!(messages(&listed), none);
}
