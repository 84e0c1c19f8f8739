//! Tests lines of locations: missing files, settings, limits and access.

use super::{Row, assert_added};

const FILES: &str = "upstream a { server 10.0.0.5; }\n\
    upstream b { server 10.0.0.6; }\n\
    server {\n\
    listen 80;\n\
    root /srv;\n\
    location / { @@ }\n\
    location @b { proxy_pass http://b; }\n\
    location @c { proxy_pass http://b; proxy_set_header X-A b; add_header X-B c; }\n\
    location @if { if ($host = b) { return 403; } proxy_pass http://b; }\n\
    location @files { root /x; }\n\
    location = /page { proxy_pass http://a; }\n\
    location = /static { root /y; }\n\
    location /pages/ { proxy_pass http://a/p/; }\n\
    }";

const FILES_ROWS: &[Row] = &[
    (
        "try_files $uri @b;",
        &[
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 3: files = { root = '/srv', try = ['{path}'], pool = 'b' }",
        ],
    ),
    (
        "try_files $uri @c;",
        &[
            "!8: a route's responses with files have the same header fields as its responses from the pool: those \
            of the named location",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 3: files = { root = '/srv', try = ['{path}'], pool = 'b' }; set_header = ['X-A: b']; \
            add_response_header = [{ header = 'X-B: c', status = '200-201,204,206,301-304,307-308' }]",
        ],
    ),
    (
        "try_files $uri @c; add_header X-B c;",
        &[
            "!6: not imported: it does not apply to any imported route to a pool",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 3: files = { root = '/srv', try = ['{path}'], pool = 'b' }; set_header = ['X-A: b']; \
            add_response_header = [{ header = 'X-B: c', status = '200-201,204,206,301-304,307-308' }]",
        ],
    ),
    (
        "try_files $uri @c; add_header X-B d;",
        &[
            "!6: a route's responses with files have the same header fields as its responses from the pool: those \
            of the named location",
            "!8: a route's responses with files have the same header fields as its responses from the pool: those \
            of the named location",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 3: files = { root = '/srv', try = ['{path}'], pool = 'b' }; set_header = ['X-A: b']; \
            add_response_header = [{ header = 'X-B: c', status = '200-201,204,206,301-304,307-308' }]",
        ],
    ),
    (
        "try_files $uri =404;",
        &["route 3: files = { root = '/srv', try = ['{path}'] }"],
    ),
    (
        "error_page 404 = @b;",
        &[
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 3: files = { root = '/srv', pool = 'b' }",
        ],
    ),
    (
        "error_page 404 =@b;",
        &["!6: not imported: a service's `error_pages` accepts only files and fixed URLs"],
    ),
    (
        "error_page 403 = @b;",
        &["!6: not imported: a service's `error_pages` accepts only files and fixed URLs"],
    ),
    (
        "error_page 403 404 = @b;",
        &["!6: not imported: a service's `error_pages` accepts only files and fixed URLs"],
    ),
    (
        "error_page 404 = /page;",
        &[
            "route 3: method = ['GET', 'HEAD']; files = { root = '/srv', pool = 'a' }; rewrite = '/page?'; \
            response_status = 404",
        ],
    ),
    (
        "error_page 404 /page;",
        &[
            "route 3: method = ['GET', 'HEAD']; files = { root = '/srv', pool = 'a' }; rewrite = '/page?'; \
            response_status = 404",
        ],
    ),
    (
        "error_page 403 404 /page;",
        &[
            "route 3: method = ['GET', 'HEAD']; files = { root = '/srv', pool = 'a' }; rewrite = '/page?'; \
            response_status = 404",
        ],
    ),
    (
        "error_page 403 /page;",
        &["!6: not imported: a service's `error_pages` accepts only files and fixed URLs"],
    ),
    (
        "error_page 404 =200 /page;",
        &["!6: not imported: a service's `error_pages` accepts only files and fixed URLs"],
    ),
    (
        "error_page 404 x /page;",
        &["!6: not imported: a service's `error_pages` accepts only files and fixed URLs"],
    ),
    (
        "error_page 404 page;",
        &["!6: not imported: a service's `error_pages` accepts only files and fixed URLs"],
    ),
    (
        "error_page 404 /static;",
        &["!6: not imported: a service's `error_pages` accepts only files and fixed URLs"],
    ),
    (
        "error_page 404 /pages/a.html;",
        &["!6: not imported: a service's `error_pages` accepts only files and fixed URLs"],
    ),
    (
        "error_page 404 /none;",
        &["!6: not imported: a service's `error_pages` accepts only files and fixed URLs"],
    ),
    (
        "error_page 404 @b;",
        &["!6: not imported: a service's `error_pages` accepts only files and fixed URLs"],
    ),
    (
        "error_page 404 /page; add_header X-B c;",
        &[
            "route 3: method = ['GET', 'HEAD']; files = { root = '/srv', pool = 'a' }; add_response_header = [{ \
            header = 'X-B: c', status = '200-201,204,206,301-304,307-308' }]; rewrite = '/page?'; response_status \
            = 404",
            "route 4: files = { root = '/srv' }; add_response_header = [{ header = 'X-B: c', status = \
            '200-201,204,206,301-304,307-308' }]",
        ],
    ),
    (
        "error_page 404 /page; add_header X-B c always;",
        &[
            "!6: responses with files and those with the `error_page` page have the header fields of the location \
            of the files",
            "route 3: method = ['GET', 'HEAD']; files = { root = '/srv', pool = 'a' }; add_response_header = \
            ['X-B: c']; rewrite = '/page?'; response_status = 404",
            "route 4: files = { root = '/srv' }; add_response_header = ['X-B: c']",
        ],
    ),
    (
        "error_page 403 @b; error_page 404 = @b;",
        &[
            "!6: not imported: a service's `error_pages` accepts only files and fixed URLs",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 3: files = { root = '/srv', pool = 'b' }",
        ],
    ),
    (
        "try_files $uri @b; proxy_pass http://a;",
        &[
            "!5: not imported: no imported route with `files` or a fixed response uses it",
            "!6: not imported: no imported route with `files` or a fixed response uses it",
            "[service.nginx-80]; pool = 'a'",
        ],
    ),
    (
        "try_files $uri @b; fastcgi_pass a;",
        &[
            "!5: not imported: no imported route with `files` or a fixed response uses it",
            "!6: it has no target that Weir supports; Weir responds with status 503",
            "!6: not imported: no imported route with `files` or a fixed response uses it",
            "!6: not imported: Weir supports only HTTP servers",
            "route 3: status = 503",
        ],
    ),
    (
        "try_files $uri @b; internal;",
        &[
            "!5: not imported: no imported route with `files` or a fixed response uses it",
            "!!6: not imported: no imported route with `files` or a fixed response uses it",
            "route 3: status = 404",
        ],
    ),
    (
        "try_files $uri @b; return 403;",
        &[
            "!5: not imported: no imported route with `files` or a fixed response uses it",
            "!!6: not imported: no imported route with `files` or a fixed response uses it",
            "route 3: status = 403",
        ],
    ),
    (
        "error_page 404 = @b; root /z;",
        &[
            "!5: not imported: no imported route with `files` or a fixed response uses it",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 3: files = { root = '/z', pool = 'b' }",
        ],
    ),
];

