//! What a daemon leaves to its successor beside connections: what checks said, since when, and the proxy's counts. Everything else is in the
//! kernel or in the runtime directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use weir_proxy::{ServerStatus, ServiceStatus};

use crate::engine::standing::Standings;

/// See the module. Fields may be added; what is missing begins anew.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Left {
    pub(super) standings: Standings,
    /// By pool and server.
    pub(super) since: BTreeMap<String, BTreeMap<String, SystemTime>>,
    services: Vec<Counts>,
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
        }
    }

    /// Counts alone.
    pub(super) fn counts(services: &[ServiceStatus]) -> Self {
        Self::new(Standings::default(), &BTreeMap::new(), services)
    }

    /// As it is written.
    pub(super) fn to_text(&self) -> Vec<u8> {
        // Numbers and names in maps: nothing of it can fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// As a file without a name.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub(super) fn write(&self) -> io::Result<OwnedFd> {
        let mut file = File::from(memfd_create("weir-left", MemfdFlags::CLOEXEC)?);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.rewind()?;
        Ok(file.into())
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
        let mut left = Self::counts(now);
        let before = Self::counts(before);
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
