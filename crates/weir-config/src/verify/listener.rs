//! Listeners that claim the same packets.

use weir_model::{Listener, Protocol};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{Lowered, LoweredService};
use crate::view::Sink;

/// The same address and port twice with the same precision; a more precise listener may lie in a wider one.
pub(super) fn listeners(sink: &mut Sink<'_>, lowered: &Lowered) {
    let mut all: Vec<(&LoweredService, usize, Listener)> = lowered
        .services
        .iter()
        .flat_map(|service| {
            service
                .service
                .listen
                .iter()
                .enumerate()
                .map(move |(at, listen)| (service, at, *listen))
        })
        .collect();
    all.sort_by_key(|(service, at, listener)| {
        let place = service.listen[*at].start;
        (
            listener.protocol,
            listener.address,
            listener.ports.specificity(),
            listener.ports.bounds(),
            place,
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
    for this in all.iter().skip(1) {
        let (a, b) = (widest, this);
        let same = class(&a.2) == class(&b.2);
        if same && b.2.ports.bounds().0 <= a.2.ports.bounds().1 {
            collision(sink, a, b);
        }
        if !same || b.2.ports.bounds().1 > a.2.ports.bounds().1 {
            widest = this;
        }
    }
}

fn collision(
    sink: &mut Sink<'_>,
    a: &(&LoweredService, usize, Listener),
    b: &(&LoweredService, usize, Listener),
) {
    let place = |of: &(&LoweredService, usize, Listener)| of.0.listen[of.1].clone();
    let (first, again) = if place(a).start <= place(b).start {
        (a, b)
    } else {
        (b, a)
    };
    let message = if first.2 == again.2 {
        format!("{} is claimed twice", again.2)
    } else {
        format!("{} overlaps {}", again.2, first.2)
    };
    let owner =
        |of: &(&LoweredService, usize, Listener)| format!("service `{}`", of.0.service.name);
    sink.push(
        Diagnostic::new(Code::DuplicateListener, &place(again), message)
            .label(owner(again))
            .also(&place(first), owner(first))
            .cause("an exact port comes before a range and a range before `*`; between equals nothing decides")
            .fix("take one of them out, or change its address or ports"),
    );
}

/// XDP takes a service's packets before any socket of this machine sees them.
pub(super) fn admin(sink: &mut Sink<'_>, lowered: &Lowered) {
    let (Some(admin), Some(place)) = (&lowered.node.admin, &lowered.admin) else {
        return;
    };
    let admin = admin.listen;
    let meets = |listener: &Listener| {
        let same = admin.ip().is_unspecified() || admin.ip() == listener.address;
        same && listener.protocol == Protocol::Tcp && listener.ports.contains(admin.port())
    };
    for service in &lowered.services {
        let met = service.service.listen.iter().position(meets);
        let Some(listen) = met.and_then(|at| service.listen.get(at)) else {
            continue;
        };
        let name = &service.service.name;
        sink.push(
            Diagnostic::new(
                Code::AdminShadowed,
                place,
                format!("service `{name}` takes the packets of `admin`"),
            )
            .also(
                listen,
                "this listener is balanced before any socket is asked",
            )
            .fix("choose another port or address for `admin`"),
        );
    }
}