#[test]
fn requests_for_missing_files_go_to_a_pool() {
    assert_added(FILES, FILES_ROWS);
}

const NO_FILES: &str = "upstream b { server 10.0.0.6; }\n\
    server {\n\
    listen 80;\n\
    location / { @@ }\n\
    location @b { proxy_pass http://b; }\n\
    location @x { proxy_pass http://b/x/; }\n\
    location /plain { proxy_pass http://b; }\n\
    }";

const NO_FILES_ROWS: &[Row] = &[
    ("try_files $uri @b;", &["[service.nginx-80]; pool = 'b'"]),
    (
        "try_files $uri @x;",
        &["!4: not imported: no imported route with `files` or a fixed response uses it"],
    ),
    (
        "try_files $uri /plain;",
        &["!4: not imported: no imported route with `files` or a fixed response uses it"],
    ),
    ("error_page 404 = @b;", &["[service.nginx-80]; pool = 'b'"]),
    (
        "try_files $uri =404;",
        &["!4: not imported: no imported route with `files` or a fixed response uses it"],
    ),
];

#[test]
fn pool_for_missing_files_needs_no_directory() {
    assert_added(NO_FILES, NO_FILES_ROWS);
}

const SETTINGS: &str = "server {\n\
    listen 80;\n\
    location / { @@ proxy_pass http://10.0.0.5; }\n\
    location /b { proxy_pass http://10.0.0.5; }\n\
    }";

