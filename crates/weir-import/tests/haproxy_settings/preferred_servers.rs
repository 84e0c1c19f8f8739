//! Tests servers that rules or cookies select.

use super::{Row, assert_changes};

const PREFERRED_SERVERS_OF_TCP_BACKENDS_GET_POOLS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80", weight = 3 },"#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "tcp""#,
            r#"+ pool = "b""#,
        ],
    ),
    (
        "use-server a if { src 10.0.0.0/8 }",
        &[
            "+ [pool.b-a]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.6:80", backup = true },"#,
            r#"+ [[route]] service = "f" source = ["10.0.0.0/8"] pool = "b-a""#,
        ],
    ),
    (
        "use-server c if { src 10.0.0.0/8 }\n use-server c if { src 10.1.0.0/16 }",
        &[
            "+ [pool.b-c]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.6:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 3, backup = true },"#,
            r#"+ [[route]] service = "f" source = ["10.0.0.0/8"] pool = "b-c""#,
            r#"+ [[route]] service = "f" source = ["10.1.0.0/16"] pool = "b-c""#,
        ],
    ),
    (
        "use-server z if { src 10.0.0.0/8 }",
        &[
            "5 LOST: not imported: the name is computed, or no `server` with an address has this \
            name",
        ],
    ),
    (
        "use-server a if { src 10.0.0.0/8 }\n server d 10.0.0.7:80 backup",
        &[
            r#"+ { address = "10.0.0.7:80", backup = true },"#,
            "+ [pool.b-a]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.6:80", backup = true },"#,
            r#"+ [[route]] service = "f" source = ["10.0.0.0/8"] pool = "b-a""#,
            "5 LOST: the backup servers of the backend are not used for these connections",
        ],
    ),
    (
        "use-server d if { src 10.0.0.0/8 }\n server d 10.0.0.7:80 backup",
        &[
            r#"+ { address = "10.0.0.7:80", backup = true },"#,
            "+ [pool.b-d]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.7:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 3, backup = true },"#,
            r#"+ { address = "10.0.0.6:80", backup = true },"#,
            r#"+ [[route]] service = "f" source = ["10.0.0.0/8"] pool = "b-d""#,
        ],
    ),
    (
        "use-server a if { src 10.0.0.0/8 }\n server d 10.0.0.7:80 backup\n server e 10.0.0.8:80 \
        backup",
        &[
            r#"+ sorry = { address = "10.0.0.8:80" }"#,
            r#"+ { address = "10.0.0.7:80", backup = true },"#,
            "+ [pool.b-a]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.6:80", backup = true },"#,
            r#"+ [[route]] service = "f" source = ["10.0.0.0/8"] pool = "b-a""#,
            "5 LOST: the backup servers of the backend are not used for these connections",
            "7: the second backup server is imported as `sorry`, which is used if the first one \
            is down",
        ],
    ),
    (
        "use-server a if { src 10.0.0.0/8 }\n server d app.example:80",
        &[
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            "5 LOST: not imported: the backend has servers whose names are resolved at run time; \
            such servers cannot be `backup`",
        ],
    ),
    (
        "balance source\n use-server a if { src 10.0.0.0/8 }",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            "+ [pool.b-a]",
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.6:80", backup = true },"#,
            r#"+ [[route]] service = "f" source = ["10.0.0.0/8"] pool = "b-a""#,
        ],
    ),
    (
        "mode http\n use-server a if { src 10.0.0.0/8 }",
        &["6 LOST: not imported: weir.toml has no equivalent"],
    ),
];

#[test]
fn preferred_servers_of_tcp_backends_get_pools() {
    assert_changes(
        "frontend f\n bind :80\n default_backend b\nbackend b\n {}\n server a 10.0.0.5:80 weight \
        3\n server c 10.0.0.6:80\n",
        PREFERRED_SERVERS_OF_TCP_BACKENDS_GET_POOLS,
    );
}

