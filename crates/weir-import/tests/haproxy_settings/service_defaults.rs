//! Tests the import of error pages, and of settings in `defaults`, `global` and backends.

use super::{Row, assert_changes};

const FILES_AND_URLS_BECOME_ERROR_PAGES: &[Row] = &[
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
            r#"+ error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "1: its pages are imported where the file uses them",
        ],
    ),
    (
        "errorfile 503 /e/503.http",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"503\", file = \"/e/503.http\" }, { status = \"500\", \
            file = \"/b/500.http\" }]",
        ],
    ),
    (
        "errorfile 503 e/503.http",
        &[
            "7 LOST: not imported: a service's `error_pages` accepts only absolute file paths \
            and fixed URLs, one per status",
        ],
    ),
    (
        "errorfile 503 /dev/null",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"503\", file = \"/dev/null\" }, { status = \"500\", \
            file = \"/b/500.http\" }]",
        ],
    ),
    (
        "errorfile 503 /dev/stdin",
        &[
            "7 LOST: not imported: a service's `error_pages` accepts only absolute file paths \
            and fixed URLs, one per status",
        ],
    ),
    (
        "errorfile 503",
        &[
            "7 LOST: not imported: a service's `error_pages` accepts only absolute file paths \
            and fixed URLs, one per status",
        ],
    ),
    (
        "errorfile 500 /f/500.http",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            r#"+ error_pages = [{ status = "500", file = "/f/500.http" }]"#,
            "11: not imported: another page for the same status replaces it",
        ],
    ),
    (
        "errorfile 503 /e/1.http\n errorfile 503 /e/2.http",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"503\", file = \"/e/2.http\" }, { status = \"500\", \
            file = \"/b/500.http\" }]",
            "7: not imported: another page for the same status replaces it",
        ],
    ),
    (
        "errorloc 503 http://x.example/",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"503\", redirect = \"http://x.example/\" }, { status = \
            \"500\", file = \"/b/500.http\" }]",
        ],
    ),
    (
        "errorloc302 503 http://x.example/",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"503\", redirect = \"http://x.example/\" }, { status = \
            \"500\", file = \"/b/500.http\" }]",
        ],
    ),
    (
        "errorloc303 503 http://x.example/",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"503\", redirect = \"http://x.example/\", \
            redirect_status = 303 }, { status = \"500\", file = \"/b/500.http\" }]",
        ],
    ),
    (
        "errorloc 503 http://x.example/{a}",
        &[
            "7 LOST: not imported: a service's `error_pages` accepts only absolute file paths \
            and fixed URLs, one per status",
        ],
    ),
    (
        "errorloc303 503 http://x.example/{a}",
        &[
            "7 LOST: not imported: a service's `error_pages` accepts only absolute file paths \
            and fixed URLs, one per status",
        ],
    ),
    (
        "errorloc 503 http://x.example/%[src]",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"503\", redirect = \"http://x.example/%[src]\" }, { \
            status = \"500\", file = \"/b/500.http\" }]",
        ],
    ),
    (
        r#"errorloc 503 "http://x.example/a b""#,
        &[
            "7 LOST: not imported: a service's `error_pages` accepts only absolute file paths \
            and fixed URLs, one per status",
        ],
    ),
    (
        "errorfiles pages",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"403\", file = \"/p/403.http\" }, { status = \"404\", \
            file = \"/p/404.http\" }, { status = \"500\", file = \"/b/500.http\" }]",
        ],
    ),
    (
        "errorfiles pages 403",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"403\", file = \"/p/403.http\" }, { status = \"500\", \
            file = \"/b/500.http\" }]",
        ],
    ),
    (
        "errorfiles pages 999",
        &["7 LOST: not imported: a service's `error_pages` accepts only one file per status"],
    ),
    (
        "errorfiles none",
        &["7 LOST: not imported: a service's `error_pages` accepts only one file per status"],
    ),
    (
        "errorfiles pages\n errorfile 403 /e/403.http",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"404\", file = \"/p/404.http\" }, { status = \"403\", \
            file = \"/e/403.http\" }, { status = \"500\", file = \"/b/500.http\" }]",
        ],
    ),
    (
        "errorfile 403 /e/403.http\n errorfiles pages",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"403\", file = \"/p/403.http\" }, { status = \"404\", \
            file = \"/p/404.http\" }, { status = \"500\", file = \"/b/500.http\" }]",
            "7: not imported: another page for the same status replaces it",
        ],
    ),
    (
        "errorfile 403 /e/403.http\n errorfile 404 /e/404.http\n errorfiles pages",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"403\", file = \"/p/403.http\" }, { status = \"404\", \
            file = \"/p/404.http\" }, { status = \"500\", file = \"/b/500.http\" }]",
            "7: not imported: another page for the same status replaces it",
            "8: not imported: another page for the same status replaces it",
        ],
    ),
    (
        "http-error status 404 errorfile /e/404.http",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"404\", file = \"/e/404.http\" }, { status = \"500\", \
            file = \"/b/500.http\" }]",
        ],
    ),
    (
        "http-error status 404 content-type text/html file /e/404.html",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"404\", file = \"/e/404.html\" }, { status = \"500\", \
            file = \"/b/500.http\" }]",
        ],
    ),
    (
        "http-error status 404 content-type application/json file /e/404.json",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"404\", file = \"/e/404.json\" }, { status = \"500\", \
            file = \"/b/500.http\" }]",
        ],
    ),
    (
        "http-error status 404 content-type image/svg+xml file /e/404.svg",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"404\", file = \"/e/404.svg\" }, { status = \"500\", \
            file = \"/b/500.http\" }]",
        ],
    ),
    (
        "http-error status 404 content-type text/plain file /e/404.txt",
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"404\", file = \"/e/404.txt\" }, { status = \"500\", \
            file = \"/b/500.http\" }]",
        ],
    ),
    (
        r#"http-error status 404 content-type "text/html; charset=utf-8" file /e/404.html"#,
        &[
            r#"- error_pages = [{ status = "500", file = "/b/500.http" }]"#,
            "+ error_pages = [{ status = \"404\", file = \"/e/404.html\" }, { status = \"500\", \
            file = \"/b/500.http\" }]",
        ],
    ),
    (
        "http-error status 404 content-type text/html file /e/404.json",
        &["7 LOST: not imported: a service's `error_pages` accepts only one file per status"],
    ),
    (
        "http-error status 404",
        &["7 LOST: not imported: a service's `error_pages` accepts only one file per status"],
    ),
];

