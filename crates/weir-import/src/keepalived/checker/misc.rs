//! `MISC_CHECK`: a program.

use super::super::Globals;
use super::super::field::{self, Of};
use super::super::tree::{Node, command};
use super::{Aim, Checker, DELAY_LOOP_MS, unknown};
use crate::document::Entry;
use crate::note::Notes;
use crate::probe::Probe;

pub(super) fn check(
    globals: &Globals,
    checker: &Checker<'_>,
    retries: u64,
    notes: &mut Notes,
) -> Option<Probe> {
    let mut program: Option<(Vec<String>, &Node)> = None;
    let mut timeout: Of<u64> = None;
    let mut dynamic: Of<bool> = None;
    let mut user = globals.script_user.clone();
    for node in &checker.rest {
        match node.keyword() {
            "misc_path" => match command(&node.rest).filter(|words| !words.is_empty()) {
                Some(words) => program = Some((words, node)),
                None => field::refuse(notes, node, "a program"),
            },
            "misc_timeout" => timeout = field::timer(notes, node, false),
            "misc_dynamic" => dynamic = field::flag(notes, node),
            "user" => {
                user = node.word(1).map(|word| (word.to_owned(), node.place));
                if let Some(group) = node.word(2) {
                    let why =
                        format!("group {group} is not carried over: a script has its account's");
                    notes.say(node.place, why);
                }
            }
            _ => unknown(node, "MISC_CHECK", notes),
        }
    }
    let Some((words, node)) = program else {
        checker
            .node
            .refuse(notes, "keepalived refuses a MISC_CHECK without `misc_path`");
        return None;
    };
    let shell =
        |word: &String| word.contains(['|', '>', '<', ';', '&', '`']) || word.contains("$(");
    if words.iter().any(shell) {
        notes.say(
            node.place,
            "Weir runs programs without a shell: what a shell would read here is an argument",
        );
    }
    let mut settings = checker.settings.clone();
    settings.connect_timeout = timeout
        .or(settings.delay_loop)
        .or(Some((DELAY_LOOP_MS, checker.node.place)));
    let checker = Checker {
        settings,
        aim: Aim::default(),
        rest: Vec::new(),
        node: checker.node,
    };
    let mut probe = checker.probe("script", retries, notes);
    probe.push(Entry::new("command", words, node.place).essential());
    match user {
        Some((user, place)) => probe.push(Entry::new("user", user, place)),
        None => notes.say(
            node.place,
            "it runs as nobody; keepalived ran it as keepalived_script or root",
        ),
    }
    if let Some((true, place)) = dynamic {
        probe.push(Entry::new("dynamic", true, place));
    }
    Some(probe)
}
