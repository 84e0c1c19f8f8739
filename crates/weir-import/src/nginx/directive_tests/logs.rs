//! Tests `access_log` and `userid`.

use super::{Row, assert_added};

const LOG: &str = "http {\n\
    log_format f '$status';\n\
    log_format c '$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
    \"$http_referer\" \"$http_user_agent\"';\n\
    log_format d '$remote_user';\n\
    log_format j '{$status';\n\
    server {\n\
    listen 80;\n\
    server_name a.example;\n\
    location / { proxy_pass http://10.0.0.5; }\n\
    @@\n\
    }\n\
    }";

const LOG_ROWS: &[Row] = &[
    (
        "access_log /b;",
        &["[service.'a.example']; access_log = '/b'"],
    ),
    (
        "access_log /b f;",
        &["[service.'a.example']; access_log = { path = '/b', format = '{status}' }"],
    ),
    (
        "access_log /b combined;",
        &["[service.'a.example']; access_log = '/b'"],
    ),
    (
        "access_log /b c;",
        &["[service.'a.example']; access_log = '/b'"],
    ),
    (
        "access_log /b d;",
        &[
            "4: the user is always `-`",
            "4: not imported: the log format contains no variables",
            "[service.'a.example']; access_log = { path = '/b' }",
        ],
    ),
    (
        "access_log /b j;",
        &[
            "5: not imported: `format` of `access_log` cannot contain a literal `{`; for JSON, use `format = \
            'json'`",
            "[service.'a.example']; access_log = '/b'",
        ],
    ),
    (
        "access_log /b none;",
        &[
            "10: the file has no `log_format none`; `combined` is used instead",
            "[service.'a.example']; access_log = '/b'",
        ],
    ),
    (
        "access_log /b f buffer=32k flush=1s;",
        &[
            "10: `buffer` and `flush` are not imported: Weir buffers lines itself",
            "[service.'a.example']; access_log = { path = '/b', format = '{status}' }",
        ],
    ),
    (
        "access_log /b f gzip=9;",
        &[
            "10: `gzip` is not imported: Weir does not compress logs",
            "[service.'a.example']; access_log = { path = '/b', format = '{status}' }",
        ],
    ),
    (
        "access_log /b f if=$a;",
        &[
            "10: `if` is not imported: all requests are logged",
            "[service.'a.example']; access_log = { path = '/b', format = '{status}' }",
        ],
    ),
    (
        "access_log /b f other;",
        &[
            "10: nginx has no parameter `other`",
            "[service.'a.example']; access_log = { path = '/b', format = '{status}' }",
        ],
    ),
    ("access_log;", &["10: not imported: the path is missing"]),
    (
        "access_log off;",
        &["10: not imported: the log is off, as it is in Weir by default"],
    ),
    (
        "access_log /dev/null;",
        &["10: not imported: the log is off, as it is in Weir by default"],
    ),
    (
        "access_log /dev/fd/1;",
        &["[service.'a.example']; access_log = '-'"],
    ),
    (
        "access_log /proc/self/fd/1;",
        &["[service.'a.example']; access_log = '-'"],
    ),
    (
        "access_log /dev/fd/2;",
        &[
            "10: not imported: `access_log` can write to standard output (`-`), not to standard error",
        ],
    ),
    (
        "access_log /proc/self/fd/2;",
        &[
            "10: not imported: `access_log` can write to standard output (`-`), not to standard error",
        ],
    ),
    (
        "access_log logs/b;",
        &[
            "10: not imported: the path is relative to nginx's prefix, which `nginx -V` shows; use an absolute path",
        ],
    ),
    (
        "access_log /b/$host;",
        &["10: not imported: the name of the file depends on the request"],
    ),
    (
        "access_log syslog:server=unix:/run/systemd/journal/dev-log;",
        &[
            "10: messages to syslog have the facility local0, the severity info and the tag weir",
            "[service.'a.example']; access_log = 'syslog'",
        ],
    ),
    (
        "access_log syslog:server=unix:/x f;",
        &[
            "10: messages to syslog have the facility local0, the severity info and the tag weir",
            "[service.'a.example']; access_log = { path = 'syslog:/x', format = '{status}' }",
        ],
    ),
    (
        "access_log syslog:server=unix:x;",
        &[
            "10: not imported: `access_log` of a service writes to a file or to a local socket, not to unix:x: use \
            `access_log = 'syslog'`, and configure the syslog daemon to forward the messages",
        ],
    ),
    (
        "access_log syslog:server=10.0.0.9;",
        &[
            "10: not imported: `access_log` of a service writes to a file or to a local socket, not to 10.0.0.9: \
            use `access_log = 'syslog'`, and configure the syslog daemon to forward the messages",
        ],
    ),
    (
        "access_log syslog:tag=a;",
        &["10: not imported: `server` is missing"],
    ),
    (
        "access_log /b; access_log /c;",
        &[
            "10: a service has only one `access_log`; requests are logged to the one on line 10",
            "[service.'a.example']; access_log = '/b'",
        ],
    ),
    (
        "access_log /b; access_log /b;",
        &["[service.'a.example']; access_log = '/b'"],
    ),
    (
        "access_log /dev/null; access_log /b;",
        &[
            "10: not imported: nginx discards these lines",
            "[service.'a.example']; access_log = '/b'",
        ],
    ),
    (
        "access_log /dev/null; access_log off;",
        &["10: not imported: the log is off, as it is in Weir by default"],
    ),
    (
        "access_log /b; location /l { access_log off; proxy_pass http://10.0.0.5; }",
        &[
            "[service.'a.example']; normalize_path = { encoded_slash = 'decode' }; access_log = '/b'",
            "route 0: path = '/l*'; pool = '10.0.0.5'; access_log = false",
        ],
    ),
    (
        "access_log /b; location /l { access_log /b; proxy_pass http://10.0.0.5; }",
        &[
            "[service.'a.example']; normalize_path = { encoded_slash = 'decode' }; access_log = '/b'",
            "route 0: path = '/l*'; pool = '10.0.0.5'",
        ],
    ),
    (
        "access_log /b; location /l { access_log /c; proxy_pass http://10.0.0.5; }",
        &[
            "10: not imported: a service has only one `access_log`, and a route can only disable it",
            "[service.'a.example']; normalize_path = { encoded_slash = 'decode' }; access_log = '/b'",
            "route 0: path = '/l*'; pool = '10.0.0.5'",
        ],
    ),
    (
        "location /l { access_log off; proxy_pass http://10.0.0.5; }",
        &[
            "10: not imported: the service has no access log",
            "[service.'a.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path = '/l*'; pool = '10.0.0.5'",
        ],
    ),
    (
        "location /l { access_log /b; proxy_pass http://10.0.0.5; }",
        &[
            "10: not imported: a service has only one `access_log`, and a route can only disable it",
            "[service.'a.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path = '/l*'; pool = '10.0.0.5'",
        ],
    ),
    (
        "access_log /b; location /l { access_log off; rewrite ^/l/a$ /m last; proxy_pass http://10.0.0.5; }",
        &[
            "[service.'a.example']; normalize_path = { encoded_slash = 'decode' }; access_log = '/b'",
            "route 0: path = '/l*'; rewrite = { regex = '^/l/a$', to = '/m' }; restart = 'first'",
            "route 1: path = '/l*'; pool = '10.0.0.5'; access_log = false",
        ],
    ),
    (
        "access_log /b; location /l { access_log /dev/null; access_log /b; proxy_pass http://10.0.0.5; }",
        &[
            "10: not imported: a service has only one `access_log`, and a route can only disable it",
            "[service.'a.example']; normalize_path = { encoded_slash = 'decode' }; access_log = '/b'",
            "route 0: path = '/l*'; pool = '10.0.0.5'",
        ],
    ),
];

