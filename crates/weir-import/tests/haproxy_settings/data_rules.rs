//! Tests rules that wait for data, HTTP rules without a route, `http-request auth`, and email alerts.

use super::{Row, assert_changes};

const TCP_REQUEST_RULES_ARE_CONVERTED_OR_REPORTED: &[Row] = &[
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
        "tcp-request inspect-delay 5s",
        &["3: Weir waits for the server name or the request up to `timeouts.request`"],
    ),
    (
        "tcp-request content accept if { req.ssl_hello_type 1 }",
        &["3: Weir waits for the server name or the request automatically"],
    ),
    (
        "tcp-request content accept if { req_ssl_hello_type 1 }",
        &["3: Weir waits for the server name or the request automatically"],
    ),
    (
        "tcp-request content accept if { req.len gt 0 }",
        &["3: Weir waits for the server name or the request automatically"],
    ),
    (
        "tcp-request content accept if { req.ssl_sni -m found }",
        &["3: Weir waits for the server name or the request automatically"],
    ),
    (
        "tcp-request content accept if { req.ssl_sni }",
        &["3: Weir waits for the server name or the request automatically"],
    ),
    (
        "tcp-request content accept if { req.ssl_sni x.example }",
        &[],
    ),
    ("tcp-request content accept if { req.len gt 9 }", &[]),
    (
        "tcp-request content accept if WAIT_END",
        &["3: Weir waits for the server name or the request automatically"],
    ),
    (
        "tcp-request content accept if HTTP",
        &["3: Weir waits for the server name or the request automatically"],
    ),
    (
        "tcp-request content accept if { req.ssl_hello_type 1 } or HTTP",
        &["3: Weir waits for the server name or the request automatically"],
    ),
    (
        "tcp-request content accept if { req.ssl_hello_type 1 } || HTTP",
        &["3: Weir waits for the server name or the request automatically"],
    ),
    ("tcp-request content accept if { src 10.0.0.0/8 }", &[]),
    ("tcp-request content accept if", &[]),
    ("tcp-request content accept", &[]),
    (
        "tcp-request content reject if !{ req.ssl_hello_type 1 }",
        &[
            "3 OPEN: not imported: Weir forwards connections without such data to the service's \
            pool",
        ],
    ),
    (
        "tcp-request content reject unless { req.ssl_hello_type 1 }",
        &[
            "3 OPEN: not imported: Weir forwards connections without such data to the service's \
            pool",
        ],
    ),
    (
        "tcp-request content reject if { req.ssl_hello_type 1 }",
        &[
            r#"+ [[route]] service = "f" close = true"#,
            "3 OPEN: not imported: routes cannot match req.ssl_hello_type; the route rejects \
            more requests than the rule",
        ],
    ),
    (
        "tcp-request content reject if ! { req.ssl_hello_type 1 }",
        &[
            "3 OPEN: not imported: Weir forwards connections without such data to the service's \
            pool",
        ],
    ),
    (
        "tcp-request content reject unless HTTP",
        &[
            "3 OPEN: not imported: Weir forwards connections without such data to the service's \
            pool",
        ],
    ),
    (
        "tcp-request content reject if !HTTP",
        &[
            "3 OPEN: not imported: Weir forwards connections without such data to the service's \
            pool",
        ],
    ),
    (
        "tcp-request content reject",
        &[r#"+ [[route]] service = "f" close = true"#],
    ),
    (
        "tcp-request content accept if HTTP\n tcp-request content reject",
        &[
            "3: Weir waits for the server name or the request automatically",
            "4 OPEN: not imported: Weir forwards connections without such data to the service's \
            pool",
        ],
    ),
    (
        "tcp-request content accept if { src 10.0.0.0/8 }\n tcp-request content reject",
        &[r#"+ [[route]] service = "f" not = { source = ["10.0.0.0/8"] } close = true"#],
    ),
    (
        "tcp-request content accept if HTTP\n tcp-request content accept if { src 10.0.0.0/8 }\n \
        tcp-request content reject",
        &[
            r#"+ [[route]] service = "f" not = { source = ["10.0.0.0/8"] } close = true"#,
            "3: Weir waits for the server name or the request automatically",
        ],
    ),
    (
        "tcp-request connection accept if { src 10.0.0.0/8 }\n tcp-request connection reject",
        &[r#"+ [[route]] service = "f" not = { source = ["10.0.0.0/8"] } close = true"#],
    ),
    (
        "tcp-request connection accept if { src 10.0.0.0/8 }\n tcp-request content reject if { \
        src 10.1.0.0/16 }",
        &[r#"+ [[route]] service = "f" source = ["10.1.0.0/16"] close = true"#],
    ),
    (
        "tcp-request connection accept if { src 10.0.0.0/8 }\n tcp-request connection reject if \
        { src 10.1.0.0/16 }",
        &[
            "+ [[route]] service = \"f\" source = [\"10.1.0.0/16\"] not = { source = \
            [\"10.0.0.0/8\"] } close = true",
        ],
    ),
    (
        "tcp-request session accept if { src 10.0.0.0/8 }\n tcp-request content reject if { src \
        10.1.0.0/16 }",
        &[r#"+ [[route]] service = "f" source = ["10.1.0.0/16"] close = true"#],
    ),
    (
        "tcp-request content reject if { req.proto_http }",
        &[
            r#"+ [[route]] service = "f" close = true"#,
            "3 OPEN: not imported: routes cannot match req.proto_http; the route rejects more \
            requests than the rule",
        ],
    ),
    (
        "tcp-request content accept if { req.payload(0,1) -m found }",
        &[],
    ),
    (
        "tcp-request content accept if HTTP\n tcp-request content reject if { src 10.0.0.0/8 }",
        &[
            r#"+ [[route]] service = "f" source = ["10.0.0.0/8"] close = true"#,
            "3: Weir waits for the server name or the request automatically",
        ],
    ),
];

#[test]
fn tcp_request_rules_are_converted_or_reported() {
    assert_changes(
        "frontend f\n bind :80\n {}\n default_backend b\nbackend b\n server a 10.0.0.5:80\n",
        TCP_REQUEST_RULES_ARE_CONVERTED_OR_REPORTED,
    );
}

const DATA_RULES_WITHOUT_DEFAULT_BACKEND_CLOSE_CONNECTIONS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.no-servers]",
            "+ servers = []",
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "tcp""#,
            r#"+ pool = "no-servers""#,
            r#"+ [[route]] service = "f" host = "x.example" pool = "b""#,
        ],
    ),
    (
        "tcp-request content reject if !{ req.ssl_hello_type 1 }",
        &["3: Weir closes connections that no route matches"],
    ),
    (
        "tcp-request content accept if HTTP\n tcp-request content reject",
        &[
            "3: Weir waits for the server name or the request automatically",
            "4: Weir closes connections that no route matches",
        ],
    ),
    (
        "tcp-request content reject",
        &[
            r#"- [[route]] service = "f" host = "x.example" pool = "b""#,
            r#"+ [[route]] service = "f" close = true"#,
            "4: not imported: no request reaches it, because line 3 already matches the same \
            requests",
        ],
    ),
    (
        "mode http\n tcp-request content reject if !HTTP",
        &[
            r#"- protocol = "tcp""#,
            r#"+ protocol = "http""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "f" status = 503"#,
            "4 OPEN: not imported: Weir forwards connections without such data to the service's \
            pool",
        ],
    ),
];

