//! Tests the order of generated routes, the routes for `monitor-uri` and `monitor-net`, and maps.

use super::{Row, assert_changes};

const ROUTES_ARE_IN_EVALUATION_ORDER: &[Row] = &[
    (
        "frontend e\n mode http\n bind :81\n monitor-uri /first\n http-request deny if { path /a \
        }\n default_backend b\nbackend b\n mode http\n server a 10.0.0.5:80\nfrontend f\n mode \
        http\n bind :80\n monitor-net 10.0.0.0/8\n monitor-uri /alive\n http-request deny if { \
        path /b }\n default_backend b",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.e]",
            r#"+ listen = ["0.0.0.0:81"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ [[route]] service = \"e\" path = \"/first\" status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
            r#"+ [[route]] service = "e" path = "/a" status = 403"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ [[route]] service = \"f\" source = [\"10.0.0.0/8\"] status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
            "+ [[route]] service = \"f\" path = \"/alive\" status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
            r#"+ [[route]] service = "f" path = "/b" status = 403"#,
            "4: the route also matches the path with a query",
            "14: the route also matches the path with a query",
        ],
    ),
    (
        "frontend f\n mode http\n bind :80\n http-request deny if { path /1 }\n redirect \
        location /2 if { path /2 }\n use_backend c if { path_beg /c }\n http-response set-header \
        X-F f\n default_backend b\nbackend b\n mode http\n http-request deny if { path /3 }\n \
        http-request set-header X-B b\n http-request set-header X-C c if { path /4 }\n server a \
        10.0.0.5:80\nbackend c\n mode http\n http-request deny if { path /c/x }\n server a \
        10.0.0.6:80",
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
            r#"+ [[route]] service = "f" path = "/1" status = 403"#,
            r#"+ [[route]] service = "f" path = "/2" redirect = "/2""#,
            r#"+ [[route]] service = "f" path = "/c*" path_regex = "^/c/x$" status = 403"#,
            r#"+ [[route]] service = "f" path = "/c*" pool = "c" set_response_header = ["X-F: f"]"#,
            r#"+ [[route]] service = "f" path = "/3" status = 403"#,
            "+ [[route]] service = \"f\" path = \"/4\" pool = \"b\" set_header = [\"X-B: b\", \
            \"X-C: c\"] set_response_header = [\"X-F: f\"]",
            "+ [[route]] service = \"f\" pool = \"b\" set_header = [\"X-B: b\"] \
            set_response_header = [\"X-F: f\"]",
        ],
    ),
    (
        "frontend f\n mode http\n bind :80\n http-response set-header X-1 a\n http-request \
        return status 200 if { path /1 }\n http-response set-header X-2 b\n http-after-response \
        set-header X-3 c\n use_backend c if { path /c }\n default_backend b\nbackend b\n mode \
        http\n http-after-response set-header X-4 d\n http-request return status 201 if { path \
        /3 }\n http-after-response set-header X-5 e\n server a 10.0.0.5:80\nbackend c\n mode \
        http\n http-after-response set-header X-6 f\n http-request return status 202 if { \
        path_beg /c }\n http-after-response set-header X-7 g\n server a 10.0.0.6:80",
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
            "+ [[route]] service = \"f\" path = \"/1\" status = 200 set_response_header = \
            [\"X-3: c\"]",
            "+ [[route]] service = \"f\" path = \"/c\" path_regex = \"^/c.*$\" status = 202 \
            set_response_header = [\"X-6: f\", \"X-7: g\", \"X-3: c\"]",
            "+ [[route]] service = \"f\" path = \"/c\" pool = \"c\" set_response_header = \
            [\"X-1: a\", \"X-2: b\", \"X-6: f\", \"X-7: g\", \"X-3: c\"]",
            "+ [[route]] service = \"f\" path = \"/3\" status = 201 set_response_header = \
            [\"X-4: d\", \"X-5: e\", \"X-3: c\"]",
            "+ [[route]] service = \"f\" pool = \"b\" set_response_header = [\"X-1: a\", \"X-2: \
            b\", \"X-4: d\", \"X-5: e\", \"X-3: c\"]",
            "7 LOST: Weir changes the responses of servers and routes, but not its errors (400, \
            401, 408, 429, 502, 503, 504 and others)",
            "12 LOST: Weir changes the responses of servers and routes, but not its errors (400, \
            401, 408, 429, 502, 503, 504 and others)",
            "14 LOST: Weir changes the responses of servers and routes, but not its errors (400, \
            401, 408, 429, 502, 503, 504 and others)",
            "18 LOST: Weir changes the responses of servers and routes, but not its errors (400, \
            401, 408, 429, 502, 503, 504 and others)",
            "20 LOST: Weir changes the responses of servers and routes, but not its errors (400, \
            401, 408, 429, 502, 503, 504 and others)",
        ],
    ),
    (
        "frontend f\n mode http\n bind :80\n stick-table type ip size 1m expire 10s store \
        http_req_rate(10s)\n http-request track-sc0 src\n http-request deny deny_status 429 if { \
        sc_http_req_rate(0) gt 100 }\n default_backend b\nbackend b\n mode http\n server a \
        10.0.0.5:80",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ limits = { rate = 10, burst = 100 }",
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    (
        "frontend f\n mode http\n bind :80\n bind :81\n stick-table type ip size 1m expire 10s \
        store http_req_rate(10s)\n http-request track-sc0 src\n http-request deny deny_status \
        429 if { sc_http_req_rate(0) gt 100 }\n default_backend b\nbackend b\n mode http\n \
        server a 10.0.0.5:80",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80", "0.0.0.0:81"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ limits = { rate = 10, burst = 100 }",
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    (
        "frontend f\n mode http\n maxconn 9\n bind :80\n bind :81 ssl crt /a\n stick-table type \
        ip size 1m expire 10s store http_req_rate(10s)\n http-request track-sc0 src\n \
        http-request deny deny_status 429 if { sc_http_req_rate(0) gt 100 }\n default_backend \
        b\nbackend b\n mode http\n server a 10.0.0.5:80",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ limits = { rate = 10, burst = 100, connections = 9 }",
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ [service.f-tls]",
            r#"+ listen = ["0.0.0.0:81"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            r#"+ tls = { certificates = "/a" }"#,
            "+ limits = { rate = 10, burst = 100, connections = 9 }",
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "3: the limit applies to each service, not to all services together",
            "8 LOST: the limit applies to each service, not to all services together",
        ],
    ),
    (
        "userlist u\n user a password $5$x$y\nfrontend f\n mode http\n bind :80\n http-request \
        return status 200 if { path /1 }\n http-request auth unless { http_auth(u) }\n \
        http-request return status 201 if { path /2 }\n use_backend c if { path_beg /c }\n \
        default_backend b\nbackend b\n mode http\n server a 10.0.0.5:80\nbackend c\n mode http\n \
        http-request return status 202 if { path_end /3 }\n http-request auth realm C unless { \
        http_auth(u) }\n http-request return status 203 if { path_end /4 }\n server a 10.0.0.6:80",
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
            r#"+ [[route]] service = "f" path = "/1" status = 200"#,
            "+ [[route]] service = \"f\" path = \"/2\" status = 201 basic_auth = { users = \
            [\"a:$5$x$y\"] }",
            "+ [[route]] service = \"f\" path = \"/c*\" path_regex = \"^.*/3$\" status = 202 \
            basic_auth = { users = [\"a:$5$x$y\"] }",
            "+ [[route]] service = \"f\" path = \"/c*\" path_regex = \"^.*/4$\" status = 203 \
            basic_auth = { users = [\"a:$5$x$y\"], realm = \"C\" }",
            "+ [[route]] service = \"f\" path = \"/c*\" pool = \"c\" basic_auth = { users = \
            [\"a:$5$x$y\"], realm = \"C\" }",
            r#"+ [[route]] service = "f" pool = "b" basic_auth = { users = ["a:$5$x$y"] }"#,
        ],
    ),
];

