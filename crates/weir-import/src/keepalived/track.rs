//! Converts objects that VRRP instances track: `vrrp_script`, `vrrp_track_process`, `track_file`.

use super::Globals;
use super::field::{self, Located};
use super::tree::{Node, parse_command};
use crate::document::Entry;
use crate::note::{Notes, Position};
use crate::time;

/// A tracked object.
#[derive(Clone, Debug)]
pub(super) struct TrackedObject {
    pub(super) position: Position,
    /// Keys of an entry of `track`.
    pub(super) entries: Vec<Entry>,
    /// The default weight.
    pub(super) weight: Located<i64>,
}

/// Parses a weight from -254 to 254; a following word such as `reverse` is not imported.
pub(super) fn parse_weight(node: &Node, index: usize, notes: &mut Notes) -> Located<i64> {
    let Some(word) = node.word(index) else {
        notes.remark(
            node.position,
            "not imported: the weight is missing, and keepalived ignores it",
        );
        return None;
    };
    let value = word
        .parse::<i64>()
        .ok()
        .filter(|weight| (-254..=254).contains(weight));
    let Some(value) = value else {
        notes.add(
            node.position,
            format!("not imported: {word} is not a weight from -254 to 254"),
        );
        return None;
    };
    if let Some(word) = node.word(index + 1) {
        notes.add(
            node.position,
            format!("\"{word}\" and any following arguments are not imported: `track` does not support them"),
        );
    }
    Some((value, node.position))
}

/// Returns the entry for the weight of a file, by which keepalived multiplies the file's number: `penalty`, `bonus`, or
/// `fault` for weight 0. keepalived's default is 1.
pub(super) fn file_weight_entry(weight: Located<i64>) -> Entry {
    match weight {
        Some((0, position)) => Entry::new("fault", true, position),
        Some(_) => weight_entry(weight).unwrap_or_else(default_file_weight),
        None => default_file_weight(),
    }
}

fn default_file_weight() -> Entry {
    Entry::implied("bonus", 1_u64)
}

/// Returns `penalty` or `bonus`, or `None` for weight 0: a failure then puts the instance into the fault state.
pub(super) fn weight_entry(weight: Located<i64>) -> Option<Entry> {
    let (weight, position) = weight.filter(|(weight, _)| *weight != 0)?;
    let key = if weight.is_negative() {
        "penalty"
    } else {
        "bonus"
    };
    Some(Entry::new(key, weight.unsigned_abs(), position))
}

/// Reads a tracked object into `globals`.
pub(super) fn read(globals: &mut Globals, node: &Node, notes: &mut Notes) {
    let Some(name) = node.word(1) else {
        return field::reject(notes, node, "a name");
    };
    let mut object = TrackedObject {
        position: node.position,
        entries: Vec::new(),
        weight: None,
    };
    let kind = match node.keyword() {
        "vrrp_script" => "script",
        "vrrp_track_process" => "process",
        _ => "file",
    };
    for inner in node.inner() {
        match (kind, inner.keyword()) {
            (_, "weight") => object.weight = parse_weight(inner, 1, notes),
            ("script", "script" | "interval" | "timeout" | "rise" | "fall" | "user") => {
                if let Some(entry) = script_key(inner, notes) {
                    object.entries.retain(|other| other.key != entry.key);
                    object.entries.push(entry);
                }
            }
            ("process", "process") => {
                if let Some((name, position)) = field::parse_word(notes, inner, "a process") {
                    let entry = Entry::new("process", name, position);
                    add_once(&mut object, entry.essential(), notes);
                }
            }
            ("file", "file") => {
                if let Some((path, position)) = field::parse_word(notes, inner, "a path") {
                    let entry = Entry::new("file", path, position);
                    add_once(&mut object, entry.essential(), notes);
                }
            }
            ("process", "quorum") if inner.word(1) == Some("1") => {
                notes.remark(inner.position, "this is keepalived's default");
            }
            ("script", "init_fail")
            | (
                "process",
                "param_match" | "quorum" | "quorum_max" | "delay" | "terminate_delay"
                | "fork_delay" | "full_command",
            )
            | ("file", "init_file") => inner.reject(notes, "`track` has no such key"),
            (..) => inner.ignore(notes, "keepalived has no such keyword here"),
        }
    }
    if !object.entries.iter().any(|entry| entry.essential) {
        return node.reject(notes, &format!("the {kind} is missing"));
    }
    if kind == "script" && !object.entries.iter().any(|entry| entry.key == "user") {
        object.entries.push(default_user(globals));
    }
    // The required key comes first.
    object.entries.sort_by_key(|entry| !entry.essential);
    globals.tracked.insert(name.to_owned(), object);
}

/// Adds the tracked process or file; keepalived uses only the first of several.
fn add_once(object: &mut TrackedObject, entry: Entry, notes: &mut Notes) {
    if !object.entries.iter().any(|other| other.key == entry.key) {
        object.entries.push(entry);
    } else if let Some(position) = entry.item.position {
        notes.remark(
            position,
            "not imported: keepalived uses only the first line of this kind",
        );
    }
}

/// Returns the user for a script that does not set one.
fn default_user(globals: &Globals) -> Entry {
    match &globals.script_user {
        Some((user, position)) => Entry::new("user", user.as_str(), *position),
        // keepalived uses `keepalived_script` if that user exists.
        None => Entry::implied("user", "root"),
    }
}

/// Converts a line of a script to a key.
fn script_key(node: &Node, notes: &mut Notes) -> Option<Entry> {
    let count = |key, notes: &mut Notes| {
        let (count, position) = field::parse_number(notes, node, 1, i32::MAX as u64)?;
        Some(Entry::new(key, count, position))
    };
    let timer = |key, notes: &mut Notes| {
        let (millis, position) = field::parse_seconds(notes, node, false)?;
        Some(Entry::new(key, time::format_millis(millis), position))
    };
    let entry = match node.keyword() {
        "interval" => return timer("interval", notes),
        "timeout" => return timer("timeout", notes),
        "rise" => return count("rise", notes),
        "fall" => return count("fall", notes),
        "user" => {
            let user = node.word(1);
            user.map(|user| Entry::new("user", user, node.position))
                .ok_or("a user")
        }
        _ => {
            let words = parse_command(&node.arguments).filter(|words| !words.is_empty());
            words
                .map(|words| Entry::new("script", words, node.position).essential())
                .ok_or("a program")
        }
    };
    entry
        .map_err(|expected| field::reject(notes, node, expected))
        .ok()
}