#[test]
fn logs_of_a_server_block_become_its_access_log() {
    assert_added(LOG, LOG_ROWS);
}

const INHERITED_LOG: &str = "http {\n\
    access_log /a;\n\
    server {\n\
    listen 80;\n\
    server_name a.example;\n\
    location / { proxy_pass http://10.0.0.5; }\n\
    @@\n\
    }\n\
    }";

const INHERITED_LOG_ROWS: &[Row] = &[
    (
        "access_log off;",
        &[
            "2: not imported: no imported service or route uses it",
            "[service.'a.example']",
        ],
    ),
    (
        "access_log /b;",
        &[
            "2: not imported: no imported service or route uses it",
            "[service.'a.example']; access_log = '/b'",
        ],
    ),
    (
        "access_log /a;",
        &["2: not imported: no imported service or route uses it"],
    ),
    (
        "location /l { access_log off; proxy_pass http://10.0.0.5; }",
        &[
            "[service.'a.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path = '/l*'; pool = '10.0.0.5'; access_log = false",
        ],
    ),
    (
        "location /l { access_log /a; proxy_pass http://10.0.0.5; }",
        &[
            "[service.'a.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path = '/l*'; pool = '10.0.0.5'",
        ],
    ),
];

#[test]
fn server_block_overrides_the_inherited_log() {
    assert_added(INHERITED_LOG, INHERITED_LOG_ROWS);
}

