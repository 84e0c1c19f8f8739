//! Tests the reasons that are reported for lines that are not imported.

use super::{Row, assert_changes};

const RULES_OF_NAMED_DEFAULTS_ARE_IMPORTED: &[Row] = &[
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
            r#"+ [[route]] service = "f" path = "/x" status = 403"#,
            r#"+ [[route]] service = "f" header = ["X-Y: x"] status = 403"#,
            r#"+ [[route]] service = "f" path = "/w" not = { path = ["/x"] } status = 403"#,
            r#"+ [[route]] service = "f" pool = "b" set_response_header = ["X-D: d"]"#,
            "5: not imported: no rule in the section uses it",
        ],
    ),
    (
        "acl x path /y\n http-request deny if x",
        &[r#"+ [[route]] service = "f" path = "/y" status = 403"#],
    ),
    (
        "http-request deny if { path /z }",
        &[r#"+ [[route]] service = "f" path = "/z" status = 403"#],
    ),
];

#[test]
fn rules_of_named_defaults_are_imported() {
    assert_changes(
        "defaults d\n mode http\n acl x path /x\n acl y hdr(X-Y) x\n acl deny path /q\n \
        http-request deny if x\n http-request deny if y\n http-request deny if !x { path /w }\n \
        http-response set-header X-D d\nfrontend f\n bind :80\n {}\n default_backend b\nbackend \
        b\n server a 10.0.0.5:80\n",
        RULES_OF_NAMED_DEFAULTS_ARE_IMPORTED,
    );
}

const GLOBAL_LINES_WITHOUT_EQUIVALENT_HAVE_A_REASON: &[Row] = &[
    (
        "",
        &[
            "+ [pool.l]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.l]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "l""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    (
        "maxconn 9",
        &[
            "+ limits = { connections = 9 }",
            "2: the limit applies to each service, not to all services together",
        ],
    ),
    (
        "maxconn x",
        &["2 LOST: not imported: `limits.connections` is set per service"],
    ),
    (
        "maxconn",
        &["2 LOST: not imported: `limits.connections` is set per service"],
    ),
    (
        "hard-stop-after 5m",
        &["+ [node]", r#"+ drain_timeout = "5m""#],
    ),
    (
        "hard-stop-after x",
        &["2 LOST: not imported: weir.toml has no equivalent"],
    ),
    (
        "hard-stop-after 5m\n hard-stop-after 6m",
        &["+ [node]", r#"+ drain_timeout = "6m""#],
    ),
    (
        "log 127.0.0.1 local0",
        &[
            "2: not imported: `access_log` of a service writes to a file or to a local socket, \
            not to 127.0.0.1: use `access_log = \"syslog\"`, and configure the syslog daemon to \
            forward the messages",
        ],
    ),
    (
        "log-send-hostname",
        &["2: not imported: `access_log` of a service has no such setting"],
    ),
    (
        "nbproc 2",
        &["2: not imported: Weir runs one worker per CPU"],
    ),
    (
        "cpu-map 1 1",
        &["2: not imported: Weir runs one worker per CPU"],
    ),
    (
        "thread-groups 1",
        &["2: not imported: Weir runs one worker per CPU"],
    ),
    (
        "cpu-policy none",
        &["2: not imported: Weir runs one worker per CPU"],
    ),
    (
        "group x",
        &["2: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "uid 1",
        &["2: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "gid 1",
        &["2: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "daemon",
        &["2: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "pidfile /x",
        &["2: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "node x",
        &["2: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "description x",
        &["2: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "user x",
        &["2: not imported: the systemd unit controls how the process runs"],
    ),
    (
        "ssl-dh-param-file /x",
        &["2 LOST: not imported: Weir uses its own TLS defaults; see a service's `tls`"],
    ),
    (
        "ca-base /x",
        &["2 LOST: not imported: Weir uses its own TLS defaults; see a service's `tls`"],
    ),
    (
        "tune.bufsize 1",
        &["2: not imported: Weir has no such tuning parameter"],
    ),
    (
        "presetenv A b",
        &["2: not imported: each use of a variable is replaced with its value"],
    ),
    (
        "unsetenv A",
        &["2: not imported: each use of a variable is replaced with its value"],
    ),
    (
        "resetenv",
        &["2: not imported: each use of a variable is replaced with its value"],
    ),
    (
        "foo",
        &["2 LOST: not imported: weir.toml has no equivalent"],
    ),
];

#[test]
fn global_lines_without_equivalent_have_a_reason() {
    assert_changes(
        "global\n {}\nlisten l\n mode http\n bind :80\n server a 10.0.0.5:80\n",
        GLOBAL_LINES_WITHOUT_EQUIVALENT_HAVE_A_REASON,
    );
}

const LINES_WITHOUT_EQUIVALENT_HAVE_A_REASON: &[Row] = &[
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
        "log-steps x",
        &["4: not imported: `access_log` of a service has no such setting"],
    ),
    (
        "option httpslog",
        &[
            "4: not imported: the default format is used; `format` of a service's `access_log` \
            accepts a template",
        ],
    ),
    (
        "option dontlog-normal",
        &["4: not imported: `access_log` of a service has no such setting; see its `sample`"],
    ),
    (
        "option log-health-checks",
        &["4: not imported: `access_log` of a service has no such setting; see its `sample`"],
    ),
    (
        "option log-separate-errors",
        &["4: not imported: `access_log` of a service has no such setting; see its `sample`"],
    ),
    (
        "no log-separate-errors",
        &["4 LOST: not imported: `access_log` of a service has no such setting; see its `sample`"],
    ),
    (
        "option splice-auto",
        &["4: not imported: Weir has no setting for this"],
    ),
    (
        "option http-no-delay",
        &["4: not imported: Weir has no setting for this"],
    ),
    (
        "option http-tunnel",
        &["4 LOST: not imported: Weir has no setting for this"],
    ),
    (
        "option tcp-smart-accept",
        &["4: not imported: Weir has no setting for this"],
    ),
    (
        "option tcp-smart-connect",
        &["4: not imported: Weir has no setting for this"],
    ),
    (
        "option clitcpka",
        &["4: not imported: Weir has no setting for this"],
    ),
    (
        "option srvtcpka",
        &["4: not imported: Weir has no setting for this"],
    ),
    (
        "option tcpka",
        &["4: not imported: Weir has no setting for this"],
    ),
    (
        "option prefer-last-server",
        &["4: not imported: Weir has no setting for this"],
    ),
    (
        "option http-keep-alive",
        &["4: not imported: Weir always keeps connections alive"],
    ),
    (
        "no option http-keep-alive",
        &["4: not imported: the option is off in Weir too"],
    ),
    (
        "no option foo",
        &["4: not imported: the option is off in Weir too"],
    ),
    (
        "http-reuse always",
        &["4: not imported: Weir has no setting for this"],
    ),
    (
        "backlog 9",
        &["4: not imported: Weir has no setting for this"],
    ),
    (
        "max-keep-alive-queue 9",
        &["4: not imported: Weir has no setting for this"],
    ),
    (
        "tune.x 9",
        &["4: not imported: weir.toml has no equivalent"],
    ),
    (
        "tcp-response content accept",
        &["4 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`"],
    ),
    (
        "rspidel x",
        &[
            "4 LOST: not imported: a route cannot do this; see `set_response_header`, \
            `remove_response_header`",
        ],
    ),
    (
        "rspdel x",
        &[
            "4 LOST: not imported: a route cannot do this; see `set_response_header`, \
            `remove_response_header`",
        ],
    ),
    (
        "reqadd x",
        &[
            "4 LOST: not imported: a route cannot do this; see `rewrite`, `set_header`, \
            `remove_header`",
        ],
    ),
    (
        "reqidel x",
        &[
            "4 LOST: not imported: a route cannot do this; see `rewrite`, `set_header`, \
            `remove_header`",
        ],
    ),
    (
        "reqirep a b",
        &[
            "4 LOST: not imported: a route cannot do this; see `rewrite`, `set_header`, \
            `remove_header`",
        ],
    ),
    (
        "reqdel x",
        &[
            "4 LOST: not imported: a route cannot do this; see `rewrite`, `set_header`, \
            `remove_header`",
        ],
    ),
    (
        "hash-balance-factor 125",
        &[
            "4 LOST: not imported: the `hash` scheduler is always consistent and uses a \
            different hash function",
        ],
    ),
    (
        "hash-preserve-affinity always",
        &[
            "4 LOST: not imported: the `hash` scheduler is always consistent and uses a \
            different hash function",
        ],
    ),
    (
        "hash-type consistent",
        &[
            "4 LOST: not imported: the `hash` scheduler is always consistent and uses a \
            different hash function",
        ],
    ),
    (
        "id 9",
        &["4: not imported: it has no effect on clients and servers"],
    ),
    (
        "guid x",
        &["4: not imported: it has no effect on clients and servers"],
    ),
    (
        "tcp-check connect",
        &["4 LOST: not imported: no check of the section uses it"],
    ),
    (
        "http-check connect",
        &["4 LOST: not imported: no check of the section uses it"],
    ),
    (
        "external-check command /x",
        &["4: not imported: no check of the section uses it"],
    ),
    (
        "use_backend none",
        &["4 LOST: not imported: the backend `none` is not defined"],
    ),
    (
        "errorloc 503 {x}",
        &[
            "4 LOST: not imported: a service's `error_pages` accepts only absolute file paths \
            and fixed URLs, one per status",
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
        "timeout client-fin 1s",
        &[
            "4: not imported: an http service's `timeouts.client` and `timeouts.server` apply \
            until the response ends",
        ],
    ),
    (
        "timeout tarpit 1s",
        &["4: not imported: no rule delays a response"],
    ),
    (
        "timeout server-fin 1s",
        &[
            "4: not imported: an http service's `timeouts.client` and `timeouts.server` apply \
            until the response ends",
        ],
    ),
    (
        "compression offload",
        &["4: not imported: it has no effect without `compression algo`"],
    ),
    (
        "compression type x",
        &["4: not imported: it has no effect without `compression algo`"],
    ),
    (
        "filter compression",
        &["4: not imported: on its own, it has no effect on clients"],
    ),
    (
        "filter trace",
        &["4: not imported: on its own, it has no effect on clients"],
    ),
    (
        "filter spoe",
        &["4 LOST: not imported: Weir has neither filters nor a cache"],
    ),
    (
        "stick-table type ip size 1m",
        &["4: not imported: no rule uses the table"],
    ),
    (
        "http-request track-sc0 src",
        &["4: not imported: no rule uses the counters"],
    ),
    (
        "acl x path /x",
        &["4: not imported: no rule in the section uses it"],
    ),
    (
        "acl x path /x\n http-request foo if x",
        &[
            "4: not imported: no rule that uses it is imported",
            "5 LOST: not imported: a route cannot do this; see `rewrite`, `set_header`, \
            `remove_header`",
        ],
    ),
    (
        "acl x path /x\n http-request deny if x",
        &[r#"+ [[route]] service = "f" path = "/x" status = 403"#],
    ),
    (
        "foo",
        &["4 LOST: not imported: weir.toml has no equivalent"],
    ),
];

#[test]
fn lines_without_equivalent_have_a_reason() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n {}\n default_backend b\nbackend b\n mode http\n \
        server a 10.0.0.5:80\n",
        LINES_WITHOUT_EQUIVALENT_HAVE_A_REASON,
    );
}

const LINES_OF_BACKENDS_WITHOUT_EQUIVALENT_HAVE_A_REASON: &[Row] = &[
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
        "use_backend x",
        &["7 LOST: not imported: the section has no bind to which it applies"],
    ),
    (
        "default_backend x",
        &["7 LOST: not imported: the section has no bind to which it applies"],
    ),
    (
        "http-check expect status 200",
        &[
            "7: not imported: haproxy ignores it, because the checks of the section do not use \
            HTTP",
        ],
    ),
    (
        "tcp-check connect",
        &["7 LOST: not imported: no check of the section uses it"],
    ),
    (
        "external-check command /x",
        &["7: not imported: no check of the section uses it"],
    ),
    (
        "http-request set-header X-A b",
        &[r#"+ [[route]] service = "f" pool = "b" set_header = ["X-A: b"]"#],
    ),
    (
        "http-request replace-path /a /b",
        &[
            r#"+ [[route]] service = "f" path_regex = "/a" pool = "b" rewrite = "/b""#,
            r#"+ [[route]] service = "f" pool = "b""#,
        ],
    ),
    (
        "redirect location /x",
        &[r#"+ [[route]] service = "f" redirect = "/x""#],
    ),
    (
        "bind :81",
        &["7 LOST: not imported: weir.toml has no equivalent"],
    ),
    (
        "mode health",
        &["7 LOST: not imported: weir.toml has no equivalent"],
    ),
    (
        "mode health http",
        &["7 LOST: not imported: weir.toml has no equivalent"],
    ),
    (
        "foo tcp",
        &["7 LOST: not imported: weir.toml has no equivalent"],
    ),
    (
        "foo http",
        &["7 LOST: not imported: weir.toml has no equivalent"],
    ),
];

#[test]
fn lines_of_backends_without_equivalent_have_a_reason() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n default_backend b\nbackend b\n mode http\n {}\n \
        server a 10.0.0.5:80\n",
        LINES_OF_BACKENDS_WITHOUT_EQUIVALENT_HAVE_A_REASON,
    );
}

const EDITS_OF_UNUSED_BACKENDS_HAVE_A_REASON: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "3 LOST: not imported: it never applies to a client",
        ],
    ),
    (
        "frontend f\n mode http\n bind :80\n redirect location /x\n",
        &[
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
            r#"+ [[route]] service = "f" redirect = "/x""#,
        ],
    ),
];

#[test]
fn edits_of_unused_backends_have_a_reason() {
    assert_changes(
        "{}backend b\n mode http\n http-request set-header X-A b\n server a 10.0.0.5:80\n",
        EDITS_OF_UNUSED_BACKENDS_HAVE_A_REASON,
    );
}

const HTTP_LINES_IN_MODE_TCP_ARE_IMPORTED_OR_HAVE_A_REASON: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "tcp""#,
            r#"+ pool = "b""#,
        ],
    ),
    (
        "option forwardfor",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "option forwarded",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "option originalto",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "option http-server-close",
        &["+ limits = { idle_servers = 0 }"],
    ),
    (
        "option httpclose",
        &[
            "+ limits = { idle_servers = 0 }",
            "3: server connections close after each request; client connections stay open",
        ],
    ),
    (
        "option forceclose",
        &[
            "+ limits = { idle_servers = 0 }",
            "3: server connections close after each request; client connections stay open",
        ],
    ),
    (
        "option http-buffer-request",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "option http-keep-alive",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "option tcpka",
        &["3: not imported: Weir has no setting for this"],
    ),
    (
        "timeout http-request 1s",
        &[r#"+ timeouts = { request = "1s" }"#],
    ),
    (
        "timeout http-keep-alive 1s",
        &[r#"+ timeouts = { idle = "1s" }"#],
    ),
    (
        "timeout client-fin 1s",
        &[
            "3 LOST: not imported: a service's `timeouts` has no such key, or the service gets \
            it from another pool",
        ],
    ),
    (
        "errorfile 503 /x",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "http-response set-header X-A b",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "http-after-response set-header X-A b",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "cookie X",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "compression algo gzip",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "monitor-uri /x",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "http-request set-header X-A b",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "http-request deny if { path /x }",
        &["3 OPEN: not imported: a tcp service cannot redirect or send responses"],
    ),
];

#[test]
fn http_lines_in_mode_tcp_are_imported_or_have_a_reason() {
    assert_changes(
        "frontend f\n bind :80\n {}\n default_backend b\nbackend b\n server a 10.0.0.5:80\n",
        HTTP_LINES_IN_MODE_TCP_ARE_IMPORTED_OR_HAVE_A_REASON,
    );
}
