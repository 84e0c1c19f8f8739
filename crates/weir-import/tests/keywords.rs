//! Compares the import of every keyword of keepalived.conf and ldirectord.cf with the keyword's class in a list.

use std::collections::BTreeSet;

use weir_import::{EmptyEnvironment, Imported, keepalived, ldirectord};

/// A line of a list: a line of a configuration file, its block, and its class.
struct Case {
    block: &'static str,
    class: &'static str,
    line: &'static str,
}

fn parse_cases(list: &'static str) -> Vec<Case> {
    let lines = list.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = |line: &'static str| {
        let mut words = line.splitn(3, ' ');
        let mut next = || words.next().unwrap_or_else(|| panic!("{line}: too short"));
        Case {
            block: next(),
            class: next(),
            line: next(),
        }
    };
    lines.map(split).collect()
}

/// Returns a keepalived.conf with a line in the named block.
fn keepalived_file(block: &str, line: &str) -> String {
    let line_in = |name: &str| if name == block { line } else { "" };
    let check = match block {
        "http" => format!("SSL_GET {{\nurl {{\npath /\n}}\n{line}\n}}"),
        "url" => format!("HTTP_GET {{\nurl {{\npath /a\n{line}\n}}\n}}"),
        "body" => format!("HTTP_GET {{\nurl {{\npath /a\nregex up\n{line}\n}}\n}}"),
        "smtp" => format!("SMTP_CHECK {{\n{line}\n}}"),
        "dns" => format!("DNS_CHECK {{\nname a.example\n{line}\n}}"),
        "udp" => format!("UDP_CHECK {{\npayload 00\nrequire_reply 01\n{line}\n}}"),
        "misc" => format!("MISC_CHECK {{\nmisc_path /bin/true\n{line}\n}}"),
        "real" if is_checker(line) => line.to_owned(),
        _ => format!("TCP_CHECK {{\n{}\n}}", line_in("check")),
    };
    let hmac = match block {
        "hmac" => format!("auth_hmac {{\nkey 1 0123456789abcdef0123456789abcdef\n{line}\n}}"),
        _ => String::new(),
    };
    let real_server_line = if is_checker(line_in("real")) {
        ""
    } else {
        line_in("real")
    };
    format!(
        "global_defs {{\n{}\n}}\n{}\nvrrp_script alive {{\nscript /bin/true\n{}\n}}\n\
         vrrp_track_process proxy {{\nprocess haproxy\n{}\n}}\ntrack_file weight {{\nfile /run/weight\n{}\n}}\n\
         vrrp_sync_group PAIR {{\ngroup {{\nVI_1\n}}\n{}\n}}\n\
         vrrp_instance VI_1 {{\ninterface eth0\nvirtual_router_id 51\nvirtual_ipaddress {{\n192.0.2.10/24\n}}\n\
         {}\n{hmac}\n{}\n}}\n\
         vrrp_instance VI_2 {{\ninterface eth0\nvirtual_router_id 61\nvirtual_ipaddress {{\n192.0.2.30/24\n}}\n\
         track_script {{\nalive\n}}\ntrack_process {{\nproxy\n}}\ntrack_file {{\nweight\n}}\n\
         notify_master /bin/true\n}}\n\
         virtual_server 192.0.2.10 80 {{\nprotocol TCP\n{}\nreal_server 10.0.0.5 80 {{\nweight 3\n\
         {real_server_line}\n{check}\n}}\n\
         real_server 10.0.0.6 80 {{\nTCP_CHECK {{\n}}\n}}\n}}\n",
        line_in("global"),
        line_in("root"),
        line_in("script"),
        line_in("process"),
        line_in("file"),
        line_in("sync"),
        line_in("vrrp"),
        "",
        line_in("virtual"),
    )
}

fn is_checker(line: &str) -> bool {
    let keyword = line.split(' ').next().unwrap_or_default();
    keyword.ends_with("_CHECK") || keyword.ends_with("_GET")
}

