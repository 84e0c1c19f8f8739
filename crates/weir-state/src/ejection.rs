//! Ejects servers that fail client traffic while the rest of their pool does not.
//!
//! The samples come from the passive checks of both planes.
//!
//! The layer 4 plane counts handshakes for each service, and the proxy counts requests across all its services.
//! [`Outliers`] applies the same rule to both, and to responses that take longer than `max_latency`. Servers that are
//! already down according to their checks are ignored.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use weir_health::{Ejection, EjectionLimit, Outliers, Sample, Transition};
use weir_model::{Pool, Server};

/// The source of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Handshakes with the servers of a layer 4 service.
    Handshakes,
    /// Requests and connections to the servers of all proxy services.
    Requests,
    /// Responses from a layer 4 service's servers: `answered` counts those within `max_latency`, `syns` counts all.
    Latencies,
}

/// An ejected server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct EjectedServer {
    /// The server's pool.
    pub pool: String,
    /// The layer 4 service that the server is ejected from; `None` = ejected from all proxy services.
    pub service: Option<String>,
    /// The server's address, as in the configuration file.
    pub server: String,
}

impl EjectedServer {
    /// Returns the name of the group of servers that this server is compared with.
    fn group(&self) -> &str {
        self.service.as_ref().unwrap_or(&self.pool)
    }
}

/// A pool and its server counters in one layer 4 service, or in all proxy services.
#[derive(Debug)]
pub struct PoolSamples<'a> {
    /// The pool.
    pub pool: &'a Pool,
    /// The layer 4 service; `None` = all proxy services.
    pub service: Option<&'a str>,
    /// Counters by server.
    pub samples: Vec<(String, Sample)>,
}

/// The start or end of an ejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EjectionEvent {
    /// The server.
    pub server: EjectedServer,
    /// Whether the ejection started or ended.
    pub transition: Transition,
}

/// Ejected servers, and the observations of all servers. Not persisted: a new process starts without ejections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ejections {
    handshakes: SourceEjections,
    requests: SourceEjections,
    latencies: SourceEjections,
}

/// The ejections of one source.
#[derive(Clone, Debug, Default)]
struct SourceEjections {
    ejected: BTreeMap<EjectedServer, Ejection>,
    outliers: Outliers,
}

impl Ejections {
    pub(crate) fn get(&self, pool: &str, server: &str, service: Option<&str>) -> Option<&Ejection> {
        // There are usually no ejections, so avoid building a key.
        self.all().next()?;
        let server = EjectedServer {
            pool: pool.to_owned(),
            service: service.map(str::to_owned),
            server: server.to_owned(),
        };
        let mut sources = self.sources().into_iter();
        sources.find_map(|source| source.ejected.get(&server))
    }

    /// Creates a copy of another process's ejections. Their sources are unknown; they are stored under `handshakes`.
    pub(crate) fn from_copy(ejected: Vec<(EjectedServer, Ejection)>) -> Self {
        let handshakes = SourceEjections {
            ejected: ejected.into_iter().collect(),
            ..SourceEjections::default()
        };
        Self {
            handshakes,
            ..Self::default()
        }
    }

