//! Converts `virtual_server` blocks with their real servers.

mod directive;
mod header;
mod notify;
mod real;

use weir_model::Forward;

use self::directive::{Directives, PERSISTENCE_TIMEOUT_S, SorryServer, read_directive};
use self::header::{Header, is_ipv6, listeners, parse_header};
use self::notify::Program;
use self::real::read_real_server;
use super::Globals;
use super::field::{self, Located};
use super::tree::Node;
use crate::layer4::{
    MAX_SERVICES, Method, Persistence, Positioned, RealServer, VirtualService, Writer, mask_length,
    service_name,
};
use crate::mail::Mail;
use crate::note::{Notes, Position};

/// Writes a virtual server: its pool, checks and services.
pub(super) fn write(writer: &mut Writer, globals: &Globals, node: &Node, notes: &mut Notes) {
    let Some(header) = parse_header(globals, node, notes) else {
        return;
    };
    let mut directives = Directives::default();
    let mut real_nodes = Vec::new();
    let mut programs = Vec::new();
    for inner in node.inner() {
        if matches!(inner.keyword(), "quorum_up" | "quorum_down") {
            programs.extend(Program::read(None, inner, notes));
        } else if inner.keyword() == "real_server" {
            real_nodes.push(inner);
        } else {
            read_directive(&mut directives, inner, notes);
        }
    }
    let ipv6 = is_ipv6(&header, &directives, &real_nodes);
    let Some((listen, port)) = listeners(&header, &mut directives, ipv6, node, notes) else {
        return;
    };
    let mut real_servers: Vec<RealServer> = Vec::new();
    for real in real_nodes {
        let context = (globals, &directives, ipv6);
        real_servers.extend(read_real_server(context, real, &mut programs, notes));
    }
    note_omega(&directives, node, notes);
    if let Header::Address(..) = header {
        set_ports(&mut real_servers, &directives, port, notes);
    }
    if real_servers.is_empty() {
        node.reject(
            notes,
            "keepalived ignores a virtual server without real servers",
        );
        return;
    }
    if real_servers.iter().all(|real| real.probes.is_empty()) {
        directives.settings.note_unused(notes);
    }
    let (method, scheduler) = method_and_scheduler(&directives, &real_servers, node, notes);
    limit_quorum(&mut directives, &real_servers, notes);
    let persistent = persistence(&directives, ipv6, node, notes);
    if persistent.is_some() && listen.len() > MAX_SERVICES {
        let reason = "persistence covers all addresses of the group; in keepalived, it is separate for each address";
        notes.add(node.position, reason);
    }
    let sorry = sorry_server(directives.sorry, &method.value, ipv6, notes);
    let spec = VirtualService {
        position: node.position,
        name: name_of_service(&header, &listen),
        listen,
        port,
        method,
        scheduler,
        flags: directives.flags,
        persistent,
        one_packet: directives.ops,
        real_servers,
        sorry,
        quorum: directives.quorum,
        hysteresis: directives.hysteresis,
        lines: node.block_positions(),
    };
    let pool = writer.write(spec, notes);
    add_programs(writer, &pool, &programs, notes);
    let alerts = directives.alerts.or(globals.alerts);
    if let (Some((_, position)), true) = (directives.alerts, globals.mail.to.is_empty()) {
        notes.remark(position, "not imported: there is no notification_email");
    }
    writer.mails.extend(mail_settings(globals, alerts, pool));
}

/// Adds a note about `omega`, with which keepalived runs the `notify_down` and `quorum_down` programs when it stops.
fn note_omega(directives: &Directives, node: &Node, notes: &mut Notes) {
    let Some(position) = directives.omega else {
        return;
    };
    let is_program = |node: &Node| matches!(node.keyword(), "quorum_down" | "notify_down");
    let mut lines = node.inner().iter();
    if lines.any(|line| is_program(line) || line.inner().iter().any(is_program)) {
        notes.add(
            position,
            "not imported: Weir does not run programs when the daemon stops",
        );
    } else {
        notes.remark(position, "not imported: there are no programs to run");
    }
}

/// Adds the programs to run for state changes of the pool and its servers.
fn add_programs(writer: &mut Writer, pool: &str, programs: &[Program], notes: &mut Notes) {
    let mut tables = writer.document.tables.iter_mut();
    if let Some(table) = tables.find(|it| it.path == ["pool", pool]) {
        notify::write(table, programs, notes);
    }
}

/// Returns the name of the service and its pool.
fn name_of_service(header: &Header<'_>, listen: &[(String, Position)]) -> String {
    match header {
        Header::Group(name, _) => (*name).to_owned(),
        Header::Unknown(word, port) => {
            let name = word.trim_matches(['{', '}', '<', '>', '$']);
            format!("{name}-{port}")
        }
        Header::Address(..) | Header::Mark(_) => listen
            .first()
            .map_or(String::new(), |(listen, _)| service_name(listen)),
    }
}