#[test]
fn routes_are_in_evaluation_order() {
    assert_changes("{}\n", ROUTES_ARE_IN_EVALUATION_ORDER);
}

const MONITOR_LINES_BECOME_ROUTES: &[Row] = &[
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
        "monitor-uri /alive",
        &[
            "+ [[route]] service = \"f\" path = \"/alive\" status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
            "4: the route also matches the path with a query",
        ],
    ),
    (
        "monitor-uri alive",
        &["4 LOST: not imported: a route's `path` cannot match a literal `*` or a query"],
    ),
    (
        "monitor-uri /a*",
        &["4 LOST: not imported: a route's `path` cannot match a literal `*` or a query"],
    ),
    (
        "monitor-uri /a?b",
        &["4 LOST: not imported: a route's `path` cannot match a literal `*` or a query"],
    ),
    (
        "monitor-uri",
        &["4 LOST: not imported: a route's `path` cannot match a literal `*` or a query"],
    ),
    (
        "monitor-net 10.0.0.0/8",
        &[
            "+ [[route]] service = \"f\" source = [\"10.0.0.0/8\"] status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
        ],
    ),
    (
        "monitor-net 10.0.0.1",
        &[
            "+ [[route]] service = \"f\" source = [\"10.0.0.1\"] status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
        ],
    ),
    (
        "monitor-net fd00::/8",
        &[
            "+ [[route]] service = \"f\" source = [\"fd00::/8\"] status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
        ],
    ),
    (
        "monitor-net x",
        &[
            "4 LOST: not imported: it is imported only with a valid network, in mode http and in \
            a section with a bind",
        ],
    ),
    (
        "monitor-net 10.0.0.0/x",
        &[
            "4 LOST: not imported: it is imported only with a valid network, in mode http and in \
            a section with a bind",
        ],
    ),
    (
        "monitor-net x/8",
        &[
            "4 LOST: not imported: it is imported only with a valid network, in mode http and in \
            a section with a bind",
        ],
    ),
    (
        "monitor-net 10.0.0.0/8\n monitor-uri /alive",
        &[
            "+ [[route]] service = \"f\" source = [\"10.0.0.0/8\"] status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
            "+ [[route]] service = \"f\" path = \"/alive\" status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
            "5: the route also matches the path with a query",
        ],
    ),
    (
        "mode tcp\n monitor-uri /alive",
        &[
            r#"- protocol = "http""#,
            "- forwarded = false",
            "- abort_on_close = false",
            "- normalize_path = false",
            r#"- underscores = "keep""#,
            r#"+ protocol = "tcp""#,
            "5: not imported: it has no effect in mode tcp",
        ],
    ),
    (
        "mode tcp\n monitor-net 10.0.0.0/8",
        &[
            r#"- protocol = "http""#,
            "- forwarded = false",
            "- abort_on_close = false",
            "- normalize_path = false",
            r#"- underscores = "keep""#,
            r#"+ protocol = "tcp""#,
            "5 LOST: not imported: it is imported only with a valid network, in mode http and in \
            a section with a bind",
        ],
    ),
    (
        "http-response set-header X-A b\n monitor-uri /alive",
        &[
            "+ [[route]] service = \"f\" path = \"/alive\" status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
            r#"+ [[route]] service = "f" pool = "b" set_response_header = ["X-A: b"]"#,
            "5: the route also matches the path with a query",
        ],
    ),
    (
        "http-after-response set-header X-A b\n monitor-uri /alive",
        &[
            "+ [[route]] service = \"f\" path = \"/alive\" status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\", \
            \"X-A: b\"]",
            r#"+ [[route]] service = "f" pool = "b" set_response_header = ["X-A: b"]"#,
            "4 LOST: Weir changes the responses of servers and routes, but not its errors (400, \
            401, 408, 429, 502, 503, 504 and others)",
            "5: the route also matches the path with a query",
        ],
    ),
    (
        "stick-table type ip size 1m expire 10s store http_req_rate(10s)\n http-request \
        track-sc0 src\n http-request deny deny_status 429 if { sc_http_req_rate(0) gt 100 }\n \
        monitor-net 10.0.0.0/8",
        &[
            "+ limits = { rate = 10, burst = 100 }",
            "+ [[route]] service = \"f\" source = [\"10.0.0.0/8\"] status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
            "7 LOST: these requests count toward the service's `limits`; excess requests get \
            status 429",
        ],
    ),
    (
        "stick-table type ip size 1m expire 10s store http_req_rate(10s)\n http-request \
        track-sc0 src\n http-request deny deny_status 429 if { sc_http_req_rate(0) gt 100 }\n \
        monitor-uri /alive",
        &[
            "+ limits = { rate = 10, burst = 100 }",
            "+ [[route]] service = \"f\" path = \"/alive\" status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
            "7 LOST: these requests count toward the service's `limits`; excess requests get \
            status 429; the route also matches the path with a query",
        ],
    ),
    (
        "log 127.0.0.1:514 local0\n monitor-uri /alive",
        &[
            "+ [[route]] service = \"f\" path = \"/alive\" status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
            "4: not imported: `access_log` of a service writes to a file or to a local socket, \
            not to 127.0.0.1:514: use `access_log = \"syslog\"`, and configure the syslog daemon \
            to forward the messages",
            "5: the route also matches the path with a query",
        ],
    ),
    (
        "log stdout format raw local0\n monitor-uri /alive",
        &[
            r#"+ access_log = "-""#,
            "+ [[route]] service = \"f\" path = \"/alive\" status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"] \
            access_log = false",
            "5: the route also matches the path with a query",
        ],
    ),
];

