//! Servers of pools.

use super::{Row, assert_changes};

const SERVER_NAMES_BECOME_SERVERS_DNS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ sticky = { cookie = "C", mode = "insert", attributes = "Path=/" }"#,
            "+ servers = []",
            "1: its name servers are imported where the file uses them",
            "3: its name servers are imported where the file uses them",
        ],
    ),
    (
        "server a app.example:80",
        &[r#"+ servers_dns = { name = "app.example", port = 80 }"#],
    ),
    (
        "server a app.example",
        &[r#"+ servers_dns = { name = "app.example" }"#],
    ),
    (
        "server a ipv4@app.example:80",
        &[r#"+ servers_dns = { name = "app.example", port = 80 }"#],
    ),
    (
        "server a ipv6@app.example:80",
        &[r#"+ servers_dns = { name = "app.example", port = 80 }"#],
    ),
    (
        "server a app.example:x",
        &["7 LOST: not imported: invalid port x"],
    ),
    (
        "server a app_1.example:80",
        &[r#"+ servers_dns = { name = "app_1.example", port = 80 }"#],
    ),
    (
        "server-template w 3 10.0.0.5:80",
        &[
            "7: the DNS records of the name determine the number of servers",
            "7 LOST: not imported: `servers_dns` accepts only names, not addresses; list the \
            address in `servers`",
        ],
    ),
    (
        "server-template w 3 10.0.0.5",
        &[
            "7: the DNS records of the name determine the number of servers",
            "7 LOST: not imported: `servers_dns` accepts only names, not addresses; list the \
            address in `servers`",
        ],
    ),
    (
        "server-template w 3 a+b.example:80",
        &[
            "7: the DNS records of the name determine the number of servers",
            "7 LOST: not imported: a+b.example is not a valid host name",
        ],
    ),
    (
        "server-template w 3 :80",
        &[
            "7: the DNS records of the name determine the number of servers",
            "7 LOST: not imported:  is not a valid host name",
        ],
    ),
    (
        "server-template w 3",
        &["7 LOST: not imported: haproxy requires a prefix, a number and a name"],
    ),
    (
        "server-template w 3 app.example:80 check",
        &[
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "7: the DNS records of the name determine the number of servers",
        ],
    ),
    (
        "server-template w 1-3 _http._tcp.app.example weight 3 maxconn 5 backup",
        &[
            "+ servers_dns = { name = \"_http._tcp.app.example\", record = \"SRV\", \
            max_connections = 5, backup = true }",
            "7: the DNS records of the name determine the number of servers",
        ],
    ),
    (
        "server a app.example:80 init-addr last,libc weight 3",
        &[r#"+ servers_dns = { name = "app.example", weight = 3, port = 80 }"#],
    ),
    (
        "server a app.example:80 weight 3 init-addr none",
        &[r#"+ servers_dns = { name = "app.example", weight = 3, port = 80 }"#],
    ),
    (
        "server a app.example:80 weight 3",
        &[r#"+ servers_dns = { name = "app.example", weight = 3, port = 80 }"#],
    ),
    (
        "server a app.example:80 weight 1",
        &[r#"+ servers_dns = { name = "app.example", port = 80 }"#],
    ),
    (
        "server a app.example:80 weight 0",
        &[r#"+ servers_dns = { name = "app.example", weight = 0, port = 80 }"#],
    ),
    (
        "server a app.example:80 disabled",
        &[r#"+ servers_dns = { name = "app.example", weight = 0, port = 80 }"#],
    ),
    (
        "server a app.example:80 maxconn 0",
        &[r#"+ servers_dns = { name = "app.example", port = 80 }"#],
    ),
    (
        "server a app.example:80 maxconn 5",
        &[r#"+ servers_dns = { name = "app.example", max_connections = 5, port = 80 }"#],
    ),
    (
        "server a app.example:80 backup",
        &[r#"+ servers_dns = { name = "app.example", backup = true, port = 80 }"#],
    ),
    (
        "server a app.example:80 cookie x",
        &[r#"+ servers_dns = { name = "app.example", port = 80, cookie = "x" }"#],
    ),
    (
        r#"server a app.example:80 cookie "x#y""#,
        &[
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            "7 LOST: cookie is not imported: `servers_dns` does not accept `#` in it",
        ],
    ),
    (
        "server a app.example:80 resolvers r",
        &[r#"+ servers_dns = { name = "app.example", port = 80, resolvers = ["192.0.2.53:53"] }"#],
    ),
    (
        "server a app.example:80 resolvers empty",
        &[r#"+ servers_dns = { name = "app.example", port = 80 }"#],
    ),
    (
        "server a app.example:80 resolvers none",
        &[r#"+ servers_dns = { name = "app.example", port = 80 }"#],
    ),
    (
        "server a app.example:80 ssl verify none",
        &[
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            "+ tls = { verify = false }",
        ],
    ),
    (
        "server a app.example:80 proto h2",
        &[
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            "+ http2 = true",
        ],
    ),
    (
        "server a app.example:80 check on-marked-down shutdown-sessions",
        &[
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            r#"+ on_remove = "reset""#,
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ on_failure = "remove""#,
            "7: `on_remove` also closes connections to servers that a reload removes",
        ],
    ),
    (
        "server a app.example:80 send-proxy",
        &[
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            r#"+ proxy_protocol = "v1""#,
        ],
    ),
    (
        "server a app.example:80 slowstart 10s",
        &[
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            r#"+ slow_start = "10s""#,
        ],
    ),
    (
        "server a app.example:80 check\n server b b.example:80 check",
        &[
            "+ servers_dns = [{ name = \"app.example\", port = 80 }, { name = \"b.example\", \
            port = 80 }]",
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
        ],
    ),
    (
        "server a app.example:80 check\n server b b.example:80 check inter 5s",
        &[
            "+ servers_dns = [{ name = \"app.example\", port = 80 }, { name = \"b.example\", \
            port = 80 }]",
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "8 LOST: the server's check is not imported: all names in a pool's `servers_dns` \
            have the same checks, those of the first name",
        ],
    ),
    (
        "server a app.example:80 check\n server b 10.0.0.5:80",
        &[
            "- servers = []",
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            r#"+ { address = "10.0.0.5:80", check = [] },"#,
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
        ],
    ),
    (
        "server a app.example:80 backup\n server b b.example:80 backup",
        &[
            "+ servers_dns = [{ name = \"app.example\", backup = true, port = 80 }, { name = \
            \"b.example\", backup = true, port = 80 }]",
            "8 LOST: haproxy uses only the first backup server that is up; Weir uses all of them \
            together",
        ],
    ),
    (
        "server a app.example:80 backup\n server b 10.0.0.5:80 backup\n server c 10.0.0.6:80",
        &[
            "- servers = []",
            r#"+ servers_dns = { name = "app.example", backup = true, port = 80 }"#,
            r#"+ { address = "10.0.0.5:80", backup = true },"#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "8 LOST: haproxy uses only the first backup server that is up; Weir uses all of them \
            together",
        ],
    ),
    (
        "server a app.example:80 backup\n server b 10.0.0.5:80\n option allbackups",
        &[
            "- servers = []",
            r#"+ servers_dns = { name = "app.example", backup = true, port = 80 }"#,
            r#"+ { address = "10.0.0.5:80" },"#,
        ],
    ),
];

#[test]
fn server_names_become_servers_dns() {
    assert_changes(
        "resolvers r\n nameserver n 192.0.2.53:53\nresolvers empty\nbackend b\n mode http\n \
        cookie C insert\n {}\n",
        SERVER_NAMES_BECOME_SERVERS_DNS,
    );
}

const SERVERS_OF_A_POOL_ARE_COMBINED: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
        ],
    ),
    (
        "server b 10.0.0.5:80",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 2 },"#,
        ],
    ),
    (
        "server b 10.0.0.5:80 weight 3",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 4 },"#,
        ],
    ),
    (
        "server b 10.0.0.5:80 maxconn 5",
        &["4 LOST: not imported: server 10.0.0.5:80 is listed twice"],
    ),
    (
        "server b 10.0.0.6:80 maxconn 5\n server c 10.0.0.6:80 maxconn 6 weight 2",
        &[r#"+ { address = "10.0.0.6:80", weight = 3, max_connections = 11 },"#],
    ),
    (
        "server b 10.0.0.5:80 check",
        &[
            "+ [check.b-tcp]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "4 LOST: not imported: server 10.0.0.5:80 is listed twice",
        ],
    ),
    (
        "server b 10.0.0.5:80 backup",
        &["4 LOST: not imported: server 10.0.0.5:80 is listed twice"],
    ),
    (
        "server b 10.0.0.6:80 send-proxy",
        &[
            r#"+ { address = "10.0.0.6:80" },"#,
            "4 LOST: `proxy_protocol` is set per pool: the first server's setting is used, but \
            this server's differs",
        ],
    ),
    (
        "server b 10.0.0.6:80 ssl verify none",
        &[
            r#"+ { address = "10.0.0.6:80" },"#,
            "4 LOST: TLS to servers is set per pool: the first server's settings are used, but \
            this server's differ",
        ],
    ),
    (
        "server b 10.0.0.6:80 slowstart 10s",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ slow_start = "10s""#,
            r#"+ { address = "10.0.0.5:80", weight = 100 },"#,
            r#"+ { address = "10.0.0.6:80", weight = 100 },"#,
        ],
    ),
    (
        "server b 10.0.0.6:80 slowstart 10s weight 2\n server c 10.0.0.7:80 slowstart 10s",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ slow_start = "10s""#,
            r#"+ { address = "10.0.0.5:80", weight = 100 },"#,
            r#"+ { address = "10.0.0.6:80", weight = 200 },"#,
            r#"+ { address = "10.0.0.7:80", weight = 100 },"#,
        ],
    ),
    (
        "server b 10.0.0.6:80 slowstart 10s\n server c 10.0.0.7:80 slowstart 20s",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ slow_start = "10s""#,
            r#"+ { address = "10.0.0.5:80", weight = 100 },"#,
            r#"+ { address = "10.0.0.6:80", weight = 100 },"#,
            r#"+ { address = "10.0.0.7:80", weight = 100 },"#,
            "5 LOST: slowstart is not imported: `slow_start` is set per pool, but an earlier \
            server has a different time",
        ],
    ),
    (
        "server b 10.0.0.6:80 proto h2",
        &["+ http2 = true", r#"+ { address = "10.0.0.6:80" },"#],
    ),
    (
        "server b 10.0.0.6:80 proto h2\n server c c.example:80",
        &[
            r#"+ servers_dns = { name = "c.example", port = 80 }"#,
            "+ http2 = true",
            r#"+ { address = "10.0.0.6:80" },"#,
        ],
    ),
    (
        "server b 10.0.0.6:80 on-marked-down shutdown-sessions check",
        &[
            "+ [check.b-tcp]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ on_failure = "remove""#,
            r#"+ on_remove = "reset""#,
            r#"+ { address = "10.0.0.6:80", check = ["b-tcp"] },"#,
            "4: `on_remove` also closes connections to servers that a reload removes",
        ],
    ),
    (
        "server b 10.0.0.6:80 backup\n server c 10.0.0.7:80",
        &[
            r#"+ { address = "10.0.0.6:80", backup = true },"#,
            r#"+ { address = "10.0.0.7:80" },"#,
        ],
    ),
    (
        "server b 10.0.0.6:80 backup\n server c 10.0.0.7:80 backup",
        &[
            r#"+ sorry = { address = "10.0.0.7:80" }"#,
            r#"+ { address = "10.0.0.6:80", backup = true },"#,
            "5: the second backup server is imported as `sorry`, which is used if the first one \
            is down",
        ],
    ),
    (
        "server b 10.0.0.6:80 backup\n server c 10.0.0.7:80 backup check weight 3",
        &[
            "+ [check.b-tcp]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ sorry = { address = "10.0.0.7:80", check = ["b-tcp"] }"#,
            r#"+ { address = "10.0.0.6:80", backup = true },"#,
            "5: the second backup server is imported as `sorry`, which is used if the first one \
            is down",
        ],
    ),
    (
        "server b 10.0.0.6:80 backup\n server c 10.0.0.7:80 backup\n server d 10.0.0.8:80 backup",
        &[
            r#"+ { address = "10.0.0.6:80", backup = true },"#,
            r#"+ { address = "10.0.0.7:80", backup = true },"#,
            r#"+ { address = "10.0.0.8:80", backup = true },"#,
            "6 LOST: haproxy uses only the first backup server that is up; Weir uses all of them \
            together",
        ],
    ),
    (
        "server b 10.0.0.6:80 backup\n server c 10.0.0.7:80 backup\n option allbackups",
        &[
            r#"+ { address = "10.0.0.6:80", backup = true },"#,
            r#"+ { address = "10.0.0.7:80", backup = true },"#,
        ],
    ),
    (
        "server b",
        &["4 LOST: not imported: haproxy requires a name and an address"],
    ),
    (
        "source 10.0.0.1",
        &[
            "4 LOST: not imported: Weir has no setting for the source address of connections to \
            servers",
        ],
    ),
];

#[test]
fn servers_of_a_pool_are_combined() {
    assert_changes(
        "backend b\n mode http\n server a 10.0.0.5:80\n {}\n",
        SERVERS_OF_A_POOL_ARE_COMBINED,
    );
}

const FIRST_SERVER_DETERMINES_TLS_AND_THE_PROXY_PROTOCOL_OF_THE_POOL: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ slow_start = "5s""#,
            r#"+ scheduler = "wrr""#,
            r#"+ proxy_protocol = "v1""#,
            "+ tls = { verify = false }",
            r#"+ { address = "10.0.0.5:80", weight = 100 },"#,
        ],
    ),
    (
        "server b 10.0.0.6:80 ssl verify none send-proxy slowstart 5s",
        &[r#"+ { address = "10.0.0.6:80", weight = 100 },"#],
    ),
    (
        "server b 10.0.0.6:80 ssl verify none send-proxy-v2 slowstart 5s",
        &[
            r#"+ { address = "10.0.0.6:80", weight = 100 },"#,
            "3 LOST: `proxy_protocol` is set per pool: the first server's setting is used, but \
            this server's differs",
        ],
    ),
    (
        "server b 10.0.0.6:80 ssl ca-file /ca send-proxy",
        &[
            r#"+ { address = "10.0.0.6:80", weight = 100 },"#,
            "3 LOST: TLS to servers is set per pool: the first server's settings are used, but \
            this server's differ",
        ],
    ),
    (
        "server b 10.0.0.6:80 send-proxy",
        &[
            r#"+ { address = "10.0.0.6:80", weight = 100 },"#,
            "3 LOST: TLS to servers is set per pool: the first server's settings are used, but \
            this server's differ",
        ],
    ),
    (
        "server b b.example:80",
        &[
            r#"+ servers_dns = { name = "b.example", port = 80 }"#,
            "3 LOST: `proxy_protocol` is set per pool: the first server's setting is used, but \
            this server's differs",
            "3 LOST: TLS to servers is set per pool: the first server's settings are used, but \
            this server's differ",
        ],
    ),
    (
        "server b b.example:80 ssl verify none send-proxy slowstart 5s",
        &[r#"+ servers_dns = { name = "b.example", port = 80 }"#],
    ),
    (
        "server b b.example:80 ssl verify none send-proxy-v2 slowstart 6s",
        &[
            r#"+ servers_dns = { name = "b.example", port = 80 }"#,
            "3 LOST: `proxy_protocol` is set per pool: the first server's setting is used, but \
            this server's differs",
            "3 LOST: slowstart is not imported: `slow_start` is set per pool, but an earlier \
            server has a different time",
        ],
    ),
];

#[test]
fn first_server_determines_tls_and_the_proxy_protocol_of_the_pool() {
    assert_changes(
        "backend b\n server a 10.0.0.5:80 ssl verify none send-proxy slowstart 5s\n  {}\n",
        FIRST_SERVER_DETERMINES_TLS_AND_THE_PROXY_PROTOCOL_OF_THE_POOL,
    );
}
