//! Differences of pools and of their servers.

use std::fmt::Display;

use super::{Change, Edit, Edits, Met, duration, meet, or_none};
use crate::{Check, Pool, Scheduler, Secret, Server, TlsVersion};

pub(super) fn diff(old: &[Pool], new: &[Pool], changes: &mut Vec<Change>) {
    meet(
        old,
        new,
        |pool| &pool.name,
        |met| match met {
            Met::Gone(pool) => changes.push(Change::PoolRemoved {
                pool: pool.name.clone(),
                servers: pool.servers.len(),
            }),
            Met::Stays { before, now, .. } => changed(before, now, changes),
            Met::New(pool) => changes.push(Change::PoolAdded {
                pool: pool.name.clone(),
                servers: pool.servers.len(),
            }),
        },
    );
}

fn changed(before: &Pool, now: &Pool, changes: &mut Vec<Change>) {
    let edits = edits(before, now);
    if !edits.is_empty() {
        changes.push(Change::PoolChanged {
            pool: before.name.clone(),
            edits,
        });
    }
    diff_servers(before, now, changes);
}

fn diff_servers(old: &Pool, new: &Pool, changes: &mut Vec<Change>) {
    let pool = &old.name;
    let mut next = 0;
    let mut reordered = false;
    meet(
        &old.servers,
        &new.servers,
        |server| &server.name,
        |met| match met {
            Met::Gone(server) => changes.push(Change::ServerRemoved {
                pool: pool.clone(),
                server: server.name.clone(),
            }),
            Met::Stays { before, now, at } => {
                reordered |= at < next;
                next = at;
                changed_server(pool, before, now, changes);
            }
            Met::New(server) => changes.push(Change::ServerAdded {
                pool: pool.clone(),
                server: server.name.clone(),
                weight: server.weight,
            }),
        },
    );
    if reordered {
        changes.push(Change::ServersReordered { pool: pool.clone() });
    }
}

fn changed_server(pool: &str, before: &Server, now: &Server, changes: &mut Vec<Change>) {
    let edits = server_edits(before, now);
    if !edits.is_empty() {
        changes.push(Change::ServerChanged {
            pool: pool.to_owned(),
            server: before.name.clone(),
            edits,
        });
    }
}

fn edits(old: &Pool, new: &Pool) -> Vec<Edit> {
    let sorry = |pool: &Pool| {
        let server = pool.sorry.as_ref()?;
        Some(match &server.checks {
            Some(checks) => format!("{}, check {}", server.name, kinds(checks)),
            None => server.name.clone(),
        })
    };
    Edits(Vec::new())
        .compare(
            "scheduler",
            old.scheduler,
            new.scheduler,
            |scheduler: &Option<Scheduler>| match scheduler {
                Some(scheduler) => scheduler.to_string(),
                None => "by default".to_owned(),
            },
        )
        .compare("sorry", sorry(old), sorry(new), |name| {
            or_none(name.as_ref())
        })
        .compare(
            "servers_file",
            old.servers_file.clone(),
            new.servers_file.clone(),
            |file| or_none(file.as_ref()),
        )
        .compare(
            "servers_dns",
            old.servers_dns.clone(),
            new.servers_dns.clone(),
            |dns| or_none(dns.as_ref().map(|dns| &dns.name)),
        )
        .compare("no_server", old.no_server, new.no_server, |value| {
            value.as_str().to_owned()
        })
        .compare("on_remove", old.on_remove, new.on_remove, |value| {
            value.as_str().to_owned()
        })
        .compare("check", &old.checks, &new.checks, |checks| kinds(checks))
        .compare("tls", secure(old), secure(new), |tls| or_none(tls.as_ref()))
        .compare("http2", old.http2, new.http2, bool::to_string)
        .compare("scheduler.key", &old.hash_key, &new.hash_key, |key| {
            key.to_string()
        })
        .compare(
            "queue_timeout",
            old.queue_timeout,
            new.queue_timeout,
            duration,
        )
        .compare("sticky", stays(old), stays(new), |sticky| {
            sticky.map_or("none".to_owned(), |(cookie, mode, _)| {
                format!("{cookie} {mode}")
            })
        })
        .compare_secrets("sticky.secret", &secrets(old), &secrets(new))
        .compare(
            "proxy_protocol",
            old.proxy_protocol,
            new.proxy_protocol,
            |version| version.map_or("none".to_owned(), |version| version.as_str().to_owned()),
        )
        .compare("health", &old.health, &new.health, |health| {
            health.to_string()
        })
        .0
}

/// All of it as text: where it is written takes no part.
/// What is shown of `sticky`.
fn stays(pool: &Pool) -> Option<(&str, &'static str, Option<&str>)> {
    let sticky = pool.sticky.as_ref()?;
    let attributes = sticky.attributes.as_deref();
    Some((&sticky.cookie, sticky.mode.as_str(), attributes))
}

fn secrets(pool: &Pool) -> Vec<&Secret> {
    let sticky = pool.sticky.iter();
    sticky.filter_map(|sticky| sticky.secret.as_ref()).collect()
}

fn secure(pool: &Pool) -> Option<String> {
    let tls = pool.tls.as_ref()?;
    let mut text = if tls.verify {
        "verified"
    } else {
        "not verified"
    }
    .to_owned();
    if tls.minimum != TlsVersion::default() {
        text += &format!(", from version {}", tls.minimum.as_str());
    }
    let named = [
        ("ca", &tls.ca),
        ("server_name", &tls.server_name),
        ("certificate", &tls.certificate),
    ];
    for (key, value) in named {
        if let Some(value) = value {
            text += &format!(", {key} {value}");
        }
    }
    Some(text)
}

fn server_edits(old: &Server, new: &Server) -> Vec<Edit> {
    Edits(Vec::new())
        .compare("weight", old.weight, new.weight, u32::to_string)
        .compare("backup", old.backup, new.backup, bool::to_string)
        .compare(
            "max_connections",
            old.max_connections,
            new.max_connections,
            u32::to_string,
        )
        .compare(
            "min_connections",
            old.min_connections,
            new.min_connections,
            u32::to_string,
        )
        .compare("forward", old.forward, new.forward, or_service)
        .compare("tunnel", old.tunnel, new.tunnel, or_service)
        .compare("check", &old.checks, &new.checks, |checks| {
            checks
                .as_ref()
                .map_or_else(|| "the pool's".to_owned(), |checks| kinds(checks))
        })
        .0
}

fn or_service<T: Display>(value: &Option<T>) -> String {
    value
        .as_ref()
        .map_or_else(|| "the service's".to_owned(), ToString::to_string)
}

/// What the checks ask and how often, `http every 2s`.
fn kinds(checks: &[Check]) -> String {
    let kind = |check: &Check| {
        format!(
            "{} every {}",
            check.probe.as_str(),
            duration(&check.timing.interval)
        )
    };
    match checks {
        [] => "none".to_owned(),
        _ => checks.iter().map(kind).collect::<Vec<_>>().join(" and "),
    }
}
