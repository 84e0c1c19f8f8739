use super::*;
use crate::ldirectord::tests::{REJECTED, Row, assert_rows, import_service};

const UNUSED_BY_CHECKS: &str = "3: not imported: no check of the service uses this setting";
const OLD_NAME: &str = "3: ldirectord rejects the file here: checktimeout replaced this directive; \
     imported as checktimeout";
const INERT: &str = "3: not imported: it has no effect in ldirectord";

const NUMERIC_DIRECTIVES: &[Row<'_>] = &[
    ("checktimeout=7;checktype=connect", "timeout = \"7s\"", &[]),
    (
        "timeout=7;checktype=connect",
        "timeout = \"7s\"",
        &[OLD_NAME],
    ),
    (
        "connecttimeout=7;checktype=connect",
        "timeout = \"7s\"",
        &[OLD_NAME],
    ),
    ("negotiatetimeout=7", "timeout = \"7s\"", &[]),
    ("failurecount=7", "fall = 7", &[]),
    ("checkport=81", "port = 81", &[]),
    ("checkport=65535", "port = 65535", &[]),
    ("persistent=600", "persistence = { timeout = \"10m\" }", &[]),
    (
        "persistent=70000",
        "persistence = { timeout = \"70000s\" }",
        &[],
    ),
    (
        "persistent=9999999",
        "persistence = { timeout = \"31d\" }",
        &[],
    ),
    (
        "persistent=0",
        "",
        &["3: not imported: ipvsadm rejects a persistence of 0 seconds"],
    ),
    ("persistent=x", "", &["3: !persistent requires a number"]),
    ("checktimeout=1;checktype=connect", "timeout = \"1s\"", &[]),
    (
        "checktimeout=0",
        "timeout = \"30s\"",
        &["3: !checktimeout requires a number greater than 0"],
    ),
    (
        "timeout=0",
        "timeout = \"30s\"",
        &["3: !timeout requires a number greater than 0"],
    ),
    (
        "negotiatetimeout=x",
        "",
        &["3: !negotiatetimeout requires a number greater than 0"],
    ),
    (
        "checkinterval=0",
        "",
        &["3: !checkinterval requires a number greater than 0"],
    ),
    (
        "failurecount=0",
        "fall = 1",
        &["3: !failurecount requires a number greater than 0"],
    ),
    (
        "checkport=0",
        "",
        &["3: !checkport requires a number from 1 to 65535"],
    ),
    (
        "checkport=65536",
        "",
        &["3: !checkport requires a number from 1 to 65535"],
    ),
    (
        "checkinterval=7",
        "interval = \"10s\"",
        &["3: not imported: ldirectord ignores it without fork=yes"],
    ),
];

#[test]
fn numeric_directives_are_imported() {
    assert_rows(NUMERIC_DIRECTIVES);
}

const TEXT_DIRECTIVES: &[Row<'_>] = &[
    ("request=\"up\"", "path = \"/up\"", &[]),
    ("request=\"/up\"", "path = \"/up\"", &[]),
    (
        "request=up",
        "path = \"/up\"",
        &["3: ldirectord rejects the file here: request requires a value in quotes"],
    ),
    ("request=", "", &["3: !request requires a value in quotes"]),
    (
        "request=up\"x",
        "",
        &["3: !request requires a value in quotes"],
    ),
    ("request=\"\"", "", &["3: !request has no value"]),
    ("receive=\"OK\"", "body = \"OK\"", &[]),
    ("receive=\"a|b\"", "regex = \"a|b\"", &[]),
    (
        "receive=OK",
        "body = \"OK\"",
        &["3: ldirectord rejects the file here: receive requires a value in quotes"],
    ),
    ("receive=", "", &["3: !receive requires a value in quotes"]),
    ("login=\"u\";service=pop", "USER u", &[]),
    ("login=", "", &["3: !login requires a value in quotes"]),
    ("login=\"u\";passwd=\"p\";service=pop", "PASS p", &[]),
    ("passwd=", "", &["3: !passwd requires a value in quotes"]),
    (
        "database=",
        "",
        &["3: !database requires a value in quotes"],
    ),
    ("database=\"d\"", "", &[UNUSED_BY_CHECKS]),
    ("secret=", "", &["3: !secret requires a value in quotes"]),
    ("secret=\"s\"", "", &[UNUSED_BY_CHECKS]),
    ("virtualhost=a.example", "host = \"a.example\"", &[]),
    ("virtualhost=\"a.example\"", "host = \"a.example\"", &[]),
    ("virtualhost=", "kind = \"http\"", &[UNUSED_BY_CHECKS]),
    (
        "checkcommand=/x y;checktype=external",
        "command = [\"/x\", \"y\", \"192.0.2.1\", \"80\", \"10.0.0.5\", \"80\"]",
        &[],
    ),
    ("checkcommand=", "", &["3: !checkcommand has no value"]),
    ("checkcommand=\"\"", "", &["3: !checkcommand has no value"]),
    ("checkcommand=/x", "", &[UNUSED_BY_CHECKS]),
    (
        "fallbackcommand=\"/x y\"",
        "/x y start 192.0.2.1:80 tcp ;;",
        &[],
    ),
    (
        "fallbackcommand=",
        "",
        &["3: !fallbackcommand has no value"],
    ),
];

