use super::CheckKind;
use crate::ldirectord::tests::{Row, assert_rows, import, short_notes};

#[test]
fn check_type_is_a_number_or_a_keyword() {
    for (value, word, expected) in [
        ("3", "3", Some(CheckKind::Combined)),
        ("connect2", "connect2", Some(CheckKind::Combined)),
        ("negotiate", "negotiate", Some(CheckKind::Negotiate)),
        ("connect", "connect", Some(CheckKind::Connect)),
        ("ping", "ping", Some(CheckKind::Ping)),
        ("external", "external", Some(CheckKind::External)),
        (
            "external-perl",
            "external-perl",
            Some(CheckKind::ExternalPerl),
        ),
        ("off", "off", Some(CheckKind::Off)),
        ("on", "on", Some(CheckKind::On)),
        ("magic", "magic", None),
        ("", "", None),
    ] {
        assert_eq!(CheckKind::read(value, word), expected, "{value}");
    }
}

const NO_CHECK: &str = "4: not imported: there is no check";

const KINDS: &[Row<'_>] = &[
    ("checktype=connect", "kind = \"tcp\"", &[]),
    ("checktype=connect;protocol=udp", "kind = \"ping\"", &[]),
    ("checktype=ping", "kind = \"ping\"", &[]),
    ("checktype=negotiate", "kind = \"http\"", &[]),
    (
        "checktype=2",
        "kind = \"http\"",
        &["3: every probe is a negotiate check: there are no connect checks in between"],
    ),
    (
        "checktype=external",
        "command = [\"/bin/true\", \"192.0.2.1\", \"80\", \"10.0.0.5\", \"80\"]\nuser = \"root\"",
        &[],
    ),
    (
        "checktype=external-perl;checkcommand=/a b",
        "command = [\"/usr/bin/perl\", \"/a b\", \"192.0.2.1\", \"80\", \"10.0.0.5\", \"80\"]",
        &["3: each probe starts perl: the script's variables do not outlive a probe"],
    ),
    ("checktype=connect;checkport=81", "port = 81", &[]),
    (
        "checktype=ping;checkport=81",
        "kind = \"ping\"",
        &["4: not imported: no check of the service uses this setting"],
    ),
    ("checktype=on;request=\"x\"", "", &[NO_CHECK]),
    ("checktype=on;receive=\"x\"", "", &[NO_CHECK]),
    ("checktype=on;checkcommand=x", "", &[NO_CHECK]),
    ("checktype=on;virtualhost=x", "", &[NO_CHECK]),
    ("checktype=on;httpmethod=GET", "", &[NO_CHECK]),
    ("checktype=on;login=\"x\"", "", &[NO_CHECK]),
    ("checktype=on;service=http", "", &[NO_CHECK]),
    (
        "checktype=off;request=\"x\"",
        "weight = 0",
        &[
            "2: imported with weight = 0: checktype off takes the server out of service",
            NO_CHECK,
        ],
    ),
];

#[test]
fn check_types_become_check_kinds() {
    assert_rows(KINDS);
}

#[test]
fn external_check_of_a_mark_gets_the_mark() {
    let text = "virtual=7\n\treal=10.0.0.5:81 gate\n\tchecktype=external\n";
    let toml = import(text).toml;
    let expected = "command = [\"/bin/true\", \"7\", \"-\", \"10.0.0.5\", \"81\"]";
    assert!(toml.contains(expected), "{toml}");
}

