//! Tests words, environment variables and old keywords in lines of haproxy.cfg.

use super::{Row, assert_changes};

const VARIABLES_OF_GLOBAL_APPLY_TO_THE_LINES_BELOW: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.6:80" },"#,
            "4 LOST: weight is not imported: the environment variable W is not set here; set it \
            and import again",
            "5 LOST: weight is not imported: haproxy rejects the value 8080",
        ],
    ),
    (
        "setenv W 3",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 3 },"#,
            "2: not imported: each use of a variable is replaced with its value",
        ],
    ),
    (
        "presetenv W 3",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 3 },"#,
            "2: not imported: each use of a variable is replaced with its value",
        ],
    ),
    (
        "presetenv PORT 4",
        &["2: not imported: each use of a variable is replaced with its value"],
    ),
    (
        "setenv PORT 4",
        &[
            r#"- { address = "10.0.0.6:80" },"#,
            r#"+ { address = "10.0.0.6:80", weight = 4 },"#,
            "2: not imported: each use of a variable is replaced with its value",
        ],
    ),
    (
        "unsetenv PORT",
        &[
            "2: not imported: each use of a variable is replaced with its value",
            "5 LOST: weight is not imported: the environment variable PORT is not set here; set \
            it and import again",
        ],
    ),
    (
        "unsetenv W PORT",
        &[
            "2: not imported: each use of a variable is replaced with its value",
            "5 LOST: weight is not imported: the environment variable PORT is not set here; set \
            it and import again",
        ],
    ),
    (
        "setenv W",
        &["2: not imported: each use of a variable is replaced with its value"],
    ),
    (
        "setenv W 3\n presetenv W 5",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 3 },"#,
            "2: not imported: each use of a variable is replaced with its value",
            "3: not imported: each use of a variable is replaced with its value",
            "6 LOST: weight is not imported: haproxy rejects the value 8080",
        ],
    ),
    (
        "setenv W 3\n unsetenv W\n presetenv W 5",
        &[
            r#"- { address = "10.0.0.5:80" },"#,
            r#"+ { address = "10.0.0.5:80", weight = 5 },"#,
            "2: not imported: each use of a variable is replaced with its value",
            "3: not imported: each use of a variable is replaced with its value",
            "4: not imported: each use of a variable is replaced with its value",
            "7 LOST: weight is not imported: haproxy rejects the value 8080",
        ],
    ),
    (
        "resetenv W",
        &["2: not imported: each use of a variable is replaced with its value"],
    ),
    (
        "foo W 3",
        &["2 LOST: not imported: weir.toml has no equivalent"],
    ),
    (
        "foo PORT",
        &["2 LOST: not imported: weir.toml has no equivalent"],
    ),
];

#[test]
fn variables_of_global_apply_to_the_lines_below() {
    assert_changes(
        "global\n {}\nbackend b\n server a 10.0.0.5:80 weight \"${W}\"\n server b 10.0.0.6:80 \
        weight \"$PORT\"\n",
        VARIABLES_OF_GLOBAL_APPLY_TO_THE_LINES_BELOW,
    );
}

