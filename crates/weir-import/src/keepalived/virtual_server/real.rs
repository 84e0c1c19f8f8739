//! Parses `real_server` with its checkers.

use std::net::IpAddr;

use weir_model::Forward;

use super::directive::{Directives, fork_keyword_reason};
use super::notify::Program;
use crate::keepalived::Globals;
use crate::keepalived::checker::{CHECKERS, checks};
use crate::keepalived::field;
use crate::keepalived::method::parse_method;
use crate::keepalived::setting::{Level, Settings};
use crate::keepalived::tree::Node;
use crate::layer4::{Positioned, RealServer};
use crate::note::Notes;

/// Parses a real server. Returns `None` if keepalived ignores it.
pub(super) fn read_real_server(
    (globals, directives, ipv6): (&Globals, &Directives, bool),
    node: &Node,
    programs: &mut Vec<Program>,
    notes: &mut Notes,
) -> Option<RealServer> {
    field::note_extra_words(notes, node, 2);
    let address: Option<IpAddr> = node.word(1).and_then(|word| word.parse().ok());
    let (Some(address), Some(port)) = (address, field::parse_port(node)) else {
        node.reject(
            notes,
            "the address is missing, or the address or port is invalid",
        );
        return None;
    };
    let mut real = RealServer {
        position: node.position,
        address,
        port,
        weight: match directives.weight {
            Some((weight, position)) => Positioned::at(weight, position),
            None => Positioned::implied(1),
        },
        max_connections: None,
        min_connections: None,
        method: None,
        probes: Vec::new(),
    };
    let mut settings = Settings::default();
    let mut checkers = Vec::new();
    for inner in node.inner() {
        if CHECKERS.contains(&inner.keyword()) {
            checkers.push(inner);
        } else if matches!(inner.keyword(), "notify_up" | "notify_down") {
            programs.extend(Program::read(Some(node.position), inner, notes));
        } else if !settings.read_line(inner, Level::RealServer, notes) {
            read_real_directive(&mut real, inner, notes);
        }
    }
    let forward = real
        .method
        .or(directives.method)
        .map_or(Forward::Nat, |(method, _)| method.forward);
    if forward != Forward::Tunnel && address.is_ipv6() != ipv6 {
        node.reject(
            notes,
            "its address family differs from the service's, and keepalived skips it",
        );
        return None;
    }
    let own_settings = settings.clone();
    let settings = settings.with_defaults(&directives.settings);
    for checker in checkers {
        real.probes
            .extend(checks(globals, checker, &settings, notes));
    }
    if real.probes.is_empty() {
        own_settings.note_unused(notes);
    }
    Some(real)
}

/// Imports a directive of a real server, except for checkers and their settings.
fn read_real_directive(real: &mut RealServer, node: &Node, notes: &mut Notes) {
    match node.keyword() {
        "weight" => {
            if let Some((weight, position)) = field::parse_number(notes, node, 0, i32::MAX as u64) {
                real.weight = Positioned::at(weight, position);
            }
        }
        "lvs_method" => real.method = parse_method(notes, node),
        "uthreshold" => real.max_connections = field::parse_number(notes, node, 0, u32::MAX.into()),
        "lthreshold" => real.min_connections = field::parse_number(notes, node, 0, u32::MAX.into()),
        "smtp_alert" => node.reject(
            notes,
            "`[notify]` reports all servers of a pool: set smtp_alert in the virtual server",
        ),
        "snmp_name" => node.reject(notes, "Weir does not support SNMP"),
        keyword => match fork_keyword_reason(keyword) {
            Some(reason) => node.reject(notes, reason),
            None => node.ignore(
                notes,
                "keepalived has no such keyword in real_server, and ignores the line",
            ),
        },
    }
}
