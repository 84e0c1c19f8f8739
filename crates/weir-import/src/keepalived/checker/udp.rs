//! Converts `UDP_CHECK`: the bytes to send and the expected reply.

use super::super::field::{self, Located};
use super::super::tree::Node;
use super::{Checker, note_unknown_keyword};
use crate::document::Entry;
use crate::note::Notes;
use crate::probe::Probe;

/// Converts a `UDP_CHECK` to a `udp` check. Returns `None` if it requires no reply.
pub(super) fn check(
    checker: &Checker<'_>,
    default_retries: u64,
    notes: &mut Notes,
) -> Option<Probe> {
    let mut payload: Located<String> = None;
    let mut reply: Option<&Node> = None;
    for node in &checker.specific_lines {
        match node.keyword() {
            "payload" => payload = parse_hex_bytes(node, false, notes),
            "require_reply" => reply = Some(node),
            "min_reply_length" | "max_reply_length" => {
                if field::parse_number(notes, node, 0, 65_535).is_some() {
                    notes.add(
                        node.position,
                        "not imported: `expect` does not check the length of a reply",
                    );
                }
            }
            _ => note_unknown_keyword(node, "UDP_CHECK", notes),
        }
    }
    let Some(reply) = reply else {
        let reason = "without require_reply, servers pass without a reply; a `udp` check in Weir requires one";
        checker.node.reject(notes, reason);
        return None;
    };
    let mut probe = checker.probe("udp", default_retries, notes);
    match payload {
        Some((payload, position)) => probe.push(Entry::new("payload", payload, position)),
        None => {
            probe.push(Entry::implied("payload", "00"));
            notes.add(
                checker.node.position,
                "keepalived sends random bytes; Weir sends one zero byte",
            );
        }
    }
    if reply.word(1).is_some()
        && let Some((bytes, position)) = parse_hex_bytes(reply, true, notes)
    {
        probe.push(Entry::new(
            "expect",
            vec![Entry::new("bytes", bytes, position)],
            position,
        ));
    }
    Some(probe)
}

/// Parses hexadecimal digits; a single digit is padded with a leading zero. With `wildcards`, a byte with an `x` digit
/// becomes a wildcard.
fn parse_hex_bytes(node: &Node, wildcards: bool, notes: &mut Notes) -> Located<String> {
    field::note_extra_arguments(notes, node, 1);
    let text = node.word(1).unwrap_or("");
    let is_wildcard = |c: &char| wildcards && matches!(c, 'x' | 'X');
    let mut hex_bytes = Vec::new();
    let mut has_half_wildcard = false;
    let mut is_valid = true;
    for word in text.split_whitespace() {
        for pair in word.chars().collect::<Vec<char>>().chunks(2) {
            let wildcard_count = pair.iter().filter(|c| is_wildcard(c)).count();
            is_valid &= pair.iter().all(|c| c.is_ascii_hexdigit() || is_wildcard(c));
            has_half_wildcard |= wildcard_count == 1;
            hex_bytes.push(match (wildcard_count, pair) {
                (0, [digit]) => format!("0{digit}"),
                (0, pair) => pair.iter().collect(),
                _ => "xx".to_owned(),
            });
        }
    }
    if hex_bytes.is_empty() || !is_valid {
        field::reject(notes, node, "hexadecimal bytes");
        return None;
    }
    if has_half_wildcard {
        let reason = "a byte with one wildcard digit is imported as `xx`, which matches any byte";
        notes.add(node.position, reason);
    }
    Some((hex_bytes.join(" "), node.position))
}
