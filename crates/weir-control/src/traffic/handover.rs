//! Defines the state that a daemon hands over to its successor in addition to connections.
//!
//! It consists of check results, times of state changes, the proxy's counters, and TLS ticket keys. The keys are never
//! written to disk. All other state is in the kernel or in the runtime directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use weir_model::ClientAuth;
use weir_proxy::{ServerStatus, ServiceStatus, ServiceTickets, TicketKey};
use weir_state::{Overrides, SavedHealth, ServerStates};
use weir_sys::sealed_file;

/// The state for the successor. Later versions may add fields; a missing field gets its default.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Handover {
    #[serde(rename = "standings")]
    health_states: SavedHealth,
    /// When each server of a proxy service last changed its state, by pool and server.
    since: BTreeMap<String, BTreeMap<String, SystemTime>>,
    services: Vec<ServiceCounters>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tickets: Vec<Tickets>,
}

/// A service's ticket keys; see [`ServiceTickets`].
#[derive(Debug, Serialize, Deserialize)]
struct Tickets {
    service: String,
    client_ca: Option<String>,
    client_auth: String,
    /// The name, secret and creation time of each key.
    keys: Vec<([u8; 16], [u8; 32], SystemTime)>,
}

/// A service's counters, in the same order as in [`ServiceStatus`]: connections, requests, bytes in and out, errors,
/// retries.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ServiceCounters {
    name: String,
    totals: [u64; 6],
    /// Number of responses by status class, 1xx to 5xx.
    responses: [u64; 5],
    servers: Vec<ServerCounters>,
}

/// A server's counters: connections, requests, bytes in and out.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ServerCounters {
    pool: String,
    name: String,
    totals: [u64; 4],
}

impl Handover {
    pub(super) fn new(states: &ServerStates, services: &[ServiceStatus]) -> Self {
        let since = states.since_times().iter().map(|(pool, servers)| {
            let servers = servers.iter();
            let times = servers.map(|(server, since)| (server.clone(), UNIX_EPOCH + *since));
            (pool.clone(), times.collect())
        });
        Self {
            health_states: states.saved_health(),
            since: since.collect(),
            ..Self::from_services(services)
        }
    }

    /// Returns only the counters.
    fn from_services(services: &[ServiceStatus]) -> Self {
        let counts = |service: &ServiceStatus| ServiceCounters {
            name: service.name.clone(),
            totals: [
                service.connections,
                service.requests,
                service.bytes_in,
                service.bytes_out,
                service.errors,
                service.retries,
            ],
            responses: service.responses,
            servers: service.servers.iter().map(server_counts).collect(),
        };
        Self {
            services: services.iter().map(counts).collect(),
            ..Self::default()
        }
    }

    /// Returns the server states, combined with `overrides`, which are stored in a separate file. Ignores pools for
    /// which `is_proxied` returns false, because the handover file is written only while there is a proxy service and
    /// the state of these pools may be outdated. Moves the state out: a second call returns no check results.
    pub(super) fn states(
        &mut self,
        overrides: Overrides,
        is_proxied: impl Fn(&str) -> bool,
    ) -> ServerStates {
        let mut health_states = std::mem::take(&mut self.health_states);
        health_states.servers.retain(|pool, _| is_proxied(pool));
        health_states.below_quorum.retain(|pool| is_proxied(pool));
        let since = std::mem::take(&mut self.since).into_iter();
        let since = since.map(|(pool, servers)| {
            let times = servers.into_iter();
            let times = times.map(|(server, since)| {
                let since = since.duration_since(UNIX_EPOCH);
                (server, since.unwrap_or_default())
            });
            (pool, times.collect())
        });
        ServerStates::restore(overrides, health_states, since.collect())
    }

    /// Adds the ticket keys.
    pub(super) fn with_tickets(mut self, tickets: &[ServiceTickets]) -> Self {
        let convert = |tickets: &ServiceTickets| Tickets {
            service: tickets.service.clone(),
            client_ca: tickets.client_ca.clone(),
            client_auth: tickets.client_auth.as_str().to_owned(),
            keys: tickets
                .keys
                .iter()
                .map(|key| (key.name, key.secret, key.created))
                .collect(),
        };
        self.tickets = tickets.iter().map(convert).collect();
        self
    }

