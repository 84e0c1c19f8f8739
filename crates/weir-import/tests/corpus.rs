//! What becomes of every file of the corpus, and that each program's own check of it agrees with what is reported.

mod files;

use std::process::Command;

use files::{Case, accepted, corpus, noted};
use weir_config::{Code, Diagnostic, Severity};
use weir_import::Imported;

fn import(program: &str, case: &Case) -> Imported {
    let world = case.world();
    match program {
        "keepalived" => weir_import::keepalived(&case.name, &case.text, &world),
        "haproxy" => weir_import::haproxy(&case.name, &case.text, &world),
        "nginx" => weir_import::nginx(&case.name, &case.text, &world),
        _ => weir_import::ldirectord(&case.name, &case.text, &world),
    }
}

/// Warnings about what the other program's file says, which an operator can act on: pools without a check, without a use or without
/// servers, servers of weight 0, virtual routers that are kept for later.
const THEIRS: &[Code] = &[
    Code::Unchecked,
    Code::UnusedPool,
    Code::NoServers,
    Code::AllQuiesced,
    Code::Kept,
];

fn warnings(imported: &Imported) -> Vec<Diagnostic> {
    let parsed = weir_config::parse(&imported.toml, &weir_config::Host::default());
    let findings = parsed.expect("it is accepted").findings.into_iter();
    findings
        .filter(|one| one.severity() == Severity::Warning)
        .collect()
}

fn snapshots(program: &str) {
    for case in corpus(program) {
        let imported = import(program, &case);
        accepted(&imported, &case.name);
        let text = format!("{}\n---\n{}\n", imported.toml, imported.notes.join("\n"));
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(format!("{program}-{}", case.name), text);
        });
    }
}

