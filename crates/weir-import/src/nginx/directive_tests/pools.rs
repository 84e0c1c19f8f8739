//! Tests `upstream`.

use super::{Row, assert_added};

const UPSTREAM: &str = "upstream a { @@ }\n\
    upstream b { server 10.0.0.9; keepalive 5; }\n\
    server {\n\
    listen 80;\n\
    location / { proxy_pass http://a; }\n\
    location /b { proxy_pass http://b; }\n\
    }";

const UPSTREAM_ROWS: &[Row] = &[
    (
        "server 10.0.0.5;",
        &["[pool.a]; servers = [{ address = '10.0.0.5:80' }]"],
    ),
    (
        "server 10.0.0.5:81 weight=2 max_conns=3;",
        &["[pool.a]; servers = [{ address = '10.0.0.5:81', weight = 2, max_connections = 3 }]"],
    ),
    (
        "server 10.0.0.5 weight=1 max_conns=0;",
        &["[pool.a]; servers = [{ address = '10.0.0.5:80' }]"],
    ),
    (
        "server 10.0.0.5 weight=x;",
        &[
            "!1: weight=x is not imported: a server in weir.toml has no such key",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5 backup; server 10.0.0.6;",
        &[
            "[pool.a]; servers = [{ address = '10.0.0.5:80', backup = true }; { address = '10.0.0.6:80' }]",
        ],
    ),
    (
        "server 10.0.0.5 backup; server 10.0.0.6 max_conns=5;",
        &[
            "!1: nginx also uses a backup while the other servers are at max_conns; in Weir, requests wait in the \
            queue",
            "[pool.a]; servers = [{ address = '10.0.0.5:80', backup = true }; { address = '10.0.0.6:80', \
            max_connections = 5 }]",
        ],
    ),
    (
        "server 10.0.0.5 backup max_conns=5; server 10.0.0.6;",
        &[
            "[pool.a]; servers = [{ address = '10.0.0.5:80', backup = true, max_connections = 5 }; { address = \
            '10.0.0.6:80' }]",
        ],
    ),
    (
        "server 10.0.0.5 weight=3 down;",
        &[
            "1: down, so imported with weight = 0; `weir server POOL/ADDRESS maint` does this at run time",
            "[pool.a]; servers = [{ address = '10.0.0.5:80', weight = 0 }]",
        ],
    ),
    (
        "server 10.0.0.5 max_conns=3 down;",
        &[
            "1: down, so imported with weight = 0; `weir server POOL/ADDRESS maint` does this at run time",
            "[pool.a]; servers = [{ address = '10.0.0.5:80', max_connections = 3, weight = 0 }]",
        ],
    ),
    (
        "server 10.0.0.5 max_fails=0;",
        &[
            "!1: max_fails=0 is not imported: Weir ejects failing servers; `max_ejected` is set per pool",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5 max_fails=3 fail_timeout=5s;",
        &[
            "1: max_fails is not imported: Weir ejects failing servers; see `max_ejected`",
            "1: fail_timeout is not imported: Weir ejects failing servers; see `max_ejected`",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5 resolve;",
        &["[pool.a]; servers = [{ address = '10.0.0.5:80' }]"],
    ),
    (
        "server 10.0.0.5 slow_start=30s;",
        &[
            "!1: slow_start is not imported: it is set per pool and requires a check",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5 route=a;",
        &[
            "!1: route=a is not imported: a server in weir.toml has no such key",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    ("server;", &["!1: not imported: the address is missing"]),
    (
        "server unix:/run/x;",
        &["[pool.a]; servers = [{ address = 'unix:/run/x' }]"],
    ),
    (
        "server unix:run/x;",
        &["!1: not imported: the path is not absolute"],
    ),
    ("server [::1]:x;", &["!1: not imported: invalid port x"]),
    (
        "server s.example weight=2;",
        &["[pool.a]; servers_dns = { name = 's.example', port = 80, weight = 2 }"],
    ),
    (
        "server s.example:81 backup;",
        &["[pool.a]; servers_dns = { name = 's.example', port = 81, backup = true }"],
    ),
    (
        "server localhost:81;",
        &["[pool.a]; servers = [{ address = '127.0.0.1:81' }]"],
    ),
    (
        "server 10.0.0.5; least_conn;",
        &["[pool.a]; scheduler = 'wlc'; servers = [{ address = '10.0.0.5:80' }]"],
    ),
    (
        "server 10.0.0.5; ip_hash;",
        &["[pool.a]; scheduler = 'ip_hash'; servers = [{ address = '10.0.0.5:80' }]"],
    ),
    (
        "server 10.0.0.5; random two least_conn;",
        &["[pool.a]; scheduler = 'p2c'; servers = [{ address = '10.0.0.5:80' }]"],
    ),
    (
        "server 10.0.0.5; least_time header;",
        &["[pool.a]; scheduler = 'least-time'; servers = [{ address = '10.0.0.5:80' }]"],
    ),
    (
        "server 10.0.0.5; hash $remote_addr consistent;",
        &[
            "[pool.a]; scheduler = { name = 'hash', key = 'source' }; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; hash $http_x_a;",
        &[
            "[pool.a]; scheduler = { name = 'hash', key = 'header:x-a' }; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; hash $geoip_country;",
        &[
            "!1: not imported: the `key` of `hash` accepts only the source, the URI, the path, a field, a cookie \
            or a parameter",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; hash;",
        &[
            "!1: not imported: the `key` of `hash` accepts only the source, the URI, the path, a field, a cookie \
            or a parameter",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; sticky cookie SRV path=/;",
        &[
            "[pool.a]; sticky = { cookie = 'SRV', attributes = 'Path=/' }; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; sticky cookie SRV expires=1h;",
        &[
            "!1: expires=1h is not imported: `sticky` has no such key",
            "[pool.a]; sticky = { cookie = 'SRV', attributes = '' }; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; sticky cookie;",
        &[
            "!1: not imported: a pool has no such key",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; sticky route $a;",
        &[
            "!1: not imported: a pool has no such key",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; keepalive 5;",
        &["[pool.a]; servers = [{ address = '10.0.0.5:80' }]"],
    ),
    (
        "server 10.0.0.5; keepalive 7;",
        &[
            "!2: not imported: `limits.idle_servers` is set per service, and another upstream of the service has a \
            different number",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
            "[service.nginx-80]; limits = { idle_servers = 7 }",
        ],
    ),
    (
        "server 10.0.0.5; keepalive x;",
        &[
            "!1: not imported: nginx requires a number",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; keepalive;",
        &[
            "!1: not imported: nginx requires a number",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; keepalive_requests 9;",
        &[
            "1: not imported: `limits.server_requests` is set per service",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; zone a 64k;",
        &[
            "1: not imported: a pool has no such key",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; keepalive_timeout 5s;",
        &[
            "1: not imported: a pool has no such key",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; keepalive_time 5s;",
        &[
            "1: not imported: a pool has no such key",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; resolver 10.0.0.2;",
        &[
            "1: not imported: a pool has no such key",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; resolver_timeout 5s;",
        &[
            "1: not imported: a pool has no such key",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
    (
        "server 10.0.0.5; ntlm;",
        &[
            "!1: not imported: a pool has no such key",
            "[pool.a]; servers = [{ address = '10.0.0.5:80' }]",
        ],
    ),
];

#[test]
fn upstream_lines_become_pool_keys() {
    assert_added(UPSTREAM, UPSTREAM_ROWS);
}

const UPSTREAMS: &str = "server {\n\
    listen 80;\n\
    location / { proxy_pass http://10.0.0.9; }\n\
    }\n\
    @@";

const UPSTREAMS_ROWS: &[Row] = &[
    ("upstream;", &["!5: not imported: the name is missing"]),
    (
        "upstream { server 10.0.0.5; }",
        &["!5: not imported: the name is missing"],
    ),
    (
        "upstream a { server 10.0.0.5; }",
        &["5: not imported: nothing uses this upstream"],
    ),
    (
        "upstream a { server 10.0.0.5; } upstream a { server 10.0.0.6; }",
        &[
            "!5: not imported: an upstream with this name already exists; nginx rejects the file",
            "5: not imported: nothing uses this upstream",
        ],
    ),
    (
        "upstream a { server 10.0.0.5; } server { listen 80; server_name b; location / { proxy_pass http://a; } }",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "route 0: host = 'b'; pool = 'a'",
        ],
    ),
    (
        "upstream a { server 10.0.0.5; } server { listen 80; server_name b; location / { fastcgi_pass a; } }",
        &[
            "!5: it has no target that Weir supports; Weir responds with status 503",
            "!5: not imported: Weir supports only HTTP servers",
            "!5: not imported: no directive that Weir supports uses this upstream",
            "route 0: host = 'b'; status = 503",
        ],
    ),
    (
        "upstream a { server 10.0.0.5; } server { listen 80; server_name b; location / { return 301 http://a; } }",
        &[
            "5: not imported: nothing uses this upstream",
            "route 0: host = 'b'; redirect = 'http://a'; status = 301",
        ],
    ),
];

#[test]
fn unused_upstreams_are_reported() {
    assert_added(UPSTREAMS, UPSTREAMS_ROWS);
}
