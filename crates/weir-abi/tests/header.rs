//! Checks that the C headers and this crate define the same constants.

use std::collections::BTreeMap;

use weir_abi::{Forward, Scheduler, State, Tunnel};

const HEADERS: [&str; 4] = [
    include_str!("../../../bpf/abi/weir_abi.h"),
    include_str!("../../../bpf/abi/weir_reasons.h"),
    include_str!("../../../bpf/abi/weir_socket.h"),
    include_str!("../../../bpf/abi/weir_latency_reasons.h"),
];

/// Returns the definitions `#define WEIR_NAME number` in the headers. Include guards and macros with arguments are
/// skipped.
fn defines() -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for line in HEADERS.iter().flat_map(|header| header.lines()) {
        let Some((name, rest)) = line
            .strip_prefix("#define WEIR_")
            .and_then(|rest| rest.split_once([' ', '\t']))
        else {
            continue;
        };
        let value = rest.split("/*").next().unwrap_or_default().trim();
        let number = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None if value == "(1u << WEIR_DEST_BITS)" => Some(1 << weir_abi::DEST_BITS),
            None => value.parse().ok(),
        };
        if let (Some(number), false) = (number, name.contains('(')) {
            found.insert(name.to_owned(), number);
        }
    }
    found
}

/// Returns the enumerators `WEIR_NAME = number,` in `weir_abi.h`.
fn enumerators() -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for line in HEADERS[0].lines() {
        let assignment = line
            .trim()
            .strip_prefix("WEIR_")
            .and_then(|rest| rest.split_once(" = "));
        let Some((name, value)) = assignment else {
            continue;
        };
        found.insert(
            name.to_owned(),
            value
                .trim_end_matches(',')
                .parse()
                .expect("the enumerator has a number"),
        );
    }
    found
}

#[test]
fn every_define_has_its_constant() {
    let rust_definitions: BTreeMap<String, u64> = weir_abi::constants()
        .iter()
        .map(|constant| (constant.name.to_owned(), constant.value))
        .collect();
    assert!(rust_definitions.len() > 30);
    assert_eq!(defines(), rust_definitions);
}

/// [`weir_abi::Addr`] mirrors `weir_addr`, but is not one of the generated structs. `weir_element` is defined in
/// bpf/lib/maps.h.
#[test]
fn every_struct_has_its_layout() {
    let lines = HEADERS.iter().flat_map(|header| header.lines());
    let structs = lines.filter_map(|line| line.strip_prefix("struct ")?.split_once(" {"));
    let mut structs: Vec<&str> = structs.map(|(name, _)| name).collect();
    structs.retain(|name| *name != "weir_addr");
    structs.push("weir_element");
    structs.sort_unstable();
    let layouts = weir_abi::layouts();
    let mut rust_definitions: Vec<&str> = layouts.iter().map(|layout| layout.c_name).collect();
    rust_definitions.sort_unstable();
    assert_eq!(rust_definitions, structs);
}

#[test]
fn every_enumerator_has_its_variant() {
    let mut rust_definitions = BTreeMap::new();
    let mut add = |prefix: &str, name: String, number: u64| {
        rust_definitions.insert(format!("{prefix}_{}", upper_snake(&name)), number);
    };
    Scheduler::ALL
        .iter()
        .for_each(|value| add("SCHED", format!("{value:?}"), *value as u64));
    Forward::ALL
        .iter()
        .for_each(|value| add("FORWARD", format!("{value:?}"), *value as u64));
    Tunnel::ALL
        .iter()
        .for_each(|value| add("TUNNEL", format!("{value:?}"), *value as u64));
    State::ALL
        .iter()
        .for_each(|value| add("STATE", format!("{value:?}"), *value as u64));
    assert_eq!(enumerators(), rust_definitions);
}

fn upper_snake(camel: &str) -> String {
    let mut out = String::new();
    for character in camel.chars() {
        if character.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(character.to_ascii_uppercase());
    }
    out
}

#[test]
fn from_number_returns_variant() {
    assert_eq!(Scheduler::from_number(4), Some(Scheduler::Wlc));
    assert_eq!(Scheduler::from_number(999), None);
    assert_eq!(State::from_number(State::Udp as u8), Some(State::Udp));
}
