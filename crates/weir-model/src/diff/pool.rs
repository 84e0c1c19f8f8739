//! Computes the differences between pools and between their servers.

use std::fmt::Display;

use super::edit::{Edits, comma_list, or_none};
use super::{Change, Edit, NameMatch, check, duration, match_by_name, tls};
use crate::{Health, Pool, ProxyHeader, Secret, Server, ServersDns};

pub(super) fn diff(old: &[Pool], new: &[Pool], changes: &mut Vec<Change>) {
    match_by_name(
        old,
        new,
        |pool| &pool.name,
        |matched| match matched {
            NameMatch::Removed(pool) => changes.push(Change::PoolRemoved {
                pool: pool.name.clone(),
                servers: pool.servers.len(),
            }),
            NameMatch::Kept { old, new, .. } => diff_pool(old, new, changes),
            NameMatch::Added(pool) => changes.push(Change::PoolAdded {
                pool: pool.name.clone(),
                servers: pool.servers.len(),
            }),
        },
    );
}

fn diff_pool(old: &Pool, new: &Pool, changes: &mut Vec<Change>) {
    let edits = edits(old, new);
    if !edits.is_empty() {
        changes.push(Change::PoolChanged {
            pool: old.name.clone(),
            edits,
        });
    }
    diff_servers(old, new, changes);
}

