//! Tests that only the unsupported lines of haproxy.cfg are lost, and all other lines are imported.

mod fake_environment;

use fake_environment::FakeEnvironment;
use weir_import::{EmptyEnvironment, Environment, Imported, haproxy};

const DEFAULTS: &str = "defaults\n mode http\n timeout client 5s\n";
const BACKEND: &str = "backend app\n server a 10.0.0.5:80 check\n";

fn import(text: &str, environment: &dyn Environment) -> Imported {
    let imported = haproxy("haproxy.cfg", text, environment);
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{}", imported.toml);
    imported
}

/// Imports a frontend with these lines, starting at line 5, and a backend.
fn import_frontend(lines: &str) -> Imported {
    let text = format!("{DEFAULTS}frontend web\n {lines}\n default_backend app\n{BACKEND}");
    import(&text, &EmptyEnvironment)
}

fn assert_contains(imported: &Imported, part: &str) {
    let Imported { toml, notes, .. } = imported;
    assert!(toml.contains(part), "{part}:\n{toml}\n{notes:#?}");
}

fn lost_lines(imported: &Imported) -> Vec<usize> {
    let number = |note: &String| {
        let text = note
            .strip_prefix("line ")
            .expect("note begins with its line");
        let digits = text.split(':').next().unwrap_or_default();
        digits.parse().expect("parse the line number")
    };
    let mut lines: Vec<usize> = imported.losses.iter().map(number).collect();
    lines.dedup();
    lines
}

/// Lines that the importer does not support in most sections.
const LINES: &[&str] = &[
    "frobnicate",
    "mode haterm",
    "acl",
    "acl x",
    "acl x frobnicated y",
    "bind",
    "bind 192.0.2.9:0",
    "bind quic4@192.0.2.9:443 ssl crt /a.pem",
    "server",
    "server x",
    "server x abns@x",
    "server x unix@relative.sock",
    "server x 10.0.0.6:99999",
    "server-template x 1-3 <name>:80",
    "default-server frobnicate 3",
    "balance frobnicate",
    "balance hash dst",
    "hash-type consistent xxh3",
    "cookie",
    "cookie x dynamic",
    "use_backend nowhere",
    "use_backend app if {",
    "use-server a if TRUE",
    "http-request lua.action",
    "http-request deny deny_status 999",
    "http-request set-header",
    "http-request return lf-string %[src]",
    "http-request replace-path (?=x) y",
    "http-response set-status 700",
    "http-check connect",
    "tcp-check connect ssl",
    "stick-table type ip",
    "filter spoe engine x",
    "errorfile 503 relative.http",
    "option httpchk GET",
    "option frobnicate",
    "timeout client soon",
    "log \"open",
    ".if unclosed",
];

#[test]
fn unsupported_line_does_not_affect_other_lines() {
    let mut lines_without_note = Vec::new();
    for line in LINES {
        for section in ["web", "app", "defaults"] {
            let line_in = |name: &str| match name == section {
                true => format!(" {line}\n"),
                false => String::new(),
            };
            // The line comes last in its section, because an open block contains all following lines.
            let text = format!(
                "{DEFAULTS}{}frontend web\n bind 192.0.2.1:80\n bind 192.0.2.1:81\n default_backend app\n{}backend \
                 app\n server a 10.0.0.5:80 check\n server b 10.0.0.6:80 check\n{}",
                line_in("defaults"),
                line_in("web"),
                line_in("app"),
            );
            let imported = import(&text, &EmptyEnvironment);
            assert_contains(&imported, "[service.web]");
            assert_contains(&imported, "[pool.app]");
            for address in [
                "192.0.2.1:80",
                "192.0.2.1:81",
                "\"10.0.0.5:80\"",
                "\"10.0.0.6:80\"",
            ] {
                assert_contains(&imported, address);
            }
            let number = text.lines().position(|it| it.trim() == *line);
            let number = number.expect("the file contains the line") + 1;
            let prefix = format!("line {number}:");
            let mut notes = imported.notes.iter();
            // These lines need no note: the check uses `/` if there is no path, no server follows the default, and the
            // rule is supported.
            let is_imported = matches!(*line, "option httpchk GET" | "default-server frobnicate 3")
                || (*line, section) == ("use-server a if TRUE", "app");
            if !is_imported && !notes.any(|note| note.starts_with(&prefix)) {
                lines_without_note.push(format!("{section}: {line}: {:?}", imported.notes));
            }
        }
    }
    assert!(
        lines_without_note.is_empty(),
        "{}",
        lines_without_note.join("\n")
    );
}