#[test]
fn files_and_urls_become_error_pages() {
    assert_changes(
        "http-errors pages\n errorfile 403 /p/403.http\n errorfile 404 /p/404.http\nfrontend f\n \
        bind :80\n mode http\n {}\n default_backend b\nbackend b\n mode http\n errorfile 500 \
        /b/500.http\n server a 10.0.0.5:80\n",
        FILES_AND_URLS_BECOME_ERROR_PAGES,
    );
}

const ERROR_PAGES_OF_DEFAULTS_ARE_NOT_DUPLICATED: &[Row] = &[
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
            r#"+ error_pages = [{ status = "503", file = "/d/503.http" }]"#,
        ],
    ),
    (
        "errorfile 503 /e/503.http",
        &[
            r#"- error_pages = [{ status = "503", file = "/d/503.http" }]"#,
            r#"+ error_pages = [{ status = "503", file = "/e/503.http" }]"#,
            "3: not imported: another page for the same status replaces it",
        ],
    ),
    (
        "errorfile 502 /e/502.http",
        &[
            r#"- error_pages = [{ status = "503", file = "/d/503.http" }]"#,
            "+ error_pages = [{ status = \"503\", file = \"/d/503.http\" }, { status = \"502\", \
            file = \"/e/502.http\" }]",
        ],
    ),
];

#[test]
fn error_pages_of_defaults_are_not_duplicated() {
    assert_changes(
        "defaults\n mode http\n errorfile 503 /d/503.http\nfrontend f\n bind :80\n {}\n \
        default_backend b\nbackend b\n server a 10.0.0.5:80\n",
        ERROR_PAGES_OF_DEFAULTS_ARE_NOT_DUPLICATED,
    );
}

