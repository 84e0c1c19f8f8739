//! Tests `stream` blocks.

use super::{Row, assert_added};

const STREAM_SERVER: &str = "stream {\n\
    upstream a { server 10.0.0.5:53; }\n\
    map $ssl_preread_server_name $name { x.example a; default 10.0.0.7:1; }\n\
    server { listen 53; @@ }\n\
    }";

const STREAM_SERVER_ROWS: &[Row] = &[
    (
        "proxy_pass a;",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = 'a'",
        ],
    ),
    (
        "proxy_pass 10.0.0.6:53;",
        &[
            "[pool.'10.0.0.6-53']; servers = [{ address = '10.0.0.6:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = \
            '10.0.0.6-53'",
        ],
    ),
    (
        "proxy_pass 10.0.0.6;",
        &[
            "[pool.'10.0.0.6']; servers = [{ address = '10.0.0.6:80' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = '10.0.0.6'",
        ],
    ),
    (
        "proxy_pass unix:/run/x;",
        &[
            "[pool.x]; servers = [{ address = 'unix:/run/x' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = 'x'",
        ],
    ),
    (
        "proxy_pass s.example:53;",
        &[
            "[pool.'s.example-53']; servers_dns = { name = 's.example', port = 53 }; servers = []",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = \
            's.example-53'",
        ],
    ),
    (
        "proxy_pass 10.0.0.6:x;",
        &["!4: not imported: invalid port x"],
    ),
    (
        "listen 54; proxy_pass a;",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53', '0.0.0.0:54']; forward = 'proxy'; protocol = 'tcp'; pool \
            = 'a'",
        ],
    ),
    (
        "listen 54 ssl; proxy_pass a;",
        &[
            "!4: not imported: TLS in streams is not imported; set `tls` of the service",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
        ],
    ),
    (
        "listen 54 udp; proxy_pass a;",
        &[
            "!4: not imported: `forward = 'proxy'` supports only TCP; use `forward = 'nat'` for UDP",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = 'a'",
        ],
    ),
    (
        "proxy_pass $name; ssl_preread on;",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[pool.'10.0.0.7-1']; servers = [{ address = '10.0.0.7:1' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = '10.0.0.7-1'",
            "route 0: host = 'x.example'; pool = 'a'",
        ],
    ),
    (
        "proxy_pass $name; ssl_preread off;",
        &["!4: not imported: the TLS server name is unknown without `ssl_preread on`"],
    ),
    (
        "proxy_pass $name;",
        &["!4: not imported: the TLS server name is unknown without `ssl_preread on`"],
    ),
    (
        "proxy_pass $other; ssl_preread on;",
        &[
            "!4: not imported: the target is computed; routes of a `tcp` service match only the TLS server name",
        ],
    ),
    (
        "proxy_pass ${name}; ssl_preread on;",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[pool.'10.0.0.7-1']; servers = [{ address = '10.0.0.7:1' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = '10.0.0.7-1'",
            "route 0: host = 'x.example'; pool = 'a'",
        ],
    ),
    (
        "proxy_pass a; ssl_preread on;",
        &[
            "4: not imported: the target does not depend on the server name",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = 'a'",
        ],
    ),
    (
        "proxy_pass a; proxy_timeout 10m;",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = 'a'; \
            timeouts = { tunnel = '10m' }",
        ],
    ),
    (
        "proxy_pass a; proxy_connect_timeout 5;",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = 'a'; \
            timeouts = { connect = '5s' }",
        ],
    ),
    (
        "proxy_pass a; proxy_timeout 0;",
        &[
            "!4: not imported: invalid time",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = 'a'",
        ],
    ),
    (
        "proxy_pass a; proxy_timeout x;",
        &[
            "!4: not imported: invalid time",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = 'a'",
        ],
    ),
    (
        "proxy_pass a; proxy_buffer_size 1k;",
        &[
            "4: not imported: Weir has no such setting",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = 'a'",
        ],
    ),
    (
        "proxy_pass a; proxy_ssl on;",
        &[
            "!4: not imported: weir.toml has no equivalent",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = 'a'",
        ],
    ),
    (
        "proxy_pass a; access_log /b;",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = 'a'; \
            access_log = '/b'",
        ],
    ),
    (
        "proxy_pass a; access_log off;",
        &[
            "4: not imported: the log is off, as it is in Weir by default",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:53' }]",
            "[service.stream-53]; listen = ['0.0.0.0:53']; forward = 'proxy'; protocol = 'tcp'; pool = 'a'",
        ],
    ),
];

