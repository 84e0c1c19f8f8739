//! Evaluates match expressions of firewall rules for a packet. The result can be unknown.

use std::net::IpAddr;

use serde_json::Value;

use super::packet::{Packet, Port};
use super::ruleset::{Chain, Ruleset};

/// The packet's value for the left side of an expression.
enum Field<'a> {
    Address(IpAddr),
    Number(u64),
    /// An ephemeral port whose number is unknown.
    Ephemeral,
    Symbol(&'a str),
    /// TCP flags.
    Flags(Vec<&'a str>),
    /// The packet has no such field, so no comparison matches.
    Absent,
}

/// Evaluates a `match` statement for a packet. Returns `None` if the result is unknown.
pub(super) fn matches(
    rules: &Ruleset,
    chain: &Chain,
    packet: &Packet,
    statement: &Value,
) -> Option<bool> {
    let (left, right) = (&statement["left"], &statement["right"]);
    let operator = statement["op"].as_str()?;
    if let (Some("lo"), Some("iifname" | "iif" | "oifname" | "oif")) =
        (right.as_str(), left["meta"]["key"].as_str())
    {
        // The packet comes from or goes to another machine, so the device is never `lo`.
        return Some(operator == "!=");
    }
    let field = field(packet, left)?;
    if matches!(field, Field::Absent) {
        return Some(false);
    }
    if let Field::Flags(set) = &field {
        let expected = flag_names(right)?;
        let equal = set.len() == expected.len() && set.iter().all(|flag| expected.contains(flag));
        return match operator {
            "in" => Some(set.iter().any(|flag| expected.contains(flag))),
            "==" => Some(equal),
            "!=" => Some(!equal),
            _ => None,
        };
    }
    let equal = equals(rules, chain, &field, right);
    match operator {
        "==" | "in" => equal,
        "!=" => equal.map(|equal| !equal),
        "<" | ">" | "<=" | ">=" => {
            let (Field::Number(left), Some(right)) = (field, right.as_u64()) else {
                return None;
            };
            Some(match operator {
                "<" => left < right,
                ">" => left > right,
                "<=" => left <= right,
                _ => left >= right,
            })
        }
        _ => None,
    }
}

/// Looks up a packet in a verdict map. Returns `Some(None)` if no element matches, and `None` if the result is unknown.
pub(super) fn look_up<'r>(
    rules: &'r Ruleset,
    chain: &Chain,
    packet: &Packet,
    map: &'r Value,
) -> Option<Option<&'r Value>> {
    let field = field(packet, &map["key"])?;
    let elements = match &map["data"] {
        Value::String(name) => rules.set(chain, name.strip_prefix('@')?)?,
        data => data["set"].as_array()?,
    };
    for element in elements {
        let pair = element.as_array()?;
        if equals(rules, chain, &field, pair.first()?)? {
            return Some(pair.get(1));
        }
    }
    Some(None)
}

/// Returns the packet's value for the left side of an expression, or `None` if the value is unknown.
fn field<'a>(packet: &Packet, left: &'a Value) -> Option<Field<'a>> {
    if let Some([inner, mask]) = left["&"].as_array().map(Vec::as_slice) {
        let Field::Flags(set) = field(packet, inner)? else {
            return None;
        };
        let expected = flag_names(mask)?;
        let masked_flags = set.into_iter().filter(|flag| expected.contains(flag));
        return Some(Field::Flags(masked_flags.collect()));
    }
    let payload = &left["payload"];
    if let (Some(protocol), Some(name)) = (payload["protocol"].as_str(), payload["field"].as_str())
    {
        return header(packet, protocol, name);
    }
    if let Some(key) = left["meta"]["key"].as_str() {
        return match key {
            "l4proto" => Some(Field::Symbol("tcp")),
            "nfproto" => Some(Field::Symbol(if packet.is_ipv4 { "ipv4" } else { "ipv6" })),
            "protocol" => Some(Field::Symbol(if packet.is_ipv4 { "ip" } else { "ip6" })),
            "mark" => Some(Field::Number(packet.mark?.into())),
            _ => None,
        };
    }
    (left["ct"]["key"] == "state").then(|| Field::Symbol(packet.tracking.name()))
}