#[test]
fn data_rules_without_default_backend_close_connections() {
    assert_changes(
        "frontend f\n bind :80\n {}\n use_backend b if { req.ssl_sni x.example }\nbackend b\n \
        server a 10.0.0.5:80\n",
        DATA_RULES_WITHOUT_DEFAULT_BACKEND_CLOSE_CONNECTIONS,
    );
}

const DATA_RULES_OF_A_LISTEN_SECTION_ARE_REPORTED: &[Row] = &[
    (
        "",
        &[
            "+ [pool.l]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.l]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "tcp""#,
            r#"+ pool = "l""#,
        ],
    ),
    (
        "tcp-request content reject if !HTTP",
        &[
            "3 OPEN: not imported: Weir forwards connections without such data to the service's \
            pool",
        ],
    ),
    (
        "tcp-request content accept if HTTP\n tcp-request content reject",
        &[
            "3: Weir waits for the server name or the request automatically",
            "4 OPEN: not imported: Weir forwards connections without such data to the service's \
            pool",
        ],
    ),
];

#[test]
fn data_rules_of_a_listen_section_are_reported() {
    assert_changes(
        "listen l\n bind :80\n {}\n server a 10.0.0.5:80\n",
        DATA_RULES_OF_A_LISTEN_SECTION_ARE_REPORTED,
    );
}

