//! Tests the reasons for lines that are not imported, and server blocks outside of `http`.

use super::{Row, assert_added};

const MAIN: &str = "@@\n\
    events { worker_connections 9; }\n\
    http {\n\
    server { listen 80; location / { proxy_pass http://10.0.0.5; } }\n\
    }";

const MAIN_ROWS: &[Row] = &[
    (
        "user a;",
        &["1: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "pid a;",
        &["1: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "daemon on;",
        &["1: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "master_process on;",
        &["1: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "working_directory a;",
        &["1: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "lock_file a;",
        &["1: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "worker_processes 4;",
        &["1: not imported: Weir runs one worker per CPU"],
    ),
    (
        "worker_cpu_affinity a;",
        &["1: not imported: Weir runs one worker per CPU"],
    ),
    (
        "worker_priority a;",
        &["1: not imported: Weir runs one worker per CPU"],
    ),
    (
        "worker_rlimit_nofile 9;",
        &["1: not imported: Weir runs one worker per CPU"],
    ),
    (
        "worker_rlimit_core 9;",
        &["1: not imported: Weir runs one worker per CPU"],
    ),
    (
        "thread_pool a;",
        &["1: not imported: Weir runs one worker per CPU"],
    ),
    (
        "pcre_jit on;",
        &["1: not imported: Weir runs one worker per CPU"],
    ),
    (
        "timer_resolution 9;",
        &["1: not imported: Weir runs one worker per CPU"],
    ),
    (
        "worker_shutdown_timeout 9;",
        &["!1: not imported: Weir runs one worker per CPU"],
    ),
    (
        "error_log /a;",
        &[
            "1: not imported: Weir logs to standard error; under systemd, the journal stores the log",
        ],
    ),
    ("load_module a;", &["!1: not imported: Weir has no modules"]),
    ("include;", &["!1: not imported: no such file"]),
    (
        "mail { server { listen 25; } }",
        &["!1: not imported: Weir does not proxy mail"],
    ),
    ("env A;", &["!1: not imported: weir.toml has no equivalent"]),
    (
        "upstream a { server 10.0.0.5; }",
        &["!1: not imported: weir.toml has no equivalent"],
    ),
    (
        "server { listen 81; }",
        &["!1: not imported: weir.toml has no equivalent"],
    ),
    (
        "stream { server { listen 81; proxy_pass 10.0.0.5:81; } }",
        &[
            "[pool.'10.0.0.5-81']; servers = [{ address = '10.0.0.5:81' }]",
            "[service.stream-81]; listen = ['0.0.0.0:81']; forward = 'proxy'; protocol = 'tcp'; pool = \
            '10.0.0.5-81'",
        ],
    ),
    (
        "http { server { listen 81; location / { proxy_pass http://10.0.0.5; } } }",
        &[
            "[service.nginx-81]; listen = ['0.0.0.0:81']; forward = 'proxy'; protocol = 'http'; pool = '10.0.0.5'; \
            forwarded = false",
            "[pool.'10.0.0.5-2']; host = '10.0.0.5'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.nginx-80]; pool = '10.0.0.5-2'",
        ],
    ),
];

#[test]
fn main_context_lines_are_imported_or_reported() {
    assert_added(MAIN, MAIN_ROWS);
}

const HTTP: &str = "http {\n\
    @@\n\
    server { listen 80; location / { proxy_pass http://10.0.0.5; } }\n\
    }";

const HTTP_ROWS: &[Row] = &[
    (
        "absolute_redirect on;",
        &["2: not imported: this is nginx's default"],
    ),
    ("etag on;", &["2: not imported: this is nginx's default"]),
    (
        "etag off;",
        &["!2: not imported: a route's `files` has no such setting"],
    ),
    (
        "satisfy all;",
        &["2: not imported: this is nginx's default"],
    ),
    (
        "satisfy any;",
        &["!!2: not imported: it does not protect any imported route"],
    ),
    (
        "limit_req_status 429;",
        &["2: not imported: this is the status that Weir sends"],
    ),
    (
        "limit_conn_status 429;",
        &["2: not imported: this is the status that Weir sends"],
    ),
    (
        "limit_req_status 503;",
        &[
            "!2: not imported: a limit applies to one service or route, and rejected requests get status 429; \
            several services or routes cannot share a zone",
        ],
    ),
    ("userid off;", &["2: not imported: this is nginx's default"]),
    (
        "proxy_pass_request_headers on;",
        &["2: not imported: this is nginx's default"],
    ),
    (
        "gzip_comp_level 5;",
        &["2: not imported: compression is off"],
    ),
    ("gzip_static on;", &["2: not imported: compression is off"]),
    (
        "gzip on; gzip_comp_level 5;",
        &[
            "2: not imported: `compression` has no such setting",
            "[service.nginx-80]; compression = { codings = ['gzip'], types = ['text/html'], minimum = 20 }",
        ],
    ),
    (
        "gzip on; gzip_static on;",
        &[
            "!2: not imported: `compression` has no such setting",
            "[service.nginx-80]; compression = { codings = ['gzip'], types = ['text/html'], minimum = 20 }",
        ],
    ),
    (
        "gzip off; gzip_static on;",
        &["!2: not imported: `compression` has no such setting"],
    ),
    (
        "ssl_ciphers a;",
        &["2: not imported: no server block uses TLS"],
    ),
    (
        "ssl_stapling on;",
        &["2: not imported: no server block uses TLS"],
    ),
    (
        "ssl_conf_command a;",
        &["2: not imported: no server block uses TLS"],
    ),
    (
        "proxy_ssl_verify on;",
        &["!!2: not imported: a pool's `tls` has no such key, or no pool here uses TLS"],
    ),
    (
        "proxy_ssl_server_name on;",
        &["!2: not imported: a pool's `tls` has no such key, or no pool here uses TLS"],
    ),
    ("proxy_cache a;", &["!2: not imported: Weir has no cache"]),
    (
        "sendfile on;",
        &["2: not imported: a route's `files` has no such setting"],
    ),
    (
        "other a;",
        &["!2: not imported: weir.toml has no equivalent"],
    ),
    (
        "upstream a { server 10.0.0.5; }",
        &["2: not imported: nothing uses this upstream"],
    ),
    (
        "map $host $a { default b; }",
        &["!2: not imported: a route can only compare parts of the request"],
    ),
    (
        "deny all;",
        &[
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 0: status = 403",
        ],
    ),
    ("include;", &["!2: not imported: no such file"]),
    (
        "ssl_protocols TLSv1.2;",
        &["2: not imported: no server block uses TLS"],
    ),
];

#[test]
fn http_block_lines_are_imported_or_reported() {
    assert_added(HTTP, HTTP_ROWS);
}

const FILE: &str = "@@";

const FILE_ROWS: &[Row] = &[
    (
        "upstream a { server 10.0.0.5; }",
        &["1: not imported: nothing uses this upstream"],
    ),
    (
        "server { listen 80; location / { proxy_pass http://10.0.0.5; } } user a;",
        &[
            "1: not imported: weir.toml has no equivalent",
            "[pool.'10.0.0.5']; host = '10.0.0.5'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.nginx-80]; listen = ['0.0.0.0:80']; forward = 'proxy'; protocol = 'http'; pool = '10.0.0.5'; \
            forwarded = false",
        ],
    ),
    (
        "http { server { listen 80; location / { proxy_pass http://10.0.0.5; } } } server { listen 81; }",
        &[
            "!1: not imported: weir.toml has no equivalent",
            "[pool.'10.0.0.5']; host = '10.0.0.5'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.nginx-80]; listen = ['0.0.0.0:80']; forward = 'proxy'; protocol = 'http'; pool = '10.0.0.5'; \
            forwarded = false",
        ],
    ),
    (
        "user a;",
        &["1: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "stream { upstream a { server 10.0.0.5:1; } server { listen 1; proxy_pass a; } } http { upstream a { \
        server 10.0.0.6; } server { listen 80; location / { proxy_pass http://a; proxy_set_header Host $host; } } }",
        &[
            "1: Weir already does this, or a key of the service or pool configures it",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:1' }]",
            "[service.stream-1]; listen = ['0.0.0.0:1']; forward = 'proxy'; protocol = 'tcp'; pool = 'a'",
            "[pool.a-2]; scheduler = 'wrr'; servers = [{ address = '10.0.0.6:80' }]",
            "[service.nginx-80]; listen = ['0.0.0.0:80']; forward = 'proxy'; protocol = 'http'; pool = 'a-2'; \
            forwarded = false",
        ],
    ),
    (
        "http { upstream a { server 10.0.0.6; } server { listen 80; location / { proxy_pass http://a; \
        proxy_set_header Host $host; } } } stream { upstream a { server 10.0.0.5:1; } server { listen 1; \
        proxy_pass a; } }",
        &[
            "1: Weir already does this, or a key of the service or pool configures it",
            "[pool.a]; scheduler = 'wrr'; servers = [{ address = '10.0.0.6:80' }]",
            "[service.nginx-80]; listen = ['0.0.0.0:80']; forward = 'proxy'; protocol = 'http'; pool = 'a'; \
            forwarded = false",
            "[pool.a-2]; scheduler = 'wrr'; servers = [{ address = '10.0.0.5:1' }]",
            "[service.stream-1]; listen = ['0.0.0.0:1']; forward = 'proxy'; protocol = 'tcp'; pool = 'a-2'",
        ],
    ),
    (
        "http { upstream a { server 10.0.0.6; } server { listen 80; location / { proxy_pass http://a; } } } stream \
        { server { listen 1; proxy_pass a; } }",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.6:80' }]",
            "[service.nginx-80]; listen = ['0.0.0.0:80']; forward = 'proxy'; protocol = 'http'; pool = 'a'; \
            forwarded = false",
            "[pool.a-2]; servers_dns = { name = 'a', port = 80 }; servers = []",
            "[service.stream-1]; listen = ['0.0.0.0:1']; forward = 'proxy'; protocol = 'tcp'; pool = 'a-2'",
        ],
    ),
];

#[test]
fn top_level_servers_and_streams_are_imported() {
    assert_added(FILE, FILE_ROWS);
}

const TLS: &str = "http {\n\
    ssl_protocols TLSv1.2; ssl_conf_command a;\n\
    @@\n\
    }";

const TLS_ROWS: &[Row] = &[
    (
        "server { listen 80; location / { proxy_pass http://10.0.0.5; } }",
        &[
            "[pool.'10.0.0.5']; host = '10.0.0.5'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.nginx-80]; listen = ['0.0.0.0:80']; forward = 'proxy'; protocol = 'http'; pool = '10.0.0.5'; \
            forwarded = false",
        ],
    ),
    (
        "server { listen 443 ssl; ssl_certificate /c.pem; location / { proxy_pass http://10.0.0.5; } }",
        &[
            "!2: not imported: a service's `tls` has no such key",
            "[pool.'10.0.0.5']; host = '10.0.0.5'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.nginx-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem', minimum = '1.2' }; forwarded = false",
        ],
    ),
    (
        "server { listen 443; ssl on; ssl_certificate /c.pem; location / { proxy_pass http://10.0.0.5; } }",
        &[
            "!2: not imported: a service's `tls` has no such key",
            "[pool.'10.0.0.5']; host = '10.0.0.5'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.nginx-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem', minimum = '1.2' }; forwarded = false",
        ],
    ),
    (
        "server { listen 80; server_name ssl; location / { proxy_pass http://10.0.0.5; } }",
        &[
            "[pool.'10.0.0.5']; host = '10.0.0.5'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.ssl]; listen = ['0.0.0.0:80']; forward = 'proxy'; protocol = 'http'; pool = '10.0.0.5'; \
            forwarded = false",
        ],
    ),
    (
        "ssl on; server { listen 443; ssl_certificate /c.pem; location / { proxy_pass http://10.0.0.5; } }",
        &[
            "!2: not imported: a service's `tls` has no such key",
            "[pool.'10.0.0.5']; host = '10.0.0.5'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.nginx-443]; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem', minimum = '1.2' }; forwarded = false",
        ],
    ),
];

#[test]
fn tls_lines_are_losses_only_if_a_server_block_uses_tls() {
    assert_added(TLS, TLS_ROWS);
}
