use std::net::IpAddr;

use super::global::is_alert_status;
use super::*;

/// An environment with the port names `http`, `http-alt` and `domain`, and the host `web`.
struct FakeEnvironment;

impl Environment for FakeEnvironment {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("there are no files".to_owned())
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn address(&self, host: &str, ipv6: bool) -> Option<IpAddr> {
        let address = if ipv6 { "fd00::7" } else { "10.0.0.7" };
        (host == "web").then(|| address.parse().expect("an address"))
    }

    fn port(&self, service: &str, protocol: &str) -> Option<u16> {
        match (service, protocol) {
            ("http" | "http-alt", "tcp") => Some(80),
            ("domain", "udp") => Some(53),
            _ => None,
        }
    }

    fn host_name(&self) -> String {
        String::new()
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

pub(super) fn import(text: &str) -> Imported {
    let imported = ldirectord("ldirectord.cf", text, &FakeEnvironment);
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    imported
}

/// Imports a service with one real server, and these directives from line 3 on, separated by `;`.
pub(super) fn import_service(directives: &str) -> Imported {
    let lines: String = directives
        .split(';')
        .map(|line| format!("\t{line}\n"))
        .collect();
    import(&format!(
        "virtual=192.0.2.1:80\n\treal=10.0.0.5:80 gate\n{lines}"
    ))
}

/// Returns the notes without the line's text: `LINE: REASON`.
pub(super) fn short_notes(imported: &Imported, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.split('\n').map(str::trim).collect();
    let notes = imported.notes.iter().map(|note| {
        let (line, rest) = note
            .strip_prefix("line ")
            .and_then(|note| note.split_once(": "))
            .unwrap_or_else(|| panic!("{note}"));
        let number: usize = line.parse().expect("a line number");
        let reason = rest.strip_prefix(lines[number - 1]).unwrap_or(rest);
        format!("{line}: {}", reason.trim_start_matches(": "))
    });
    notes.collect()
}

pub(super) const REJECTED: &str = "not imported: ldirectord rejects the file here:";

/// Directives, separated by `;`, a text in weir.toml, and the notes. `!` precedes the reason why ldirectord rejects the
/// line.
pub(super) type Row<'a> = (&'a str, &'a str, &'a [&'a str]);

pub(super) fn full_notes(notes: &[&str]) -> Vec<String> {
    let notes = notes.iter().map(|note| match note.split_once('!') {
        Some((line, reason)) => format!("{line}{REJECTED} {reason}"),
        None => (*note).to_owned(),
    });
    notes.collect()
}

/// Asserts the text and the notes that directives, from line 3 on, result in.
#[track_caller]
pub(super) fn assert_rows(rows: &[Row<'_>]) {
    for (directives, expected, notes) in rows {
        let imported = import_service(directives);
        let lines = directives.replace(';', "\n");
        let actual_notes = short_notes(&imported, &format!("{SERVICE}{lines}\n"));
        let toml = imported.toml;
        assert!(
            toml.contains(expected),
            "{directives}: no {expected} in\n{toml}"
        );
        assert_eq!(actual_notes, full_notes(notes), "{directives}");
    }
}

const SERVICE: &str = "virtual=192.0.2.1:80\n\treal=10.0.0.5:80 gate\n";

/// Imports a global line before a service. Returns the notes about this line, and weir.toml.
fn import_global(line: &str, directives: &str) -> (Vec<String>, String) {
    let text = format!("{line}\n{SERVICE}{directives}");
    let imported = import(&text);
    let notes = short_notes(&imported, &text);
    let notes = notes
        .iter()
        .filter_map(|note| note.strip_prefix("1: ").map(str::to_owned));
    (notes.collect(), imported.toml.clone())
}

#[test]
fn global_line_is_the_default_of_each_service() {
    for (line, directives, expected) in [
        (
            "checktimeout=7",
            "\tchecktype=connect\n",
            "timeout = \"7s\"",
        ),
        ("checktimeout=7", "", "timeout = \"7s\""),
        ("negotiatetimeout=7", "", "timeout = \"7s\""),
        (
            "negotiatetimeout=7",
            "\tchecktype=connect\n",
            "timeout = \"7s\"",
        ),
        ("checkinterval=7", "", "interval = \"7s\""),
        ("failurecount=7", "", "fall = 7"),
        ("quiescent=yes", "", "on_failure = \"quiesce\""),
        ("quiescent=no", "", "on_failure = \"remove\""),
        (
            "fallback=127.0.0.1:80",
            "",
            "sorry = { address = \"127.0.0.1\" }",
        ),
        (
            "fallback=127.0.0.1:81 masq",
            "",
            "sorry = { address = \"127.0.0.1:81\", forward = \"nat\" }",
        ),
        (
            "fallback=web:http",
            "",
            "sorry = { address = \"10.0.0.7\" }",
        ),
        ("emailalert=a@x.example", "", "mail = [\"a@x.example\"]"),
        (
            "emailalert=\"a@x.example, b@x.example\"",
            "",
            "mail = [\"a@x.example\", \"b@x.example\"]",
        ),
        ("", "", "timeout = \"30s\""),
        ("", "\tchecktype=connect\n", "timeout = \"5s\""),
        ("", "", "interval = \"10s\""),
        ("", "", "fall = 1"),
        ("", "", "on_failure = \"remove\""),
    ] {
        let (notes, toml) = import_global(line, directives);
        assert!(toml.contains(expected), "{line}: no {expected} in\n{toml}");
        assert!(notes.is_empty(), "{line}: {notes:?}");
    }
}

const OLD_TIMEOUT: &str = "ldirectord rejects the file here: checktimeout replaced this directive; \
     imported as checktimeout";
const CLEANSTOP: &str =
    "services remain in the kernel after the daemon stops; `weir clean` removes them";
const LABEL: &str =
    "not imported: this is an lvsadm label, which ldirectord rejects; it has no effect on clients";

/// Global lines, and their notes. `!` precedes the reason why ldirectord rejects the line.
const GLOBAL_LINES: &[(&str, &[&str])] = &[
    ("", &[]),
    ("  ", &[]),
    ("# comment", &[]),
    ("  # comment", &[]),
    ("[web]", &[LABEL]),
    ("[web]  ", &[LABEL]),
    ("[]", &["!unknown command []"]),
    ("[vip]", &["!unknown command [vip]"]),
    ("[vlan]", &["!unknown command [vlan]"]),
    ("[web", &["!unknown command [web"]),
    (
        "checktimeout=0",
        &["!checktimeout requires a number greater than 0"],
    ),
    (
        "checktimeout=",
        &["!checktimeout requires a number greater than 0"],
    ),
    (
        "negotiatetimeout=x",
        &["!negotiatetimeout requires a number greater than 0"],
    ),
    (
        "checkinterval=0",
        &["!checkinterval requires a number greater than 0"],
    ),
    (
        "failurecount=0",
        &["!failurecount requires a number greater than 0"],
    ),
    ("checktimeout=1", &[]),
    ("connecttimeout=7", &[OLD_TIMEOUT]),
    ("timeout=7", &[OLD_TIMEOUT]),
    (
        "timeout=0",
        &["!checktimeout and negotiatetimeout replaced this directive"],
    ),
    (
        "connecttimeout=x",
        &["!checktimeout and negotiatetimeout replaced this directive"],
    ),
    (
        "quiescent=maybe",
        &["!quiescent requires yes or no, without trailing text"],
    ),
    (
        "quiescent=yes # comment",
        &["!quiescent requires yes or no, without trailing text"],
    ),
    (
        "fork=1",
        &["!fork requires yes or no, without trailing text"],
    ),
    (
        "fork=no",
        &["not imported: Weir always runs probes in parallel"],
    ),
    (
        "fork=yes",
        &["not imported: Weir always runs probes in parallel"],
    ),
    (
        "autoreload=yes",
        &["not imported: `weir reload` rereads the file"],
    ),
    (
        "autoreload=x",
        &["!autoreload requires yes or no, without trailing text"],
    ),
    ("cleanstop=yes", &[CLEANSTOP]),
    (
        "cleanstop=x",
        &["!cleanstop requires yes or no, without trailing text"],
    ),
    (
        "readdquiescent=no",
        &[
            "not imported: a recovered server gets its weight back; with `slow_start`, Weir increases it gradually",
        ],
    ),
    ("fallback=", &["!the fallback server is missing"]),
    (
        "fallback=10.0.0.9:80 dr",
        &["!the method must be gate, masq or ipip"],
    ),
    (
        "fallback=[fd00::9]:80",
        &["!the address family of [fd00::9] differs from the service's"],
    ),
    (
        "fallback6=127.0.0.1:80",
        &["!the address family of 127.0.0.1 differs from the service's"],
    ),
    (
        "fallback6=[::1]:80",
        &["not imported: no virtual service uses it"],
    ),
    (
        "checkcount=3",
        &["not imported: failurecount has replaced it"],
    ),
    (
        "checkcount=0",
        &["!checkcount requires a number greater than 0"],
    ),
    (
        "emailalertfreq=0",
        &["not imported: Weir sends one email per change and does not repeat it"],
    ),
    ("emailalertfreq=x", &["!emailalertfreq requires a number"]),
    (
        "emailalertstatus=all",
        &["not imported: `states` in `[notify]` selects which server states are reported"],
    ),
    ("emailalertstatus=some", &["!unknown alert status"]),
    (
        "callback=\"/x\"",
        &[
            "not imported: it is run if the file has changed; Weir reads the file only on `weir reload`",
        ],
    ),
    ("callback=/x", &["!callback requires a value in quotes"]),
    (
        "logfile=\"/x\"",
        &["not imported: Weir logs to standard error; under systemd, the journal stores the log"],
    ),
    ("logfile=/x", &["!logfile requires a value in quotes"]),
    (
        "execute=/x",
        &[
            "not imported: it starts another ldirectord: import that configuration too, and merge the results",
        ],
    ),
    ("emailalert=", &["!emailalert has no value"]),
    ("emailalertfrom=", &["!emailalertfrom has no value"]),
    ("fallbackcommand=", &["!fallbackcommand has no value"]),
    ("maintenancedir=", &["!maintenancedir has no value"]),
    ("smtp=", &["!smtp has no value"]),
    ("emailalertfrom=a@x.example", &[]),
    ("smtp=mail.example", &[]),
    ("fallbackcommand=/x", &[]),
    (
        "supervised",
        &["not imported: `weir run` stays in the foreground"],
    ),
    (
        "supervised=yes",
        &["not imported: `weir run` stays in the foreground"],
    ),
    (
        "supervised\r",
        &["not imported: `weir run` stays in the foreground"],
    ),
    (
        "supervised=maybe",
        &[
            "not imported: `weir run` stays in the foreground",
            "!supervised requires yes or no, without trailing text",
        ],
    ),
    (
        "supervised yes",
        &[
            "not imported: `weir run` stays in the foreground",
            "!supervised requires yes or no, without trailing text",
        ],
    ),
    ("secret=x", &["!unknown command secret"]),
    ("passwd=x", &["!unknown command passwd"]),
    ("database=x", &["!unknown command database"]),
    ("load=\"x\"", &["!unknown command load"]),
    ("comment=x", &["!unknown command comment"]),
    ("servicename=x", &["!unknown command servicename"]),
    ("monitorfile=/x", &["!unknown command monitorfile"]),
    ("real=10.0.0.6:80 gate", &["!unknown command real"]),
    ("color=red", &["!unknown command color"]),
    ("no_such=7", &["!unknown command no_such=7"]),
    ("no such", &["!unknown command no such"]),
];

#[test]
fn global_lines_have_notes() {
    for (line, expected) in GLOBAL_LINES {
        let (notes, _) = import_global(line, "");
        let expected: Vec<String> = expected
            .iter()
            .map(|note| match note.strip_prefix('!') {
                Some(reason) => format!("not imported: ldirectord rejects the file here: {reason}"),
                None => (*note).to_owned(),
            })
            .collect();
        assert_eq!(notes, expected, "{line:?}");
    }
}

#[test]
fn global_lines_that_no_service_uses_have_a_note() {
    let unused = "not imported: no virtual service uses it";
    for (line, expected) in [
        ("checktimeout=7", &[unused][..]),
        ("negotiatetimeout=7", &[unused]),
        ("checkinterval=7", &[unused]),
        ("failurecount=7", &[unused]),
        ("quiescent=yes", &[unused]),
        ("fallback=10.0.0.9", &[unused]),
        ("fallback6=[fd00::9]", &[unused]),
        ("fallbackcommand=/x", &[unused]),
        ("maintenancedir=/x", &[unused]),
        ("timeout=7", &[OLD_TIMEOUT]),
    ] {
        let imported = import(line);
        let notes = short_notes(&imported, line);
        let expected: Vec<String> = expected.iter().map(|note| format!("1: {note}")).collect();
        assert_eq!(notes, expected, "{line}");
        assert!(imported.losses.is_empty(), "{line}");
    }
}

/// Directives, and texts in weir.toml.
const OWN_SETTINGS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "timeout = \"12s\"",
            "interval = \"13s\"",
            "fall = 14",
            "quiesce",
        ],
    ),
    ("\tchecktype=connect\n", &["timeout = \"11s\""]),
    ("\tchecktimeout=21\n", &["timeout = \"21s\""]),
    (
        "\tchecktimeout=21\n\tnegotiatetimeout=22\n",
        &["timeout = \"22s\""],
    ),
    (
        "\tchecktype=connect\n\tnegotiatetimeout=22\n",
        &["timeout = \"22s\""],
    ),
    (
        "\tchecktype=connect\n\tchecktimeout=21\n\tnegotiatetimeout=22\n",
        &["timeout = \"21s\""],
    ),
    ("\tcheckinterval=23\n", &["interval = \"23s\""]),
    ("\tfailurecount=24\n", &["fall = 24"]),
    ("\tquiescent=no\n", &["on_failure = \"remove\""]),
    ("", &["sorry = { address = \"10.0.0.9\" }"]),
    (
        "\tfallback=10.0.0.8\n",
        &["sorry = { address = \"10.0.0.8\" }"],
    ),
    (
        "",
        &[
            "{ /global start 192.0.2.1:80 tcp ;;",
            "mail = [\"global@x.example\"]",
        ],
    ),
    (
        "\tfallbackcommand=/own\n",
        &[
            "/own start 192.0.2.1:80 tcp ;;",
            "/own stop 192.0.2.1:80 tcp ;;",
        ],
    ),
    (
        "\temailalert=own@x.example\n\tsmtp=192.0.2.26\n",
        &[
            "mail = [\"own@x.example\"]",
            "mail_from = \"from@x.example\"",
            "mail_server = \"192.0.2.26:25\"",
        ],
    ),
    (
        "",
        &[
            "mail_from = \"from@x.example\"",
            "mail_server = \"192.0.2.25:25\"",
        ],
    ),
];

#[test]
fn settings_of_a_service_override_global_settings() {
    let global = "checktimeout=11\nnegotiatetimeout=12\ncheckinterval=13\nfailurecount=14\nquiescent=yes\nfork=yes\n\
                  fallback=10.0.0.9\nfallbackcommand=/global\nemailalert=global@x.example\n\
                  emailalertfrom=from@x.example\nsmtp=192.0.2.25\n";
    for (directives, expected) in OWN_SETTINGS {
        let toml = import(&format!("{global}{SERVICE}{directives}")).toml;
        for text in *expected {
            let text = text.trim_start_matches("{ ");
            assert!(toml.contains(text), "{directives:?}: no {text} in\n{toml}");
        }
    }
}

#[test]
fn maintenance_directory_becomes_a_script_check() {
    let (notes, toml) = import_global("maintenancedir=/etc/maintenance", "\tfailurecount=5\n");
    assert_eq!(
        notes,
        [
            "a file takes a server out of service only if it is named ADDRESS or ADDRESS:PORT; Weir does not look up \
             host names"
        ]
    );
    let (_, script) = toml.split_once("kind = \"script\"\n").expect("a script");
    for (line, expected) in [
        ("command", "\"/etc/maintenance\"]"),
        ("interval", "\"10s\""),
        ("timeout", "\"5s\""),
        ("rise", "1"),
        ("fall", "1"),
    ] {
        let mut lines = script
            .lines()
            .filter(|it| it.starts_with(&format!("{line} = ")));
        let found = lines.next().unwrap_or_default();
        assert!(found.ends_with(expected), "{line}: {found}");
        assert!(!lines.take(1).any(|it| it.starts_with("fall")), "{script}");
    }
    assert!(toml.contains("fall = 5"), "{toml}");
    // A server without a check cannot be taken out of service.
    let (_, toml) = import_global("maintenancedir=/etc/maintenance", "\tchecktype=on\n");
    assert!(!toml.contains("script"), "{toml}");
}

#[test]
fn alert_status_is_a_list_of_states_or_none() {
    for (value, expected) in [
        ("all", true),
        ("none", true),
        ("none,none", true),
        ("starting", true),
        ("starting,stopping , running,reloading", true),
        ("starting,all", true),
        ("none,all", false),
        ("starting,none", false),
        ("some", false),
        ("", false),
        ("all,", false),
    ] {
        assert_eq!(is_alert_status(value), expected, "{value}");
    }
}

#[test]
fn lines_of_a_section_are_recognized() {
    for (line, expected) in [
        ("    real=x", Some("real=x")),
        ("      real=x", Some("real=x")),
        ("   real=x", None),
        ("real=x", None),
        ("", None),
        ("    ", None),
        ("     ", Some(" ")),
    ] {
        assert_eq!(strip_indentation(line), expected, "{line:?}");
    }
    for (line, expected) in [
        (" real=x", true),
        ("\tcolor=x", true),
        ("real=x", true),
        ("secret = x", true),
        ("checktimeout=5", false),
        (" real", false),
        ("real", false),
        ("", false),
    ] {
        assert_eq!(belongs_to_section(line), expected, "{line:?}");
    }
}

#[test]
fn directives_numbers_and_quotes_are_parsed() {
    for (line, expected) in [
        ("real=x y", Some(("real", "x y"))),
        ("real = x", Some(("real", "x"))),
        ("real=", Some(("real", ""))),
        ("real x", None),
        ("no_such=x", None),
        ("", None),
    ] {
        assert_eq!(split_directive(line), expected, "{line:?}");
    }
    for (line, expected) in [
        ("virtual=7", Some((false, "7"))),
        ("virtual6 = [::1]:80", Some((true, "[::1]:80"))),
        ("virtual", None),
        (" virtual=7", None),
        ("virtualhost=x", None),
    ] {
        assert_eq!(virtual_header(line), expected, "{line:?}");
    }
    for (text, expected) in [
        ("7", Some(7)),
        ("a12b3", Some(12)),
        ("0", Some(0)),
        ("-5", Some(5)),
        ("x", None),
        ("", None),
        ("99999999999999999999", None),
    ] {
        assert_eq!(first_number(text), expected, "{text:?}");
    }
    for (text, expected) in [
        ("\"a\"", Some("a")),
        ("\"a\" x", Some("a")),
        ("\"a\"b\"", Some("a\"b")),
        ("\"\"", Some("")),
        ("\"a", None),
        ("a\"b\"", None),
        ("a", None),
    ] {
        assert_eq!(quoted(text), expected, "{text}");
        assert_eq!(unquoted(text), expected.unwrap_or(text), "{text}");
    }
    let parsed = ["yes", "no", "Yes", "yes ", ""].map(parse_yes_no);
    assert_eq!(parsed, [Some(true), Some(false), None, None, None]);
}

#[test]
fn lines_of_a_rejected_service_have_notes() {
    let text = "virtual=192.0.2.1\n\n\
                virtual=[::1\n\treal=10.0.0.5:80 gate\n    # comment\n# comment\n\tservice=http\n\
                real=10.0.0.6:80 gate\n";
    let imported = import(text);
    let rejected = "not imported: ldirectord rejects the file here:";
    let service = "not imported: its virtual service is not imported";
    // `192` is a firewall mark.
    assert!(imported.toml.contains("fwmark/192"), "{}", imported.toml);
    assert_eq!(
        short_notes(&imported, text),
        [
            "3: ldirectord rejects the file here: the address family requires `virtual6`"
                .to_owned(),
            format!("3: {rejected} the address of the virtual service is invalid"),
            format!("4: {service}"),
            format!("7: {service}"),
            format!("8: {rejected} unknown command real"),
        ]
    );
}

#[test]
fn unindented_line_belongs_to_the_preceding_service() {
    let text = "virtual=192.0.2.1:80\n\treal=10.0.0.5:80 gate # one\n\n  scheduler=rr\nfailurecount=7\n\
                checktype=connect # comment\n color=red\n";
    let imported = import(text);
    let misplaced = "ldirectord rejects the file here: each line of a virtual service must begin with four blanks or a \
                     tab, and no empty line may precede it";
    assert_eq!(
        short_notes(&imported, text),
        [
            format!("4: {misplaced}"),
            format!("6: {misplaced}"),
            "7: not imported: ldirectord rejects the file here: unknown command color".to_owned(),
            format!("7: {misplaced}"),
        ]
    );
    for expected in ["scheduler = \"rr\"", "kind = \"tcp\"", "fall = 7"] {
        assert!(imported.toml.contains(expected), "{}", imported.toml);
    }
}
