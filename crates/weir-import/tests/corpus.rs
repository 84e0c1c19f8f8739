//! Compares the import of every corpus file with a snapshot, and with the program's own check of the file.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the test runs the real programs"
)]

mod files;

use std::process::Command;

use files::{Case, assert_accepted, corpus, noted_lines};
use weir_config::{Code, Diagnostic, Severity};
use weir_import::Imported;

fn import(program: &str, case: &Case) -> Imported {
    let environment = case.environment();
    match program {
        "keepalived" => weir_import::keepalived(&case.name, &case.text, &environment),
        "haproxy" => weir_import::haproxy(&case.name, &case.text, &environment),
        "nginx" => weir_import::nginx(&case.name, &case.text, &environment),
        _ => weir_import::ldirectord(&case.name, &case.text, &environment),
    }
}

/// Warnings caused by the original file, not by the importer: pools that are unused or have no check or no servers, and
/// servers with weight 0.
const OPERATOR_CODES: &[Code] = &[
    Code::Unchecked,
    Code::UnusedPool,
    Code::NoServers,
    Code::AllQuiesced,
];

fn warnings(imported: &Imported) -> Vec<Diagnostic> {
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    let findings = parsed
        .expect("parser accepts the output")
        .findings
        .into_iter();
    findings
        .filter(|finding| finding.severity() == Severity::Warning)
        .collect()
}

fn assert_snapshots(program: &str) {
    for case in corpus(program) {
        let imported = import(program, &case);
        assert_accepted(&imported, &case.name);
        let text = format!("{}\n---\n{}\n", imported.toml, imported.notes.join("\n"));
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(format!("{program}-{}", case.name), text);
        });
    }
}

