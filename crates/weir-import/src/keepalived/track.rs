//! What VRRP instances may track: `vrrp_script`, `vrrp_track_process`, `track_file`.

use super::Globals;
use super::field::{self, Of};
use super::tree::{Node, command};
use crate::document::Entry;
use crate::note::{Notes, Place};
use crate::time;

/// Something that is tracked, by its name.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) place: Place,
    /// Keys of an entry of `track`.
    pub(super) entries: Vec<Entry>,
    /// What a user that names no weight has.
    pub(super) weight: Of<i64>,
}

/// A weight with its sign, within bounds; `reverse` is refused.
pub(super) fn weight(node: &Node, at: usize, notes: &mut Notes) -> Of<i64> {
    let word = node.word(at)?;
    let value = word
        .parse::<i64>()
        .ok()
        .filter(|weight| weight.abs() <= 254);
    let Some(value) = value else {
        notes.say(node.place, format!("not carried over: {word} is no weight"));
        return None;
    };
    if let Some(word) = node.word(at + 1) {
        notes.say(
            node.place,
            format!("not carried over from \"{word}\" on: `track` has no such word"),
        );
    }
    Some((value, node.place))
}

/// `penalty` or `bonus`; none for weight 0, which is a fault.
pub(super) fn weighed(weight: Of<i64>) -> Option<Entry> {
    let (weight, place) = weight.filter(|(weight, _)| *weight != 0)?;
    let key = if weight < 0 { "penalty" } else { "bonus" };
    Some(Entry::new(key, weight.unsigned_abs(), place))
}

pub(super) fn read(globals: &mut Globals, node: &Node, notes: &mut Notes) {
    let Some(name) = node.word(1) else {
        return field::refuse(notes, node, "a name");
    };
    let mut tracked = Tracked {
        place: node.place,
        entries: Vec::new(),
        weight: None,
    };
    let main = match node.keyword() {
        "vrrp_script" => "script",
        "vrrp_track_process" => "process",
        _ => "file",
    };
    for inner in node.inner() {
        match (main, inner.keyword()) {
            (_, "weight") => tracked.weight = weight(inner, 1, notes),
            ("script", "script" | "interval" | "timeout" | "rise" | "fall" | "user") => {
                tracked.entries.extend(of_script(inner, notes));
            }
            ("process", "process") => {
                if let Some(process) = inner.word(1) {
                    tracked
                        .entries
                        .push(Entry::new("process", process, inner.place).essential());
                    field::no_more(notes, inner, 1);
                }
            }
            ("file", "file") => {
                if let Some((path, place)) = field::word(notes, inner, "a path") {
                    tracked
                        .entries
                        .push(Entry::new("file", path, place).essential());
                }
            }
            ("script", "init_fail")
            | (
                "process",
                "param_match" | "quorum" | "quorum_max" | "delay" | "terminate_delay"
                | "fork_delay" | "full_command",
            )
            | ("file", "init_file") => inner.refuse(notes, "`track` has no such key"),
            (..) => inner.refuse(notes, "keepalived knows no such keyword here"),
        }
    }
    if !tracked.entries.iter().any(|entry| entry.essential) {
        return node.refuse(notes, &format!("it names no {main}"));
    }
    // The one that says what it is comes first.
    tracked.entries.sort_by_key(|entry| !entry.essential);
    globals.tracked.insert(name.to_owned(), tracked);
}

/// A key of a script.
fn of_script(node: &Node, notes: &mut Notes) -> Option<Entry> {
    let count = |key, notes: &mut Notes| {
        let (count, place) = field::number(notes, node, 1, i32::MAX as u64)?;
        Some(Entry::new(key, count, place))
    };
    let timer = |key, notes: &mut Notes| {
        let (millis, place) = field::timer(notes, node, false)?;
        Some(Entry::new(key, time::show(millis), place))
    };
    let entry = match node.keyword() {
        "interval" => return timer("interval", notes),
        "timeout" => return timer("timeout", notes),
        "rise" => return count("rise", notes),
        "fall" => return count("fall", notes),
        "user" => {
            let user = node.word(1);
            user.map(|user| Entry::new("user", user, node.place))
                .ok_or("an account")
        }
        _ => {
            let words = command(&node.rest).filter(|words| !words.is_empty());
            words
                .map(|words| Entry::new("script", words, node.place).essential())
                .ok_or("a program")
        }
    };
    entry
        .map_err(|expected| field::refuse(notes, node, expected))
        .ok()
}
