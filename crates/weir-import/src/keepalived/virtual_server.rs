//! `virtual_server` with its real servers.

mod directive;
mod header;
mod real;

use weir_model::Forward;

use self::directive::{Directives, PERSISTENT_S, Sorry, directive};
use self::header::{Header, header, is_ipv6, listen};
use self::real::real_server;
use super::Globals;
use super::field;
use super::tree::Node;
use crate::layer4::{Method, Persistent, Real, Said, Virtual, Writer, mask_length, name_of};
use crate::note::Notes;

pub(super) fn write(writer: &mut Writer, globals: &Globals, node: &Node, notes: &mut Notes) {
    let Some(header) = header(globals, node, notes) else {
        return;
    };
    let mut directives = Directives::default();
    let mut reals = Vec::new();
    for inner in node.inner() {
        if inner.keyword() == "real_server" {
            reals.push(inner);
        } else {
            directive(&mut directives, inner, notes);
        }
    }
    let ipv6 = is_ipv6(&header, &directives, &reals);
    let Some((listen, port)) = listen(&header, &mut directives, ipv6, node, notes) else {
        return;
    };
    let mut found: Vec<Real> = Vec::new();
    for real in reals {
        found.extend(real_server(globals, &directives, real, ipv6, notes));
    }
    if let Header::Address(..) = header {
        same_port(&mut found, &directives, port, notes);
    }
    if found.is_empty() {
        node.refuse(
            notes,
            "keepalived ignores a virtual server without real servers",
        );
        return;
    }
    if found.iter().all(|real| real.probes.is_empty()) {
        directives.settings.unused(notes);
    }
    let (method, scheduler) = implied(&directives, &found, node, notes);
    let name = match &header {
        Header::Group(name, _) => (*name).to_owned(),
        _ => listen
            .first()
            .map_or(String::new(), |(listen, _)| name_of(listen)),
    };
    judge_quorum(&mut directives, &found, notes);
    let persistent = persistence(&directives, ipv6, node, notes);
    if persistent.is_some() && listen.len() > 1 {
        let why = "clients stay with their server over all addresses of the group; with keepalived each had its own";
        notes.say(node.place, why);
    }
    let sorry = sorry_server(directives.sorry, &method.value, ipv6, notes);
    let of = Virtual {
        from: node.place,
        name,
        listen,
        port,
        method,
        scheduler,
        flags: directives.flags,
        persistent,
        one_packet: directives.ops,
        reals: found,
        sorry,
        quorum: directives.quorum,
        hysteresis: directives.hysteresis,
        lines: node.lines(),
    };
    writer.write(of, notes);
}

/// Method and scheduler, where nothing is written those that keepalived has.
fn implied(
    of: &Directives,
    reals: &[Real],
    node: &Node,
    notes: &mut Notes,
) -> (Said<Method>, Said<String>) {
    if of.method.is_none() && reals.iter().any(|real| real.method.is_none()) {
        notes.remark(node.place, "no lvs_method: NAT, as keepalived has it");
    }
    if of.scheduler.is_none() {
        notes.remark(node.place, "no lvs_sched: wlc, as keepalived has it");
    }
    let method = of.method.map_or(
        Said::implied(Method::plain(Forward::Nat)),
        |(method, place)| Said::at(method, place),
    );
    let scheduler = match &of.scheduler {
        Some((name, place)) => Said::at(name.clone(), *place),
        None => Said::implied("wlc".to_owned()),
    };
    (method, scheduler)
}

/// Where the client's port stays, a real server has no other.
fn same_port(reals: &mut [Real], of: &Directives, port: u16, notes: &mut Notes) {
    for real in reals {
        let method = real.method.or(of.method);
        let nat = method.is_none_or(|(method, _)| method.forward == Forward::Nat);
        if nat && real.port == 0 {
            real.port = port;
        } else if !nat && real.port != port {
            if real.port != 0 {
                let why = format!(
                    "port {} became {port}, the service's, as keepalived has it",
                    real.port
                );
                notes.remark(real.from, why);
            }
            real.port = port;
        }
    }
}

fn persistence(of: &Directives, ipv6: bool, node: &Node, notes: &mut Notes) -> Option<Persistent> {
    let mask = of.granularity.as_ref().and_then(|(word, place)| {
        let bits = match ipv6 {
            true => field::within(word, 1, 128).and_then(|bits| u8::try_from(bits).ok()),
            false => mask_length(word),
        };
        if bits.is_none() {
            notes.say(
                *place,
                format!("not carried over: {word} is no mask of the service's family"),
            );
        }
        bits.map(|bits| (bits, *place))
    });
    let any_port = node.word(1) != Some("group") && node.word(1) != Some("fwmark") && {
        let port = node.word(2).unwrap_or("0");
        port.bytes().all(|byte| byte == b'0')
    };
    if any_port && of.persistent.is_none() && mask.is_none() {
        notes.remark(
            node.place,
            "without a port it is persistent for 6 minutes, as keepalived has it",
        );
    }
    let implied = (mask.is_some() || any_port).then_some((PERSISTENT_S, node.place));
    let (seconds, from) = of.persistent.or(implied)?;
    Some(Persistent {
        from,
        seconds,
        mask,
        ipv6,
    })
}

fn judge_quorum(of: &mut Directives, reals: &[Real], notes: &mut Notes) {
    let sum: u64 = reals.iter().map(|real| real.weight.value).sum();
    if let Some((quorum, place)) = &mut of.quorum
        && *quorum > sum
    {
        notes.remark(
            *place,
            format!("the quorum became {sum}, the sum of all weights, as keepalived has it"),
        );
        *quorum = sum;
    }
    let quorum = of.quorum.map_or(1, |(quorum, _)| quorum);
    if let Some((hysteresis, place)) = &mut of.hysteresis
        && *hysteresis >= quorum
    {
        let most = quorum.saturating_sub(1);
        if *hysteresis > 0 {
            notes.remark(
                *place,
                format!("the hysteresis became {most}, as keepalived has it"),
            );
        }
        *hysteresis = most;
    }
}

fn sorry_server(
    sorry: Option<Sorry>,
    service: &Method,
    ipv6: bool,
    notes: &mut Notes,
) -> Option<Real> {
    let sorry = sorry?;
    let method = sorry.method.map_or(*service, |(method, _)| method);
    if method.forward != Forward::Tunnel && sorry.address.is_ipv6() != ipv6 {
        notes.say(
            sorry.place,
            "not carried over: it is not of the service's family",
        );
        return None;
    }
    Some(Real {
        from: sorry.place,
        address: sorry.address,
        port: sorry.port,
        weight: Said::implied(1),
        most: None,
        least: None,
        method: sorry.method,
        probes: Vec::new(),
    })
}