const WORDS_ARE_SPLIT_AS_IN_HAPROXY: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
        ],
    ),
    (
        r#"http-request set-header Host "a.example""#,
        &[r#"+ host = "a.example""#],
    ),
    (
        "http-request set-header Host 'a.example'",
        &[r#"+ host = "a.example""#],
    ),
    (
        r#"http-request set-header Host 'a"b'"#,
        &[r#"+ host = "a\"b""#],
    ),
    (
        r#"http-request set-header Host "a'b""#,
        &[r#"+ host = "a'b""#],
    ),
    (
        r#"http-request set-header Host "a\"b""#,
        &[r#"+ host = "a\"b""#],
    ),
    (
        "http-request set-header Host a\\#b",
        &["3 LOST: not imported: invalid host a#b"],
    ),
    (
        "http-request set-header Host a\\ b",
        &["3 LOST: not imported: invalid host a b"],
    ),
    (
        "http-request set-header Host a\\\\b",
        &[r#"+ host = "a\\b""#],
    ),
    ("http-request set-header Host a\\$b", &[r#"+ host = "a$b""#]),
    ("http-request set-header Host a\\'b", &[r#"+ host = "a'b""#]),
    (
        "http-request set-header Host a\\tb",
        &["3 LOST: not imported: invalid host a\\tb"],
    ),
    (
        "http-request set-header Host a\\xb",
        &[r#"+ host = "a\\xb""#],
    ),
    ("http-request set-header Host a#b", &[r#"+ host = "a""#]),
    (
        "http-request set-header Host a#b # comment",
        &[r#"+ host = "a""#],
    ),
    (
        r#"http-request set-header Host "a#b""#,
        &["3 LOST: not imported: invalid host a#b"],
    ),
    (
        r#"http-request set-header Host "$PORT""#,
        &[r#"+ host = "8080""#],
    ),
    (
        r#"http-request set-header Host "${PORT}""#,
        &[r#"+ host = "8080""#],
    ),
    (
        r#"http-request set-header Host "${PORT-9}""#,
        &[r#"+ host = "8080""#],
    ),
    (
        r#"http-request set-header Host "${NONE-9}""#,
        &[r#"+ host = "9""#],
    ),
    (
        r#"http-request set-header Host "${NONE}""#,
        &[
            "3 LOST: not imported: the environment variable NONE is not set here; set it and \
            import again",
        ],
    ),
    (
        r#"http-request set-header Host "$NONE""#,
        &[
            "3 LOST: not imported: the environment variable NONE is not set here; set it and \
            import again",
        ],
    ),
    (
        "http-request set-header Host '${PORT}'",
        &[
            "3 LOST: not imported: the environment variable PORT is not set here; set it and \
            import again",
        ],
    ),
    (
        "http-request set-header Host ${PORT}",
        &[
            "3 LOST: not imported: the environment variable PORT is not set here; set it and \
            import again",
        ],
    ),
    (
        r#"http-request set-header Host "${PORT""#,
        &["3 OPEN: not imported: haproxy rejects an unterminated quote or escape"],
    ),
    (
        r#"http-request set-header Host "$PORT.x""#,
        &[r#"+ host = "8080.x""#],
    ),
    (
        r#"http-request set-header Host "$A_B""#,
        &[
            "3 LOST: not imported: the environment variable A_B is not set here; set it and \
            import again",
        ],
    ),
    (
        r#"http-request set-header Host "x" "if" "TRUE""#,
        &["3 LOST: not imported: it never applies to a client"],
    ),
    (
        r#"http-request set-header Host """#,
        &["3 LOST: not imported: invalid host "],
    ),
    (
        r#"http-request set-header Host "open"#,
        &["3 OPEN: not imported: haproxy rejects an unterminated quote or escape"],
    ),
    (
        "http-request set-header Host open\\",
        &["3 OPEN: not imported: haproxy rejects an unterminated quote or escape"],
    ),
    (
        "\tbalance\tsource",
        &[
            r#"- scheduler = "wrr""#,
            r#"+ scheduler = { name = "sh", flags = ["sh-fallback"] }"#,
        ],
    ),
    ("# balance source", &[]),
];

#[test]
fn words_are_split_as_in_haproxy() {
    assert_changes(
        "backend b\n mode http\n {}\n server a 10.0.0.5:80\n",
        WORDS_ARE_SPLIT_AS_IN_HAPROXY,
    );
}

const UNSET_VARIABLES_IN_OPTIONS_ARE_REPORTED: &[Row] = &[
    (
        "",
        &["+ [pool.b]", r#"+ scheduler = "wrr""#, "+ servers = []"],
    ),
    (
        r#"server a 10.0.0.5:80 check inter "${NONE}" weight 3"#,
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.5:80", weight = 3 },"#,
            "+ [pool.b.check]",
            r#"+ kind = "tcp""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            "2 LOST: inter is not imported: the environment variable NONE is not set here; set \
            it and import again",
        ],
    ),
    (
        r#"server a 10.0.0.5:80 "${NONE}" weight 3"#,
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.5:80", weight = 3 },"#,
            "2 LOST: ${NONE} is not imported: the environment variable NONE is not set here; set \
            it and import again",
        ],
    ),
    (
        r#"server a 10.0.0.5:80 ssl ca-file "${NONE}""#,
        &[
            "- servers = []",
            "+ tls = { verify = true }",
            r#"+ { address = "10.0.0.5:80" },"#,
            "2 OPEN: ca-file is not imported: the environment variable NONE is not set here; set \
            it and import again",
        ],
    ),
    (
        r#"server a 10.0.0.5:80 ssl crl-file "${NONE}""#,
        &[
            "- servers = []",
            "+ tls = { verify = true }",
            r#"+ { address = "10.0.0.5:80" },"#,
            "2 OPEN: crl-file is not imported: the environment variable NONE is not set here; \
            set it and import again",
        ],
    ),
    (
        r#"server a 10.0.0.5:80 ssl verify "${NONE}""#,
        &[
            "- servers = []",
            "+ tls = { verify = true }",
            r#"+ { address = "10.0.0.5:80" },"#,
            "2 OPEN: verify is not imported: the environment variable NONE is not set here; set \
            it and import again",
        ],
    ),
    (
        r#"server a 10.0.0.5:80 weight 3 "${NONE}""#,
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.5:80" },"#,
            "2 LOST: 3 is not imported: the environment variable NONE is not set here; set it \
            and import again",
            "2 LOST: weight is not imported: haproxy rejects it here, or requires a value after it",
        ],
    ),
    (
        r#"server a 10.0.0.5:80 inter "${NONE}" weight "${OTHER}""#,
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.5:80" },"#,
            "2 LOST: inter is not imported: the environment variable NONE is not set here; set \
            it and import again",
            "2 LOST: weight is not imported: the environment variable OTHER is not set here; set \
            it and import again",
        ],
    ),
    (
        r#"server "${NONE}" 10.0.0.5:80"#,
        &[
            "2 LOST: not imported: the environment variable NONE is not set here; set it and \
            import again",
        ],
    ),
    (
        "server a $ADDRESS:$PORT",
        &["- servers = []", r#"+ { address = "10.0.0.9:8080" },"#],
    ),
    (
        "server a ${ADDRESS}:${PORT-1}",
        &["- servers = []", r#"+ { address = "10.0.0.9:8080" },"#],
    ),
    (
        "server a ${NONE-10.0.0.7}:${NONE}",
        &["- servers = []", r#"+ { address = "10.0.0.7:${NONE}" },"#],
    ),
    (
        "server a $NONE:80",
        &["- servers = []", r#"+ { address = "${NONE}:80" },"#],
    ),
    (
        "server a ${ADDRESS",
        &[
            "- servers = []",
            "2 LOST: not imported: } is missing after ${ in ${ADDRESS",
        ],
    ),
    (
        "server a 10.0.0.5:80\n balance \"${NONE}\"",
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.5:80" },"#,
            "3 LOST: not imported: the environment variable NONE is not set here; set it and \
            import again",
        ],
    ),
    (
        "server a 10.0.0.5:80\n http-request deny if { src \"${NONE}\" }",
        &[
            "- servers = []",
            r#"+ { address = "10.0.0.5:80" },"#,
            "3 OPEN: not imported: the environment variable NONE is not set here; set it and \
            import again",
        ],
    ),
];

#[test]
fn unset_variables_in_options_are_reported() {
    assert_changes("backend b\n {}\n", UNSET_VARIABLES_IN_OPTIONS_ARE_REPORTED);
}

const UNSET_VARIABLES_IN_BINDS_ARE_REPORTED: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [service.f]",
            r#"+ listen = ["127.0.0.1:22000"]"#,
            r#"+ forward = "proxy""#,
            r#"+ protocol = "http""#,
            r#"+ pool = "b""#,
            "+ forwarded = false",
            "+ abort_on_close = false",
            "+ normalize_path = false",
            r#"+ underscores = "keep""#,
            "1 LOST: Weir cannot listen on any address of this section; the service listens on \
            127.0.0.1:22000, which all processes on this host can reach",
            "3 LOST: not imported: haproxy requires an address",
        ],
    ),
    (
        "$ADDRESS:$PORT",
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["10.0.0.9:8080"]"#,
        ],
    ),
    (
        r#":80 ssl crt "${NONE}""#,
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ tls = { certificates = "/etc/weir/certs" }"#,
            "3 LOST: crt is not imported: the environment variable NONE is not set here; set it \
            and import again",
            "3 LOST: the certificates are not imported: place them in /etc/weir/certs",
        ],
    ),
    (
        r#":80 ssl crt /a ca-file "${NONE}" verify required"#,
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
            r#"+ tls = { certificates = "/a" }"#,
            "3 OPEN: ca-file is not imported: the environment variable NONE is not set here; set \
            it and import again",
            "3 OPEN: verify is not imported: there is no ca-file",
        ],
    ),
    (
        r#":80 name "${NONE}""#,
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
            "3 LOST: name is not imported: the environment variable NONE is not set here; set it \
            and import again",
        ],
    ),
    (
        r#":80 "${NONE}""#,
        &[
            r#"- listen = ["127.0.0.1:22000"]"#,
            r#"+ listen = ["0.0.0.0:80"]"#,
            "3 LOST: ${NONE} is not imported: the environment variable NONE is not set here; set \
            it and import again",
        ],
    ),
];

#[test]
fn unset_variables_in_binds_are_reported() {
    assert_changes(
        "frontend f\n mode http\n bind {}\n default_backend b\nbackend b\n server a 10.0.0.5:80\n",
        UNSET_VARIABLES_IN_BINDS_ARE_REPORTED,
    );
}

const OLD_KEYWORDS_ARE_REPLACED: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
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
        ],
    ),
    ("clitimeout 5s", &[r#"+ timeouts = { client = "5s" }"#]),
    (
        "contimeout 5s",
        &[
            "4 LOST: not imported: a service's `timeouts` has no such key, or the service gets \
            it from another pool",
        ],
    ),
    (
        "srvtimeout 5s",
        &[
            "4 LOST: not imported: a service's `timeouts` has no such key, or the service gets \
            it from another pool",
        ],
    ),
];

#[test]
fn old_keywords_are_replaced() {
    assert_changes(
        "frontend f\n mode http\n bind :80\n {}\n default_backend b\nbackend b\n mode http\n \
        server a 10.0.0.5:80\n",
        OLD_KEYWORDS_ARE_REPLACED,
    );
}
