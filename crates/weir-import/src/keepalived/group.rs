//! Reads `virtual_server_group`, which combines addresses, ranges and marks under one name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Globals;
use super::field;
use super::tree::Node;
use crate::note::{Notes, Position};

/// The entries of a group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) position: Position,
    pub(super) addresses: Vec<Block>,
    /// Firewall marks; `true` for IPv6.
    pub(super) marks: Vec<(u64, bool, Position)>,
}

/// Addresses with one port; 0 means any port.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) position: Position,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) port: u16,
}

/// Maximum number of addresses on one line.
const MAX_ADDRESSES: u128 = 16_384;

/// Reads a group into `globals`.
pub(super) fn read(globals: &mut Globals, node: &Node, notes: &mut Notes) {
    let Some(name) = node.word(1) else {
        return field::reject(notes, node, "the name of the group");
    };
    if globals.groups.contains_key(name) {
        return node.reject(notes, "a group with this name already exists");
    }
    let mut group = Group {
        position: node.position,
        addresses: Vec::new(),
        marks: Vec::new(),
    };
    for inner in node.inner() {
        if inner.keyword() == "fwmark" {
            group.marks.extend(parse_mark(inner, notes));
        } else {
            group.addresses.extend(parse_block(inner, notes));
        }
    }
    if group.addresses.is_empty() && group.marks.is_empty() {
        notes.add(
            node.position,
            "not imported: the group has no valid entries",
        );
    }
    globals.groups.insert(name.to_owned(), group);
}

fn parse_mark(node: &Node, notes: &mut Notes) -> Option<(u64, bool, Position)> {
    field::note_extra_arguments(notes, node, 2);
    let mark = node
        .word(1)
        .and_then(|word| field::parse_unsigned(word, 1, u32::MAX.into()));
    let Some(mark) = mark else {
        field::reject(notes, node, "a mark");
        return None;
    };
    match node.word(2) {
        None | Some("inet") => Some((mark, false, node.position)),
        Some("inet6") => Some((mark, true, node.position)),
        Some(other) => {
            let reason = format!("not imported: {other} is neither inet nor inet6");
            notes.add(node.position, reason);
            None
        }
    }
}

fn parse_block(node: &Node, notes: &mut Notes) -> Option<Block> {
    field::note_extra_arguments(notes, node, 1);
    let port = match node.word(1) {
        None => Some(0),
        Some(word) => {
            field::parse_unsigned(word, 0, 65_535).and_then(|port| u16::try_from(port).ok())
        }
    };
    let Some(port) = port else {
        field::reject(notes, node, "a port");
        return None;
    };
    match parse_addresses(node.keyword()) {
        Ok(addresses) => Some(Block {
            position: node.position,
            addresses,
            port,
        }),
        Err(reason) => {
            node.reject(notes, &reason);
            None
        }
    }
}

/// Parses addresses such as `10.0.0.1`, `10.0.0.1-9`, `10.0.0.1-10.0.0.9` and `10.0.0.0/28`.
fn parse_addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let invalid = || format!("{text} is not an address or a range of addresses");
    if let Some((base, length)) = text.split_once('/') {
        let base: IpAddr = base.parse().map_err(|_| invalid())?;
        let bits: u32 = if base.is_ipv4() { 32 } else { 128 };
        let length = length
            .parse()
            .ok()
            .filter(|length| (1..=bits).contains(length));
        let host_bits = bits - length.ok_or_else(invalid)?;
        let count = 1_u128.checked_shl(host_bits).unwrap_or(u128::MAX);
        if !address_bits(base).is_multiple_of(count) {
            return Err(format!("{text} has host bits set"));
        }
        return expand(base, count);
    }
    let Some((first, last)) = text.split_once('-') else {
        return text
            .parse()
            .map(|address| vec![address])
            .map_err(|_| invalid());
    };
    let first: IpAddr = first.parse().map_err(|_| invalid())?;
    let last = match (last.parse::<IpAddr>(), first) {
        (Ok(last), _) => last,
        (Err(_), IpAddr::V4(v4)) => {
            let last = last.parse::<u8>().map_err(|_| invalid())?;
            let [a, b, c, _] = v4.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, last))
        }
        (Err(_), IpAddr::V6(v6)) => {
            let last = u16::from_str_radix(last, 16).map_err(|_| invalid())?;
            IpAddr::V6(Ipv6Addr::from((v6.to_bits() & !0xffff) + u128::from(last)))
        }
    };
    if first.is_ipv4() != last.is_ipv4() || address_bits(first) > address_bits(last) {
        return Err(invalid());
    }
    expand(first, address_bits(last) - address_bits(first) + 1)
}

fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Returns `count` addresses, starting at `first`.
fn expand(first: IpAddr, count: u128) -> Result<Vec<IpAddr>, String> {
    if count > MAX_ADDRESSES {
        return Err(format!(
            "too many addresses: {count}; the maximum is {MAX_ADDRESSES}"
        ));
    }
    let address = |offset: u128| match first {
        IpAddr::V4(v4) => Some(IpAddr::V4(Ipv4Addr::from(
            v4.to_bits().checked_add(u32::try_from(offset).ok()?)?,
        ))),
        IpAddr::V6(v6) => Some(IpAddr::V6(Ipv6Addr::from(
            v6.to_bits().checked_add(offset)?,
        ))),
    };
    Ok((0..count).filter_map(address).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_networks_are_expanded() {
        let expanded = |text: &str| -> Vec<String> {
            let found = parse_addresses(text).unwrap();
            found.iter().map(IpAddr::to_string).collect()
        };
        assert_eq!(
            expanded("10.0.0.9-11"),
            ["10.0.0.9", "10.0.0.10", "10.0.0.11"]
        );
        assert_eq!(expanded("10.0.0.255-10.0.1.0"), ["10.0.0.255", "10.0.1.0"]);
        assert_eq!(expanded("10.0.0.2/31"), ["10.0.0.2", "10.0.0.3"]);
        assert_eq!(expanded("fe80::a-b"), ["fe80::a", "fe80::b"]);
        for single in [
            "10.0.0.9",
            "10.0.0.9-9",
            "10.0.0.9/32",
            "fd00::9-9",
            "fd00::9/128",
        ] {
            assert_eq!(expanded(single).len(), 1, "{single}");
            assert!(single.starts_with(&expanded(single)[0]), "{single}");
        }
        assert_eq!(
            expanded("fd00:0:0:1::fffe-ffff"),
            ["fd00:0:0:1::fffe", "fd00:0:0:1::ffff"]
        );
        assert_eq!(expanded("fd00::fffe/127"), ["fd00::fffe", "fd00::ffff"]);
        for largest in ["10.0.0.0/18", "10.0.0.0-10.0.63.255", "fd00::/114"] {
            assert_eq!(expanded(largest).len(), 16_384, "{largest}");
        }
        for invalid in [
            "10.0.0.9-8",
            "10.0.0.1/31",
            "::/1",
            "x",
            "10.0.0.1-",
            "0.0.0.0/0",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "x/24",
            "10.0.0.1-256",
            "10.0.0.1-x",
            "x-9",
            "10.0.0.1-fd00::1",
            "fd00::9-8",
            "fd00::1-10000",
            "10.0.0.0/17",
            "10.0.0.0-10.0.64.0",
            "fd00::/129",
            "fd00::/64",
        ] {
            assert!(parse_addresses(invalid).is_err(), "{invalid}");
        }
    }
}
