//! Tests the import of the options of servers, their checks and their agents.

use super::{Row, assert_changes};

const SERVER_OPTIONS_BECOME_KEYS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ sticky = { cookie = "C", mode = "insert", attributes = "Path=/" }"#,
            r#"+ { address = "10.0.0.5:80" },"#,
        ],
    ),
    (
        "cookie x",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", cookie = "x" },"#,
        ],
    ),
    ("cookie", &[]),
    ("resolvers r", &[]),
    (
        "id 3 weight 2",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 2 },"#,
            "4: id is not imported: a server in weir.toml has no such key",
        ],
    ),
    (
        "tfo weight 2",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 2 },"#,
            "4: tfo is not imported: a server in weir.toml has no such key",
        ],
    ),
    (
        "observe layer7 weight 2",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 2 },"#,
            "4: observe is not imported: Weir ejects a server if requests fail only on that \
            server; see `max_ejected`",
        ],
    ),
    (
        "minconn 3 weight 2",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 2 },"#,
            "4 LOST: minconn is not imported: a server in weir.toml has no such key",
        ],
    ),
    (
        "foo bar weight 2",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 2 },"#,
            "4 LOST: foo is not imported: a server in weir.toml has no such key",
        ],
    ),
    (
        "foo",
        &["4 LOST: foo is not imported: haproxy rejects it here, or requires a value after it"],
    ),
    (
        "weight",
        &["4 LOST: weight is not imported: haproxy rejects it here, or requires a value after it"],
    ),
    (
        "weight 0",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 0 },"#,
        ],
    ),
    ("weight 1", &[]),
    (
        "weight 256",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 256 },"#,
        ],
    ),
    (
        "weight 257",
        &["4 LOST: weight is not imported: haproxy rejects the value 257"],
    ),
    (
        "weight x",
        &["4 LOST: weight is not imported: haproxy rejects the value x"],
    ),
    ("maxconn 0", &[]),
    (
        "maxconn 5",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", max_connections = 5 },"#,
        ],
    ),
    (
        "maxconn x",
        &["4 LOST: maxconn is not imported: haproxy rejects the value x"],
    ),
    (
        "agent-check",
        &["4 LOST: not imported: haproxy rejects agent-check without agent-port"],
    ),
    (
        "backup",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", backup = true },"#,
        ],
    ),
    (
        "disabled",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 0 },"#,
            "4: disabled, so imported with weight = 0; `weir server POOL/ADDRESS maint` does \
            this at run time",
        ],
    ),
    (
        "disabled weight 3",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 0 },"#,
            "4: disabled, so imported with weight = 0; `weir server POOL/ADDRESS maint` does \
            this at run time",
        ],
    ),
    ("ssl", &["+ tls = { verify = true }"]),
    ("ssl verify none", &["+ tls = { verify = false }"]),
    ("verify none", &[]),
    ("ssl crt /a crt /b", &[r#"+ tls = { certificate = "/b" }"#]),
    (
        "ssl sni req.hdr(host)",
        &[
            "+ tls = { verify = true }",
            "4 LOST: sni is not imported: `server_name` accepts only a fixed name",
        ],
    ),
    (
        "ssl ssl-min-ver TLSv1.2",
        &[r#"+ tls = { minimum = "1.2" }"#],
    ),
    (
        "ssl ssl-min-ver TLSv1.3",
        &[r#"+ tls = { minimum = "1.3" }"#],
    ),
    (
        "ssl ssl-min-ver TLSv1.1",
        &[
            "+ tls = { verify = true }",
            "4 LOST: Weir does not support TLS versions below 1.2",
        ],
    ),
    ("ssl ca-file @system-ca", &["+ tls = { verify = true }"]),
    (
        "ssl verifyhost x.example",
        &[r#"+ tls = { server_name = "x.example" }"#],
    ),
    (
        "ssl verifyhost x.example sni str(x.example)",
        &[r#"+ tls = { server_name = "x.example" }"#],
    ),
    (
        "ssl verifyhost x.example sni str(y.example)",
        &[
            r#"+ tls = { server_name = "y.example" }"#,
            "4 OPEN: verifyhost is not imported: Weir verifies the name that it sends as SNI \
            (`sni`)",
        ],
    ),
    ("send-proxy", &[r#"+ proxy_protocol = "v1""#]),
    ("send-proxy-v2", &[r#"+ proxy_protocol = "v2""#]),
    ("send-proxy-v2-ssl", &[r#"+ proxy_protocol = "v2""#]),
    ("send-proxy-v2-ssl-cn", &[r#"+ proxy_protocol = "v2""#]),
    ("proto h2", &["+ http2 = true"]),
    ("proto h1", &[]),
    (
        "proto fcgi",
        &["4 LOST: proto is not imported: a server in weir.toml has no such key"],
    ),
    (
        "slowstart 20s",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ slow_start = "20s""#,
            r#"+ { address = "10.0.0.5:80", weight = 100 },"#,
        ],
    ),
    (
        "slowstart x",
        &["4 LOST: slowstart is not imported: haproxy rejects the value x"],
    ),
    (
        "slowstart 20s weight 3",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ slow_start = "20s""#,
            r#"+ { address = "10.0.0.5:80", weight = 300 },"#,
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
    (
        "agent-check agent-port 9",
        &[
            "+ [pool.b.check]",
            r#"+ kind = "agent""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ port = 9",
        ],
    ),
    (
        "check agent-check agent-port 9",
        &[
            "+ [[pool.b.check]]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ [[pool.b.check]]",
            r#"+ kind = "agent""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ port = 9",
        ],
    ),
    (
        "agent-check agent-port 1",
        &[
            "+ [pool.b.check]",
            r#"+ kind = "agent""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ port = 1",
        ],
    ),
    (
        "agent-check agent-port 65535",
        &[
            "+ [pool.b.check]",
            r#"+ kind = "agent""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ port = 65535",
        ],
    ),
    (
        "agent-check agent-port 65536",
        &[
            "4 LOST: agent-port is not imported: haproxy rejects the value 65536",
            "4 LOST: not imported: haproxy rejects agent-check without agent-port",
        ],
    ),
    (
        "agent-check agent-port 0",
        &[
            "4 LOST: agent-port is not imported: haproxy rejects the value 0",
            "4 LOST: not imported: haproxy rejects agent-check without agent-port",
        ],
    ),
];

#[test]
fn server_options_become_keys() {
    assert_changes(
        "backend b\n mode http\n cookie C insert\n server a 10.0.0.5:80 {}\n",
        SERVER_OPTIONS_BECOME_KEYS,
    );
}

const CHECK_OPTIONS_BECOME_KEYS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
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
        "rise 5 fall 4",
        &["- rise = 2", "- fall = 3", "+ rise = 5", "+ fall = 4"],
    ),
    (
        "rise x",
        &["2 LOST: rise is not imported: haproxy rejects the value x"],
    ),
    (
        "fall x",
        &["2 LOST: fall is not imported: haproxy rejects the value x"],
    ),
    ("port 1", &["+ port = 1"]),
    ("port 65535", &["+ port = 65535"]),
    (
        "port 65536",
        &["2 LOST: port is not imported: haproxy rejects the value 65536"],
    ),
    (
        "port 0",
        &["2 LOST: port is not imported: haproxy rejects the value 0"],
    ),
    (
        "inter 3s",
        &[
            r#"- interval = "2s""#,
            r#"- timeout = "2s""#,
            r#"+ interval = "3s""#,
            r#"+ timeout = "3s""#,
        ],
    ),
    (
        "inter x",
        &["2 LOST: inter is not imported: haproxy rejects the value x"],
    ),
    (
        "fastinter 1s",
        &[
            r#"+ interval_falling = "1s""#,
            r#"+ interval_rising = "1s""#,
        ],
    ),
    ("downinter 10s", &[r#"+ interval_down = "10s""#]),
    ("addr 10.0.0.9", &[r#"+ address = "10.0.0.9""#]),
    ("addr four", &[r#"+ address = "192.0.2.4""#]),
    (
        "addr none",
        &["2 LOST: addr none is not imported: it cannot be resolved"],
    ),
    (
        "addr 10.0.0.9 ssl verify none",
        &["+ tls = { verify = false }", r#"+ address = "10.0.0.9""#],
    ),
    (
        "port 81 ssl verify none",
        &["+ tls = { verify = false }", "+ port = 81"],
    ),
    (
        "port 81 ssl verify none check-ssl",
        &[
            r#"- kind = "tcp""#,
            "+ tls = { verify = false }",
            r#"+ kind = "tls""#,
            "+ verify = false",
            "+ port = 81",
        ],
    ),
    (
        "ssl ca-file /ca crt /c sni str(x.example) verify required",
        &[
            r#"- kind = "tcp""#,
            r#"+ tls = { ca = "/ca", certificate = "/c", server_name = "x.example" }"#,
            r#"+ kind = "tls""#,
            r#"+ ca = "/ca""#,
            r#"+ server_name = "x.example""#,
        ],
    ),
    (
        "ssl ca-file /ca check-sni y.example",
        &[
            r#"- kind = "tcp""#,
            r#"+ tls = { ca = "/ca" }"#,
            r#"+ kind = "tls""#,
            r#"+ ca = "/ca""#,
            r#"+ server_name = "y.example""#,
        ],
    ),
    (
        "ssl check-sni y.example sni str(x.example)",
        &[
            r#"- kind = "tcp""#,
            r#"+ tls = { server_name = "x.example" }"#,
            r#"+ kind = "tls""#,
            r#"+ server_name = "y.example""#,
        ],
    ),
    ("check-ssl", &[r#"- kind = "tcp""#, r#"+ kind = "tls""#]),
    ("check-send-proxy", &[r#"+ proxy_protocol = "v1""#]),
    (
        "check-send-proxy send-proxy-v2",
        &[r#"+ proxy_protocol = "v2""#, r#"+ proxy_protocol = "v1""#],
    ),
    (
        "send-proxy",
        &[r#"+ proxy_protocol = "v1""#, r#"+ proxy_protocol = "v1""#],
    ),
    (
        "send-proxy port 81",
        &[r#"+ proxy_protocol = "v1""#, "+ port = 81"],
    ),
    (
        "on-marked-down shutdown-sessions",
        &[
            r#"+ on_remove = "reset""#,
            r#"+ on_failure = "remove""#,
            "2: `on_remove` also closes connections to servers that a reload removes",
        ],
    ),
    (
        "on-marked-down x",
        &["2 LOST: on-marked-down is not imported: a server in weir.toml has no such key"],
    ),
    ("init-state up", &[]),
    ("init-state fully-up", &[]),
    (
        "init-state down",
        &[r#"- start = "up""#, r#"+ start = "down""#],
    ),
    (
        "init-state fully-down",
        &[r#"- start = "up""#, r#"+ start = "down""#],
    ),
    (
        "init-state x",
        &["2 LOST: init-state is not imported: a server in weir.toml has no such key"],
    ),
];

#[test]
fn check_options_become_keys() {
    assert_changes(
        "backend b\n server a 10.0.0.5:80 check {}\n",
        CHECK_OPTIONS_BECOME_KEYS,
    );
}

const AGENT_OPTIONS_BECOME_KEYS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.b.check]",
            r#"+ kind = "agent""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ port = 9",
        ],
    ),
    (
        "inter 4s",
        &[
            r#"- interval = "2s""#,
            r#"- timeout = "2s""#,
            r#"+ interval = "4s""#,
            r#"+ timeout = "4s""#,
        ],
    ),
    (
        "inter 4s agent-inter 5s",
        &[
            r#"- interval = "2s""#,
            r#"- timeout = "2s""#,
            r#"+ interval = "5s""#,
            r#"+ timeout = "5s""#,
        ],
    ),
    ("agent-send ready", &[r#"+ send = "ready""#]),
    ("rise 4", &["- rise = 2", "+ rise = 4"]),
    ("agent-port 10", &["- port = 9", "+ port = 10"]),
    (
        "agent-inter x",
        &["2 LOST: agent-inter is not imported: haproxy rejects the value x"],
    ),
    ("port 81", &[]),
    ("addr 10.0.0.9", &[]),
    ("send-proxy", &[r#"+ proxy_protocol = "v1""#]),
    ("ssl verify none", &["+ tls = { verify = false }"]),
];

#[test]
fn agent_options_become_keys() {
    assert_changes(
        "backend b\n server a 10.0.0.5:80 agent-check agent-port 9 {}\n",
        AGENT_OPTIONS_BECOME_KEYS,
    );
}

const NEGATED_OPTIONS_REVERT_EARLIER_OPTIONS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
        ],
    ),
    ("disabled enabled", &[]),
    ("check no-check", &[]),
    ("backup no-backup", &[]),
    ("ssl verify none no-ssl", &[]),
    ("send-proxy no-send-proxy", &[]),
    ("send-proxy-v2 no-send-proxy-v2", &[]),
    ("send-proxy-v2-ssl no-send-proxy-v2-ssl", &[]),
    (
        "ssl verifyhost x.example no-verifyhost",
        &["+ tls = { verify = true }"],
    ),
    ("no-sni-auto", &[]),
    ("no-check-sni-auto", &[]),
    ("agent-check agent-port 9 no-agent-check", &[]),
    (
        "check check-ssl no-check-ssl",
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
    (
        "check check-send-proxy no-check-send-proxy",
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
    ("no-sslv3", &[]),
    ("no-tlsv12", &[]),
    (
        "stick",
        &["3 LOST: stick is not imported: a server in weir.toml has no such key"],
    ),
    (
        "non-stick",
        &["3 LOST: non-stick is not imported: a server in weir.toml has no such key"],
    ),
    (
        "check-via-socks4",
        &["3 LOST: check-via-socks4 is not imported: a server in weir.toml has no such key"],
    ),
    ("no-tlsv13", &[]),
    (
        "sni-auto",
        &["3 LOST: sni-auto is not imported: a server in weir.toml has no such key"],
    ),
    (
        "force-tlsv12",
        &["3 LOST: force-tlsv12 is not imported: a server in weir.toml has no such key"],
    ),
];

#[test]
fn negated_options_revert_earlier_options() {
    assert_changes(
        "backend b\n mode http\n server a 10.0.0.5:80 {}\n",
        NEGATED_OPTIONS_REVERT_EARLIER_OPTIONS,
    );
}
