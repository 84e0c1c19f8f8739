//! Requests and responses of checks.

use super::{Row, assert_changes};

const TCP_CHECK_RULES_BECOME_AN_EXCHANGE: &[Row] = &[
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
    ("tcp-check connect", &[]),
    ("tcp-check", &[]),
    ("tcp-check connect port 81", &["+ port = 81"]),
    ("tcp-check connect port 65535", &["+ port = 65535"]),
    (
        "tcp-check connect port 65536",
        &["3 LOST: not imported: a check's `exchange` has no such step"],
    ),
    (
        "tcp-check connect port",
        &["3 LOST: not imported: a check's `exchange` has no such step"],
    ),
    (
        "tcp-check connect ssl",
        &["3 LOST: not imported: a check's `exchange` has no such step"],
    ),
    (
        "tcp-check connect\n tcp-check connect port 81\n tcp-check connect",
        &[
            "4 LOST: not imported: a check's `exchange` has no such step",
            "5 LOST: not imported: a check's `exchange` has no such step",
        ],
    ),
    ("tcp-check comment x", &[]),
    (
        "tcp-check expect string ready\n tcp-check comment x",
        &[
            r#"+ exchange = [{ expect = "ready" }]"#,
            "4 LOST: not imported: a check's `exchange` has no such step",
        ],
    ),
    (
        "tcp-check send PING\n tcp-check expect string PONG",
        &[r#"+ exchange = [{ send = "PING" }, { expect = "PONG" }]"#],
    ),
    (
        "tcp-check send PING comment x\n tcp-check expect string PONG comment y",
        &[r#"+ exchange = [{ send = "PING" }, { expect = "PONG" }]"#],
    ),
    (
        "tcp-check send-lf PING\n tcp-check expect string PONG",
        &[r#"+ exchange = [{ send = "PING" }, { expect = "PONG" }]"#],
    ),
    (
        "tcp-check send-lf %[src]\n tcp-check expect string PONG",
        &[
            r#"+ exchange = [{ expect = "PONG" }]"#,
            "3 LOST: not imported: a check's `exchange` has no such step",
        ],
    ),
    (
        "tcp-check expect rstring ^PONG",
        &[r#"+ exchange = [{ regex = "^PONG" }]"#],
    ),
    (
        "tcp-check expect ! string PONG",
        &["3 LOST: not imported: a check's `exchange` has no such step"],
    ),
    (
        "tcp-check expect binary 00",
        &["3 LOST: not imported: a check's `exchange` has no such step"],
    ),
    (
        "tcp-check send PING",
        &["3: not imported: haproxy does not wait for a response to this step"],
    ),
    (
        "tcp-check expect string x\n tcp-check send QUIT",
        &[
            r#"+ exchange = [{ expect = "x" }]"#,
            "4: not imported: haproxy does not wait for a response to this step",
        ],
    ),
    (
        "tcp-check send A\n tcp-check expect string x\n tcp-check send B\n tcp-check expect \
        rstring y\n tcp-check send QUIT",
        &[
            r#"+ exchange = [{ send = "A" }, { expect = "x" }, { send = "B" }, { regex = "y" }]"#,
            "7: not imported: haproxy does not wait for a response to this step",
        ],
    ),
];

#[test]
fn tcp_check_rules_become_an_exchange() {
    assert_changes(
        "backend b\n option tcp-check\n {}\n server a 10.0.0.5:80 check\n",
        TCP_CHECK_RULES_BECOME_AN_EXCHANGE,
    );
}

const TCP_CHECK_RULES_IN_DEFAULTS_APPLY_UNLESS_OVERRIDDEN: &[Row] = &[
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
            r#"+ exchange = [{ expect = "d" }]"#,
        ],
    ),
    (
        "tcp-check expect string own",
        &[
            r#"- exchange = [{ expect = "d" }]"#,
            r#"+ exchange = [{ expect = "own" }]"#,
            "3 LOST: not imported: no check of the section uses it",
        ],
    ),
];

#[test]
fn tcp_check_rules_in_defaults_apply_unless_overridden() {
    assert_changes(
        "defaults\n option tcp-check\n tcp-check expect string d\nbackend b\n {}\n server a \
        10.0.0.5:80 check\n",
        TCP_CHECK_RULES_IN_DEFAULTS_APPLY_UNLESS_OVERRIDDEN,
    );
}

const HTTP_CHECK_RULES_IN_DEFAULTS_APPLY_UNLESS_OVERRIDDEN: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.b.check]",
            r#"+ kind = "http""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ method = "OPTIONS""#,
            r#"+ path = "/""#,
            r#"+ version = "1.0""#,
            r#"+ expect = { body = "d" }"#,
        ],
    ),
    (
        "http-check expect string own",
        &[
            r#"- expect = { body = "d" }"#,
            r#"+ expect = { body = "own" }"#,
            "3 LOST: not imported: no check of the section uses it",
        ],
    ),
    (
        "http-check comment x",
        &[
            r#"- expect = { body = "d" }"#,
            "3 LOST: not imported: no check of the section uses it",
        ],
    ),
];

