//! Compares how single lines of a file change its import with lists of expected keys and notes.
//!
//! A list has one paragraph per case: the lines, and then what they change compared to the file without them:
//!
//! - `+ KEY` and `- KEY`: a line of weir.toml that is new or missing
//! - `lost N TEXT`: a note with this text about a loss on line N of the case; lines before the case have N < 1
//! - `note N TEXT`: a note with this text that reports no loss

use std::collections::HashMap;

use super::keepalived;
use crate::{EmptyEnvironment, Imported};

/// Splits a line of weir.toml into the tables of a list, or the branches of a program.
fn split_line(line: &str) -> Vec<String> {
    let mut text = line.trim().to_owned();
    for end in ["}, ", "TO\\\" in ", ";; "] {
        text = text.replace(end, &format!("{end}\n"));
    }
    text.lines().map(|part| part.trim().to_owned()).collect()
}

/// Adds the lines of weir.toml that only one of two files has to `changes`.
fn compare_toml(with: &str, without: &str, changes: &mut Vec<String>) {
    let lines = |toml: &str| -> Vec<String> {
        let lines = toml
            .lines()
            .filter(|it| !it.is_empty() && !it.starts_with('#'));
        lines.flat_map(split_line).collect()
    };
    let missing_in = |some: &[String], others: &[String]| -> Vec<String> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for other in others {
            *counts.entry(other).or_default() += 1;
        }
        let is_missing = |line: &&String| match counts.get_mut(line.as_str()) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        };
        some.iter().filter(is_missing).cloned().collect()
    };
    let (with, without) = (lines(with), lines(without));
    changes.extend(
        missing_in(&without, &with)
            .iter()
            .map(|it| format!("- {it}")),
    );
    changes.extend(
        missing_in(&with, &without)
            .iter()
            .map(|it| format!("+ {it}")),
    );
}

/// Returns the changes that the lines of a case cause; `frame` is the surrounding file, with a line `@` in their place.
fn changes(frame: &str, case: &str) -> Vec<String> {
    let import = |lines: &str| -> Imported {
        let text = frame.replace("@\n", lines);
        keepalived("keepalived.conf", &text, &EmptyEnvironment)
    };
    let lines_before = frame.lines().take_while(|line| *line != "@").count();
    let (with, without) = (import(&format!("{case}\n")), import(""));
    assert!(
        frame == "@\n" || without.notes.is_empty(),
        "{:?}",
        without.notes
    );
    let mut changes = Vec::new();
    compare_toml(&with.toml, &without.toml, &mut changes);
    for note in &with.notes {
        let kind = match with.losses.contains(note) {
            true => "lost",
            false => "note",
        };
        let (line, text) = note.split_once(": ").expect("a note names its line");
        changes.push(match line.strip_prefix("line ") {
            Some(line) => {
                let number = line.parse::<usize>().expect("a line number");
                format!(
                    "{kind} {} {text}",
                    number.cast_signed() - lines_before.cast_signed()
                )
            }
            None => format!("{kind} {line}: {text}"),
        });
    }
    changes
}

/// Returns whether an expected line describes a change. The expected text of a note can be a part of the actual text.
fn is_expected(expected: &str, change: &str) -> bool {
    let is_note = expected.starts_with("lost ") || expected.starts_with("note ");
    let mut parts = expected.splitn(3, ' ');
    let (kind, number) = (parts.next(), parts.next());
    match parts.next().filter(|_| is_note) {
        Some(text) => {
            let mut changed = change.splitn(3, ' ');
            let is_same_line = changed.next() == kind && changed.next() == number;
            is_same_line && changed.next().is_some_and(|it| it.contains(text))
        }
        None => expected == change,
    }
}

/// Asserts that each case of a list causes exactly the changes in the list.
#[track_caller]
fn assert_changes(frame: &str, list: &str) {
    let is_change = |line: &&str| {
        let kind = line.split(' ').next();
        matches!(kind, Some("+" | "-" | "lost" | "note"))
    };
    let mut mismatches = Vec::new();
    for paragraph in list.trim().split("\n\n") {
        let lines = paragraph.lines().filter(|line| !line.starts_with("# "));
        let (expected, lines): (Vec<&str>, Vec<&str>) = lines.partition(is_change);
        let case = lines.join("\n");
        let actual = changes(frame, &case);
        let mut unexpected = actual.clone();
        let is_missing = |line: &&&str| match unexpected.iter().position(|it| is_expected(line, it))
        {
            Some(index) => {
                unexpected.remove(index);
                false
            }
            None => true,
        };
        let missing_count = expected.iter().filter(is_missing).count();
        if missing_count > 0 || !unexpected.is_empty() {
            mismatches.push(format!("{case}\n{}\n", actual.join("\n")));
        }
    }
    assert!(mismatches.is_empty(), "\n{}", mismatches.join("\n"));
}

