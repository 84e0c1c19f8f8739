//! Tests `allow`, `deny` and TLS.

use super::{Row, assert_added};

const RULES: &str = "server {\n\
    listen 80;\n\
    location / { @@ proxy_pass http://10.0.0.5; }\n\
    location /b { proxy_pass http://10.0.0.5; }\n\
    }";

const RULES_ROWS: &[Row] = &[
    (
        "allow 10.0.0.0/8; deny all;",
        &[
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 1: source = ['10.0.0.0/8']; pool = '10.0.0.5'",
            "route 2: status = 403",
        ],
    ),
    (
        "deny 10.0.0.1; allow all;",
        &["route 1: source = ['10.0.0.1']; status = 403"],
    ),
    (
        "deny 10.0.0.1; deny 10.0.0.2; allow 10.0.0.0/8; allow ::1; deny all;",
        &[
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 1: source = ['10.0.0.1', '10.0.0.2']; status = 403",
            "route 2: source = ['10.0.0.0/8', '::1']; pool = '10.0.0.5'",
            "route 3: status = 403",
        ],
    ),
    (
        "allow 10.0.0.1;",
        &["route 1: source = ['10.0.0.1']; pool = '10.0.0.5'"],
    ),
    (
        "deny 10.0.0.1;",
        &["route 1: source = ['10.0.0.1']; status = 403"],
    ),
    (
        "deny all; allow 10.0.0.1;",
        &[
            "!!3: not imported: it does not protect any imported route to a pool",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 1: status = 403",
        ],
    ),
    ("allow all;", &[]),
    (
        "deny unix:;",
        &["!!3: not imported: a route's `source` accepts only addresses and networks"],
    ),
    (
        "allow name; deny all;",
        &[
            "!!3: not imported: a route's `source` accepts only addresses and networks",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 1: status = 403",
        ],
    ),
    (
        "allow; deny all;",
        &[
            "!!3: not imported: a route's `source` accepts only addresses and networks",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 1: status = 403",
        ],
    ),
];

#[test]
fn rules_apply_in_order() {
    assert_added(RULES, RULES_ROWS);
}

const LEVELS: &str = "deny 10.0.0.9;\n\
    server {\n\
    listen 80;\n\
    @@\n\
    location / { proxy_pass http://10.0.0.5; }\n\
    location /b { allow 10.0.0.8; deny all; proxy_pass http://10.0.0.5; }\n\
    }";

const LEVELS_ROWS: &[Row] = &[
    (
        "allow 10.0.0.7; deny all;",
        &[
            "!!1: not imported: it does not protect any imported route to a pool",
            "[pool.no-servers]; servers = []",
            "[service.nginx-80]; pool = 'no-servers'",
            "route 2: source = ['10.0.0.7']; pool = '10.0.0.5'",
            "route 3: status = 403",
        ],
    ),
    ("auth_basic off;", &[]),
];

#[test]
fn innermost_access_rules_replace_outer_rules() {
    assert_added(LEVELS, LEVELS_ROWS);
}

const TLS: &str = "server {\n\
    listen 443 ssl;\n\
    @@\n\
    location / { proxy_pass http://10.0.0.5; }\n\
    }";

