//! Who a virtual server is: an address, a firewall mark or a group of both, and the listeners that follow.

use std::net::IpAddr;

use super::directive::Directives;
use crate::keepalived::Globals;
use crate::keepalived::field;
use crate::keepalived::group::Group;
use crate::keepalived::tree::Node;
use crate::layer4::{listener, mark_listener};
use crate::note::{Notes, Place};

/// Who the service is.
pub(super) enum Header<'a> {
    Address(IpAddr, u16),
    Mark(u64),
    Group(&'a str, &'a Group),
}

/// Reads it.
pub(super) fn header<'a>(
    globals: &'a Globals,
    node: &'a Node,
    notes: &mut Notes,
) -> Option<Header<'a>> {
    let refuse = |notes: &mut Notes, why: &str| {
        node.refuse(notes, why);
        None
    };
    match node.word(1) {
        None => refuse(notes, "it names no address"),
        Some("group") => {
            field::no_further(notes, node, 2);
            let Some(name) = node.word(2) else {
                return refuse(notes, "it names no group");
            };
            match globals.groups.get(name) {
                Some(group) => Some(Header::Group(name, group)),
                None => refuse(notes, &format!("there is no virtual_server_group {name}")),
            }
        }
        Some("fwmark") => {
            field::no_further(notes, node, 2);
            let mark = node
                .word(2)
                .and_then(|word| field::within(word, 1, u32::MAX.into()));
            match mark {
                Some(mark) => Some(Header::Mark(mark)),
                None => refuse(notes, "it names no firewall mark"),
            }
        }
        Some(word) => {
            field::no_further(notes, node, 2);
            match (word.parse().ok(), field::port(node)) {
                (Some(address), Some(port)) => Some(Header::Address(address, port)),
                (None, _) => refuse(notes, &format!("{word} is no address")),
                (_, None) => refuse(notes, "its port is none"),
            }
        }
    }
}

/// The family of the service.
pub(super) fn is_ipv6(header: &Header<'_>, of: &Directives, reals: &[&Node]) -> bool {
    if let Some((ipv6, _)) = of.family {
        return ipv6;
    }
    let first = match header {
        Header::Address(address, _) => return address.is_ipv6(),
        Header::Group(_, group) => group
            .addresses
            .first()
            .and_then(|block| block.addresses.first()),
        Header::Mark(_) => None,
    };
    if let Some(address) = first {
        return address.is_ipv6();
    }
    let word = reals.iter().find_map(|real| real.word(1));
    word.is_some_and(|word| word.contains(':'))
}

/// The listeners, and the one port that they have.
pub(super) fn listen(
    header: &Header<'_>,
    of: &mut Directives,
    ipv6: bool,
    node: &Node,
    notes: &mut Notes,
) -> Option<(Vec<(String, Place)>, u16)> {
    let by_address = match header {
        Header::Mark(_) => false,
        Header::Address(..) => true,
        Header::Group(_, group) => !group.addresses.is_empty(),
    };
    if by_address && of.protocol.is_none() {
        notes.remark(node.place, "no protocol: UDP, as keepalived has it");
    }
    if !by_address && let Some((_, place)) = of.protocol {
        notes.say(place, "not carried over: a firewall mark has no protocol");
    }
    let protocol = of.protocol.map_or("udp", |(protocol, _)| protocol);
    if by_address
        && protocol != "udp"
        && let Some(place) = of.ops.take()
    {
        notes.say(place, "not carried over: one packet scheduling is for UDP");
    }
    let place = of.protocol.map_or(node.place, |(_, place)| place);
    if by_address && protocol == "sctp" {
        notes.say(place, "not carried over: SCTP is not balanced");
        node.refuse(notes, "SCTP is not balanced");
        return None;
    }
    Some(match header {
        Header::Mark(number) => (vec![(mark_listener(*number, ipv6), node.place)], 0),
        Header::Address(address, port) => {
            let listen = listener(protocol, *address, *port);
            (vec![(listen, node.place)], *port)
        }
        Header::Group(_, group) => {
            let mut listen = Vec::new();
            for block in &group.addresses {
                let addresses = block.addresses.iter();
                listen.extend(
                    addresses
                        .map(|address| (listener(protocol, *address, block.port), block.place)),
                );
            }
            listen.extend(
                group
                    .marks
                    .iter()
                    .map(|(number, ipv6, place)| (mark_listener(*number, *ipv6), *place)),
            );
            let mut ports = group.addresses.iter().map(|block| block.port);
            let first = ports.next().unwrap_or(0);
            let one = group.marks.is_empty() && ports.all(|port| port == first);
            if listen.is_empty() {
                node.refuse(notes, "its group has no entries");
                return None;
            }
            (listen, if one { first } else { 0 })
        }
    })
}