#[test]
fn importer_causes_no_warnings() {
    let mut unexpected = Vec::new();
    for program in ["keepalived", "ldirectord", "haproxy", "nginx"] {
        for case in corpus(program) {
            let imported = import(program, &case);
            for finding in warnings(&imported) {
                // The empty pool that the importer adds is named `no-servers`, or `no-servers-2` and so on.
                let is_from_importer = finding.message.contains("`no-servers");
                let is_from_operator = OPERATOR_CODES.contains(&finding.code) && !is_from_importer;
                if !is_from_operator {
                    let line = imported.toml.lines().nth(finding.at.line as usize - 1);
                    unexpected.push(format!(
                        "{program} {}: {}: {} ({:?}): {line:?}",
                        case.name, finding.code, finding.message, finding.related
                    ));
                }
            }
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

/// The importer writes no aliases, except `first` and `ip_hash`, whose variants have no other name.
#[test]
fn importer_writes_no_aliases() {
    let mut aliases = Vec::new();
    for program in ["keepalived", "ldirectord", "haproxy", "nginx"] {
        for case in corpus(program) {
            let imported = import(program, &case);
            let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
            let findings = parsed.expect("parser accepts the output").findings;
            let is_alias = |finding: &&Diagnostic| {
                let has_other_name = !["\"first\"", "\"ip_hash\""]
                    .iter()
                    .any(|it| finding.message.starts_with(it));
                finding.code == Code::Alias && has_other_name
            };
            let messages = findings.iter().filter(is_alias).map(|it| &it.message);
            aliases.extend(messages.map(|it| format!("{program} {}: {it}", case.name)));
        }
    }
    assert!(aliases.is_empty(), "{}", aliases.join("\n"));
}

#[test]
fn notes_include_losses_and_losses_include_unguarded_lines() {
    for program in ["keepalived", "ldirectord", "haproxy", "nginx"] {
        for case in corpus(program) {
            let imported = import(program, &case);
            let name = format!("{program} {}", case.name);
            let contains_all =
                |all: &[String], some: &[String]| some.iter().all(|it| all.contains(it));
            assert!(contains_all(&imported.notes, &imported.losses), "{name}");
            assert!(
                contains_all(&imported.losses, &imported.unguarded),
                "{name}"
            );
        }
    }
}

#[test]
fn keepalived_files_match_snapshots() {
    assert_snapshots("keepalived");
}

#[test]
fn ldirectord_files_match_snapshots() {
    assert_snapshots("ldirectord");
}

#[test]
fn haproxy_files_match_snapshots() {
    assert_snapshots("haproxy");
}

#[test]
fn nginx_files_match_snapshots() {
    assert_snapshots("nginx");
}

/// Runs a program. Returns its exit code and its combined standard output and standard error. The kernel kills the
/// program after ten seconds of CPU time, because keepalived 2.3.3 does not terminate on one of the files.
fn run(program: &str, arguments: &[&str], case: &Case) -> (Option<i32>, String) {
    let mut command = Command::new("prlimit");
    command.args(["--cpu=10", program]);
    command.args(arguments).current_dir(&case.directory);
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; tools/install-deps.sh installs it"));
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Parses `(FILE: Line 3) …` or `(Line 3) …`. Returns the line number, if the line is in this file.
fn reported_line(line: &str, file: &str) -> Option<usize> {
    let location = line.strip_prefix('(')?.split(')').next()?;
    let number = match location.rsplit_once(": ") {
        Some((name, rest)) => rest.strip_prefix("Line ").filter(|_| name == file)?,
        None => location.strip_prefix("Line ")?,
    };
    number.parse().ok()
}

/// Returns whether the line that an error message names needs no note.
fn needs_no_note(line: &str, imported: &Imported) -> bool {
    // keepalived reports the end of these blocks; the importer reports the line of the server or virtual server.
    let reported_at_block_end = [
        ("Address family", "family differs from the service's"),
        (
            "has no real servers",
            "ignores a virtual server without real servers",
        ),
    ];
    let has_note = |(message, text): &(&str, &str)| {
        line.contains(message) && imported.notes.iter().any(|note| note.contains(text))
    };
    let has_note_at_start = reported_at_block_end.iter().any(has_note);
    // These messages are about deprecated keywords, missing interfaces, and a keyword that is documented but that
    // keepalived 2.2.7 rejects.
    let expected_texts = [
        "deprecated",
        "doesn't exist",
        "Invalid hex string",
        "'sni_name'",
    ];
    has_note_at_start || expected_texts.iter().any(|text| line.contains(text))
}

/// The importer has a note for every line that keepalived reports. After an unexpected brace, keepalived misparses the
/// rest, so later messages are ignored.
#[test]
fn keepalived_errors_are_noted() {
    let mut missed = Vec::new();
    for case in corpus("keepalived") {
        let (code, output) = run("keepalived", &["-t", "-f", &case.name], &case);
        let imported = import("keepalived", &case);
        let noted_lines = noted_lines(&imported);
        let relevant = output
            .lines()
            .take_while(|line| !line.contains("Unexpected '{'"));
        for line in relevant {
            let Some(number) = reported_line(line, &case.name) else {
                continue;
            };
            if !noted_lines.contains(&number) && !needs_no_note(line, &imported) {
                missed.push(format!("{}: {line}: {:#?}", case.name, imported.notes));
            }
        }
        // Exit code 5 means errors; exit code 4 means that the file could not be read.
        if matches!(code, Some(4 | 5)) {
            assert!(!imported.notes.is_empty(), "{}: {output}", case.name);
        }
        // If a file uses scripts, a signal kills keepalived 2.2.7 after it has written its output.
        assert!(
            matches!(code, Some(0 | 4 | 5 | 6) | None),
            "{}: {code:?} {output}",
            case.name
        );
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// ldirectord exits at the first error; the importer has a note for the same line.
#[test]
fn ldirectord_errors_are_noted() {
    for case in corpus("ldirectord") {
        let path = case.directory.join(&case.name);
        let path = path.to_str().expect("path is UTF-8");
        let (code, output) = run("ldirectord", &[path, "status"], &case);
        let imported = import("ldirectord", &case);
        let rejections: Vec<&String> = imported
            .notes
            .iter()
            .filter(|note| note.contains("ldirectord rejects the file here"))
            .collect();
        let is_rejected = code == Some(2);
        assert_eq!(
            is_rejected,
            !rejections.is_empty(),
            "{}: ldirectord returned {code:?} {output}, the importer {:#?}",
            case.name,
            imported.notes
        );
        assert_eq!(
            is_rejected,
            case.name.contains("refused"),
            "{}: {output}",
            case.name
        );
        let number = output
            .split("at line ")
            .nth(1)
            .and_then(|rest| rest.split(':').next())
            .and_then(|number| number.parse::<usize>().ok());
        // For a duplicate, ldirectord reports the line after the second service.
        if let Some(number) = number.filter(|_| is_rejected && !output.contains("duplicate")) {
            let prefix = format!("line {number}:");
            assert!(
                rejections.iter().any(|note| note.starts_with(&prefix)),
                "{}: {output} {rejections:?}",
                case.name
            );
        }
    }
}

/// Returns the line numbers in a program's output, as in `[FILE:3]` or ` FILE:3`.
fn line_numbers(output: &str, file: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for (offset, _) in output.match_indices(&format!("{file}:")) {
        let rest = &output[offset + file.len() + 1..];
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        numbers.extend(rest[..end].parse::<usize>().ok());
    }
    numbers
}

/// The importer has a note for every line that haproxy rejects.
#[test]
fn haproxy_errors_are_noted() {
    for case in corpus("haproxy") {
        let (code, output) = run("haproxy", &["-c", "-f", &case.name], &case);
        let imported = import("haproxy", &case);
        let noted_lines = noted_lines(&imported);
        let alerts = output.lines().filter(|line| line.contains("[ALERT]"));
        for line in alerts {
            for number in line_numbers(line, &case.name) {
                assert!(
                    noted_lines.contains(&number),
                    "{}: haproxy reports {line}, the importer {:#?}",
                    case.name,
                    imported.notes
                );
            }
        }
        assert!(matches!(code, Some(0 | 1)), "{}: {output}", case.name);
        assert!(
            code == Some(0) || !imported.notes.is_empty(),
            "{}: {output}",
            case.name
        );
    }
}

/// The importer has a note for every line that nginx rejects. nginx binds its addresses even for a check, so it runs in
/// its own network namespace.
#[test]
fn nginx_errors_are_noted() {
    const SCRIPT: &str = "echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind; \
                          exec nginx -t -q -e stderr -g \"pid $1.pid;\" -c \"$PWD/$2\"";
    let scratch = std::env::temp_dir().join(format!("weir-import-{}", std::process::id()));
    let scratch = scratch.to_str().expect("path is UTF-8");
    for case in corpus("nginx") {
        let arguments = ["--net", "sh", "-c", SCRIPT, "sh", scratch, &case.name];
        let (code, output) = run("unshare", &arguments, &case);
        if output.contains("Operation not permitted") {
            let _ = weir_testing::require("root, for a network namespace", false);
            return;
        }
        let imported = import("nginx", &case);
        let noted_lines = noted_lines(&imported);
        assert!(
            matches!(code, Some(0 | 1)),
            "{}: {code:?} {output}",
            case.name
        );
        // The installed nginx may lack the stream module. For an unexpected end of the file, the importer reports an
        // earlier line.
        let expected_texts = ["unknown directive \"stream\"", "unexpected end of file"];
        for line in output.lines().filter(|line| line.contains("[emerg]")) {
            if expected_texts.iter().any(|text| line.contains(text)) {
                continue;
            }
            for number in line_numbers(line, &case.name) {
                assert!(
                    noted_lines.contains(&number),
                    "{}: nginx reports {line}, the importer {:#?}",
                    case.name,
                    imported.notes
                );
            }
        }
        let lacks_stream = output.contains(expected_texts[0]);
        // The file contains only `server` blocks, like a file in conf.d.
        let is_partial = output.contains("no \"events\" section");
        assert!(
            code == Some(0) || lacks_stream || is_partial || !imported.notes.is_empty(),
            "{}: {output}",
            case.name
        );
    }
    let _ = std::fs::remove_file(format!("{scratch}.pid"));
}