#[test]
fn text_directives_are_imported() {
    assert_rows(TEXT_DIRECTIVES);
    for (value, expected) in [
        ("a", true),
        ("", false),
        ("  ", false),
        ("\"a\"", false),
        ("a\"", false),
    ] {
        assert_eq!(is_unquoted(value), expected, "{value:?}");
    }
}

const OTHER_DIRECTIVES: &[Row<'_>] = &[
    ("real=10.0.0.6:80 gate", "\"10.0.0.6\"", &[]),
    (
        "real6=10.0.0.6:80 gate",
        "\"10.0.0.6\"",
        &["3: ldirectord rejects the file here: the address family requires `real`"],
    ),
    (
        "real6=[fd00::6]:80 gate",
        "",
        &["3: !virtual6 requires real6, and virtual requires real"],
    ),
    (
        "real=[fd00::6]:80 gate",
        "",
        &["3: !the address family of [fd00::6] differs from the service's"],
    ),
    (
        "fallback=10.0.0.9",
        "sorry = { address = \"10.0.0.9\" }",
        &[],
    ),
    (
        "fallback6=10.0.0.9",
        "sorry = { address = \"10.0.0.9\" }",
        &["3: ldirectord rejects the file here: the address family requires `fallback`"],
    ),
    (
        "fallback6=[fd00::9]",
        "",
        &["3: !virtual6 requires fallback6, and virtual requires fallback"],
    ),
    ("fallback=", "", &["3: !the fallback server is missing"]),
    (
        "checktype=magic",
        "kind = \"http\"",
        &["3: !unknown checktype"],
    ),
    ("service=https", "kind = \"https\"", &[]),
    ("service=\"https\"", "kind = \"https\"", &[]),
    ("service=ssh", "kind = \"http\"", &["3: !unknown service"]),
    (
        "service=ssh;checktype=connect",
        "kind = \"tcp\"",
        &["3: not imported: ldirectord has no such service, and the checktype does not use it"],
    ),
    (
        "service=ssh;checktype=3",
        "kind = \"http\"",
        &[
            "3: !unknown service",
            "4: every probe is a negotiate check: there are no connect checks in between",
        ],
    ),
    ("httpmethod=HEAD", "method = \"HEAD\"", &[]),
    ("httpmethod=get", "method = \"GET\"", &[]),
    (
        "httpmethod=PUT",
        "",
        &["3: !httpmethod must be GET or HEAD"],
    ),
    ("scheduler=rr", "scheduler = \"rr\"", &[]),
    ("scheduler=\"lc\" x", "scheduler = \"lc\"", &[]),
    (
        "scheduler=magic",
        "scheduler = \"wrr\"",
        &["3: not imported: IPVS has no scheduler magic; wrr is used instead"],
    ),
    (
        "scheduler=WRR",
        "scheduler = \"wrr\"",
        &["3: !the scheduler name must contain lower-case letters"],
    ),
    ("schedflags=", "", &["3: !schedflags has no value"]),
    (
        "schedflags=\"sh-port,sh-fallback\";scheduler=sh",
        "flags = [\"sh-port\", \"sh-fallback\"]",
        &[],
    ),
];

#[test]
fn other_directives_are_imported() {
    assert_rows(OTHER_DIRECTIVES);
}

const YES_OR_NO: &str = "requires yes or no, without trailing text";

#[test]
fn boolean_directives_require_yes_or_no() {
    for name in ["ops", "quiescent", "cleanstop"] {
        for value in ["maybe", "yes # comment", ""] {
            let imported = import_service(&format!("{name}={value}"));
            let note = imported.notes.first().map_or("", String::as_str);
            assert!(
                note.ends_with(&format!("{REJECTED} {name} {YES_OR_NO}")),
                "{note}"
            );
        }
    }
    assert_rows(&[
        ("ops=yes;protocol=udp", "one_packet = true", &[]),
        (
            "ops=yes",
            "forward = \"direct\"",
            &["3: not imported: one-packet scheduling is possible only for UDP"],
        ),
        ("ops=no", "forward = \"direct\"", &[]),
        ("quiescent=yes", "on_failure = \"quiesce\"", &[]),
        ("quiescent=no", "on_failure = \"remove\"", &[]),
        (
            "cleanstop=no",
            "",
            &["3: services remain in the kernel after the daemon stops; `weir clean` removes them"],
        ),
    ]);
    assert!(
        !import_service("ops=no;protocol=udp")
            .toml
            .contains("one_packet")
    );
    assert!(!import_service("ops=yes").toml.contains("one_packet"));
}

