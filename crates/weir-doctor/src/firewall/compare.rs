//! Compares a packet with an expression of a rule: yes, no, or unknown.

use std::net::IpAddr;

use serde_json::Value;

use super::packet::{Packet, Port};
use super::ruleset::{Chain, Ruleset};

/// The value of an expression's left side for a packet.
enum Field<'a> {
    Address(IpAddr),
    Number(u64),
    /// An ephemeral port that is not known.
    Ephemeral,
    Word(&'a str),
    /// Several words at once: TCP's flags.
    Words(Vec<&'a str>),
    /// The packet has no such field: nothing equals it.
    Absent,
}

/// The statement `match`: `None` = unknown.
pub(super) fn matches(rules: &Ruleset, chain: &Chain, packet: &Packet, it: &Value) -> Option<bool> {
    let (left, right) = (&it["left"], &it["right"]);
    let operator = it["op"].as_str()?;
    if let (Some("lo"), Some("iifname" | "iif" | "oifname" | "oif")) =
        (right.as_str(), left["meta"]["key"].as_str())
    {
        // These packets are on their way to or from other machines.
        return Some(operator == "!=");
    }
    let field = field(packet, left)?;
    if matches!(field, Field::Absent) {
        return Some(false);
    }
    if let Field::Words(set) = &field {
        let wanted = words(right)?;
        let all = set.len() == wanted.len() && set.iter().all(|flag| wanted.contains(flag));
        return match operator {
            "in" => Some(set.iter().any(|flag| wanted.contains(flag))),
            "==" => Some(all),
            "!=" => Some(!all),
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

/// The element of a verdict map for a packet; `Some(None)` = it has none.
pub(super) fn looked_up<'r>(
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

fn field<'a>(packet: &Packet, left: &'a Value) -> Option<Field<'a>> {
    if let Some([inner, mask]) = left["&"].as_array().map(Vec::as_slice) {
        let Field::Words(set) = field(packet, inner)? else {
            return None;
        };
        let wanted = words(mask)?;
        let left = set.into_iter().filter(|flag| wanted.contains(flag));
        return Some(Field::Words(left.collect()));
    }
    let payload = &left["payload"];
    if let (Some(protocol), Some(name)) = (payload["protocol"].as_str(), payload["field"].as_str())
    {
        return header(packet, protocol, name);
    }
    if let Some(key) = left["meta"]["key"].as_str() {
        return match key {
            "l4proto" => Some(Field::Word("tcp")),
            "nfproto" => Some(Field::Word(if packet.is_ipv4 { "ipv4" } else { "ipv6" })),
            "protocol" => Some(Field::Word(if packet.is_ipv4 { "ip" } else { "ip6" })),
            "mark" => Some(Field::Number(packet.mark?.into())),
            _ => None,
        };
    }
    (left["ct"]["key"] == "state").then(|| Field::Word(packet.tracking.word()))
}

fn header<'a>(packet: &Packet, protocol: &str, name: &str) -> Option<Field<'a>> {
    match (protocol, name) {
        ("ip", _) if !packet.is_ipv4 => Some(Field::Absent),
        ("ip6", _) if packet.is_ipv4 => Some(Field::Absent),
        ("ip" | "ip6", "saddr") => packet.source.map(Field::Address),
        ("ip" | "ip6", "daddr") => packet.destination.map(Field::Address),
        ("ip", "protocol") | ("ip6", "nexthdr") => Some(Field::Word("tcp")),
        ("tcp" | "th", "sport") => port(packet.source_port),
        ("tcp" | "th", "dport") => port(packet.destination_port),
        ("tcp", "flags") => Some(Field::Words(packet.flags.to_vec())),
        ("ip" | "ip6" | "tcp" | "th" | "ether" | "vlan", _) => None,
        // Of another protocol.
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

/// Names of flags: one, or a list.
fn words(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(word) => Some(vec![word]),
        Value::Array(list) => list.iter().map(Value::as_str).collect(),
        Value::Object(_) => words(&value["|"]),
        Value::Number(number) if number.as_u64() == Some(0) => Some(Vec::new()),
        _ => None,
    }
}

/// Whether a field equals one of the values on the right side; `None` = unknown.
fn equals(rules: &Ruleset, chain: &Chain, field: &Field<'_>, right: &Value) -> Option<bool> {
    let any_of = |list: &[Value]| {
        let mut unknown = false;
        for one in list {
            match equals(rules, chain, field, one) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => unknown = true,
            }
        }
        (!unknown).then_some(false)
    };
    match right {
        Value::String(name) if name.starts_with('@') => any_of(rules.set(chain, &name[1..])?),
        Value::Array(list) => any_of(list),
        Value::Object(object) => {
            if let Some(list) = object.get("set").and_then(Value::as_array) {
                any_of(list)
            } else if let Some(element) = object.get("elem") {
                equals(rules, chain, field, &element["val"])
            } else if let Some(prefix) = object.get("prefix") {
                within(field, prefix)
            } else {
                between(field, object.get("range")?)
            }
        }
        Value::Number(number) => match field {
            Field::Number(own) => Some(number.as_u64()? == *own),
            Field::Ephemeral => (number.as_u64()? < Port::FIRST_EPHEMERAL).then_some(false),
            _ => None,
        },
        Value::String(text) => match field {
            Field::Address(own) => Some(text.parse::<IpAddr>().ok()? == *own),
            Field::Word(own) => Some(text == own),
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

fn within(field: &Field<'_>, prefix: &Value) -> Option<bool> {
    let Field::Address(own) = field else {
        return None;
    };
    let network: IpAddr = prefix["addr"].as_str()?.parse().ok()?;
    let length = u32::try_from(prefix["len"].as_u64()?).ok()?;
    let differ = bits(*own) ^ bits(network);
    Some(own.is_ipv4() == network.is_ipv4() && differ.checked_shr(128 - length).unwrap_or(0) == 0)
}

fn between(field: &Field<'_>, range: &Value) -> Option<bool> {
    let [first, last] = range.as_array()?.as_slice() else {
        return None;
    };
    match field {
        Field::Ephemeral => (last.as_u64()? < Port::FIRST_EPHEMERAL).then_some(false),
        Field::Number(own) => Some((first.as_u64()?..=last.as_u64()?).contains(own)),
        Field::Address(own) => {
            let parse = |value: &Value| value.as_str()?.parse::<IpAddr>().ok().map(bits);
            Some((parse(first)?..=parse(last)?).contains(&bits(*own)))
        }
        _ => None,
    }
}
