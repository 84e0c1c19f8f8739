//! Sections for statistics, names and addresses of services, and their default responses.

use super::{Row, assert_changes};

const STATISTICS_SECTIONS: &[Row] = &[
    (
        "listen s\n bind :9000\n stats enable",
        &[
            "+ [node]",
            r#"+ admin = "127.0.0.1:9000""#,
            "2: imported as `admin`: the dashboard and /metrics at 127.0.0.1:9000, reachable \
            only from this host",
            "3: not imported: `weir status`, the dashboard and /metrics show the state",
        ],
    ),
    (
        "listen s\n bind 10.0.0.1:9000\n stats enable\n http-request auth",
        &[
            "+ [node]",
            r#"+ admin = "127.0.0.1:9000""#,
            "2: imported as `admin`: the dashboard and /metrics at 127.0.0.1:9000, reachable \
            only from this host",
            "3: not imported: `weir status`, the dashboard and /metrics show the state",
            "4: not imported: `weir status`, the dashboard and /metrics show the state",
        ],
    ),
    (
        "listen s\n bind abns@x\n bind :9000\n stats enable",
        &[
            "+ [node]",
            r#"+ admin = "127.0.0.1:9000""#,
            "2: not imported: `weir status`, the dashboard and /metrics show the state",
            "3: imported as `admin`: the dashboard and /metrics at 127.0.0.1:9000, reachable \
            only from this host",
            "4: not imported: `weir status`, the dashboard and /metrics show the state",
        ],
    ),
    (
        "listen s\n bind abns@x\n stats enable",
        &[
            "2: not imported: `weir status`, the dashboard and /metrics show the state",
            "3: not imported: `weir status`, the dashboard and /metrics show the state",
        ],
    ),
    (
        "listen s\n bind :9000\n stats enable\n server a 10.0.0.5:80",
        &[
            "+ [pool.s]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.s]",
            r#"+ listen = ["0.0.0.0:9000"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "tcp""#,
            r#"+ pool = "s""#,
            "3: not imported: `weir status`, the Unix socket and /metrics show the state",
        ],
    ),
    (
        "frontend s\n mode http\n bind :9000\n http-request use-service prometheus-exporter if { \
        path /metrics }",
        &[
            "+ [node]",
            r#"+ admin = "127.0.0.1:9000""#,
            "2: not imported: `weir status`, the dashboard and /metrics show the state",
            "3: imported as `admin`: the dashboard and /metrics at 127.0.0.1:9000, reachable \
            only from this host",
            "4: not imported: `weir status`, the dashboard and /metrics show the state",
        ],
    ),
    (
        "frontend s\n mode http\n bind :9000\n http-request deny if { src 10.0.0.0/8 }\n stats \
        enable",
        &[
            "+ [pool.no-servers]",
            "+ servers = []",
            "+ [service.s]",
            r#"+ listen = ["0.0.0.0:9000"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "no-servers""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "s" source = ["10.0.0.0/8"] status = 403"#,
            r#"+ [[route]] service = "s" status = 503"#,
            "5: not imported: `weir status`, the Unix socket and /metrics show the state",
        ],
    ),
    (
        "listen s\n bind :9000\n stats enable\nlisten t\n bind :9001\n stats enable",
        &[
            "+ [node]",
            r#"+ admin = "127.0.0.1:9000""#,
            "2: imported as `admin`: the dashboard and /metrics at 127.0.0.1:9000, reachable \
            only from this host",
            "3: not imported: `weir status`, the dashboard and /metrics show the state",
            "5: not imported: `weir status`, the dashboard and /metrics show the state",
            "6: not imported: `weir status`, the dashboard and /metrics show the state",
        ],
    ),
    (
        "listen s\n bind :9000\n stats enable\nfrontend t\n mode http\n bind 10.0.0.1:9000\n \
        redirect scheme https",
        &[
            "+ [pool.no-servers]",
            "+ servers = []",
            "+ [service.t]",
            r#"+ listen = ["10.0.0.1:9000"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "no-servers""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "t" redirect = "https://{host}{path}""#,
            "2: not imported: `weir status`, the dashboard and /metrics show the state",
            "3: not imported: `weir status`, the dashboard and /metrics show the state",
        ],
    ),
    (
        "listen s\n bind :9000\n stats enable\nfrontend t\n mode http\n bind :9001\n redirect \
        scheme https",
        &[
            "+ [node]",
            r#"+ admin = "127.0.0.1:9000""#,
            "+ [pool.no-servers]",
            "+ servers = []",
            "+ [service.t]",
            r#"+ listen = ["0.0.0.0:9001"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "no-servers""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "t" redirect = "https://{host}{path}""#,
            "2: imported as `admin`: the dashboard and /metrics at 127.0.0.1:9000, reachable \
            only from this host",
            "3: not imported: `weir status`, the dashboard and /metrics show the state",
        ],
    ),
    (
        "listen s\n bind :9000\n bind :9001\n stats enable\nfrontend t\n mode http\n bind \
        :9000\n redirect scheme https",
        &[
            "+ [node]",
            r#"+ admin = "127.0.0.1:9001""#,
            "+ [pool.no-servers]",
            "+ servers = []",
            "+ [service.t]",
            r#"+ listen = ["0.0.0.0:9000"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "no-servers""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "t" redirect = "https://{host}{path}""#,
            "2: not imported: `weir status`, the dashboard and /metrics show the state",
            "3: imported as `admin`: the dashboard and /metrics at 127.0.0.1:9001, reachable \
            only from this host",
            "4: not imported: `weir status`, the dashboard and /metrics show the state",
        ],
    ),
    (
        "listen s\n bind :9000\n",
        &[
            "+ [pool.no-servers]",
            "+ servers = []",
            "+ [service.s]",
            r#"+ listen = ["0.0.0.0:9000"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "tcp""#,
            r#"+ pool = "no-servers""#,
        ],
    ),
    (
        "global\n hard-stop-after 5m\nlisten s\n bind :9000\n stats enable",
        &[
            "+ [node]",
            r#"+ drain_timeout = "5m""#,
            r#"+ admin = "127.0.0.1:9000""#,
            "4: imported as `admin`: the dashboard and /metrics at 127.0.0.1:9000, reachable \
            only from this host",
            "5: not imported: `weir status`, the dashboard and /metrics show the state",
        ],
    ),
];