const UNSUPPORTED_LINES: &[Row<'_>] = &[
    (
        "load=\"x\"",
        "",
        &["3: not imported: ldirectord ignores it"],
    ),
    ("load=x", "", &["3: !load requires a value in quotes"]),
    ("load=\"\"", "", &["3: !load requires a value in quotes"]),
    (
        "checkcount=3",
        "",
        &["3: not imported: failurecount has replaced it"],
    ),
    (
        "checkcount=0",
        "",
        &["3: !checkcount requires a number greater than 0"],
    ),
    (
        "checkcount=x",
        "",
        &["3: !checkcount requires a number greater than 0"],
    ),
    (
        "emailalertfreq=0",
        "",
        &["3: not imported: Weir sends one email per change and does not repeat it"],
    ),
    (
        "emailalertfreq=x",
        "",
        &["3: !emailalertfreq requires a number"],
    ),
    (
        "emailalertstatus=none",
        "",
        &["3: not imported: `states` in `[notify]` selects which server states are reported"],
    ),
    ("emailalertstatus=some", "", &["3: !unknown alert status"]),
    (
        "emailalert=\"a@x.example\"",
        "mail = [\"a@x.example\"]",
        &[],
    ),
    (
        "emailalert=a@x.example;smtp=192.0.2.25",
        "mail_server = \"192.0.2.25:25\"",
        &[],
    ),
    ("smtp=", "", &["3: !smtp has no value"]),
    ("smtp=\"\"", "", &["3: !smtp has no value"]),
    ("emailalert=", "", &["3: !emailalert has no value"]),
    ("emailalert=\"\"", "", &["3: !emailalert has no value"]),
    ("monitorfile=", "", &["3: !monitorfile has no value"]),
    (
        "monitorfile=/x",
        "",
        &["3: not imported: `weir status` shows states and their reasons"],
    ),
    ("servicename=x", "", &[INERT]),
    ("comment=x", "", &[INERT]),
    ("autoreload=yes", "", &["3: !unknown command autoreload"]),
    ("callback=\"/x\"", "", &["3: !unknown command callback"]),
    ("logfile=\"/x\"", "", &["3: !unknown command logfile"]),
    ("execute=/x", "", &["3: !unknown command execute"]),
    ("fork=yes", "", &["3: !unknown command fork"]),
    ("supervised=yes", "", &["3: !unknown command supervised"]),
    (
        "readdquiescent=no",
        "",
        &["3: !unknown command readdquiescent"],
    ),
    (
        "maintenancedir=/x",
        "",
        &["3: !unknown command maintenancedir"],
    ),
    (
        "emailalertfrom=a@x.example",
        "",
        &["3: !unknown command emailalertfrom"],
    ),
    ("color=red", "", &["3: !unknown command color"]),
    ("no such", "", &["3: !unknown command no such"]),
];

#[test]
fn directives_that_are_not_imported_have_notes() {
    assert_rows(UNSUPPORTED_LINES);
    for (directive, is_inert) in [
        ("servicename=x", true),
        ("load=\"x\"", true),
        ("emailalertfreq=5", true),
        ("color=red", false),
        ("checkcount=0", false),
    ] {
        assert_eq!(
            import_service(directive).losses.is_empty(),
            is_inert,
            "{directive}"
        );
    }
}

#[test]
fn first_word_consists_of_letters_digits_hyphens_and_underscores() {
    for (value, expected) in [
        ("http", "http"),
        ("\"external-perl\" x", "external-perl"),
        ("  http_proxy;x", "http_proxy"),
        ("-a", "-a"),
        ("_a", "_a"),
        ("", ""),
        (" ;\"", ""),
    ] {
        assert_eq!(first_word(value), expected, "{value:?}");
    }
}

#[test]
fn target_is_an_address_with_a_port_or_a_mark() {
    for (ipv6, value, expected) in [
        (false, "7", "Mark(7)"),
        (true, "7", "Mark(7)"),
        (false, "7 # x", "Mark(7)"),
        (false, "192.0.2.1:80", "Address(\"192.0.2.1\", \"80\")"),
        (false, "192.0.2.1:80 x", "Address(\"192.0.2.1\", \"80\")"),
        (
            false,
            "a_b+c-d.e:x-y_z9;",
            "Address(\"a_b+c-d.e\", \"x-y_z9\")",
        ),
        (true, "web:http", "Address(\"web\", \"http\")"),
        (false, "192.0.2.1", "Mark(192)"),
        (false, "192.0.2.1:", "Mark(192)"),
        (false, "5/b:80", "Mark(5)"),
        (false, "a/b:80", ""),
        (false, ":80", ""),
        (false, "web", ""),
        (false, "", ""),
        (true, "[::1]:80", "Address(\"[::1]\", \"80\")"),
        (true, "[::1]:x-y_z9 a", "Address(\"[::1]\", \"x-y_z9\")"),
        (true, "[::1]", ""),
        (true, "[::1]:", ""),
        (true, "[::1:80", ""),
        (false, "[::1]:80", ""),
    ] {
        let target = parse_target(ipv6, value).map(|it| format!("{it:?}"));
        assert_eq!(target.unwrap_or_default(), expected, "{ipv6} {value}");
    }
}