const PREFERRED_SERVERS_OF_A_LISTEN_SECTION_GET_POOLS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.l]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80", weight = 3 },"#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [service.l]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "tcp""#,
            r#"+ pool = "l""#,
        ],
    ),
    (
        "use-server a if { src 10.0.0.0/8 }",
        &[
            "+ [pool.l-a]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.6:80", backup = true },"#,
            r#"+ [[route]] service = "l" source = ["10.0.0.0/8"] pool = "l-a""#,
        ],
    ),
    (
        "mode http\n use-server a if { src 10.0.0.0/8 }",
        &[
            r#"- protocol = "tcp""#,
            r#"+ protocol = "http""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "+ [[route]] service = \"l\" source = [\"10.0.0.0/8\"] pool = \"l\" server = \
            \"10.0.0.5:80\"",
            r#"+ [[route]] service = "l" pool = "l""#,
        ],
    ),
];

#[test]
fn preferred_servers_of_a_listen_section_get_pools() {
    assert_changes(
        "listen l\n bind :80\n {}\n server a 10.0.0.5:80 weight 3\n server c 10.0.0.6:80\n",
        PREFERRED_SERVERS_OF_A_LISTEN_SECTION_GET_POOLS,
    );
}

const LISTEN_SECTION_WITHOUT_SERVERS_GETS_AN_EMPTY_POOL: &[Row] = &[
    (
        "",
        &[
            "+ [pool.no-servers]",
            "+ servers = []",
            "+ [service.l]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "no-servers""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "l" redirect = "/y""#,
        ],
    ),
    (
        "server a 10.0.0.5:80",
        &[
            "- [pool.no-servers]",
            "- servers = []",
            r#"- pool = "no-servers""#,
            "+ [pool.l]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ pool = "l""#,
        ],
    ),
    (
        "server a tcp@none:80",
        &[
            "- [pool.no-servers]",
            r#"- pool = "no-servers""#,
            "+ [pool.l]",
            r#"+ scheduler = "wrr""#,
            r#"+ pool = "l""#,
            "5 LOST: not imported: the name none cannot be resolved",
        ],
    ),
    (
        "server a app.example:80",
        &[
            "- [pool.no-servers]",
            r#"- pool = "no-servers""#,
            "+ [pool.l]",
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            r#"+ scheduler = "wrr""#,
            r#"+ pool = "l""#,
        ],
    ),
    ("balance roundrobin", &[]),
    (
        "server-template c 2 app.example:80",
        &[
            "- [pool.no-servers]",
            r#"- pool = "no-servers""#,
            "+ [pool.l]",
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            r#"+ scheduler = "wrr""#,
            r#"+ pool = "l""#,
            "5: the DNS records of the name determine the number of servers",
        ],
    ),
];

#[test]
fn listen_section_without_servers_gets_an_empty_pool() {
    assert_changes(
        "listen l\n mode http\n bind :80\n http-request redirect location /y\n {}\n",
        LISTEN_SECTION_WITHOUT_SERVERS_GETS_AN_EMPTY_POOL,
    );
}

