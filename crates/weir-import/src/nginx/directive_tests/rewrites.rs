//! Tests `if`, `return`, `rewrite` and `proxy_pass`.

use super::{Row, assert_added};

const SERVER: &str = "upstream a { server 10.0.0.5; }\n\
    server {\n\
    listen 80;\n\
    @@\n\
    location / { proxy_pass http://a; }\n\
    }";

const SERVER_ROWS: &[Row] = &[
    (
        "if ($http_x = y) { return 403; }",
        &["route 0: header = ['x: y']; status = 403"],
    ),
    (
        "if ($host = b) { rewrite ^ https://c/d permanent; }",
        &["route 0: host = 'b'; redirect = 'https://c/d'; status = 301"],
    ),
    (
        "if ($host = b) { rewrite ^/(.*)$ /c/$1 last; }",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: host = 'b'; rewrite = { regex = '^/(.*)$', to = '/c/{1}' }; restart = 'next'",
        ],
    ),
    (
        "if ($host = b) { rewrite ^/c/(.*)$ /d/$1 break; proxy_pass http://10.0.0.6; }",
        &[
            "[pool.'10.0.0.6']; host = '10.0.0.6'; servers = [{ address = '10.0.0.6:80' }]",
            "route 0: host = 'b'; path_regex = '^/c/(.*)$'; pool = '10.0.0.6'; rewrite = '/d/{1}'",
            "route 1: host = 'b'; pool = '10.0.0.6'",
        ],
    ),
    (
        "if ($host = b) { proxy_pass http://10.0.0.6; return 403; }",
        &[
            "!!4: not imported: an earlier directive determines the action",
            "route 0: host = 'b'; status = 403",
        ],
    ),
    ("if ($host = b) { set $x 1; }", &[]),
    (
        "return 301 https://$host$request_uri;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 0: redirect = 'https://{host}{path}'; status = 301",
        ],
    ),
    (
        "return https://b/;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 0: redirect = 'https://b/'",
        ],
    ),
    ("return 302;", &["!4: not imported: the target is missing"]),
    (
        "return;",
        &["!4: not imported: it has neither a status nor a target"],
    ),
    (
        "return 444;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 0: close = true",
        ],
    ),
    (
        "return 404;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 0: status = 404",
        ],
    ),
    (
        "return 200 \"a $host $request_uri\";",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 0: status = 200; body = 'a {host} {path}?{query}'",
        ],
    ),
    (
        "return 199;",
        &["!4: not imported: invalid response status 199"],
    ),
    (
        "return 600;",
        &["!4: not imported: invalid response status 600"],
    ),
    (
        "return 200 $geoip_country;",
        &["!4: not imported: the text contains an unsupported variable or a name in braces"],
    ),
    (
        "return 308 $geoip_country;",
        &["!4: not imported: the target contains an unsupported variable or a name in braces"],
    ),
    (
        "return 303 /x$uri$is_args$args;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 0: redirect = '/x{path}'; status = 303",
        ],
    ),
    (
        "rewrite ^ https://b$request_uri? permanent;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 0: redirect = 'https://b{path}'; status = 301",
        ],
    ),
    (
        "rewrite ^/(.*)$ https://b/$1 redirect;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/(.*)$'; redirect = 'https://b/{1}?{query}'",
            "route 1: status = 404",
        ],
    ),
    (
        "rewrite ^(.*)$ https://b$1 permanent;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^(.*)$'; redirect = 'https://b{1}?{query}'; status = 301",
            "route 1: status = 404",
        ],
    ),
    (
        "rewrite ^ /b break;",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: rewrite = { regex = '^', to = '/b' }; restart = 'next'",
        ],
    ),
    (
        "rewrite ^ /b last;",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: rewrite = { regex = '^', to = '/b' }; restart = 'next'",
        ],
    ),
    (
        "rewrite ^/b$ /c permanent;",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/b$'; redirect = '/c?{query}'; status = 301",
        ],
    ),
    (
        "rewrite ^/b$ /c permanent; rewrite ^/d$ /e redirect;",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/b$'; redirect = '/c?{query}'; status = 301",
            "route 1: path_regex = '^/d$'; redirect = '/e?{query}'",
        ],
    ),
    (
        "rewrite ^/b$ /c; rewrite ^/c$ /d permanent;",
        &[
            "!4: not imported: a route rewrites a path only as the last step, like `break`",
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: rewrite = { regex = '^/b$', to = '/c' }; restart = 'next'",
        ],
    ),
    (
        "rewrite ^/b$ /c last; rewrite ^/d$ /e last;",
        &[
            "!4: not imported: nginx does not apply the later rules of the server block to the new path, but Weir \
            would",
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: rewrite = { regex = '^/d$', to = '/e' }; restart = 'next'",
        ],
    ),
    (
        "rewrite ^/b$ /c; rewrite ^/d$ /e last;",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: rewrite = { regex = '^/b$', to = '/c' }; restart = 'next'",
            "route 1: rewrite = { regex = '^/d$', to = '/e' }; restart = 'next'",
        ],
    ),
    (
        "rewrite ^/b$ /c last; return 403;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "!!4: not imported: nginx does not apply the later rules of the server block to the new path, but Weir \
            would",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 0: status = 403",
        ],
    ),
    (
        "rewrite ^/(.*)$ https://b/$1 permanent; return 403;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "!!4: not imported: an earlier directive determines the action",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/(.*)$'; redirect = 'https://b/{1}?{query}'; status = 301",
            "route 1: redirect = 'https://b{path}'; status = 301",
        ],
    ),
    (
        "return 403; return 404;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "!!4: not imported: an earlier directive determines the action",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 0: status = 403",
        ],
    ),
    (
        "rewrite ^/b;",
        &["!4: not imported: nginx requires a regular expression and a replacement"],
    ),
    (
        "rewrite ^/b $geoip_country permanent;",
        &["!4: not imported: a route rewrites a path only as the last step, like `break`"],
    ),
    (
        "rewrite ^/a/(.*) /b/$1 last; if ($host = x) { return 403; }",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: host = 'x'; status = 403",
            "route 1: rewrite = { regex = '^/a/(.*)', to = '/b/{1}' }; restart = 'next'",
        ],
    ),
    (
        "if ($host = b) { rewrite ^/c$ /d last; } rewrite ^/d$ /e last;",
        &[
            "!4: not imported: in Weir, rules of the server block would also apply to the new path",
            "!4: not imported: the block contains no action that Weir supports",
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: rewrite = { regex = '^/d$', to = '/e' }; restart = 'next'",
        ],
    ),
    (
        "if ($host = b) { rewrite ^/c$ /d last; } if ($host = e) { return 403; }",
        &[
            "!!4: not imported: in Weir, rules of the server block would also apply to the new path",
            "!!4: not imported: the block contains no action that Weir supports",
            "route 0: host = 'e'; status = 403",
        ],
    ),
    (
        "rewrite ^/a$ /b?c=d permanent;",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/a$'; redirect = '/b?c=d&{query}'; status = 301",
        ],
    ),
    (
        "rewrite ^/a$ /b? last;",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: rewrite = { regex = '^/a$', to = '/b?' }; restart = 'next'",
        ],
    ),
    (
        "rewrite (broken permanent;",
        &["!4: not imported: a route rewrites a path only as the last step, like `break`"],
    ),
    (
        "rewrite ^ $scheme://b/ last;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "5: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^'; redirect = 'http://b/?{query}'",
            "route 1: status = 404",
        ],
    ),
    (
        "proxy_pass http://10.0.0.6;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "5: not imported: nginx responds before it selects a location",
            "[pool.'10.0.0.6']; host = '10.0.0.6'; servers = [{ address = '10.0.0.6:80' }]",
            "[service.nginx-80]; pool = '10.0.0.6'",
        ],
    ),
    (
        "rewrite ^/b$ /c permanent; location /l { proxy_pass http://a; }",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/b$'; redirect = '/c?{query}'; status = 301",
            "route 1: path = '/l*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/b$ /c last; location /l { proxy_pass http://a; }",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: rewrite = { regex = '^/b$', to = '/c' }; restart = 'next'",
            "route 1: path = '/l*'; pool = 'a'",
        ],
    ),
    (
        "if ($host = b) { return 403; } location = /l { proxy_pass http://a; }",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: host = 'b'; status = 403",
            "route 1: path = '/l'; pool = 'a'",
        ],
    ),
    (
        "if ($host = b) { return 403; } if ($host = c) { rewrite ^/c$ /d last; }",
        &[
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: host = 'b'; status = 403",
            "route 1: host = 'c'; rewrite = { regex = '^/c$', to = '/d' }; restart = 'next'",
        ],
    ),
    (
        "if ($host = c) { rewrite ^/c$ /d last; } location /l { rewrite ^/l/a$ /m last; proxy_pass http://a; }",
        &[
            "!4: not imported: an earlier rule of the location, or a rule of the server block, would apply to the \
            new path",
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: host = 'c'; rewrite = { regex = '^/c$', to = '/d' }; restart = 'next'",
            "route 1: path = '/l*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/c$ /d last; location /l { rewrite ^/l/a$ /m last; proxy_pass http://a; }",
        &[
            "!4: not imported: an earlier rule of the location, or a rule of the server block, would apply to the \
            new path",
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: rewrite = { regex = '^/c$', to = '/d' }; restart = 'next'",
            "route 1: path = '/l*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/c$ /d last; location /l { if ($host = b) { rewrite ^/l/a$ /m last; } proxy_pass http://a; }",
        &[
            "!4: not imported: in Weir, rules of the server block would also apply to the new path",
            "!4: not imported: the block contains no action that Weir supports",
            "[service.nginx-80]; normalize_path = { encoded_slash = 'decode' }",
            "route 0: rewrite = { regex = '^/c$', to = '/d' }; restart = 'next'",
            "route 1: path = '/l*'; pool = 'a'",
        ],
    ),
];

#[test]
fn lines_of_a_server_block_become_routes() {
    assert_added(SERVER, SERVER_ROWS);
}

const ROOT_LOCATION: &str = "upstream a { server 10.0.0.5; }\n\
    server {\n\
    listen 80;\n\
    server_name s.example;\n\
    location / { @@ }\n\
    }";

const ROOT_LOCATION_ROWS: &[Row] = &[
    (
        "proxy_pass http://a;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; pool = 'a'",
        ],
    ),
    (
        "proxy_pass http://a/;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; pool = 'a'; normalize_path = { forward = 'normalized' }",
        ],
    ),
    (
        "proxy_pass http://a/y/;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "route 0: pool = 'a'; rewrite = '/y{path}'",
        ],
    ),
    (
        "proxy_pass http://a/y;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "!5: not imported: a route's `rewrite` cannot express the new path",
            "!5: it has no target that Weir supports; Weir responds with status 503",
            "route 0: status = 503",
        ],
    ),
    (
        "proxy_pass http://a/; } location /b { proxy_pass http://a;",
        &[
            "!5: servers get the path as received, not normalized, because another `proxy_pass` requires it",
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; pool = 'a'; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path = '/b*'; pool = 'a'",
        ],
    ),
    (
        "proxy_pass http://a/; } location ~ ^/v/(.*)$ { proxy_pass http://a/$1;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; pool = 'a'; normalize_path = { encoded_slash = 'decode', forward = \
            'normalized' }",
            "route 0: path_regex = '^/v/(.*)$'; pool = 'a'; rewrite = '/{1}?'",
        ],
    ),
    (
        "proxy_pass http://a/; } location /b { proxy_pass http://a/;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; pool = 'a'; normalize_path = { encoded_slash = 'decode', forward = \
            'normalized' }",
            "route 0: path = '/b*'; pool = 'a'; rewrite = '/{rest}'",
        ],
    ),
    (
        "proxy_pass http://a; } location /b { proxy_pass http://a/;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; pool = 'a'; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path = '/b*'; pool = 'a'; rewrite = '/{rest}'",
        ],
    ),
    (
        "proxy_pass http://a/y/; } location /b { proxy_pass http://a/b;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path = '/b*'; pool = 'a'; rewrite = '/b{rest}'",
            "route 1: pool = 'a'; rewrite = '/y{path}'",
        ],
    ),
    (
        "} location ~ ^/v/(.*)$ { proxy_pass http://a/$1;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/v/(.*)$'; pool = 'a'; rewrite = '/{1}?'",
        ],
    ),
    (
        "} location ~ ^/v/(.*)$ { proxy_pass http://a/$1$is_args$args;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/v/(.*)$'; pool = 'a'; rewrite = '/{1}'",
        ],
    ),
    (
        "} location ~ ^/v/(.*)$ { proxy_pass http://a/$1?b=c;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "!5: not imported: Weir adds the query of the request to that of the new path",
            "!5: it has no target that Weir supports; Weir responds with status 503",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/v/(.*)$'; status = 503",
        ],
    ),
    (
        "} location ~ ^/v/(.*)$ { proxy_pass http://$1/b;",
        &[
            "!5: not imported: the target is computed, but a route's pool is fixed",
            "!5: it has no target that Weir supports; Weir responds with status 503",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/v/(.*)$'; status = 503",
        ],
    ),
    (
        "} location ~ ^/v/(.*)$ { proxy_pass http://a$1;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "!5: not imported: the target is computed, but a route's pool is fixed",
            "!5: it has no target that Weir supports; Weir responds with status 503",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/v/(.*)$'; status = 503",
        ],
    ),
    (
        "} location ~ ^/v/(.*)$ { proxy_pass http://10.0.0.6/w/$1/$geoip_country;",
        &[
            "!5: not imported: the path contains an unsupported variable or a name in braces",
            "!5: it has no target that Weir supports; Weir responds with status 503",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/v/(.*)$'; status = 503",
        ],
    ),
    (
        "} location ~ ^/v/(.*)$ { proxy_pass a/$1;",
        &[
            "!1: not imported: no directive that Weir supports uses this upstream",
            "!5: not imported: the target is computed, but a route's pool is fixed",
            "!5: it has no target that Weir supports; Weir responds with status 503",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/v/(.*)$'; status = 503",
        ],
    ),
    (
        "} location ~ ^/v/(?<n>.*)$ { proxy_pass http://a/n/$n/$server_name;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/v/(?<n>.*)$'; pool = 'a'; rewrite = '/n/{1}/s.example?'",
        ],
    ),
    (
        "} location ~ ^/v/(.*)$ { rewrite ^/v/a$ /w permanent; proxy_pass http://a;",
        &[
            "!5: not imported: a route rewrites a path only as the last step, like `break`",
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/v/(.*)$'; pool = 'a'",
        ],
    ),
    (
        "} location ~ ^/v/(.*)$ { rewrite ^/v/a$ /w last; proxy_pass http://a;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '^/v/(.*)$'; rewrite = { regex = '^/v/a$', to = '/w' }; restart = 'first'",
            "route 1: path_regex = '^/v/(.*)$'; pool = 'a'",
        ],
    ),
    (
        "} location ~ \\.(b|c)$ { rewrite ^/v/a$ /w permanent; proxy_pass http://a;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path = '*.b'; path_regex = '^/v/a$'; redirect = '/w?{query}'; status = 301",
            "route 1: path = '*.c'; path_regex = '^/v/a$'; redirect = '/w?{query}'; status = 301",
            "route 2: path = '*.b'; pool = 'a'",
            "route 3: path = '*.c'; pool = 'a'",
        ],
    ),
    (
        "} location ~* ^/v { proxy_pass http://a;",
        &[
            "[pool.a]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path_regex = '(?i)^/v'; pool = 'a'",
        ],
    ),
    (
        "} location /b { return 301 https://$server_name/$scheme;",
        &[
            "[service.'s.example']; normalize_path = { encoded_slash = 'decode' }",
            "route 0: path = '/b*'; redirect = 'https://s.example/http'; status = 301",
        ],
    ),
];

#[test]
fn paths_of_targets_replace_the_path_of_the_location() {
    assert_added(ROOT_LOCATION, ROOT_LOCATION_ROWS);
}
