//! `real_server` with its checkers.

use std::net::IpAddr;

use weir_model::Forward;

use super::directive::{Directives, other_keepalived};
use crate::keepalived::Globals;
use crate::keepalived::checker::{CHECKERS, checks};
use crate::keepalived::field;
use crate::keepalived::method::method;
use crate::keepalived::setting::{Level, Settings};
use crate::keepalived::tree::Node;
use crate::layer4::{Real, Said};
use crate::note::Notes;

/// Reads one; `None` = keepalived would not have it.
pub(super) fn real_server(
    globals: &Globals,
    of: &Directives,
    node: &Node,
    ipv6: bool,
    notes: &mut Notes,
) -> Option<Real> {
    field::no_further(notes, node, 2);
    let address: Option<IpAddr> = node.word(1).and_then(|word| word.parse().ok());
    let (Some(address), Some(port)) = (address, field::port(node)) else {
        node.refuse(notes, "it names no address, or no port");
        return None;
    };
    let mut real = Real {
        from: node.place,
        address,
        port,
        weight: match of.weight {
            Some((weight, place)) => Said::at(weight, place),
            None => Said::implied(1),
        },
        most: None,
        least: None,
        method: None,
        probes: Vec::new(),
    };
    let mut settings = Settings::default();
    let mut checkers = Vec::new();
    for inner in node.inner() {
        if CHECKERS.contains(&inner.keyword()) {
            checkers.push(inner);
        } else if !settings.take(inner, Level::Real, notes) {
            real_directive(&mut real, inner, notes);
        }
    }
    let forward = real
        .method
        .or(of.method)
        .map_or(Forward::Nat, |(method, _)| method.forward);
    if forward != Forward::Tunnel && address.is_ipv6() != ipv6 {
        node.refuse(
            notes,
            "it is not of the service's family, and keepalived skips it",
        );
        return None;
    }
    let own = settings.clone();
    let settings = settings.within(&of.settings);
    for checker in checkers {
        real.probes
            .extend(checks(globals, checker, &settings, notes));
    }
    if real.probes.is_empty() {
        own.unused(notes);
    }
    Some(real)
}

/// Directives of a real server beside its checkers and their settings.
fn real_directive(real: &mut Real, node: &Node, notes: &mut Notes) {
    match node.keyword() {
        "weight" => {
            if let Some((weight, place)) = field::number(notes, node, 0, i32::MAX as u64) {
                real.weight = Said::at(weight, place);
            }
        }
        "lvs_method" => real.method = method(notes, node),
        "uthreshold" => real.most = field::number(notes, node, 0, u32::MAX.into()),
        "lthreshold" => real.least = field::number(notes, node, 0, u32::MAX.into()),
        "notify_up" | "notify_down" => {
            node.refuse(
                notes,
                "`notify` of the pool calls a program on every change of a server",
            );
        }
        "smtp_alert" => node.refuse(
            notes,
            "Weir sends no mail; `notify` of the pool calls a program",
        ),
        "snmp_name" => node.refuse(notes, "Weir speaks no SNMP"),
        keyword => {
            let why = other_keepalived(keyword);
            node.refuse(
                notes,
                why.unwrap_or("keepalived knows no such keyword in real_server"),
            );
        }
    }
}
