//! Lowers `[node]` and `[timeouts]`.

use std::collections::HashMap;
use std::ops::Range;

use weir_model::{Attach, Metrics, Node, SocketMode, Timeouts};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Item, Value};
use crate::view::{Sink, View, text};

pub(super) fn node(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Node {
    let default = Node::default();
    let socket_group = view.text(sink, "socket_group");
    let socket_mode = view.choice(sink, "socket_mode", &SocketMode::ALL, SocketMode::as_str);
    Node {
        interfaces: interfaces(sink, view),
        attach: view
            .choice(sink, "attach", &Attach::ALL, Attach::as_str)
            .unwrap_or_default(),
        balance_own: view.flag(sink, "balance_own").unwrap_or(false),
        latency: view.flag(sink, "latency").unwrap_or(true),
        vip_interface: view
            .text(sink, "vip_interface")
            .and_then(|(name, span)| interface(sink, name, span))
            .map(str::to_owned),
        admin: super::admin::admin(sink, view),
        // If a group is set, its members have access to the socket by default.
        socket_mode: socket_mode.unwrap_or(match socket_group {
            Some(_) => SocketMode::Group,
            None => SocketMode::Owner,
        }),
        socket_group: socket_group.map(|(text, _)| text.to_owned()),
        max_flows: view.integer(sink, "max_flows").unwrap_or(default.max_flows),
        max_servers: view
            .integer(sink, "max_servers")
            .unwrap_or(default.max_servers),
        max_services: view
            .integer(sink, "max_services")
            .unwrap_or(default.max_services),
        syn_budget: view
            .integer(sink, "syn_budget")
            .unwrap_or(default.syn_budget),
        drain_timeout: view
            .duration(sink, "drain_timeout")
            .unwrap_or(default.drain_timeout),
        metrics: view
            .choice(sink, "metrics", &Metrics::ALL, Metrics::as_str)
            .unwrap_or_default(),
    }
}

pub(super) fn timeouts(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Timeouts {
    let default = Timeouts::default();
    let mut whole_seconds = |name: &'static str, default| view.whole_seconds(sink, name, default);
    Timeouts {
        tcp: whole_seconds("tcp", default.tcp),
        tcp_fin: whole_seconds("tcp_fin", default.tcp_fin),
        udp: whole_seconds("udp", default.udp),
    }
}

pub(super) fn interfaces(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Vec<String>> {
    let items = view.list(sink, "interfaces")?;
    if items.is_empty() {
        let span = view
            .get("interfaces")
            .map_or(0..0, |(entry, _)| entry.item.span.clone());
        sink.push(
            Diagnostic::new(Code::EmptyList, &span, "`interfaces` is empty")
                .fix("add an interface, or remove the key to derive them from the routes"),
        );
    }
    let mut first_spans: HashMap<&str, &Range<usize>> = HashMap::new();
    let mut names = Vec::new();
    for item in items {
        let Some((name, span)) = text(sink, item, &Kind::Interface) else {
            continue;
        };
        let Some(name) = interface(sink, name, span) else {
            continue;
        };
        match first_spans.get(name) {
            Some(first) => sink.push(
                Diagnostic::new(
                    Code::DuplicateEntry,
                    span,
                    format!("interface `{name}` is listed twice"),
                )
                .label("duplicate")
                .related(first, "first here")
                .fix("remove one of them"),
            ),
            None => {
                first_spans.insert(name, span);
                names.push(name.to_owned());
            }
        }
    }
    Some(names)
}

/// Returns every interface that must exist, with its position. Invalid values have already been reported.
pub(super) fn named_interfaces(view: &View<'_, '_>) -> Vec<(String, Range<usize>)> {
    let list_items = view.get("interfaces").map(|(entry, _)| &entry.item);
    let list_items = list_items.into_iter().flat_map(|item| match &item.value {
        Value::List(items) => items.as_slice(),
        _ => &[],
    });
    let single = view.get("vip_interface").map(|(entry, _)| &entry.item);
    let valid_name = |item: &Item<'_>| match &item.value {
        Value::Text(name) if !is_invalid(name) => {
            Some((name.clone().into_owned(), item.span.clone()))
        }
        _ => None,
    };
    list_items.chain(single).filter_map(valid_name).collect()
}

/// Returns the name of an interface, or reports a name that the kernel does not allow (net/core/dev.c,
/// `dev_valid_name`).
pub(super) fn interface<'a>(
    sink: &mut Sink<'_>,
    name: &'a str,
    span: &Range<usize>,
) -> Option<&'a str> {
    if is_invalid(name) {
        sink.push(
            Diagnostic::new(
                Code::BadName,
                span,
                format!("invalid interface name `{}`", name.escape_debug()),
            )
            .cause(format!(
                "names have 1 to {MAX_BYTES} bytes and no `/`, `:` or spaces"
            ))
            .fix("`ip link` lists the interfaces of this machine"),
        );
        return None;
    }
    Some(name)
}

/// Maximum length of an interface name: `IFNAMSIZ` without the NUL.
const MAX_BYTES: usize = 15;

fn is_invalid(name: &str) -> bool {
    name.is_empty()
        || name.len() > MAX_BYTES
        || matches!(name, "." | "..")
        || name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
}
