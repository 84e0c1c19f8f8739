//! Rules of frontends and backends.

use super::{Row, assert_changes};

const RULES_OF_BACKENDS_BECOME_ROUTES: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.c]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "f" path = "/c*" pool = "c""#,
        ],
    ),
    (
        "http-request deny if { path /c/x }",
        &[r#"+ [[route]] service = "f" path = "/c*" path_regex = "^/c/x$" status = 403"#],
    ),
    (
        "http-request set-header X-A b",
        &[
            r#"- [[route]] service = "f" path = "/c*" pool = "c""#,
            r#"+ [[route]] service = "f" path = "/c*" pool = "c" set_header = ["X-A: b"]"#,
        ],
    ),
    (
        "http-request deny if { path /d }",
        &[r#"+ [[route]] service = "f" path = "/c*" path_regex = "^/d$" status = 403"#],
    ),
    (
        "acl x path /c/x\n http-request deny if x",
        &[r#"+ [[route]] service = "f" path = "/c*" path_regex = "^/c/x$" status = 403"#],
    ),
    (
        "acl x path /c/x\n http-request foo if x",
        &[
            "11: not imported: no rule that uses it is imported",
            "12 LOST: not imported: a route cannot do this; see `rewrite`, `set_header`, \
            `remove_header`",
        ],
    ),
    (
        "http-request redirect location /y if { path /c/x }",
        &[r#"+ [[route]] service = "f" path = "/c*" path_regex = "^/c/x$" redirect = "/y""#],
    ),
    (
        "use-server a if { path /c/x }",
        &[
            "+ [[route]] service = \"f\" path = \"/c*\" path_regex = \"^/c/x$\" pool = \"c\" \
            server = \"10.0.0.6:80\"",
        ],
    ),
];

#[test]
fn rules_of_backends_become_routes() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n use_backend c if { path_beg /c }\n default_backend \
        b\nbackend b\n mode http\n server a 10.0.0.5:80\nbackend c\n mode http\n {}\n server a \
        10.0.0.6:80\n",
        RULES_OF_BACKENDS_BECOME_ROUTES,
    );
}

const RULES_OF_THE_DEFAULT_BACKEND_BECOME_ROUTES: &[Row] = &[
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
            r#"+ [[route]] service = "f" pool = "b" set_response_header = ["X-F: f"]"#,
        ],
    ),
    (
        "http-request deny if { path /c/x }",
        &[r#"+ [[route]] service = "f" path = "/c/x" status = 403"#],
    ),
    (
        "http-request set-header X-A b",
        &[
            r#"- [[route]] service = "f" pool = "b" set_response_header = ["X-F: f"]"#,
            "+ [[route]] service = \"f\" pool = \"b\" set_header = [\"X-A: b\"] \
            set_response_header = [\"X-F: f\"]",
        ],
    ),
    (
        "http-response set-header X-B b",
        &[
            r#"- [[route]] service = "f" pool = "b" set_response_header = ["X-F: f"]"#,
            r#"+ [[route]] service = "f" pool = "b" set_response_header = ["X-B: b", "X-F: f"]"#,
        ],
    ),
    (
        "http-request return status 200 if { path /x }\n http-response set-header X-B b",
        &[
            r#"- [[route]] service = "f" pool = "b" set_response_header = ["X-F: f"]"#,
            r#"+ [[route]] service = "f" path = "/x" status = 200"#,
            r#"+ [[route]] service = "f" pool = "b" set_response_header = ["X-B: b", "X-F: f"]"#,
        ],
    ),
    (
        "http-after-response set-header X-B b",
        &[
            r#"- [[route]] service = "f" pool = "b" set_response_header = ["X-F: f"]"#,
            r#"+ [[route]] service = "f" pool = "b" set_response_header = ["X-F: f", "X-B: b"]"#,
            "8 LOST: Weir changes the responses of servers and routes, but not its errors (400, \
            401, 408, 429, 502, 503, 504 and others)",
        ],
    ),
    (
        "http-after-response del-header X-B",
        &[
            r#"- [[route]] service = "f" pool = "b" set_response_header = ["X-F: f"]"#,
            "+ [[route]] service = \"f\" pool = \"b\" set_response_header = [\"X-F: f\"] \
            remove_response_header = [\"X-B\"]",
        ],
    ),
    (
        "http-after-response del-header Allow",
        &[
            r#"- [[route]] service = "f" pool = "b" set_response_header = ["X-F: f"]"#,
            "+ [[route]] service = \"f\" pool = \"b\" set_response_header = [\"X-F: f\"] \
            remove_response_header = [\"Allow\"]",
            "8 LOST: Weir changes the responses of servers and routes, but not its errors (400, \
            401, 408, 429, 502, 503, 504 and others)",
        ],
    ),
    (
        "http-after-response set-header Location /x",
        &["8 LOST: not imported: Weir sets this field in its own responses"],
    ),
    (
        "http-after-response del-header location",
        &["8 LOST: not imported: Weir sets this field in its own responses"],
    ),
];

