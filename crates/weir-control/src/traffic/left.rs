//! What a daemon leaves to its successor beside connections: what checks said, since when, the proxy's counts, and the
//! keys of TLS tickets, which are never on a disk. Everything else is in the kernel or in the runtime directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use weir_model::ClientAuth;
use weir_proxy::{ServerStatus, ServiceStatus, ServiceTickets, TicketKey};
use weir_sys::sealed_file;

use crate::engine::standing::Standings;

/// See the module. Fields may be added; what is missing begins anew.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Left {
    pub(super) standings: Standings,
    /// By pool and server.
    pub(super) since: BTreeMap<String, BTreeMap<String, SystemTime>>,
    services: Vec<Counts>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tickets: Vec<Tickets>,
}

/// The keys of a service's tickets, as [`ServiceTickets`].
#[derive(Debug, Serialize, Deserialize)]
struct Tickets {
    service: String,
    client_ca: Option<String>,
    client_auth: String,
    /// Name, secret, made.
    keys: Vec<([u8; 16], [u8; 32], SystemTime)>,
}

/// A service's counts, in the order of [`ServiceStatus`]: connections, requests, octets in and out, errors, retries.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Counts {
    name: String,
    totals: [u64; 6],
    responses: [u64; 5],
    servers: Vec<ServerCounts>,
}

/// A server's: connections, requests, octets in and out.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ServerCounts {
    pool: String,
    name: String,
    totals: [u64; 4],
}

impl Left {
    pub(super) fn new(
        standings: Standings,
        since: &BTreeMap<(String, String), SystemTime>,
        services: &[ServiceStatus],
    ) -> Self {
        let mut nested: BTreeMap<String, BTreeMap<String, SystemTime>> = BTreeMap::new();
        for ((pool, server), began) in since {
            let servers = nested.entry(pool.clone()).or_default();
            servers.insert(server.clone(), *began);
        }
        let counts = |service: &ServiceStatus| Counts {
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
            standings,
            since: nested,
            services: services.iter().map(counts).collect(),
            tickets: Vec::new(),
        }
    }

    /// With the keys of tickets.
    pub(super) fn with_tickets(mut self, tickets: &[ServiceTickets]) -> Self {
        let of_service = |tickets: &ServiceTickets| Tickets {
            service: tickets.service.clone(),
            client_ca: tickets.client_ca.clone(),
            client_auth: tickets.client_auth.as_str().to_owned(),
            keys: tickets
                .keys
                .iter()
                .map(|key| (key.name, key.secret, key.made))
                .collect(),
        };
        self.tickets = tickets.iter().map(of_service).collect();
        self
    }

    /// The keys of tickets; of a service whose clients were asked for something unknown, none.
    pub(super) fn tickets(&self) -> Vec<ServiceTickets> {
        let of_service = |tickets: &Tickets| {
            let mut known = ClientAuth::ALL.into_iter();
            let key = |(name, secret, made): &([u8; 16], [u8; 32], SystemTime)| TicketKey {
                name: *name,
                secret: *secret,
                made: *made,
            };
            Some(ServiceTickets {
                service: tickets.service.clone(),
                client_ca: tickets.client_ca.clone(),
                client_auth: known.find(|auth| auth.as_str() == tickets.client_auth)?,
                keys: tickets.keys.iter().map(key).collect(),
            })
        };
        self.tickets.iter().filter_map(of_service).collect()
    }

    /// As a file without a name, sealed against changes.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub(super) fn write(&self) -> io::Result<OwnedFd> {
        sealed_file("weir-left", &serde_json::to_vec(self)?)
    }

    /// What a predecessor wrote; one that another version wrote so that it is not understood counts as nothing.
    pub(super) fn read(file: &mut File) -> Self {
        let mut text = Vec::new();
        let read = file.rewind().and_then(|()| file.read_to_end(&mut text));
        let parsed = read.and_then(|_| Ok(serde_json::from_slice(&text)?));
        parsed.unwrap_or_else(|error| {
            tracing::warn!(%error, "what the former daemon left is not understood");
            Self::default()
        })
    }

    /// Counts alone: those of `now` that were not there `before`.
    pub(super) fn since(now: &[ServiceStatus], before: &[ServiceStatus]) -> Self {
        let mut left = Self::new(Standings::default(), &BTreeMap::new(), now);
        let before = Self::new(Standings::default(), &BTreeMap::new(), before);
        for counts in &mut left.services {
            let Some(former) = before.services.iter().find(|it| it.name == counts.name) else {
                continue;
            };
            less(&mut counts.totals, &former.totals);
            less(&mut counts.responses, &former.responses);
            for server in &mut counts.servers {
                let same = |it: &&ServerCounts| it.pool == server.pool && it.name == server.name;
                if let Some(former) = former.servers.iter().find(same) {
                    less(&mut server.totals, &former.totals);
                }
            }
        }
        left
    }

    /// The counts as the proxy has them.
    pub(super) fn services(&self) -> Vec<ServiceStatus> {
        let status = |counts: &Counts| {
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

fn less<const N: usize>(totals: &mut [u64; N], former: &[u64; N]) {
    for (total, former) in totals.iter_mut().zip(former) {
        *total = total.saturating_sub(*former);
    }
}

fn server_counts(server: &ServerStatus) -> ServerCounts {
    ServerCounts {
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

fn server_status(counts: &ServerCounts) -> ServerStatus {
    let [connections, requests, bytes_in, bytes_out] = counts.totals;
    ServerStatus {
        connections,
        requests,
        bytes_in,
        bytes_out,
        ..ServerStatus::named(&counts.pool, &counts.name)
    }
}