/// Returns the email alerts of a virtual server, if they are enabled.
fn mail_settings(globals: &Globals, alerts: Located<bool>, pool: String) -> Option<Mail> {
    let is_on = alerts.is_some_and(|(is_on, _)| is_on);
    (is_on && !globals.mail.to.is_empty()).then(|| Mail {
        pools: vec![pool],
        ..globals.mail.clone()
    })
}

/// Returns the method and the scheduler, or keepalived's defaults.
fn method_and_scheduler(
    directives: &Directives,
    real_servers: &[RealServer],
    node: &Node,
    notes: &mut Notes,
) -> (Positioned<Method>, Positioned<String>) {
    if directives.method.is_none() && real_servers.iter().any(|real| real.method.is_none()) {
        notes.remark(
            node.position,
            "no lvs_method: NAT is used, as in keepalived",
        );
    }
    if directives.scheduler.is_none() {
        notes.remark(node.position, "no lvs_sched: wlc is used, as in keepalived");
    }
    let method = directives.method.map_or(
        Positioned::implied(Method::plain(Forward::Nat)),
        |(method, position)| Positioned::at(method, position),
    );
    let scheduler = match &directives.scheduler {
        Some((name, position)) => Positioned::at(name.clone(), *position),
        None => Positioned::implied("wlc".to_owned()),
    };
    (method, scheduler)
}

/// Sets the port of real servers to the service's port if their forwarding method cannot change the port, or if they
/// have no port.
fn set_ports(
    real_servers: &mut [RealServer],
    directives: &Directives,
    port: u16,
    notes: &mut Notes,
) {
    for real in real_servers {
        let method = real.method.or(directives.method);
        let is_nat = method.is_none_or(|(method, _)| method.forward == Forward::Nat);
        if is_nat && real.port == 0 {
            real.port = port;
        } else if !is_nat && real.port != port {
            if real.port != 0 {
                let reason = format!(
                    "port {} was changed to {port}, the port of the service, as in keepalived",
                    real.port
                );
                notes.remark(real.position, reason);
            }
            real.port = port;
        }
    }
}

fn persistence(
    directives: &Directives,
    ipv6: bool,
    node: &Node,
    notes: &mut Notes,
) -> Option<Persistence> {
    let mask = directives
        .granularity
        .as_ref()
        .and_then(|(word, position)| {
            let length = match ipv6 {
                true => {
                    field::parse_unsigned(word, 1, 128).and_then(|length| u8::try_from(length).ok())
                }
                false => mask_length(word),
            };
            if length.is_none() {
                notes.add(
                    *position,
                    format!(
                        "not imported: {word} is not a valid mask for the service's address family"
                    ),
                );
            }
            length.map(|length| (length, *position))
        });
    let any_port = node.word(1) != Some("group") && node.word(1) != Some("fwmark") && {
        let port = node.word(2).unwrap_or("0");
        port.bytes().all(|byte| byte == b'0')
    };
    if any_port && directives.persistent.is_none() && mask.is_none() {
        notes.remark(
            node.position,
            "a service without a port is persistent for 6 minutes, as in keepalived",
        );
    }
    let implied = (mask.is_some() || any_port).then_some((PERSISTENCE_TIMEOUT_S, node.position));
    let (seconds, position) = directives.persistent.or(implied)?;
    Some(Persistence {
        position,
        seconds,
        mask,
        ipv6,
    })
}

fn limit_quorum(directives: &mut Directives, real_servers: &[RealServer], notes: &mut Notes) {
    let sum: u64 = real_servers.iter().map(|real| real.weight.value).sum();
    if let Some((quorum, position)) = &mut directives.quorum
        && *quorum > sum
    {
        notes.remark(
            *position,
            format!("the quorum was changed to {sum}, the sum of all weights, as in keepalived"),
        );
        *quorum = sum;
    }
    let quorum = directives.quorum.map_or(1, |(quorum, _)| quorum);
    if let Some((hysteresis, position)) = &mut directives.hysteresis
        && *hysteresis >= quorum
    {
        let max = quorum.saturating_sub(1);
        if *hysteresis > 0 {
            notes.remark(
                *position,
                format!("the hysteresis was changed to {max}, as in keepalived"),
            );
        }
        *hysteresis = max;
    }
}

fn sorry_server(
    sorry: Option<SorryServer>,
    service_method: &Method,
    ipv6: bool,
    notes: &mut Notes,
) -> Option<RealServer> {
    let sorry = sorry?;
    let method = sorry.method.map_or(*service_method, |(method, _)| method);
    if method.forward != Forward::Tunnel && sorry.address.is_ipv6() != ipv6 {
        notes.add(
            sorry.position,
            "not imported: its address family differs from the service's",
        );
        return None;
    }
    Some(RealServer {
        position: sorry.position,
        address: sorry.address,
        port: sorry.port,
        weight: Positioned::implied(1),
        max_connections: None,
        min_connections: None,
        method: sorry.method,
        probes: Vec::new(),
    })
}