#[test]
fn rules_of_the_default_backend_become_routes() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n http-response set-header X-F f\n default_backend \
        b\nbackend b\n mode http\n {}\n server a 10.0.0.5:80\n",
        RULES_OF_THE_DEFAULT_BACKEND_BECOME_ROUTES,
    );
}

const RULES_OF_A_LISTEN_SECTION_BECOME_ROUTES: &[Row] = &[
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
        "http-request add-header X-A b",
        &[r#"+ [[route]] service = "l" pool = "l" add_header = ["X-A: b"]"#],
    ),
    (
        "http-response add-header X-A b",
        &[r#"+ [[route]] service = "l" pool = "l" add_response_header = ["X-A: b"]"#],
    ),
    (
        "http-response set-header Location /x",
        &[r#"+ [[route]] service = "l" pool = "l" set_response_header = ["Location: /x"]"#],
    ),
    (
        "http-request deny if { path /x }",
        &[r#"+ [[route]] service = "l" path = "/x" status = 403"#],
    ),
    (
        "http-request set-header X-A b",
        &[r#"+ [[route]] service = "l" pool = "l" set_header = ["X-A: b"]"#],
    ),
    (
        "use-server a if { path /x }",
        &[
            r#"+ [[route]] service = "l" path = "/x" pool = "l" server = "10.0.0.5:80""#,
            r#"+ [[route]] service = "l" pool = "l""#,
        ],
    ),
    (
        "use_backend l if { path /x }",
        &[r#"+ [[route]] service = "l" path = "/x" pool = "l""#],
    ),
    (
        "http-request allow if { path /x }\n http-request deny if { path_beg /x }",
        &[r#"+ [[route]] service = "l" path = "/x*" not = { path = ["/x"] } status = 403"#],
    ),
    (
        "tcp-request content accept if { src 10.0.0.0/8 }\n http-request deny if { path_beg /x }",
        &[r#"+ [[route]] service = "l" path = "/x*" status = 403"#],
    ),
    (
        "http-request tarpit if { path /x }",
        &[
            r#"+ [[route]] service = "l" path = "/x" status = 500"#,
            "4 LOST: the delay is not imported: a route has no `tarpit` and responds immediately",
        ],
    ),
    ("http-request tarpit if FALSE", &[]),
    (
        "http-request tarpit if { rand(9) 1 }",
        &[
            r#"+ [[route]] service = "l" status = 500"#,
            "4 OPEN: not imported: routes cannot match rand(9); the route rejects more requests \
            than the rule",
            "4 OPEN: the delay is not imported: a route has no `tarpit` and responds immediately",
        ],
    ),
    (
        "http-request deny if { rand(9) 1 }",
        &[
            r#"+ [[route]] service = "l" status = 403"#,
            "4 OPEN: not imported: routes cannot match rand(9); the route rejects more requests \
            than the rule",
        ],
    ),
    (
        "http-request redirect location /y if { rand(9) 1 }",
        &["4 LOST: not imported: routes cannot match rand(9)"],
    ),
    (
        "http-request deny if { sc0_conn_rate gt 9 }",
        &[
            "4 OPEN: not imported: routes cannot match sc0_conn_rate; clients above the limit \
            are admitted (see `limits`)",
        ],
    ),
    (
        "http-request deny if { sc0_conn_rate gt 9 } { path /x }",
        &[
            "4 OPEN: not imported: routes cannot match sc0_conn_rate; clients above the limit \
            are admitted (see `limits`)",
        ],
    ),
    (
        "http-request deny if !{ sc0_conn_rate gt 9 } { path /x }",
        &[
            r#"+ [[route]] service = "l" path = "/x" status = 403"#,
            "4 OPEN: not imported: routes cannot match sc0_conn_rate; every client is treated as \
            if it had sent no earlier requests",
        ],
    ),
    (
        "http-request redirect location /y drop-query if { path /x }",
        &[r#"+ [[route]] service = "l" path = "/x" redirect = "/y""#],
    ),
    (
        "http-request redirect prefix /y drop-query if { path_reg ^/(a|b) }",
        &[
            "4 LOST: not imported: a route's `redirect` cannot drop the query, because no \
            capture group can be added to the condition's regular expression",
        ],
    ),
    (
        "http-request return status 399 if { rand(9) 1 }",
        &["4 LOST: not imported: routes cannot match rand(9)"],
    ),
    (
        "http-request return status 200 if { rand(9) 1 }",
        &["4 LOST: not imported: routes cannot match rand(9)"],
    ),
    (
        "http-request return status 400 if { rand(9) 1 }",
        &[
            r#"+ [[route]] service = "l" status = 400"#,
            "4 LOST: not imported: routes cannot match rand(9); the route rejects more requests \
            than the rule",
        ],
    ),
    (
        "tcp-request connection reject if { rand(9) 1 }",
        &[
            r#"+ [[route]] service = "l" close = true"#,
            "4 OPEN: not imported: routes cannot match rand(9); the route rejects more requests \
            than the rule",
        ],
    ),
    (
        "http-request auth if { path /x }",
        &[
            r#"+ [[route]] service = "l" path = "/x" status = 401"#,
            "4 OPEN: not imported: Weir responds with status 401 instead; write the users to a \
            file and set the route's `basic_auth`",
        ],
    ),
    (
        "block if { path /x }",
        &[r#"+ [[route]] service = "l" path = "/x" status = 403"#],
    ),
    (
        "redirect location /z if { path /x }\n http-request deny if { path /x }",
        &[
            r#"+ [[route]] service = "l" path = "/x" status = 403"#,
            "4: not imported: no request reaches it, because line 5 already matches the same \
            requests",
        ],
    ),
    (
        "acl x path /x\n http-request auth if x",
        &[
            r#"+ [[route]] service = "l" path = "/x" status = 401"#,
            "5 OPEN: not imported: Weir responds with status 401 instead; write the users to a \
            file and set the route's `basic_auth`",
        ],
    ),
    (
        "http-request deny if { req.proto_http }",
        &[r#"+ [[route]] service = "l" status = 403"#],
    ),
    (
        "http-request deny if { req_proto_http }",
        &[r#"+ [[route]] service = "l" status = 403"#],
    ),
];

#[test]
fn rules_of_a_listen_section_become_routes() {
    assert_changes(
        "listen l\n mode http\n bind :80\n {}\n server a 10.0.0.5:80\n",
        RULES_OF_A_LISTEN_SECTION_BECOME_ROUTES,
    );
}

const RULES_OF_A_BACKEND_REQUIRE_THE_CONDITION_OF_ITS_ROUTE: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.c]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "f" not = { path = ["/x"] } pool = "c""#,
        ],
    ),
    (
        "http-request deny if { path /x }",
        &[r#"+ [[route]] service = "f" path = "/x" not = { path = ["/x"] } status = 403"#],
    ),
    (
        "http-request deny if { path /y }",
        &[r#"+ [[route]] service = "f" path = "/y" not = { path = ["/x"] } status = 403"#],
    ),
];

#[test]
fn rules_of_a_backend_require_the_condition_of_its_route() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n use_backend c if !{ path /x }\n default_backend \
        b\nbackend b\n mode http\n server a 10.0.0.5:80\nbackend c\n mode http\n {}\n server a \
        10.0.0.6:80\n",
        RULES_OF_A_BACKEND_REQUIRE_THE_CONDITION_OF_ITS_ROUTE,
    );
}

const RULES_THAT_NO_REQUEST_REACHES_BECOME_NO_ROUTES: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.c]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "f" path = "/c" method = ["GET"] pool = "c""#,
        ],
    ),
    ("http-request deny if { path /d }", &[]),
    ("http-request deny if { method POST }", &[]),
    (
        "http-request deny if { path /c } { method GET }",
        &[
            r#"- [[route]] service = "f" path = "/c" method = ["GET"] pool = "c""#,
            r#"+ [[route]] service = "f" path = "/c" method = ["GET"] status = 403"#,
            "4: not imported: no request reaches it, because line 11 already matches the same \
            requests",
        ],
    ),
];

#[test]
fn rules_that_no_request_reaches_become_no_routes() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n use_backend c if { path /c } { method GET }\n \
        default_backend b\nbackend b\n mode http\n server a 10.0.0.5:80\nbackend c\n mode http\n \
        {}\n server a 10.0.0.6:80\n",
        RULES_THAT_NO_REQUEST_REACHES_BECOME_NO_ROUTES,
    );
}

const RULES_OF_A_LISTEN_SECTION_DO_NOT_APPLY_TO_OTHER_FRONTENDS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.l]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "f" path = "/l*" pool = "l""#,
            "+ [service.l]",
            r#"+ listen = ["0.0.0.0:81"]"#,
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
        "http-request deny if { path /l/x }",
        &[r#"+ [[route]] service = "l" path = "/l/x" status = 403"#],
    ),
];

