//! Tests `mirror` and `auth_request`.

use super::{Row, assert_added};

const SUBREQUEST: &str = "upstream a { server 10.0.0.5; }\n\
    upstream b { server 10.0.0.6; }\n\
    server {\n\
    listen 80;\n\
    location / { @@ proxy_pass http://a; }\n\
    location = /m { internal; proxy_pass http://b; }\n\
    location = /n { internal; proxy_pass https://10.0.0.7; }\n\
    location /set { internal; set $z z; proxy_pass http://b; }\n\
    location = /ret { internal; return 200; }\n\
    location = /rew { internal; rewrite ^ /x break; proxy_pass http://b; }\n\
    location = /if { internal; if ($http_x) { return 403; } proxy_pass http://b; }\n\
    location = /none { internal; }\n\
    }";

const SUBREQUEST_ROWS: &[Row] = &[
    (
        "mirror /m;",
        &[
            "route 8: pool = 'a'; mirror = { pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }",
        ],
    ),
    (
        "mirror /n;",
        &[
            "route 8: pool = 'a'; mirror = { pool = '10.0.0.7', body = 1048576, concurrent = 10000, path = '/n' }",
        ],
    ),
    (
        "mirror /m; mirror /n;",
        &[
            "route 8: pool = 'a'; mirror = [{ pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }, { \
            pool = '10.0.0.7', body = 1048576, concurrent = 10000, path = '/n' }]",
        ],
    ),
    ("mirror off;", &[]),
    ("mirror;", &["!5: not imported: the path is missing"]),
    (
        "mirror /other;",
        &["!5: not imported: no location has this path"],
    ),
    (
        "mirror /set;",
        &["!5: not imported: the mirror's location does more than proxy the copy to a server"],
    ),
    (
        "mirror /ret;",
        &["!5: not imported: the mirror's location has no `proxy_pass`"],
    ),
    (
        "mirror /rew;",
        &["!5: not imported: the mirror's location does more than proxy the copy to a server"],
    ),
    (
        "mirror /if;",
        &["!5: not imported: the mirror's location does more than proxy the copy to a server"],
    ),
    (
        "mirror /none;",
        &["!5: not imported: the mirror's location has no `proxy_pass`"],
    ),
    (
        "mirror /m; mirror_request_body off;",
        &[
            "route 8: pool = 'a'; mirror = { pool = 'b', body = 0, concurrent = 10000, path = '/m' }",
        ],
    ),
    (
        "mirror /m; mirror_request_body on;",
        &[
            "route 8: pool = 'a'; mirror = { pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }",
        ],
    ),
    (
        "mirror /m; client_max_body_size 0;",
        &[
            "route 8: pool = 'a'; max_body = 0; mirror = { pool = 'b', body = 16777216, concurrent = 10000, path = \
            '/m' }",
        ],
    ),
    (
        "mirror /m; client_max_body_size 2m;",
        &[
            "route 8: pool = 'a'; max_body = 2097152; mirror = { pool = 'b', body = 2097152, concurrent = 10000, \
            path = '/m' }",
        ],
    ),
    (
        "mirror /m; client_max_body_size 16m;",
        &[
            "route 8: pool = 'a'; max_body = 16777216; mirror = { pool = 'b', body = 16777216, concurrent = 10000, \
            path = '/m' }",
        ],
    ),
    (
        "mirror /m; client_max_body_size 17m;",
        &[
            "route 8: pool = 'a'; max_body = 17825792; mirror = { pool = 'b', body = 16777216, concurrent = 10000, \
            path = '/m' }",
        ],
    ),
    (
        "mirror /m; client_max_body_size x;",
        &[
            "!5: not imported: nginx requires a size",
            "route 8: pool = 'a'; mirror = { pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }",
        ],
    ),
    (
        "mirror /m; mirror /m; mirror /m; mirror /m; mirror /m; mirror /m; mirror /m; mirror /m;",
        &[
            "route 8: pool = 'a'; mirror = [{ pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }, { \
            pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }, { pool = 'b', body = 1048576, \
            concurrent = 10000, path = '/m' }, { pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }, { \
            pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }, { pool = 'b', body = 1048576, \
            concurrent = 10000, path = '/m' }, { pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }, { \
            pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }]",
        ],
    ),
    (
        "mirror /m; mirror /m; mirror /m; mirror /m; mirror /m; mirror /m; mirror /m; mirror /m; mirror /m;",
        &[
            "!5: not imported: Weir supports at most 8 mirrors per route",
            "route 8: pool = 'a'; mirror = [{ pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }, { \
            pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }, { pool = 'b', body = 1048576, \
            concurrent = 10000, path = '/m' }, { pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }, { \
            pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }, { pool = 'b', body = 1048576, \
            concurrent = 10000, path = '/m' }, { pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }, { \
            pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }]",
        ],
    ),
    (
        "mirror /m; proxy_set_header X-A b;",
        &[
            "route 8: pool = 'a'; set_header = ['X-A: b']; mirror = { pool = 'b', body = 1048576, concurrent = \
            10000, path = '/m' }",
        ],
    ),
    (
        "auth_request off;",
        &["5: not imported: this is nginx's default"],
    ),
    (
        "auth_request /m;",
        &["route 8: pool = 'a'; forward_auth = { pool = 'b', path = '/m', timeout = '60s' }"],
    ),
    (
        "auth_request /n;",
        &[
            "route 8: pool = 'a'; forward_auth = { pool = '10.0.0.7', path = '/n', timeout = '60s' }",
        ],
    ),
    (
        "auth_request;",
        &[
            "!!5: not imported: the path is missing",
            "route 8: status = 403",
        ],
    ),
    (
        "auth_request /other;",
        &[
            "!!5: not imported: no location has this path",
            "route 8: status = 403",
        ],
    ),
    (
        "auth_request /set;",
        &[
            "!!5: not imported: the subrequest's location does more than proxy the request to a server",
            "route 8: status = 403",
        ],
    ),
    (
        "auth_request /ret;",
        &[
            "!!5: not imported: the subrequest's location does more than proxy the request to a server",
            "route 8: status = 403",
        ],
    ),
    (
        "auth_request /rew;",
        &[
            "!!5: not imported: the subrequest's location does more than proxy the request to a server",
            "route 8: status = 403",
        ],
    ),
    (
        "auth_request /if;",
        &[
            "!!5: not imported: the subrequest's location does more than proxy the request to a server",
            "route 8: status = 403",
        ],
    ),
    (
        "auth_request /none;",
        &[
            "!!5: not imported: the subrequest's location has no `proxy_pass`",
            "route 8: status = 403",
        ],
    ),
];

