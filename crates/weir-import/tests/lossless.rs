//! Tests that common rules and settings are imported without a loss, and that their unsupported forms are reported.

use weir_import::{EmptyEnvironment, Imported, haproxy, keepalived, ldirectord, nginx};

const BACKEND: &str = "backend app\n server a 10.0.0.5:80\n";

fn assert_valid(imported: Imported) -> Imported {
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    imported
}

fn import_haproxy(text: &str) -> Imported {
    assert_valid(haproxy("haproxy.cfg", text, &EmptyEnvironment))
}

fn import_frontend(lines: &str) -> Imported {
    import_haproxy(&format!(
        "defaults\n mode http\nfrontend web\n bind :80\n {lines}\n default_backend app\n{BACKEND}"
    ))
}

/// Returns the first table that contains all of these parts.
fn find_table<'t>(toml: &'t str, parts: &[&str]) -> &'t str {
    let mut tables = toml.split("\n\n");
    let table = tables.find(|table| parts.iter().all(|part| table.contains(part)));
    table.unwrap_or_else(|| panic!("no table with {parts:?}:\n{toml}"))
}

#[test]
fn header_changes_with_conditions_become_routes() {
    let imported = import_frontend(
        "acl api path_beg /api\n http-request set-header X-Api 1 if api\n http-request set-header X-All 1",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let api = find_table(&imported.toml, &["[[route]]", "path = \"/api*\""]);
    assert!(
        api.contains("set_header = [\"X-Api: 1\", \"X-All: 1\"]"),
        "{api}"
    );
    let last_route = imported.toml.rsplit("[[route]]").next().unwrap_or_default();
    assert!(
        last_route.contains("set_header = [\"X-All: 1\"]"),
        "{last_route}"
    );
}

#[test]
fn redirect_with_path_omits_the_query() {
    let imported = import_frontend(
        "http-request redirect code 301 location https://%[req.hdr(host)]%[path] if { path /old }",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let route = find_table(&imported.toml, &["[[route]]", "path = \"/old\""]);
    for part in [
        "path_regex = \"^/(.*)$\"",
        "redirect = \"https://{host}/{1}\"",
    ] {
        assert!(route.contains(part), "{route}");
    }
    // A target with the query does not need a group for the path.
    for target in ["%[url]", "%[capture.req.uri]", "%[path]?%[query]"] {
        let imported = import_frontend(&format!(
            "http-request redirect location https://new.example{target}"
        ));
        assert!(!imported.toml.contains("path_regex"), "{}", imported.toml);
    }
}

#[test]
fn allowed_requests_are_exempt_from_later_rules() {
    for (accept, reject) in [
        ("http-request allow", "http-request deny"),
        (
            "tcp-request connection accept",
            "tcp-request connection reject",
        ),
    ] {
        let imported = import_frontend(&format!("{accept} if {{ src 10.0.0.0/8 }}\n {reject}"));
        assert!(imported.losses.is_empty(), "{:?}", imported.losses);
        assert!(
            imported
                .toml
                .contains("not = { source = [\"10.0.0.0/8\"] }"),
            "{}",
            imported.toml
        );
    }
}

#[test]
fn userlist_becomes_basic_auth() {
    let text = format!(
        "userlist staff\n user anna insecure-password secret\ndefaults\n mode http\nfrontend web\n bind :80\n \
         acl known http_auth(staff)\n http-request auth realm Staff if {{ path_beg /admin }} !known\n \
         default_backend app\n{BACKEND}"
    );
    let imported = import_haproxy(&text);
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let admin = find_table(&imported.toml, &["[[route]]", "path = \"/admin*\""]);
    assert!(admin.contains("users = [\"anna:$5$"), "{admin}");
    assert!(admin.contains("realm = \"Staff\""), "{admin}");
    assert_eq!(
        imported.toml.matches("basic_auth").count(),
        1,
        "{}",
        imported.toml
    );
}

#[test]
fn tcp_service_keeps_its_access_rules() {
    let text = format!(
        "defaults\n mode tcp\nfrontend db\n bind :3306\n acl inside src -f /etc/haproxy/inside.lst\n \
         tcp-request connection reject unless inside\n default_backend app\n{BACKEND}"
    );
    let imported = import_haproxy(&text);
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let route = find_table(&imported.toml, &["[[route]]", "close = true"]);
    let condition = "not = { source = [{ file = \"/etc/haproxy/inside.lst\" }] }";
    assert!(route.contains(condition), "{route}");
}

#[test]
fn haproxy_tcp_checks_become_exchanges() {
    let imported = import_haproxy(
        "defaults\n mode tcp\nlisten redis\n bind :6379\n option tcp-check\n tcp-check connect\n tcp-check send \
         PING\\r\\n\n tcp-check expect string +PONG\n tcp-check send QUIT\\r\\n\n server a 10.0.0.5:6379 check\n",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let check = find_table(&imported.toml, &["[pool.redis.check]"]);
    let steps = "exchange = [{ send = \"PING\\r\\n\" }, { expect = \"+PONG\" }]";
    assert!(check.contains(steps), "{check}");
}

#[test]
fn ports_from_the_environment_remain_variables() {
    let text = format!(
        "defaults\n mode http\nfrontend web\n bind *:$PORT\n default_backend app\n{BACKEND}"
    );
    let imported = import_haproxy(&text);
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    assert!(
        imported.toml.contains("listen = [\"0.0.0.0:${PORT}\"]"),
        "{}",
        imported.toml
    );
}

#[test]
fn haproxy_maps_select_pools() {
    let imported = import_haproxy(&format!(
        "defaults\n mode http\nfrontend web\n bind :80\n use_backend \
         %[req.hdr(host),lower,map(/etc/haproxy/hosts.map,app)]\n{BACKEND}"
    ));
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let map = find_table(&imported.toml, &["[map.hosts]"]);
    assert!(map.contains("file = \"/etc/haproxy/hosts.map\""), "{map}");
    let route = find_table(&imported.toml, &["[[route]]", "map = \"hosts\""]);
    assert!(route.contains("default = \"app\""), "{route}");
}

#[test]
fn notification_programs_of_servers_and_sync_groups_are_imported() {
    let imported = assert_valid(keepalived(
        "keepalived.conf",
        "vrrp_sync_group G {\n group {\n A\n B\n }\n notify_master /bin/up\n track_interface {\n eth1\n }\n}\n\
         vrrp_instance A {\n interface eth0\n virtual_router_id 1\n}\nvrrp_instance B {\n interface eth0\n \
         virtual_router_id 2\n virtual_ipaddress {\n 192.0.2.1\n }\n}\nvirtual_server 192.0.2.1 80 {\n protocol \
         TCP\n real_server 10.0.0.5 80 {\n notify_down \"/bin/down it\"\n TCP_CHECK {\n }\n }\n}\n",
        &EmptyEnvironment,
    ));
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let first = find_table(&imported.toml, &["[vrrp.A]"]);
    assert!(first.contains("notify_master = [\"/bin/up\"]"), "{first}");
    assert!(!first.contains("addresses"), "{first}");
    assert_eq!(
        imported
            .toml
            .matches("track = [{ interface = \"eth1\" }]")
            .count(),
        2
    );
    let pool = find_table(&imported.toml, &["[pool.", "servers"]);
    assert!(
        pool.contains("'10.0.0.5:80':*:down) exec '/bin/down'"),
        "{pool}"
    );
}

#[test]
fn file_without_proxies_is_imported_as_defaults() {
    let imported = import_haproxy(
        "global\n maxconn 4000\ndefaults\n mode http\n timeout connect 5s\n timeout server 30s\n retries 2\n option \
         forwardfor\n",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let defaults = find_table(&imported.toml, &["[defaults.service]"]);
    for part in [
        "connect = \"5s\"",
        "server = \"30s\"",
        "retries = 2",
        "connections = 4000",
        "x_forwarded = { for = \"append\" }",
    ] {
        assert!(defaults.contains(part), "{part}: {defaults}");
    }
}

/// Imports a `listen` whose only server has these options, in line 4.
fn import_server(options: &str) -> Imported {
    import_haproxy(&format!(
        "listen web\n bind :80\n mode tcp\n server a 10.0.0.5:443 {options}\n"
    ))
}

#[test]
fn server_options_become_keys() {
    for (options, heading, key) in [
        (
            "check on-marked-down shutdown-sessions",
            "[pool.web]",
            "on_remove = \"reset\"",
        ),
        (
            "check on-marked-down shutdown-sessions",
            "[pool.web.check]",
            "on_failure = \"remove\"",
        ),
        (
            "check init-state down",
            "[pool.web.check]",
            "start = \"down\"",
        ),
        (
            "ssl ca-file /ca.pem verify required verifyhost a.example",
            "[pool.web]",
            "server_name = \"a.example\"",
        ),
        (
            "ssl ca-file @system-ca verify required",
            "[pool.web]",
            "verify = true",
        ),
        (
            "check observe layer4 error-limit 5 on-error mark-down weight 3",
            "[pool.web]",
            "weight = 3",
        ),
        ("sni-auto", "[pool.web]", "10.0.0.5:443"),
        (
            "no-renegotiate cc cubic maxconn 7",
            "[pool.web]",
            "max_connections = 7",
        ),
    ] {
        let imported = import_server(options);
        let table = find_table(&imported.toml, &[heading]);
        assert!(table.contains(key), "{options}: {table}");
        let is_lost = options == "sni-auto";
        assert_eq!(
            imported.losses.len(),
            usize::from(is_lost),
            "{options}: {:?}",
            imported.losses
        );
    }
    // Weir verifies the name that it sends as SNI.
    let imported = import_server(
        "ssl ca-file /ca.pem verify required sni str(b.example) verifyhost a.example",
    );
    assert!(
        imported.toml.contains("server_name = \"b.example\""),
        "{}",
        imported.toml
    );
    assert_eq!(imported.unguarded.len(), 1, "{:?}", imported.notes);
}

/// Imports a backend `app` with these lines, the first of which is line 6, and a backend `other` with servers to track.
fn import_tracking(server: &str) -> Imported {
    import_haproxy(&format!(
        "frontend web\n bind :80\n mode http\n default_backend app\nbackend app\n {server}\nbackend other\n mode \
         http\n option httpchk GET /up\n server b 10.0.0.6:8080 check inter 5s\n server c 10.0.0.7:8080 track b\n \
         server d 10.0.0.8:8080\n server e 10.0.0.9:80 track f\n server f 10.0.0.9:80 track e\n"
    ))
}

#[test]
fn tracking_server_gets_the_check_of_the_tracked_server() {
    for (server, keys) in [
        (
            "server a 10.0.0.5:80 track other/b",
            vec!["address = \"10.0.0.6\"", "port = 8080"],
        ),
        ("server a 10.0.0.6:8443 track other/b", vec!["port = 8080"]),
        ("server a 10.0.0.6:8080 track other/b", vec![]),
        (
            "server a 10.0.0.5:80 track other/c",
            vec!["address = \"10.0.0.6\"", "port = 8080"],
        ),
        (
            "default-server track other/b\n server a 10.0.0.6:80",
            vec!["port = 8080"],
        ),
    ] {
        let imported = import_tracking(server);
        let mut parts = vec!["kind = \"http\"", "path = \"/up\"", "interval = \"5s\""];
        parts.extend(&keys);
        let check = find_table(&imported.toml, &parts);
        let has_address = check.contains("address = ");
        assert_eq!(has_address, keys.len() == 2, "{server}: {check}");
        let pool = find_table(&imported.toml, &["[pool.app]"]);
        let has_own_check = imported.toml.contains("[pool.app.check]");
        let is_checked = has_own_check || pool.contains("check = \"other-http");
        assert!(is_checked, "{server}: {pool}");
        let mut losses = imported.losses.iter();
        assert!(
            !losses.any(|loss| loss.starts_with("line 6:")),
            "{server}: {:?}",
            imported.losses
        );
    }
}

#[test]
fn server_that_cannot_be_tracked_is_reported() {
    for (server, reason) in [
        ("server a 10.0.0.5:80 track other/d", "other/d has no check"),
        (
            "server a 10.0.0.5:80 track other/x",
            "the server `other/x` is not defined",
        ),
        (
            "server a 10.0.0.5:80 track x/b",
            "the backend `x` is not defined",
        ),
        ("server a 10.0.0.5:80 track other/e", "track each other"),
        ("server a a.example:80 track other/b", ""),
    ] {
        let imported = import_tracking(server);
        let is_lost = imported
            .losses
            .iter()
            .any(|loss| loss.starts_with("line 6:") && loss.contains(reason));
        assert_eq!(
            is_lost,
            !reason.is_empty(),
            "{server}: {:?}",
            imported.losses
        );
    }
}

#[test]
fn port_of_several_listeners_is_forwarded() {
    let imported =
        import_frontend("bind :81\n http-request set-header X-Forwarded-Port %[dst_port]");
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let route = find_table(&imported.toml, &["[[route]]"]);
    assert!(
        route.contains("x_forwarded = { port = \"set\" }"),
        "{route}"
    );
}

#[test]
fn bind_options_become_keys() {
    let imported = import_frontend(
        "bind :443 ssl crt /a.pem default-crt /b.pem force-tlsv13 tls-ticket-keys /k no-ca-names",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let tls = "tls = { certificates = [\"/b.pem\", \"/a.pem\"], minimum = \"1.3\" }";
    assert!(imported.toml.contains(tls), "{}", imported.toml);
    // An option without a value does not hide the next one.
    let imported = import_frontend("bind :443 ssl generate-certificates crt /a.pem");
    assert!(
        imported.toml.contains("certificates = \"/a.pem\""),
        "{}",
        imported.toml
    );
    // The option limits who can connect.
    let imported = import_frontend("bind :81 interface eth9");
    assert_eq!(imported.unguarded.len(), 1, "{:?}", imported.notes);
}

#[test]
fn use_server_becomes_a_server_of_the_route() {
    let imported = import_haproxy(
        "defaults\n mode http\nfrontend web\n bind :80\n default_backend app\nbackend app\n \
         use-server two if { path_beg /two/ }\n use-server one if { path_beg /two/ }\n use-server one if { method \
         POST }\n server one 10.0.0.5:80\n server two 10.0.0.6:80\n",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let two = find_table(&imported.toml, &["path = \"/two/*\"", "server = "]);
    assert!(two.contains("server = \"10.0.0.6:80\""), "{two}");
    let one = find_table(
        &imported.toml,
        &["method = [\"POST\"]", "server = \"10.0.0.5:80\""],
    );
    assert!(!one.contains("path"), "{one}");
    let computed = import_haproxy(
        "defaults\n mode http\nfrontend web\n bind :80\n default_backend app\nbackend app\n use-server \
         %[hdr(x)] if TRUE\n server one 10.0.0.5:80\n",
    );
    assert!(
        computed.losses[0].contains("the name is computed"),
        "{:?}",
        computed.losses
    );
}

#[test]
fn cookie_that_haproxy_only_reads_becomes_routes() {
    let imported = import_haproxy(
        "defaults\n mode http\nfrontend web\n bind :80\n use_backend api if { path_beg /api }\n default_backend \
         app\nbackend app\n cookie SRV\n server one 10.0.0.5:80 cookie a\n server two 10.0.0.6:80 cookie b\n server \
         three 10.0.0.7:80\nbackend api\n cookie NODE indirect\n server one 10.0.0.8:80 cookie a\n",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    for (cookie, server) in [
        ("SRV=a", "10.0.0.5:80"),
        ("SRV=b", "10.0.0.6:80"),
        ("NODE=a", "10.0.0.8:80"),
    ] {
        let cookie = format!("cookie = [\"{cookie}\"]");
        let route = find_table(&imported.toml, &["[[route]]", &cookie]);
        assert!(route.contains(&format!("server = \"{server}\"")), "{route}");
        assert_eq!(
            route.contains("path = \"/api*\""),
            cookie.contains("NODE"),
            "{route}"
        );
    }
    let unused =
        import_haproxy("listen web\n bind :80\n mode http\n cookie SRV\n server a 10.0.0.5:80\n");
    assert!(unused.losses.is_empty(), "{:?}", unused.losses);
}

#[test]
fn variable_set_from_another_variable_is_replaced() {
    let lines = "http-request set-var(txn.a) req.hdr(X-A)\n http-request set-var(txn.b) var(txn.a)\n http-request \
                 set-var(txn.c) var(txn.b)\n http-request set-header X-C %[var(txn.c)]";
    // The import is repeated, because the result must not depend on the iteration order of a hash map.
    for _ in 0..8 {
        let imported = import_frontend(lines);
        assert!(imported.losses.is_empty(), "{:?}", imported.losses);
        assert!(
            imported
                .toml
                .contains("set_header = [\"X-C: {header.X-A}\"]"),
            "{}",
            imported.toml
        );
    }
}

#[test]
fn use_server_in_mode_tcp_becomes_a_pool_with_backups() {
    let servers = "use-server mail if { req.ssl_sni -m beg mail. }\n server www 10.0.0.5:443\n server mail \
                   10.0.0.6:443 weight 0\n";
    for sections in [
        format!("frontend tls\n bind :443\n default_backend app\nbackend app\n {servers}"),
        format!("listen app\n bind :443\n {servers}"),
    ] {
        let imported = import_haproxy(&format!("defaults\n mode tcp\n{sections}"));
        assert!(imported.losses.is_empty(), "{:?}", imported.losses);
        let route = find_table(&imported.toml, &["[[route]]", "host = \"mail.*\""]);
        assert!(route.contains("pool = \"app-mail\""), "{route}");
        let pool = find_table(&imported.toml, &["[pool.app-mail]"]);
        for server in [
            "{ address = \"10.0.0.6:443\" },",
            "{ address = \"10.0.0.5:443\", backup = true },",
        ] {
            assert!(pool.contains(server), "{pool}");
        }
    }
    let unresolved = import_haproxy(
        "listen app\n bind :443\n mode tcp\n use-server b if { src 10.0.0.0/8 }\n server a 10.0.0.5:443\n server b \
         b.example:443\n",
    );
    assert!(
        unresolved.losses.iter().any(|it| it.starts_with("line 4:")),
        "{:?}",
        unresolved.losses
    );
}

fn import_nginx(lines: &str) -> Imported {
    let text =
        format!("upstream a {{ server 10.0.0.5; }}\nupstream b {{ server 10.0.0.6; }}\n{lines}\n");
    assert_valid(nginx("nginx.conf", &text, &EmptyEnvironment))
}

#[test]
fn nginx_rewrites_with_last_restart_route_selection() {
    let imported = import_nginx(
        "server {\n listen 80;\n location /old/ {\n rewrite ^/old/(.*)$ /new/$1?x=1 last;\n return 410;\n }\n \
         location / {\n proxy_pass http://a;\n }\n}",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let old = find_table(
        &imported.toml,
        &["path = \"/old/*\"", "restart = \"first\""],
    );
    assert!(
        old.contains("rewrite = { regex = \"^/old/(.*)$\", to = \"/new/{1}?x=1\" }"),
        "{old}"
    );
    let offset_of = |text: &str| {
        imported
            .toml
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {}", imported.toml))
    };
    assert!(offset_of("restart = \"first\"") < offset_of("status = 410"));
}

#[test]
fn rewrites_of_a_server_block_come_before_its_locations() {
    let imported = import_nginx(
        "server {\n listen 80;\n rewrite ^/a/(.*)$ /b/$1;\n rewrite ^/b/(.*)$ /c/$1 last;\n location = /x {\n \
         return 204;\n }\n location / {\n proxy_pass http://a;\n }\n}",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    assert_eq!(imported.toml.matches("restart = \"next\"").count(), 2);
    let offset_of = |text: &str| {
        imported
            .toml
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {}", imported.toml))
    };
    assert!(
        offset_of("^/a/") < offset_of("^/b/") && offset_of("^/b/") < offset_of("path = \"/x\"")
    );
    // nginx would skip the second rewrite.
    let skipped = import_nginx(
        "server {\n listen 80;\n rewrite ^/a/(.*)$ /b/$1 last;\n rewrite ^/b/(.*)$ /c/$1;\n location / {\n \
         proxy_pass http://a;\n }\n}",
    );
    assert_eq!(skipped.losses.len(), 1, "{:?}", skipped.losses);
}

#[test]
fn split_clients_becomes_a_split() {
    let imported = import_nginx(
        "split_clients \"${remote_addr}x\" $variant {\n 0.5% a;\n * b;\n}\nserver {\n listen 80;\n location / \
         {\n proxy_pass http://$variant;\n }\n}",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let route = find_table(&imported.toml, &["[[route]]", "split"]);
    assert!(route.contains("split = [\"a:50\", \"b:9950\"]"), "{route}");
    assert!(route.contains("split_by = \"{client}x\""), "{route}");
    // The variable is empty for half of the requests.
    let partial = import_nginx(
        "split_clients $remote_addr $variant {\n 50% a;\n}\nserver {\n listen 80;\n location / {\n proxy_pass \
         http://$variant;\n }\n}",
    );
    assert!(!partial.losses.is_empty());
}

#[test]
fn several_mirrors_have_their_own_paths() {
    let imported = import_nginx(
        "server {\n listen 80;\n location / {\n mirror /one;\n mirror /two;\n proxy_pass http://a;\n }\n location \
         = /one {\n internal;\n proxy_pass http://a$request_uri;\n }\n location = /two {\n internal;\n proxy_pass \
         http://b;\n }\n}",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let route = find_table(&imported.toml, &["[[route]]", "mirror = ["]);
    assert_eq!(route.matches("path = \"/two\"").count(), 1, "{route}");
    assert!(!route.contains("path = \"/one\""), "{route}");
}

fn import_ldirectord(text: &str) -> Imported {
    assert_valid(ldirectord("ldirectord.cf", text, &EmptyEnvironment))
}

#[test]
fn pingpong_services_of_ldirectord_fork_are_imported() {
    let imported = import_ldirectord(
        "[default]\nquiescent=yes\n[master]\nvirtual=192.0.2.1:6666\n    real=10.0.0.5:6666 masq\n    \
         service=pingpong_master\n    protocol=tcp\nvirtual=192.0.2.1:22003\n    real=10.0.0.5:22003 masq\n    \
         service=pingpong_slave\n    protocol=tcp\n",
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let slave = find_table(&imported.toml, &["check", "port = 6666"]);
    assert!(slave.contains("(?i)pong"), "{slave}");
    // Without a master, the slave has no check.
    let alone = import_ldirectord(
        "virtual=192.0.2.1:22003\n    real=10.0.0.5:22003 masq\n    service=pingpong_slave\n    protocol=tcp\n",
    );
    assert!(
        alone.losses[0].contains("nothing checks it"),
        "{:?}",
        alone.losses
    );
}

#[test]
fn lvs_sync_daemon_is_a_loss_only_with_virtual_servers() {
    let vrrp = "vrrp_instance A {\n interface eth0\n virtual_router_id 7\n lvs_sync_daemon_interface eth0\n \
                virtual_ipaddress {\n 192.0.2.1\n }\n}\n";
    let group = "track_group T {\n group {\n A\n }\n}\n";
    let imported = keepalived(
        "keepalived.conf",
        &format!("{vrrp}{group}"),
        &EmptyEnvironment,
    );
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let server =
        "virtual_server 192.0.2.1 80 {\n protocol TCP\n real_server 10.0.0.5 80 {\n }\n}\n";
    let imported = keepalived(
        "keepalived.conf",
        &format!("{vrrp}{server}"),
        &EmptyEnvironment,
    );
    assert_eq!(imported.losses.len(), 1, "{:?}", imported.losses);
}

#[test]
fn client_certificates_are_requested_only_if_nginx_requests_them() {
    let import = |verify: &str| {
        import_nginx(&format!(
            "server {{ listen 443 ssl; ssl_certificate /c.pem; ssl_certificate_key /c.pem;\n\
             ssl_client_certificate /ca.pem;\n{verify}\nlocation / {{ proxy_pass http://10.0.0.5; }} }}\n"
        ))
    };
    for line in ["", "ssl_verify_client off;"] {
        let imported = import(line);
        assert!(!imported.toml.contains("client_"), "{}", imported.toml);
        assert!(imported.losses.is_empty(), "{:?}", imported.losses);
        let remark = "ssl_verify_client is off";
        let notes = &imported.notes;
        assert!(notes.iter().any(|it| it.contains(remark)), "{notes:?}");
    }
    for (word, key, losses) in [
        ("on", "client_auth = \"required\"", 0),
        ("optional", "client_auth = \"optional\"", 0),
        ("optional_no_ca", "client_auth = \"optional\"", 1),
    ] {
        let imported = import(&format!("ssl_verify_client {word};"));
        assert!(imported.toml.contains("client_ca = \"/ca.pem\""), "{word}");
        assert!(imported.toml.contains(key), "{word}: {}", imported.toml);
        assert_eq!(imported.losses.len(), losses, "{:?}", imported.losses);
    }
    let alone = import_nginx(
        "server { listen 443 ssl; ssl_certificate /c.pem; ssl_certificate_key /c.pem; ssl_verify_client off;\n\
         location / { proxy_pass http://10.0.0.5; } }\n",
    );
    assert!(alone.losses.is_empty(), "{:?}", alone.losses);
}

#[test]
fn interface_of_address_is_tracked_unless_no_track_is_set() {
    let import = |options: &str| {
        let text = format!(
            "vrrp_instance v {{\n interface eth0\n virtual_router_id 5\n priority 100\n virtual_ipaddress {{\n \
             192.0.2.1/24 {options}\n }}\n}}\n"
        );
        assert_valid(keepalived("keepalived.conf", &text, &EmptyEnvironment))
    };
    let notes_about_no_track = |imported: &Imported| -> Vec<String> {
        let notes = imported.notes.iter();
        notes
            .filter(|it| it.contains("no_track"))
            .cloned()
            .collect()
    };
    let is_tracked = |imported: &Imported| imported.toml.contains("track = ");
    let on_other_interface = import("dev eth1");
    assert!(
        is_tracked(&on_other_interface),
        "{}",
        on_other_interface.toml
    );
    let untracked = import("dev eth1 no_track");
    assert!(!is_tracked(&untracked), "{}", untracked.toml);
    assert!(
        notes_about_no_track(&untracked).is_empty(),
        "{:?}",
        untracked.notes
    );
    let notes_for_own_interface = notes_about_no_track(&import("no_track"));
    assert!(
        notes_for_own_interface.len() == 1 && notes_for_own_interface[0].contains("has no effect"),
        "{notes_for_own_interface:?}"
    );
}

#[test]
fn unset_environment_variable_of_keepalived_is_reported() {
    let text = "vrrp_instance v {\n interface eth0\n virtual_router_id 5\n priority ${_ENV WEIR_NOT_SET}\n \
        virtual_ipaddress {\n 192.0.2.1/24\n }\n}\n";
    let imported = assert_valid(keepalived("keepalived.conf", text, &EmptyEnvironment));
    let is_about_variable = |it: &String| it.contains("${_ENV WEIR_NOT_SET} is not set");
    assert!(
        imported.losses.iter().any(is_about_variable),
        "{:?}",
        imported.losses
    );
}
