//! Tests the import of directives in a location block.

use super::{Row, assert_added};

const LOCATION: &str = "upstream a { server 10.0.0.5; }\n\
    server {\n\
    listen 80;\n\
    location /x/ { @@ }\n\
    location / { proxy_pass http://a; }\n\
    }";

const LOCATION_ROWS: &[Row] = &[
    (
        "proxy_pass http://a;",
        &["route 0: path = '/x/*'; pool = 'a'"],
    ),
    (
        "proxy_pass http://a/;",
        &["route 0: path = '/x/*'; pool = 'a'; rewrite = '/{rest}'"],
    ),
    (
        "proxy_pass http://a/y/;",
        &["route 0: path = '/x/*'; pool = 'a'; rewrite = '/y/{rest}'"],
    ),
    (
        "proxy_pass http://a/y;",
        &["route 0: path = '/x/*'; pool = 'a'; rewrite = '/y{rest}'"],
    ),
    (
        "proxy_pass http://a$request_uri;",
        &["route 0: path = '/x/*'; pool = 'a'"],
    ),
    (
        "proxy_pass http://a/$geoip_country;",
        &[
            "!4: not imported: the target is computed, but a route's pool is fixed",
            "!4: it has no target that Weir supports; Weir responds with status 503",
            "route 0: path = '/x/*'; status = 503",
        ],
    ),
    (
        "proxy_pass a;",
        &[
            "!4: not imported: the target is not an http or https URL",
            "!4: it has no target that Weir supports; Weir responds with status 503",
            "route 0: path = '/x/*'; status = 503",
        ],
    ),
    (
        "proxy_pass;",
        &[
            "!4: not imported: the URL is missing",
            "!4: it has no target that Weir supports; Weir responds with status 503",
            "route 0: path = '/x/*'; status = 503",
        ],
    ),
    (
        "proxy_pass http://a; return 403;",
        &[
            "!!4: not imported: an earlier directive determines the action",
            "route 0: path = '/x/*'; status = 403",
        ],
    ),
    (
        "proxy_pass http://a; proxy_pass http://a/y;",
        &[
            "!4: not imported: an earlier directive determines the action",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "return 301 /y; proxy_pass http://a;",
        &[
            "!4: not imported: an earlier directive determines the action",
            "route 0: path = '/x/*'; redirect = '/y'; status = 301",
        ],
    ),
    (
        "rewrite ^/x/(.*)$ /y/$1 break; proxy_pass http://a;",
        &[
            "route 0: path = '/x/*'; path_regex = '^/x/(.*)$'; pool = 'a'; rewrite = '/y/{1}'",
            "route 1: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/(.*)$ /y/$1 last; proxy_pass http://a;",
        &[
            "route 0: path = '/x/*'; rewrite = { regex = '^/x/(.*)$', to = '/y/{1}' }; restart = 'first'",
            "route 1: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/a$ /b last; rewrite ^/x/c$ /d last; proxy_pass http://a;",
        &[
            "route 0: path = '/x/*'; rewrite = { regex = '^/x/a$', to = '/b' }; restart = 'first'",
            "route 1: path = '/x/*'; rewrite = { regex = '^/x/c$', to = '/d' }; restart = 'first'",
            "route 2: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/a$ /b; rewrite ^/x/c$ /d last; proxy_pass http://a;",
        &[
            "!4: not imported: an earlier rule of the location, or a rule of the server block, would apply to the \
            new path",
            "!4: not imported: a route rewrites a path only as the last step, like `break`",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/(.*)$ /y/$1 break; rewrite ^/x/c$ /d last; proxy_pass http://a;",
        &[
            "!4: not imported: an earlier rule of the location, or a rule of the server block, would apply to the \
            new path",
            "route 0: path = '/x/*'; path_regex = '^/x/(.*)$'; pool = 'a'; rewrite = '/y/{1}'",
            "route 1: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "return 403; rewrite ^/x/c$ /d last;",
        &[
            "!!4: not imported: an earlier rule of the location, or a rule of the server block, would apply to the \
            new path",
            "route 0: path = '/x/*'; status = 403",
        ],
    ),
    (
        "return 403; rewrite ^/x/c$ /d permanent;",
        &[
            "!!4: not imported: an earlier directive determines the action",
            "route 0: path = '/x/*'; status = 403",
        ],
    ),
    (
        "rewrite ^/x/(.*)$ /y/$1 permanent; proxy_pass http://a;",
        &[
            "route 0: path = '/x/*'; path_regex = '^/x/(.*)$'; redirect = '/y/{1}?{query}'; status = 301",
            "route 1: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/a$ /y permanent; rewrite ^/x/b$ /z redirect; proxy_pass http://a;",
        &[
            "route 0: path = '/x/*'; path_regex = '^/x/a$'; redirect = '/y?{query}'; status = 301",
            "route 1: path = '/x/*'; path_regex = '^/x/b$'; redirect = '/z?{query}'",
            "route 2: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/a$ /y last; rewrite ^/x/b$ /z redirect; proxy_pass http://a;",
        &[
            "route 0: path = '/x/*'; rewrite = { regex = '^/x/a$', to = '/y' }; restart = 'first'",
            "route 1: path = '/x/*'; path_regex = '^/x/b$'; redirect = '/z?{query}'",
            "route 2: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/a$ /y; rewrite ^/x/b$ /z redirect; proxy_pass http://a;",
        &[
            "!4: not imported: a route rewrites a path only as the last step, like `break`",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^ https://b/ permanent;",
        &[
            "route 0: path = '/x/*'; path_regex = '^'; redirect = 'https://b/?{query}'; status = 301",
            "route 1: path = '/x/*'; redirect = 'https://b/'; status = 301",
        ],
    ),
    (
        "rewrite ^ https://b/c? redirect;",
        &[
            "route 0: path = '/x/*'; path_regex = '^'; redirect = 'https://b/c'",
            "route 1: path = '/x/*'; redirect = 'https://b/c'",
        ],
    ),
    (
        "rewrite ^(.*)$ https://b$1;",
        &[
            "route 0: path = '/x/*'; path_regex = '^(.*)$'; redirect = 'https://b{1}?{query}'",
            "route 1: path = '/x/*'; redirect = 'https://b{path}'",
        ],
    ),
    (
        "rewrite ^(.*)$ /y$1 permanent; proxy_pass http://a;",
        &[
            "route 0: path = '/x/*'; path_regex = '^(.*)$'; redirect = '/y{1}?{query}'; status = 301",
            "route 1: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/(.*) /y/$1; proxy_pass http://a;",
        &[
            "!4: not imported: a route rewrites a path only as the last step, like `break`",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/(.*) /y/$uri permanent; proxy_pass http://a;",
        &[
            "!4: not imported: a route rewrites a path only as the last step, like `break`",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/(.*) /y/$args permanent; proxy_pass http://a;",
        &[
            "!4: not imported: a route rewrites a path only as the last step, like `break`",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/(.*) y/$1 permanent; proxy_pass http://a;",
        &[
            "!4: not imported: a route rewrites a path only as the last step, like `break`",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/(.*) /y$geoip_country break; proxy_pass http://a;",
        &[
            "!4: not imported: a route's `rewrite` cannot express the new path",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^/x/(.*) /y$geoip_country last; proxy_pass http://a;",
        &[
            "!4: not imported: a route rewrites a path only as the last step, like `break`",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "rewrite ^ https://b$request_uri? permanent;",
        &["route 0: path = '/x/*'; redirect = 'https://b{path}'; status = 301"],
    ),
    (
        "rewrite ^/(.*)$ https://b/$1$request_uri permanent;",
        &["route 0: path = '/x/*'; redirect = 'https://b{path}{path}'; status = 301"],
    ),
    (
        "rewrite ^ https://b$uri permanent;",
        &["route 0: path = '/x/*'; redirect = 'https://b{path}'; status = 301"],
    ),
    (
        "rewrite ^ https://b$geoip_country permanent;",
        &["!4: not imported: the target contains an unsupported variable or a name in braces"],
    ),
    (
        "if ($host = b) { rewrite ^/x/(.*)$ /y/$1 last; } proxy_pass http://a;",
        &[
            "route 0: host = 'b'; path = '/x/*'; rewrite = { regex = '^/x/(.*)$', to = '/y/{1}' }; restart = \
            'first'",
            "route 1: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "if ($host = b) { rewrite ^/x/(.*)$ /y/$1 break; } proxy_pass http://a;",
        &[
            "!4: not imported: the block contains no action that Weir supports",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "if ($host = b) { rewrite ^ /y permanent; } proxy_pass http://a;",
        &[
            "!4: not imported: a route rewrites a path only as the last step, like `break`",
            "!4: not imported: the block contains no action that Weir supports",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "if ($host = b) { return 403; } if ($host = c) { return 404; } proxy_pass http://a;",
        &[
            "route 0: host = 'b'; path = '/x/*'; status = 403",
            "route 1: host = 'c'; path = '/x/*'; status = 404",
            "route 2: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "if ($host = b) { proxy_pass http://10.0.0.6; } proxy_pass http://a;",
        &[
            "[pool.'10.0.0.6']; host = '10.0.0.6'; servers = [{ address = '10.0.0.6:80' }]",
            "route 0: host = 'b'; path = '/x/*'; pool = '10.0.0.6'",
            "route 1: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "if ($host = b) { rewrite ^/x/(.*)$ https://b/$1; } proxy_pass http://a;",
        &[
            "!4: not imported: a route rewrites a path only as the last step, like `break`",
            "!4: not imported: the block contains no action that Weir supports",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "if ($scheme = http) { return 403; } proxy_pass http://a;",
        &[
            "4: not imported: its `if` applies to every request and responds first",
            "route 0: path = '/x/*'; status = 403",
        ],
    ),
    (
        "proxy_pass https://10.0.0.6;",
        &[
            "[pool.'10.0.0.6']; tls = { verify = false }; host = '10.0.0.6'; servers = [{ address = '10.0.0.6:443' \
            }]",
            "route 0: path = '/x/*'; pool = '10.0.0.6'",
        ],
    ),
    (
        "proxy_pass http://10.0.0.6/; proxy_set_header Host b;",
        &[
            "4: Weir already does this, or a key of the service or pool configures it",
            "[pool.'10.0.0.6']; host = 'b'; servers = [{ address = '10.0.0.6:80' }]",
            "route 0: path = '/x/*'; pool = '10.0.0.6'; rewrite = '/{rest}'",
        ],
    ),
    (
        "proxy_pass http://10.0.0.6; proxy_set_header Host \"\";",
        &[
            "!4: not imported: the value is empty",
            "[pool.'10.0.0.6']; servers = [{ address = '10.0.0.6:80' }]",
            "route 0: path = '/x/*'; pool = '10.0.0.6'",
        ],
    ),
    (
        "proxy_pass http://10.0.0.6; proxy_set_header Host $host;",
        &[
            "4: Weir already does this, or a key of the service or pool configures it",
            "[pool.'10.0.0.6']; servers = [{ address = '10.0.0.6:80' }]",
            "route 0: path = '/x/*'; pool = '10.0.0.6'",
        ],
    ),
    (
        "proxy_pass http://10.0.0.6; proxy_set_header Host $proxy_host;",
        &[
            "4: Weir already does this, or a key of the service or pool configures it",
            "[pool.'10.0.0.6']; host = '10.0.0.6'; servers = [{ address = '10.0.0.6:80' }]",
            "route 0: path = '/x/*'; pool = '10.0.0.6'",
        ],
    ),
    (
        "proxy_pass http://10.0.0.6; proxy_set_header Hos b;",
        &[
            "[pool.'10.0.0.6']; host = '10.0.0.6'; servers = [{ address = '10.0.0.6:80' }]",
            "route 0: path = '/x/*'; pool = '10.0.0.6'; set_header = ['Hos: b']",
        ],
    ),
    (
        "proxy_pass http://unix:/run/b;",
        &[
            "[pool.b]; host = 'localhost'; servers = [{ address = 'unix:/run/b' }]",
            "route 0: path = '/x/*'; pool = 'b'",
        ],
    ),
    (
        "proxy_pass http://unix:/run/b:/y/;",
        &[
            "[pool.b]; host = 'localhost'; servers = [{ address = 'unix:/run/b' }]",
            "route 0: path = '/x/*'; pool = 'b'; rewrite = '/y/{rest}'",
        ],
    ),
    (
        "proxy_pass http://b.example;",
        &[
            "[pool.'b.example']; servers_dns = { name = 'b.example', port = 80 }; host = 'b.example'; servers = []",
            "route 0: path = '/x/*'; pool = 'b.example'",
        ],
    ),
    (
        "proxy_pass https://b.example:8443; proxy_ssl_verify on; proxy_ssl_name c;",
        &[
            "[pool.'b.example-8443']; servers_dns = { name = 'b.example', port = 8443 }; tls = { verify = true, \
            server_name = 'c' }; host = 'b.example:8443'; servers = []",
            "route 0: path = '/x/*'; pool = 'b.example-8443'",
        ],
    ),
    (
        "proxy_pass https://10.0.0.6; proxy_ssl_verify off; proxy_ssl_trusted_certificate /ca; proxy_ssl_name \
        $host;",
        &[
            "[pool.'10.0.0.6']; tls = { verify = false, ca = '/ca' }; host = '10.0.0.6'; servers = [{ address = \
            '10.0.0.6:443' }]",
            "route 0: path = '/x/*'; pool = '10.0.0.6'",
        ],
    ),
    (
        "proxy_pass http://10.0.0.6; proxy_ssl_verify on;",
        &[
            "!!4: not imported: a pool's `tls` has no such key, or no pool here uses TLS",
            "[pool.'10.0.0.6']; host = '10.0.0.6'; servers = [{ address = '10.0.0.6:80' }]",
            "route 0: path = '/x/*'; pool = '10.0.0.6'",
        ],
    ),
    (
        "proxy_pass http://[::1]:81;",
        &[
            "[pool.--1-81]; host = '[::1]:81'; servers = [{ address = '[::1]:81' }]",
            "route 0: path = '/x/*'; pool = '--1-81'",
        ],
    ),
    (
        "proxy_pass http://10.0.0.6:x;",
        &[
            "!4: not imported: invalid port x",
            "!4: it has no target that Weir supports; Weir responds with status 503",
            "route 0: path = '/x/*'; status = 503",
        ],
    ),
    (
        "proxy_pass https://a;",
        &[
            "[pool.a]; tls = { verify = false }",
            "[pool.a-2]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.nginx-80]; pool = 'a-2'",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "proxy_pass https://a; proxy_ssl_name c;",
        &[
            "[pool.a]; tls = { verify = false, server_name = 'c' }",
            "[pool.a-2]; scheduler = 'wrr'; host = 'a'; servers = [{ address = '10.0.0.5:80' }]",
            "[service.nginx-80]; pool = 'a-2'",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "\nrewrite ^/x/(a$ /y permanent;\nproxy_pass http://a;",
        &[
            "!5: not imported: invalid regular expression: unclosed group",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
    (
        "\nrewrite ^/x/(a$ /y last;\nproxy_pass http://a;",
        &[
            "!5: not imported: invalid regular expression: unclosed group",
            "route 0: path = '/x/*'; pool = 'a'",
        ],
    ),
];

#[test]
fn directives_of_a_location_become_routes() {
    assert_added(LOCATION, LOCATION_ROWS);
}
