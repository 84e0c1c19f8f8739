//! `UDP_CHECK`: octets that are sent, and those that must come back.

use super::super::field::{self, Of};
use super::super::tree::Node;
use super::{Checker, unknown};
use crate::document::Entry;
use crate::note::Notes;
use crate::probe::Probe;

pub(super) fn check(checker: &Checker<'_>, retries: u64, notes: &mut Notes) -> Option<Probe> {
    let mut payload: Of<String> = None;
    let mut reply: Option<&Node> = None;
    for node in &checker.rest {
        match node.keyword() {
            "payload" => payload = octets(node, false, notes),
            "require_reply" => reply = Some(node),
            "min_reply_length" | "max_reply_length" => {
                if field::number(notes, node, 0, 65_535).is_some() {
                    notes.say(
                        node.place,
                        "not carried over: `expect` says nothing of the length",
                    );
                }
            }
            _ => unknown(node, "UDP_CHECK", notes),
        }
    }
    let Some(reply) = reply else {
        let why = "without require_reply silence passes, and a `udp` check of Weir wants an answer";
        checker.node.refuse(notes, why);
        return None;
    };
    let mut probe = checker.probe("udp", retries, notes);
    match payload {
        Some((payload, place)) => probe.push(Entry::new("payload", payload, place)),
        None => {
            probe.push(Entry::implied("payload", "00"));
            notes.say(
                checker.node.place,
                "keepalived sends octets by chance; here it is one zero",
            );
        }
    }
    if reply.word(1).is_some()
        && let Some((bytes, place)) = octets(reply, true, notes)
    {
        probe.push(Entry::new(
            "expect",
            vec![Entry::new("bytes", bytes, place)],
            place,
        ));
    }
    Some(probe)
}

/// Hexadecimal digits, a lone one being half an octet with a zero before it; with `wild`, an octet that is half `x` is left
/// open wholly.
fn octets(node: &Node, wild: bool, notes: &mut Notes) -> Of<String> {
    field::no_more(notes, node, 1);
    let text = node.word(1).unwrap_or("");
    let is_wild = |c: &char| wild && matches!(c, 'x' | 'X');
    let mut octets = Vec::new();
    let mut halves = false;
    let mut valid = true;
    for word in text.split_whitespace() {
        for pair in word.chars().collect::<Vec<char>>().chunks(2) {
            let open = pair.iter().filter(|c| is_wild(c)).count();
            valid &= pair.iter().all(|c| c.is_ascii_hexdigit() || is_wild(c));
            halves |= open == 1;
            octets.push(match (open, pair) {
                (0, [low]) => format!("0{low}"),
                (0, pair) => pair.iter().collect(),
                _ => "xx".to_owned(),
            });
        }
    }
    if octets.is_empty() || !valid {
        field::refuse(notes, node, "octets in hexadecimal");
        return None;
    }
    if halves {
        let why = "half octets that must hold are not looked at: `xx` leaves all of one open";
        notes.say(node.place, why);
    }
    Some((octets.join(" "), node.place))
}