fn diff_servers(old: &Pool, new: &Pool, changes: &mut Vec<Change>) {
    let pool = &old.name;
    let mut next = 0;
    let mut reordered = false;
    match_by_name(
        &old.servers,
        &new.servers,
        |server| &server.name,
        |matched| match matched {
            NameMatch::Removed(server) => changes.push(Change::ServerRemoved {
                pool: pool.clone(),
                server: server.name.clone(),
            }),
            NameMatch::Kept { old, new, index } => {
                reordered |= index < next;
                next = index;
                diff_server(pool, old, new, changes);
            }
            NameMatch::Added(server) => changes.push(Change::ServerAdded {
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

fn diff_server(pool: &str, old: &Server, new: &Server, changes: &mut Vec<Change>) {
    let edits = server_edits(old, new);
    if !edits.is_empty() {
        changes.push(Change::ServerChanged {
            pool: pool.to_owned(),
            server: old.name.clone(),
            edits,
        });
    }
}

fn edits(old: &Pool, new: &Pool) -> Vec<Edit> {
    let edits = Edits::default().compare("scheduler", old.scheduler, new.scheduler, |scheduler| {
        scheduler.map_or_else(|| "default".to_owned(), |it| it.to_string())
    });
    let edits = other_server_keys(edits, old, new)
        .compare("no_server", old.no_server, new.no_server, |value| {
            value.as_str().to_owned()
        })
        .compare("on_remove", old.on_remove, new.on_remove, |value| {
            value.as_str().to_owned()
        });
    let edits = check::compare(edits, &old.checks, &new.checks);
    let edits = tls::of_pool(edits, old.tls.as_ref(), new.tls.as_ref())
        .compare("http2", old.http2, new.http2, bool::to_string)
        .compare("adapt", old.adapt, new.adapt, |adapt| {
            adapt.as_str().to_owned()
        })
        .compare("host", &old.host, &new.host, |host| or_none(host.as_ref()))
        .compare("scheduler.key", &old.hash_key, &new.hash_key, |key| {
            key.to_string()
        })
        .compare(
            "queue_timeout",
            old.queue_timeout,
            new.queue_timeout,
            duration,
        )
        .compare(
            "proxy_protocol",
            old.proxy_protocol,
            new.proxy_protocol,
            |version| or_none(version.map(ProxyHeader::as_str).as_ref()),
        );
    health(sticky(edits, old, new), &old.health, &new.health).finish()
}

/// Compares `sorry`, `servers_file` and `servers_dns`.
fn other_server_keys(edits: Edits, old: &Pool, new: &Pool) -> Edits {
    let name = |server: &Server| server.name.clone();
    let (old_sorry, sorry) = (old.sorry.as_ref(), new.sorry.as_ref());
    let edits = if old_sorry.map(name) == sorry.map(name) {
        edits.within("sorry", |edits| edits.both(old_sorry, sorry, server_keys))
    } else {
        edits.compare("sorry", old_sorry.map(name), sorry.map(name), |name| {
            or_none(name.as_ref())
        })
    };
    let edits = edits.compare(
        "servers_file",
        &old.servers_file,
        &new.servers_file,
        |file| or_none(file.as_ref()),
    );
    servers_dns(edits, &old.servers_dns, &new.servers_dns)
}

/// Compares the entries one by one if both lists have the same length, otherwise by their names.
fn servers_dns(edits: Edits, old: &[ServersDns], new: &[ServersDns]) -> Edits {
    if old.len() != new.len() {
        return edits.compare("servers_dns", old, new, |all| {
            comma_list(all.iter().map(|dns| dns.name.clone()).collect())
        });
    }
    let count = old.len();
    let pairs = old.iter().zip(new).enumerate();
    pairs.fold(edits, |edits, (index, (old, new))| {
        let table = match count {
            1 => "servers_dns".to_owned(),
            _ => format!("servers_dns {}", index + 1),
        };
        edits.within(&table, |edits| {
            edits
                .compare("name", &old.name, &new.name, |name| (*name).clone())
                .compare("record", old.record, new.record, |it| {
                    it.as_str().to_owned()
                })
                .compare("port", old.port, new.port, |port| or_none(port.as_ref()))
                .compare("weight", old.weight, new.weight, ToString::to_string)
                .compare(
                    "max_connections",
                    old.max_connections,
                    new.max_connections,
                    ToString::to_string,
                )
                .compare("cookie", &old.cookie, &new.cookie, |value| {
                    or_none(value.as_ref())
                })
                .compare("backup", old.backup, new.backup, ToString::to_string)
                .compare("resolvers", &old.resolvers, &new.resolvers, |all| {
                    comma_list(all.iter().map(ToString::to_string).collect())
                })
        })
    })
}

fn sticky(edits: Edits, old: &Pool, new: &Pool) -> Edits {
    edits
        .table(
            "sticky",
            old.sticky.as_ref(),
            new.sticky.as_ref(),
            |sticky| format!("{} {}", sticky.cookie, sticky.mode.as_str()),
            |edits, old, new| {
                edits
                    .compare("cookie", &old.cookie, &new.cookie, |it| (*it).clone())
                    .compare("mode", old.mode, new.mode, |it| it.as_str().to_owned())
                    .compare("private", old.private, new.private, bool::to_string)
                    .compare("attributes", &old.attributes, &new.attributes, |it| {
                        it.as_ref()
                            .map_or_else(|| "default".to_owned(), |it| format!("{it:?}"))
                    })
            },
        )
        .compare_secrets("sticky.secret", &secrets(old), &secrets(new))
}

fn secrets(pool: &Pool) -> Vec<&Secret> {
    let sticky = pool.sticky.iter();
    sticky.filter_map(|sticky| sticky.secret.as_ref()).collect()
}

fn health(edits: Edits, old: &Health, new: &Health) -> Edits {
    edits
        .compare("require", old.require, new.require, |it| {
            it.as_str().to_owned()
        })
        .compare("slow_start", old.slow_start, new.slow_start, duration)
        .compare("quorum", old.quorum, new.quorum, u32::to_string)
        .compare(
            "quorum_hysteresis",
            old.quorum_hysteresis,
            new.quorum_hysteresis,
            u32::to_string,
        )
        .compare(
            "panic_threshold",
            old.panic_threshold,
            new.panic_threshold,
            |percent| or_none(percent.as_ref()),
        )
        .compare(
            "max_ejected",
            old.max_ejected,
            new.max_ejected,
            u32::to_string,
        )
        .compare("max_latency", old.max_latency, new.max_latency, |limit| {
            limit.as_ref().map_or_else(|| "none".to_owned(), duration)
        })
        // Arguments may contain credentials.
        .compare("notify", &old.notify, &new.notify, |command| {
            or_none(command.first())
        })
}

fn server_edits(old: &Server, new: &Server) -> Vec<Edit> {
    server_keys(Edits::default(), old, new).finish()
}

fn server_keys(edits: Edits, old: &Server, new: &Server) -> Edits {
    let edits = edits
        .compare("weight", old.weight, new.weight, u32::to_string)
        .compare("backup", old.backup, new.backup, bool::to_string)
        .compare("cookie", &old.cookie, &new.cookie, |value| {
            value.as_deref().unwrap_or("generated").to_owned()
        })
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
        .compare("tunnel", old.tunnel, new.tunnel, or_service);
    match (&old.checks, &new.checks) {
        (Some(old), Some(new)) => check::compare(edits, old, new),
        (old, new) => edits.compare("check", old, new, |checks| {
            checks.as_ref().map_or_else(
                || "inherited from the pool".to_owned(),
                |it| check::summary(it),
            )
        }),
    }
}

fn or_service<T: Display>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(
        || "inherited from the service".to_owned(),
        ToString::to_string,
    )
}
