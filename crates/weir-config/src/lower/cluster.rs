//! Lowers `[cluster]`.

use std::ops::Range;

use weir_model::{Cluster, EtcdEndpoint, Forward, Publish, Secret};

use super::{report_error, response, secret, tls};
use crate::address;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::Value;
use crate::view::{Sink, View, keyword, text, wrong_type};

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
    let password = secret::from_key(sink, view, "password");
    let group_key = secret::from_key(sink, view, "group_key");
    check_requirement(sink, view, "key", "certificate");
    let is_plain = |endpoints: &Vec<EtcdEndpoint>| endpoints.iter().all(|it| !it.tls);
    if etcd.as_ref().is_some_and(is_plain) {
        for key in ["ca", "certificate"] {
            if let Some((entry, _)) = view.get(key) {
                let message =
                    format!("`{key}` has no effect: no URL in `etcd` begins with https://");
                sink.push(
                    Diagnostic::new(Code::NoEffect, &entry.key_span, message)
                        .fix("write https:// URLs, or remove it"),
                );
            }
        }
    }
    check_requirement(sink, view, "user", "password");
    check_requirement(sink, view, "password", "user");
    if let (Some(key), Some((entry, _))) = (&group_key, view.get("group_key")) {
        check_key(sink, key, &entry.item.span);
    }
    let mut endpoints = etcd.iter().flatten();
    if let Some(endpoint) = endpoints.find(|it| !it.tls && !it.is_local()) {
        report_unencrypted_endpoint(
            sink,
            view,
            endpoint,
            password.is_some(),
            group_key.is_some(),
        );
    }
    let lease = view.whole_seconds(sink, "lease", Cluster::LEASE);
    let agreement = view.flag(sink, "agreement");
    let files = files(sink, view);
    let publish = publish(sink, view);
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
        publish,
    })
}

/// Reports which attacks an unencrypted connection to etcd permits.
fn report_unencrypted_endpoint(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    endpoint: &EtcdEndpoint,
    has_password: bool,
    has_key: bool,
) {
    let Some((entry, _)) = view.get("etcd") else {
        return;
    };
    if has_password {
        let message = format!("`password` is sent to {endpoint} without encryption");
        sink.push(
            Diagnostic::new(Code::UnencryptedEtcd, &entry.item.span, message)
                .fix("use https:// URLs, with `ca`"),
        );
    }
    if !has_key {
        let message = format!(
            "the configuration is read from {endpoint} without encryption, and without `group_key`"
        );
        sink.push(
            Diagnostic::new(Code::UnencryptedEtcd, &entry.item.span, message)
                .cause("anyone who can modify the packets can change the group's configuration")
                .fix("add `group_key`, or use https:// URLs, with `ca`"),
        );
    }
}

