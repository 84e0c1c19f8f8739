//! Converts `MISC_CHECK`, which runs a program.

use super::super::Globals;
use super::super::field::{self, Located};
use super::super::tree::{Node, parse_command};
use super::{Checker, DEFAULT_INTERVAL_MS, Endpoint, note_unknown_keyword};
use crate::document::Entry;
use crate::note::Notes;
use crate::probe::Probe;

/// Converts a `MISC_CHECK` to a `script` check. Returns `None` if it has no program.
pub(super) fn check(
    globals: &Globals,
    checker: &Checker<'_>,
    default_retries: u64,
    notes: &mut Notes,
) -> Option<Probe> {
    let mut program: Option<(Vec<String>, &Node)> = None;
    let mut timeout: Located<u64> = None;
    let mut is_dynamic: Located<bool> = None;
    let mut user = globals.script_user.clone();
    for node in &checker.specific_lines {
        match node.keyword() {
            "misc_path" => match parse_command(&node.arguments).filter(|words| !words.is_empty()) {
                Some(words) => program = Some((words, node)),
                None => field::reject(notes, node, "a program"),
            },
            "misc_timeout" => timeout = field::parse_seconds(notes, node, false),
            "misc_dynamic" => is_dynamic = field::parse_flag(notes, node),
            "user" => {
                user = node.word(1).map(|word| (word.to_owned(), node.position));
                if let Some(group) = node.word(2) {
                    let reason = format!(
                        "group {group} is not imported: a script runs with its user's groups"
                    );
                    notes.add(node.position, reason);
                }
            }
            _ => note_unknown_keyword(node, "MISC_CHECK", notes),
        }
    }
    let Some((words, node)) = program else {
        checker
            .node
            .reject(notes, "keepalived rejects a MISC_CHECK without `misc_path`");
        return None;
    };
    let has_shell_syntax =
        |word: &String| word.contains(['|', '>', '<', ';', '&', '`']) || word.contains("$(");
    if words.iter().any(has_shell_syntax) {
        notes.add(
            node.position,
            "Weir runs programs without a shell: shell syntax is passed as arguments",
        );
    }
    let mut settings = checker.settings.clone();
    settings.connect_timeout = timeout
        .or(settings.delay_loop)
        .or(Some((DEFAULT_INTERVAL_MS, checker.node.position)));
    let checker = Checker {
        settings,
        endpoint: Endpoint::default(),
        specific_lines: Vec::new(),
        node: checker.node,
    };
    let mut probe = checker.probe("script", default_retries, notes);
    probe.push(Entry::new("command", words, node.position).essential());
    match user {
        Some((user, position)) => probe.push(Entry::new("user", user, position)),
        None => {
            notes.remark(
                node.position,
                "the script runs as root; keepalived runs it as keepalived_script if that user exists",
            );
            probe.push(Entry::implied("user", "root"));
        }
    }
    if let Some((true, position)) = is_dynamic {
        probe.push(Entry::new("dynamic", true, position));
    }
    Some(probe)
}
