//! Converts `use-server` of backends in mode tcp: each server that is preferred for some connections gets its own pool.
//!
//! Routes of http services have the key `server`; those of tcp services select only a pool.

use super::Context;
use super::rule::{FrontendRule, condition};
use super::section::Proxy;
use crate::document::Entry;
use crate::layer7::{Action, Pool, PoolServer};
use crate::note::Notes;

/// Writes the pools. `pool` is the backend's pool; `by_name` contains its servers with their names.
pub(super) fn write(
    context: &mut Context<'_>,
    proxy: &Proxy,
    (pool, by_name): (&Pool, &[(String, PoolServer)]),
    notes: &mut Notes,
) {
    for line in proxy.lines.iter().filter(|it| it.keyword() == "use-server") {
        let (action, _) = condition(line.arguments());
        let name = action.first().map_or("", String::as_str);
        let key = (proxy.name.clone(), name.to_owned());
        if context.preferred_pools.contains_key(&key) {
            continue;
        }
        let Some((_, server)) = by_name.iter().find(|(other, _)| other == name) else {
            line.reject(
                notes,
                "the name is computed, or no `server` with an address has this name",
            );
            continue;
        };
        if pool.entries.iter().any(|entry| entry.key == "servers_dns") {
            line.reject(
                notes,
                "the backend has servers whose names are resolved at run time; such servers cannot be `backup`",
            );
            continue;
        }
        let mut servers = vec![as_preferred(server)];
        let others = by_name.iter().filter(|(other, _)| other != name);
        let (backups, others): (Vec<_>, Vec<_>) = others.partition(|(_, it)| is_backup(it));
        servers.extend(others.into_iter().map(|(_, other)| as_backup(other)));
        if !backups.is_empty() {
            let reason = "the backup servers of the backend are not used for these connections";
            notes.add(line.position, reason);
        }
        let mut entries = pool.entries.clone();
        entries.retain(|entry| entry.key != "sorry");
        let name = context.writer.names.claim(&format!("{}-{name}", pool.name));
        context.writer.write_pool(Pool {
            position: line.position,
            name: name.clone(),
            entries,
            servers,
            probes: None,
            lines: Vec::new(),
        });
        context.preferred_pools.insert(key, name);
    }
}

/// Returns the rules that select the pools of a section.
pub(super) fn rules<'p>(context: &mut Context<'_>, proxy: &'p Proxy) -> Vec<FrontendRule<'p>> {
    let mut rules = Vec::new();
    if proxy.is_http() {
        return rules;
    }
    for line in proxy.lines.iter().filter(|it| it.keyword() == "use-server") {
        let (action, condition) = condition(line.arguments());
        let name = action.first().map_or("", String::as_str);
        let key = (proxy.name.clone(), name.to_owned());
        if let Some(pool) = context.preferred_pools.get(&key).cloned() {
            context.mark_used(line);
            rules.push(FrontendRule {
                line,
                action: Action::Pool(pool),
                condition,
                except: Vec::new(),
            });
        }
    }
    rules
}

fn is_backup(server: &PoolServer) -> bool {
    server.entries.iter().any(|entry| entry.key == "backup")
}

/// Returns the server as the only regular server of its pool, without `weight`: a weight of 0 in the backend's pool
/// can be meant to exclude other connections only.
fn as_preferred(server: &PoolServer) -> PoolServer {
    let mut server = server.clone();
    let keeps = |entry: &Entry| !matches!(entry.key, "backup" | "weight");
    server.entries.retain(keeps);
    server
}

fn as_backup(server: &PoolServer) -> PoolServer {
    let mut server = server.clone();
    let entry = Entry::new("backup", true, server.position).essential();
    server.entries.push(entry);
    server
}
