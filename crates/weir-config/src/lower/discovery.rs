//! `servers_dns` of a pool.

use std::net::SocketAddr;

use weir_model::{ServersDns, ServersRecord};

use crate::address;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::Value;
use crate::view::{Sink, View, text, wrong_type};

use super::refuse;

/// Default port of DNS (RFC 1035 section 4.2).
const PORT: u16 = 53;
/// Maximum length of a name and of a label, in bytes (RFC 1035 section 2.3.4).
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

pub(super) fn servers_dns(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<ServersDns> {
    let (entry, kind) = view.get("servers_dns")?;
    let Value::Table(table) = &entry.item.value else {
        sink.push(wrong_type(&entry.item, kind));
        return None;
    };
    let view = View::open(sink, &catalog::SERVERS_DNS, table, &entry.key_span);
    let record = view
        .choice(sink, "record", &ServersRecord::ALL, ServersRecord::as_str)
        .unwrap_or_default();
    let port = view.integer(sink, "port");
    if record == ServersRecord::Srv
        && let Some((port, _)) = view.get("port")
    {
        sink.push(
            Diagnostic::new(
                Code::Contradiction,
                &port.key_span,
                "`port` is not allowed with SRV records, which contain ports",
            )
            .fix("remove `port`"),
        );
    }
    let resolvers = resolvers(sink, &view);
    let (name, span) = view.text(sink, "name")?;
    let bare = name.strip_suffix('.').unwrap_or(name);
    let label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.len() <= LABEL_MAX && label.bytes().all(plain)
    };
    if bare.len() > NAME_MAX || !bare.split('.').all(label) {
        let message = format!("`{}` is not a valid DNS name", name.escape_debug());
        sink.push(
            Diagnostic::new(Code::BadName, span, message)
                .fix("use labels of letters, digits, `-` and `_`, separated by dots"),
        );
        return None;
    }
    Some(ServersDns {
        name: bare.to_owned(),
        record,
        port: port.and_then(|port| u16::try_from(port).ok()),
        resolvers,
    })
}

fn resolvers(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<SocketAddr> {
    let items = view.list(sink, "resolvers").unwrap_or_default();
    let mut found = Vec::new();
    for item in items {
        let Some((text, span)) = text(sink, item, &Kind::ServerAddress) else {
            continue;
        };
        match address::server(text) {
            Ok((address, port)) => found.push(SocketAddr::new(address, port.unwrap_or(PORT))),
            Err(refusal) => refuse(sink, span, refusal),
        }
    }
    found
}
