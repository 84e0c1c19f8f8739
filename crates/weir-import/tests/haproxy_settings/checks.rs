//! Tests kinds of checks.

use super::{Row, assert_changes};

const OPTIONS_SELECT_THE_KIND_OF_CHECK: &[Row] = &[
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
        "option smtpchk",
        &[r#"- kind = "tcp""#, r#"+ kind = "smtp""#],
    ),
    (
        "option smtpchk EHLO mail.example",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "smtp""#,
            r#"+ helo = "mail.example""#,
        ],
    ),
    (
        "option mysql-check",
        &[r#"- kind = "tcp""#, r#"+ kind = "mysql""#],
    ),
    (
        "option mysql-check user haproxy",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "mysql""#,
            r#"+ user = "haproxy""#,
        ],
    ),
    (
        "option pgsql-check user haproxy",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "postgres""#,
            r#"+ user = "haproxy""#,
        ],
    ),
    (
        "option redis-check",
        &[r#"- kind = "tcp""#, r#"+ kind = "redis""#],
    ),
    (
        "option ssl-hello-chk",
        &[r#"- kind = "tcp""#, r#"+ kind = "tls""#],
    ),
    (
        "option ldap-check",
        &["2 LOST: Weir has no equivalent for ldap-check: the check only opens a connection"],
    ),
    (
        "option spop-check",
        &["2 LOST: Weir has no equivalent for spop-check: the check only opens a connection"],
    ),
    ("option tcp-check", &[]),
    (
        "option httpchk",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "http""#,
            r#"+ method = "OPTIONS""#,
            r#"+ path = "/""#,
            r#"+ version = "1.0""#,
        ],
    ),
    (
        "option httpchk\n option tcp-check",
        &["2: not imported: a later option replaces it"],
    ),
    (
        "option tcp-check\n option httpchk",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "http""#,
            r#"+ method = "OPTIONS""#,
            r#"+ path = "/""#,
            r#"+ version = "1.0""#,
            "2: not imported: a later option replaces it",
        ],
    ),
    (
        "option httpchk\n no option httpchk",
        &[
            "2 LOST: not imported: weir.toml has no equivalent",
            "3: not imported: the option is off in Weir too",
        ],
    ),
    (
        "no option httpchk",
        &["2: not imported: the option is off in Weir too"],
    ),
    (
        "option httplog",
        &[
            "2: not imported: the default format is used; `format` of a service's `access_log` \
            accepts a template",
        ],
    ),
    (
        "http-check expect status 200",
        &[
            "2: not imported: haproxy ignores it, because the checks of the section do not use \
            HTTP",
        ],
    ),
    (
        "timeout check 5s",
        &[r#"- timeout = "2s""#, r#"+ timeout = "5s""#],
    ),
    (
        "timeout check x",
        &["2 LOST: not imported: haproxy requires a time"],
    ),
    (
        "option external-check",
        &["2 LOST: not imported: haproxy rejects it without `external-check command`"],
    ),
    (
        "option external-check\n external-check command /bin/true",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "script""#,
            "+ command = [\"/bin/sh\", \"-c\", \"PATH=\\\"$1\\\" \
            HAPROXY_SERVER_ADDR=\\\"$WEIR_ADDRESS\\\" HAPROXY_SERVER_PORT=\\\"$WEIR_PORT\\\" \
            exec \\\"$0\\\" NOT_USED NOT_USED \\\"$WEIR_ADDRESS\\\" \\\"$WEIR_PORT\\\"\", \
            \"/bin/true\", \"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"]",
            r#"+ user = "root""#,
            "2: the program's first two arguments are NOT_USED, as in a backend; of haproxy's \
            variables, it gets only HAPROXY_SERVER_ADDR, HAPROXY_SERVER_PORT and PATH",
        ],
    ),
    (
        "option external-check\n external-check command /bin/true\n external-check path /bin",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "script""#,
            "+ command = [\"/bin/sh\", \"-c\", \"PATH=\\\"$1\\\" \
            HAPROXY_SERVER_ADDR=\\\"$WEIR_ADDRESS\\\" HAPROXY_SERVER_PORT=\\\"$WEIR_PORT\\\" \
            exec \\\"$0\\\" NOT_USED NOT_USED \\\"$WEIR_ADDRESS\\\" \\\"$WEIR_PORT\\\"\", \
            \"/bin/true\", \"/bin\"]",
            r#"+ user = "root""#,
            "2: the program's first two arguments are NOT_USED, as in a backend; of haproxy's \
            variables, it gets only HAPROXY_SERVER_ADDR, HAPROXY_SERVER_PORT and PATH",
        ],
    ),
    (
        "option external-check\n external-check command",
        &[
            r#"- kind = "tcp""#,
            r#"+ kind = "script""#,
            "+ command = [\"/bin/sh\", \"-c\", \"PATH=\\\"$1\\\" \
            HAPROXY_SERVER_ADDR=\\\"$WEIR_ADDRESS\\\" HAPROXY_SERVER_PORT=\\\"$WEIR_PORT\\\" \
            exec \\\"$0\\\" NOT_USED NOT_USED \\\"$WEIR_ADDRESS\\\" \\\"$WEIR_PORT\\\"\", \"\", \
            \"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"]",
            r#"+ user = "root""#,
            "2: the program's first two arguments are NOT_USED, as in a backend; of haproxy's \
            variables, it gets only HAPROXY_SERVER_ADDR, HAPROXY_SERVER_PORT and PATH",
        ],
    ),
];

