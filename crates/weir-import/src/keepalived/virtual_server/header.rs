//! Parses the identity of a virtual server, and returns its listeners.
//!
//! The identity is an address, a firewall mark or a group of both.

use std::net::IpAddr;

use super::directive::Directives;
use crate::keepalived::Globals;
use crate::keepalived::field;
use crate::keepalived::group::Group;
use crate::keepalived::tree::Node;
use crate::layer4::{listener, mark_listener};
use crate::note::{Notes, Position};

/// Identity of a virtual server.
pub(super) enum Header<'a> {
    Address(IpAddr, u16),
    Mark(u64),
    /// A text that is not an address: a name, or a template's placeholder.
    Unknown(&'a str, u16),
    Group(&'a str, &'a Group),
}

/// Parses the header. Adds a note and returns `None` if it is invalid.
pub(super) fn parse_header<'a>(
    globals: &'a Globals,
    node: &'a Node,
    notes: &mut Notes,
) -> Option<Header<'a>> {
    let reject = |notes: &mut Notes, reason: &str| {
        node.reject(notes, reason);
        None
    };
    match node.word(1) {
        None => reject(notes, "the address is missing"),
        Some("group") => {
            field::note_extra_words(notes, node, 2);
            let Some(name) = node.word(2) else {
                return reject(notes, "the group's name is missing");
            };
            match globals.groups.get(name) {
                Some(group) => Some(Header::Group(name, group)),
                None => reject(
                    notes,
                    &format!("virtual_server_group {name} is not defined"),
                ),
            }
        }
        Some("fwmark") => {
            field::note_extra_words(notes, node, 2);
            let mark = node
                .word(2)
                .and_then(|word| field::parse_unsigned(word, 1, u32::MAX.into()));
            match mark {
                Some(mark) => Some(Header::Mark(mark)),
                None => reject(notes, "the firewall mark is missing or invalid"),
            }
        }
        Some(word) => {
            field::note_extra_words(notes, node, 2);
            match (word.parse().ok(), field::parse_port(node)) {
                (Some(address), Some(port)) => Some(Header::Address(address, port)),
                (_, None) => reject(notes, "invalid port"),
                (None, Some(port)) => {
                    let reason = format!(
                        "not imported: {word} is not an address; the servers are imported as a pool without a service"
                    );
                    notes.add(node.position, reason);
                    Some(Header::Unknown(word, port))
                }
            }
        }
    }
}

/// Returns whether the service is IPv6.
pub(super) fn is_ipv6(header: &Header<'_>, directives: &Directives, real_nodes: &[&Node]) -> bool {
    if let Some((ipv6, _)) = directives.family {
        return ipv6;
    }
    let first = match header {
        Header::Address(address, _) => return address.is_ipv6(),
        Header::Group(_, group) => group
            .addresses
            .first()
            .and_then(|block| block.addresses.first()),
        Header::Mark(_) | Header::Unknown(..) => None,
    };
    if let Some(address) = first {
        return address.is_ipv6();
    }
    let word = real_nodes.iter().find_map(|real| real.word(1));
    word.is_some_and(|word| word.contains(':'))
}

/// Adds notes about lines that would become keys of a service.
fn note_service_lines(directives: &Directives, notes: &mut Notes) {
    let lines = [
        directives.protocol.map(|(_, position)| position),
        directives.method.map(|(_, position)| position),
        directives.persistent.map(|(_, position)| position),
        directives
            .granularity
            .as_ref()
            .map(|(_, position)| *position),
        directives.ops,
    ];
    for position in lines.into_iter().flatten() {
        notes.add(
            position,
            "not imported: its virtual server is imported without a service",
        );
    }
}

/// Returns the listeners and their common port; 0 for any or several ports, or a firewall mark. Adds a note and returns
/// `None` if the virtual server is rejected.
pub(super) fn listeners(
    header: &Header<'_>,
    directives: &mut Directives,
    ipv6: bool,
    node: &Node,
    notes: &mut Notes,
) -> Option<(Vec<(String, Position)>, u16)> {
    let has_addresses = match header {
        Header::Mark(_) => false,
        Header::Address(..) | Header::Unknown(..) => true,
        Header::Group(_, group) => !group.addresses.is_empty(),
    };
    if has_addresses && directives.protocol.is_none() {
        notes.remark(node.position, "no protocol: UDP is used, as in keepalived");
    }
    if !has_addresses && let Some((_, position)) = directives.protocol {
        notes.remark(position, "not imported: a firewall mark has no protocol");
    }
    let protocol = directives.protocol.map_or("udp", |(protocol, _)| protocol);
    if has_addresses
        && protocol != "udp"
        && let Some(position) = directives.ops.take()
    {
        notes.remark(
            position,
            "not imported: one-packet scheduling is possible only for UDP",
        );
    }
    let position = directives
        .protocol
        .map_or(node.position, |(_, position)| position);
    if has_addresses && protocol == "sctp" {
        notes.add(position, "not imported: Weir does not balance SCTP");
        node.reject(notes, "Weir does not balance SCTP");
        return None;
    }
    Some(match header {
        Header::Unknown(_, port) => {
            note_service_lines(directives, notes);
            (Vec::new(), *port)
        }
        Header::Mark(number) => (vec![(mark_listener(*number, ipv6), node.position)], 0),
        Header::Address(address, port) => {
            let listen = listener(protocol, *address, *port);
            (vec![(listen, node.position)], *port)
        }
        Header::Group(_, group) => {
            let mut listen = Vec::new();
            for block in &group.addresses {
                let addresses = block.addresses.iter();
                listen.extend(
                    addresses
                        .map(|address| (listener(protocol, *address, block.port), block.position)),
                );
            }
            listen.extend(
                group
                    .marks
                    .iter()
                    .map(|(number, ipv6, position)| (mark_listener(*number, *ipv6), *position)),
            );
            let mut ports = group.addresses.iter().map(|block| block.port);
            let first = ports.next().unwrap_or(0);
            let is_common = group.marks.is_empty() && ports.all(|port| port == first);
            if listen.is_empty() {
                node.reject(notes, "the group has no valid entries");
                return None;
            }
            (listen, if is_common { first } else { 0 })
        }
    })
}
