//! Tests that `weir plan` shows every changed key with meaningful values.

use std::hash::{DefaultHasher, Hash, Hasher};

use weir_model::{Change, Desired, Edit, diff};

use super::tests::file_with;
use crate::catalog;
use crate::key::{Key, Kind, Section};
use crate::{Host, parse};

/// Keys whose values are never shown, because they may be credentials or very long.
const KEYS_WITH_HIDDEN_VALUES: &[&str] = &[
    "add_header",
    "add_response_header",
    "body",
    "bytes",
    "command",
    "entries",
    "exchange",
    "headers",
    "payload",
    "send",
    "set_header",
    "set_response_header",
    "users",
];

/// Replaces the example of `listen`, which contains an address that the file's only server cannot serve.
const LISTEN: &str = "listen = [\"192.0.2.10:80\", \"udp/192.0.2.10:53\"]";

/// Keys without a second value: the file has only one object that they can refer to, or they are tables and their keys
/// are tested one by one.
const KEYS_WITHOUT_SECOND_VALUE: &[(&str, &str)] = &[
    ("route", "pool"),
    ("route", "service"),
    ("route", "mirror"),
    ("route", "server"),
    ("route-mirror", "pool"),
    ("forward-auth", "pool"),
    ("files", "pool"),
    ("route-pool", "default"),
    ("route-pool", "map"),
    ("service", "pool"),
    ("route", "x_forwarded"),
    ("service", "x_forwarded"),
];

/// Returns a hash of the content that ignores source positions.
fn content_hash(desired: &Desired) -> u64 {
    let mut hasher = DefaultHasher::new();
    desired.hash(&mut hasher);
    hasher.finish()
}

fn example(key: &Key) -> &'static str {
    match key.name {
        "listen" if key.example.contains('[') => LISTEN,
        _ => key.example,
    }
}

/// Returns lines with variations of a key's value: a different digit, choice or flag, or an additional letter. Some of
/// them are invalid.
fn variations(key: &Key) -> Vec<String> {
    let mut lines = Vec::new();
    let (name, value) = example(key).split_once(" = ").expect("no ` = `");
    let mut add_line = |value: String| lines.push(format!("{name} = {value}"));
    for (offset, digit) in value.char_indices().filter(|(_, c)| c.is_ascii_digit()) {
        for other in ['0', '1', '2', '3'].into_iter().filter(|it| *it != digit) {
            add_line(format!(
                "{}{other}{}",
                &value[..offset],
                &value[offset + 1..]
            ));
        }
    }
    add_line("false".to_owned());
    add_line("true".to_owned());
    for word in value_words(&key.kind) {
        add_line(format!("\"{word}\""));
        add_line(format!("[\"{word}\"]"));
    }
    for (offset, _) in value.match_indices('"') {
        for letter in ["x", "X"] {
            add_line(format!("{}{letter}{}", &value[..offset], &value[offset..]));
        }
    }
    lines
}

fn value_words(kind: &Kind) -> Vec<&'static str> {
    match kind {
        Kind::OneOf(choices) => choices().values,
        Kind::List(item) => value_words(item),
        Kind::Either(first, second) => [value_words(first), value_words(second)].concat(),
        _ => Vec::new(),
    }
}

/// Parses the key, together with the keys that it requires, in a file with a `nat` service, one with a proxy service,
/// and one with a connection limit for the server. Returns `None` for each file in which it is invalid.
fn parse_in_services(section: &Section, line: &str) -> [Option<Desired>; 3] {
    let plain = file_with(section, line);
    let protocol = match line {
        _ if line.starts_with("protocol") => "",
        _ if line.starts_with("client_ip_recursive") => {
            "protocol = \"http\"\ntrusted = [\"10.0.0.0/8\"]\nclient_ip_header = \"X-Real-IP\"\n"
        }
        _ if line.starts_with("client_ip_header") => {
            "protocol = \"http\"\ntrusted = [\"10.0.0.0/8\"]\n"
        }
        _ => "protocol = \"http\"\n",
    };
    let proxied = plain.replace(
        "forward = \"nat\"",
        &format!("forward = \"proxy\"\n{protocol}"),
    );
    let limited = plain.replace("address = ", "max_connections = 500, address = ");
    [plain, proxied, limited].map(|text| Some(parse(&text, &Host::default()).ok()?.desired))
}