#[test]
fn rules_of_a_listen_section_do_not_apply_to_other_frontends() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n use_backend l if { path_beg /l }\n default_backend \
        b\nbackend b\n mode http\n server a 10.0.0.5:80\nlisten l\n mode http\n bind :81\n {}\n \
        server a 10.0.0.6:80\n",
        RULES_OF_A_LISTEN_SECTION_DO_NOT_APPLY_TO_OTHER_FRONTENDS,
    );
}

const FRONTEND_AND_BACKEND_MAY_HAVE_THE_SAME_NAME: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [pool.b-a]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.6:80", backup = true },"#,
            "+ [service.b]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "tcp""#,
            r#"+ pool = "b""#,
            r#"+ [[route]] service = "b" source = ["10.0.0.0/8"] pool = "b-a""#,
        ],
    ),
    (
        "use-server a if { src 10.1.0.0/16 }",
        &["3 LOST: not imported: weir.toml has no equivalent"],
    ),
];

#[test]
fn frontend_and_backend_may_have_the_same_name() {
    assert_changes(
        "frontend b\n bind :80\n {}\n default_backend b\nbackend b\n use-server a if { src \
        10.0.0.0/8 }\n server a 10.0.0.5:80\n server c 10.0.0.6:80\n",
        FRONTEND_AND_BACKEND_MAY_HAVE_THE_SAME_NAME,
    );
}