#[test]
fn monitor_lines_become_routes() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n {}\n default_backend b\nbackend b\n mode http\n \
        server a 10.0.0.5:80\n",
        MONITOR_LINES_BECOME_ROUTES,
    );
}

const MAPS_SELECT_BACKENDS: &[Row] = &[
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
        ],
    ),
    (
        "use_backend %[req.hdr(host),lower,map(/etc/hosts.map,c)]",
        &[
            r#"+ [map.hosts] file = "/etc/hosts.map" ignore_case = true"#,
            r#"+ [[route]] service = "f" pool = { map = "hosts", default = "c" }"#,
        ],
    ),
    (
        "use_backend %[req.hdr(host),lower,map(/etc/hosts.map)]",
        &[
            r#"+ [map.hosts] file = "/etc/hosts.map" ignore_case = true"#,
            r#"+ [[route]] service = "f" pool = { map = "hosts", default = "b" }"#,
        ],
    ),
    (
        "use_backend %[req.hdr(host),lower,map(/etc/hosts.map)]\n use_backend c if { path /c }",
        &[
            r#"+ [[route]] service = "f" path = "/c" pool = "c""#,
            "4 LOST: not imported: the map has no default, but a route with a map requires one",
        ],
    ),
    (
        "use_backend c if { path /c }\n use_backend %[req.hdr(host),lower,map(/etc/hosts.map)] \
        if { path /d }",
        &[
            r#"+ [map.hosts] file = "/etc/hosts.map" ignore_case = true"#,
            r#"+ [[route]] service = "f" path = "/c" pool = "c""#,
            r#"+ [[route]] service = "f" path = "/d" pool = { map = "hosts", default = "b" }"#,
        ],
    ),
    (
        "use_backend %[req.hdr(host),lower,map(/etc/hosts.map,none)]",
        &["4 LOST: not imported: the map has no default, but a route with a map requires one"],
    ),
    (
        "use_backend %[req.hdr(host)]",
        &[
            r#"+ [map.backends] entries = ["b b", "c c"]"#,
            r#"+ [[route]] service = "f" pool = { map = "backends", default = "b" }"#,
        ],
    ),
    (
        "use_backend %[rand]",
        &[
            "4 LOST: not imported: the name of the backend is computed, but a route's pool is \
            fixed",
        ],
    ),
    (
        "use_backend %[src,map_ip(/etc/x.map,c)]",
        &[
            r#"+ [map.x] file = "/etc/x.map" key = "{client}" kind = "network""#,
            r#"+ [[route]] service = "f" pool = { map = "x", default = "c" }"#,
        ],
    ),
    (
        "http-request set-src hdr(X-A)\n use_backend %[src,map_ip(/etc/x.map,c)]",
        &[
            "4 LOST: not imported: Weir matches the address of the connection, or of the PROXY \
            protocol",
            "5 LOST: not imported: an earlier rule changes the client's address, but routes \
            match the address of the connection",
        ],
    ),
    (
        "http-request set-src hdr(X-A)\n use_backend %[req.hdr(host),map(/etc/x.map,c)]",
        &[
            r#"+ [map.x] file = "/etc/x.map""#,
            r#"+ [[route]] service = "f" pool = { map = "x", default = "c" }"#,
            "4 LOST: not imported: Weir matches the address of the connection, or of the PROXY \
            protocol",
        ],
    ),
    (
        "use_backend %[req.hdr(host),map_beg(/.map,c)]",
        &[
            r#"+ [map.nameless] file = "/.map" kind = "prefix""#,
            r#"+ [[route]] service = "f" pool = { map = "nameless", default = "c" }"#,
        ],
    ),
    (
        "use_backend %[path,map(/etc/x.map,c)]",
        &[
            r#"+ [map.x] file = "/etc/x.map" key = "{path}""#,
            r#"+ [[route]] service = "f" pool = { map = "x", default = "c" }"#,
        ],
    ),
    (
        "use_backend %[path,map_reg(/etc/x.map,c)]",
        &[
            r#"+ [map.x] file = "/etc/x.map" key = "{path}" kind = "regex""#,
            r#"+ [[route]] service = "f" pool = { map = "x", default = "c" }"#,
        ],
    ),
];