/// Lowers `[cluster.publish]`.
fn publish(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Publish> {
    let (entry, kind) = view.get("publish")?;
    let Value::Table(table) = &entry.item.value else {
        sink.push(wrong_type(&entry.item, kind).fix("write [cluster.publish]"));
        return None;
    };
    let publish = View::open(sink, &catalog::CLUSTER_PUBLISH, table, &entry.key_span);
    for key in ["vips", "servers", "ports", "forwards", "marks"] {
        check_not_empty(sink, &publish, key);
    }
    let (forwards, proxy) = forwards(sink, &publish);
    Some(Publish {
        vips: response::networks(sink, &publish, "vips"),
        ports: ports(sink, &publish),
        marks: marks(sink, &publish),
        servers: response::networks(sink, &publish, "servers"),
        forwards,
        proxy,
        timeouts: publish.flag(sink, "timeouts").unwrap_or(false),
    })
}

/// Reports an empty list, which could be mistaken for the default: the default permits more.
fn check_not_empty(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &str) {
    if let Some((entry, _)) = view.get(key)
        && matches!(&entry.item.value, Value::List(items) if items.is_empty())
    {
        let message = format!("`{key}` is empty");
        sink.push(
            Diagnostic::new(Code::EmptyList, &entry.item.span, message)
                .fix("list the items that the group may publish, or remove [cluster.publish]"),
        );
    }
}

fn ports(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<(u16, u16)> {
    let mut ports = Vec::new();
    for item in view.list(sink, "ports").unwrap_or_default() {
        let Some((text, span)) = text(sink, item, &Kind::PortRange) else {
            continue;
        };
        match address::parse_port_range(text) {
            Ok(range) => ports.push(range),
            Err(error) => report_error(sink, span, error),
        }
    }
    ports
}

/// Returns the layer 4 forwarding methods, and whether `proxy` is listed.
fn forwards(sink: &mut Sink<'_>, view: &View<'_, '_>) -> (Vec<Forward>, bool) {
    let Some((_, Kind::List(kind))) = view.get("forwards") else {
        return (Publish::FORWARDS.to_vec(), true);
    };
    let items = view.list(sink, "forwards").unwrap_or_default();
    let keywords: Vec<&str> = items
        .iter()
        .filter_map(|item| keyword(sink, item, kind))
        .collect();
    let is_listed = |forward: &Forward| keywords.contains(&forward.as_str());
    let forwards = Forward::ALL.into_iter().filter(is_listed).collect();
    (forwards, keywords.contains(&catalog::PROXY))
}

fn marks(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<u32> {
    let mut marks = Vec::new();
    for item in view.list(sink, "marks").unwrap_or_default() {
        let mark = match &item.value {
            Value::Integer(number) => number
                .and_then(|number| u32::try_from(number).ok())
                .filter(|mark| *mark > 0),
            _ => {
                sink.push(wrong_type(item, &catalog::MARK));
                continue;
            }
        };
        match mark {
            Some(mark) => marks.push(mark),
            None => sink.push(
                Diagnostic::new(
                    Code::OutOfRange,
                    &item.span,
                    "a firewall mark must be from 1 to 4294967295",
                )
                .fix("write a number from 1 to 4294967295"),
            ),
        }
    }
    marks
}

/// Reports a key that has no effect without another key.
fn check_requirement(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &str, other: &str) {
    if let Some((entry, _)) = view.get(key)
        && view.get(other).is_none()
    {
        let message = format!("`{key}` has no effect without `{other}`");
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
                .fix("add the client URL of an etcd member, or remove [cluster]"),
        );
        return None;
    }
    let mut endpoints = Vec::new();
    for item in items {
        let (url, span) = text(sink, item, &Kind::Text)?;
        match EtcdEndpoint::parse(url) {
            Ok(endpoint) => endpoints.push(endpoint),
            Err(_) => {
                let message = format!("`{}` is not an etcd URL", url.escape_debug());
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
    let message = format!("`{}` is not a valid name", name.escape_debug());
    sink.push(
        Diagnostic::new(Code::BadName, span, message)
            .cause("it becomes part of the keys in etcd")
            .fix("use 1 to 64 characters of a-z, A-Z, 0-9, `-`, `_` and `.`"),
    );
    None
}

fn name_or_none(sink: &mut Sink<'_>, view: &View<'_, '_>, key: &'static str) -> Option<String> {
    view.get(key)?;
    name(sink, view, key)
}

/// Reports a key that is too short. The value is empty if this process does not read the secret.
fn check_key(sink: &mut Sink<'_>, key: &Secret, span: &Range<usize>) {
    let length = key.expose().len();
    if (1..Cluster::MIN_KEY_BYTES).contains(&length) {
        let message = format!(
            "`group_key` has {length} bytes; it needs at least {}",
            Cluster::MIN_KEY_BYTES
        );
        sink.push(
            Diagnostic::new(Code::SecretUnavailable, span, message)
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

#[cfg(test)]
mod tests {
    use crate::{Host, parse};

    #[test]
    fn connections_without_encryption_are_reported() {
        let user = "user = \"weir\"\npassword = \"a password\"\n";
        let key = "group_key = \"a key of sixteen bytes or more\"\n";
        for (url, settings, expected) in [
            ("http://10.0.0.1:2379", user, 2),
            ("http://10.0.0.1:2379", "", 1),
            ("http://10.0.0.1:2379", key, 0),
            ("http://127.0.0.1:2379", user, 0),
            ("https://10.0.0.1:2379", user, 0),
        ] {
            let text = format!("[cluster]\nname = \"edge\"\netcd = [\"{url}\"]\n{settings}");
            let parsed = parse(&text, &Host::default()).expect("valid");
            let findings = parsed
                .findings
                .iter()
                .filter(|it| it.code.as_str() == "W071");
            assert_eq!(findings.count(), expected, "{text}: {:?}", parsed.findings);
            assert!(!format!("{:?}", parsed.findings).contains("a password"));
        }
    }
}
