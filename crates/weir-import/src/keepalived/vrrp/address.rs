//! Addresses of a `vrrp_instance`.

use crate::document::{Entry, Item};
use crate::keepalived::field;
use crate::keepalived::tree::Node;
use crate::note::Notes;

/// Imports the address from each line `IP[/M] dev IF label L …`.
pub(super) fn addresses(
    key: &'static str,
    node: &Node,
    interface: &str,
    notes: &mut Notes,
) -> Option<Entry> {
    let mut addresses = Vec::new();
    for line in node.inner() {
        let (address, length) = line
            .keyword()
            .split_once('/')
            .unwrap_or((line.keyword(), ""));
        let Ok(parsed) = address.parse::<std::net::IpAddr>() else {
            let why = "not an address, and keepalived skips the line";
            line.ignore(notes, why);
            continue;
        };
        let bits = if parsed.is_ipv4() { 32 } else { 128 };
        let length = if length.is_empty() {
            Some(bits)
        } else {
            field::within(length, 0, bits)
        };
        if length.is_none() {
            let why =
                format!("the prefix length is invalid and was set to {bits}, as keepalived does");
            notes.remark(line.position, why);
        }
        let text = format!("{parsed}/{}", length.unwrap_or(bits));
        addresses.push(Item::new(text, Some(line.position)));
        address_options(line, interface, notes);
    }
    (!addresses.is_empty()).then(|| Entry::new(key, addresses, node.position))
}

/// Options of an address without a value.
const FLAGS: &[&str] = &[
    "home",
    "-nodad",
    "mngtmpaddr",
    "noprefixroute",
    "autojoin",
    "no_track",
    "use_vmac",
];

/// Options after an address. The default device is that of the instance; only listings show a label and the broadcast
/// address, and duplicate addresses are not searched for in either program once an address moves.
fn address_options(line: &Node, interface: &str, notes: &mut Notes) {
    let mut words = line.words.iter().skip(1).map(String::as_str);
    let (mut lost, mut shown) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        if FLAGS.contains(&word) {
            match word {
                "home" | "-nodad" | "no_track" => shown.push(word),
                _ => lost.push(word.to_owned()),
            }
            continue;
        }
        let value = words.next().unwrap_or("");
        match (word, value) {
            ("dev", value) if value == interface => {}
            ("label" | "brd" | "broadcast", _)
            | ("scope", "global")
            | ("preferred_lft", "forever") => shown.push(word),
            _ => lost.push(format!("{word} {value}")),
        }
    }
    if !lost.is_empty() {
        let lost = lost.join(" ");
        let why = format!(
            "not imported: {lost}; Weir adds the address to the instance's interface, {interface}"
        );
        notes.add(line.position, why);
    } else if !shown.is_empty() {
        let shown = shown.join(", ");
        let why = format!("{shown} is not imported: it does not change where packets go");
        notes.remark(line.position, why);
    }
}