const ROUTES_GET_THE_SETTINGS_OF_THEIR_BACKENDS: &[Row] = &[
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
            r#"+ timeouts = { server = "5s" }"#,
            r#"+ retry_on = ["503"]"#,
            "+ limits = { retries = 3 }",
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "f" path = "/c" pool = "c""#,
        ],
    ),
    (
        "timeout server 5s",
        &[
            "14 LOST: not imported: a service's `timeouts` has no such key, or the service gets \
            it from another pool",
        ],
    ),
    (
        "timeout server 6s",
        &[
            r#"- [[route]] service = "f" path = "/c" pool = "c""#,
            r#"+ [[route]] service = "f" path = "/c" pool = "c" timeouts = { server = "6s" }"#,
        ],
    ),
    (
        "timeout connect 6s",
        &[
            r#"- [[route]] service = "f" path = "/c" pool = "c""#,
            r#"+ [[route]] service = "f" path = "/c" pool = "c" timeouts = { connect = "6s" }"#,
        ],
    ),
    (
        "timeout tunnel 6s",
        &[
            r#"- [[route]] service = "f" path = "/c" pool = "c""#,
            r#"+ [[route]] service = "f" path = "/c" pool = "c" timeouts = { tunnel = "6s" }"#,
        ],
    ),
    (
        "timeout server x",
        &[
            "14 LOST: not imported: a service's `timeouts` has no such key, or the service gets \
            it from another pool",
        ],
    ),
    (
        "retries 3",
        &["14 LOST: not imported: weir.toml has no equivalent"],
    ),
    (
        "retries 4",
        &[
            r#"- [[route]] service = "f" path = "/c" pool = "c""#,
            r#"+ [[route]] service = "f" path = "/c" pool = "c" retries = 4"#,
        ],
    ),
    (
        "retries x",
        &["14 LOST: not imported: weir.toml has no equivalent"],
    ),
    (
        "retry-on 503",
        &["14 LOST: not imported: a service gets `retry_on` only from its default backend"],
    ),
    (
        "retry-on 502",
        &[
            r#"- [[route]] service = "f" path = "/c" pool = "c""#,
            r#"+ [[route]] service = "f" path = "/c" pool = "c" retry_on = ["502"]"#,
        ],
    ),
    (
        "option forwardfor",
        &[
            r#"- [[route]] service = "f" path = "/c" pool = "c""#,
            "+ [[route]] service = \"f\" path = \"/c\" pool = \"c\" add_header = \
            [\"X-Forwarded-For: {client}\"]",
        ],
    ),
    (
        "http-request set-header X-A b",
        &[
            r#"- [[route]] service = "f" path = "/c" pool = "c""#,
            r#"+ [[route]] service = "f" path = "/c" pool = "c" set_header = ["X-A: b"]"#,
        ],
    ),
];

#[test]
fn routes_get_the_settings_of_their_backends() {
    assert_changes(
        "frontend f\n bind :80\n mode http\n use_backend c if { path /c }\n default_backend \
        b\nbackend b\n mode http\n timeout server 5s\n retries 3\n retry-on 503\n server a \
        10.0.0.5:80\nbackend c\n mode http\n {}\n server a 10.0.0.6:80\n",
        ROUTES_GET_THE_SETTINGS_OF_THEIR_BACKENDS,
    );
}

