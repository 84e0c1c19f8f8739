//! Lowers `[service.NAME]`.

use std::net::IpAddr;
use std::ops::Range;

use weir_model::{Forward, LocalClient, Persistence, Service, Snat};

use super::{LoweredService, listen, report_error, tunnel};
use crate::address::{self, Layer4Listener};
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Entry, Table, Value};
use crate::view::{Sink, View, text, wrong_type};

pub(super) fn service(sink: &mut Sink<'_>, entry: &Entry<'_>, table: &Table<'_>) -> LoweredService {
    let view = View::open(sink, &catalog::SERVICE, table, &entry.key_span);
    super::proxy::report_keys_of_other_kind(sink, &view, false);
    let forward = view.choice(sink, "forward", &Forward::ALL, Forward::as_str);
    let pool = view.text(sink, "pool");
    let mut service = Service::new(
        entry.key.as_ref(),
        forward.unwrap_or(Forward::Nat),
        pool.map_or(String::new(), |(name, _)| name.to_owned()),
    );
    service.source = sink.lines.source(entry.key_span.start);
    let (mut listen, mut marks) = (Vec::new(), Vec::new());
    for (listener, span) in listeners(sink, &view) {
        match listener {
            Layer4Listener::Address(listener) => {
                service.listen.push(listener);
                listen.push(span);
            }
            Layer4Listener::Mark(mark) => {
                service.marks.push(mark);
                marks.push(span);
            }
        }
    }
    let written_tunnel = view
        .get("tunnel")
        .and_then(|(entry, kind)| tunnel(sink, entry, kind));
    service.tunnel = written_tunnel.unwrap_or_default();
    service.snat = view
        .get("snat")
        .and_then(|(entry, kind)| snat(sink, entry, kind));
    let dscp = view
        .integer(sink, "dscp")
        .and_then(|dscp| u8::try_from(dscp).ok());
    service.dscp = dscp.unwrap_or(Service::DEFAULT_DSCP);
    service.strict_ipvs = view.flag(sink, "strict_ipvs").unwrap_or(false);
    service.persistence = view
        .get("persistence")
        .and_then(|(entry, kind)| persistence(sink, entry, kind, &mut service.persistent_client));
    let cgroup = view.text(sink, "cgroup");
    service.cgroup = cgroup.map(|(path, _)| path.to_owned());
    service.one_packet = view.flag(sink, "one_packet").unwrap_or(false);
    let span = |name| view.get(name).map(|(entry, _)| entry.item.span.clone());
    LoweredService {
        name: entry.key_span.clone(),
        listen,
        marks,
        pool: pool.map(|(_, span)| span.clone()),
        forward: forward.and_then(|_| span("forward")),
        tunnel: written_tunnel.and_then(|_| span("tunnel")),
        snat: service.snat.is_some().then(|| span("snat")).flatten(),
        dscp: dscp.and_then(|_| span("dscp")),
        cgroup: cgroup.map(|(_, span)| span.clone()),
        persistence: span("persistence"),
        strict_ipvs: service.strict_ipvs.then(|| span("strict_ipvs")).flatten(),
        one_packet: service.one_packet.then(|| span("one_packet")).flatten(),
        service,
    }
}

fn listeners(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<(Layer4Listener, Range<usize>)> {
    let mut listeners = Vec::new();
    for (text, span) in listen(sink, view, "192.0.2.10:80") {
        match address::parse_layer_4_listener(text) {
            Ok(listener) => listeners.push((listener, span.clone())),
            Err(error) => report_error(sink, span, error),
        }
    }
    listeners
}

fn snat(sink: &mut Sink<'_>, entry: &Entry<'_>, kind: &Kind) -> Option<Snat> {
    let table = match &entry.item.value {
        Value::Bool(is_on) => return is_on.then(Snat::default),
        Value::Table(table) => table,
        _ => {
            sink.push(wrong_type(&entry.item, kind));
            return None;
        }
    };
    let view = View::open(sink, &catalog::SNAT, table, &entry.key_span);
    let mut snat = Snat {
        addresses: addresses(sink, &view),
        ..Snat::default()
    };
    if let Some((text, span)) = view.text(sink, "ports") {
        match address::parse_port_range(text) {
            Ok(ports) => snat.ports = ports,
            Err(error) => report_error(sink, span, error),
        }
    }
    Some(snat)
}

fn persistence(
    sink: &mut Sink<'_>,
    entry: &Entry<'_>,
    kind: &Kind,
    client: &mut LocalClient,
) -> Option<Persistence> {
    let table = match &entry.item.value {
        Value::Bool(is_on) => return is_on.then(Persistence::default),
        Value::Table(table) => table,
        _ => {
            sink.push(wrong_type(&entry.item, kind));
            return None;
        }
    };
    let view = View::open(sink, &catalog::PERSISTENCE, table, &entry.key_span);
    *client = view
        .choice(sink, "client", &LocalClient::ALL, LocalClient::as_str)
        .unwrap_or_default();
    let default = Persistence::default();
    let mut prefix = |name, default| {
        view.integer(sink, name)
            .and_then(|prefix| u8::try_from(prefix).ok())
            .unwrap_or(default)
    };
    Some(Persistence {
        netmask: prefix("netmask", default.netmask),
        netmask6: prefix("netmask6", default.netmask6),
        timeout: view.whole_seconds(sink, "timeout", default.timeout),
    })
}

fn addresses(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for item in view.list(sink, "addresses").unwrap_or_default() {
        let Some((text, span)) = text(sink, item, &Kind::Address) else {
            continue;
        };
        match address::parse_server(text) {
            Ok((address, None)) if addresses.contains(&address) => sink.push(
                Diagnostic::new(
                    Code::DuplicateEntry,
                    span,
                    format!("{address} is listed twice"),
                )
                .fix("remove one of them"),
            ),
            Ok((address, None)) => addresses.push(address),
            Ok((address, Some(_))) => sink.push(
                Diagnostic::new(
                    Code::BadAddress,
                    span,
                    format!("a port is not allowed in `{text}`"),
                )
                .fix(format!("write \"{address}\"; `ports` sets the ports")),
            ),
            Err(error) => report_error(sink, span, error),
        }
    }
    addresses
}