fn header<'a>(packet: &Packet, protocol: &str, name: &str) -> Option<Field<'a>> {
    match (protocol, name) {
        ("ip", _) if !packet.is_ipv4 => Some(Field::Absent),
        ("ip6", _) if packet.is_ipv4 => Some(Field::Absent),
        ("ip" | "ip6", "saddr") => packet.source.map(Field::Address),
        ("ip" | "ip6", "daddr") => packet.destination.map(Field::Address),
        ("ip", "protocol") | ("ip6", "nexthdr") => Some(Field::Symbol("tcp")),
        ("tcp" | "th", "sport") => port(packet.source_port),
        ("tcp" | "th", "dport") => port(packet.destination_port),
        ("tcp", "flags") => Some(Field::Flags(packet.flags.to_vec())),
        ("ip" | "ip6" | "tcp" | "th" | "ether" | "vlan", _) => None,
        // A TCP packet has no header of this protocol.
        _ => Some(Field::Absent),
    }
}

fn port<'a>(port: Port) -> Option<Field<'a>> {
    match port {
        Port::Known(port) => Some(Field::Number(port.into())),
        Port::Ephemeral => Some(Field::Ephemeral),
        Port::Any => None,
    }
}

/// Parses TCP flags: one name, a list of names, names joined with `|`, or the number 0 for no flags.
fn flag_names(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(name) => Some(vec![name]),
        Value::Array(list) => list.iter().map(Value::as_str).collect(),
        Value::Object(_) => flag_names(&value["|"]),
        Value::Number(number) if number.as_u64() == Some(0) => Some(Vec::new()),
        _ => None,
    }
}

/// Returns whether a field equals the right side, or is in it if it is a set, a list, a prefix or a range. Returns
/// `None` if this is unknown.
fn equals(rules: &Ruleset, chain: &Chain, field: &Field<'_>, right: &Value) -> Option<bool> {
    let equals_any = |list: &[Value]| {
        let mut is_unknown = false;
        for element in list {
            match equals(rules, chain, field, element) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => is_unknown = true,
            }
        }
        (!is_unknown).then_some(false)
    };
    match right {
        Value::String(name) if name.starts_with('@') => equals_any(rules.set(chain, &name[1..])?),
        Value::Array(list) => equals_any(list),
        Value::Object(object) => {
            if let Some(list) = object.get("set").and_then(Value::as_array) {
                equals_any(list)
            } else if let Some(element) = object.get("elem") {
                equals(rules, chain, field, &element["val"])
            } else if let Some(prefix) = object.get("prefix") {
                is_in_prefix(field, prefix)
            } else {
                is_in_range(field, object.get("range")?)
            }
        }
        Value::Number(number) => match field {
            Field::Number(value) => Some(number.as_u64()? == *value),
            Field::Ephemeral => (number.as_u64()? < Port::FIRST_EPHEMERAL).then_some(false),
            _ => None,
        },
        Value::String(text) => match field {
            Field::Address(value) => Some(text.parse::<IpAddr>().ok()? == *value),
            Field::Symbol(value) => Some(text == value),
            _ => None,
        },
        _ => None,
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn is_in_prefix(field: &Field<'_>, prefix: &Value) -> Option<bool> {
    let Field::Address(value) = field else {
        return None;
    };
    let network: IpAddr = prefix["addr"].as_str()?.parse().ok()?;
    let length = u32::try_from(prefix["len"].as_u64()?).ok()?;
    let differing_bits = bits(*value) ^ bits(network);
    Some(
        value.is_ipv4() == network.is_ipv4()
            && differing_bits.checked_shr(128 - length).unwrap_or(0) == 0,
    )
}

fn is_in_range(field: &Field<'_>, range: &Value) -> Option<bool> {
    let [first, last] = range.as_array()?.as_slice() else {
        return None;
    };
    match field {
        Field::Ephemeral => (last.as_u64()? < Port::FIRST_EPHEMERAL).then_some(false),
        Field::Number(value) => Some((first.as_u64()?..=last.as_u64()?).contains(value)),
        Field::Address(value) => {
            let parse = |bound: &Value| bound.as_str()?.parse::<IpAddr>().ok().map(bits);
            Some((parse(first)?..=parse(last)?).contains(&bits(*value)))
        }
        _ => None,
    }
}
