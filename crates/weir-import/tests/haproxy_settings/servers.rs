//! Addresses, defaults and cookies of servers.

use super::{Row, assert_changes};

const ADDRESSES_OF_SERVERS_ARE_CONVERTED: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            "+ servers = []",
            "2 LOST: not imported: haproxy requires a name and an address",
        ],
    ),
    (
        "10.0.0.5",
        &["- servers = []", r#"+ { address = "10.0.0.5" },"#],
    ),
    (
        "10.0.0.5:",
        &["- servers = []", r#"+ { address = "10.0.0.5" },"#],
    ),
    (
        "10.0.0.5:0",
        &["- servers = []", r#"+ { address = "10.0.0.5" },"#],
    ),
    (
        "10.0.0.5:65535",
        &["- servers = []", r#"+ { address = "10.0.0.5:65535" },"#],
    ),
    (
        "10.0.0.5:65536",
        &["2 LOST: not imported: invalid port 65536"],
    ),
    (
        "10.0.0.5:+8",
        &["2 LOST: not imported: Weir does not support ports relative to the client's"],
    ),
    (
        "10.0.0.5:-8",
        &["2 LOST: not imported: Weir does not support ports relative to the client's"],
    ),
    (
        "ipv4@10.0.0.5:80",
        &["- servers = []", r#"+ { address = "10.0.0.5:80" },"#],
    ),
    (
        "tcp4@10.0.0.5:80",
        &["- servers = []", r#"+ { address = "10.0.0.5:80" },"#],
    ),
    (
        "ipv6@[fd00::1]:80",
        &["- servers = []", r#"+ { address = "[fd00::1]:80" },"#],
    ),
    (
        "tcp6@fd00::1:80",
        &["- servers = []", r#"+ { address = "[fd00::1]:80" },"#],
    ),
    (
        "tcp@10.0.0.5:80",
        &["- servers = []", r#"+ { address = "10.0.0.5:80" },"#],
    ),
    (
        "unix@/run/a",
        &["- servers = []", r#"+ { address = "unix:/run/a" },"#],
    ),
    (
        "unix@run/a",
        &["2 LOST: not imported: the path is not absolute"],
    ),
    (
        "abns@x",
        &["2 LOST: not imported: Weir does not support abns@ server addresses"],
    ),
    (
        "/run/a",
        &["- servers = []", r#"+ { address = "unix:/run/a" },"#],
    ),
    (
        "fd00::1:80",
        &["- servers = []", r#"+ { address = "[fd00::1]:80" },"#],
    ),
    (
        "fd00::1",
        &["- servers = []", r#"+ { address = "fd00::1" },"#],
    ),
    (
        "[fd00::1]",
        &["- servers = []", r#"+ { address = "fd00::1" },"#],
    ),
    (
        "[fd00::1]:80",
        &["- servers = []", r#"+ { address = "[fd00::1]:80" },"#],
    ),
    (
        "${UNSET}:80",
        &["- servers = []", r#"+ { address = "${UNSET}:80" },"#],
    ),
    (
        "${UNSET}",
        &["- servers = []", r#"+ { address = "${UNSET}" },"#],
    ),
    (
        "10.0.0.5:${UNSET}",
        &["- servers = []", r#"+ { address = "10.0.0.5:${UNSET}" },"#],
    ),
    (
        "${ADDRESS}:${PORT}",
        &["- servers = []", r#"+ { address = "10.0.0.9:8080" },"#],
    ),
    (
        "localhost:80",
        &["- servers = []", r#"+ { address = "127.0.0.1:80" },"#],
    ),
    (
        "ipv4@localhost:80",
        &["- servers = []", r#"+ { address = "127.0.0.1:80" },"#],
    ),
    (
        "ipv6@localhost:80",
        &["- servers = []", r#"+ { address = "[::1]:80" },"#],
    ),
    (
        "tcp6@localhost:80",
        &["- servers = []", r#"+ { address = "[::1]:80" },"#],
    ),
    (
        "tcp@localhost:80",
        &["- servers = []", r#"+ { address = "127.0.0.1:80" },"#],
    ),
    (
        "tcp4@four:80",
        &["- servers = []", r#"+ { address = "192.0.2.4:80" },"#],
    ),
    (
        "tcp6@six:80",
        &["- servers = []", r#"+ { address = "[fd00::6]:80" },"#],
    ),
    (
        "tcp@six:80",
        &["- servers = []", r#"+ { address = "[fd00::6]:80" },"#],
    ),
    (
        "tcp@both:80",
        &["- servers = []", r#"+ { address = "192.0.2.4:80" },"#],
    ),
    (
        "tcp4@six:80",
        &["2 LOST: not imported: the name six cannot be resolved"],
    ),
    (
        "tcp6@four:80",
        &["2 LOST: not imported: the name four cannot be resolved"],
    ),
    (
        "tcp@none:80",
        &["2 LOST: not imported: the name none cannot be resolved"],
    ),
];

#[test]
fn addresses_of_servers_are_converted() {
    assert_changes(
        "backend b\n server a {}\n",
        ADDRESSES_OF_SERVERS_ARE_CONVERTED,
    );
}

const UNIX_SOCKET_PATHS_ARE_RELATIVE_TO_THE_CHROOT: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "unix:/run/a" },"#,
            "5 LOST: not imported: the path is not absolute",
        ],
    ),
    (
        "chroot /srv",
        &[
            r#"- { address = "unix:/run/a" },"#,
            r#"+ { address = "unix:/srv/run/a" },"#,
            r#"+ { address = "unix:/srv/run/c" },"#,
            "2: not imported: the systemd unit controls how the process runs",
        ],
    ),
    (
        "chroot /srv/",
        &[
            r#"- { address = "unix:/run/a" },"#,
            r#"+ { address = "unix:/srv/run/a" },"#,
            r#"+ { address = "unix:/srv/run/c" },"#,
            "2: not imported: the systemd unit controls how the process runs",
        ],
    ),
    (
        "chroot",
        &["2: not imported: the systemd unit controls how the process runs"],
    ),
];

#[test]
fn unix_socket_paths_are_relative_to_the_chroot() {
    assert_changes(
        "global\n {}\nbackend b\n server a /run/a\n server c unix@run/c\n",
        UNIX_SOCKET_PATHS_ARE_RELATIVE_TO_THE_CHROOT,
    );
}

const DEFAULT_SERVER_OPTIONS_ADD_TO_THOSE_IN_DEFAULTS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ servers_dns = { name = "app.example", weight = 3, port = 80 }"#,
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80", weight = 3 },"#,
            r#"+ { address = "10.0.0.6:80", weight = 4 },"#,
            "7: the DNS records of the name determine the number of servers",
        ],
    ),
    (
        "backup",
        &[
            r#"- servers_dns = { name = "app.example", weight = 3, port = 80 }"#,
            r#"- { address = "10.0.0.5:80", weight = 3 },"#,
            r#"- { address = "10.0.0.6:80", weight = 4 },"#,
            r#"+ servers_dns = { name = "app.example", weight = 3, backup = true, port = 80 }"#,
            r#"+ { address = "10.0.0.5:80", weight = 3, backup = true },"#,
            r#"+ { address = "10.0.0.6:80", weight = 4, backup = true },"#,
            "5 LOST: haproxy uses only the first backup server that is up; Weir uses all of them \
            together",
            "6 LOST: haproxy uses only the first backup server that is up; Weir uses all of them \
            together",
        ],
    ),
    (
        "weight 5 maxconn 9",
        &[
            r#"- servers_dns = { name = "app.example", weight = 3, port = 80 }"#,
            r#"- { address = "10.0.0.5:80", weight = 3 },"#,
            r#"- { address = "10.0.0.6:80", weight = 4 },"#,
            "+ servers_dns = { name = \"app.example\", weight = 3, max_connections = 9, port = \
            80 }",
            r#"+ { address = "10.0.0.5:80", weight = 3, max_connections = 9 },"#,
            r#"+ { address = "10.0.0.6:80", weight = 4, max_connections = 9 },"#,
        ],
    ),
    (
        "check",
        &[
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
        ],
    ),
];

#[test]
fn default_server_options_add_to_those_in_defaults() {
    assert_changes(
        "defaults\n default-server {}\nbackend b\n default-server weight 3\n server a \
        10.0.0.5:80\n server b 10.0.0.6:80 weight 4\n server-template c 2 app.example:80\n",
        DEFAULT_SERVER_OPTIONS_ADD_TO_THOSE_IN_DEFAULTS,
    );
}

const SERVER_COOKIE_IS_IMPORTED_ONLY_WITH_A_COOKIE_MODE: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "4: cookie is not imported: haproxy ignores it in a section without `cookie`",
        ],
    ),
    (
        "cookie C",
        &["3: imported as routes that match the cookie's value and set `server`"],
    ),
    (
        "cookie C indirect nocache",
        &["3: imported as routes that match the cookie's value and set `server`"],
    ),
    (
        "cookie C httponly secure",
        &["3: imported as routes that match the cookie's value and set `server`"],
    ),
    (
        "cookie C insert",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ sticky = { cookie = "C", mode = "insert", attributes = "Path=/" }"#,
            r#"+ { address = "10.0.0.5:80", cookie = "x" },"#,
        ],
    ),
    (
        "cookie C rewrite",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ sticky = { cookie = "C", mode = "rewrite" }"#,
            r#"+ { address = "10.0.0.5:80", cookie = "x" },"#,
        ],
    ),
    (
        "cookie C prefix",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ sticky = { cookie = "C", mode = "prefix" }"#,
            r#"+ { address = "10.0.0.5:80", cookie = "x" },"#,
        ],
    ),
    (
        "cookie C foo",
        &[
            "3 LOST: foo is not imported: `sticky` has no such key",
            "3 LOST: not imported: `mode` in `sticky` must be insert, rewrite or prefix",
            "4 LOST: cookie is not imported: the section's `cookie` is not imported",
        ],
    ),
    (
        "mode tcp\n cookie C insert",
        &[
            "4: not imported: it has no effect in mode tcp",
            "5: cookie is not imported: haproxy ignores it in a section without `cookie`",
        ],
    ),
    (
        "mode tcp\n cookie C",
        &[
            "4: not imported: it has no effect in mode tcp",
            "5: cookie is not imported: haproxy ignores it in a section without `cookie`",
        ],
    ),
];

#[test]
fn server_cookie_is_imported_only_with_a_cookie_mode() {
    assert_changes(
        "backend b\n mode http\n {}\n server a 10.0.0.5:80 cookie x\n server b 10.0.0.6:80\n",
        SERVER_COOKIE_IS_IMPORTED_ONLY_WITH_A_COOKIE_MODE,
    );
}

const USE_SERVER_BECOMES_A_ROUTE_TO_THE_SERVER: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
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
            "10 LOST: not imported: the name none cannot be resolved",
            "11 LOST: not imported: haproxy requires a name and an address",
        ],
    ),
    (
        "use-server a if { path /x }",
        &[
            r#"+ [[route]] service = "f" path = "/x" pool = "b" server = "10.0.0.5:80""#,
            r#"+ [[route]] service = "f" pool = "b""#,
        ],
    ),
    (
        "use-server n if { path /x }",
        &[
            "7 LOST: not imported: the server is not in `servers` of its pool: its name is \
            resolved at run time",
        ],
    ),
    (
        "use-server u if { path /x }",
        &["7 LOST: not imported: the name none cannot be resolved"],
    ),
    (
        "use-server z if { path /x }",
        &["7 LOST: not imported: the name is computed, or no `server` has this name"],
    ),
    (
        "use-server a c if { path /x }",
        &["7 LOST: not imported: haproxy requires the name of a server"],
    ),
    (
        "use-server if { path /x }",
        &["7 LOST: not imported: haproxy requires the name of a server"],
    ),
];

#[test]
fn use_server_becomes_a_route_to_the_server() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n default_backend b\nbackend b\n mode http\n {}\n \
        server a 10.0.0.5:80\n server n app.example:80\n server u tcp@none:80\n server\n",
        USE_SERVER_BECOMES_A_ROUTE_TO_THE_SERVER,
    );
}
