//! `[node]` and `[timeouts]`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use weir_model::{Node, Timeouts};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::view::{Sink, View, text};

pub(super) fn node(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Node {
    let default = Node::default();
    Node {
        interfaces: interfaces(sink, view),
        vip_interface: view
            .text(sink, "vip_interface")
            .and_then(|(name, span)| interface(sink, name, span))
            .map(str::to_owned),
        admin: view
            .text(sink, "admin")
            .and_then(|(text, span)| admin(sink, text, span)),
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
    }
}

pub(super) fn timeouts(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Timeouts {
    let default = Timeouts::default();
    let mut whole = |name: &'static str, default| view.whole_seconds(sink, name, default);
    Timeouts {
        tcp: whole("tcp", default.tcp),
        tcp_fin: whole("tcp_fin", default.tcp_fin),
        udp: whole("udp", default.udp),
    }
}

fn interfaces(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Vec<String>> {
    let items = view.list(sink, "interfaces")?;
    if items.is_empty() {
        let span = view
            .get("interfaces")
            .map_or(0..0, |(entry, _)| entry.item.span.clone());
        sink.push(
            Diagnostic::new(Code::EmptyList, &span, "`interfaces` lists none")
                .fix("name one, or leave the key out to have them found from the routes"),
        );
    }
    let mut first: HashMap<&str, &Range<usize>> = HashMap::new();
    let mut names = Vec::new();
    for item in items {
        let Some((name, span)) = text(sink, item, &Kind::Interface) else {
            continue;
        };
        let Some(name) = interface(sink, name, span) else {
            continue;
        };
        match first.get(name) {
            Some(before) => sink.push(
                Diagnostic::new(
                    Code::DuplicateEntry,
                    span,
                    format!("interface `{name}` is listed twice"),
                )
                .label("again here")
                .also(before, "first here")
                .fix("take one of them out"),
            ),
            None => {
                first.insert(name, span);
                names.push(name.to_owned());
            }
        }
    }
    Some(names)
}

/// Reports a name that the kernel would not give to an interface (net/core/dev.c, `dev_valid_name`).
pub(super) fn interface<'a>(
    sink: &mut Sink<'_>,
    name: &'a str,
    span: &Range<usize>,
) -> Option<&'a str> {
    const LONGEST: usize = 15;
    let wrong = name.is_empty()
        || name.len() > LONGEST
        || matches!(name, "." | "..")
        || name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
    if wrong {
        sink.push(
            Diagnostic::new(
                Code::BadName,
                span,
                format!("no interface can be called `{}`", name.escape_debug()),
            )
            .cause(format!(
                "names have 1 to {LONGEST} bytes, without `/`, `:` and spaces"
            ))
            .fix("`ip link` lists the interfaces of this machine"),
        );
        return None;
    }
    Some(name)
}

fn admin(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<SocketAddr> {
    let refuse =
        |message: String, fix: String| Diagnostic::new(Code::BadAddress, span, message).fix(fix);
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => {
            sink.push(refuse(
                "`admin` needs a port of its own".to_owned(),
                format!("write \"{}:9900\"", address.ip()),
            ));
            None
        }
        Ok(address) => Some(address),
        Err(_) => {
            let fix = match text.parse::<IpAddr>() {
                Ok(IpAddr::V6(bare)) => format!("write \"[{bare}]:9900\""),
                Ok(bare) => format!("write \"{bare}:9900\""),
                Err(_) => "write ADDRESS:PORT, as in \"127.0.0.1:9900\"; names are not looked up"
                    .to_owned(),
            };
            sink.push(refuse(format!("`{text}` is not ADDRESS:PORT"), fix));
            None
        }
    }
}
