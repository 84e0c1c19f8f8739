//! Converts the addresses of a `vrrp_instance`.

use crate::document::{Entry, Item, Value};
use crate::keepalived::field;
use crate::keepalived::tree::Node;
use crate::note::{Notes, Position};

/// An address on an interface other than the interface of the instance.
pub(super) struct OtherAddress {
    interface: String,
    address: String,
    position: Position,
    /// Whether the instance fails if the interface is down.
    is_tracked: bool,
}

/// Returns the key for the addresses in lines `IP[/M] dev IF label L …`, and adds those on other interfaces to
/// `other_addresses`.
pub(super) fn read_addresses(
    instance: &Node,
    node: &Node,
    other_addresses: &mut Vec<OtherAddress>,
    notes: &mut Notes,
) -> Option<Entry> {
    let key = match node.keyword() {
        "virtual_ipaddress" => "addresses",
        _ => "excluded_addresses",
    };
    let mut lines = instance.inner().iter();
    let interface = lines.rfind(|it| it.keyword() == "interface");
    let interface = interface.and_then(|it| it.word(1)).unwrap_or_default();
    let mut addresses = Vec::new();
    for line in node.inner() {
        let (address, length) = line
            .keyword()
            .split_once('/')
            .unwrap_or((line.keyword(), ""));
        let Ok(ip) = address.parse::<std::net::IpAddr>() else {
            let reason = "it is not an address, and keepalived skips the line";
            line.ignore(notes, reason);
            continue;
        };
        let max_length = if ip.is_ipv4() { 32 } else { 128 };
        let length = if length.is_empty() {
            Some(max_length)
        } else {
            field::parse_unsigned(length, 0, max_length)
        };
        if length.is_none() {
            let reason = format!(
                "the prefix length is invalid, and was set to {max_length}, as in keepalived"
            );
            notes.remark(line.position, reason);
        }
        let text = format!("{ip}/{}", length.unwrap_or(max_length));
        addresses.push(Item::new(text, Some(line.position)));
        if let Some(other_interface) = address_options(line, interface, notes) {
            other_addresses.push(OtherAddress {
                interface: other_interface,
                address: ip.to_string(),
                position: line.position,
                is_tracked: !line.words.iter().any(|word| word == "no_track"),
            });
        }
    }
    (!addresses.is_empty()).then(|| Entry::new(key, addresses, node.position))
}

/// Returns `other_interfaces`, and adds entries of `track` for these interfaces.
pub(super) fn other_interfaces(
    other_addresses: &[OtherAddress],
    track: &mut Vec<Item>,
) -> Option<Entry> {
    let first = other_addresses.first()?.position;
    let mut names: Vec<&str> = Vec::new();
    for other in other_addresses {
        if !names.contains(&other.interface.as_str()) {
            names.push(&other.interface);
        }
    }
    let mut tables = Vec::new();
    for name in names {
        let on_interface: Vec<&OtherAddress> = other_addresses
            .iter()
            .filter(|other| other.interface == name)
            .collect();
        let position = on_interface[0].position;
        let addresses: Vec<Item> = on_interface
            .iter()
            .map(|other| Item::new(other.address.as_str(), Some(other.position)))
            .collect();
        let entries = vec![
            Entry::new("interface", name, position).essential(),
            Entry::new("addresses", addresses, position).essential(),
        ];
        tables.push(Item::new(entries, Some(position)));
        if on_interface.iter().any(|other| other.is_tracked) {
            let entry = Entry::new("interface", name, position).essential();
            if !track
                .iter()
                .any(|item| item.value == Value::Table(vec![entry.clone()]))
            {
                track.push(Item::new(vec![entry], Some(position)));
            }
        }
    }
    Some(Entry::new("other_interfaces", tables, first))
}

/// Returns whether the address is an IPv6 address with prefix 128, which is the default.
fn is_single_ipv6(line: &Node) -> bool {
    let address = line.words.first().map_or("", String::as_str);
    address.contains(':') && (!address.contains('/') || address.ends_with("/128"))
}

/// Options of an address that take no value.
const FLAGS: &[&str] = &[
    "home",
    "-nodad",
    "mngtmpaddr",
    "noprefixroute",
    "autojoin",
    "no_track",
    "use_vmac",
];

/// Reads the options after an address, and adds notes. Labels and broadcast addresses only affect listings, and neither
/// keepalived nor Weir detects duplicate addresses when an address moves.
///
/// Returns the device if it is not the interface of the instance.
fn address_options(line: &Node, interface: &str, notes: &mut Notes) -> Option<String> {
    let mut device = None;
    let mut words = line.words.iter().skip(1).map(String::as_str);
    let (mut unsupported, mut cosmetic) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        if FLAGS.contains(&word) {
            match word {
                // `no_track` only keeps the interface out of `track`.
                "no_track" => {}
                "home" | "-nodad" => cosmetic.push(word),
                _ => unsupported.push(word.to_owned()),
            }
            continue;
        }
        let value = words.next().unwrap_or("");
        match (word, value) {
            ("dev", value) if value == interface => {}
            ("dev", value) if !value.is_empty() => device = Some(value.to_owned()),
            ("label" | "brd" | "broadcast", _) | ("scope", "global") => cosmetic.push(word),
            // Weir adds IPv6 addresses with prefix 128 as deprecated addresses, as keepalived does without this option.
            ("preferred_lft", "forever") if !is_single_ipv6(line) => cosmetic.push(word),
            ("preferred_lft", "0") if is_single_ipv6(line) => cosmetic.push(word),
            _ => unsupported.push(format!("{word} {value}")),
        }
    }
    if device.is_none() && line.words.iter().any(|word| word == "no_track") {
        let reason = "no_track has no effect: the address is on the interface of the instance";
        notes.remark(line.position, reason);
    }
    if !unsupported.is_empty() {
        let reason = format!(
            "not imported: {}, for which [vrrp.NAME] has no key",
            unsupported.join(", ")
        );
        notes.add(line.position, reason);
    } else if !cosmetic.is_empty() {
        let cosmetic = cosmetic.join(", ");
        let reason = format!("not imported: {cosmetic} (no effect on the path of packets)");
        notes.remark(line.position, reason);
    }
    device
}
