//! Converts `cookie NAME` without a mode, where the value of the application's cookie names a server.
//!
//! Each value becomes a route that prefers this server.

use super::Context;
use super::server::{ServerScope, is_host_name, read_only_cookie, resolve_address};
use crate::document::Entry;
use crate::edit::Edits;
use crate::layer7::Condition;
use crate::note::Notes;

/// Maximum number of servers: each adds one route for every route to the pool.
const MAX_SERVERS: usize = 32;

/// The server that requests with a certain cookie value prefer.
#[derive(Clone, Debug)]
pub(super) struct CookieServer {
    condition: Condition,
    server: Entry,
}

impl CookieServer {
    /// Returns the condition and the changes of the route for requests with the cookie. Returns `None` if the requests
    /// already prefer a server or never have the cookie.
    pub(super) fn variant(
        &self,
        condition: &Condition,
        edits: &Edits,
    ) -> Option<(Condition, Edits)> {
        if edits.keys.iter().any(|key| key.key == "server") {
            return None;
        }
        let both = condition.and(&self.condition)?;
        let mut edits = edits.clone();
        edits.keys.push(self.server.clone());
        Some((both, edits))
    }
}

/// Records the preferred server for each value of a section's cookie.
pub(super) fn read(context: &mut Context<'_>, scope: &ServerScope<'_>, notes: &mut Notes) {
    let proxy = scope.proxy;
    let Some((line, pool)) = read_only_cookie(proxy).zip(context.pools.get(&proxy.name).cloned())
    else {
        return;
    };
    let name = line.word(1).unwrap_or_default();
    let mut servers = Vec::new();
    for server in proxy.lines.iter().filter(|line| line.keyword() == "server") {
        let Some(value) = scope.cookie_of(server, notes) else {
            continue;
        };
        let address = server.word(2).unwrap_or_default();
        if is_host_name(address) {
            return line.reject(
                notes,
                "a route's `server` accepts only an address, but the names of servers are resolved at run time",
            );
        }
        if value.contains('*') || value.starts_with('~') {
            return line.reject(
                notes,
                "a route's `cookie` treats a value with `*` or a leading `~` as a pattern",
            );
        }
        let Ok(address) = resolve_address(context, address) else {
            continue;
        };
        servers.push(CookieServer {
            condition: Condition {
                cookies: vec![format!("{name}={value}")],
                ..Condition::default()
            },
            server: Entry::new("server", address, server.position),
        });
    }
    if servers.len() > MAX_SERVERS {
        let reason = format!(
            "each server with a cookie requires a route; the maximum is {MAX_SERVERS} servers"
        );
        return line.reject(notes, &reason);
    }
    context.mark_used(line);
    let reason = match servers.is_empty() {
        true => "not imported: no server has a cookie",
        false => "imported as routes that match the cookie's value and set `server`",
    };
    notes.remark(line.position, reason);
    context.cookie_servers.insert(pool, servers);
}