fn edits(change: &Change) -> &[Edit] {
    match change {
        Change::Node(edits)
        | Change::Timeouts(edits)
        | Change::Ipvs(edits)
        | Change::Announce(edits)
        | Change::PoolChanged { edits, .. }
        | Change::ServerChanged { edits, .. }
        | Change::ServiceChanged { edits, .. } => edits,
        _ => &[],
    }
}

/// Returns the edits between two configurations that lack meaningful values.
fn invalid_edits(old: &Desired, new: &Desired) -> Vec<String> {
    let changes = diff(old, new);
    if changes.is_empty() {
        return vec!["no change".to_owned()];
    }
    let is_invalid = |edit: &&Edit| {
        let key = edit.key.rsplit('.').next().unwrap_or_default();
        edit.old == edit.new
            || edit.new.is_empty()
            || (edit.old.is_empty() && !KEYS_WITH_HIDDEN_VALUES.contains(&key))
    };
    let edits = changes.iter().flat_map(edits).filter(is_invalid);
    edits.map(ToString::to_string).collect()
}

#[test]
fn every_changed_key_appears_in_diff_with_values() {
    let mut failures: Vec<String> = Vec::new();
    for section in catalog::PAGES {
        // Plans show these sections as a whole, show maps with the routes that use them, and show defaults in other
        // sections.
        let is_shown_as_whole = section.page.starts_with("vrrp");
        if is_shown_as_whole
            || [
                "sync",
                "cluster",
                "cluster-publish",
                "defaults",
                "notify",
                "tracing",
                "map",
            ]
            .contains(&section.page)
        {
            continue;
        }
        for key in section.implemented_keys() {
            let section_key = (section.page, key.name);
            let originals = parse_in_services(section, example(key));
            let mut comparisons = 0;
            for line in variations(key) {
                for pair in originals.iter().zip(&parse_in_services(section, &line)) {
                    let (Some(old), Some(new)) = pair else {
                        continue;
                    };
                    if content_hash(old) == content_hash(new) {
                        continue;
                    }
                    comparisons += 1;
                    let pair = format!("{}: {} to {line}", section.page, example(key));
                    let problems = invalid_edits(old, new).into_iter();
                    failures.extend(problems.map(|problem| format!("{pair}: {problem}")));
                }
            }
            if (comparisons == 0) != KEYS_WITHOUT_SECOND_VALUE.contains(&section_key) {
                failures.push(format!("{section_key:?}: {comparisons} other values"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn changed_header_rules_of_a_route_appear_in_diff() {
    let configuration = |rules: &str| {
        let text = format!(
            "[pool.p]\nservers = [\"10.0.0.5\"]\n\n[service.s]\nlisten = [\"0.0.0.0:80\"]\nforward = \
             \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n\n[[route]]\nservice = \"s\"\npath = \"/a\"\npool = \
             \"p\"\nx_forwarded = {rules}\n"
        );
        let parsed = parse(&text, &Host::default());
        parsed.expect("parse configuration").desired
    };
    let changes = diff(
        &configuration("{ for = \"keep\" }"),
        &configuration("{ for = \"set\", except = [\"10.0.0.0/8\"] }"),
    );
    let listed_edits: Vec<&Edit> = changes.iter().flat_map(edits).collect();
    assert_eq!(listed_edits.len(), 1, "{listed_edits:?}");
    assert!(
        listed_edits[0].key.ends_with("x_forwarded"),
        "{listed_edits:?}"
    );
    assert!(listed_edits[0].old.contains("for keep"), "{listed_edits:?}");
    assert!(listed_edits[0].new.contains("for set"), "{listed_edits:?}");
    assert!(
        listed_edits[0].new.contains("except 10.0.0.0/8"),
        "{listed_edits:?}"
    );
}