#[test]
fn stream_server_becomes_a_tcp_service() {
    assert_added(STREAM_SERVER, STREAM_SERVER_ROWS);
}

const MAP: &str = "stream {\n\
    upstream a { server 10.0.0.5:443; }\n\
    upstream b { server 10.0.0.6:443; }\n\
    @@\n\
    server { listen 443; ssl_preread on; proxy_pass $name; }\n\
    }";

const MAP_ROWS: &[Row] = &[
    (
        "map $ssl_preread_server_name $name { x.example a; default b; }",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:443' }]",
            "[pool.b]; scheduler = 'wrr'; servers = [{ address = '10.0.0.6:443' }]",
            "[service.stream-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'tcp'; pool = 'b'",
            "route 0: host = 'x.example'; pool = 'a'",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { x.example a; }",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:443' }]",
            "[pool.no-servers]; servers = []",
            "[service.stream-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'tcp'; pool = \
            'no-servers'",
            "route 0: host = 'x.example'; pool = 'a'",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { default b; x.example a; y.example 10.0.0.7:443; }",
        &[
            "[pool.b]; scheduler = 'wrr'; servers = [{ address = '10.0.0.6:443' }]",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:443' }]",
            "[pool.'10.0.0.7-443']; servers = [{ address = '10.0.0.7:443' }]",
            "[service.stream-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'tcp'; pool = 'b'",
            "route 0: host = 'x.example'; pool = 'a'",
            "route 1: host = 'y.example'; pool = '10.0.0.7-443'",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { hostnames; .x.example a; *.z b; default b; }",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:443' }]",
            "[pool.b]; scheduler = 'wrr'; servers = [{ address = '10.0.0.6:443' }]",
            "[service.stream-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'tcp'; pool = 'b'",
            "route 0: host = 'x.example'; pool = 'a'",
            "route 1: host = '*.x.example'; pool = 'a'",
            "route 2: host = '*.z'; pool = 'b'",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { volatile; X.example a; default b; }",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:443' }]",
            "[pool.b]; scheduler = 'wrr'; servers = [{ address = '10.0.0.6:443' }]",
            "[service.stream-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'tcp'; pool = 'b'",
            "route 0: host = 'x.example'; pool = 'a'",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { .x.example a; default b; }",
        &[
            "!2: not imported: a part that it requires is not imported",
            "!2: not imported: it depends on a part of line 2 that is not imported",
            "!4: not imported: invalid host .x.example",
            "[pool.b]; scheduler = 'wrr'; servers = [{ address = '10.0.0.6:443' }]",
            "[service.stream-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'tcp'; pool = 'b'",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { *.x.example a; default b; }",
        &[
            "!4: not imported: a route can only compare parts of the request",
            "!5: not imported: without `hostnames`, `*` in *.x.example is a literal character",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:443' }]",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { \"\" a; default b; }",
        &[
            "!4: not imported: a route can only compare parts of the request",
            "!5: not imported: a route cannot match connections without a server name",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:443' }]",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { ~^X a; default b; }",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:443' }]",
            "[pool.b]; scheduler = 'wrr'; servers = [{ address = '10.0.0.6:443' }]",
            "[service.stream-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'tcp'; pool = 'b'",
            "route 0: host = '~^X'; pool = 'a'",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { hostnames; ~^x a; *.y.z a; *.w a; *.longer.y a; v.example a; default \
        b; }",
        &[
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:443' }]",
            "[pool.b]; scheduler = 'wrr'; servers = [{ address = '10.0.0.6:443' }]",
            "[service.stream-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'tcp'; pool = 'b'",
            "route 0: host = 'v.example'; pool = 'a'",
            "route 1: host = '*.longer.y'; pool = 'a'",
            "route 2: host = '*.y.z'; pool = 'a'",
            "route 3: host = '*.w'; pool = 'a'",
            "route 4: host = '~^x'; pool = 'a'",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { include b.map; default b; }",
        &[
            "!4: not imported: no such file",
            "[pool.b]; scheduler = 'wrr'; servers = [{ address = '10.0.0.6:443' }]",
            "[service.stream-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'tcp'; pool = 'b'",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { x.example $host; default b; }",
        &[
            "!4: not imported: a route can only compare parts of the request",
            "!5: not imported: the pool of `x.example` is computed",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { default $host; }",
        &[
            "!4: not imported: a route can only compare parts of the request",
            "!5: not imported: the pool of `default` is computed",
        ],
    ),
    (
        "map $ssl_preread_server_name $name { x.example a b; }",
        &["!4: not imported: a route can only compare parts of the request"],
    ),
    (
        "map $ssl_preread_server_name $name { x.example; }",
        &["!4: not imported: a route can only compare parts of the request"],
    ),
    (
        "map $ssl_preread_server_name $name { x.example 10.0.0.7:x; }",
        &[
            "!4: not imported: a route can only compare parts of the request",
            "!5: not imported: invalid port x",
        ],
    ),
    (
        "map $ssl_preread_server_name name { x.example a; }",
        &["!4: not imported: a route can only compare parts of the request"],
    ),
    (
        "map $ssl_preread_protocol $name { x.example a; }",
        &["!4: not imported: a route can only compare parts of the request"],
    ),
    (
        "geo $ssl_preread_server_name $name { x.example a; }",
        &["!4: not imported: a route can only compare parts of the request"],
    ),
    (
        "map $ssl_preread_server_name $name { x.example a; default b; } map $ssl_preread_server_name $other { \
        x.example b; }",
        &[
            "!4: not imported: a route can only compare parts of the request",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:443' }]",
            "[pool.b]; scheduler = 'wrr'; servers = [{ address = '10.0.0.6:443' }]",
            "[service.stream-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'tcp'; pool = 'b'",
            "route 0: host = 'x.example'; pool = 'a'",
        ],
    ),
];

#[test]
fn server_names_in_a_map_select_pools() {
    assert_added(MAP, MAP_ROWS);
}

const STREAM: &str = "stream {\n\
    @@\n\
    server { listen 53; proxy_pass 10.0.0.5:53; }\n\
    }";

const STREAM_ROWS: &[Row] = &[
    (
        "upstream a { server 10.0.0.5; }",
        &["2: not imported: nothing uses this upstream"],
    ),
    (
        "log_format f '$status';",
        &["2: not imported: no imported service or route uses it"],
    ),
    (
        "log_format f '$status'; access_log /b f;",
        &[
            "2: not imported: `access_log` of a `tcp` service has its own format",
            "[service.stream-53]; access_log = '/b'",
        ],
    ),
    (
        "access_log off;",
        &["2: not imported: the log is off, as it is in Weir by default"],
    ),
    (
        "access_log /b;",
        &["[service.stream-53]; access_log = '/b'"],
    ),
    (
        "map $ssl_preread_server_name $name { x.example 10.0.0.5:53; }",
        &["!2: not imported: a route can only compare parts of the request"],
    ),
    (
        "resolver 10.0.0.2;",
        &["2: not imported: Weir resolves names without this setting"],
    ),
    (
        "tcp_nodelay on;",
        &["2: not imported: Weir has no setting for this"],
    ),
    (
        "server { listen 54; }",
        &["!2: not imported: the target is missing"],
    ),
    (
        "server { proxy_pass 10.0.0.5:53; }",
        &["!2: not imported: Weir cannot listen on any address of this block"],
    ),
    (
        "server { listen 53 udp; proxy_pass 10.0.0.5:53; }",
        &[
            "!2: not imported: `forward = 'proxy'` supports only TCP; use `forward = 'nat'` for UDP",
            "!2: not imported: Weir cannot listen on any address of this block",
        ],
    ),
    (
        "server { listen 53; proxy_pass 10.0.0.6:53; }",
        &[
            "!3: not imported: tcp/0.0.0.0:53 is used twice",
            "!3: not imported: a part that it requires is not imported",
            "[pool.'10.0.0.6-53']; servers = [{ address = '10.0.0.6:53' }]",
            "[service.stream-53]; pool = '10.0.0.6-53'",
        ],
    ),
];

#[test]
fn other_stream_directives_are_imported_or_reported() {
    assert_added(STREAM, STREAM_ROWS);
}
