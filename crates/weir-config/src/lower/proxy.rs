//! Lowers `[service.NAME]` with `forward = "proxy"`.

use std::net::SocketAddr;
use std::ops::Range;

use weir_model::{
    HashKey, Ports, Protocol, Proxy, ProxyLimits, ProxyProtocol, ProxyTimeouts, Underscores,
};

use super::route::header_edits;
use super::{access_log, basic_auth, listen, path, report_error, response, retry, scheduler, tls};
use crate::address;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Section;
use crate::tree::{Entry, Table, Value};
use crate::view::{Sink, View, wrong_type};

/// Keys that apply only to layer 4 services.
const LAYER_4_KEYS: [&str; 7] = [
    "tunnel",
    "snat",
    "dscp",
    "cgroup",
    "strict_ipvs",
    "one_packet",
    "persistence",
];
/// Keys that apply only to proxy services, with either protocol.
const PROXY_KEYS: [&str; 8] = [
    "tls",
    "protocol",
    "timeouts",
    "limits",
    "retry_on",
    "trusted",
    "proxy_protocol",
    "access_log",
];

/// Keys that apply only to `http` services.
const HTTP_KEYS: [&str; 21] = [
    "http2",
    "forwarded",
    "x_forwarded",
    "set_header",
    "add_header",
    "remove_header",
    "set_response_header",
    "add_response_header",
    "remove_response_header",
    "replace_response_header",
    "normalize_path",
    "underscores",
    "connect",
    "abort_on_close",
    "request_buffering",
    "error_pages",
    "compression",
    "basic_auth",
    "request_id",
    "client_ip_header",
    "client_ip_recursive",
];

/// Keys of `limits` that apply only to `http` services.
pub(crate) const HTTP_LIMITS: [&str; 11] = [
    "head",
    "fields",
    "idle_servers",
    "server_requests",
    "streams",
    "resets",
    "body",
    "rate",
    "burst",
    "concurrent",
    "key",
];

/// A proxy service and the positions of its parts.
pub(crate) struct LoweredProxy {
    pub(crate) proxy: Proxy,
    pub(crate) name: Range<usize>,
    /// Positions of the service's listeners.
    pub(crate) listen: Vec<Range<usize>>,
    /// `None` = missing or invalid, and reported.
    pub(crate) pool: Option<Range<usize>>,
}

/// Returns whether a service's table has `forward = "proxy"`.
pub(super) fn is_proxy(table: &Table<'_>) -> bool {
    let forward = table.entries.iter().find(|entry| entry.key == "forward");
    forward.is_some_and(
        |entry| matches!(&entry.item.value, Value::Text(keyword) if keyword == catalog::PROXY),
    )
}

/// Returns whether a key applies to a service with the `forward` and `protocol` of this table.
pub(crate) fn is_key_of_service(service: &Table<'_>, key: &str) -> bool {
    let text = |name: &str| {
        let entry = service.entries.iter().find(|entry| entry.key == name)?;
        match &entry.item.value {
            Value::Text(text) => Some(&**text),
            _ => None,
        }
    };
    if is_proxy(service) {
        return !LAYER_4_KEYS.contains(&key)
            && (text("protocol") != Some("tcp") || !HTTP_KEYS.contains(&key));
    }
    let required_forward = match key {
        "tunnel" => "tunnel",
        "snat" => "nat",
        "dscp" => "l3dsr",
        "cgroup" => "socket",
        _ => return !PROXY_KEYS.contains(&key) && !HTTP_KEYS.contains(&key),
    };
    text("forward") == Some(required_forward)
}

/// Reports keys that only apply to the other kind of service.
pub(super) fn report_keys_of_other_kind(sink: &mut Sink<'_>, view: &View<'_, '_>, is_proxy: bool) {
    if is_proxy {
        report_without_effect(
            sink,
            view,
            &LAYER_4_KEYS,
            "it does not apply to proxy services",
        );
        return;
    }
    for keys in [&PROXY_KEYS[..], &HTTP_KEYS] {
        report_without_effect(sink, view, keys, "it applies only to forward = \"proxy\"");
    }
}