const DEFAULTS_WITHOUT_PROXIES_BECOME_SERVICE_DEFAULTS: &[Row] = &[
    ("", &[]),
    (
        "mode http",
        &[
            "+ [defaults.service]",
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
        ],
    ),
    (
        "mode tcp",
        &[
            "+ [defaults.service]",
            r#"+ forward = "proxy""#,
            r#"+ protocol = "tcp""#,
        ],
    ),
    (
        "mode http\n option forwardfor",
        &[
            "+ [defaults.service]",
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            "+ forwarded = false",
            r#"+ x_forwarded = { for = "append" }"#,
        ],
    ),
    (
        "mode tcp\n option forwardfor",
        &[
            "+ [defaults.service]",
            r#"+ forward = "proxy""#,
            r#"+ protocol = "tcp""#,
            "3: not imported: it has no effect in mode tcp",
        ],
    ),
    (
        "option forwardfor",
        &["2: not imported: it has no effect in mode tcp"],
    ),
    (
        "timeout client 5s",
        &["+ [defaults.service]", r#"+ timeouts = { client = "5s" }"#],
    ),
    (
        "retries 3",
        &["+ [defaults.service]", "+ limits = { retries = 3 }"],
    ),
    (
        "retry-on 503",
        &["+ [defaults.service]", r#"+ retry_on = ["503"]"#],
    ),
    (
        "maxconn 5",
        &["+ [defaults.service]", "+ limits = { connections = 5 }"],
    ),
    (
        "mode http\n compression algo gzip",
        &[
            "+ [defaults.service]",
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ compression = { codings = ["gzip"] }"#,
        ],
    ),
    (
        "compression algo gzip",
        &["2: not imported: it has no effect in mode tcp"],
    ),
    (
        "mode http\n errorfile 503 /e/503.http",
        &[
            "+ [defaults.service]",
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ error_pages = [{ status = "503", file = "/e/503.http" }]"#,
        ],
    ),
    (
        "errorfile 503 /e/503.http",
        &["2: not imported: it has no effect in mode tcp"],
    ),
    (
        "balance roundrobin",
        &["2 LOST: not imported: weir.toml has no equivalent"],
    ),
    (
        "mode http\n option forwardfor if-none",
        &[
            "+ [defaults.service]",
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            "+ forwarded = false",
            r#"+ x_forwarded = { for = "append" }"#,
            "3 LOST: \"if-none\" and any following arguments are not imported: `x_forwarded` has \
            no such option",
        ],
    ),
    (
        "mode http\n option forwardfor if-none except 127.0.0.0/8",
        &[
            "+ [defaults.service]",
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            "+ forwarded = false",
            r#"+ x_forwarded = { for = "append", except = ["127.0.0.0/8"] }"#,
            "3 LOST: \"if-none\" and any following arguments are not imported: `x_forwarded` has \
            no such option",
        ],
    ),
    (
        "mode http\n option forwardfor header X-Client",
        &[
            "+ [defaults.service]",
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            "+ forwarded = false",
            r#"+ x_forwarded = { for = "append" }"#,
            "3 LOST: \"header\" and any following arguments are not imported: `x_forwarded` has \
            no such option",
        ],
    ),
    (
        "mode http\n option forwardfor header x-forwarded-for",
        &[
            "+ [defaults.service]",
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            "+ forwarded = false",
            r#"+ x_forwarded = { for = "append" }"#,
        ],
    ),
];

#[test]
fn defaults_without_proxies_become_service_defaults() {
    assert_changes(
        "defaults\n {}\n",
        DEFAULTS_WITHOUT_PROXIES_BECOME_SERVICE_DEFAULTS,
    );
}

const GLOBAL_LIMIT_WITHOUT_PROXIES_BECOMES_A_SERVICE_DEFAULT: &[Row] = &[
    ("", &[]),
    (
        "maxconn 5",
        &[
            "+ [defaults.service]",
            "+ limits = { connections = 5 }",
            "2: the limit applies to each service, not to all services together",
        ],
    ),
    (
        "maxconn x",
        &["2 LOST: not imported: `limits.connections` is set per service"],
    ),
];

#[test]
fn global_limit_without_proxies_becomes_a_service_default() {
    assert_changes(
        "global\n {}\n",
        GLOBAL_LIMIT_WITHOUT_PROXIES_BECOMES_A_SERVICE_DEFAULT,
    );
}

const GLOBAL_LIMIT_APPLIES_TO_SERVICES_WITHOUT_A_LIMIT: &[Row] = &[
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
            "+ limits = { connections = 9 }",
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "2: the limit applies to each service, not to all services together",
        ],
    ),
    (
        "maxconn 5",
        &[
            "- limits = { connections = 9 }",
            "+ limits = { connections = 5 }",
        ],
    ),
    (
        "retries 2",
        &["6 LOST: not imported: weir.toml has no equivalent"],
    ),
];

#[test]
fn global_limit_applies_to_services_without_a_limit() {
    assert_changes(
        "global\n maxconn 9\nfrontend f\n mode http\n bind :80\n {}\n default_backend b\nbackend \
        b\n mode http\n server a 10.0.0.5:80\n",
        GLOBAL_LIMIT_APPLIES_TO_SERVICES_WITHOUT_A_LIMIT,
    );
}

