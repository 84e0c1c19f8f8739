//! Arguments of directives, read as keepalived reads them; what it refuses is said and has no value.

use super::tree::Node;
use crate::note::{Notes, Place};
use crate::time;

/// A value and the line that says it.
pub(super) type Of<T> = Option<(T, Place)>;

/// keepalived warns of these and goes on without the line.
fn refused(notes: &mut Notes, node: &Node, expected: &str) {
    let why = match node.word(1) {
        Some(word) => {
            format!("not carried over: {word} is not {expected}, and keepalived ignores the line")
        }
        None => format!("not carried over: {expected} is missing, and keepalived ignores the line"),
    };
    notes.say(node.place, why);
}

/// Says so if there are more words than `most` behind the keyword: keepalived takes no notice of them.
pub(super) fn no_further(notes: &mut Notes, node: &Node, most: usize) {
    if let Some(word) = node.word(most + 1) {
        let why = format!("not carried over from \"{word}\" on: keepalived does not read so far");
        notes.say(node.place, why);
    }
}

/// The same where no block may follow either.
pub(super) fn no_more(notes: &mut Notes, node: &Node, most: usize) {
    no_further(notes, node, most);
    for inner in node.inner() {
        inner.refuse(notes, "its line takes no block");
    }
}

/// The port behind an address; 0 = none is written, `None` = it is none.
pub(super) fn port(node: &Node) -> Option<u16> {
    let word = node.word(2).unwrap_or("0");
    u16::try_from(within(word, 0, 65_535)?).ok()
}

/// A whole number within bounds.
pub(super) fn number(notes: &mut Notes, node: &Node, min: u64, max: u64) -> Of<u64> {
    no_more(notes, node, 1);
    let value = node.word(1).and_then(|word| within(word, min, max));
    match value {
        Some(value) => Some((value, node.place)),
        None => {
            refused(notes, node, &format!("a number from {min} to {max}"));
            None
        }
    }
}

/// A whole number within bounds, without a sign.
pub(super) fn within(word: &str, min: u64, max: u64) -> Option<u64> {
    let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let value = word.parse().ok().filter(|_| digits)?;
    (min..=max).contains(&value).then_some(value)
}

/// Decimal seconds, in milliseconds.
pub(super) fn timer(notes: &mut Notes, node: &Node, zero: bool) -> Of<u64> {
    no_more(notes, node, 1);
    let value = node.word(1).and_then(time::decimal_seconds);
    match value.filter(|millis| zero || *millis > 0) {
        Some(value) => Some((value, node.place)),
        None => {
            refused(notes, node, "a time in seconds");
            None
        }
    }
}

/// `on`, `off` and their like; a bare keyword is on.
pub(super) fn flag(notes: &mut Notes, node: &Node) -> Of<bool> {
    no_more(notes, node, 1);
    match node.word(1) {
        None | Some("on" | "true" | "yes") => Some((true, node.place)),
        Some("off" | "false" | "no") => Some((false, node.place)),
        Some(_) => {
            refused(notes, node, "on or off");
            None
        }
    }
}

/// One word.
pub(super) fn word(notes: &mut Notes, node: &Node, what: &str) -> Of<String> {
    no_more(notes, node, 1);
    match node.word(1) {
        Some(word) => Some((word.to_owned(), node.place)),
        None => {
            refused(notes, node, what);
            None
        }
    }
}

/// An address, as `connect_ip` and others have it.
pub(super) fn address(notes: &mut Notes, node: &Node) -> Of<std::net::IpAddr> {
    no_more(notes, node, 1);
    match node.word(1).and_then(|word| word.parse().ok()) {
        Some(address) => Some((address, node.place)),
        None => {
            refused(notes, node, "an address");
            None
        }
    }
}

/// The line is refused for this.
pub(super) fn refuse(notes: &mut Notes, node: &Node, expected: &str) {
    refused(notes, node, expected);
    for inner in node.inner() {
        inner.refuse(notes, "its block is not carried over");
    }
}
