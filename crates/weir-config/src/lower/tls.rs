//! `tls` of services and of pools.

use std::ops::Range;

use weir_model::{ClientAuth, ServerTls, ServiceTls, SniHost, TlsVersion};

use super::secret;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::tree::Value;
use crate::view::{Sink, View, wrong_type};

pub(super) fn path(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str) -> Option<String> {
    let (text, span) = view.text(sink, name)?;
    if !text.starts_with('/') {
        sink.push(
            Diagnostic::new(Code::BadText, span, format!("`{name}` is no absolute path"))
                .cause("the daemon's own directory is nobody's choice")
                .fix("write it from the root, as in \"/etc/weir/certs\""),
        );
        return None;
    }
    Some(text.to_owned())
}

fn minimum(sink: &mut Sink<'_>, view: &View<'_, '_>) -> TlsVersion {
    view.choice(sink, "minimum", &TlsVersion::ALL, TlsVersion::as_str)
        .unwrap_or_default()
}

/// `tls` of a proxy service, from its own view.
pub(super) fn service(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<ServiceTls> {
    let (entry, kind) = view.get("tls")?;
    let Value::Table(table) = &entry.item.value else {
        sink.push(wrong_type(&entry.item, kind));
        return None;
    };
    let view = View::open(sink, &catalog::SERVICE_TLS, table, &entry.key_span);
    let client_ca = path(sink, &view, "client_ca");
    let client_auth = view.choice(sink, "client_auth", &ClientAuth::ALL, ClientAuth::as_str);
    if let (Some((entry, _)), None) = (view.get("client_auth"), view.get("client_ca")) {
        sink.push(
            Diagnostic::new(
                Code::MissingKey,
                &entry.key_span,
                "`client_auth` without `client_ca`",
            )
            .cause("nobody says whose certificates are good")
            .fix("add `client_ca`, or leave `client_auth` out"),
        );
    }
    let ticket_keys = secret::list(sink, &view, "ticket_keys");
    if let Some((entry, _)) = view.get("ticket_keys")
        && ticket_keys
            .iter()
            .any(|key| (1..ServiceTls::TICKET_KEY_MIN).contains(&key.expose().len()))
    {
        let least = ServiceTls::TICKET_KEY_MIN;
        sink.push(
            Diagnostic::new(
                Code::OutOfRange,
                &entry.item.span,
                format!("a ticket key has fewer than {least} bytes"),
            )
            .fix("make one with `openssl rand -base64 48`"),
        );
    }
    Some(ServiceTls {
        ticket_keys,
        certificates: path(sink, &view, "certificates")?,
        strict_sni: view.flag(sink, "strict_sni").unwrap_or(false),
        minimum: minimum(sink, &view),
        client_ca,
        client_auth: client_auth.unwrap_or_default(),
        sni_host: view
            .choice(sink, "sni_host", &SniHost::ALL, SniHost::as_str)
            .unwrap_or_default(),
        source: sink.lines.source(entry.key_span.start),
    })
}

/// `tls` of a pool, and where it is written.
pub(super) fn pool(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<(ServerTls, Range<usize>)> {
    let (entry, kind) = view.get("tls")?;
    let source = sink.lines.source(entry.key_span.start);
    let plain = ServerTls {
        source,
        ..ServerTls::default()
    };
    let tls = match &entry.item.value {
        Value::Bool(false) => return None,
        Value::Bool(true) => plain,
        Value::Table(table) => {
            let view = View::open(sink, &catalog::SERVER_TLS, table, &entry.key_span);
            let server_name = view.text(sink, "server_name").and_then(|(text, span)| {
                let label = |label: &str| {
                    !label.is_empty()
                        && label
                            .bytes()
                            .all(|octet| octet.is_ascii_alphanumeric() || b"-_".contains(&octet))
                };
                if text.len() <= 253 && text.split('.').all(label) {
                    return Some(text.to_ascii_lowercase());
                }
                let message = format!("no host is called `{}`", text.escape_debug());
                sink.push(Diagnostic::new(Code::BadName, span, message));
                None
            });
            ServerTls {
                verify: view.flag(sink, "verify").unwrap_or(true),
                ca: path(sink, &view, "ca"),
                server_name,
                certificate: path(sink, &view, "certificate"),
                minimum: minimum(sink, &view),
                source,
            }
        }
        _ => {
            sink.push(wrong_type(&entry.item, kind));
            return None;
        }
    };
    Some((tls, entry.key_span.clone()))
}