const HTTP_RULES_ARE_CONVERTED_OR_REPORTED: &[Row] = &[
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
        "http-request wait-for-body time 1s",
        &[
            "4: with a service's `request_buffering`, Weir reads the body before it selects a \
            server",
        ],
    ),
    (
        "http-request wait-for-handshake",
        &[
            "4 OPEN: not imported: a route cannot do this; see `rewrite`, `set_header`, \
            `remove_header`",
        ],
    ),
    (
        "http-request use-service prometheus-exporter if { path /metrics }",
        &["4: Weir's /metrics exports the same data for Prometheus"],
    ),
    (
        "http-request use-service lua.x",
        &[
            "4 LOST: not imported: a route cannot do this; see `rewrite`, `set_header`, \
            `remove_header`",
        ],
    ),
    (
        "http-request allow if HTTP",
        &[
            "4 LOST: not imported: a route cannot do this; see `rewrite`, `set_header`, \
            `remove_header`",
        ],
    ),
    ("http-request allow if { path /x }", &[]),
    ("http-request allow", &[]),
    (
        "http-request allow if { path /x }\n http-request deny if { path_beg /x }",
        &[r#"+ [[route]] service = "f" path = "/x*" not = { path = ["/x"] } status = 403"#],
    ),
    (
        "http-request allow if { path /x }\n tcp-request content reject if { src 10.0.0.0/8 }",
        &[r#"+ [[route]] service = "f" source = ["10.0.0.0/8"] close = true"#],
    ),
];

#[test]
fn http_rules_are_converted_or_reported() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n {}\n default_backend b\nbackend b\n mode http\n \
        server a 10.0.0.5:80\n",
        HTTP_RULES_ARE_CONVERTED_OR_REPORTED,
    );
}

const USERLISTS_BECOME_BASIC_AUTH: &[Row] = &[
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
        "http-request auth if !{ http_auth(u) }",
        &[
            "+ [[route]] service = \"f\" pool = \"b\" basic_auth = { users = [\"a:$5$x$y\", \
            \"b:$5$rounds=5000$MTpJLRpJLRpJ$ucLAOyz83IZi7xpuR3Ue/3Wy/d.LUzIBWGWdH5Z7ll8\"] }",
            "4: not imported: `basic_auth` does not support the hash; the user gets status 401",
        ],
    ),
    (
        "http-request auth unless { http_auth(u) }",
        &[
            "+ [[route]] service = \"f\" pool = \"b\" basic_auth = { users = [\"a:$5$x$y\", \
            \"b:$5$rounds=5000$MTpJLRpJLRpJ$ucLAOyz83IZi7xpuR3Ue/3Wy/d.LUzIBWGWdH5Z7ll8\"] }",
            "4: not imported: `basic_auth` does not support the hash; the user gets status 401",
        ],
    ),
    (
        "http-request auth realm Shop unless { http_auth(u) }",
        &[
            "+ [[route]] service = \"f\" pool = \"b\" basic_auth = { users = [\"a:$5$x$y\", \
            \"b:$5$rounds=5000$MTpJLRpJLRpJ$ucLAOyz83IZi7xpuR3Ue/3Wy/d.LUzIBWGWdH5Z7ll8\"], \
            realm = \"Shop\" }",
            "4: not imported: `basic_auth` does not support the hash; the user gets status 401",
        ],
    ),
    (
        "http-request auth realm Shop if { path_beg /x } !{ http_auth(u) }",
        &[
            "+ [[route]] service = \"f\" path = \"/x*\" pool = \"b\" basic_auth = { users = \
            [\"a:$5$x$y\", \
            \"b:$5$rounds=5000$MTpJLRpJLRpJ$ucLAOyz83IZi7xpuR3Ue/3Wy/d.LUzIBWGWdH5Z7ll8\"], \
            realm = \"Shop\" }",
            r#"+ [[route]] service = "f" pool = "b""#,
            "4: not imported: `basic_auth` does not support the hash; the user gets status 401",
        ],
    ),
    (
        "http-request auth unless { http_auth(none) }",
        &[
            r#"+ [[route]] service = "f" status = 401"#,
            "8 OPEN: not imported: routes cannot match user names and passwords; see \
            `basic_auth`; the route rejects more requests than the rule",
            "8 OPEN: not imported: Weir responds with status 401 instead; write the users to a \
            file and set the route's `basic_auth`",
        ],
    ),
    (
        "http-request auth if { http_auth(u) }",
        &[
            r#"+ [[route]] service = "f" status = 401"#,
            "8 OPEN: not imported: routes cannot match user names and passwords; see \
            `basic_auth`; the route rejects more requests than the rule",
            "8 OPEN: not imported: Weir responds with status 401 instead; write the users to a \
            file and set the route's `basic_auth`",
        ],
    ),
    (
        "http-request auth",
        &[
            r#"+ [[route]] service = "f" status = 401"#,
            "8 OPEN: not imported: Weir responds with status 401 instead; write the users to a \
            file and set the route's `basic_auth`",
        ],
    ),
    (
        "http-request auth if { path /x }",
        &[
            r#"+ [[route]] service = "f" path = "/x" status = 401"#,
            "8 OPEN: not imported: Weir responds with status 401 instead; write the users to a \
            file and set the route's `basic_auth`",
        ],
    ),
    (
        "acl ok http_auth(u)\n http-request auth unless ok",
        &[
            "+ [[route]] service = \"f\" pool = \"b\" basic_auth = { users = [\"a:$5$x$y\", \
            \"b:$5$rounds=5000$MTpJLRpJLRpJ$ucLAOyz83IZi7xpuR3Ue/3Wy/d.LUzIBWGWdH5Z7ll8\"] }",
            "4: not imported: `basic_auth` does not support the hash; the user gets status 401",
        ],
    ),
    (
        "http-request auth if { rand(9) 1 } !{ http_auth(u) }",
        &[
            "+ [[route]] service = \"f\" pool = \"b\" basic_auth = { users = [\"a:$5$x$y\", \
            \"b:$5$rounds=5000$MTpJLRpJLRpJ$ucLAOyz83IZi7xpuR3Ue/3Wy/d.LUzIBWGWdH5Z7ll8\"] }",
            "4: not imported: `basic_auth` does not support the hash; the user gets status 401",
            "8 OPEN: not imported: routes cannot match rand(9); the route requires a password \
            for more requests than the rule",
        ],
    ),
    (
        "http-request auth unless { http_auth_group(u) g }",
        &[
            r#"+ [[route]] service = "f" status = 401"#,
            "8 OPEN: not imported: routes cannot match user names and passwords; see \
            `basic_auth`; the route rejects more requests than the rule",
            "8 OPEN: not imported: Weir responds with status 401 instead; write the users to a \
            file and set the route's `basic_auth`",
        ],
    ),
];