    pub(crate) fn all_with_reasons(&self) -> impl Iterator<Item = (EjectedServer, Ejection)> {
        let ejected = self
            .sources()
            .into_iter()
            .flat_map(|source| &source.ejected);
        ejected.map(|(server, ejection)| (server.clone(), ejection.clone()))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &EjectedServer> {
        let sources = self.sources().into_iter();
        sources.flat_map(|source| source.ejected.keys())
    }

    /// Applies all samples of one source. `is_down` returns whether a server is down according to its checks; `explain`
    /// can replace the reason for an ejection. Returns the events, and the names of the pools whose ejections changed.
    pub(crate) fn observe(
        &mut self,
        source: Source,
        pools: &[PoolSamples<'_>],
        is_down: &dyn Fn(&str, &str, Option<&str>) -> bool,
        explain: &dyn Fn(&str, &str, &mut Ejection),
        now: Duration,
    ) -> (Vec<EjectionEvent>, BTreeSet<String>) {
        let (mut observed, mut changed) = (HashSet::new(), BTreeSet::new());
        let mut events = Vec::new();
        for pool_samples in pools {
            let (pool, service) = (pool_samples.pool, pool_samples.service);
            let (name, max_ejected_percent) = (pool.name.as_str(), pool.health.max_ejected);
            if max_ejected_percent == 0 || pool.servers.len() < 2 || pool_samples.samples.is_empty()
            {
                continue;
            }
            let group = service.unwrap_or(name);
            observed.insert((name, service));
            let samples = pool_samples.samples.iter();
            let up: Vec<(&str, Sample)> = samples
                .filter(|(server, _)| !is_down(name, server, service))
                .map(|(server, sample)| (server.as_str(), *sample))
                .collect();
            // `max_ejected` limits the ejections of all sources together.
            let is_up = |server: &&Server| !is_down(name, &server.name, service);
            let up_count = pool.servers.iter().filter(is_up).count();
            let mut ejected = self.ejected_by_others(source, name, service);
            ejected.retain(|server| !is_down(name, server, service));
            let ejected_by_others = ejected.iter().map(String::as_str).collect();
            let limit = EjectionLimit {
                servers: up_count * max_ejected_percent as usize / 100,
                ejected_by_others: &ejected_by_others,
            };
            for mut change in self.source(source).outliers.observe(group, limit, &up, now) {
                if let Transition::Ejected(ejection) = &mut change.transition {
                    explain(name, &change.server, ejection);
                }
                let event = EjectionEvent {
                    server: EjectedServer {
                        pool: name.to_owned(),
                        service: service.map(str::to_owned),
                        server: change.server,
                    },
                    transition: change.transition,
                };
                changed.insert(name.to_owned());
                self.source(source).apply(&event);
                events.push(event);
            }
        }
        let groups: HashSet<&str> = observed
            .iter()
            .map(|(pool, service)| service.unwrap_or(pool))
            .collect();
        let source_ejections = self.source(source);
        source_ejections
            .outliers
            .retain(|group| groups.contains(group));
        // End ejections without samples: the service may have been removed, or may now use a different pool.
        source_ejections.ejected.retain(|server, _| {
            let is_kept = observed.contains(&(server.pool.as_str(), server.service.as_deref()));
            if !is_kept {
                changed.insert(server.pool.clone());
            }
            is_kept
        });
        (events, changed)
    }

    /// Ends all ejections except those of `servers`. Returns the affected pools.
    pub(crate) fn end_all_except(&mut self, servers: &BTreeSet<EjectedServer>) -> BTreeSet<String> {
        let mut pools = BTreeSet::new();
        for source_ejections in [
            &mut self.handshakes,
            &mut self.requests,
            &mut self.latencies,
        ] {
            source_ejections.ejected.retain(|server, _| {
                let is_kept = servers.contains(server);
                if !is_kept {
                    source_ejections
                        .outliers
                        .reset(server.group(), &server.server);
                    pools.insert(server.pool.clone());
                }
                is_kept
            });
        }
        pools
    }

    /// Returns the servers of a pool that other sources have ejected from a service.
    fn ejected_by_others(
        &self,
        source: Source,
        pool: &str,
        service: Option<&str>,
    ) -> BTreeSet<String> {
        let others = match source {
            Source::Handshakes => [&self.requests, &self.latencies],
            Source::Requests => [&self.handshakes, &self.latencies],
            Source::Latencies => [&self.handshakes, &self.requests],
        };
        let ejected = others.into_iter().flat_map(|source| source.ejected.keys());
        let in_service =
            ejected.filter(|server| server.pool == pool && server.service.as_deref() == service);
        in_service.map(|server| server.server.clone()).collect()
    }

    const fn sources(&self) -> [&SourceEjections; 3] {
        [&self.handshakes, &self.requests, &self.latencies]
    }

    const fn source(&mut self, source: Source) -> &mut SourceEjections {
        match source {
            Source::Handshakes => &mut self.handshakes,
            Source::Requests => &mut self.requests,
            Source::Latencies => &mut self.latencies,
        }
    }
}

impl SourceEjections {
    fn apply(&mut self, event: &EjectionEvent) {
        match &event.transition {
            Transition::Ejected(ejection) => {
                drop(self.ejected.insert(event.server.clone(), ejection.clone()));
            }
            Transition::OnTrial | Transition::Withdrawn => drop(self.ejected.remove(&event.server)),
        }
    }
}