const SETTINGS_ROWS: &[Row] = &[
    (
        "client_body_timeout 5s;",
        &["route 1: pool = '10.0.0.5'; timeouts = { client = '5s' }"],
    ),
    (
        "send_timeout 5s;",
        &["route 1: pool = '10.0.0.5'; timeouts = { client = '5s' }"],
    ),
    (
        "client_body_timeout 5s; send_timeout 6s;",
        &[
            "3: not imported: `timeouts.client` applies to both directions",
            "route 1: pool = '10.0.0.5'; timeouts = { client = '5s' }",
        ],
    ),
    (
        "proxy_connect_timeout 5s;",
        &["route 1: pool = '10.0.0.5'; timeouts = { connect = '5s' }"],
    ),
    (
        "proxy_read_timeout 5s;",
        &["route 1: pool = '10.0.0.5'; timeouts = { server = '5s' }"],
    ),
    (
        "proxy_send_timeout 5s;",
        &["route 1: pool = '10.0.0.5'; timeouts = { server = '5s' }"],
    ),
    (
        "proxy_read_timeout 5s; proxy_send_timeout 6s;",
        &[
            "3: not imported: `timeouts.server` applies to both directions",
            "route 1: pool = '10.0.0.5'; timeouts = { server = '5s' }",
        ],
    ),
    (
        "proxy_read_timeout 0;",
        &["!3: not imported: Weir requires a valid time above 0"],
    ),
    (
        "proxy_read_timeout x;",
        &["!3: not imported: Weir requires a valid time above 0"],
    ),
    (
        "proxy_read_timeout 1s;",
        &["route 1: pool = '10.0.0.5'; timeouts = { server = '1s' }"],
    ),
    (
        "client_max_body_size 1m;",
        &["route 1: pool = '10.0.0.5'; max_body = 1048576"],
    ),
    (
        "proxy_next_upstream error;",
        &["route 1: pool = '10.0.0.5'; retry_on = ['connect', 'empty']"],
    ),
    (
        "proxy_next_upstream_tries 3;",
        &["route 1: pool = '10.0.0.5'; retries = 2"],
    ),
    (
        "gzip on;",
        &[
            "route 1: pool = '10.0.0.5'; compression = { codings = ['gzip'], types = ['text/html'], minimum = 20 }",
        ],
    ),
    (
        "gzip on; gzip_types text/css;",
        &[
            "route 1: pool = '10.0.0.5'; compression = { codings = ['gzip'], types = ['text/html', 'text/css'], \
            minimum = 20 }",
        ],
    ),
    ("gzip off;", &[]),
    (
        "gzip_types text/css;",
        &["!3: not imported: `compression` has no such setting"],
    ),
    (
        "gzip_min_length 100;",
        &["!3: not imported: `compression` has no such setting"],
    ),
    (
        "auth_basic x; auth_basic_user_file /etc/p;",
        &["route 1: pool = '10.0.0.5'; basic_auth = { file = '/etc/p', realm = 'x' }"],
    ),
    (
        "auth_basic \"a b\"; auth_basic_user_file p;",
        &["route 1: pool = '10.0.0.5'; basic_auth = { file = '/etc/nginx/p', realm = 'a b' }"],
    ),
    ("auth_basic off; auth_basic_user_file p;", &[]),
    (
        "auth_basic x;",
        &["3: not imported: without `auth_basic_user_file`, nginx admits every client"],
    ),
    (
        "auth_basic x; auth_basic_user_file;",
        &["3: not imported: without `auth_basic_user_file`, nginx admits every client"],
    ),
    (
        "auth_basic_user_file p;",
        &["!3: not imported: it does not protect any imported route"],
    ),
];

