//! Settings of frontends and of their default backends.

use super::{Row, assert_changes};

const FRONTEND_SETTINGS_BECOME_SERVICE_KEYS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    (
        "mode tcp",
        &[
            r#"- protocol = "http""#,
            "- forwarded = false",
            "- abort_on_close = false",
            "- normalize_path = false",
            r#"- underscores = "keep""#,
            r#"+ protocol = "tcp""#,
        ],
    ),
    (
        "mode health",
        &[
            r#"- protocol = "http""#,
            "- forwarded = false",
            "- abort_on_close = false",
            "- normalize_path = false",
            r#"- underscores = "keep""#,
            r#"+ protocol = "tcp""#,
            "4 LOST: not imported: Weir has no such mode; the service uses tcp",
        ],
    ),
    (
        "timeout http-request 5s",
        &[r#"+ timeouts = { request = "5s" }"#],
    ),
    (
        "timeout http-keep-alive 5s",
        &[r#"+ timeouts = { idle = "5s" }"#],
    ),
    ("timeout client 5s", &[r#"+ timeouts = { client = "5s" }"#]),
    (
        "timeout connect 5s",
        &[
            "4 LOST: not imported: a service's `timeouts` has no such key, or the service gets \
            it from another pool",
        ],
    ),
    (
        "timeout client x",
        &["4 LOST: not imported: haproxy requires a time"],
    ),
    (
        "timeout client",
        &["4 LOST: not imported: haproxy requires a time"],
    ),
    ("maxconn 100", &["+ limits = { connections = 100 }"]),
    (
        "maxconn x",
        &["4 LOST: not imported: haproxy requires a number"],
    ),
    (
        "retries 5",
        &["4 LOST: not imported: weir.toml has no equivalent"],
    ),
    (
        "option http-server-close",
        &["+ limits = { idle_servers = 0 }"],
    ),
    (
        "option httpclose",
        &[
            "+ limits = { idle_servers = 0 }",
            "4: server connections close after each request; client connections stay open",
        ],
    ),
    (
        "option forceclose",
        &[
            "+ limits = { idle_servers = 0 }",
            "4: server connections close after each request; client connections stay open",
        ],
    ),
    (
        "option httpclose\n option http-server-close",
        &["+ limits = { idle_servers = 0 }"],
    ),
    (
        "option forwardfor",
        &[r#"+ x_forwarded = { for = "append" }"#],
    ),
    (
        "option forwardfor except 127.0.0.0/8",
        &[r#"+ x_forwarded = { for = "append", except = ["127.0.0.0/8"] }"#],
    ),
    (
        "option forwardfor header x-forwarded-for",
        &[r#"+ x_forwarded = { for = "append" }"#],
    ),
    (
        "option forwardfor header X-Client",
        &[r#"+ [[route]] service = "f" pool = "b" add_header = ["X-Client: {client}"]"#],
    ),
    (
        "option forwardfor if-none",
        &[
            "+ [[route]] service = \"f\" not = { header = [\"X-Forwarded-For\"] } pool = \"b\" \
            add_header = [\"X-Forwarded-For: {client}\"]",
            r#"+ [[route]] service = "f" pool = "b""#,
        ],
    ),
    (
        "option forwardfor except",
        &[
            r#"+ x_forwarded = { for = "append" }"#,
            "4 LOST: \"except\" and any following arguments are not imported: `x_forwarded` has \
            no such option",
        ],
    ),
    (
        "option forwardfor foo",
        &[
            r#"+ x_forwarded = { for = "append" }"#,
            "4 LOST: \"foo\" and any following arguments are not imported: `x_forwarded` has no \
            such option",
        ],
    ),
    (
        "option forwardfor except 127.0.0.0/8 header X-Client",
        &[
            "+ [[route]] service = \"f\" not = { source = [\"127.0.0.0/8\"] } pool = \"b\" \
            add_header = [\"X-Client: {client}\"]",
            r#"+ [[route]] service = "f" pool = "b""#,
        ],
    ),
    (
        "option http-buffer-request",
        &["+ request_buffering = true"],
    ),
    (
        "no option http-buffer-request",
        &["+ request_buffering = false"],
    ),
    (
        "option abortonclose",
        &["4 LOST: not imported: weir.toml has no equivalent"],
    ),
    (
        "option http-restrict-req-hdr-names delete",
        &[r#"- underscores = "keep""#, r#"+ underscores = "drop""#],
    ),
    (
        "option http-restrict-req-hdr-names reject",
        &[r#"- underscores = "keep""#, r#"+ underscores = "reject""#],
    ),
    ("option http-restrict-req-hdr-names preserve", &[]),
    ("option http-restrict-req-hdr-names", &[]),
    (
        "compression algo gzip",
        &[r#"+ compression = { codings = ["gzip"] }"#],
    ),
    ("compression algo identity", &[]),
    (
        "compression algo deflate",
        &["4 LOST: not imported: of haproxy's algorithms, `codings` accepts only gzip"],
    ),
    (
        "compression algo raw-deflate identity",
        &["4 LOST: not imported: of haproxy's algorithms, `codings` accepts only gzip"],
    ),
    ("compression algo", &[]),
    (
        "compression algo deflate gzip",
        &[r#"+ compression = { codings = ["gzip"] }"#],
    ),
    (
        "compression algo-res gzip",
        &[r#"+ compression = { codings = ["gzip"] }"#],
    ),
    (
        "compression algo gzip\n compression type text/html text/css",
        &[r#"+ compression = { codings = ["gzip"], types = ["text/html", "text/css"] }"#],
    ),
    (
        "compression algo gzip\n compression type-res text/html",
        &[r#"+ compression = { codings = ["gzip"], types = ["text/html"] }"#],
    ),
    (
        "compression type text/html",
        &["4: not imported: it has no effect without `compression algo`"],
    ),
    (
        "compression algo identity\n compression type text/html",
        &[],
    ),
];

#[test]
fn frontend_settings_become_service_keys() {
    assert_changes(
        "frontend f\n bind :80\n mode http\n {}\n default_backend b\nbackend b\n mode http\n \
        server a 10.0.0.5:80\n",
        FRONTEND_SETTINGS_BECOME_SERVICE_KEYS,
    );
}

const DEFAULT_BACKEND_SETTINGS_BECOME_SERVICE_KEYS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    (
        "timeout http-request 5s",
        &[
            "7 LOST: not imported: a service's `timeouts` has no such key, or the service gets \
            it from another pool",
        ],
    ),
    (
        "timeout client 5s",
        &[
            "7 LOST: not imported: a service's `timeouts` has no such key, or the service gets \
            it from another pool",
        ],
    ),
    (
        "timeout connect 5s",
        &[r#"+ timeouts = { connect = "5s" }"#],
    ),
    ("timeout server 5s", &[r#"+ timeouts = { server = "5s" }"#]),
    ("timeout tunnel 1h", &[r#"+ timeouts = { tunnel = "1h" }"#]),
    (
        "timeout server x",
        &["7 LOST: not imported: haproxy requires a time"],
    ),
    (
        "maxconn 100",
        &["7 LOST: not imported: weir.toml has no equivalent"],
    ),
    ("retries 5", &["+ limits = { retries = 5 }"]),
    (
        "retries x",
        &["7 LOST: not imported: haproxy requires a number"],
    ),
    (
        "option http-server-close",
        &["+ limits = { idle_servers = 0 }"],
    ),
    (
        "option httpclose",
        &[
            "+ limits = { idle_servers = 0 }",
            "7: server connections close after each request; client connections stay open",
        ],
    ),
    (
        "option forwardfor",
        &[r#"+ x_forwarded = { for = "append" }"#],
    ),
    (
        "option forwardfor except 127.0.0.0/8",
        &[r#"+ x_forwarded = { for = "append", except = ["127.0.0.0/8"] }"#],
    ),
    (
        "option forwardfor header X-Client",
        &[r#"+ [[route]] service = "f" pool = "b" add_header = ["X-Client: {client}"]"#],
    ),
    (
        "option http-buffer-request",
        &["+ request_buffering = true"],
    ),
    (
        "no option http-buffer-request",
        &["+ request_buffering = false"],
    ),
    (
        "option abortonclose",
        &["- abort_on_close = false", "+ abort_on_close = true"],
    ),
    ("no option abortonclose", &[]),
    (
        "compression algo gzip",
        &[r#"+ compression = { codings = ["gzip"] }"#],
    ),
    ("retry-on none", &["+ retry_on = []"]),
    ("retry-on 0rtt-rejected", &["+ retry_on = []"]),
    ("retry-on conn-failure", &[r#"+ retry_on = ["connect"]"#]),
    ("retry-on empty-response", &[r#"+ retry_on = ["empty"]"#]),
    ("retry-on junk-response", &[r#"+ retry_on = ["malformed"]"#]),
    (
        "retry-on response-timeout",
        &[r#"+ retry_on = ["timeout"]"#],
    ),
    (
        "retry-on all-retryable-errors",
        &[r#"+ retry_on = ["connect", "empty", "malformed", "timeout", "500", "502-504"]"#],
    ),
    ("retry-on 400 599", &[r#"+ retry_on = ["400", "599"]"#]),
    (
        "retry-on 399",
        &[
            "+ retry_on = []",
            "7 LOST: 399 is not imported: a service's `retry_on` has no such condition",
        ],
    ),
    (
        "retry-on 600",
        &[
            "+ retry_on = []",
            "7 LOST: 600 is not imported: a service's `retry_on` has no such condition",
        ],
    ),
    (
        "retry-on foo 503",
        &[
            r#"+ retry_on = ["503"]"#,
            "7 LOST: foo is not imported: a service's `retry_on` has no such condition",
        ],
    ),
    ("retry-on", &["+ retry_on = []"]),
    (
        "stick on src\n stick-table type ip expire 30m",
        &[r#"+ persistence = { timeout = "30m" }"#],
    ),
    (
        "stick on src\n stick-table type ipv6 expire 30m",
        &[r#"+ persistence = { timeout = "30m" }"#],
    ),
    (
        "stick on src\n stick-table type string expire 30m",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on src\n stick-table type ip expire 1s",
        &[r#"+ persistence = { timeout = "1s" }"#],
    ),
    (
        "stick on src\n stick-table type ip expire 999",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on src\n stick-table type ip",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on src\n stick-table type ip expire x",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on src\n stick-table type ip expire 30m store server_id",
        &[r#"+ persistence = { timeout = "30m" }"#],
    ),
    (
        "stick on src\n stick-table type ip expire 30m store gpc0",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on src,ipmask(24)\n stick-table type ip expire 30m",
        &[r#"+ persistence = { timeout = "30m", netmask = 24 }"#],
    ),
    (
        "stick on src,ipmask(1)\n stick-table type ip expire 30m",
        &[r#"+ persistence = { timeout = "30m", netmask = 1 }"#],
    ),
    (
        "stick on src,ipmask(32)\n stick-table type ip expire 30m",
        &[r#"+ persistence = { timeout = "30m", netmask = 32 }"#],
    ),
    (
        "stick on src,ipmask(0)\n stick-table type ip expire 30m",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on src,ipmask(33)\n stick-table type ip expire 30m",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on src,ipmask(x)\n stick-table type ip expire 30m",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on dst\n stick-table type ip expire 30m",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on src",
        &["7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`"],
    ),
    (
        "stick on src table b\n stick-table type ip expire 30m",
        &[r#"+ persistence = { timeout = "30m" }"#],
    ),
    (
        "stick on src table t\nbackend t\n stick-table type ip expire 30m\n stick on src",
        &[
            "+ servers = []",
            "+ [pool.t]",
            r#"+ scheduler = "wrr""#,
            r#"+ persistence = { timeout = "30m" }"#,
            "10 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on src table none\n stick-table type ip expire 30m",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on src if { path /x }\n stick-table type ip expire 30m",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on",
        &["7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`"],
    ),
    (
        "stick match src\n stick store-request src\n stick-table type ip expire 30m",
        &[r#"+ persistence = { timeout = "30m" }"#],
    ),
    (
        "stick match src\n stick store-request dst\n stick-table type ip expire 30m",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "9 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick match src\n stick-table type ip expire 30m",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick store-request src\n stick-table type ip expire 30m",
        &[
            "7 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "acl b src 10.0.0.0/8\n stick on src if b\n stick-table type ip expire 30m",
        &[
            "7: not imported: no rule that uses it is imported",
            "8 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "9 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
];

#[test]
fn default_backend_settings_become_service_keys() {
    assert_changes(
        "frontend f\n bind :80\n mode http\n default_backend b\nbackend b\n mode http\n {}\n \
        server a 10.0.0.5:80\n",
        DEFAULT_BACKEND_SETTINGS_BECOME_SERVICE_KEYS,
    );
}

const SERVICE_SETTINGS_COME_FROM_THE_DEFAULT_BACKEND: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.c]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [service.c]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "c""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    ("timeout server 5s", &[r#"+ timeouts = { server = "5s" }"#]),
];

#[test]
fn service_settings_come_from_the_default_backend() {
    assert_changes(
        "frontend c\n mode http\n bind :80\n default_backend c\nbackend b\n mode http\n timeout \
        server 1s\n server a 10.0.0.5:80\nbackend c\n mode http\n {}\n server a 10.0.0.6:80\n",
        SERVICE_SETTINGS_COME_FROM_THE_DEFAULT_BACKEND,
    );
}

const FRONTEND_OR_BACKEND_ENABLES_REQUEST_BUFFERING: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ request_buffering = true",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    ("no option http-buffer-request", &[]),
    ("option http-buffer-request", &[]),
];

#[test]
fn frontend_or_backend_enables_request_buffering() {
    assert_changes(
        "frontend f\n bind :80\n mode http\n option http-buffer-request\n default_backend \
        b\nbackend b\n mode http\n {}\n server a 10.0.0.5:80\n",
        FRONTEND_OR_BACKEND_ENABLES_REQUEST_BUFFERING,
    );
}

const CLOSE_OPTION_APPLIES_IF_ALL_REFERENCED_BACKENDS_HAVE_IT: &[Row] = &[
    (
        "",
        &[
            "+ [pool.c]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.d]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [pool.e]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.7:80" },"#,
            "+ [pool.no-servers]",
            "+ servers = []",
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "no-servers""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "f" path = "/c" pool = "c""#,
            r#"+ [[route]] service = "f" path = "/d" pool = "d""#,
            r#"+ [[route]] service = "f" status = 503"#,
            "8 LOST: not imported: weir.toml has no equivalent",
        ],
    ),
    (
        "option http-server-close",
        &["+ limits = { idle_servers = 0 }"],
    ),
    ("option httpclose", &["+ limits = { idle_servers = 0 }"]),
];

#[test]
fn close_option_applies_if_all_referenced_backends_have_it() {
    assert_changes(
        "frontend f\n bind :80\n mode http\n use_backend c if { path /c }\n use_backend d if { \
        path /d }\nbackend c\n mode http\n option http-server-close\n server a \
        10.0.0.5:80\nbackend d\n mode http\n {}\n server a 10.0.0.6:80\nbackend e\n mode http\n \
        server a 10.0.0.7:80\n",
        CLOSE_OPTION_APPLIES_IF_ALL_REFERENCED_BACKENDS_HAVE_IT,
    );
}
