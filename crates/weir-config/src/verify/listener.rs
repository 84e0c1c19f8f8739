//! Reports conflicting listeners, and services that hide the API.

use weir_model::{Listener, Protocol};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredConfig, LoweredService};
use crate::view::Sink;

/// Reports listeners with the same address, port and precedence. A more specific listener can overlap a less specific
/// one.
pub(super) fn verify(sink: &mut Sink<'_>, lowered: &LoweredConfig) {
    let mut all: Vec<(&LoweredService, usize, Listener)> = lowered
        .services
        .iter()
        .flat_map(|service| {
            service
                .service
                .listen
                .iter()
                .enumerate()
                .map(move |(index, listen)| (service, index, *listen))
        })
        .collect();
    all.sort_by_key(|(service, index, listener)| {
        let location = service.listen[*index].start;
        (
            listener.protocol,
            listener.address,
            listener.ports.specificity(),
            listener.ports.bounds(),
            location,
        )
    });
    let class = |listener: &Listener| {
        (
            listener.protocol,
            listener.address,
            listener.ports.specificity(),
        )
    };
    let Some(mut widest) = all.first() else {
        return;
    };
    for current in all.iter().skip(1) {
        let is_same_class = class(&widest.2) == class(&current.2);
        if is_same_class && current.2.ports.bounds().0 <= widest.2.ports.bounds().1 {
            report_collision(sink, widest, current);
        }
        if !is_same_class || current.2.ports.bounds().1 > widest.2.ports.bounds().1 {
            widest = current;
        }
    }
}

fn report_collision(
    sink: &mut Sink<'_>,
    a: &(&LoweredService, usize, Listener),
    b: &(&LoweredService, usize, Listener),
) {
    let location = |it: &(&LoweredService, usize, Listener)| it.0.listen[it.1].clone();
    let (first, second) = if location(a).start <= location(b).start {
        (a, b)
    } else {
        (b, a)
    };
    let message = if first.2 == second.2 {
        format!("{} is used twice", second.2)
    } else {
        format!("{} overlaps {}", second.2, first.2)
    };
    let owner =
        |it: &(&LoweredService, usize, Listener)| format!("service `{}`", it.0.service.name);
    sink.push(
        Diagnostic::new(Code::DuplicateListener, &location(second), message)
            .label(owner(second))
            .related(&location(first), owner(first))
            .cause("an exact port takes precedence over a range, and a range over `*`; between listeners with the same \
                precedence the choice is ambiguous")
            .fix("remove one of them, or change its address or ports"),
    );
}

/// Reports services that hide the API: the data plane processes packets before local sockets.
pub(super) fn report_shadowed_admin(sink: &mut Sink<'_>, lowered: &LoweredConfig) {
    let (Some(admin), Some(location)) = (&lowered.node.admin, &lowered.admin) else {
        return;
    };
    let admin = admin.listen;
    let covers_admin = |listener: &Listener| {
        let has_address = admin.ip().is_unspecified() || admin.ip() == listener.address;
        has_address && listener.protocol == Protocol::Tcp && listener.ports.contains(admin.port())
    };
    for service in &lowered.services {
        let shadowing = service.service.listen.iter().position(covers_admin);
        let Some(listen) = shadowing.and_then(|index| service.listen.get(index)) else {
            continue;
        };
        let name = &service.service.name;
        sink.push(
            Diagnostic::new(
                Code::AdminShadowed,
                location,
                format!("service `{name}` receives the packets for `admin`"),
            )
            .related(
                listen,
                "packets to this listener are balanced before they reach a local socket",
            )
            .fix("use another port or address for `admin`"),
        );
    }
}
