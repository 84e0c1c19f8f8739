//! Servers that track other servers.

use super::{Row, assert_changes};

const TRACKING_SERVERS: &[Row] = &[
    (
        "",
        &[
            "+ [check.o-http]",
            r#"+ kind = "http""#,
            r#"+ interval = "7s""#,
            r#"+ timeout = "7s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ method = "GET""#,
            r#"+ path = "/o""#,
            r#"+ version = "1.0""#,
            "+ [check.o-http-2]",
            r#"+ kind = "http""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ method = "GET""#,
            r#"+ path = "/o""#,
            r#"+ version = "1.0""#,
            "+ port = 82",
            "+ [check.o-http-3]",
            r#"+ kind = "http""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ method = "GET""#,
            r#"+ path = "/o""#,
            r#"+ version = "1.0""#,
            "+ port = 82",
            r#"+ address = "10.0.0.5""#,
            "+ [check.o-agent]",
            r#"+ kind = "agent""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ port = 9",
            "+ [check.o-http-4]",
            r#"+ kind = "http""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ method = "GET""#,
            r#"+ path = "/o""#,
            r#"+ version = "1.0""#,
            r#"+ address = "10.0.0.77""#,
            "+ [pool.o]",
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80", check = ["o-http"] },"#,
            r#"+ { address = "10.0.0.5:81", check = ["o-http-2"] },"#,
            r#"+ { address = "10.0.0.7" },"#,
            r#"+ { address = "10.0.0.8:80", check = ["o-http-3"] },"#,
            r#"+ { address = "10.0.0.9:80", check = [] },"#,
            r#"+ { address = "unix:/run/s" },"#,
            r#"+ { address = "${UNSET}:80" },"#,
            "+ [pool.o.check]",
            r#"+ kind = "http""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ method = "GET""#,
            r#"+ path = "/o""#,
            r#"+ version = "1.0""#,
            "+ [check.b-tcp]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "9s""#,
            r#"+ timeout = "9s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.66:81", check = ["b-tcp"] },"#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "7: imported as the checks of the tracked server; `weir server` changes the state of \
            one server only",
            "8: without `check`, neither haproxy nor Weir checks this server",
            "9 LOST: not imported: server 10.0.0.9:80 is listed twice",
            "11 LOST: not imported: server 10.0.0.5:80 is listed twice",
            "13 LOST: track is not imported: the servers track each other, and haproxy rejects \
            the line",
            "13 LOST: not imported: server 10.0.0.5:80 is listed twice",
            "14 LOST: track is not imported: the servers track each other, and haproxy rejects \
            the line",
            "15: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
            "15 LOST: not imported: server 10.0.0.5:80 is listed twice",
        ],
    ),
    (
        "track o/a",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", check = ["o-http"] },"#,
            "18: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "track o/c",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", check = ["o-http-2"] },"#,
            "18: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "track o/n",
        &[
            "18 LOST: track is not imported: app.example is a name, but a check's `address` \
            accepts only an address",
        ],
    ),
    (
        "track o/p",
        &["18 LOST: track is not imported: the port of the tracked server is unknown"],
    ),
    (
        "track o/t",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", check = ["o-http-2"] },"#,
            "18: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "track o/x",
        &["18 LOST: track is not imported: o/x has no check, and haproxy rejects the line"],
    ),
    (
        "track o/tt",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", check = ["o-http-2"] },"#,
            "18: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "track o/ag",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            "+ [check.b-agent]",
            r#"+ kind = "agent""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ port = 9",
            r#"+ address = "10.0.0.9""#,
            r#"+ { address = "10.0.0.5:80", check = ["b-agent"] },"#,
            "18: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "track o/un",
        &["18 LOST: track is not imported: a check's `address` cannot be unix@/run/s"],
    ),
    (
        "track o/un2",
        &["18 LOST: track is not imported: a check's `address` cannot be ${UNSET}"],
    ),
    (
        "track o/ad",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", check = ["o-http-4"] },"#,
            "18: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "track o/l1",
        &[
            "18 LOST: track is not imported: the servers track each other, and haproxy rejects \
            the line",
        ],
    ),
    (
        "track o/z",
        &["18 LOST: track is not imported: the server `o/z` is not defined"],
    ),
    (
        "track z/a",
        &["18 LOST: track is not imported: the backend `z` is not defined"],
    ),
    (
        "track s",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            "+ [check.b-tcp-2]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "9s""#,
            r#"+ timeout = "9s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ address = "10.0.0.66""#,
            "+ port = 81",
            r#"+ { address = "10.0.0.5:80", check = ["b-tcp-2"] },"#,
            "18: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "track z",
        &["18 LOST: track is not imported: the server `z` is not defined"],
    ),
    (
        "track b",
        &[
            "18 LOST: track is not imported: the servers track each other, and haproxy rejects \
            the line",
        ],
    ),
    (
        "track o/a check",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", check = ["o-http"] },"#,
            "18: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "track o/a agent-check",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", check = ["o-http"] },"#,
            "18: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
];

