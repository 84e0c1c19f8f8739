//! Closes idle connections when descriptors run out: first those to servers, then the clients that are idle longest.

use std::collections::VecDeque;

use super::Worker;
use crate::descriptor::TABLE;
use crate::slab::Key;

/// Maximum number of idle clients that a search returns.
const MAX_CLIENTS: usize = 256;
/// Delay of the next search after one that found no idle client, in milliseconds.
const SEARCH_MS: u64 = 100;
/// Interval between warnings, in milliseconds.
const WARNING_MS: u64 = 60_000;

/// A client connection.
#[derive(Debug, Clone, Copy)]
enum Client {
    Session(Key),
    H2ServerConn(Key),
}

/// The idle clients that the last search found, longest idle first. They are stored because a search visits all
/// clients.
#[derive(Debug, Default)]
pub(super) struct IdleClients {
    /// Each client with the time at which it became idle, in milliseconds on the worker clock.
    clients: VecDeque<(u64, Client)>,
    /// The earliest time of the next search, in milliseconds on the worker clock.
    search_at_ms: u64,
}

impl Worker {
    /// Frees descriptors for one more client and its server connection. Returns whether there are enough.
    pub(super) fn make_room(&mut self) -> bool {
        if self.cx.free_descriptors(|| TABLE.has_room_for_client()) {
            return true;
        }
        while self.shed_one() {
            if TABLE.has_room_for_client() {
                return true;
            }
        }
        TABLE.request_idle_close(self.cx.now);
        false
    }

    /// Closes idle clients, if another worker has waiting clients but no idle ones.
    pub(super) fn shed_for_others(&mut self) {
        if !TABLE.is_idle_close_requested(self.cx.now) {
            return;
        }
        self.cx.free_descriptors(|| TABLE.has_room_for_client());
        while !TABLE.has_room_for_client() && self.shed_one() {}
    }

    /// Closes the client that has been idle longest. Returns false if no client is idle.
    fn shed_one(&mut self) -> bool {
        loop {
            let Some((since, client)) = self.idle.clients.pop_front() else {
                if !self.search_idle() {
                    return false;
                }
                continue;
            };
            // The client may have sent requests or disconnected since the search.
            if self.idle_since(client) != Some(since) {
                continue;
            }
            match client {
                Client::Session(key) => self.shed_session(key),
                Client::H2ServerConn(key) => self.shed_h2_server(key),
            }
            return true;
        }
    }

    fn shed_session(&mut self, key: Key) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.notify_close();
            let counters = &session.local.service.counters;
            counters.of(self.cx.worker).shed.add(1);
        }
        self.close(key);
    }

    fn shed_h2_server(&mut self, key: Key) {
        if let Some(server_conn) = self.h2_servers.get(key) {
            let counters = &server_conn.local.service.counters;
            counters.of(self.cx.worker).shed.add(1);
        }
        self.drive_h2_server(key, crate::h2::H2ServerConn::shed);
    }

    fn idle_since(&self, client: Client) -> Option<u64> {
        match client {
            Client::Session(key) => self.sessions.get(key)?.idle_since(self.cx.now),
            Client::H2ServerConn(key) => self.h2_servers.get(key)?.idle_since(),
        }
    }

    /// Searches all clients for idle ones. Returns whether there are any. For [`SEARCH_MS`] after a search without
    /// result, returns false without searching.
    fn search_idle(&mut self) -> bool {
        if self.cx.now < self.idle.search_at_ms {
            return false;
        }
        let sessions = self.sessions.keys().into_iter().map(Client::Session);
        let h2_servers = self.h2_servers.keys().into_iter().map(Client::H2ServerConn);
        let idle = sessions
            .chain(h2_servers)
            .filter_map(|client| Some((self.idle_since(client)?, client)));
        let mut idle_clients: Vec<(u64, Client)> = idle.collect();
        idle_clients.sort_unstable_by_key(|(since, _)| *since);
        idle_clients.truncate(MAX_CLIENTS);
        if idle_clients.is_empty() {
            self.idle.search_at_ms = self.cx.now + SEARCH_MS;
        }
        self.idle.clients = idle_clients.into();
        !self.idle.clients.is_empty()
    }

    pub(super) fn warn_about_descriptors(&mut self, service: &str) {
        if self.warned_at != 0 && self.cx.now < self.warned_at + WARNING_MS {
            return;
        }
        self.warned_at = self.cx.now;
        let limit = TABLE.status();
        tracing::warn!(
            service,
            open_files = limit.limit,
            clients = limit.clients,
            "the open-file limit has been reached; new clients wait to be accepted"
        );
    }
}
