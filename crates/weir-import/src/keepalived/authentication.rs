//! Converts `authentication` and `auth_hmac` of a `vrrp_instance`.

use super::field;
use super::tree::Node;
use crate::document::{Entry, Item};
use crate::note::Notes;
use crate::time;

/// Maximum length of a password, in bytes: keepalived sends only the first 8.
const PASSWORD_MAX_BYTES: usize = 8;

/// Converts `authentication { auth_type PASS auth_pass P }`.
pub(super) fn password_entry(node: &Node, notes: &mut Notes) -> Option<Entry> {
    let (mut kind, mut password) = (None, None);
    for line in node.inner() {
        match line.keyword() {
            "auth_type" => kind = field::parse_word(notes, line, "PASS or AH"),
            "auth_pass" => password = field::parse_word(notes, line, "a password"),
            _ => line.reject(notes, "keepalived has no such keyword here"),
        }
    }
    let is_simple = kind
        .as_ref()
        .is_some_and(|(kind, _)| ["PASS", "SIMPLE"].contains(&kind.as_str()));
    let Some((password, position)) = password.filter(|_| is_simple) else {
        let reason = "Weir supports only auth_type PASS with auth_pass; RFC 3768 removed AH";
        node.reject(notes, reason);
        return None;
    };
    if let Some((_, position)) = kind {
        notes.mark_covered(position);
    }
    let mut end = password.len().min(PASSWORD_MAX_BYTES);
    while !password.is_char_boundary(end) {
        end -= 1;
    }
    if end < password.len() {
        notes.remark(
            position,
            "the password was truncated to 8 bytes, as in keepalived",
        );
    }
    Some(Entry::new("password", &password[..end], position))
}

/// Converts `auth_hmac { key ID KEY … }`.
pub(super) fn hmac_entry(node: &Node, notes: &mut Notes) -> Option<Entry> {
    let mut keys: Vec<Item> = Vec::new();
    let mut entries: Vec<Entry> = Vec::new();
    for line in node.inner() {
        match line.keyword() {
            "key" => {
                let id = line
                    .word(1)
                    .and_then(|word| field::parse_unsigned(word, 0, 255));
                let (Some(id), Some(key)) = (id, line.word(2)) else {
                    field::reject(notes, line, "an ID with a key");
                    continue;
                };
                let id = Entry::new("id", id, line.position);
                let key = match key.strip_prefix("file:") {
                    Some(path) => Entry::new(
                        "secret",
                        vec![Entry::new("file", path, line.position)],
                        line.position,
                    ),
                    None => Entry::new("secret", key, line.position),
                };
                keys.push(Item::new(vec![id, key], Some(line.position)));
            }
            "active_key" => {
                let id = field::parse_number(notes, line, 0, 255);
                entries.extend(id.map(|(id, position)| Entry::new("active", id, position)));
            }
            "mode" => {
                let mode = field::parse_word(notes, line, "a mode");
                entries.extend(mode.map(|(mode, position)| Entry::new("mode", mode, position)));
            }
            "time_window" => {
                let time = field::parse_seconds(notes, line, false);
                entries.extend(time.map(|(millis, position)| {
                    Entry::new("window", time::format_millis(millis), position)
                }));
            }
            "anti_replay" if line.word(1) == Some("time") => notes.mark_covered(line.position),
            "anti_replay" => line.reject(notes, "Weir supports only `anti_replay time`"),
            _ => line.reject(notes, "keepalived has no such keyword here"),
        }
    }
    if keys.is_empty() {
        field::reject(notes, node, "a key");
        return None;
    }
    entries.insert(0, Entry::new("keys", keys, node.position).essential());
    Some(Entry::new("hmac", entries, node.position))
}