#[test]
fn frontend_without_usable_address_listens_on_loopback() {
    for bind in [
        "bind /run/web.sock mode 660",
        "bind abns@web",
        "bind fd@3",
        "bind quic4@:443",
        "bind :http",
        "bind 192.0.2.1",
        "bind {{ address }}:80",
    ] {
        let imported = import_frontend(bind);
        assert_contains(&imported, "listen = [\"127.0.0.1:22000\"]");
        assert_eq!(lost_lines(&imported), [5], "{:#?}", imported.notes);
    }
    let imported = import_frontend("bind nowhere.example:8080");
    assert_contains(&imported, "listen = [\"127.0.0.1:8080\"]");
    assert_eq!(lost_lines(&imported), [5]);
}

#[test]
fn loopback_address_of_another_frontend_is_not_used_again() {
    let text = format!(
        "{DEFAULTS}frontend one\n bind nowhere.example:80\n default_backend app\nfrontend two\n bind \
         nowhere.example:80\n bind elsewhere.example:80\n default_backend app\n{BACKEND}"
    );
    let imported = import(&text, &EmptyEnvironment);
    assert_contains(&imported, "[service.one]\nlisten = [\"127.0.0.1:80\"]");
    assert_contains(&imported, "[service.two]\nlisten = [\"127.0.0.1:22000\"]");
    assert_eq!(lost_lines(&imported), [5, 8, 9]);
}

#[test]
fn ipv6_wildcard_includes_ipv4() {
    assert_contains(
        &import_frontend("bind :::80"),
        "listen = [\"[::]:80\", \"0.0.0.0:80\"]",
    );
    assert_contains(
        &import_frontend("bind :::80 v6only"),
        "listen = [\"[::]:80\"]",
    );
    let imported = import_frontend("bind :::80\n bind *:80");
    assert_contains(&imported, "listen = [\"[::]:80\", \"0.0.0.0:80\"]");
}

#[test]
fn unset_variables_remain_in_addresses() {
    let imported = import_frontend("bind \"${IP}:${PORT}\"");
    assert_contains(&imported, "listen = [\"${IP}:${PORT}\"]");
    assert_eq!(lost_lines(&imported), [] as [usize; 0]);
    let text = format!(
        "{DEFAULTS}listen web\n bind :80\n server a \"${{ONE}}:80\" inter \"${{INTERVAL}}\" check\n server b \
         ${{TWO}}:${{PORT}}\n"
    );
    let imported = import(&text, &EmptyEnvironment);
    assert_contains(&imported, "address = \"${ONE}:80\"");
    assert_contains(&imported, "address = \"${TWO}:${PORT}\"");
    assert_eq!(lost_lines(&imported), [6]);
}

#[test]
fn bind_with_lost_certificates_still_uses_tls() {
    for options in [
        "ssl",
        "ssl crt \"${FILE}\"",
        "ssl crt @a/b",
        "ssl crt-list /l",
    ] {
        let imported = import_frontend(&format!("bind :443 {options}"));
        assert_contains(&imported, "tls = { certificates = \"/etc/weir/certs\" }");
        assert_eq!(lost_lines(&imported), [5], "{options}");
    }
    let imported = import_frontend("bind :443 ssl crt a.pem verify required ca-file \"${CA}\"");
    assert_contains(&imported, "certificates = \"/etc/haproxy/a.pem\"");
    assert!(!imported.unguarded.is_empty(), "{:#?}", imported.notes);
}

#[test]
fn certificates_of_all_binds_are_merged() {
    let imported = import_frontend("bind :443 ssl crt /a.pem crt /b\n bind :444 ssl crt /a.pem");
    assert_contains(&imported, "tls = { certificates = [\"/a.pem\", \"/b\"] }");
    assert_eq!(lost_lines(&imported), [] as [usize; 0]);
}

#[test]
fn certificates_of_crt_store_are_replaced_by_files() {
    let text = format!(
        "crt-store web\n crt-base /etc/crt\n key-base /etc/crt\n load crt a.crt key a.key alias one\n load crt \
         b.pem\n load crt c.pem key other.key\n{DEFAULTS}frontend web\n bind :443 ssl crt @web/one crt @web/b.pem\n \
         default_backend app\n{BACKEND}"
    );
    let imported = import(&text, &EmptyEnvironment);
    let list = "certificates = [\"/etc/crt/a.crt\", \"/etc/crt/b.pem\"]";
    assert_contains(&imported, list);
    assert_eq!(lost_lines(&imported), [6], "{:#?}", imported.notes);
}

