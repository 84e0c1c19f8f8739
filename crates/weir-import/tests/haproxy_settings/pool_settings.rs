//! Settings of backends that become keys of pools.

use super::{Row, assert_changes};

const BACKEND_SETTINGS_BECOME_POOL_KEYS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
        ],
    ),
    ("timeout queue 5s", &[r#"+ queue_timeout = "5s""#]),
    (
        "timeout queue x",
        &["3 LOST: not imported: haproxy requires a time"],
    ),
    (
        "http-request set-header Host www.example",
        &[r#"+ host = "www.example""#],
    ),
    (
        "http-request set-header hOST www.example",
        &[r#"+ host = "www.example""#],
    ),
    (
        "http-request set-header Host %[src]",
        &["3 LOST: not imported: it never applies to a client"],
    ),
    (
        "http-request set-header Host www.example if { path /x }",
        &["3 LOST: not imported: it never applies to a client"],
    ),
    (
        "http-request add-header Host www.example",
        &["3 LOST: not imported: it never applies to a client"],
    ),
    (
        "http-request set-header X-A www.example",
        &["3 LOST: not imported: it never applies to a client"],
    ),
    (
        "http-response set-header Host www.example",
        &["3 LOST: not imported: it never applies to a client"],
    ),
    (
        "balance",
        &[
            r#"- scheduler = "wrr""#,
            "3 LOST: not imported: Weir does not have this scheduler",
        ],
    ),
    ("balance roundrobin", &[]),
    ("balance static-rr", &[]),
    (
        "balance leastconn",
        &[r#"- scheduler = "wrr""#, r#"+ scheduler = "wlc""#],
    ),
    (
        "balance source",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
        ],
    ),
    (
        "balance first",
        &[r#"- scheduler = "wrr""#, r#"+ scheduler = "first""#],
    ),
    (
        "balance random",
        &[r#"- scheduler = "wrr""#, r#"+ scheduler = "p2c""#],
    ),
    (
        "balance random(3)",
        &[r#"- scheduler = "wrr""#, r#"+ scheduler = "p2c""#],
    ),
    (
        "balance uri",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "path" }"#,
        ],
    ),
    (
        "balance uri whole",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "uri" }"#,
        ],
    ),
    (
        "balance uri depth 3",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "path" }"#,
            "3 LOST: depth is not imported: `key` has no such option",
        ],
    ),
    (
        "balance uri len 3",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "path" }"#,
            "3 LOST: len is not imported: `key` has no such option",
        ],
    ),
    (
        "balance url_param p",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "query:p" }"#,
        ],
    ),
    (
        "balance url_param p check_post",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "query:p" }"#,
            "3 LOST: check_post is not imported: `key` has no such option",
        ],
    ),
    (
        "balance hdr(X-A)",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "header:X-A" }"#,
        ],
    ),
    (
        "balance hdr(host) use_domain_only",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "header:host" }"#,
            "3 LOST: use_domain_only is not imported: `key` has no such option",
        ],
    ),
    (
        "balance rdp-cookie",
        &[
            r#"- scheduler = "wrr""#,
            "3 LOST: not imported: Weir does not have this scheduler",
        ],
    ),
    (
        "balance hash src",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
        ],
    ),
    (
        "balance hash path",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "path" }"#,
        ],
    ),
    (
        "balance hash pathq",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "uri" }"#,
        ],
    ),
    (
        "balance hash rand",
        &[
            r#"- scheduler = "wrr""#,
            "3 LOST: not imported: a scheduler's `key` does not support this expression",
        ],
    ),
    (
        "balance hash",
        &[
            r#"- scheduler = "wrr""#,
            "3 LOST: not imported: a scheduler's `key` does not support this expression",
        ],
    ),
    (
        "balance hash req.hdr(X-A)",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "header:X-A" }"#,
        ],
    ),
    (
        "balance hash req.hdr(X-A,1)",
        &[
            r#"- scheduler = "wrr""#,
            "3 LOST: not imported: a scheduler's `key` does not support this expression",
        ],
    ),
    (
        "balance hash url_param(p)",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "query:p" }"#,
        ],
    ),
    (
        "balance hash urlp(p)",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "query:p" }"#,
        ],
    ),
    (
        "balance hash url_param(p,1)",
        &[
            r#"- scheduler = "wrr""#,
            "3 LOST: not imported: a scheduler's `key` does not support this expression",
        ],
    ),
    (
        "balance hash req.cook(c)",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "cookie:c" }"#,
        ],
    ),
    (
        "balance hash cook(c)",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "cookie:c" }"#,
        ],
    ),
    (
        "balance hash cook(c,1)",
        &[
            r#"- scheduler = "wrr""#,
            "3 LOST: not imported: a scheduler's `key` does not support this expression",
        ],
    ),
    (
        "balance hash src(1)",
        &[
            r#"- scheduler = "wrr""#,
            "3 LOST: not imported: a scheduler's `key` does not support this expression",
        ],
    ),
    (
        "balance uri\n hash-type consistent",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "path" }"#,
            "4: not imported: the `hash` scheduler is always consistent, and `source` keeps \
            clients on their servers",
        ],
    ),
    (
        "balance source\n hash-preserve-affinity always",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "4: not imported: the `hash` scheduler is always consistent, and `source` keeps \
            clients on their servers",
        ],
    ),
    (
        "balance uri\n hash-balance-factor 125",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "path", max_load = 1.25 }"#,
        ],
    ),
    (
        "balance uri\n hash-balance-factor 0",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "path" }"#,
            "4 LOST: not imported: the `hash` scheduler is always consistent and uses a \
            different hash function",
        ],
    ),
    (
        "balance uri\n hash-balance-factor x",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "path" }"#,
            "4 LOST: not imported: the `hash` scheduler is always consistent and uses a \
            different hash function",
        ],
    ),
    (
        "hash-type consistent",
        &[
            "3 LOST: not imported: the `hash` scheduler is always consistent and uses a \
            different hash function",
        ],
    ),
    (
        "stick on req.hdr(X-A)\n stick-table type string",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "header:X-A" }"#,
            "3: imported as the `hash` scheduler: a hash of the text selects the server, instead \
            of `balance` and a stick table",
        ],
    ),
    (
        "balance leastconn\n stick on req.hdr(X-A)\n stick-table type string",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "hash", key = "header:X-A" }"#,
            "3: imported as the `hash` scheduler: a hash of the text selects the server, instead \
            of `balance` and a stick table",
            "4: imported as the `hash` scheduler: a hash of the text selects the server, instead \
            of `balance` and a stick table",
        ],
    ),
    (
        "stick on req.hdr(X-A)\n stick-table type string store gpc0",
        &[
            "3 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "4 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on req.hdr(X-A) table b\n stick-table type string",
        &[
            "3 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "4 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on req.cook(c)\n stick-table type string",
        &[
            "3 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "4 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on req.hdr(X-A)",
        &["3 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`"],
    ),
    (
        "stick on rand\n stick-table type string",
        &[
            "3 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "4 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "stick on src\n stick-table type ip expire 30m",
        &[
            "3 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "4 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
    (
        "mode tcp\n stick on req.hdr(X-A)\n stick-table type string",
        &[
            "4 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
            "5 LOST: not imported: Weir has no client tables; see `limits` and a pool's `sticky`",
        ],
    ),
];

#[test]
fn backend_settings_become_pool_keys() {
    assert_changes(
        "backend b\n mode http\n {}\n server a 10.0.0.5:80\n",
        BACKEND_SETTINGS_BECOME_POOL_KEYS,
    );
}

const COOKIE_OPTIONS_BECOME_STICKY_KEYS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
        ],
    ),
    (
        "cookie",
        &["3 LOST: not imported: haproxy requires the cookie's name"],
    ),
    (
        "cookie C insert",
        &[r#"+ sticky = { cookie = "C", mode = "insert", attributes = "Path=/" }"#],
    ),
    (
        "cookie C insert indirect",
        &[r#"+ sticky = { cookie = "C", mode = "insert", attributes = "Path=/" }"#],
    ),
    (
        "cookie C insert nocache",
        &[
            "+ sticky = { cookie = \"C\", mode = \"insert\", private = true, attributes = \
            \"Path=/\" }",
        ],
    ),
    (
        "cookie C insert httponly secure",
        &[
            "+ sticky = { cookie = \"C\", mode = \"insert\", attributes = \"Path=/; HttpOnly; \
            Secure\" }",
        ],
    ),
    (
        "cookie C insert domain x.example domain y.example",
        &[
            "+ sticky = { cookie = \"C\", mode = \"insert\", attributes = \"Path=/; \
            Domain=x.example; Domain=y.example\" }",
        ],
    ),
    (
        "cookie C insert attr SameSite=Lax",
        &[r#"+ sticky = { cookie = "C", mode = "insert", attributes = "Path=/; SameSite=Lax" }"#],
    ),
    (
        "cookie C insert maxidle 5m httponly",
        &[
            r#"+ sticky = { cookie = "C", mode = "insert", attributes = "Path=/; HttpOnly" }"#,
            "3 LOST: maxidle is not imported: `sticky` has no such key",
        ],
    ),
    (
        "cookie C insert maxlife 5m",
        &[
            r#"+ sticky = { cookie = "C", mode = "insert", attributes = "Path=/" }"#,
            "3 LOST: maxlife is not imported: `sticky` has no such key",
        ],
    ),
    (
        "cookie C insert preserve",
        &[
            r#"+ sticky = { cookie = "C", mode = "insert", attributes = "Path=/" }"#,
            "3 LOST: preserve is not imported: `sticky` has no such key",
        ],
    ),
    (
        "cookie C rewrite nocache",
        &[r#"+ sticky = { cookie = "C", mode = "rewrite" }"#],
    ),
    (
        "cookie C prefix",
        &[r#"+ sticky = { cookie = "C", mode = "prefix" }"#],
    ),
    (
        "cookie C dynamic",
        &[
            "3 LOST: dynamic is not imported: `sticky` has no such key",
            "3 LOST: not imported: `mode` in `sticky` must be insert, rewrite or prefix",
        ],
    ),
    (
        "mode tcp\n cookie C insert",
        &["4: not imported: it has no effect in mode tcp"],
    ),
];

#[test]
fn cookie_options_become_sticky_keys() {
    assert_changes(
        "backend b\n mode http\n {}\n server a 10.0.0.5:80\n",
        COOKIE_OPTIONS_BECOME_STICKY_KEYS,
    );
}

const COOKIES_ARE_IMPORTED_ONLY_IN_HTTP_MODE: &[Row] = &[
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
            "4: cookie is not imported: haproxy ignores it in a section without `cookie`",
        ],
    ),
    (
        "cookie C insert",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "cookie C",
        &["3: not imported: it has no effect in mode tcp"],
    ),
    (
        "mode http\n cookie C insert",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"- protocol = "tcp""#,
            r#"+ sticky = { cookie = "C", mode = "insert", attributes = "Path=/" }"#,
            r#"+ { address = "10.0.0.5:80", cookie = "x" },"#,
            r#"+ protocol = "http""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
        ],
    ),
];

#[test]
fn cookies_are_imported_only_in_http_mode() {
    assert_changes(
        "listen l\n bind :80\n {}\n server a 10.0.0.5:80 cookie x\n",
        COOKIES_ARE_IMPORTED_ONLY_IN_HTTP_MODE,
    );
}
