//! Computes the differences between health checks.

use super::duration;
use super::edit::{Edits, duration_or_none, or_none, statuses};
use crate::{Check, CheckTls, Http, Probe, ProbeTarget, ProxyHeader, Timing};

/// Compares lists of checks: key by key if the check kinds are the same, otherwise by their summaries.
pub(super) fn compare(edits: Edits, old: &[Check], new: &[Check]) -> Edits {
    let same_kinds =
        old.len() == new.len() && old.iter().zip(new).all(|(old, new)| kind(old) == kind(new));
    if !same_kinds {
        return edits.compare("check", old, new, |checks| summary(checks));
    }
    let count = old.len();
    let pairs = old.iter().zip(new).enumerate();
    pairs.fold(edits, |edits, (index, (old, new))| {
        let table = match count {
            1 => "check".to_owned(),
            _ => format!("check {} ({})", index + 1, kind(old)),
        };
        edits.within(&table, |edits| compare_keys(edits, old, new))
    })
}

/// Returns the check kinds and intervals, such as `http every 2s`.
pub(super) fn summary(checks: &[Check]) -> String {
    let describe = |check: &Check| {
        let interval = duration(&check.timing.interval);
        format!("{} every {interval}", kind(check))
    };
    match checks {
        [] => "none".to_owned(),
        _ => checks
            .iter()
            .map(describe)
            .collect::<Vec<_>>()
            .join(" and "),
    }
}

/// Returns a check's kind as in the configuration.
fn kind(check: &Check) -> &'static str {
    match (&check.probe, &check.target.tls) {
        (Probe::Http(_), Some(_)) => "https",
        (Probe::Tcp | Probe::Exchange(_), Some(_)) => "tls",
        (probe, _) => probe.as_str(),
    }
}

fn compare_keys(edits: Edits, old: &Check, new: &Check) -> Edits {
    let edits = compare_timing(edits, &old.timing, &new.timing)
        .compare("on_failure", old.on_failure, new.on_failure, |value| {
            value.as_str().to_owned()
        })
        .compare("start", old.start, new.start, |value| {
            value.as_str().to_owned()
        });
    let edits = compare_targets(edits, &old.target, &new.target);
    compare_probes(edits, &old.probe, &new.probe)
}

fn compare_timing(edits: Edits, old: &Timing, new: &Timing) -> Edits {
    edits
        .compare("interval", old.interval, new.interval, duration)
        .compare(
            "interval_falling",
            old.interval_falling,
            new.interval_falling,
            duration_or_none,
        )
        .compare(
            "interval_down",
            old.interval_down,
            new.interval_down,
            duration_or_none,
        )
        .compare(
            "interval_rising",
            old.interval_rising,
            new.interval_rising,
            duration_or_none,
        )
        .compare("timeout", old.timeout, new.timeout, duration)
        .compare("rise", old.rise, new.rise, u32::to_string)
        .compare("fall", old.fall, new.fall, u32::to_string)
}

fn compare_targets(edits: Edits, old: &ProbeTarget, new: &ProbeTarget) -> Edits {
    edits
        .compare("address", old.address, new.address, |address| {
            address.map_or_else(
                || "inherited from the server".to_owned(),
                |address| address.to_string(),
            )
        })
        .compare("port", old.port, new.port, |port| {
            port.map_or_else(
                || "inherited from the server".to_owned(),
                |port| port.to_string(),
            )
        })
        .compare("source", old.source, new.source, |it| or_none(it.as_ref()))
        .compare("interface", &old.interface, &new.interface, |it| {
            or_none(it.as_ref())
        })
        .compare(
            "proxy_protocol",
            old.proxy_protocol,
            new.proxy_protocol,
            |version| or_none(version.map(ProxyHeader::as_str).as_ref()),
        )
        .compare("via", old.via, new.via, |via| via.as_str().to_owned())
        .compare("tls", old.tls.is_some(), new.tls.is_some(), bool::to_string)
        .both(old.tls.as_ref(), new.tls.as_ref(), compare_tls)
}