const INSTANCE: &str = "\
vrrp_instance v {
interface eth0
virtual_router_id 7
virtual_ipaddress {
192.0.2.1/24
}
@
}
";

#[test]
fn lines_of_an_instance_become_its_keys() {
    assert_changes(INSTANCE, include_str!("tests/instance.txt"));
}

const VIRTUAL_SERVER: &str = "\
virtual_server 192.0.2.1 80 {
lvs_method NAT
lvs_sched rr
protocol TCP
@
real_server 10.0.0.5 80 {
TCP_CHECK {
}
}
}
";

#[test]
fn lines_of_a_virtual_server_become_its_keys() {
    assert_changes(VIRTUAL_SERVER, include_str!("tests/virtual_server.txt"));
}

const REAL_SERVER: &str = "\
virtual_server 192.0.2.1 80 {
lvs_method NAT
lvs_sched rr
protocol TCP
real_server 10.0.0.5 80 {
@
}
}
";

#[test]
fn lines_of_a_real_server_become_its_keys_and_checks() {
    assert_changes(REAL_SERVER, include_str!("tests/real_server.txt"));
    assert_changes(REAL_SERVER, include_str!("tests/checkers.txt"));
}

#[test]
fn lines_of_a_checker_become_keys_of_its_check() {
    let tcp = REAL_SERVER.replace("@\n", "TCP_CHECK {\n@\n}\n");
    assert_changes(&tcp, include_str!("tests/check.txt"));
    let http = REAL_SERVER.replace("@\n", "HTTP_GET {\nurl {\npath /\n}\n@\n}\n");
    assert_changes(&http, include_str!("tests/http.txt"));
    let url = REAL_SERVER.replace("@\n", "HTTP_GET {\nurl {\npath /\n@\n}\n}\n");
    assert_changes(&url, include_str!("tests/url.txt"));
}

/// The programs of the instance and the check of the server use the global settings.
const GLOBAL: &str = "\
global_defs {
@
}
vrrp_instance v {
interface eth0
virtual_router_id 7
down_timer_adverts 3
notify_master /bin/true
virtual_ipaddress {
192.0.2.1/24
}
}
virtual_server 192.0.2.1 80 {
lvs_method NAT
lvs_sched rr
protocol TCP
real_server 10.0.0.5 80 {
}
}
";

#[test]
fn lines_of_global_defs_become_defaults() {
    assert_changes(GLOBAL, include_str!("tests/global.txt"));
}

#[test]
fn addresses_and_routes_of_an_instance_are_imported() {
    let bare =
        "vrrp_instance v {\ninterface eth0\nvirtual_router_id 7\nvirtual_ipaddress {\n@\n}\n}\n";
    assert_changes(bare, include_str!("tests/addresses.txt"));
    for (block, list) in [
        ("virtual_routes", include_str!("tests/routes.txt")),
        ("virtual_rules", include_str!("tests/rules.txt")),
    ] {
        assert_changes(
            &INSTANCE.replace("@\n", &format!("{block} {{\n@\n}}\n")),
            list,
        );
    }
}

/// A whole file.
const FILE: &str = "@\n";

#[test]
fn blocks_are_imported_or_noted() {
    assert_changes(FILE, include_str!("tests/blocks.txt"));
}

#[test]
fn tracked_objects_and_groups_affect_their_instances() {
    assert_changes(FILE, include_str!("tests/tracking.txt"));
    assert_changes(FILE, include_str!("tests/sync_groups.txt"));
}

#[test]
fn lines_of_an_instance_affect_each_other() {
    assert_changes(FILE, include_str!("tests/instances.txt"));
}

#[test]
fn virtual_servers_and_their_groups_become_services() {
    assert_changes(FILE, include_str!("tests/virtual_servers.txt"));
    assert_changes(FILE, include_str!("tests/groups.txt"));
}

/// In IPVS, each address of a group has its own persistence. More than 64 addresses would become too many services.
#[test]
fn group_of_more_than_64_addresses_shares_persistence() {
    for (last, has_note) in [(64, false), (65, true)] {
        let text = format!(
            "virtual_server_group g {{\n192.0.2.1-{last} 80\n}}\nvirtual_server group g {{\nlvs_sched rr\n\
             lvs_method DR\nprotocol TCP\npersistence_timeout 9\nreal_server 10.0.0.5 80 {{\n}}\n}}\n"
        );
        let notes = keepalived("keepalived.conf", &text, &EmptyEnvironment).losses;
        let is_common = |note: &String| note.contains("persistence covers all addresses");
        assert_eq!(notes.iter().any(is_common), has_note, "{last}");
    }
}