const COOKIE_VALUES_SELECT_SERVERS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.9:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            r#"+ [[route]] service = "f" pool = "b" set_header = ["X-A: b"]"#,
            "9 LOST: not imported: the name none cannot be resolved",
        ],
    ),
    ("cookie C", &["8: not imported: no server has a cookie"]),
    (
        "cookie C\n server a 10.0.0.5:80 cookie x",
        &[
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [[route]] service = \"f\" cookie = [\"C=x\"] pool = \"b\" set_header = [\"X-A: \
            b\"] server = \"10.0.0.5:80\"",
            "8: imported as routes that match the cookie's value and set `server`",
            "10 LOST: not imported: the name none cannot be resolved",
        ],
    ),
    (
        "cookie C\n server a 10.0.0.5:80 cookie x\n server d 10.0.0.6:80 cookie y",
        &[
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [[route]] service = \"f\" cookie = [\"C=x\"] pool = \"b\" set_header = [\"X-A: \
            b\"] server = \"10.0.0.5:80\"",
            "+ [[route]] service = \"f\" cookie = [\"C=y\"] pool = \"b\" set_header = [\"X-A: \
            b\"] server = \"10.0.0.6:80\"",
            "8: imported as routes that match the cookie's value and set `server`",
            "11 LOST: not imported: the name none cannot be resolved",
        ],
    ),
    (
        "cookie C\n server a app.example:80 cookie x",
        &[
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            "8 LOST: not imported: a route's `server` accepts only an address, but the names of \
            servers are resolved at run time",
            "10 LOST: not imported: the name none cannot be resolved",
        ],
    ),
    (
        "cookie C\n server a 10.0.0.5:80 cookie x*",
        &[
            r#"+ { address = "10.0.0.5:80" },"#,
            "8 LOST: not imported: a route's `cookie` treats a value with `*` or a leading `~` \
            as a pattern",
            "10 LOST: not imported: the name none cannot be resolved",
        ],
    ),
    (
        "cookie C\n server a 10.0.0.5:80 cookie ~x",
        &[
            r#"+ { address = "10.0.0.5:80" },"#,
            "8 LOST: not imported: a route's `cookie` treats a value with `*` or a leading `~` \
            as a pattern",
            "10 LOST: not imported: the name none cannot be resolved",
        ],
    ),
    (
        "cookie C\n server a 10.0.0.5:80 cookie x~",
        &[
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [[route]] service = \"f\" cookie = [\"C=x~\"] pool = \"b\" set_header = [\"X-A: \
            b\"] server = \"10.0.0.5:80\"",
            "8: imported as routes that match the cookie's value and set `server`",
            "10 LOST: not imported: the name none cannot be resolved",
        ],
    ),
    (
        "cookie C insert\n server a 10.0.0.5:80 cookie x",
        &[
            r#"+ sticky = { cookie = "C", mode = "insert", attributes = "Path=/" }"#,
            r#"+ { address = "10.0.0.5:80", cookie = "x" },"#,
            "10 LOST: not imported: the name none cannot be resolved",
        ],
    ),
    (
        "cookie C\n default-server cookie d",
        &[
            "+ [[route]] service = \"f\" cookie = [\"C=d\"] pool = \"b\" set_header = [\"X-A: \
            b\"] server = \"10.0.0.9:80\"",
            "8: imported as routes that match the cookie's value and set `server`",
            "10 LOST: not imported: the name none cannot be resolved",
        ],
    ),
    (
        "cookie C\n server a 10.0.0.5:80 cookie x\n use-server z if { path /z }",
        &[
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [[route]] service = \"f\" path = \"/z\" pool = \"b\" set_header = [\"X-A: b\"] \
            server = \"10.0.0.9:80\"",
            "+ [[route]] service = \"f\" cookie = [\"C=x\"] pool = \"b\" set_header = [\"X-A: \
            b\"] server = \"10.0.0.5:80\"",
            "8: imported as routes that match the cookie's value and set `server`",
            "11 LOST: not imported: the name none cannot be resolved",
        ],
    ),
];

#[test]
fn cookie_values_select_servers() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n http-request set-header X-A b\n default_backend \
        b\nbackend b\n mode http\n {}\n server u tcp@none:80 cookie u\n server z 10.0.0.9:80\n",
        COOKIE_VALUES_SELECT_SERVERS,
    );
}

const COOKIE_WITHOUT_A_MODE_ADDS_ROUTES: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.9:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "8: cookie is not imported: haproxy ignores it in a section without `cookie`",
        ],
    ),
    (
        "cookie C",
        &[
            r#"+ [[route]] service = "f" cookie = ["C=z"] pool = "b" server = "10.0.0.9:80""#,
            r#"+ [[route]] service = "f" pool = "b""#,
            "7: imported as routes that match the cookie's value and set `server`",
        ],
    ),
    (
        "cookie C insert",
        &[
            r#"- { address = "10.0.0.9:80" },"#,
            r#"+ sticky = { cookie = "C", mode = "insert", attributes = "Path=/" }"#,
            r#"+ { address = "10.0.0.9:80", cookie = "z" },"#,
        ],
    ),
];

#[test]
fn cookie_without_a_mode_adds_routes() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n default_backend b\nbackend b\n mode http\n {}\n \
        server z 10.0.0.9:80 cookie z\n",
        COOKIE_WITHOUT_A_MODE_ADDS_ROUTES,
    );
}