const SEVERAL_SERVERS: &str = "http {\n\
    log_format n '$server_name';\n\
    @@\n\
    server { listen 80; server_name a.example; location / { proxy_pass http://10.0.0.5; } }\n\
    server { listen 81; server_name b.example; location / { proxy_pass http://10.0.0.5; } access_log off; }\n\
    server { listen 82; server_name c.example; location / { proxy_pass http://10.0.0.5; } }\n\
    server { listen 82 default_server; server_name d.example; location /d { access_log off; proxy_pass \
    http://10.0.0.6; } access_log off; }\n\
    server { listen 83; server_name e.example; location / { proxy_pass http://10.0.0.5; } access_log off; }\n\
    server { listen 83 default_server; server_name f.example; location / { proxy_pass http://10.0.0.6; } \
    access_log /f; }\n\
    }";

const SEVERAL_SERVERS_ROWS: &[Row] = &[
    (
        "access_log /a;",
        &[
            "[service.'a.example']; access_log = '/a'",
            "[service.'d.example']; access_log = '/a'",
            "route 1: path = '/d*'; pool = '10.0.0.6'; access_log = false",
            "route 2: status = 404; access_log = false",
        ],
    ),
    (
        "access_log /a n;",
        &[
            "2: not imported: `format` of `access_log` has no equivalent for $server_name; `combined` is used \
            instead",
            "2: not imported: the log format contains no variables",
            "[service.'a.example']; access_log = { path = '/a' }",
            "[service.'d.example']; access_log = '/a'",
            "route 1: path = '/d*'; pool = '10.0.0.6'; access_log = false",
            "route 2: status = 404; access_log = false",
        ],
    ),
    (
        "access_log off;",
        &["3: not imported: the log is off, as it is in Weir by default"],
    ),
];

#[test]
fn default_server_block_selects_the_log() {
    assert_added(SEVERAL_SERVERS, SEVERAL_SERVERS_ROWS);
}

const COOKIE: &str = "server {\n\
    listen 80;\n\
    location / { proxy_pass http://10.0.0.5; }\n\
    location /r { rewrite ^/r/a$ /b last; proxy_pass http://10.0.0.5; }\n\
    location = /c { return 444; }\n\
    @@\n\
    }";