#[test]
fn port_of_the_virtual_service_selects_the_default_service() {
    let none = "1: no check: ldirectord has none for this service";
    for (port, expected, notes) in [
        ("21", "(?m)^220 ", &[][..]),
        ("25", "kind = \"smtp\"", &[]),
        ("80", "kind = \"http\"", &[]),
        ("110", "regex = \"^\\\\+OK\"", &[]),
        ("119", "regex = \"^2\"", &[]),
        ("143", "PREAUTH", &[]),
        (
            "389",
            "\"ldap\"",
            &["1: each probe runs perl with Net::LDAP, which ldirectord also uses"],
        ),
        ("443", "kind = \"https\"", &[]),
        ("587", "kind = \"smtp\"", &[]),
        (
            "636",
            "\"ldaps\"",
            &["1: each probe runs perl with Net::LDAP, which ldirectord also uses"],
        ),
        ("993", "PREAUTH", &[]),
        ("995", "verify = false", &[]),
        (
            "1521",
            "kind = \"tcp\"",
            &["1: Weir has no oracle check; a tcp check is used instead"],
        ),
        ("1812", "kind = \"udp\"", &[]),
        ("3306", "kind = \"mysql\"", &[]),
        ("5060", "OPTIONS sip:", &[]),
        ("5432", "kind = \"postgres\"", &[]),
        ("8080", "", &[none]),
    ] {
        let text = format!("virtual=192.0.2.1:{port}\n\treal=10.0.0.5:4000 masq\n");
        let imported = import(&text);
        assert!(
            imported.toml.contains(expected),
            "{port}: {}",
            imported.toml
        );
        assert_eq!(short_notes(&imported, &text), notes, "{port}");
    }
    for header in ["virtual=192.0.2.1:8080", "virtual=80"] {
        let text = format!("{header}\n\treal=10.0.0.5:80 masq\n");
        let imported = import(&text);
        assert_eq!(short_notes(&imported, &text), [none], "{header}");
        assert!(!imported.toml.contains("check"), "{}", imported.toml);
    }
}

const HTTP: &[Row<'_>] = &[
    ("", "status = \"200-299\" }", &[]),
    ("service=https", "verify = false", &[]),
    (
        "httpmethod=HEAD;virtualhost=a.example",
        "method = \"HEAD\"\nhost = \"a.example\"",
        &[],
    ),
    ("receive=\"a.b\"", "regex = \"a.b\"", &[]),
    ("receive=\"a\\.b\"", "body = \"a.b\"", &[]),
    (
        "service=http_proxy;request=\"http://a.example/x\"",
        "send = \"GET http://a.example/x HTTP/1.0\\r\\nHost: a.example\\r\\n\\r\\n\"",
        &[],
    ),
    (
        "service=http_proxy;request=\"http://a.example:81\";httpmethod=HEAD;receive=\"OK\"",
        "send = \"HEAD http://a.example:81 HTTP/1.0\\r\\nHost: a.example:81\\r\\n\\r\\n\", \
         regex = \"^HTTP/1\\\\.[01] 2[0-9][0-9] \" }, { expect = \"OK\" }",
        &[],
    ),
    (
        "service=http_proxy;request=\"/x\"",
        "kind = \"tcp\"",
        &["4: `request` for an http_proxy service must be a URL; a tcp check is used instead"],
    ),
    (
        "service=http_proxy;request=\"http:///x\"",
        "kind = \"tcp\"",
        &["4: `request` for an http_proxy service must be a URL; a tcp check is used instead"],
    ),
    (
        "service=http_proxy",
        "kind = \"tcp\"",
        &["3: `request` for an http_proxy service must be a URL; a tcp check is used instead"],
    ),
];

#[test]
fn http_settings_become_a_request_and_an_expected_response() {
    assert_rows(HTTP);
    let toml = import("virtual=192.0.2.1:80\n\treal=10.0.0.5:80 gate\n").toml;
    assert!(!toml.contains("verify"), "{toml}");
}