    /// Returns the ticket keys. Skips services whose client authentication mode is unknown.
    pub(super) fn tickets(&self) -> Vec<ServiceTickets> {
        let convert = |tickets: &Tickets| {
            let mut modes = ClientAuth::ALL.into_iter();
            let key = |(name, secret, created): &([u8; 16], [u8; 32], SystemTime)| TicketKey {
                name: *name,
                secret: *secret,
                created: *created,
            };
            Some(ServiceTickets {
                service: tickets.service.clone(),
                client_ca: tickets.client_ca.clone(),
                client_auth: modes.find(|auth| auth.as_str() == tickets.client_auth)?,
                keys: tickets.keys.iter().map(key).collect(),
            })
        };
        self.tickets.iter().filter_map(convert).collect()
    }

    /// Writes the state to a new sealed memfd and returns it.
    ///
    /// # Errors
    /// Fails if there is not enough memory, or if too many files are open.
    pub(super) fn write(&self) -> io::Result<OwnedFd> {
        sealed_file("weir-handover", &serde_json::to_vec(self)?)
    }

    /// Reads the previous daemon's state. Returns an empty state if the file is unreadable.
    pub(super) fn read(file: &mut File) -> Self {
        let mut text = Vec::new();
        let read_result = file.rewind().and_then(|()| file.read_to_end(&mut text));
        let parsed = read_result.and_then(|_| Ok(serde_json::from_slice(&text)?));
        parsed.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to read the previous daemon's state");
            Self::default()
        })
    }

    /// Returns only the counters, with their increase from `before` to `now`.
    pub(super) fn counter_delta(now: &[ServiceStatus], before: &[ServiceStatus]) -> Self {
        let mut handover = Self::from_services(now);
        let before = Self::from_services(before);
        for counts in &mut handover.services {
            let Some(previous) = before
                .services
                .iter()
                .find(|service| service.name == counts.name)
            else {
                continue;
            };
            subtract(&mut counts.totals, &previous.totals);
            subtract(&mut counts.responses, &previous.responses);
            for server in &mut counts.servers {
                let is_same = |other: &&ServerCounters| {
                    other.pool == server.pool && other.name == server.name
                };
                if let Some(previous) = previous.servers.iter().find(is_same) {
                    subtract(&mut server.totals, &previous.totals);
                }
            }
        }
        handover
    }

    /// Returns the counters in the form that the proxy reports.
    pub(super) fn service_statuses(&self) -> Vec<ServiceStatus> {
        let status = |counts: &ServiceCounters| {
            let [connections, requests, bytes_in, bytes_out, errors, retries] = counts.totals;
            ServiceStatus {
                name: counts.name.clone(),
                connections,
                requests,
                bytes_in,
                bytes_out,
                errors,
                retries,
                responses: counts.responses,
                servers: counts.servers.iter().map(server_status).collect(),
                ..ServiceStatus::default()
            }
        };
        self.services.iter().map(status).collect()
    }
}

fn subtract<const N: usize>(totals: &mut [u64; N], previous: &[u64; N]) {
    for (total, previous) in totals.iter_mut().zip(previous) {
        *total = total.saturating_sub(*previous);
    }
}

fn server_counts(server: &ServerStatus) -> ServerCounters {
    ServerCounters {
        pool: server.pool.clone(),
        name: server.name.clone(),
        totals: [
            server.connections,
            server.requests,
            server.bytes_in,
            server.bytes_out,
        ],
    }
}

fn server_status(counts: &ServerCounters) -> ServerStatus {
    let [connections, requests, bytes_in, bytes_out] = counts.totals;
    ServerStatus {
        connections,
        requests,
        bytes_in,
        bytes_out,
        ..ServerStatus::with_name(&counts.pool, &counts.name)
    }
}

#[cfg(test)]
mod tests;