#[test]
fn subrequests_become_mirrors_and_authorization() {
    assert_added(SUBREQUEST, SUBREQUEST_ROWS);
}

const MIRROR: &str = "upstream a { server 10.0.0.5; }\n\
    upstream b { server 10.0.0.6; }\n\
    server {\n\
    listen 80;\n\
    location / { mirror /m; proxy_pass http://a; }\n\
    location = /m { internal; @@ }\n\
    }";

const MIRROR_ROWS: &[Row] = &[
    (
        "proxy_pass http://b;",
        &[
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 1: pool = 'a'; mirror = { pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }",
        ],
    ),
    (
        "proxy_pass http://b$request_uri;",
        &[
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 1: pool = 'a'; mirror = { pool = 'b', body = 1048576, concurrent = 10000 }",
        ],
    ),
    (
        "proxy_pass http://b/y;",
        &[
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 1: pool = 'a'; mirror = { pool = 'b', body = 1048576, concurrent = 10000, path = '/y' }",
        ],
    ),
    (
        "proxy_pass http://b/y$request_uri;",
        &[
            "!5: not imported: `mirror` sends either the request path or a fixed path, not a combination of both",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
        ],
    ),
    (
        "proxy_pass b;",
        &[
            "!2: not imported: no directive that Weir supports uses this upstream",
            "!5: not imported: the target is not an http or https URL",
            "!!6: not imported: the target is not an http or https URL",
        ],
    ),
    (
        "proxy_pass http://b; proxy_pass_request_body off;",
        &[
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 1: pool = 'a'; mirror = { pool = 'b', body = 0, concurrent = 10000, path = '/m' }",
        ],
    ),
    (
        "proxy_pass http://b; proxy_pass_request_body on;",
        &[
            "6: not imported: this is nginx's default",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 1: pool = 'a'; mirror = { pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }",
        ],
    ),
    (
        "proxy_pass http://b; proxy_set_header X-A b;",
        &[
            "!!6: not imported: copies have the same header fields as the original requests",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 1: pool = 'a'; mirror = { pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }",
        ],
    ),
    (
        "proxy_pass http://b; proxy_set_header Host c;",
        &[
            "6: Weir already does this, or a key of the service or pool configures it",
            "[pool.b]; scheduler = 'wrr'; host = 'c'; servers = [{ address = '10.0.0.6:80' }]",
            "route 1: pool = 'a'; mirror = { pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }",
        ],
    ),
    (
        "proxy_pass https://10.0.0.7; proxy_ssl_verify on;",
        &[
            "[pool.'10.0.0.7']; tls = { verify = true }; host = '10.0.0.7'; servers = [{ address = '10.0.0.7:443' \
            }]",
            "route 1: pool = 'a'; mirror = { pool = '10.0.0.7', body = 1048576, concurrent = 10000, path = '/m' }",
        ],
    ),
];

