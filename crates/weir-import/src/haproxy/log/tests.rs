use super::*;
use crate::note::Position;

fn line(text: &str) -> Line {
    Line {
        position: Position::FIRST,
        words: text.split('|').map(str::to_owned).collect(),
        uses_capture: false,
        follows_source_change: false,
    }
}

#[test]
fn log_targets_become_access_log_paths() {
    for (text, expected) in [
        ("log|/dev/log|local0", Some("syslog")),
        ("log|/dev/log|len|4096|local0|info", Some("syslog")),
        ("log|/dev/log|local1|notice", None),
        ("log|unix@/run/log|daemon", Some("syslog:/jail/run/log")),
        ("log|stdout|format|raw|local0", Some("-")),
        ("log|stderr|format|raw|local0", None),
        ("log|127.0.0.1:514|local0", None),
        ("log|fd@1|local0", Some("-")),
        ("log|/run/systemd/journal/dev-log|local0", Some("syslog")),
        ("log|/run/log|local0", Some("syslog:/jail/run/log")),
        ("log|run/log|local0", None),
        (
            "log|/dev/log|sample|1:2|format|rfc5424|local0|debug",
            Some("syslog"),
        ),
        ("log|/dev/log|profile|p|local0|err", None),
        ("log|/dev/log|len|notice|local0", Some("syslog")),
        ("log|/dev/log|local0|emerg", None),
        ("log|/dev/log|local0|alert", None),
        ("log|/dev/log|local0|crit", None),
        ("log|/dev/log|local0|warning", None),
        ("log|ring@buffer|local0", None),
    ] {
        let path = target(&line(text), Some("/jail/")).ok();
        assert_eq!(path.as_deref(), expected, "{text}");
    }
}

#[test]
fn formats_become_templates() {
    let convert = |text: &str| convert_format(&line(&format!("log-format|{text}"))).ok();
    assert_eq!(
        convert("%ci:%cp [%tr] %{+Q}r %ST %Ta%% %[req.hdr(host)]").as_deref(),
        Some(
            "{client}:{port} [{date}] \"{method} {target} {version}\" {status} {total_ms}% {header.host}"
        )
    );
    for (text, expected) in [
        ("plain", "plain"),
        ("%%", "%"),
        ("50%%%ci", "50%{client}"),
        ("%[src]%[src_port]", "{client}{port}"),
        ("%ci1", "{client}1"),
        ("%{+Q}HU.", "\"{target}\"."),
        ("%[hdr(X-A)]:", "{header.X-A}:"),
        ("{ }", "{ }"),
    ] {
        assert_eq!(convert(text).as_deref(), Some(expected), "{text}");
    }
    for text in [
        "%ac",
        "%{+X}o %ci",
        "{client} %ci",
        "%[rand]",
        "%[src",
        "%[hdr(X-A]",
    ] {
        assert_eq!(convert(text), None, "{text}");
    }
}

#[test]
fn variables_are_replaced_by_their_equivalents() {
    for (names, expected) in [
        (&["ci", "[src]"][..], Some("{client}")),
        (&["cp", "[src_port]"], Some("{port}")),
        (&["t", "tr", "T"], Some("{date}")),
        (&["f", "ft"], Some("{service}")),
        (&["b"], Some("{pool}")),
        (&["s"], Some("{server}")),
        (&["ST"], Some("{status}")),
        (&["B"], Some("{bytes_out}")),
        (&["U"], Some("{bytes_in}")),
        (&["r"], Some("{method} {target} {version}")),
        (&["HM"], Some("{method}")),
        (&["HU"], Some("{target}")),
        (&["HV"], Some("{version}")),
        (&["TR", "Tq"], Some("{request_ms}")),
        (&["Tw"], Some("{queue_ms}")),
        (&["Tc"], Some("{connect_ms}")),
        (&["Tr"], Some("{response_ms}")),
        (&["Ta", "Tt"], Some("{total_ms}")),
        (&["tsc", "ts"], Some("{end}")),
        (&["rc"], Some("{retries}")),
        (&["[req.hdr(X-A)]", "[hdr(X-A)]"], Some("{header.X-A}")),
        (&["[res.hdr(X-A)]", "ac", "src", ""], None),
    ] {
        for name in names {
            assert_eq!(variable(name).as_deref(), expected, "{name}");
        }
    }
}