#[test]
fn userlists_become_basic_auth() {
    assert_changes(
        "userlist u\n user a password $5$x$y\n user b insecure-password b\n user c password \
        $1$x\nfrontend f\n mode http\n bind :80\n {}\n default_backend b\nbackend b\n mode \
        http\n server a 10.0.0.5:80\n",
        USERLISTS_BECOME_BASIC_AUTH,
    );
}

const EMAIL_ALERTS_BECOME_NOTIFY_SETTINGS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "2: not imported: no backend uses this mailer",
        ],
    ),
    (
        "email-alert mailers m\n email-alert to c@d.example",
        &[
            "+ [notify.mail]",
            r#"+ pools = ["b"]"#,
            r#"+ mail = ["c@d.example"]"#,
            r#"+ mail_server = "192.0.2.1:25""#,
        ],
    ),
    (
        "email-alert mailers m\n email-alert to c@d.example\n email-alert from a@b.example",
        &[
            "+ [notify.mail]",
            r#"+ pools = ["b"]"#,
            r#"+ mail = ["c@d.example"]"#,
            r#"+ mail_from = "a@b.example""#,
            r#"+ mail_server = "192.0.2.1:25""#,
        ],
    ),
    (
        "email-alert mailers m",
        &["4: not imported: `[notify]` has no such setting, or the backend has no recipient"],
    ),
    (
        "email-alert to c@d.example",
        &["4: not imported: `[notify]` has no such setting, or the backend has no recipient"],
    ),
    (
        "email-alert mailers none\n email-alert to c@d.example",
        &[
            "4: not imported: there is no mailers section none",
            "5: not imported: `[notify]` has no such setting, or the backend has no recipient",
        ],
    ),
    (
        "email-alert mailers m\n email-alert to",
        &[
            "4: not imported: `[notify]` has no such setting, or the backend has no recipient",
            "5: not imported: `[notify]` has no such setting, or the backend has no recipient",
        ],
    ),
    (
        "email-alert mailers m\n email-alert to c@d.example\n email-alert level alert",
        &[
            "+ [notify.mail]",
            r#"+ pools = ["b"]"#,
            r#"+ mail = ["c@d.example"]"#,
            r#"+ mail_server = "192.0.2.1:25""#,
            "6: not imported: `[notify]` has no such setting, or the backend has no recipient",
        ],
    ),
];

#[test]
fn email_alerts_become_notify_settings() {
    assert_changes(
        "mailers m\n mailer x 192.0.2.1:25\nbackend b\n {}\n server a 10.0.0.5:80 check\n",
        EMAIL_ALERTS_BECOME_NOTIFY_SETTINGS,
    );
}