/// Warnings about what was imported that the file itself is not the reason of: none. What it says is an operator's to change.
#[test]
fn what_is_written_gives_no_warnings_of_its_own() {
    let mut unexpected = Vec::new();
    for program in ["keepalived", "ldirectord", "haproxy", "nginx"] {
        for case in corpus(program) {
            let imported = import(program, &case);
            for finding in warnings(&imported) {
                // A pool without servers that the importer made is its own.
                let own = finding.message.contains("`no-servers");
                let known = THEIRS.contains(&finding.code) && !own;
                if !known {
                    let at = imported.toml.lines().nth(finding.at.line as usize - 1);
                    unexpected.push(format!(
                        "{program} {}: {}: {} ({:?}): {at:?}",
                        case.name, finding.code, finding.message, finding.related
                    ));
                }
            }
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

#[test]
fn every_loss_is_a_note_and_every_lost_guard_a_loss() {
    for program in ["keepalived", "ldirectord", "haproxy", "nginx"] {
        for case in corpus(program) {
            let imported = import(program, &case);
            let of = format!("{program} {}", case.name);
            let holds = |all: &[String], some: &[String]| some.iter().all(|it| all.contains(it));
            assert!(holds(&imported.notes, &imported.losses), "{of}");
            assert!(holds(&imported.losses, &imported.unguarded), "{of}");
        }
    }
}

#[test]
fn keepalived_files_become_this() {
    snapshots("keepalived");
}

#[test]
fn ldirectord_files_become_this() {
    snapshots("ldirectord");
}

#[test]
fn haproxy_files_become_this() {
    snapshots("haproxy");
}

#[test]
fn nginx_files_become_this() {
    snapshots("nginx");
}

/// The program's answer, both streams together.
fn ask(program: &str, arguments: &[&str], case: &Case) -> (Option<i32>, String) {
    let mut command = Command::new(program);
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

/// `(FILE: Line 3) …`, or `(Line 3) …`: the number, if the line is of that file.
fn complaint(line: &str, file: &str) -> Option<usize> {
    let inside = line.strip_prefix('(')?.split(')').next()?;
    let number = match inside.rsplit_once(": ") {
        Some((name, rest)) => rest.strip_prefix("Line ").filter(|_| name == file)?,
        None => inside.strip_prefix("Line ")?,
    };
    number.parse().ok()
}

/// Complaints that name another line, or that are no refusals.
fn excused(line: &str, imported: &Imported) -> bool {
    // It says this at the end of the block; the importer names the server's own line.
    let family = line.contains("Address family")
        && imported
            .notes
            .iter()
            .any(|note| note.contains("not of the service's family"));
    // An old word that it still takes; what this machine has not; and what its manual shows and 2.2.7 does not take.
    let others = [
        "deprecated",
        "doesn't exist",
        "Invalid hex string",
        "'sni_name'",
    ];
    family || others.iter().any(|other| line.contains(other))
}

/// Every line that keepalived complains of is named by the importer. Behind a brace that it did not expect keepalived has
/// lost its place, and complains of everything; what follows is its own confusion.
#[test]
fn what_keepalived_refuses_is_reported() {
    let mut missed = Vec::new();
    for case in corpus("keepalived") {
        let (code, said) = ask("keepalived", &["-t", "-f", &case.name], &case);
        let imported = import("keepalived", &case);
        let noted = noted(&imported);
        let sensible = said
            .lines()
            .take_while(|line| !line.contains("Unexpected '{'"));
        for line in sensible {
            let Some(number) = complaint(line, &case.name) else {
                continue;
            };
            if !noted.contains(&number) && !excused(line, &imported) {
                missed.push(format!("{}: {line}: {:#?}", case.name, imported.notes));
            }
        }
        // 5 = errors, 4 = nothing could be read at all.
        if matches!(code, Some(4 | 5)) {
            assert!(!imported.notes.is_empty(), "{}: {said}", case.name);
        }
        // Where a file names scripts, 2.2.7 ends itself by a signal when it has said everything.
        assert!(
            matches!(code, Some(0 | 4 | 5 | 6) | None),
            "{}: {code:?} {said}",
            case.name
        );
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// ldirectord ends at the first line that it does not take; the importer says of the same line that it would.
#[test]
fn what_ldirectord_refuses_is_reported() {
    for case in corpus("ldirectord") {
        let path = case.directory.join(&case.name);
        let path = path.to_str().expect("a path");
        let (code, said) = ask("ldirectord", &[path, "status"], &case);
        let imported = import("ldirectord", &case);
        let refusals: Vec<&String> = imported
            .notes
            .iter()
            .filter(|note| note.contains("ldirectord refuses the file here"))
            .collect();
        let refused = code == Some(2);
        assert_eq!(
            refused,
            !refusals.is_empty(),
            "{}: ldirectord says {code:?} {said}, the importer {:#?}",
            case.name,
            imported.notes
        );
        assert_eq!(
            refused,
            case.name.contains("refused"),
            "{}: {said}",
            case.name
        );
        let at = said
            .split("at line ")
            .nth(1)
            .and_then(|rest| rest.split(':').next())
            .and_then(|number| number.parse::<usize>().ok());
        // Of a duplicate it says the line behind the second one.
        if let Some(at) = at.filter(|_| refused && !said.contains("duplicate")) {
            let first = format!("line {at}:");
            assert!(
                refusals.iter().any(|note| note.starts_with(&first)),
                "{}: {said} {refusals:?}",
                case.name
            );
        }
    }
}

/// `[FILE:3]` or ` FILE:3`: the numbers of lines that a program names.
fn named(said: &str, file: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for (at, _) in said.match_indices(&format!("{file}:")) {
        let rest = &said[at + file.len() + 1..];
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        numbers.extend(rest[..end].parse::<usize>().ok());
    }
    numbers
}

/// Every line that haproxy refuses is named by the importer.
#[test]
fn what_haproxy_refuses_is_reported() {
    for case in corpus("haproxy") {
        let (code, said) = ask("haproxy", &["-c", "-f", &case.name], &case);
        let imported = import("haproxy", &case);
        let noted = noted(&imported);
        let alerts = said.lines().filter(|line| line.contains("[ALERT]"));
        for line in alerts {
            for number in named(line, &case.name) {
                assert!(
                    noted.contains(&number),
                    "{}: haproxy says {line}, the importer {:#?}",
                    case.name,
                    imported.notes
                );
            }
        }
        assert!(matches!(code, Some(0 | 1)), "{}: {said}", case.name);
        assert!(
            code == Some(0) || !imported.notes.is_empty(),
            "{}: {said}",
            case.name
        );
    }
}

/// Every line that nginx refuses is named by the importer. It binds what it listens on, so it gets a network of its own.
#[test]
fn what_nginx_refuses_is_reported() {
    const SCRIPT: &str = "echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind; \
                          exec nginx -t -q -e stderr -g \"pid $1.pid;\" -c \"$PWD/$2\"";
    let scratch = std::env::temp_dir().join(format!("weir-import-{}", std::process::id()));
    let scratch = scratch.to_str().expect("a path");
    for case in corpus("nginx") {
        let arguments = ["--net", "sh", "-c", SCRIPT, "sh", scratch, &case.name];
        let (code, said) = ask("unshare", &arguments, &case);
        if said.contains("Operation not permitted") {
            assert!(
                std::env::var_os("WEIR_TEST_REQUIRE_ROOT").is_none(),
                "this test needs root"
            );
            eprintln!("SKIPPED: needs root for a network namespace");
            return;
        }
        let imported = import("nginx", &case);
        let noted = noted(&imported);
        assert!(
            matches!(code, Some(0 | 1)),
            "{}: {code:?} {said}",
            case.name
        );
        // A module that this nginx lacks; and the end of the file, where it misses what the importer misses before.
        let elsewhere = ["unknown directive \"stream\"", "unexpected end of file"];
        for line in said.lines().filter(|line| line.contains("[emerg]")) {
            if elsewhere.iter().any(|words| line.contains(words)) {
                continue;
            }
            for number in named(line, &case.name) {
                assert!(
                    noted.contains(&number),
                    "{}: nginx says {line}, the importer {:#?}",
                    case.name,
                    imported.notes
                );
            }
        }
        let stream = said.contains(elsewhere[0]);
        assert!(
            code == Some(0) || stream || !imported.notes.is_empty(),
            "{}: {said}",
            case.name
        );
    }
    let _ = std::fs::remove_file(format!("{scratch}.pid"));
}