#[test]
fn options_select_the_kind_of_check() {
    assert_changes(
        "backend b\n {}\n server a 10.0.0.5:80 check\n",
        OPTIONS_SELECT_THE_KIND_OF_CHECK,
    );
}

const LAST_CHECK_OPTION_OF_SECTION_OR_DEFAULTS_APPLIES: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.b.check]",
            r#"+ kind = "redis""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
        ],
    ),
    (
        "option httpchk",
        &["2: not imported: a later option replaces it"],
    ),
    (
        "option redis-check",
        &["2: not imported: a later option replaces it"],
    ),
    (
        "option tcp-check\n tcp-check send x\n tcp-check expect string y",
        &[
            "2: not imported: a later option replaces it",
            "3 LOST: not imported: no check of the section uses it",
            "4 LOST: not imported: no check of the section uses it",
        ],
    ),
    (
        "http-check expect status 200",
        &["2 LOST: not imported: no check of the section uses it"],
    ),
];

#[test]
fn last_check_option_of_section_or_defaults_applies() {
    assert_changes(
        "defaults\n {}\nbackend b\n option redis-check\n server a 10.0.0.5:80 check\n",
        LAST_CHECK_OPTION_OF_SECTION_OR_DEFAULTS_APPLIES,
    );
}

const SERVERS_WITHOUT_CHECK_HAVE_A_NOTE: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
        ],
    ),
    (
        "option httpchk",
        &["3: without `check`, neither haproxy nor Weir checks this server"],
    ),
    ("option tcp-check", &[]),
    (
        "option httpchk\n default-server check",
        &[
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
        "option httpchk\n default-server agent-check agent-port 9",
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
        "option httpchk\n server z 10.0.0.6:80 check",
        &[
            "+ [check.b-http]",
            r#"+ kind = "http""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ method = "OPTIONS""#,
            r#"+ path = "/""#,
            r#"+ version = "1.0""#,
            r#"+ { address = "10.0.0.6:80", check = ["b-http"] },"#,
            "4: without `check`, neither haproxy nor Weir checks this server",
        ],
    ),
];

#[test]
fn servers_without_check_have_a_note() {
    assert_changes(
        "backend b\n {}\n server a 10.0.0.5:80\n",
        SERVERS_WITHOUT_CHECK_HAVE_A_NOTE,
    );
}

const CHECKS_OF_TLS_SERVERS_USE_TLS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ tls = { ca = "/ca" }"#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.b.check]",
            r#"+ kind = "tls""#,
            r#"+ interval = "2s""#,
            r#"+ timeout = "2s""#,
            "+ rise = 2",
            "+ fall = 3",
            r#"+ start = "up""#,
            r#"+ ca = "/ca""#,
        ],
    ),
    (
        "option httpchk",
        &[
            r#"- kind = "tls""#,
            r#"+ kind = "https""#,
            r#"+ method = "OPTIONS""#,
            r#"+ path = "/""#,
            r#"+ version = "1.0""#,
        ],
    ),
    (
        "option smtpchk",
        &[
            r#"- kind = "tls""#,
            r#"- ca = "/ca""#,
            r#"+ kind = "smtp""#,
            "3 LOST: not imported: ca is not valid for smtp checks",
        ],
    ),
    ("option ssl-hello-chk", &[]),
    ("option tcp-check", &[]),
];

#[test]
fn checks_of_tls_servers_use_tls() {
    assert_changes(
        "backend b\n {}\n server a 10.0.0.5:80 check ssl ca-file /ca\n",
        CHECKS_OF_TLS_SERVERS_USE_TLS,
    );
}

const GLOBAL_USER_RUNS_EXTERNAL_CHECKS: &[Row] = &[
    (
        "",
        &[
            "+ [pool.b]",
            r#"+ scheduler = "wrr""#,
            r#"+ { address = "10.0.0.5:80" },"#,
            "+ [pool.b.check]",
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
            "4: the program's first two arguments are NOT_USED, as in a backend; of haproxy's \
            variables, it gets only HAPROXY_SERVER_ADDR, HAPROXY_SERVER_PORT and PATH",
        ],
    ),
    (
        "user haproxy",
        &[
            r#"- user = "root""#,
            r#"+ user = "haproxy""#,
            "2: not imported: the systemd unit controls how the process runs",
        ],
    ),
    (
        "user",
        &["2: not imported: the systemd unit controls how the process runs"],
    ),
];

#[test]
fn global_user_runs_external_checks() {
    assert_changes(
        "global\n {}\nbackend b\n option external-check\n external-check command /bin/true\n \
        server a 10.0.0.5:80 check\n",
        GLOBAL_USER_RUNS_EXTERNAL_CHECKS,
    );
}