#[test]
fn sections_that_only_show_statistics_become_admin() {
    assert_changes("{}\n", STATISTICS_SECTIONS);
}

const SECTION_WITHOUT_USABLE_ADDRESS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["127.0.0.1:22000"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "3 LOST: not imported: Weir cannot listen on abns@",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind :22000",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:22000"]"#,
        ],
    ),
    (
        "bind :22000\n bind :22001",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:22000", "0.0.0.0:22001"]"#,
        ],
    ),
    (
        "bind abns@y",
        &["4 LOST: not imported: Weir cannot listen on abns@"],
    ),
];

#[test]
fn section_without_usable_address_gets_a_free_loopback_port() {
    assert_changes(
        "frontend f\n mode http\n bind abns@x\n {}\n default_backend b\nbackend b\n mode http\n \
        server a 10.0.0.5:80\n",
        SECTION_WITHOUT_USABLE_ADDRESS,
    );
}

const SECTIONS_WITHOUT_USABLE_ADDRESS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["127.0.0.1:22000"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "3 LOST: not imported: Weir cannot listen on abns@",
            "3 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "frontend g\n mode http\n bind abns@y\n default_backend b",
        &[
            "+ [service.g]",
            r#"+ listen = ["127.0.0.1:22001"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "10 LOST: not imported: Weir cannot listen on abns@",
            "10 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22001, which all processes on this host can reach",
        ],
    ),
    (
        "frontend g\n mode http\n bind :22001\n default_backend b\nfrontend h\n mode http\n bind \
        abns@z\n default_backend b",
        &[
            "+ [service.g]",
            r#"+ listen = ["0.0.0.0:22001"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ [service.h]",
            r#"+ listen = ["127.0.0.1:22002"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "14 LOST: not imported: Weir cannot listen on abns@",
            "14 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22002, which all processes on this host can reach",
        ],
    ),
    (
        "frontend g\n mode http\n default_backend b",
        &[
            "+ [service.g]",
            r#"+ listen = ["127.0.0.1:22001"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "8 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22001, which all processes on this host can reach",
        ],
    ),
    (
        "listen g\n mode http\n server a 10.0.0.6:80",
        &[
            "+ [pool.g]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.6:80" },"#,
        ],
    ),
];

#[test]
fn sections_without_usable_address_get_different_ports() {
    assert_changes(
        "frontend f\n mode http\n bind abns@x\n default_backend b\nbackend b\n mode http\n \
        server a 10.0.0.5:80\n{}",
        SECTIONS_WITHOUT_USABLE_ADDRESS,
    );
}