fn compare_tls(edits: Edits, old: &CheckTls, new: &CheckTls) -> Edits {
    edits
        .compare("verify", old.verify, new.verify, bool::to_string)
        .compare("ca", &old.ca, &new.ca, |it| or_none(it.as_ref()))
        .compare("server_name", &old.server_name, &new.server_name, |it| {
            or_none(it.as_ref())
        })
}

/// Compares probes of the same kind.
fn compare_probes(edits: Edits, old: &Probe, new: &Probe) -> Edits {
    let text = |value: &&String| (*value).clone();
    match (old, new) {
        (Probe::Http(old), Probe::Http(new)) => compare_http(edits, old, new),
        (Probe::Grpc { service: old }, Probe::Grpc { service: new }) => {
            edits.compare("service", old, new, |name| match name.is_empty() {
                true => "none".to_owned(),
                false => text(name),
            })
        }
        (Probe::Smtp { helo: old }, Probe::Smtp { helo: new }) => {
            edits.compare("helo", old, new, text)
        }
        (Probe::Mysql { user: old }, Probe::Mysql { user: new })
        | (Probe::Postgres { user: old }, Probe::Postgres { user: new }) => {
            edits.compare("user", old, new, text)
        }
        (Probe::Agent { send: old }, Probe::Agent { send: new }) => {
            edits.compare_hidden("send", old, new)
        }
        (
            Probe::Dns {
                name: old,
                record: old_record,
                answer: old_answer,
            },
            Probe::Dns {
                name: new,
                record: new_record,
                answer: new_answer,
            },
        ) => edits
            .compare("query", old, new, text)
            .compare("record", old_record, new_record, |it| {
                it.as_str().to_owned()
            })
            .compare("expect.answer", old_answer, new_answer, |it| {
                or_none(it.as_ref())
            }),
        (
            Probe::Udp {
                payload: old,
                bytes: old_bytes,
            },
            Probe::Udp {
                payload: new,
                bytes: new_bytes,
            },
        ) => edits.compare_hidden("payload", old, new).compare_hidden(
            "expect.bytes",
            old_bytes,
            new_bytes,
        ),
        (Probe::Script(old), Probe::Script(new)) => edits
            // Arguments may be credentials.
            .compare("command", &old.command, &new.command, |command| {
                or_none(command.first())
            })
            .compare("user", &old.user, &new.user, text)
            .compare("dynamic", old.dynamic, new.dynamic, bool::to_string),
        (Probe::Tcp | Probe::Exchange(_), Probe::Exchange(_))
        | (Probe::Exchange(_), Probe::Tcp) => edits.compare_hidden("exchange", old, new),
        (Probe::File { path: old }, Probe::File { path: new }) => {
            edits.compare("file", old, new, text)
        }
        // Probes of one kind without parameters are equal. Other probes that have no comparison above are reported
        // without values.
        (old, new) => edits.compare_hidden("probe", old, new),
    }
}

fn compare_http(edits: Edits, old: &Http, new: &Http) -> Edits {
    let text = |value: &&String| (*value).clone();
    edits
        .compare("path", &old.path, &new.path, text)
        .compare("method", &old.method, &new.method, text)
        .compare("version", old.minor_version, new.minor_version, |minor| {
            format!("1.{minor}")
        })
        .compare("host", &old.host, &new.host, |it| or_none(it.as_ref()))
        .compare_hidden("headers", &old.headers, &new.headers)
        .compare_hidden("body", &old.body, &new.body)
        .within("expect", |edits| {
            edits
                .compare("status", &old.status, &new.status, |it| statuses(it))
                .compare_hidden("body", &old.contains, &new.contains)
                .compare("regex", &old.pattern, &new.pattern, |it| {
                    or_none(it.as_ref())
                })
                .compare("without", &old.without, &new.without, |it| {
                    or_none(it.as_ref())
                })
                .compare("digest", &old.digest, &new.digest, |it| {
                    or_none(it.as_ref())
                })
        })
}