/// Returns the class of a line, based on its notes and on whether the output differs without it.
fn class_of(with: &Imported, without: &Imported, line: &str) -> &'static str {
    let is_single_line = !line.contains(" ; ");
    let line = line.split(" ; ").next().unwrap_or(line);
    let has_new = |notes: &[String], others: &[String]| {
        let first = line.split([';', '{']).next().unwrap_or(line).trim();
        let others: BTreeSet<&str> = others.iter().map(|note| after_number(note)).collect();
        let mut new_notes = notes.iter().map(|note| after_number(note));
        new_notes.any(|note| note.starts_with(first) && !others.contains(note))
    };
    let is_lost = has_new(&with.losses, &without.losses);
    let is_noted = has_new(&with.notes, &without.notes);
    match (is_lost, is_noted, with.toml == without.toml) {
        (true, ..) => "lost",
        // If the case has several lines, the other lines may change the output.
        (false, true, false) if is_single_line => "carried",
        (false, true, _) => "noted",
        (false, false, false) => "carried",
        (false, false, true) => "default",
    }
}

/// Returns a note without `line 7: `.
fn after_number(note: &str) -> &str {
    note.split_once(": ").map_or(note, |(_, text)| text)
}

/// Removes comments from the output, because they repeat lost lines.
fn without_comments(mut imported: Imported) -> Imported {
    let lines = imported.toml.lines().filter(|line| !line.starts_with('#'));
    imported.toml = lines.collect::<Vec<_>>().join("\n");
    imported
}

fn assert_classes(list: &'static str, import: impl Fn(&str, &str) -> Imported) {
    let mut mismatches = Vec::new();
    for case in parse_cases(list) {
        let with = import(case.block, case.line);
        let parsed = weir_config::parse(&with.toml, &weir_config::Host::default());
        assert!(parsed.is_ok(), "{}: {parsed:?}\n{}", case.line, with.toml);
        let (with, without) = (
            without_comments(with),
            without_comments(import(case.block, "")),
        );
        let class = class_of(&with, &without, case.line);
        let expected = match case.class {
            "remark" | "inert" => "noted",
            other => other,
        };
        if class != expected {
            mismatches.push(format!(
                "{} {}: {class}, not {}: {:?}",
                case.block, case.line, case.class, with.notes
            ));
        }
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}

/// Asserts that the list has a case for every keyword in its block.
fn assert_complete(list: &'static str, keywords: &str) {
    let known_cases: BTreeSet<(&str, &str)> = parse_cases(list)
        .iter()
        .map(|case| {
            let end = case.line.find([' ', '=']).unwrap_or(case.line.len());
            (case.block, &case.line[..end])
        })
        .collect();
    let mut block = "";
    let mut missing = Vec::new();
    for word in keywords.split_whitespace() {
        if let Some(name) = word.strip_suffix(':') {
            block = name;
        } else if !known_cases.contains(&(block, word)) {
            missing.push(format!("{block} {word}"));
        }
    }
    assert!(missing.is_empty(), "keywords without a case: {missing:?}");
}

const KEEPALIVED: &str = include_str!("keywords/keepalived.txt");
const LDIRECTORD: &str = include_str!("keywords/ldirectord.txt");

fn import_keepalived(block: &str, line: &str) -> Imported {
    let line = line
        .replace(" { ", " {\n")
        .replace(" ; ", "\n")
        .replace(" }", "\n}");
    let text = keepalived_file(block, &line);
    keepalived("keepalived.conf", &text, &EmptyEnvironment)
}

fn import_ldirectord(block: &str, line: &str) -> Imported {
    let (global, service_lines) = if block == "global" {
        (line, "")
    } else {
        ("", line)
    };
    let service_lines: String = service_lines
        .split(" ; ")
        .filter(|line| !line.is_empty())
        .fold(String::new(), |text, line| text + "\n    " + line);
    let text = format!(
        "{global}\nvirtual=192.0.2.10:80\n    real=10.0.0.5:80 masq 2\n    protocol=tcp{service_lines}\n"
    );
    ldirectord("ldirectord.cf", &text, &EmptyEnvironment)
}

#[test]
fn keepalived_keywords_are_imported_as_classified() {
    assert_classes(KEEPALIVED, import_keepalived);
}

#[test]
fn ldirectord_directives_are_imported_as_classified() {
    assert_classes(LDIRECTORD, import_ldirectord);
}

#[test]
fn list_contains_every_keepalived_keyword() {
    assert_complete(KEEPALIVED, include_str!("keywords/keepalived.list"));
}

#[test]
fn list_contains_every_ldirectord_directive() {
    assert_complete(LDIRECTORD, include_str!("keywords/ldirectord.list"));
}