const BINDS_OF_DIFFERENT_KINDS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["127.0.0.1:22000"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "4 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
        ],
    ),
    (
        "bind :80\n bind :81 ssl crt /a",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
            "+ [service.f-tls]",
            r#"+ listen = ["0.0.0.0:81"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            r#"+ tls = { certificates = "/a" }"#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    (
        "bind :81 ssl crt /a",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:81"]"#,
            r#"+ tls = { certificates = "/a" }"#,
        ],
    ),
    (
        "bind :80\n bind :82 accept-proxy",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
            "+ [service.f-proxied]",
            r#"+ listen = ["0.0.0.0:82"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ proxy_protocol = true",
        ],
    ),
    (
        "bind :81 ssl crt /a\n bind :82 accept-proxy",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:81"]"#,
            r#"+ tls = { certificates = "/a" }"#,
            "+ [service.f-proxied]",
            r#"+ listen = ["0.0.0.0:82"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ proxy_protocol = true",
        ],
    ),
    (
        "bind :80\n bind :83 ssl crt /a accept-proxy",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
            "+ [service.f-tls-proxied]",
            r#"+ listen = ["0.0.0.0:83"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            r#"+ tls = { certificates = "/a" }"#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ proxy_protocol = true",
        ],
    ),
    (
        "bind :82 accept-proxy\n bind :83 ssl crt /a accept-proxy",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:82"]"#,
            "+ proxy_protocol = true",
            "+ [service.f-tls-proxied]",
            r#"+ listen = ["0.0.0.0:83"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            r#"+ tls = { certificates = "/a" }"#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ proxy_protocol = true",
        ],
    ),
    (
        "bind :80 ssl crt /a\n bind :81\n redirect scheme https if !{ ssl_fc }",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:81"]"#,
            r#"+ [[route]] service = "f" redirect = "https://{host}{path}""#,
            "+ [service.f-tls]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            r#"+ tls = { certificates = "/a" }"#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
    (
        "bind :80\n bind :81\n redirect location /x if { dst_port 81 }",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80", "0.0.0.0:81"]"#,
            "8 LOST: not imported: the service has listeners on several ports; define a separate \
            service for each port",
        ],
    ),
    (
        "bind :81\n redirect location /x if { dst_port 81 }",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:81"]"#,
            r#"+ [[route]] service = "f" redirect = "/x""#,
        ],
    ),
    (
        "bind :81\n redirect location /x if { dst_port 82 }",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:81"]"#,
        ],
    ),
    (
        "bind :80\n bind :81 ssl crt /a\n errorfile 503 /e/503.http",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ error_pages = [{ status = "503", file = "/e/503.http" }]"#,
            "+ [service.f-tls]",
            r#"+ listen = ["0.0.0.0:81"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            r#"+ tls = { certificates = "/a" }"#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ error_pages = [{ status = "503", file = "/e/503.http" }]"#,
        ],
    ),
];

#[test]
fn binds_of_different_kinds_become_separate_services() {
    assert_changes(
        "backend b\n mode http\n server a 10.0.0.5:80\nfrontend f\n mode http\n {}\n \
        default_backend b\n",
        BINDS_OF_DIFFERENT_KINDS,
    );
}

const UNMATCHED_REQUESTS: &[Row] = &[
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
            r#"+ protocol = "http""#,
            r#"+ pool = "no-servers""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "f" status = 503"#,
        ],
    ),
    (
        "default_backend b",
        &[
            "- [pool.no-servers]",
            "- servers = []",
            r#"- pool = "no-servers""#,
            r#"- [[route]] service = "f" status = 503"#,
            r#"+ pool = "b""#,
        ],
    ),
    (
        "default_backend none",
        &["4 LOST: not imported: the backend `none` is not defined"],
    ),
    (
        "use_backend b if { path /x }",
        &[r#"+ [[route]] service = "f" path = "/x" pool = "b""#],
    ),
    (
        "use_backend none if { path /x }",
        &["4 OPEN: not imported: the backend `none` is not defined"],
    ),
    (
        "use_backend b",
        &[
            r#"- [[route]] service = "f" status = 503"#,
            r#"+ [[route]] service = "f" pool = "b""#,
        ],
    ),
    (
        "http-request deny if { path /x }",
        &[r#"+ [[route]] service = "f" path = "/x" status = 403"#],
    ),
    ("http-request set-header X-A b", &[]),
    (
        "monitor-uri /alive",
        &[
            "+ [[route]] service = \"f\" path = \"/alive\" status = 200 body = \
            \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\" \
            set_response_header = [\"Cache-Control: no-cache\", \"Content-Type: text/html\"]",
            "4: the route also matches the path with a query",
        ],
    ),
];

#[test]
fn unmatched_requests_get_503_without_default_backend() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n {}\nbackend b\n mode http\n server a 10.0.0.5:80\n",
        UNMATCHED_REQUESTS,
    );
}

const TCP_FRONTEND_WITHOUT_DEFAULT_BACKEND: &[Row] = &[
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
        ],
    ),
    (
        "default_backend b",
        &[
            "- [pool.no-servers]",
            "- servers = []",
            r#"- pool = "no-servers""#,
            r#"+ pool = "b""#,
        ],
    ),
    (
        "use_backend b if { src 10.0.0.0/8 }",
        &[r#"+ [[route]] service = "f" source = ["10.0.0.0/8"] pool = "b""#],
    ),
    (
        "tcp-request content reject if { src 10.0.0.0/8 }",
        &[r#"+ [[route]] service = "f" source = ["10.0.0.0/8"] close = true"#],
    ),
    (
        "tcp-request connection reject if { src 10.0.0.0/8 }",
        &[r#"+ [[route]] service = "f" source = ["10.0.0.0/8"] close = true"#],
    ),
    (
        "http-request redirect location /x",
        &["3 LOST: not imported: a tcp service cannot redirect or send responses"],
    ),
    (
        "redirect location /x",
        &["3 LOST: not imported: a tcp service cannot redirect or send responses"],
    ),
    (
        "http-request deny",
        &["3 OPEN: not imported: a tcp service cannot redirect or send responses"],
    ),
];

#[test]
fn tcp_frontend_without_default_backend_gets_an_empty_pool() {
    assert_changes(
        "frontend f\n bind :80\n {}\nbackend b\n server a 10.0.0.5:80\n",
        TCP_FRONTEND_WITHOUT_DEFAULT_BACKEND,
    );
}