#[test]
fn mirror_location_determines_the_target() {
    assert_added(MIRROR, MIRROR_ROWS);
}

const SPLIT: &str = "split_clients $remote_addr $copy { 10% b; * \"\"; }\n\
    split_clients $remote_addr $both { 10% b; * a; }\n\
    upstream a { server 10.0.0.5; }\n\
    upstream b { server 10.0.0.6; }\n\
    server {\n\
    listen 80;\n\
    location / { mirror /m; proxy_pass http://a; }\n\
    location /m { internal; @@ }\n\
    }";

const SPLIT_ROWS: &[Row] = &[
    (
        "if ($copy = \"\") { return 204; } proxy_pass http://$copy;",
        &[
            "1: the mirror's `percent` selects requests at random, not by the hash of a text",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 1: pool = 'a'; mirror = { pool = 'b', percent = 10.00, body = 1048576, concurrent = 10000, path \
            = '/m' }",
        ],
    ),
    (
        "if ($copy = \"\") { return 204; } proxy_pass http://$copy$request_uri;",
        &[
            "1: the mirror's `percent` selects requests at random, not by the hash of a text",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 1: pool = 'a'; mirror = { pool = 'b', percent = 10.00, body = 1048576, concurrent = 10000 }",
        ],
    ),
    (
        "if ($copy = \"\") { return 204; } proxy_pass http://${copy};",
        &[
            "1: the mirror's `percent` selects requests at random, not by the hash of a text",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 1: pool = 'a'; mirror = { pool = 'b', percent = 10.00, body = 1048576, concurrent = 10000, path \
            = '/m' }",
        ],
    ),
    (
        "proxy_pass http://$copy;",
        &[
            "1: the mirror's `percent` selects requests at random, not by the hash of a text",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 1: pool = 'a'; mirror = { pool = 'b', percent = 10.00, body = 1048576, concurrent = 10000, path \
            = '/m' }",
        ],
    ),
    (
        "proxy_pass http://$both;",
        &[
            "!7: not imported: `percent` accepts only one share, but `split_clients` selects several targets",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
        ],
    ),
    (
        "if ($both = \"\") { return 204; } proxy_pass http://$copy;",
        &[
            "!7: not imported: the mirror's location does more than proxy the copy to a server",
            "!!8: not imported: a route can only compare parts of the request",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
        ],
    ),
    (
        "if ($copy = \"x\") { return 204; } proxy_pass http://$copy;",
        &[
            "!7: not imported: the mirror's location does more than proxy the copy to a server",
            "!!8: not imported: a route can only compare parts of the request",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
        ],
    ),
    (
        "if ($copy) { return 204; } proxy_pass http://$copy;",
        &[
            "!7: not imported: the mirror's location does more than proxy the copy to a server",
            "!!8: not imported: a route can only compare parts of the request",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
        ],
    ),
    (
        "if ($copy = \"\") { return 204; break; } proxy_pass http://$copy;",
        &[
            "!7: not imported: the mirror's location does more than proxy the copy to a server",
            "!!8: not imported: a route can only compare parts of the request",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
        ],
    ),
    (
        "if ($copy = \"\") { break; } proxy_pass http://$copy;",
        &[
            "!7: not imported: the mirror's location does more than proxy the copy to a server",
            "!!8: not imported: a route can only compare parts of the request",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
        ],
    ),
    (
        "if ($copy = \"\") { return 204; } proxy_pass http://b;",
        &[
            "!7: not imported: the mirror's location does more than proxy the copy to a server",
            "!!8: not imported: a route can only compare parts of the request",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
        ],
    ),
    (
        "if ($host = b) { return 403; } proxy_pass http://$copy;",
        &[
            "!7: not imported: the mirror's location does more than proxy the copy to a server",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 0: host = 'b'; path = '/m*'; status = 403",
        ],
    ),
];

