//! Lowers `[node] admin`: an address or a table.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use weir_model::{Admin, ServiceTls};

use super::tls;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::Value;
use crate::view::{Sink, View, text, wrong_type};

pub(super) fn admin(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Admin> {
    let (entry, kind) = view.get("admin")?;
    let span = &entry.item.span;
    let source = sink.lines.source(entry.key_span.start);
    let table = match &entry.item.value {
        Value::Text(text) => {
            let listen = address(sink, text, span)?;
            let is_allowed = check_encryption(sink, listen, None, false, span);
            return is_allowed.then(|| Admin {
                source,
                ..Admin::new(listen)
            });
        }
        Value::Table(table) => table,
        _ => {
            sink.push(wrong_type(&entry.item, kind));
            return None;
        }
    };
    let view = View::open(sink, &catalog::ADMIN, table, &entry.key_span);
    let listen = view
        .text(sink, "listen")
        .and_then(|(text, span)| Some((address(sink, text, span)?, span)));
    let has_tls = view.get("tls").is_some();
    let tls = tls::service(sink, &view);
    if let (Some(_), Some((entry, _))) = (
        tls.as_ref().filter(|tls| !tls.ticket_keys.is_empty()),
        view.get("tls"),
    ) {
        let message = "`ticket_keys` is not allowed here: TLS sessions of the API are not resumed";
        let diagnostic = Diagnostic::new(Code::Contradiction, &entry.key_span, message);
        sink.push(diagnostic.fix("remove `ticket_keys`"));
    }
    let tokens = tls::path(sink, &view, "tokens");
    let hosts = hosts(sink, &view);
    let read_requires_token = view.flag(sink, "read_requires_token");
    let (listen, span) = listen?;
    let default = Admin::new(listen);
    // An invalid `tls` is reported separately.
    if !check_encryption(sink, listen, tls.as_ref(), has_tls, span) {
        return None;
    }
    let read_requires_token = read_requires_token.unwrap_or(default.read_requires_token);
    if view.get("tokens").is_none() && read_requires_token && !Admin::is_loopback(listen) {
        sink.push(
            Diagnostic::new(
                Code::NoEffect,
                span,
                "clients on other machines have no access",
            )
            .cause("reading requires a token except on loopback, and the token in the runtime directory is only valid \
                on loopback")
            .fix("add `tokens = \"/etc/weir/tokens\"`, or `read_requires_token = false` for unauthenticated read \
                access"),
        );
    }
    Some(Admin {
        tls,
        tokens,
        read_requires_token,
        hosts,
        source,
        ..default
    })
}

/// Returns whether an address has TLS or does not need it. Reports an address that needs TLS and does not have it:
/// tokens could be read on the network.
fn check_encryption(
    sink: &mut Sink<'_>,
    listen: SocketAddr,
    tls: Option<&ServiceTls>,
    has_tls: bool,
    span: &Range<usize>,
) -> bool {
    if tls.is_some() || has_tls || Admin::is_loopback(listen) {
        return true;
    }
    let fix = format!(
        "write admin = {{ listen = \"{listen}\", tls = {{ certificates = \"/etc/weir/admin.pem\" }}, tokens = \
         \"/etc/weir/tokens\" }}, or use a loopback address"
    );
    sink.push(
        Diagnostic::new(
            Code::AdminWithoutTls,
            span,
            format!("`admin` at {listen} needs `tls`: it is reachable from other machines"),
        )
        .cause("without TLS, anyone on the network path can read and use the tokens")
        .fix(fix),
    );
    false
}

fn address(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<SocketAddr> {
    let bad_address =
        |message: String, fix: String| Diagnostic::new(Code::BadAddress, span, message).fix(fix);
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => {
            sink.push(bad_address(
                "port 0 is not allowed".to_owned(),
                format!("write \"{}\"", SocketAddr::new(address.ip(), 9900)),
            ));
            None
        }
        Ok(address) => Some(address),
        Err(_) => {
            let fix = match text.parse::<IpAddr>() {
                Ok(IpAddr::V6(bare)) => format!("write \"[{bare}]:9900\""),
                Ok(bare) => format!("write \"{bare}:9900\""),
                Err(_) => {
                    "write ADDRESS:PORT, as in \"127.0.0.1:9900\"; host names are not resolved"
                        .to_owned()
                }
            };
            sink.push(bad_address(
                format!("expected ADDRESS:PORT, found `{text}`"),
                fix,
            ));
            None
        }
    }
}

fn hosts(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<String> {
    let mut hosts = Vec::new();
    for item in view.list(sink, "hosts").unwrap_or_default() {
        let Some((name, span)) = text(sink, item, &Kind::Text) else {
            continue;
        };
        if is_host(name) {
            hosts.push(name.to_ascii_lowercase());
        } else {
            let message = format!("`{}` is not NAME or NAME:PORT", name.escape_debug());
            sink.push(
                Diagnostic::new(Code::BadName, span, message)
                    .cause("it is compared with the `Host` field of requests; patterns are not supported")
                    .fix("write \"lb1.example\" or \"lb1.example:9900\""),
            );
        }
    }
    hosts
}

fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (text, None),
    };
    let literal = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_valid_name = match literal {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.bytes().all(is_name_byte),
    };
    is_valid_name && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port != 0))
}
