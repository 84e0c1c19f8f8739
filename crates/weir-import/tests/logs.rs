//! Tests that haproxy's `log` becomes the access log of a service.

use weir_import::{EmptyEnvironment, Imported, haproxy};

fn import(global: &str, defaults: &str, frontend: &str) -> Imported {
    let text = format!(
        "global\n {global}\ndefaults\n mode http\n {defaults}\nfrontend web\n bind :80\n {frontend}\n \
         default_backend app\nbackend app\n server a 10.0.0.5:80\n"
    );
    let imported = haproxy("haproxy.cfg", &text, &EmptyEnvironment);
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    assert!(imported.losses.is_empty(), "{:#?}", imported.losses);
    imported
}

/// Returns the value of the service's `access_log`.
fn access_log(imported: &Imported) -> &str {
    let (_, service) = imported
        .toml
        .split_once("[service.web]")
        .unwrap_or_default();
    let service = service.split("\n\n").next().unwrap_or_default();
    let mut lines = service.lines();
    lines
        .find_map(|line| line.strip_prefix("access_log = "))
        .unwrap_or_default()
}

#[test]
fn log_of_a_frontend_becomes_access_log() {
    let local = "log /dev/log local0";
    for (global, defaults, frontend, expected) in [
        (local, "log global", "", "\"syslog\""),
        (local, "", "log global", "\"syslog\""),
        ("", local, "", "\"syslog\""),
        ("", "", local, "\"syslog\""),
        ("", "", "log stdout format raw local0", "\"-\""),
        (
            "chroot /jail",
            "",
            "log /log daemon",
            "\"syslog:/jail/log\"",
        ),
        (local, "", "", ""),
        (local, "log global", "no log", ""),
        (
            local,
            "log global",
            "no log\n log stdout format raw local0",
            "\"-\"",
        ),
        ("log /dev/log local1 notice", "log global", "", ""),
        ("log 127.0.0.1:514 local0", "log global", "", ""),
    ] {
        let imported = import(global, defaults, frontend);
        let case = format!("{global} / {defaults} / {frontend}: {:#?}", imported.notes);
        assert_eq!(access_log(&imported), expected, "{case}");
    }
}

#[test]
fn log_format_becomes_a_template() {
    let lines = "log /dev/log local0\n log-format \"%ci [%t] %b/%s %ST %{+Q}r\"";
    assert_eq!(
        access_log(&import("", "", lines)),
        "{ path = \"syslog\", format = \"{client} [{date}] {pool}/{server} {status} \
         \\\"{method} {target} {version}\\\"\" }"
    );
    let imported = import("", "", "log /dev/log local0\n log-format \"%ci %ac\"");
    assert_eq!(access_log(&imported), "\"syslog\"");
    assert!(
        imported
            .notes
            .iter()
            .any(|note| note.contains("no equivalent for %ac"))
    );
}

#[test]
fn note_about_a_remote_log_suggests_syslog() {
    for (global, frontend) in [
        ("log 10.0.0.9:514 local0", "log global"),
        ("", "log 10.0.0.9:514 local0"),
        ("log 10.0.0.9:514 local0", ""),
    ] {
        let imported = import(global, "", frontend);
        let mut notes = imported.notes.iter();
        let suggests_syslog =
            |note: &String| note.contains("access_log = \"syslog\"") && note.contains("10.0.0.9");
        assert!(notes.any(suggests_syslog), "{:#?}", imported.notes);
    }
}

#[test]
fn requests_to_the_monitor_are_not_logged() {
    let imported = import("", "", "log /dev/log local0\n monitor-uri /up");
    let route = imported.toml.split("[[route]]").nth(1).unwrap_or_default();
    assert!(route.contains("access_log = false"), "{route}");
    let imported = import("", "", "monitor-uri /up");
    assert!(!imported.toml.contains("access_log"), "{}", imported.toml);
}