#[test]
fn facility_and_level_are_read_after_the_options() {
    for (text, expected) in [
        ("log|/dev/log", (None, None)),
        ("log|/dev/log|local0", (Some("local0"), None)),
        ("log|/dev/log|local0|info", (Some("local0"), Some("info"))),
        (
            "log|/dev/log|local0|info|err",
            (Some("local0"), Some("info")),
        ),
        (
            "log|/dev/log|len|9|format|raw|sample|1:2|profile|p|daemon|err",
            (Some("daemon"), Some("err")),
        ),
        ("log|/dev/log|len", (None, None)),
    ] {
        assert_eq!(facility_and_level(&line(text)), expected, "{text}");
    }
}

const NO_REQUESTS: &str =
    "not imported: at this level haproxy logs no requests; Weir's own log reports server states";
const ONLY_ONE: &str = "not imported: a service has only one `access_log`";
const FACILITY: &str = "`access_log` writes to syslog with the facility local0";
const SAMPLE: &str = "sample is not imported: see `sample` of `access_log`";
const UNUSED: &str = "not imported: no frontend has `log global`";

/// Line numbers and reasons.
type ExpectedNotes = &'static [(usize, &'static str)];

/// Lines of `global`, `defaults` and a frontend; the expected `access_log`; and the expected notes.
const LOGS: &[(&str, &str, &str, &str, ExpectedNotes)] = &[
    ("", "", "log /dev/log local0", "\"syslog\"", &[]),
    ("", "", "log /dev/log", "\"syslog\"", &[]),
    (
        "",
        "",
        "log /dev/log daemon",
        "\"syslog\"",
        &[(7, FACILITY)],
    ),
    ("", "", "log stdout format raw daemon", "\"-\"", &[]),
    (
        "",
        "",
        "log stdout sample 1:2 local0",
        "\"-\"",
        &[(7, SAMPLE)],
    ),
    (
        "",
        "",
        "log stdout local0\n log /dev/log daemon",
        "\"-\"",
        &[(8, ONLY_ONE)],
    ),
    (
        "",
        "",
        "log /dev/log local0 err\n log stdout local0",
        "\"-\"",
        &[(7, NO_REQUESTS)],
    ),
    (
        "",
        "log stdout local0",
        "log /dev/log local0",
        "\"-\"",
        &[(7, ONLY_ONE)],
    ),
    ("log stdout local0", "log global", "", "\"-\"", &[]),
    (
        "log stdout local0",
        "",
        "log /dev/log local0\n log global",
        "\"syslog\"",
        &[(2, ONLY_ONE)],
    ),
    ("log stdout local0", "", "", "", &[(2, UNUSED)]),
    ("log stdout local0 err", "", "", "", &[(2, NO_REQUESTS)]),
    (
        "log stdout local0",
        "log global",
        "no log",
        "",
        &[(2, UNUSED)],
    ),
    ("log stdout local0", "no log", "log global", "\"-\"", &[]),
    (
        "",
        "",
        "log stdout local0\n log-format x%ci",
        "{ path = \"-\", format = \"x{client}\" }",
        &[],
    ),
    (
        "",
        "",
        "log stdout local0\n log-format %ac",
        "\"-\"",
        &[(
            8,
            "not imported: `format` of `access_log` has no equivalent for %ac; the default format is used instead",
        )],
    ),
    (
        "",
        "",
        "log stdout local0\n log-format x y",
        "\"-\"",
        &[(8, "not imported: haproxy requires one argument")],
    ),
    (
        "",
        "",
        "log stdout local0\n log-format {client}",
        "\"-\"",
        &[(
            8,
            "not imported: a name in braces is a variable in `format` of `access_log`",
        )],
    ),
];

#[test]
fn first_supported_target_becomes_the_access_log() {
    for (global, defaults, frontend, expected, expected_notes) in LOGS {
        let text = format!(
            "global\n {global}\ndefaults\n mode http\n {defaults}\nfrontend f\n {frontend}\n bind :80\n \
             default_backend b\nbackend b\n server a 10.0.0.5:80\n"
        );
        let imported = crate::haproxy("haproxy.cfg", &text, &crate::EmptyEnvironment);
        let case = format!("{global} / {defaults} / {frontend}: {}", imported.toml);
        let mut lines = imported.toml.lines();
        let access_log = lines.find_map(|line| line.strip_prefix("access_log = "));
        assert_eq!(access_log.unwrap_or_default(), *expected, "{case}");
        let source: Vec<&str> = text.lines().map(str::trim).collect();
        let note = |(number, reason): &(usize, &str)| {
            format!("line {number}: {}: {reason}", source[number - 1])
        };
        let notes: Vec<String> = expected_notes.iter().map(note).collect();
        assert_eq!(imported.notes, notes, "{case}");
        assert!(imported.losses.is_empty(), "{case}");
    }
}