const COOKIE_ROWS: &[Row] = &[
    (
        "userid on;",
        &[
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Path=/']",
            "route 4: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Path=/']",
        ],
    ),
    (
        "userid log;",
        &["!6: not imported: weir.toml has no equivalent"],
    ),
    ("userid off;", &["6: not imported: this is nginx's default"]),
    (
        "userid on; userid_name id;",
        &[
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['id'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: id={request_id}; Path=/']",
            "route 4: not = { cookie = ['id'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            id={request_id}; Path=/']",
        ],
    ),
    (
        "userid on; userid_expires max;",
        &[
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Expires=Thu, 31-Dec-37 23:55:55 GMT; Path=/']",
            "route 4: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Expires=Thu, 31-Dec-37 23:55:55 GMT; Path=/']",
        ],
    ),
    (
        "userid on; userid_expires off;",
        &[
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Path=/']",
            "route 4: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Path=/']",
        ],
    ),
    (
        "userid on; userid_expires 1d;",
        &[
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Max-Age=86400; Path=/']",
            "route 4: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Max-Age=86400; Path=/']",
        ],
    ),
    (
        "userid on; userid_expires 1500;",
        &[
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Max-Age=1500; Path=/']",
            "route 4: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Max-Age=1500; Path=/']",
        ],
    ),
    (
        "userid on; userid_expires x;",
        &["!6: not imported: weir.toml has no equivalent"],
    ),
    (
        "userid on; userid_domain a.example;",
        &[
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Domain=a.example; Path=/']",
            "route 4: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Domain=a.example; Path=/']",
        ],
    ),
    (
        "userid on; userid_domain none;",
        &[
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Path=/']",
            "route 4: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Path=/']",
        ],
    ),
    (
        "userid on; userid_path /p;",
        &[
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Path=/p']",
            "route 4: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Path=/p']",
        ],
    ),
    (
        "userid on; userid_p3p \"a b\";",
        &[
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Path=/', 'P3P: a b']",
            "route 4: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Path=/', 'P3P: a b']",
        ],
    ),
    (
        "userid on; userid_p3p none;",
        &[
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Path=/']",
            "route 4: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Path=/']",
        ],
    ),
    (
        "userid on; userid_name \"{id}\";",
        &[
            "!6: not imported: the value contains a name in braces",
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Path=/']",
            "route 4: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Path=/']",
        ],
    ),
    (
        "userid on; userid_domain \"{id}\";",
        &[
            "!6: not imported: the value contains a name in braces",
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "route 2: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Path=/']",
            "route 4: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Path=/']",
        ],
    ),
    (
        "userid on; location = /l { limit_conn c 5; proxy_pass http://10.0.0.5; } } limit_conn_zone \
        $binary_remote_addr zone=c:1m; server { listen 81;",
        &[
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "!!6: a location's limits count requests with and without the cookie separately",
            "[pool.no-servers]; servers = []",
            "[service.nginx-81]; listen = ['0.0.0.0:81']; forward = 'proxy'; protocol = 'http'; pool = \
            'no-servers'; forwarded = false",
            "route 1: path = '/l'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Path=/']; limits = { concurrent = 5 }",
            "route 2: path = '/l'; pool = '10.0.0.5'; limits = { concurrent = 5 }",
            "route 4: path = '/r*'; not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: uid={request_id}; Path=/']",
            "route 6: not = { cookie = ['uid'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            uid={request_id}; Path=/']",
            "route 7: status = 404",
        ],
    ),
];

#[test]
fn requests_without_the_cookie_have_their_own_route() {
    assert_added(COOKIE, COOKIE_ROWS);
}

const INHERITED_COOKIE: &str = "userid on;\n\
    userid_name outer;\n\
    server {\n\
    listen 80;\n\
    location /x { proxy_pass http://10.0.0.5; }\n\
    @@\n\
    }";

const INHERITED_COOKIE_ROWS: &[Row] = &[
    (
        "userid off;",
        &[
            "!1: not imported: weir.toml has no equivalent",
            "!2: not imported: weir.toml has no equivalent",
            "6: not imported: this is nginx's default",
        ],
    ),
    (
        "userid_name inner;",
        &[
            "!2: not imported: weir.toml has no equivalent",
            "route 0: path = '/x*'; not = { cookie = ['inner'] }; pool = '10.0.0.5'; add_response_header = \
            ['Set-Cookie: inner={request_id}; Path=/']",
            "route 2: not = { cookie = ['inner'] }; status = 404; add_response_header = ['Set-Cookie: \
            inner={request_id}; Path=/']",
        ],
    ),
    (
        "userid on; location / { proxy_pass http://10.0.0.5; }",
        &[
            "!1: not imported: weir.toml has no equivalent",
            "6: the value is Weir's identifier of the request, in a different format than nginx's",
            "[service.nginx-80]; pool = '10.0.0.5'",
            "route 2: not = { cookie = ['outer'] }; pool = '10.0.0.5'; add_response_header = ['Set-Cookie: \
            outer={request_id}; Path=/']",
        ],
    ),
];

#[test]
fn innermost_level_sets_the_cookie() {
    assert_added(INHERITED_COOKIE, INHERITED_COOKIE_ROWS);
}
