//! Verifies services that listen on firewall marks, and reports the cost of the path through the kernel's stack.
//!
//! Reported problems are duplicate marks and disabled forwarding.

use std::collections::HashMap;

use weir_model::{Family, Mark};

use super::Machine;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredConfig, LoweredService};
use crate::view::Sink;

pub(super) fn verify(sink: &mut Sink<'_>, lowered: &LoweredConfig, host: &dyn Machine) {
    let mut first_uses: HashMap<Mark, (&LoweredService, usize)> = HashMap::new();
    for service in &lowered.services {
        for (index, mark) in service.service.marks.iter().enumerate() {
            match first_uses.get(mark) {
                Some((first, first_index)) => sink.push(
                    Diagnostic::new(
                        Code::DuplicateListener,
                        &service.marks[index],
                        format!("{mark} is used twice"),
                    )
                    .label(format!("service `{}`", service.service.name))
                    .related(
                        &first.marks[*first_index],
                        format!("service `{}`", first.service.name),
                    )
                    .fix("remove one of them, or use a different mark"),
                ),
                None => drop(first_uses.insert(*mark, (service, index))),
            }
        }
        report_costs(sink, service, host);
    }
}

/// Reports the costs of firewall mark services, and disabled forwarding.
fn report_costs(sink: &mut Sink<'_>, service: &LoweredService, host: &dyn Machine) {
    let Some(first) = service.marks.first() else {
        return;
    };
    let name = &service.service.name;
    sink.push(
        Diagnostic::new(
            Code::MarkOverhead,
            first,
            format!("packets for service `{name}` pass through the kernel's network stack"),
        )
        .cause(
            "a firewall rule sets the mark there; listeners with an address are balanced earlier",
        ),
    );
    for family in [Family::V4, Family::V6] {
        let key = match family {
            Family::V4 => "net.ipv4.ip_forward",
            Family::V6 => "net.ipv6.conf.all.forwarding",
        };
        let marks = service.service.marks.iter();
        let Some(index) = marks.clone().position(|mark| mark.family == family) else {
            continue;
        };
        if host.forwards(family) == Some(false) {
            sink.push(
                Diagnostic::new(
                    Code::NoForwarding,
                    &service.marks[index],
                    format!("{family} forwarding is disabled on this machine"),
                )
                .cause(
                    "packets with a mark are routed to Weir's mark device, which requires forwarding",
                )
                .fix(format!("set {key} = 1")),
            );
        }
    }
}