/// Reports each of `keys` that is set, because it has no effect.
fn report_without_effect(sink: &mut Sink<'_>, view: &View<'_, '_>, keys: &[&str], cause: &str) {
    for key in keys {
        if let Some((entry, _)) = view.get(key) {
            sink.push(
                Diagnostic::new(
                    Code::NoEffect,
                    &entry.key_span,
                    format!("`{key}` has no effect here"),
                )
                .cause(cause)
                .fix(format!("remove `{key}`")),
            );
        }
    }
}

pub(super) fn proxy(sink: &mut Sink<'_>, entry: &Entry<'_>, table: &Table<'_>) -> LoweredProxy {
    let view = View::open(sink, &catalog::SERVICE, table, &entry.key_span);
    report_keys_of_other_kind(sink, &view, true);
    let protocol = view.choice(sink, "protocol", &ProxyProtocol::ALL, ProxyProtocol::as_str);
    if view.get("protocol").is_none() {
        sink.push(
            Diagnostic::new(
                Code::MissingKey,
                &entry.key_span,
                "`protocol` is missing in this proxy service",
            )
            .fix("add protocol = \"http\" or protocol = \"tcp\""),
        );
    }
    const NOT_FOR_TCP: &str = "it does not apply to protocol = \"tcp\"";
    let is_tcp = protocol == Some(ProxyProtocol::Tcp);
    if is_tcp {
        report_without_effect(sink, &view, &HTTP_KEYS, NOT_FOR_TCP);
    }
    let pool = view.text(sink, "pool");
    let mut proxy = Proxy::new(
        entry.key.as_ref(),
        protocol.unwrap_or(ProxyProtocol::Tcp),
        pool.map_or(String::new(), |(name, _)| name.to_owned()),
    );
    proxy.source = sink.lines.source(entry.key_span.start);
    let (addresses, listen) = listeners(sink, &view).into_iter().unzip();
    proxy.listen = addresses;
    if let Some(view) = open_table(sink, &view, "timeouts", &catalog::PROXY_TIMEOUTS) {
        proxy.timeouts = timeouts(sink, &view);
    }
    if let Some(view) = open_table(sink, &view, "limits", &catalog::PROXY_LIMITS) {
        if is_tcp {
            report_without_effect(sink, &view, &HTTP_LIMITS, NOT_FOR_TCP);
        }
        proxy.limits = limits(sink, &view);
        proxy.limit_key = limit_key(sink, &view);
    }
    proxy.retry_on = retry::retry_on(sink, &view);
    proxy.tls = tls::service(sink, &view);
    proxy.http2 = view.flag(sink, "http2").unwrap_or(true);
    proxy.forwarded = response::forwarded(sink, &view);
    if let Some(x_forwarded) = response::x_forwarded(sink, &view) {
        proxy.x_forwarded = x_forwarded.rules;
        proxy.x_forwarded_except = x_forwarded.except;
    }
    (proxy.request_header, proxy.response_header) = header_edits(sink, &view, None);
    proxy.normalize_path = path::normalize_path(sink, &view);
    proxy.underscores = view
        .choice(sink, "underscores", &Underscores::ALL, Underscores::as_str)
        .unwrap_or_default();
    proxy.connect = view.flag(sink, "connect").unwrap_or(false);
    proxy.abort_on_close = view.flag(sink, "abort_on_close").unwrap_or(true);
    proxy.request_buffering = view.flag(sink, "request_buffering").unwrap_or(true);
    proxy.error_pages = response::error_pages(sink, &view);
    proxy.compression = response::compression(sink, &view);
    proxy.basic_auth = basic_auth::basic_auth(sink, &view).flatten();
    proxy.trusted = response::networks(sink, &view, "trusted");
    proxy.client_ip_header = access_log::client_ip_header(sink, &view);
    proxy.client_ip_recursive = access_log::client_ip_recursive(sink, &view);
    proxy.proxy_protocol = view.flag(sink, "proxy_protocol").unwrap_or(false);
    proxy.request_id = access_log::request_id(sink, &view);
    proxy.access_log = access_log::access_log(sink, &view);
    proxy.log_maps = access_log::maps(sink, proxy.access_log.as_ref());
    LoweredProxy {
        proxy,
        name: entry.key_span.clone(),
        listen,
        pool: pool.map(|(_, span)| span.clone()),
    }
}