#[test]
fn maps_select_backends() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n {}\n default_backend b\nbackend b\n mode http\n \
        server a 10.0.0.5:80\nbackend c\n mode http\n server a 10.0.0.6:80\n",
        MAPS_SELECT_BACKENDS,
    );
}

const MAPS_HAVE_A_NAME_AND_A_KEY: &[Row] = &[
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
        "http-request set-header X %[hdr(host),map(/etc/a.b.map)]",
        &[
            r#"+ [map.a] file = "/etc/a.b.map""#,
            r#"+ [[route]] service = "f" pool = "b" set_header = ["X: {map.a}"]"#,
        ],
    ),
    (
        "http-request set-header X %[hdr(host),map(/etc/A b.map)]",
        &["4 LOST: not imported: a route has no equivalent"],
    ),
    (
        "http-request set-header X %[hdr(host),map(/etc/.map)]",
        &[
            r#"+ [map.nameless] file = "/etc/.map""#,
            r#"+ [[route]] service = "f" pool = "b" set_header = ["X: {map.nameless}"]"#,
        ],
    ),
    (
        "http-request set-header X %[path,map_reg(/etc/a.map)]",
        &[
            r#"+ [map.a] file = "/etc/a.map" key = "{path}" kind = "regex""#,
            r#"+ [[route]] service = "f" pool = "b" set_header = ["X: {map.a}"]"#,
        ],
    ),
    (
        "http-request set-header X %[hdr(host),map_end(/etc/a.map)]",
        &["4 LOST: not imported: the value contains an unsupported variable or a name in braces"],
    ),
    (
        "http-request set-header X %[hdr(host),map(/etc/x.map)]\n http-request set-header Y \
        %[hdr(host),map(/var/x.map)]\n http-request set-header Z %[hdr(host),map(/opt/x.map)]",
        &[
            r#"+ [map.x] file = "/etc/x.map""#,
            r#"+ [map.x-2] file = "/var/x.map""#,
            r#"+ [map.x-2-2] file = "/opt/x.map""#,
            "+ [[route]] service = \"f\" pool = \"b\" set_header = [\"X: {map.x}\", \"Y: \
            {map.x-2}\", \"Z: {map.x-2-2}\"]",
        ],
    ),
];

#[test]
fn maps_have_a_name_and_a_key() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n {}\n default_backend b\nbackend b\n mode http\n \
        server a 10.0.0.5:80\n",
        MAPS_HAVE_A_NAME_AND_A_KEY,
    );
}