#[test]
fn tracking_servers_get_the_checks_of_tracked_servers() {
    assert_changes(
        "backend o\n option httpchk GET /o\n server a 10.0.0.5:80 check inter 7s\n server c \
        10.0.0.5:81 check port 82\n server n app.example:80 check\n server p 10.0.0.7 check\n \
        server t 10.0.0.8:80 track c\n server x 10.0.0.9:80\n server ag 10.0.0.9:80 agent-check \
        agent-port 9\n server un unix@/run/s check\n server ad 10.0.0.5:80 check addr \
        10.0.0.77\n server un2 ${UNSET}:80 check\n server l1 10.0.0.5:80 track l2\n server l2 \
        10.0.0.5:80 track l1\n server tt 10.0.0.5:80 track t\nbackend b\n server s 10.0.0.66:81 \
        check inter 9s\n server b 10.0.0.5:80 {}\n",
        TRACKING_SERVERS,
    );
}

const TRACKING_SERVERS_WITH_DIFFERENT_ADDRESS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.o]",
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.7" },"#,
            "+ [pool.o.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ [pool.e]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.e.check]",
            r#"+ kind = "script""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ command = [\"/bin/sh\", \"-c\", \"PATH=\\\"$1\\\" \
            HAPROXY_SERVER_ADDR=\\\"$WEIR_ADDRESS\\\" HAPROXY_SERVER_PORT=\\\"$WEIR_PORT\\\" \
            exec \\\"$0\\\" NOT_USED NOT_USED \\\"$WEIR_ADDRESS\\\" \\\"$WEIR_PORT\\\"\", \
            \"/bin/true\", \"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"]",
            r#"+ user = "root""#,
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            "+ servers = []",
            "5 LOST: not imported: the name none cannot be resolved",
            "7: the program's first two arguments are NOT_USED, as in a backend; of haproxy's \
            variables, it gets only HAPROXY_SERVER_ADDR, HAPROXY_SERVER_PORT and PATH",
            "11 LOST: not imported: haproxy requires a name and an address",
        ],
    ),
    (
        "10.0.0.6:80 track o/a",
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.6:80" },"#,
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ address = "10.0.0.5""#,
            "+ port = 80",
            "11: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "10.0.0.6:81 track o/a",
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.6:81" },"#,
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ address = "10.0.0.5""#,
            "+ port = 80",
            "11: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "10.0.0.5:81 track o/a",
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.5:81" },"#,
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ port = 80",
            "11: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "10.0.0.5 track o/a",
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.5" },"#,
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ port = 80",
            "11: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "10.0.0.7 track o/p",
        &[
            "- [pool.o.check]",
            "- servers = []",
            r#"+ check = "tcp""#,
            "+ [check.tcp]",
            r#"+ { address = "10.0.0.7" },"#,
            r#"+ check = "tcp""#,
            "11: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "10.0.0.6:80 track o/p",
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.6:80" },"#,
            "11 LOST: track is not imported: the port of the tracked server is unknown",
        ],
    ),
    (
        "app.example:80 track o/n",
        &[
            "- [pool.o.check]",
            r#"+ check = "tcp""#,
            "+ [check.tcp]",
            r#"+ servers_dns = { name = "app.example", port = 80 }"#,
            r#"+ check = "tcp""#,
            "11: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "app.example:81 track o/n",
        &[
            r#"+ servers_dns = { name = "app.example", port = 81 }"#,
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ port = 80",
            "11: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "10.0.0.6:80 track o/t",
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.6:80" },"#,
            "11 LOST: track is not imported: the name none cannot be resolved",
        ],
    ),
    (
        "10.0.0.5:80 track e/a",
        &[
            "- [pool.e.check]",
            "- servers = []",
            r#"+ check = "script""#,
            "+ [check.script]",
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ check = "script""#,
            "11: imported as the checks of the tracked server; `weir server` changes the state \
            of one server only",
        ],
    ),
    (
        "10.0.0.6:80 track e/a",
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.6:80" },"#,
            "11 LOST: track is not imported: a program checks only its own server",
        ],
    ),
];

#[test]
fn tracking_server_with_different_address_checks_the_tracked_address() {
    assert_changes(
        "backend o\n server a 10.0.0.5:80 check\n server p 10.0.0.7 check\n server n \
        app.example:80 check\n server t tcp@none:80 check\nbackend e\n option external-check\n \
        external-check command /bin/true\n server a 10.0.0.5:80 check\nbackend b\n server b {}\n",
        TRACKING_SERVERS_WITH_DIFFERENT_ADDRESS,
    );
}