#[test]
fn split_in_a_mirror_location_becomes_percent() {
    assert_added(SPLIT, SPLIT_ROWS);
}

const PUBLIC_MIRROR: &str = "split_clients $remote_addr $copy { 10% b; * \"\"; }\n\
    upstream a { server 10.0.0.5; }\n\
    upstream b { server 10.0.0.6; }\n\
    server {\n\
    listen 80;\n\
    location / { mirror /m; proxy_pass http://a; }\n\
    location /m { @@ }\n\
    }";

const PUBLIC_MIRROR_ROWS: &[Row] = &[
    (
        "proxy_pass http://b;",
        &[
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 0: path = '/m*'; pool = 'b'",
            "route 1: pool = 'a'; mirror = { pool = 'b', body = 1048576, concurrent = 10000, path = '/m' }",
        ],
    ),
    (
        "if ($copy = \"\") { return 204; } proxy_pass http://$copy;",
        &[
            "1: the mirror's `percent` selects requests at random, not by the hash of a text",
            "!7: not imported: a route can only compare parts of the request",
            "!7: not imported: the split's variable is empty for some requests",
            "!7: it has no target that Weir supports; Weir responds with status 503",
            "[pool.b]; scheduler = 'wrr'; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 0: path = '/m*'; status = 503",
            "route 1: pool = 'a'; mirror = { pool = 'b', percent = 10.00, body = 1048576, concurrent = 10000, path \
            = '/m' }",
        ],
    ),
];

#[test]
fn mirror_location_without_internal_also_serves_clients() {
    assert_added(PUBLIC_MIRROR, PUBLIC_MIRROR_ROWS);
}

const FIELDS: &str = "server {\n\
    listen 80;\n\
    location / { auth_request /auth; @@ proxy_pass http://10.0.0.5; }\n\
    location = /auth { internal; proxy_pass http://10.0.0.9; }\n\
    }";

const FIELDS_ROWS: &[Row] = &[
    (
        "auth_request_set $user $upstream_http_x_user; proxy_set_header X-User $user;",
        &[
            "route 1: pool = '10.0.0.5'; forward_auth = { pool = '10.0.0.9', path = '/auth', timeout = '60s', \
            copy_header = ['X-User'] }",
        ],
    ),
    (
        "auth_request_set $user $upstream_http_x_user; proxy_set_header X-Name $user;",
        &[
            "route 1: pool = '10.0.0.5'; forward_auth = { pool = '10.0.0.9', path = '/auth', timeout = '60s', \
            copy_header = ['X-Name: x-user'] }",
        ],
    ),
    (
        "auth_request_set $user $upstream_http_x_user; auth_request_set $a $upstream_http_x_a; proxy_set_header \
        X-User $user;",
        &[
            "!!3: not imported: it does not protect any imported route",
            "route 1: pool = '10.0.0.5'; forward_auth = { pool = '10.0.0.9', path = '/auth', timeout = '60s', \
            copy_header = ['X-User'] }",
        ],
    ),
    (
        "auth_request_set $user $upstream_status; proxy_set_header X-User $user;",
        &[
            "!!3: not imported: the value contains an unsupported variable or a name in braces",
            "!!3: not imported: it does not protect any imported route",
        ],
    ),
    (
        "auth_request_set $user $upstream_http_x_user; proxy_set_header X-B c;",
        &[
            "!!3: not imported: it does not protect any imported route",
            "route 1: pool = '10.0.0.5'; set_header = ['X-B: c']; forward_auth = { pool = '10.0.0.9', path = \
            '/auth', timeout = '60s' }",
        ],
    ),
    (
        "auth_request off;",
        &[
            "3: not imported: this is nginx's default",
            "!!3: not imported: it does not protect any imported route",
            "route 1: status = 403",
        ],
    ),
    (
        "auth_request /other;",
        &[
            "!!3: not imported: no location has this path",
            "!!3: not imported: it does not protect any imported route",
            "route 1: status = 403",
        ],
    ),
];

