//! Nothing is dropped in silence: without any line of the corpus the outcome would be another one.

mod files;

use files::corpus;
use weir_import::Imported;

/// Lines that say what holds without them too.
const DEFAULTS: &[&str] = &[
    "weight 1",
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
    "balance roundrobin",
    "mode tcp",
    "option tcp-check",
    "server_name _;",
    "ip_family inet",
    "ip_family inet6",
    "scheduler=wrr",
    "checkport=80",
    "proxy_hide_header X-Frame-Options;",
    "http-response set-header X-Frame-Options SAMEORIGIN",
];

/// Notes without the numbers of their lines, which move.
fn unnumbered(imported: &Imported) -> (String, Vec<String>) {
    let mut texts: Vec<String> = imported
        .notes
        .iter()
        .map(|note| {
            let digits = |c: char| c.is_ascii_digit();
            note.replace(digits, "")
        })
        .collect();
    texts.sort();
    (imported.toml.clone(), texts)
}

/// Every line that says something, without its own remark.
fn silent(
    program: &str,
    import: impl Fn(&str, &str, &dyn weir_import::World) -> Imported,
    structure: &[&str],
) -> Vec<String> {
    let mut silent = Vec::new();
    for case in corpus(program) {
        let world = case.world();
        let whole = unnumbered(&import(&case.name, &case.text, &world));
        let lines: Vec<&str> = case.text.lines().collect();
        for at in 0..lines.len() {
            let line = lines[at].trim();
            let says =
                !line.is_empty() && !line.starts_with(['#', '!']) && !structure.contains(&line);
            if !says || DEFAULTS.contains(&line) {
                continue;
            }
            let mut without = lines.clone();
            // An empty line in its place would end a section of ldirectord.
            without.remove(at);
            let text = without.join("\n");
            if unnumbered(&import(&case.name, &text, &world)) == whole {
                silent.push(format!("{} line {}: {line}", case.name, at + 1));
            }
        }
    }
    silent
}

#[test]
fn every_line_of_keepalived_counts() {
    let silent = silent("keepalived", weir_import::keepalived, &["}", "{"]);
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

#[test]
fn every_line_of_ldirectord_counts() {
    let silent = silent("ldirectord", weir_import::ldirectord, &[]);
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

#[test]
fn every_line_of_haproxy_counts() {
    let silent = silent("haproxy", weir_import::haproxy, &["global", "defaults"]);
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

#[test]
fn every_line_of_nginx_counts() {
    let silent = silent("nginx", weir_import::nginx, &["}", "http {"]);
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}
