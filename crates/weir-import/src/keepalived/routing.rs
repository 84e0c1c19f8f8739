//! Converts `virtual_routes` and `virtual_rules` of a `vrrp_instance`.

use super::field;
use super::tree::Node;
use crate::document::{Entry, Item};
use crate::note::Notes;

/// Parses a routing table: a number, or one of the kernel's predefined names.
fn parse_table(word: &str) -> Option<u64> {
    match word {
        "main" => Some(254),
        "default" => Some(253),
        "local" => Some(255),
        _ => field::parse_unsigned(word, 1, u32::MAX.into()),
    }
}

/// Converts the words of a line in pairs. Adds a note and returns `None` if a pair is not supported.
fn parse_pairs(
    node: &Node,
    words: &[String],
    notes: &mut Notes,
    parse: impl Fn(&str, &str) -> Option<Entry>,
) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    for pair in words.chunks(2) {
        let entry = match pair {
            [name, value] => parse(name, value),
            _ => None,
        };
        let Some(entry) = entry else {
            let reason = format!(
                "not imported: Weir has no equivalent for \"{}\"",
                pair.join(" ")
            );
            notes.add(node.position, reason);
            return None;
        };
        entries.push(entry);
    }
    Some(entries)
}

/// Returns whether a text is an address, a network, or a keyword for all addresses.
fn is_network(text: &str) -> bool {
    let (address, length) = text.split_once('/').unwrap_or((text, "0"));
    let is_address = address.parse::<std::net::IpAddr>().is_ok();
    matches!(text, "all" | "any" | "default")
        || is_address && field::parse_unsigned(length, 0, 128).is_some()
}

/// Converts lines `[src A] DESTINATION [via A] [dev IF] [table T] [metric N]`.
pub(super) fn routes(node: &Node, notes: &mut Notes) -> Option<Entry> {
    let mut routes = Vec::new();
    for inner in node.inner() {
        let position = inner.position;
        let mut words = inner.words.clone();
        if words.first().is_some_and(|it| it == "unicast") {
            words.remove(0);
        }
        // `src A` may precede the destination.
        let destination_index = if words.first().is_some_and(|it| it == "src") {
            2
        } else {
            0
        };
        if words.get(destination_index).is_some_and(|it| it == "to") {
            words.remove(destination_index);
        }
        if words.len() <= destination_index {
            field::reject(notes, inner, "a destination");
            continue;
        }
        let destination = words.remove(destination_index);
        let is_v6 = words.iter().any(|word| word.contains(':'));
        let destination = match destination.as_str() {
            "default" if is_v6 => "::/0".to_owned(),
            "default" => "0.0.0.0/0".to_owned(),
            _ => destination,
        };
        let entries = parse_pairs(inner, &words, notes, |name, value| {
            Some(match name {
                "via" | "gw" => Entry::new("via", value, position),
                "dev" | "oif" => Entry::new("interface", value, position),
                "src" => Entry::new("source", value, position),
                "table" => Entry::new("table", parse_table(value)?, position),
                "metric" | "preference" | "priority" => Entry::new(
                    "metric",
                    field::parse_unsigned(value, 0, u32::MAX.into())?,
                    position,
                ),
                _ => return None,
            })
        });
        if let Some(mut entries) = entries {
            if !entries.iter().any(|entry| entry.key == "interface") {
                let reason = "without `dev`, Weir uses the instance's interface; keepalived tracks no such route";
                notes.remark(position, reason);
            }
            entries.insert(0, Entry::new("to", destination, position).essential());
            routes.push(Item::new(entries, Some(position)));
        }
    }
    (!routes.is_empty()).then(|| Entry::new("routes", routes, node.position))
}

/// Converts lines `[from A] [to A] [iif IF] [fwmark N] table T [preference N]`.
pub(super) fn rules(node: &Node, notes: &mut Notes) -> Option<Entry> {
    let mut rules = Vec::new();
    for inner in node.inner() {
        let position = inner.position;
        let has_invalid_address = |pair: &[String]| match pair {
            [name, value] => matches!(name.as_str(), "from" | "to") && !is_network(value),
            _ => false,
        };
        if inner.words.chunks(2).any(has_invalid_address) {
            inner.ignore(notes, "it is not an address, and keepalived skips the line");
            continue;
        }
        let entries = parse_pairs(inner, &inner.words, notes, |name, value| {
            Some(match name {
                "from" => Entry::new("from", value, position),
                "to" => Entry::new("to", value, position),
                "iif" | "dev" => Entry::new("interface", value, position),
                "fwmark" => Entry::new(
                    "mark",
                    field::parse_unsigned(value, 1, u32::MAX.into())?,
                    position,
                ),
                "table" | "lookup" => {
                    Entry::new("table", parse_table(value)?, position).essential()
                }
                "preference" | "priority" | "pref" | "order" => Entry::new(
                    "priority",
                    field::parse_unsigned(value, 1, 32_765)?,
                    position,
                ),
                _ => return None,
            })
        });
        rules.extend(entries.map(|entries| Item::new(entries, Some(position))));
    }
    (!rules.is_empty()).then(|| Entry::new("rules", rules, node.position))
}