const DIALOGUES: &[Row<'_>] = &[
    ("service=smtp", "kind = \"smtp\"", &[]),
    ("service=nntp", "exchange = [{ regex = \"^2\" }]", &[]),
    (
        "service=imap;login=\"u\";passwd=\"p\"",
        "{ send = \"a1 LOGIN \\\"u\\\" \\\"p\\\"\\r\\n\", regex = \"(?m)^a1 OK\" }]",
        &[],
    ),
    (
        "service=imap;login=\"u\"",
        "a1 LOGIN \\\"u\\\" \\\"\\\"",
        &[],
    ),
    ("service=imaps", "kind = \"tls\"", &[]),
    (
        "service=imap",
        "exchange = [{ regex = \"(?m)^\\\\* (OK|PREAUTH)\" }]",
        &[],
    ),
    (
        "service=pop;login=\"u\";passwd=\"p\"",
        "{ send = \"USER u\\r\\n\", regex = \"^\\\\+OK\" }, { send = \"PASS p\\r\\n\", regex = \"^\\\\+OK\" }]",
        &[],
    ),
    ("service=pops", "verify = false", &[]),
    (
        "service=ftp",
        "{ send = \"USER anonymous\\r\\n\", regex = \"(?m)^(230|331) \" }, \
         { send = \"PASS ldirectord@localhost\\r\\n\", regex = \"(?m)^(202|230) \" }]",
        &[],
    ),
    ("service=ftp;login=\"u\"", "PASS ldirectord@localhost", &[]),
    ("service=ftp;login=\"u\";passwd=\"p\"", "PASS p", &[]),
    (
        "service=ftp;receive=\"x\"",
        "USER anonymous",
        &["4: not imported: the check only logs in, and does not transfer a file"],
    ),
    (
        "service=ftp;receive=\"x\";request=\"f\"",
        "\"anonymous\", \"ldirectord@localhost\", \"/f\", \"x\"]",
        &["3: each probe runs perl with Net::FTP, which ldirectord also uses"],
    ),
    (
        "service=simpletcp",
        "exchange = [{ regex = \"(?s).\" }]",
        &[],
    ),
    (
        "service=simpletcp;request=\"a\\nb\";receive=\"c\"",
        "exchange = [{ send = \"a\\nb\", expect = \"c\" }]",
        &[],
    ),
    ("service=simpletcp;protocol=udp", "payload = \"0a\"", &[]),
    (
        "service=simpletcp;protocol=udp;request=\"AB\";receive=\"c\"",
        "payload = \"4142\"",
        &["6: not imported: a udp check compares only the beginning of a reply"],
    ),
    (
        "service=sip;protocol=udp;login=\"a@b\"",
        "kind = \"udp\"",
        &[],
    ),
    (
        "service=sip;login=\"a@b\"",
        "OPTIONS sip:a@b SIP/2.0\\r\\nVia: SIP/2.0/TCP",
        &[],
    ),
    ("service=sip", "OPTIONS sip:ldirectord@localhost", &[]),
    ("service=sip", "regex = \"^SIP/2\\\\.0 200 OK\"", &[]),
    (
        "service=sip;protocol=udp",
        "expect = { bytes = \"5349502f322e3020323030204f4b\" }",
        &[],
    ),
    (
        "service=radius;login=\"u\";passwd=\"p\";secret=\"s\"",
        "expect = { bytes = \"02\" }",
        &[],
    ),
    (
        "service=gprs",
        "kind = \"tcp\"",
        &["3: Weir only opens a connection: ldirectord sends `PING`, but does not read the reply"],
    ),
    (
        "service=pingpong",
        "exchange = [{ send = \"PING\\r\\n\", regex = \"(?i)pong\" }]",
        &[],
    ),
    (
        "service=none;request=\"x\"",
        "",
        &[
            "3: no check: ldirectord has none for this service",
            "3: not imported: there is no check",
            "4: not imported: there is no check",
        ],
    ),
];

#[test]
fn service_setting_selects_the_check() {
    assert_rows(DIALOGUES);
    let toml = import("virtual=192.0.2.1:110\n\treal=10.0.0.5:110 gate\n").toml;
    assert!(
        toml.contains("kind = \"tcp\"") && !toml.contains("verify"),
        "{toml}"
    );
}

const DATABASES: &[Row<'_>] = &[
    (
        "service=mysql;login=\"u\";passwd=\"p\";database=\"d\";request=\"select 1\"",
        "\"mysql\", \"database\", \"d\", \"u\", \"p\", \"select 1\"]",
        &["3: each probe runs perl with DBI, which ldirectord also uses"],
    ),
    (
        "service=pgsql;login=\"u\";request=\"select 1\"",
        "\"Pg\", \"dbname\", \"\", \"u\", \"\", \"select 1\"]",
        &["3: each probe runs perl with DBI, which ldirectord also uses"],
    ),
    (
        "service=oracle;login=\"u\";request=\"select 1\"",
        "\"Oracle\", \"sid\", \"\", \"u\", \"\", \"select 1\"]",
        &["3: each probe runs perl with DBI, which ldirectord also uses"],
    ),
    (
        "service=mysql;login=\"u\"",
        "kind = \"mysql\"\nuser = \"u\"",
        &[],
    ),
    (
        "service=pgsql;login=\"u\"",
        "kind = \"postgres\"\nuser = \"u\"",
        &[],
    ),
    (
        "service=mysql;request=\"select 1\";passwd=\"p\";database=\"d\"",
        "kind = \"mysql\"",
        &[
            "4: not imported: a mysql check sends neither a password nor a query",
            "5: not imported: a mysql check sends neither a password nor a query",
            "6: not imported: a mysql check sends neither a password nor a query",
        ],
    ),
    (
        "service=pgsql;database=\"d\"",
        "kind = \"postgres\"",
        &["4: not imported: a postgres check sends neither a password nor a query"],
    ),
    (
        "service=oracle;login=\"u\";receive=\"x\"",
        "kind = \"tcp\"",
        &[
            "3: Weir has no oracle check; a tcp check is used instead",
            "4: not imported: a tcp check does not use it",
            "5: not imported: a tcp check does not use it",
        ],
    ),
    (
        "service=oracle;protocol=udp",
        "kind = \"ping\"",
        &["3: Weir has no oracle check; a ping check is used instead"],
    ),
    (
        "service=ldaps;login=\"u\";passwd=\"p\";request=\"dc=x\";receive=\"y\"",
        "\"ldaps\", \"u\", \"p\", \"dc=x\", \"y\"]",
        &["3: each probe runs perl with Net::LDAP, which ldirectord also uses"],
    ),
    (
        "service=ldap",
        "\"ldap\", \"\", \"\", \"\", \"\"]",
        &["3: each probe runs perl with Net::LDAP, which ldirectord also uses"],
    ),
];