/// An environment with one file and one variable.
const ENVIRONMENT: FakeEnvironment = FakeEnvironment {
    files: &[(
        "/etc/haproxy/list",
        "# all\na.pem\n/b.pem b.example\nc.pem [alpn h2] !d.example\n",
    )],
    variables: &[("SET", "yes")],
};

#[test]
fn certificates_of_crt_list_are_imported() {
    let text = format!(
        "global\n crt-base /base\n{DEFAULTS}frontend web\n bind :443 ssl crt-list /etc/haproxy/list\n \
         default_backend app\n{BACKEND}"
    );
    let imported = import(&text, &ENVIRONMENT);
    let list = "certificates = [\"/base/a.pem\", \"/b.pem\", \"/base/c.pem\"]";
    assert_contains(&imported, list);
    let notes = imported.losses.join("\n");
    assert!(
        notes.contains("c.pem in /etc/haproxy/list: options"),
        "{notes}"
    );
}

#[test]
fn only_lines_of_active_blocks_are_imported() {
    let blocks = "global\n setenv MINE 1\n unsetenv SET\n.if defined(SET)\n maxconn 1\n.endif\n";
    let frontend = ".if streq(\"$MINE\",1) && version_atleast(2.4)\n  bind :80\n .if 0\n  bind :81\n .else\n  \
                 bind :82\n .endif\n .elif feature(OPENSSL)\n  bind :83\n .else\n  bind :84\n .endif\n \
                 .notice \"text\"";
    let text =
        format!("{blocks}{DEFAULTS}frontend web\n {frontend}\n default_backend app\n{BACKEND}");
    let imported = import(&text, &ENVIRONMENT);
    assert_contains(&imported, "listen = [\"0.0.0.0:80\", \"0.0.0.0:82\"]");
    assert_eq!(lost_lines(&imported), [] as [usize; 0]);
    assert!(
        !imported.toml.contains("connections = 1"),
        "{}",
        imported.toml
    );
    let reported = imported.notes.join("\n");
    for part in [
        "SET is not set here",
        "haproxy skips it because of the condition on line",
    ] {
        assert!(reported.contains(part), "{reported}");
    }
    // An unset variable, a condition that cannot be evaluated, a missing `.if`, and an alert are reported.
    for (line, expected) in [
        ("bind :80\n .if streq(\"$OTHER\",1)\n bind :81\n .endif", 6),
        ("bind :80\n .if enabled(POLL)\n .endif", 6),
        ("bind :80\n .endif", 6),
        ("bind :80\n .elif 1", 6),
        ("bind :80\n .alert \"no\"", 6),
    ] {
        assert_eq!(lost_lines(&import_frontend(line)), [expected], "{line}");
    }
}

#[test]
fn statistics_section_becomes_admin_listener() {
    let stats = "listen stats\n bind *:8404\n stats enable\n stats uri /\n";
    let imported = import(&format!("{DEFAULTS}{stats}"), &EmptyEnvironment);
    assert_contains(&imported, "[node]\nadmin = \"127.0.0.1:8404\"\n");
    assert_eq!(lost_lines(&imported), [] as [usize; 0]);
    let exporter = "frontend prometheus\n bind :8405\n http-request use-service prometheus-exporter if { path \
                    /metrics }\n";
    let text = format!("global\n hard-stop-after 9s\n{DEFAULTS}{stats}{exporter}");
    let imported = import(&text, &EmptyEnvironment);
    assert_contains(
        &imported,
        "[node]\ndrain_timeout = \"9s\"\nadmin = \"127.0.0.1:8404\"\n",
    );
}

#[test]
fn file_without_proxies_becomes_service_defaults() {
    let imported = import("global\n maxconn 100\n", &EmptyEnvironment);
    assert_contains(
        &imported,
        "[defaults.service]\nlimits = { connections = 100 }\n",
    );
    let imported = import(
        "\u{feff}defaults\n mode http\n option httplog\n",
        &EmptyEnvironment,
    );
    assert_contains(
        &imported,
        "[defaults.service]\nforward = \"proxy\"\nprotocol = \"http\"\n",
    );
}
