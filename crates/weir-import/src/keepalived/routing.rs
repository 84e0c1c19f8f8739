//! `virtual_routes` and `virtual_rules` of a `vrrp_instance`.

use super::field;
use super::tree::Node;
use crate::document::{Entry, Item};
use crate::note::Notes;

/// Returns the number of a routing table, which may have a name (`/etc/iproute2/rt_tables`).
fn table(word: &str) -> Option<u64> {
    match word {
        "main" => Some(254),
        "default" => Some(253),
        "local" => Some(255),
        _ => field::within(word, 1, u32::MAX.into()),
    }
}

/// Converts the words of a line in pairs. Returns `None`, with a note, if a pair is not supported.
fn line(
    node: &Node,
    words: &[String],
    notes: &mut Notes,
    entry: impl Fn(&str, &str) -> Option<Entry>,
) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    for pair in words.chunks(2) {
        let known = match pair {
            [name, value] => entry(name, value),
            _ => None,
        };
        let Some(known) = known else {
            let why = format!(
                "not imported: Weir has no equivalent of \"{}\"",
                pair.join(" ")
            );
            notes.add(node.position, why);
            return None;
        };
        entries.push(known);
    }
    Some(entries)
}

/// Returns whether a text is an address or a network.
fn is_network(text: &str) -> bool {
    let (address, length) = text.split_once('/').unwrap_or((text, "0"));
    let is_address = address.parse::<std::net::IpAddr>().is_ok();
    matches!(text, "all" | "any" | "default")
        || is_address && field::within(length, 0, 128).is_some()
}

/// Converts lines `[src A] DESTINATION [via A] [dev IF] [table T] [metric N]`.
pub(super) fn routes(node: &Node, notes: &mut Notes) -> Option<Entry> {
    let mut routes = Vec::new();
    for inner in node.inner() {
        let at = inner.position;
        let mut words = inner.words.clone();
        if words.first().is_some_and(|it| it == "unicast") {
            words.remove(0);
        }
        // `src A` may be first.
        let to = if words.first().is_some_and(|it| it == "src") {
            2
        } else {
            0
        };
        if words.get(to).is_some_and(|it| it == "to") {
            words.remove(to);
        }
        if words.len() <= to {
            field::reject(notes, inner, "a destination");
            continue;
        }
        let to = words.remove(to);
        let v6 = words.iter().any(|word| word.contains(':'));
        let to = match to.as_str() {
            "default" if v6 => "::/0".to_owned(),
            "default" => "0.0.0.0/0".to_owned(),
            _ => to,
        };
        let entries = line(inner, &words, notes, |name, value| {
            Some(match name {
                "via" | "gw" => Entry::new("via", value, at),
                "dev" | "oif" => Entry::new("interface", value, at),
                "src" => Entry::new("source", value, at),
                "table" => Entry::new("table", table(value)?, at),
                "metric" | "preference" | "priority" => {
                    Entry::new("metric", field::within(value, 0, u32::MAX.into())?, at)
                }
                _ => return None,
            })
        });
        if let Some(mut entries) = entries {
            if !entries.iter().any(|entry| entry.key == "interface") {
                let why = "without `dev` Weir uses the instance's interface; keepalived does not track such a route";
                notes.remark(at, why);
            }
            entries.insert(0, Entry::new("to", to, at).essential());
            routes.push(Item::new(entries, Some(at)));
        }
    }
    (!routes.is_empty()).then(|| Entry::new("routes", routes, node.position))
}

/// Converts lines `[from A] [to A] [iif IF] [fwmark N] table T [preference N]`.
pub(super) fn rules(node: &Node, notes: &mut Notes) -> Option<Entry> {
    let mut rules = Vec::new();
    for inner in node.inner() {
        let at = inner.position;
        let is_wrong = |pair: &[String]| match pair {
            [name, value] => matches!(name.as_str(), "from" | "to") && !is_network(value),
            _ => false,
        };
        if inner.words.chunks(2).any(is_wrong) {
            inner.ignore(notes, "it is not an address, and keepalived skips the line");
            continue;
        }
        let entries = line(inner, &inner.words, notes, |name, value| {
            Some(match name {
                "from" => Entry::new("from", value, at),
                "to" => Entry::new("to", value, at),
                "iif" | "dev" => Entry::new("interface", value, at),
                "fwmark" => Entry::new("mark", field::within(value, 1, u32::MAX.into())?, at),
                "table" | "lookup" => Entry::new("table", table(value)?, at).essential(),
                "preference" | "priority" | "pref" | "order" => {
                    Entry::new("priority", field::within(value, 1, 32_765)?, at)
                }
                _ => return None,
            })
        });
        rules.extend(entries.map(|entries| Item::new(entries, Some(at))));
    }
    (!rules.is_empty()).then(|| Entry::new("rules", rules, node.position))
}