const FORWARDFOR_OF_A_BACKEND_ADDS_A_HEADER_TO_ITS_ROUTES: &[Row] = &[
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
            "+ [[route]] service = \"f\" path = \"/c\" pool = \"c\" add_header = \
            [\"X-Forwarded-For: {client}\"]",
        ],
    ),
    (
        "option forwardfor",
        &[
            "- [[route]] service = \"f\" path = \"/c\" pool = \"c\" add_header = \
            [\"X-Forwarded-For: {client}\"]",
            r#"+ x_forwarded = { for = "append" }"#,
            r#"+ [[route]] service = "f" path = "/c" pool = "c""#,
            "12 LOST: not imported: weir.toml has no equivalent",
        ],
    ),
    (
        "option forwardfor if-none",
        &[
            "- [[route]] service = \"f\" path = \"/c\" pool = \"c\" add_header = \
            [\"X-Forwarded-For: {client}\"]",
            "+ [[route]] service = \"f\" path = \"/c\" not = { header = [\"X-Forwarded-For\"] } \
            pool = \"c\" add_header = [\"X-Forwarded-For: {client}\"]",
            r#"+ [[route]] service = "f" path = "/c" pool = "c""#,
            "+ [[route]] service = \"f\" not = { header = [\"X-Forwarded-For\"] } pool = \"b\" \
            add_header = [\"X-Forwarded-For: {client}\"]",
            r#"+ [[route]] service = "f" pool = "b""#,
            "12 LOST: not imported: weir.toml has no equivalent",
        ],
    ),
    (
        "option forwardfor header X-Client",
        &[
            "- [[route]] service = \"f\" path = \"/c\" pool = \"c\" add_header = \
            [\"X-Forwarded-For: {client}\"]",
            "+ [[route]] service = \"f\" path = \"/c\" pool = \"c\" add_header = [\"X-Client: \
            {client}\"]",
            r#"+ [[route]] service = "f" pool = "b" add_header = ["X-Client: {client}"]"#,
            "12 LOST: not imported: weir.toml has no equivalent",
        ],
    ),
];

#[test]
fn forwardfor_of_a_backend_adds_a_header_to_its_routes() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n {}\n use_backend c if { path /c }\n default_backend \
        b\nbackend b\n mode http\n server a 10.0.0.5:80\nbackend c\n mode http\n option \
        forwardfor\n server a 10.0.0.6:80\n",
        FORWARDFOR_OF_A_BACKEND_ADDS_A_HEADER_TO_ITS_ROUTES,
    );
}

const FORWARDFOR_OF_FRONTEND_AND_BACKEND_ADDS_ONE_HEADER: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.c]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [pool.no-servers]",
            "+ servers = []",
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "no-servers""#,
            "+ forwarded = false",
            r#"+ x_forwarded = { for = "append" }"#,
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "f" path = "/c" pool = "c""#,
            r#"+ [[route]] service = "f" status = 503"#,
            "12 LOST: not imported: weir.toml has no equivalent",
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
        "default_backend c",
        &[
            "- [pool.no-servers]",
            "- servers = []",
            r#"- pool = "no-servers""#,
            r#"- [[route]] service = "f" status = 503"#,
            r#"+ pool = "c""#,
        ],
    ),
    (
        "no option forwardfor",
        &[
            r#"- x_forwarded = { for = "append" }"#,
            r#"- [[route]] service = "f" path = "/c" pool = "c""#,
            "+ [[route]] service = \"f\" path = \"/c\" pool = \"c\" add_header = \
            [\"X-Forwarded-For: {client}\"]",
            "4 LOST: not imported: weir.toml has no equivalent",
            "6: not imported: the option is off in Weir too",
        ],
    ),
];

#[test]
fn forwardfor_of_frontend_and_backend_adds_one_header() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n option forwardfor\n use_backend c if { path /c }\n \
        {}\nbackend b\n mode http\n server a 10.0.0.5:80\nbackend c\n mode http\n option \
        forwardfor\n server a 10.0.0.6:80\n",
        FORWARDFOR_OF_FRONTEND_AND_BACKEND_ADDS_ONE_HEADER,
    );
}