#[test]
fn http_check_rules_in_defaults_apply_unless_overridden() {
    assert_changes(
        "defaults\n option httpchk\n http-check expect string d\nbackend b\n {}\n server a \
        10.0.0.5:80 check\n",
        HTTP_CHECK_RULES_IN_DEFAULTS_APPLY_UNLESS_OVERRIDDEN,
    );
}

const HTTP_CHECK_REQUESTS_ARE_IMPORTED: &[Row] = &[
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
        "option httpchk /up",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "http""#,
            r#"+ method = "OPTIONS""#,
            r#"+ path = "/up""#,
            r#"+ version = "1.0""#,
        ],
    ),
    (
        "option httpchk HEAD /up",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "http""#,
            r#"+ method = "HEAD""#,
            r#"+ path = "/up""#,
            r#"+ version = "1.0""#,
        ],
    ),
    (
        "option httpchk GET /up HTTP/1.1",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "http""#,
            r#"+ method = "GET""#,
            r#"+ path = "/up""#,
        ],
    ),
    (
        "option httpchk GET /up HTTP/1.0",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "http""#,
            r#"+ method = "GET""#,
            r#"+ path = "/up""#,
            r#"+ version = "1.0""#,
        ],
    ),
    (
        "option httpchk GET /up HTTP/1.1\\r\\nHost:\\ a.example",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "http""#,
            r#"+ host = "a.example""#,
            r#"+ method = "GET""#,
            r#"+ path = "/up""#,
        ],
    ),
    (
        "option httpchk GET /up HTTP/1.1\\\\r\\\\nHost:\\ a.example\\\\r\\\\nX-A:\\ \
        b\\\\r\\\\nX-C:\\ d",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "http""#,
            r#"+ host = "a.example""#,
            r#"+ headers = ["X-A: b", "X-C: d"]"#,
            r#"+ method = "GET""#,
            r#"+ path = "/up""#,
        ],
    ),
    (
        "option httpchk GET /up HTTP/1.1\\\\r\\\\nHost: a.example",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "http""#,
            r#"+ host = "a.example""#,
            r#"+ method = "GET""#,
            r#"+ path = "/up""#,
        ],
    ),
    (
        "option httpchk GET /up HTTP/1.1\\\\r\\\\nnothing",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "http""#,
            r#"+ method = "GET""#,
            r#"+ path = "/up""#,
        ],
    ),
];

#[test]
fn http_check_requests_are_imported() {
    assert_changes(
        "backend b\n {}\n server a 10.0.0.5:80 check\n",
        HTTP_CHECK_REQUESTS_ARE_IMPORTED,
    );
}