#[test]
fn fields_of_the_authorization_response_are_copied() {
    assert_added(FIELDS, FIELDS_ROWS);
}

const AUTHORIZATION: &str = "server {\n\
    listen 80;\n\
    location / { auth_request /auth; proxy_pass http://10.0.0.5; }\n\
    location /auth { internal; @@ proxy_pass http://10.0.0.9/verify; }\n\
    location = /m { internal; proxy_pass http://10.0.0.8; }\n\
    }";

const AUTHORIZATION_ROWS: &[Row] = &[
    (
        "proxy_read_timeout 5s;",
        &[
            "route 2: pool = '10.0.0.5'; forward_auth = { pool = '10.0.0.9', path = '/verify', timeout = '5s' }",
        ],
    ),
    (
        "proxy_read_timeout 60s;",
        &[
            "route 2: pool = '10.0.0.5'; forward_auth = { pool = '10.0.0.9', path = '/verify', timeout = '1m' }",
        ],
    ),
    (
        "proxy_read_timeout 1ms;",
        &[
            "!!4: not imported: server is out of range",
            "route 2: pool = '10.0.0.5'; forward_auth = { pool = '10.0.0.9', path = '/verify', timeout = '1ms' }",
        ],
    ),
    ("proxy_read_timeout 61s;", &[]),
    (
        "proxy_read_timeout 0;",
        &["!!4: not imported: Weir requires a valid time above 0"],
    ),
    (
        "proxy_read_timeout x;",
        &["!!4: not imported: Weir requires a valid time above 0"],
    ),
    (
        "proxy_read_timeout;",
        &["!!4: not imported: Weir requires a valid time above 0"],
    ),
    (
        "proxy_set_header X-A $request_uri;",
        &[
            "route 2: pool = '10.0.0.5'; forward_auth = { pool = '10.0.0.9', path = '/verify', timeout = '60s', \
            set_header = ['X-A: {path}'] }",
        ],
    ),
    ("proxy_set_header X-A \"\";", &[]),
    (
        "proxy_set_header X-A;",
        &["!!4: not imported: the field or its value is missing"],
    ),
    (
        "proxy_set_header Host b;",
        &[
            "4: Weir already does this, or a key of the service or pool configures it",
            "[pool.'10.0.0.9']; host = 'b'",
        ],
    ),
    ("proxy_set_header Content-Type b;", &[]),
    (
        "proxy_set_header Connection close;",
        &["4: Weir already does this, or a key of the service or pool configures it"],
    ),
    (
        "proxy_set_header Upgrade $http_upgrade;",
        &["4: Weir already does this, or a key of the service or pool configures it"],
    ),
    ("proxy_set_header X-Forwarded-For $remote_addr;", &[]),
    (
        "proxy_set_header X-A $geoip_country;",
        &[
            "!!3: not imported: the subrequest's field X-A contains an unsupported variable or a name in braces",
            "!!4: not imported: the value contains an unsupported variable or a name in braces",
            "route 2: status = 403",
        ],
    ),
];

#[test]
fn authorization_location_determines_forward_auth() {
    assert_added(AUTHORIZATION, AUTHORIZATION_ROWS);
}

const LEVELS: &str = "auth_request /x;\n\
    server {\n\
    listen 80;\n\
    @@\n\
    location / { proxy_pass http://10.0.0.5; }\n\
    location = /auth { internal; proxy_pass https://10.0.0.9; proxy_ssl_name c; }\n\
    location = /x { internal; proxy_pass http://10.0.0.8; }\n\
    }";

const LEVELS_ROWS: &[Row] = &[
    (
        "auth_request /auth;",
        &[
            "!!1: not imported: it does not protect any imported route",
            "route 2: pool = '10.0.0.5'; forward_auth = { pool = '10.0.0.9', path = '/auth', timeout = '60s' }",
        ],
    ),
    (
        "auth_request off;",
        &[
            "!!1: not imported: it does not protect any imported route",
            "4: not imported: this is nginx's default",
        ],
    ),
];

#[test]
fn innermost_authorization_applies() {
    assert_added(LEVELS, LEVELS_ROWS);
}