const LISTEN_SECTION_CAN_USE_OTHER_BACKENDS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.l]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.c]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [service.l]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "l""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "l" path = "/c*" pool = "c""#,
        ],
    ),
    (
        "http-request set-header X-A b",
        &[
            r#"- [[route]] service = "l" path = "/c*" pool = "c""#,
            r#"+ [[route]] service = "l" path = "/c*" pool = "c" set_header = ["X-A: b"]"#,
        ],
    ),
    (
        "http-request deny if { path /c/x }",
        &[r#"+ [[route]] service = "l" path = "/c*" path_regex = "^/c/x$" status = 403"#],
    ),
];

#[test]
fn listen_section_can_use_other_backends() {
    assert_changes(
        "listen l\n mode http\n bind :80\n use_backend c if { path_beg /c }\n server a \
        10.0.0.5:80\nbackend c\n mode http\n {}\n server a 10.0.0.6:80\n",
        LISTEN_SECTION_CAN_USE_OTHER_BACKENDS,
    );
}

const RULES_OF_A_BACKEND_NAMED_LIKE_ITS_FRONTEND_BECOME_ROUTES: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.b]",
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
        "http-request deny if { path /x }",
        &[r#"+ [[route]] service = "b" path = "/x" status = 403"#],
    ),
    (
        "http-request set-header X-A b",
        &[r#"+ [[route]] service = "b" pool = "b" set_header = ["X-A: b"]"#],
    ),
    (
        "option forwardfor",
        &[r#"+ x_forwarded = { for = "append" }"#],
    ),
    ("timeout server 5s", &[r#"+ timeouts = { server = "5s" }"#]),
];

#[test]
fn rules_of_a_backend_named_like_its_frontend_become_routes() {
    assert_changes(
        "frontend b\n mode http\n bind :80\n default_backend b\nbackend b\n mode http\n {}\n \
        server a 10.0.0.5:80\n",
        RULES_OF_A_BACKEND_NAMED_LIKE_ITS_FRONTEND_BECOME_ROUTES,
    );
}
