//! Lowers a pool's `servers_dns`.

use std::net::SocketAddr;
use std::ops::Range;

use weir_model::{ServersDns, ServersRecord};

use crate::address;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Item, Table, Value};
use crate::view::{Sink, View, text, wrong_type};

use super::{report_error, sticky};

/// Default port of DNS (RFC 1035 section 4.2).
const DNS_PORT: u16 = 53;
/// Maximum length of a name, in bytes (RFC 1035 section 2.3.4).
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// Default weight of a server.
const DEFAULT_WEIGHT: u32 = 1;

/// Lowers `servers_dns`: one name, or a list of names.
pub(super) fn servers_dns(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<ServersDns> {
    let Some((entry, kind)) = view.get("servers_dns") else {
        return Vec::new();
    };
    let has_sticky = view.get("sticky").is_some();
    let mut dns_entries: Vec<ServersDns> = Vec::new();
    let mut add = |sink: &mut Sink<'_>, item: &Item<'_>, location: &Range<usize>| {
        let Value::Table(table) = &item.value else {
            return sink.push(wrong_type(item, kind));
        };
        let Some(dns) = lower_entry(sink, table, location, has_sticky) else {
            return;
        };
        if dns_entries.contains(&dns) {
            let message = format!("`{}` is listed twice", dns.name);
            sink.push(
                Diagnostic::new(Code::DuplicateEntry, location, message).fix(
                    "remove one of them; for a larger share, increase the weight of the remaining entry",
                ),
            );
        }
        dns_entries.push(dns);
    };
    match &entry.item.value {
        Value::List(items) => {
            for item in items {
                add(sink, item, &item.span);
            }
        }
        _ => add(sink, &entry.item, &entry.key_span),
    }
    dns_entries
}

fn lower_entry(
    sink: &mut Sink<'_>,
    table: &Table<'_>,
    location: &Range<usize>,
    has_sticky: bool,
) -> Option<ServersDns> {
    let view = View::open(sink, &catalog::SERVERS_DNS, table, location);
    let record = view
        .choice(sink, "record", &ServersRecord::ALL, ServersRecord::as_str)
        .unwrap_or_default();
    let port = view.integer(sink, "port");
    for (key, contents) in [("port", "ports"), ("weight", "weights")] {
        if record == ServersRecord::Srv
            && let Some((entry, _)) = view.get(key)
        {
            let message =
                format!("`{key}` is not allowed with SRV records, which contain {contents}");
            sink.push(
                Diagnostic::new(Code::Contradiction, &entry.key_span, message)
                    .fix(format!("remove `{key}`")),
            );
        }
    }
    let weight = view.integer(sink, "weight").unwrap_or(DEFAULT_WEIGHT);
    let max_connections = view.integer(sink, "max_connections").unwrap_or(0);
    let resolvers = resolvers(sink, &view);
    let (name, span) = view.text(sink, "name")?;
    let without_dot = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.len() <= MAX_LABEL_BYTES && label.bytes().all(is_plain)
    };
    if without_dot.len() > MAX_NAME_BYTES || !without_dot.split('.').all(is_label) {
        let message = format!("`{}` is not a valid DNS name", name.escape_debug());
        sink.push(
            Diagnostic::new(Code::BadName, span, message)
                .fix("use labels of letters, digits, `-` and `_`, separated by dots"),
        );
        return None;
    }
    let cookie = cookie(sink, &view, has_sticky);
    Some(ServersDns {
        name: without_dot.to_owned(),
        record,
        port: port.and_then(|port| u16::try_from(port).ok()),
        resolvers,
        weight,
        max_connections,
        cookie,
        backup: view.flag(sink, "backup").unwrap_or(false),
    })
}

/// Returns the value of the sticky cookie. It must not contain `#`, which starts a comment in the server lists that
/// store the value.
fn cookie(sink: &mut Sink<'_>, view: &View<'_, '_>, has_sticky: bool) -> Option<String> {
    let (entry, _) = view.get("cookie")?;
    let value = sticky::cookie_value(sink, view)?;
    let span = &entry.item.span;
    if value.contains('#') {
        sink.push(
            Diagnostic::new(Code::BadText, span, "`#` is not allowed in this value")
                .fix("use letters, digits, `-` and `_`"),
        );
    }
    if !has_sticky {
        sink.push(sticky::cookie_without_sticky(span));
    }
    Some(value)
}

fn resolvers(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<SocketAddr> {
    let items = view.list(sink, "resolvers").unwrap_or_default();
    let mut addresses = Vec::new();
    for item in items {
        let Some((text, span)) = text(sink, item, &Kind::ServerAddress) else {
            continue;
        };
        match address::parse_server(text) {
            Ok((address, port)) => {
                addresses.push(SocketAddr::new(address, port.unwrap_or(DNS_PORT)))
            }
            Err(error) => report_error(sink, span, error),
        }
    }
    addresses
}