#[test]
fn databases_are_checked_with_a_query_or_a_login() {
    assert_rows(DATABASES);
}

const ANY_REPLY: &str =
    "3: any reply passes; without `receive`, ldirectord considers every server down";

const DNS: &[Row<'_>] = &[
    (
        "service=dns;request=\"a.example\";receive=\"10\\.0\\.0\\.5\"",
        "query = \"a.example\"\nrecord = \"A\"\nexpect = { answer = \"10.0.0.5\" }",
        &[],
    ),
    (
        "service=dns;request=\"a.example\";receive=\"^fd00::5$\"",
        "record = \"AAAA\"\nexpect = { answer = \"fd00::5\" }",
        &[],
    ),
    (
        "service=dns;request=\"a.example\";receive=\"10.*\"",
        "kind = \"dns\"",
        &["5: not imported: a dns check's `expect` accepts only an address; any reply passes"],
    ),
    (
        "service=dns;request=\"a.example\"",
        "query = \"a.example\"",
        &[ANY_REPLY],
    ),
    (
        "service=dns",
        "",
        &["3: not imported: a dns check requires `request`"],
    ),
    (
        "service=dns;request=\"/\"",
        "",
        &[
            "3: not imported: a dns check requires `request`",
            "4: not imported: no check of the service uses this setting",
        ],
    ),
];

#[test]
fn dns_settings_become_dns_checks() {
    assert_rows(DNS);
}

#[test]
fn pingpong_slave_is_checked_on_the_port_of_its_master() {
    let not_imported =
        "4: not imported: no `pingpong_master` service has this server, so nothing checks it";
    for (master, service, expected) in [
        ("10.0.0.5:81", "pingpong_master", Some("port = 81")),
        (
            "10.0.0.4->10.0.0.6:81",
            "pingpong_master",
            Some("port = 81"),
        ),
        ("10.0.0.5", "pingpong_master", None),
        ("10.0.0.6:81", "pingpong_master", None),
        ("10.0.0.5:81", "pingpong", None),
    ] {
        let slave = "virtual=192.0.2.1:80\n\treal=10.0.0.5:80 gate\n\tchecktimeout=3\n\tservice=pingpong_slave\n";
        let text =
            format!("{slave}virtual=192.0.2.1:81\n\treal={master} gate\n\tservice={service}\n");
        let imported = import(&text);
        let notes = short_notes(&imported, &text);
        let (pool, _) = imported.toml.split_once("[service.").expect("a service");
        assert_eq!(
            notes.contains(&not_imported.to_owned()),
            expected.is_none(),
            "{notes:?}"
        );
        assert_eq!(pool.contains("port = 81"), expected.is_some(), "{pool}");
    }
}

#[test]
fn request_and_receive_of_a_real_server_override_those_of_its_service() {
    let text = "virtual=192.0.2.1:80\n\treal=10.0.0.5:80 gate 1 \"one\", \"First\"\n\treal=10.0.0.6:80 gate\n\
                \trequest=\"all\"\n\treceive=\"Any\"\n";
    let toml = import(text).toml;
    for expected in [
        "path = \"/one\"",
        "body = \"First\"",
        "path = \"/all\"",
        "body = \"Any\"",
    ] {
        assert!(toml.contains(expected), "{toml}");
    }
}