#[test]
fn settings_of_a_location_become_keys_of_its_route() {
    assert_added(SETTINGS, SETTINGS_ROWS);
}

const INHERITED: &str = "server {\n\
    listen 80;\n\
    @@\n\
    location / { proxy_pass http://10.0.0.5; }\n\
    location /b { gzip on; auth_basic off; proxy_read_timeout 9s; proxy_pass http://10.0.0.5; }\n\
    location /c { gzip off; auth_basic b; proxy_pass http://10.0.0.5; }\n\
    }";

const INHERITED_ROWS: &[Row] = &[
    (
        "proxy_read_timeout 5s;",
        &["[service.nginx-80]; timeouts = { server = '5s' }"],
    ),
    (
        "client_body_timeout 5s;",
        &["[service.nginx-80]; timeouts = { client = '5s' }"],
    ),
    (
        "gzip on;",
        &[
            "[service.nginx-80]; compression = { codings = ['gzip'], types = ['text/html'], minimum = 20 }",
            "route 1: path = '/c*'; pool = '10.0.0.5'; compression = false",
        ],
    ),
    ("gzip off;", &[]),
    (
        "auth_basic x; auth_basic_user_file /etc/p;",
        &[
            "route 1: path = '/c*'; pool = '10.0.0.5'; basic_auth = { file = '/etc/p', realm = 'b' }",
            "route 2: pool = '10.0.0.5'; basic_auth = { file = '/etc/p', realm = 'x' }",
        ],
    ),
    (
        "auth_basic_user_file /etc/p;",
        &[
            "route 1: path = '/c*'; pool = '10.0.0.5'; basic_auth = { file = '/etc/p', realm = 'b' }",
        ],
    ),
    (
        "auth_basic x; auth_basic_user_file /etc/p; auth_basic y; auth_basic_user_file /etc/q;",
        &[
            "!!3: not imported: it does not protect any imported route",
            "route 1: path = '/c*'; pool = '10.0.0.5'; basic_auth = { file = '/etc/q', realm = 'b' }",
            "route 2: pool = '10.0.0.5'; basic_auth = { file = '/etc/q', realm = 'y' }",
        ],
    ),
];

#[test]
fn locations_inherit_authentication_and_override_settings() {
    assert_added(INHERITED, INHERITED_ROWS);
}

const LIMITS: &str = "limit_req_zone $binary_remote_addr zone=q:1m rate=10r/s;\n\
    limit_conn_zone $binary_remote_addr zone=c:1m;\n\
    server {\n\
    listen 80;\n\
    @@\n\
    location / { proxy_pass http://10.0.0.5; }\n\
    }";

const LIMITS_ROWS: &[Row] = &[
    (
        "location /l { limit_req zone=q burst=5 nodelay; proxy_pass http://10.0.0.5; }",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path = '/l*'; pool = '10.0.0.5'; limits = { rate = 10, burst = 6 }",
        ],
    ),
    (
        "location /l { limit_conn c 5; proxy_pass http://10.0.0.5; }",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path = '/l*'; pool = '10.0.0.5'; limits = { concurrent = 5 }",
        ],
    ),
    (
        "limit_req zone=q burst=5 nodelay; location /l { limit_req zone=q burst=9 nodelay; proxy_pass \
        http://10.0.0.5; }",
        &[
            "!!5: not imported: a limit applies to one service or route, and rejected requests get status 429; \
            several services or routes cannot share a zone",
            "[service.nginx-80]; limits = { rate = 10, burst = 6 }; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path = '/l*'; pool = '10.0.0.5'",
        ],
    ),
    (
        "limit_req zone=q burst=5 nodelay;",
        &["[service.nginx-80]; limits = { rate = 10, burst = 6 }"],
    ),
];

#[test]
fn limits_become_limits_of_services_and_routes() {
    assert_added(LIMITS, LIMITS_ROWS);
}
