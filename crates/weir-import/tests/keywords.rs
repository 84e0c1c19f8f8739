//! Classification of every keyword of keepalived.conf and every directive of ldirectord.cf: a list contains all of
//! them, and what the importer does with each.

use std::collections::BTreeSet;

use weir_import::{EmptyEnvironment, Imported, keepalived, ldirectord};

/// A line of a list: a line of a configuration file, its block, and its class.
struct Case {
    block: &'static str,
    class: &'static str,
    line: &'static str,
}

fn cases(list: &'static str) -> Vec<Case> {
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
fn file_of_keepalived(block: &str, line: &str) -> String {
    let at = |name: &str| if name == block { line } else { "" };
    let check = match block {
        "http" => format!("SSL_GET {{\nurl {{\npath /\n}}\n{line}\n}}"),
        "url" => format!("HTTP_GET {{\nurl {{\npath /a\n{line}\n}}\n}}"),
        "body" => format!("HTTP_GET {{\nurl {{\npath /a\nregex up\n{line}\n}}\n}}"),
        "smtp" => format!("SMTP_CHECK {{\n{line}\n}}"),
        "dns" => format!("DNS_CHECK {{\nname a.example\n{line}\n}}"),
        "udp" => format!("UDP_CHECK {{\npayload 00\nrequire_reply 01\n{line}\n}}"),
        "misc" => format!("MISC_CHECK {{\nmisc_path /bin/true\n{line}\n}}"),
        "real" if is_checker(line) => line.to_owned(),
        _ => format!("TCP_CHECK {{\n{}\n}}", at("check")),
    };
    let hmac = match block {
        "hmac" => format!("auth_hmac {{\nkey 1 0123456789abcdef0123456789abcdef\n{line}\n}}"),
        _ => String::new(),
    };
    let real = if is_checker(at("real")) {
        ""
    } else {
        at("real")
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
         virtual_server 192.0.2.10 80 {{\nprotocol TCP\n{}\nreal_server 10.0.0.5 80 {{\nweight 3\n{real}\n{check}\n}}\n\
         real_server 10.0.0.6 80 {{\nTCP_CHECK {{\n}}\n}}\n}}\n",
        at("global"),
        at("root"),
        at("script"),
        at("process"),
        at("file"),
        at("sync"),
        at("vrrp"),
        "",
        at("virtual"),
    )
}

fn is_checker(line: &str) -> bool {
    let keyword = line.split(' ').next().unwrap_or_default();
    keyword.ends_with("_CHECK") || keyword.ends_with("_GET")
}

/// Returns the class of a line, from its notes and whether the output differs without it.
fn class_of(with: &Imported, without: &Imported, line: &str) -> &'static str {
    let is_single = !line.contains(" ; ");
    let line = line.split(" ; ").next().unwrap_or(line);
    let has_new = |notes: &[String], others: &[String]| {
        let first = line.split([';', '{']).next().unwrap_or(line).trim();
        let others: BTreeSet<&str> = others.iter().map(|note| after_number(note)).collect();
        let mut new = notes.iter().map(|note| after_number(note));
        new.any(|note| note.starts_with(first) && !others.contains(note))
    };
    let is_lost = has_new(&with.losses, &without.losses);
    let is_noted = has_new(&with.notes, &without.notes);
    match (is_lost, is_noted, with.toml == without.toml) {
        (true, ..) => "lost",
        // With several lines, the others may change the output.
        (false, true, false) if is_single => "carried",
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
    let mut wrong = Vec::new();
    for case in cases(list) {
        let with = import(case.block, case.line);
        let parsed = weir_config::parse(&with.toml, &weir_config::Host::default());
        assert!(parsed.is_ok(), "{}: {parsed:?}\n{}", case.line, with.toml);
        let (with, without) = (
            without_comments(with),
            without_comments(import(case.block, "")),
        );
        let found = class_of(&with, &without, case.line);
        let wanted = match case.class {
            "remark" | "inert" => "noted",
            class => class,
        };
        if found != wanted {
            wrong.push(format!(
                "{} {}: {found}, not {}: {:?}",
                case.block, case.line, case.class, with.notes
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Asserts that the list has a case for every keyword in its block.
fn assert_complete(list: &'static str, keywords: &str) {
    let known: BTreeSet<(&str, &str)> = cases(list)
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
        } else if !known.contains(&(block, word)) {
            missing.push(format!("{block} {word}"));
        }
    }
    assert!(missing.is_empty(), "without a case: {missing:?}");
}

const KEEPALIVED: &str = include_str!("keywords/keepalived.txt");
const LDIRECTORD: &str = include_str!("keywords/ldirectord.txt");

fn of_keepalived(block: &str, line: &str) -> Imported {
    let line = line
        .replace(" { ", " {\n")
        .replace(" ; ", "\n")
        .replace(" }", "\n}");
    let text = file_of_keepalived(block, &line);
    keepalived("keepalived.conf", &text, &EmptyEnvironment)
}

fn of_ldirectord(block: &str, line: &str) -> Imported {
    let (global, own) = if block == "global" {
        (line, "")
    } else {
        ("", line)
    };
    let own: String = own
        .split(" ; ")
        .filter(|line| !line.is_empty())
        .fold(String::new(), |text, line| text + "\n    " + line);
    let text = format!(
        "{global}\nvirtual=192.0.2.10:80\n    real=10.0.0.5:80 masq 2\n    protocol=tcp{own}\n"
    );
    ldirectord("ldirectord.cf", &text, &EmptyEnvironment)
}

#[test]
fn keywords_of_keepalived_are_in_their_class() {
    assert_classes(KEEPALIVED, of_keepalived);
}

#[test]
fn directives_of_ldirectord_are_in_their_class() {
    assert_classes(LDIRECTORD, of_ldirectord);
}

#[test]
fn no_keyword_of_keepalived_is_missing() {
    assert_complete(KEEPALIVED, include_str!("keywords/keepalived.list"));
}

#[test]
fn no_directive_of_ldirectord_is_missing() {
    assert_complete(LDIRECTORD, include_str!("keywords/ldirectord.list"));
}