const HTTP_CHECK_RULES_CHANGE_THE_CHECK: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.b.check]",
            r#"+ kind = "http""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ method = "OPTIONS""#,
            r#"+ path = "/""#,
            r#"+ version = "1.0""#,
        ],
    ),
    (
        "http-check send meth GET uri /up ver HTTP/1.1",
        &[
            r#"- method = "OPTIONS""#,
            r#"- path = "/""#,
            r#"- version = "1.0""#,
            r#"+ method = "GET""#,
            r#"+ path = "/up""#,
        ],
    ),
    ("http-check send ver HTTP/1.0", &[]),
    (
        "http-check send uri /up hdr Host a.example hdr HOST b.example",
        &[
            r#"- path = "/""#,
            r#"+ host = "a.example""#,
            r#"+ path = "/up""#,
            "3 LOST: not imported: duplicate key host",
        ],
    ),
    (
        "http-check send hdr X-A b hdr X-C d",
        &[r#"+ headers = ["X-A: b", "X-C: d"]"#],
    ),
    (
        "http-check send hdr X-A b\n http-check send hdr X-C d",
        &[r#"+ headers = ["X-A: b", "X-C: d"]"#],
    ),
    ("http-check send body text", &[r#"+ body = "text""#]),
    (
        "http-check send foo uri /up",
        &[
            r#"- path = "/""#,
            r#"+ path = "/up""#,
            "3 LOST: foo is not imported: a check has no such key",
        ],
    ),
    (
        "http-check expect status 200\n http-check expect string up",
        &[r#"+ expect = { body = "up" }"#],
    ),
    (
        "http-check expect foo",
        &[
            "3 LOST: not imported: a check's `expect` matches only the status or the body of a \
            response",
        ],
    ),
    ("http-check comment x", &[]),
    ("http-check connect", &[]),
    ("http-check connect default", &[]),
    ("http-check connect port 81", &["+ port = 81"]),
    ("http-check connect port 65535", &["+ port = 65535"]),
    (
        "http-check connect port 65536",
        &["3 LOST: not imported: a Weir check has no equivalent"],
    ),
    (
        "http-check connect ssl",
        &["3 LOST: not imported: a Weir check has no equivalent"],
    ),
    ("http-check connect comment x", &[]),
    ("http-check connect port 81 comment x", &["+ port = 81"]),
    (
        "http-check connect\n http-check connect",
        &["4 LOST: not imported: a Weir check sends only one request"],
    ),
    (
        "http-check expect status 200\n http-check connect port 81",
        &[
            r#"+ expect = { status = "200" }"#,
            "4 LOST: not imported: a Weir check sends only one request",
        ],
    ),
    (
        "http-check connect port 81\n http-check expect status 200",
        &["+ port = 81", r#"+ expect = { status = "200" }"#],
    ),
    (
        "http-check disable-on-404",
        &["3 LOST: not imported: a Weir check only reports up or down"],
    ),
    (
        "http-check send-state",
        &["3 LOST: not imported: a Weir check only reports up or down"],
    ),
    (
        "http-check set-var(x) int(1)",
        &["3 LOST: not imported: a Weir check has no equivalent"],
    ),
    (
        "http-check expect comment x status 200",
        &[r#"+ expect = { status = "200" }"#],
    ),
    (
        "http-check expect ok-status L7OK status 200",
        &[r#"+ expect = { status = "200" }"#],
    ),
    (
        "http-check expect min-recv 4 string up",
        &[r#"+ expect = { body = "up" }"#],
    ),
    (
        "http-check expect ! status 500",
        &[r#"+ expect = { status = "100-499,501-599" }"#],
    ),
    (
        "http-check expect ! comment x string down",
        &[r#"+ expect = { without = "down" }"#],
    ),
    (
        "http-check expect status 200-299 comment y",
        &[
            "3 LOST: not imported: a check's `expect` matches only the status or the body of a \
            response",
        ],
    ),
    (
        "http-check expect ! rstatus .",
        &["3 LOST: not imported: the regular expression is invalid, or every status matches it"],
    ),
    (
        "http-check expect rstatus (",
        &["3 LOST: not imported: the regular expression is invalid, or no status matches it"],
    ),
    (
        "http-check expect ! status 100-599",
        &["3 LOST: not imported: the list is invalid, or every status is in it"],
    ),
    (
        "http-check expect rstatus ^[24]0",
        &[r#"+ expect = { status = "200-209,400-409" }"#],
    ),
    (
        "http-check connect port 81\n server z 10.0.0.6:80 check port 82",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            "- [pool.b.check]",
            "+ [check.b-http]",
            "+ port = 82",
            "+ [check.b-http-2]",
            r#"+ kind = "http""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "+ port = 81",
            r#"+ method = "OPTIONS""#,
            r#"+ path = "/""#,
            r#"+ version = "1.0""#,
            r#"+ { address = "10.0.0.6:80", check = ["b-http"] },"#,
            r#"+ { address = "10.0.0.5:80", check = ["b-http-2"] },"#,
        ],
    ),
];

#[test]
fn http_check_rules_change_the_check() {
    assert_changes(
        "backend b\n option httpchk\n {}\n server a 10.0.0.5:80 check\n",
        HTTP_CHECK_RULES_CHANGE_THE_CHECK,
    );
}