const TLS_ROWS: &[Row] = &[
    (
        "ssl_certificate /c.pem;",
        &["[service.nginx-443]; tls = { certificates = '/c.pem' }"],
    ),
    (
        "ssl_certificate /c.pem; ssl_certificate_key /c.pem;",
        &[
            "3: Weir finds the key by the name of the certificate file",
            "[service.nginx-443]; tls = { certificates = '/c.pem' }",
        ],
    ),
    (
        "ssl_certificate /c.crt; ssl_certificate_key /c.key;",
        &[
            "3: Weir finds the key by the name of the certificate file",
            "[service.nginx-443]; tls = { certificates = '/c.crt' }",
        ],
    ),
    (
        "ssl_certificate /c.pem; ssl_certificate_key /k.pem;",
        &[
            "!3: Weir reads the key from the certificate file: write the chain and /k.pem to /c.pem, or name the \
            files NAME.crt and NAME.key",
            "[service.nginx-443]; tls = { certificates = '/c.pem' }",
        ],
    ),
    ("ssl_certificate_key /k.pem;", &[]),
    (
        "ssl_certificate /c.pem; ssl_client_certificate /ca;",
        &[
            "3: it has no effect, because ssl_verify_client is off",
            "[service.nginx-443]; tls = { certificates = '/c.pem' }",
        ],
    ),
    (
        "ssl_certificate /c.pem; ssl_client_certificate /ca; ssl_verify_client off;",
        &[
            "3: it has no effect, because ssl_verify_client is off",
            "[service.nginx-443]; tls = { certificates = '/c.pem' }",
        ],
    ),
    (
        "ssl_certificate /c.pem; ssl_client_certificate /ca; ssl_verify_client on;",
        &[
            "[service.nginx-443]; tls = { certificates = '/c.pem', client_ca = '/ca', client_auth = 'required' }",
        ],
    ),
    (
        "ssl_certificate /c.pem; ssl_client_certificate /ca; ssl_verify_client optional;",
        &[
            "[service.nginx-443]; tls = { certificates = '/c.pem', client_ca = '/ca', client_auth = 'optional' }",
        ],
    ),
    (
        "ssl_certificate /c.pem; ssl_client_certificate /ca; ssl_verify_client optional_no_ca;",
        &[
            "!!3: client certificates of other CAs are rejected",
            "[service.nginx-443]; tls = { certificates = '/c.pem', client_ca = '/ca', client_auth = 'optional' }",
        ],
    ),
    (
        "ssl_certificate /c.pem; ssl_verify_client on;",
        &[
            "!!3: not imported: a service's `tls` has no such key",
            "[service.nginx-443]; tls = { certificates = '/c.pem' }",
        ],
    ),
    (
        "ssl_certificate /c.pem; ssl_protocols TLSv1.3;",
        &["[service.nginx-443]; tls = { certificates = '/c.pem', minimum = '1.3' }"],
    ),
    (
        "ssl_certificate /c.pem; ssl_protocols TLSv1.1 TLSv1.2;",
        &[
            "!3: Weir does not support TLS versions below 1.2",
            "[service.nginx-443]; tls = { certificates = '/c.pem', minimum = '1.2' }",
        ],
    ),
    (
        "ssl_certificate /c.pem; ssl_ciphers ECDHE-RSA-AES128-GCM-SHA256;",
        &[
            "[service.nginx-443]; tls = { certificates = '/c.pem', ciphers = \
            ['TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256'] }",
        ],
    ),
    (
        "ssl_certificate /c.pem; ssl_ciphers ECDHE-RSA-AES128-GCM-SHA256; ssl_protocols TLSv1.3;",
        &[
            "3: not imported: the service does not use TLS 1.2",
            "[service.nginx-443]; tls = { certificates = '/c.pem', minimum = '1.3' }",
        ],
    ),
    (
        "ssl_certificate /c.pem; ssl_ecdh_curve auto;",
        &["[service.nginx-443]; tls = { certificates = '/c.pem' }"],
    ),
    (
        "ssl_certificate /c.pem; ssl_ecdh_curve X25519;",
        &["[service.nginx-443]; tls = { certificates = '/c.pem', groups = ['X25519'] }"],
    ),
];

#[test]
fn ssl_directives_become_tls_keys() {
    assert_added(TLS, TLS_ROWS);
}

const SSL_ON: &str = "server {\n\
    listen 80;\n\
    server_name a.example;\n\
    ssl_certificate /c.pem;\n\
    @@\n\
    location / { proxy_pass http://10.0.0.5; }\n\
    }";

