//! Parses arguments of directives as keepalived does.
//!
//! For an invalid argument, the functions return `None`, and those with a parameter `notes` add a note.

use super::tree::Node;
use crate::note::{Notes, Position};
use crate::time;

/// A value and its position, or `None` if it is not set or is invalid.
pub(super) type Located<T> = Option<(T, Position)>;

/// Adds a remark that the argument is invalid or missing, and that keepalived ignores the line.
fn note_invalid_argument(notes: &mut Notes, node: &Node, expected: &str) {
    let reason = match node.word(1) {
        Some(word) => {
            format!("not imported: {word} is not {expected}, and keepalived ignores the line")
        }
        None => format!("not imported: {expected} is missing, and keepalived ignores the line"),
    };
    notes.remark(node.position, reason);
}

/// Adds a note if there are more than `max` words after the keyword: keepalived ignores them.
pub(super) fn note_extra_words(notes: &mut Notes, node: &Node, max: usize) {
    if let Some(word) = node.word(max + 1) {
        let reason = format!(
            "\"{word}\" and any following arguments are not imported: keepalived ignores them"
        );
        notes.remark(node.position, reason);
    }
}

/// Adds the note of [`note_extra_words`], and a note for each line of a block, which the directive does not take.
pub(super) fn note_extra_arguments(notes: &mut Notes, node: &Node, max: usize) {
    note_extra_words(notes, node, max);
    for inner in node.inner() {
        inner.reject(notes, "the directive does not take a block");
    }
}

/// Returns the port after an address: 0 if it is absent, `None` if it is invalid.
pub(super) fn parse_port(node: &Node) -> Option<u16> {
    let word = node.word(2).unwrap_or("0");
    u16::try_from(parse_unsigned(word, 0, 65_535)?).ok()
}

/// Parses an integer within bounds.
pub(super) fn parse_number(notes: &mut Notes, node: &Node, min: u64, max: u64) -> Located<u64> {
    note_extra_arguments(notes, node, 1);
    let value = node.word(1).and_then(|word| parse_unsigned(word, min, max));
    match value {
        Some(value) => Some((value, node.position)),
        None => {
            note_invalid_argument(notes, node, &format!("a number from {min} to {max}"));
            None
        }
    }
}

/// Parses an unsigned integer within bounds.
pub(super) fn parse_unsigned(word: &str, min: u64, max: u64) -> Option<u64> {
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let value = word.parse().ok().filter(|_| is_number)?;
    (min..=max).contains(&value).then_some(value)
}

/// Parses decimal seconds, and returns milliseconds.
pub(super) fn parse_seconds(notes: &mut Notes, node: &Node, allow_zero: bool) -> Located<u64> {
    note_extra_arguments(notes, node, 1);
    let value = node.word(1).and_then(time::parse_decimal_seconds);
    match value.filter(|millis| allow_zero || *millis > 0) {
        Some(value) => Some((value, node.position)),
        None => {
            note_invalid_argument(notes, node, "a time in seconds");
            None
        }
    }
}

/// Parses `on`, `off` and synonyms; without an argument, the result is true.
pub(super) fn parse_flag(notes: &mut Notes, node: &Node) -> Located<bool> {
    note_extra_arguments(notes, node, 1);
    match node.word(1) {
        None | Some("on" | "true" | "yes") => Some((true, node.position)),
        Some("off" | "false" | "no") => Some((false, node.position)),
        Some(_) => {
            note_invalid_argument(notes, node, "on or off");
            None
        }
    }
}

/// Parses a single argument; `expected` describes the argument in the note if it is missing.
pub(super) fn parse_word(notes: &mut Notes, node: &Node, expected: &str) -> Located<String> {
    note_extra_arguments(notes, node, 1);
    match node.word(1) {
        Some(word) => Some((word.to_owned(), node.position)),
        None => {
            note_invalid_argument(notes, node, expected);
            None
        }
    }
}

/// Returns whether Linux allows this interface name (`dev_valid_name`) and the name is not a template's placeholder.
pub(super) fn is_interface(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/:{}<>$%".contains(&byte);
    (1..=15).contains(&word.len()) && word.bytes().all(is_plain)
}

/// Parses an address, such as the argument of `connect_ip`.
pub(super) fn parse_address(notes: &mut Notes, node: &Node) -> Located<std::net::IpAddr> {
    note_extra_arguments(notes, node, 1);
    match node.word(1).and_then(|word| word.parse().ok()) {
        Some(address) => Some((address, node.position)),
        None => {
            note_invalid_argument(notes, node, "an address");
            None
        }
    }
}

/// Adds a note that the argument is not `expected` or is missing, and notes about the lines of the block.
pub(super) fn reject(notes: &mut Notes, node: &Node, expected: &str) {
    note_invalid_argument(notes, node, expected);
    let reason = format!(
        "it is in the block that begins on line {}, which is not imported",
        node.position.line()
    );
    for inner in node.inner() {
        inner.reject(notes, &reason);
    }
}