fn open_table<'a, 't>(
    sink: &mut Sink<'_>,
    view: &View<'a, 't>,
    name: &str,
    section: &'static Section,
) -> Option<View<'a, 't>> {
    let (entry, kind) = view.get(name)?;
    match &entry.item.value {
        Value::Table(table) => Some(View::open(sink, section, table, &entry.key_span)),
        _ => {
            sink.push(wrong_type(&entry.item, kind));
            None
        }
    }
}

fn timeouts(sink: &mut Sink<'_>, view: &View<'_, '_>) -> ProxyTimeouts {
    let default = ProxyTimeouts::default();
    ProxyTimeouts {
        request: view.duration(sink, "request").unwrap_or(default.request),
        idle: view.duration(sink, "idle").unwrap_or(default.idle),
        client: view.duration(sink, "client").unwrap_or(default.client),
        connect: view.duration(sink, "connect").unwrap_or(default.connect),
        server: view.duration(sink, "server").unwrap_or(default.server),
        tunnel: view.duration(sink, "tunnel").unwrap_or(default.tunnel),
        response: view.duration(sink, "response"),
        total: view.duration(sink, "total"),
    }
}

fn limits(sink: &mut Sink<'_>, view: &View<'_, '_>) -> ProxyLimits {
    let default = ProxyLimits::default();
    let limits = ProxyLimits {
        head: view.size(sink, "head").unwrap_or(default.head),
        fields: view.integer(sink, "fields").unwrap_or(default.fields),
        connections: view
            .integer(sink, "connections")
            .unwrap_or(default.connections),
        retries: view.integer(sink, "retries").unwrap_or(default.retries),
        idle_servers: view
            .integer(sink, "idle_servers")
            .unwrap_or(default.idle_servers),
        server_requests: view
            .integer(sink, "server_requests")
            .unwrap_or(default.server_requests),
        streams: view.integer(sink, "streams").unwrap_or(default.streams),
        resets: view.integer(sink, "resets").unwrap_or(default.resets),
        body: view.size(sink, "body").unwrap_or(default.body),
        per_minute: super::route::rate(sink, view).unwrap_or(default.per_minute),
        burst: view.integer(sink, "burst").unwrap_or(default.burst),
        concurrent: view
            .integer(sink, "concurrent")
            .unwrap_or(default.concurrent),
        retry_budget: view
            .integer(sink, "retry_budget")
            .unwrap_or(default.retry_budget),
    };
    super::route::check_burst(sink, view, limits.per_minute, limits.burst());
    limits
}

pub(super) fn limit_key(sink: &mut Sink<'_>, view: &View<'_, '_>) -> HashKey {
    let Some((text, span)) = view.text(sink, "key") else {
        return HashKey::default();
    };
    scheduler::hash_key(sink, text, span)
}

fn listeners(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<(SocketAddr, Range<usize>)> {
    let mut listeners = Vec::new();
    for (text, span) in listen(sink, view, "0.0.0.0:80") {
        match address::parse_proxy_listener(text) {
            Ok(listener) => match (listener.protocol, listener.ports) {
                (Protocol::Tcp, Ports::One(port)) => {
                    listeners.push((SocketAddr::new(listener.address, port), span.clone()));
                }
                (Protocol::Udp, _) => sink.push(
                    Diagnostic::new(Code::NotImplemented, span, "proxying UDP is not built yet")
                        .fix("use TCP, or a layer 4 forwarding method"),
                ),
                _ => sink.push(
                    Diagnostic::new(
                        Code::BadPort,
                        span,
                        "a proxy service cannot listen on port ranges",
                    )
                    .fix("list each port, or use a layer 4 forwarding method"),
                ),
            },
            Err(error) => report_error(sink, span, error),
        }
    }
    listeners
}
