//! `[cluster]`.

use std::ops::Range;

use weir_model::{Cluster, EtcdEndpoint, Secret};

use super::{secret, tls};
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::view::{Sink, View, text};

pub(super) fn cluster(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Cluster> {
    let etcd = endpoints(sink, view);
    let name = name(sink, view, "name");
    let member = name_or_none(sink, view, "member");
    let (ca, certificate, key) = (
        tls::path(sink, view, "ca"),
        tls::path(sink, view, "certificate"),
        tls::path(sink, view, "key"),
    );
    let user = view.text(sink, "user").map(|(user, _)| user.to_owned());
    let password = secret::of_key(sink, view, "password");
    let group_key = secret::of_key(sink, view, "group_key");
    needs(sink, view, "key", "certificate");
    needs(sink, view, "user", "password");
    needs(sink, view, "password", "user");
    if let (Some(key), Some((entry, _))) = (&group_key, view.get("group_key")) {
        check_key(sink, key, &entry.item.span);
    }
    let lease = view.whole_seconds(sink, "lease", Cluster::LEASE);
    let agreement = view.flag(sink, "agreement");
    let files = files(sink, view);
    Some(Cluster {
        etcd: etcd?,
        name: name?,
        member,
        ca,
        certificate,
        key,
        user,
        password,
        group_key,
        lease,
        agreement: agreement.unwrap_or(true),
        files,
    })
}

/// One key has no meaning without the other.
fn needs(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &str, other: &str) {
    if let Some((entry, _)) = view.get(key)
        && view.get(other).is_none()
    {
        let message = format!("`{key}` has no meaning without `{other}`");
        sink.push(
            Diagnostic::new(Code::Contradiction, &entry.key_span, message)
                .fix(format!("add `{other}`, or remove `{key}`")),
        );
    }
}

fn endpoints(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Vec<EtcdEndpoint>> {
    let items = view.list(sink, "etcd")?;
    if items.is_empty() {
        let span = view
            .get("etcd")
            .map_or(0..0, |(entry, _)| entry.item.span.clone());
        sink.push(
            Diagnostic::new(Code::EmptyList, &span, "`etcd` is empty")
                .fix("add the client URL of a member of etcd, or remove [cluster]"),
        );
        return None;
    }
    let mut endpoints = Vec::new();
    for item in items {
        let (url, span) = text(sink, item, &Kind::Text)?;
        match EtcdEndpoint::parse(url) {
            Ok(endpoint) => endpoints.push(endpoint),
            Err(_) => {
                let message = format!("`{}` is not a URL of etcd", url.escape_debug());
                sink.push(
                    Diagnostic::new(Code::BadAddress, span, message)
                        .fix("write \"https://HOST:PORT\", or \"http://HOST:PORT\" without TLS"),
                );
            }
        }
    }
    (endpoints.len() == items.len()).then_some(endpoints)
}

fn name(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &'static str) -> Option<String> {
    let (name, span) = view.text(sink, key)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=64).contains(&name.len()) && name.chars().all(is_plain) {
        return Some(name.to_owned());
    }
    let message = format!("`{}` cannot be a name", name.escape_debug());
    sink.push(
        Diagnostic::new(Code::BadName, span, message)
            .cause("it becomes a part of keys in etcd")
            .fix("use 1 to 64 characters of a-z, A-Z, 0-9, `-`, `_` and `.`"),
    );
    None
}

fn name_or_none(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &'static str) -> Option<String> {
    view.get(key)?;
    name(sink, view, key)
}

/// The value is only known where the secret could be read.
fn check_key(sink: &mut Sink<'_>, key: &Secret, span: &Range<usize>) {
    let length = key.expose().len();
    if (1..Cluster::KEY_MIN).contains(&length) {
        let message = format!(
            "`group_key` has {length} bytes; it needs at least {}",
            Cluster::KEY_MIN
        );
        sink.push(
            Diagnostic::new(Code::NoSecret, span, message)
                .fix("create one with `openssl rand -base64 32`"),
        );
    }
}

fn files(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<String> {
    let mut files = Vec::new();
    for item in view.list(sink, "files").unwrap_or_default() {
        let Some((path, span)) = text(sink, item, &Kind::Text) else {
            continue;
        };
        if path.starts_with('/') {
            files.push(path.to_owned());
        } else {
            sink.push(Diagnostic::new(
                Code::BadText,
                span,
                "a path in `files` must be absolute",
            ));
        }
    }
    files
}
