//! Lowers `tls` of services, pools and `admin`.

use std::ops::Range;

use weir_model::{CipherSuite, ClientAuth, ServerTls, ServiceTls, SniHost, TlsGroup, TlsVersion};

use super::secret;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::Value;
use crate::view::{Sink, View, keyword, text, wrong_type};

/// Kind of an item of `certificates`.
const FILE: Kind = Kind::DescribedText("a directory or file path");

pub(super) fn path(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str) -> Option<String> {
    let value = view.text(sink, name);
    absolute_path(sink, value, name)
}

fn absolute_path(
    sink: &mut Sink<'_>,
    value: Option<(&str, &Range<usize>)>,
    name: &str,
) -> Option<String> {
    let (text, span) = value?;
    if !text.starts_with('/') {
        sink.push(
            Diagnostic::new(
                Code::BadText,
                span,
                format!("`{name}` must be an absolute path"),
            )
            .cause("the daemon's working directory is not defined")
            .fix("write an absolute path, as in \"/etc/weir/certs\""),
        );
        return None;
    }
    Some(text.to_owned())
}

/// Lowers `certificates`: a path, or a list of paths.
fn certificates(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Vec<String>> {
    let (entry, _) = view.get("certificates")?;
    let Value::List(items) = &entry.item.value else {
        return path(sink, view, "certificates").map(|path| vec![path]);
    };
    if items.is_empty() {
        sink.push(
            Diagnostic::new(
                Code::BadText,
                &entry.item.span,
                "`certificates` is an empty list",
            )
            .fix("specify a directory or a file, as in \"/etc/weir/certs\""),
        );
        return None;
    }
    let mut paths: Vec<String> = Vec::new();
    let mut is_valid = true;
    for item in items {
        let value = text(sink, item, &FILE);
        match absolute_path(sink, value, "certificates") {
            Some(path) if paths.contains(&path) => {}
            Some(path) => paths.push(path),
            None => is_valid = false,
        }
    }
    is_valid.then_some(paths)
}

fn minimum_version(sink: &mut Sink<'_>, view: &View<'_, '_>) -> TlsVersion {
    view.choice(sink, "minimum", &TlsVersion::ALL, TlsVersion::as_str)
        .unwrap_or_default()
}

/// Returns the values of a list of keywords, without duplicates; an empty list is an error.
fn listed_values<T: PartialEq>(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    key: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Vec<T> {
    let Some((entry, Kind::List(kind))) = view.get(key) else {
        return Vec::new();
    };
    let items = view.list(sink, key);
    if items.is_some_and(<[_]>::is_empty) {
        let message = format!("`{key}` is empty");
        sink.push(
            Diagnostic::new(Code::EmptyList, &entry.item.span, message)
                .fix(format!("remove `{key}`, or list a value")),
        );
    }
    let mut values = Vec::new();
    for item in items.unwrap_or_default() {
        let value = keyword(sink, item, kind).and_then(&parse);
        values.extend(value.filter(|value| !values.contains(value)));
    }
    values
}

/// Reports a cipher suite for a TLS version that `minimum` excludes. If `minimum` allows TLS 1.2, also reports `groups`
/// without any group that TLS 1.2 can use.
fn check_versions(sink: &mut Sink<'_>, view: &View<'_, '_>, tls: &ServiceTls) {
    let requires_tls13 = tls.minimum == TlsVersion::V13;
    let excluded = tls.ciphers.iter().find(|it| it.version() < tls.minimum);
    if let (Some(suite), Some((entry, _))) = (excluded, view.get("ciphers")) {
        let suite = suite.as_str();
        let message = format!("`{suite}` is a cipher suite of TLS 1.2, which `minimum` excludes");
        sink.push(
            Diagnostic::new(Code::Contradiction, &entry.item.span, message)
                .fix("remove it, or lower `minimum`"),
        );
    }
    let is_usable = tls.groups.is_empty() || tls.groups.iter().any(|it| it.is_for_tls12());
    if let (false, false, Some((entry, _))) = (requires_tls13, is_usable, view.get("groups")) {
        let message = "TLS 1.2 supports none of these groups";
        sink.push(
            Diagnostic::new(Code::Contradiction, &entry.item.span, message)
                .fix("add \"X25519\", or set minimum = \"1.3\""),
        );
    }
}

/// Reports a key that requires `client_ca` if `client_ca` is missing.
fn check_client_ca(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &str) {
    if let (Some((entry, _)), None) = (view.get(key), view.get("client_ca")) {
        let message = format!("`{key}` requires `client_ca`");
        sink.push(
            Diagnostic::new(Code::MissingKey, &entry.key_span, message)
                .cause("without a CA, client certificates cannot be verified")
                .fix(format!("add `client_ca`, or remove `{key}`")),
        );
    }
}

/// Lowers the `tls` of a proxy service or of `admin`.
pub(super) fn service(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<ServiceTls> {
    let (entry, kind) = view.get("tls")?;
    let Value::Table(table) = &entry.item.value else {
        sink.push(wrong_type(&entry.item, kind));
        return None;
    };
    let view = View::open(sink, &catalog::SERVICE_TLS, table, &entry.key_span);
    let client_ca = path(sink, &view, "client_ca");
    let client_auth = view.choice(sink, "client_auth", &ClientAuth::ALL, ClientAuth::as_str);
    check_client_ca(sink, &view, "client_auth");
    let client_crl = path(sink, &view, "client_crl");
    check_client_ca(sink, &view, "client_crl");
    let ticket_keys = secret::list(sink, &view, "ticket_keys");
    if let Some((entry, _)) = view.get("ticket_keys")
        && ticket_keys
            .iter()
            .any(|key| (1..ServiceTls::MIN_TICKET_KEY_BYTES).contains(&key.expose().len()))
    {
        let min_bytes = ServiceTls::MIN_TICKET_KEY_BYTES;
        sink.push(
            Diagnostic::new(
                Code::OutOfRange,
                &entry.item.span,
                format!("a ticket key is shorter than {min_bytes} bytes"),
            )
            .fix("create one with `openssl rand -base64 48`"),
        );
    }
    let tls = ServiceTls {
        ticket_keys,
        certificates: certificates(sink, &view)?,
        strict_sni: view.flag(sink, "strict_sni").unwrap_or(false),
        minimum: minimum_version(sink, &view),
        ciphers: listed_values(sink, &view, "ciphers", CipherSuite::from_text),
        groups: listed_values(sink, &view, "groups", TlsGroup::from_text),
        client_ca,
        client_crl,
        client_auth: client_auth.unwrap_or_default(),
        sni_host: view
            .choice(sink, "sni_host", &SniHost::ALL, SniHost::as_str)
            .unwrap_or_default(),
        source: sink.lines.source(entry.key_span.start),
    };
    check_versions(sink, &view, &tls);
    Some(tls)
}

/// Lowers a pool's `tls`; also returns its position.
pub(super) fn pool(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<(ServerTls, Range<usize>)> {
    let (entry, kind) = view.get("tls")?;
    let source = sink.lines.source(entry.key_span.start);
    let default_tls = ServerTls {
        source,
        ..ServerTls::default()
    };
    let tls = match &entry.item.value {
        Value::Bool(false) => return None,
        Value::Bool(true) => default_tls,
        Value::Table(table) => {
            let view = View::open(sink, &catalog::SERVER_TLS, table, &entry.key_span);
            let server_name = view.text(sink, "server_name").and_then(|(text, span)| {
                let is_label = |label: &str| {
                    !label.is_empty()
                        && label
                            .bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
                };
                if text.len() <= 253 && text.split('.').all(is_label) {
                    return Some(text.to_ascii_lowercase());
                }
                let message = format!("invalid host `{}`", text.escape_debug());
                sink.push(Diagnostic::new(Code::BadName, span, message));
                None
            });
            ServerTls {
                verify: view.flag(sink, "verify").unwrap_or(true),
                ca: path(sink, &view, "ca"),
                server_name,
                certificate: path(sink, &view, "certificate"),
                minimum: minimum_version(sink, &view),
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