const SSL_ON_ROWS: &[Row] = &[
    (
        "listen 443 ssl;",
        &[
            "[service.'a.example-tls']; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem' }; forwarded = false",
        ],
    ),
    (
        "ssl on;",
        &[
            "6: not imported: nginx responds before it selects a location",
            "[pool.no-servers]; servers = []",
            "[service.'a.example']; pool = 'no-servers'",
            "route 0: status = 400",
        ],
    ),
    ("ssl off;", &["5: not imported: this is nginx's default"]),
    (
        "listen 443; ssl on;",
        &[
            "[pool.no-servers]; servers = []",
            "[service.'a.example']; pool = 'no-servers'",
            "[service.'a.example-tls']; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem' }; forwarded = false",
            "route 0: status = 400",
        ],
    ),
    (
        "listen 443; ssl on; error_page 497 https://$host$request_uri;",
        &[
            "!5: not imported: a service's `error_pages` accepts only files and fixed URLs",
            "[pool.no-servers]; servers = []",
            "[service.'a.example']; pool = 'no-servers'; normalize_path = { encoded_slash = 'decode' }",
            "[service.'a.example-tls']; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem' }; forwarded = false",
            "route 0: path_regex = '^(.*)$'; redirect = 'https://{host}{path}'",
            "route 1: status = 404",
        ],
    ),
    (
        "listen 443; ssl on; error_page 497 =301 https://$host$request_uri;",
        &[
            "!5: not imported: a service's `error_pages` accepts only files and fixed URLs",
            "[pool.no-servers]; servers = []",
            "[service.'a.example']; pool = 'no-servers'; normalize_path = { encoded_slash = 'decode' }",
            "[service.'a.example-tls']; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem' }; forwarded = false",
            "route 0: path_regex = '^(.*)$'; redirect = 'https://{host}{path}'; status = 301",
            "route 1: status = 404",
        ],
    ),
    (
        "listen 443; ssl on; error_page 497 =200 https://$host$request_uri;",
        &[
            "!5: not imported: a service's `error_pages` accepts only files and fixed URLs",
            "[pool.no-servers]; servers = []",
            "[service.'a.example']; pool = 'no-servers'",
            "[service.'a.example-tls']; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem' }; forwarded = false",
            "route 0: status = 400",
        ],
    ),
    (
        "listen 443; ssl on; error_page 497 =x https://$host$request_uri;",
        &[
            "!5: not imported: a service's `error_pages` accepts only files and fixed URLs",
            "[pool.no-servers]; servers = []",
            "[service.'a.example']; pool = 'no-servers'",
            "[service.'a.example-tls']; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem' }; forwarded = false",
            "route 0: status = 400",
        ],
    ),
    (
        "listen 443; ssl on; error_page 497 =307 https://$server_name$uri$is_args$args;",
        &[
            "!5: not imported: a service's `error_pages` accepts only files and fixed URLs",
            "[pool.no-servers]; servers = []",
            "[service.'a.example']; pool = 'no-servers'; normalize_path = { encoded_slash = 'decode' }",
            "[service.'a.example-tls']; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem' }; forwarded = false",
            "route 0: path_regex = '^(.*)$'; redirect = 'https://a.example{path}'; status = 307",
            "route 1: status = 404",
        ],
    ),
    (
        "listen 443; ssl on; error_page 497 =308 https://$host$uri;",
        &[
            "!5: not imported: a service's `error_pages` accepts only files and fixed URLs",
            "[pool.no-servers]; servers = []",
            "[service.'a.example']; pool = 'no-servers'; normalize_path = { encoded_slash = 'decode' }",
            "[service.'a.example-tls']; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem' }; forwarded = false",
            "route 0: path_regex = '^(.*)$'; redirect = 'https://{host}{1}'; status = 308",
            "route 1: status = 404",
        ],
    ),
    (
        "listen 443; ssl on; error_page 497 /e.html;",
        &[
            "!5: not imported: the error page is proxied to a server",
            "[pool.no-servers]; servers = []",
            "[service.'a.example']; pool = 'no-servers'",
            "[service.'a.example-tls']; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem' }; forwarded = false",
            "route 0: status = 400",
        ],
    ),
    (
        "listen 443; ssl on; error_page 496 https://b/;",
        &[
            "[pool.no-servers]; servers = []",
            "[service.'a.example']; pool = 'no-servers'; error_pages = [{ status = '496', redirect = 'https://b/' \
            }]",
            "[service.'a.example-tls']; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem' }; error_pages = [{ status = '496', redirect = \
            'https://b/' }]; forwarded = false",
            "route 0: status = 400",
        ],
    ),
    (
        "listen 443; ssl on; error_page 497 http://b/;",
        &[
            "!5: not imported: a service's `error_pages` accepts only files and fixed URLs",
            "[pool.no-servers]; servers = []",
            "[service.'a.example']; pool = 'no-servers'; normalize_path = { encoded_slash = 'decode' }",
            "[service.'a.example-tls']; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem' }; forwarded = false",
            "route 0: path_regex = '^(.*)$'; redirect = 'http://b/'",
            "route 1: status = 404",
        ],
    ),
    (
        "listen 443; ssl on; error_page 497 https://$geoip_country/;",
        &[
            "!5: not imported: a service's `error_pages` accepts only files and fixed URLs",
            "[pool.no-servers]; servers = []",
            "[service.'a.example']; pool = 'no-servers'",
            "[service.'a.example-tls']; listen = ['0.0.0.0:443']; forward = 'proxy'; protocol = 'http'; pool = \
            '10.0.0.5'; tls = { certificates = '/c.pem' }; forwarded = false",
            "route 0: status = 400",
        ],
    ),
];

#[test]
fn ssl_on_applies_to_every_address() {
    assert_added(SSL_ON, SSL_ON_ROWS);
}
