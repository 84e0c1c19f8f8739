//! Tests that no line is dropped silently: removing any line of the corpus changes the output.

mod files;

use files::corpus;
use weir_import::Imported;

/// Lines whose removal does not change the output: they set a value to its default, or other lines determine the
/// result.
const INEFFECTIVE_LINES: &[&str] = &[
    "weight 1",
    "auth_type PASS",
    "virtualhost www.example.com",
    "connect_timeout 5",
    "retry 3",
    "quiescent=no",
    "protocol=tcp",
    "protocol=fwm",
    "checktype=negotiate",
    "service=http",
    "service=http # and behind them",
    "service=submission",
    "service=mysql",
    "service=pgsql",
    "service=dns",
    "service=radius",
    "service=sip",
    "balance roundrobin",
    "mode tcp",
    "option tcp-check",
    "server_name _;",
    // nginx's default `root`, which contains only its default pages.
    "location = /50x.html { root /usr/share/nginx/html; internal; }",
    "ip_family inet",
    "ip_family inet6",
    "scheduler=wrr",
    "checkport=80",
    "proxy_hide_header X-Frame-Options;",
    "http-response set-header X-Frame-Options SAMEORIGIN",
    // More specific lines take precedence.
    "smtp_alert off",
    "emailalert=\"ops@example.com\"",
    "smtp=mail.example.com",
    // Nothing uses the variable, the list of users, or the backend.
    "set $beta 1;",
    "user one insecure-password two",
    "http-request set-path /b",
];

/// Returns the output, and the sorted notes without digits: line numbers change if a line is removed.
fn without_line_numbers(imported: &Imported) -> (String, Vec<String>) {
    let mut texts: Vec<String> = imported
        .notes
        .iter()
        .map(|note| {
            let is_digit = |c: char| c.is_ascii_digit();
            note.replace(is_digit, "")
        })
        .collect();
    texts.sort();
    // Comments repeat the notes about losses.
    let lines = imported.toml.lines().filter(|line| !line.starts_with('#'));
    (lines.collect::<Vec<&str>>().join("\n"), texts)
}

/// Returns every line whose removal does not change the output, except for comments, empty lines, `structure` and
/// [`INEFFECTIVE_LINES`].
fn ineffective_lines(
    program: &str,
    import: impl Fn(&str, &str, &dyn weir_import::Environment) -> Imported,
    structure: &[&str],
) -> Vec<String> {
    let mut ineffective = Vec::new();
    for case in corpus(program) {
        let environment = case.environment();
        let full_output = without_line_numbers(&import(&case.name, &case.text, &environment));
        let lines: Vec<&str> = case.text.lines().collect();
        for index in 0..lines.len() {
            let line = lines[index].trim();
            let has_content =
                !line.is_empty() && !line.starts_with(['#', '!']) && !structure.contains(&line);
            if !has_content || INEFFECTIVE_LINES.contains(&line) {
                continue;
            }
            let mut other_lines = lines.clone();
            // Remove the line instead of emptying it: an empty line ends an ldirectord section.
            other_lines.remove(index);
            let text = other_lines.join("\n");
            if without_line_numbers(&import(&case.name, &text, &environment)) == full_output {
                ineffective.push(format!("{} line {}: {line}", case.name, index + 1));
            }
        }
    }
    ineffective
}

#[test]
fn every_keepalived_line_affects_the_output() {
    let ineffective = ineffective_lines("keepalived", weir_import::keepalived, &["}", "{"]);
    assert!(ineffective.is_empty(), "{}", ineffective.join("\n"));
}

#[test]
fn every_ldirectord_line_affects_the_output() {
    let ineffective = ineffective_lines("ldirectord", weir_import::ldirectord, &[]);
    assert!(ineffective.is_empty(), "{}", ineffective.join("\n"));
}

#[test]
fn every_haproxy_line_affects_the_output() {
    let ineffective = ineffective_lines("haproxy", weir_import::haproxy, &["global", "defaults"]);
    assert!(ineffective.is_empty(), "{}", ineffective.join("\n"));
}

#[test]
fn every_nginx_line_affects_the_output() {
    let ineffective = ineffective_lines("nginx", weir_import::nginx, &["}", "http {"]);
    assert!(ineffective.is_empty(), "{}", ineffective.join("\n"));
}
