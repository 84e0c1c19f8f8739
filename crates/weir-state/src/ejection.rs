//! Passive checks of both planes: servers that fail for clients, while others of their pool do not, are ejected.
//!
//! The layer 4 plane counts handshakes in each service, the proxy counts requests over all of its services. Both are
//! judged here by [`Outliers`], by the same rule; so are answers that take longer than `max_latency`. Servers that a
//! check has taken out already are left to the check.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use weir_health::{Ejection, Outliers, Sample};
use weir_model::Pool;

/// What counted the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Handshakes with the servers of a layer 4 service.
    Handshakes,
    /// Requests and connections of all proxy services.
    Requests,
    /// Answers of the servers of a layer 4 service: `answered` counts those within `max_latency`, `syns` all.
    Latencies,
}

/// An ejected server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Ejected {
    /// Its pool.
    pub pool: String,
    /// The layer 4 service that it is ejected from; `None` = ejected from all proxy services.
    pub service: Option<String>,
    /// Its address as in the file.
    pub server: String,
}

impl Ejected {
    /// The group that outliers are searched in.
    fn group(&self) -> &str {
        self.service.as_ref().unwrap_or(&self.pool)
    }
}

/// A pool with the counters of its servers in one layer 4 service, or in all proxy services.
#[derive(Debug)]
pub struct Watched<'a> {
    /// The pool.
    pub pool: &'a Pool,
    /// The layer 4 service; `None` = all proxy services.
    pub service: Option<&'a str>,
    /// Counters by server.
    pub samples: Vec<(String, Sample)>,
}

/// A server was ejected, or its ejection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EjectionEvent {
    /// The server.
    pub server: Ejected,
    /// `None` = the ejection ended; the server is on trial.
    pub ejection: Option<Ejection>,
}

/// Ejected servers, and what was observed of all. Not persisted: a new run starts without ejections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ejections {
    handshakes: Judged,
    requests: Judged,
    latencies: Judged,
}

/// The ejections of one source.
#[derive(Clone, Debug, Default)]
struct Judged {
    ejected: BTreeMap<Ejected, Ejection>,
    outliers: Outliers,
}

impl Ejections {
    pub(crate) fn get(&self, pool: &str, server: &str, service: Option<&str>) -> Option<&Ejection> {
        // Usually there is none, and a name need not be built.
        self.all().next()?;
        let server = Ejected {
            pool: pool.to_owned(),
            service: service.map(str::to_owned),
            server: server.to_owned(),
        };
        let mut sources = self.sources().into_iter();
        sources.find_map(|source| source.ejected.get(&server))
    }

    /// Ejections that another process decided.
    pub(crate) fn copied(ejected: Vec<(Ejected, Ejection)>) -> Self {
        let handshakes = Judged {
            ejected: ejected.into_iter().collect(),
            ..Judged::default()
        };
        Self {
            handshakes,
            ..Self::default()
        }
    }

    pub(crate) fn all_with_reasons(&self) -> impl Iterator<Item = (Ejected, Ejection)> {
        let ejected = self
            .sources()
            .into_iter()
            .flat_map(|source| &source.ejected);
        ejected.map(|(server, ejection)| (server.clone(), ejection.clone()))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Ejected> {
        let sources = self.sources().into_iter();
        sources.flat_map(|source| source.ejected.keys())
    }

    /// Applies all samples of one source. `is_down` returns whether checks have taken a server out; `explain` may
    /// replace the reason of an ejection.
    pub(crate) fn observe(
        &mut self,
        source: Source,
        pools: &[Watched<'_>],
        is_down: &dyn Fn(&str, &str, Option<&str>) -> bool,
        explain: &dyn Fn(&str, &str, &mut Ejection),
        now: Duration,
    ) -> (Vec<EjectionEvent>, BTreeSet<String>) {
        let (mut watched, mut changed) = (HashSet::new(), BTreeSet::new());
        let mut events = Vec::new();
        for one in pools {
            let (pool, service) = (one.pool, one.service);
            let (name, share) = (pool.name.as_str(), pool.health.max_ejected);
            if share == 0 || pool.servers.len() < 2 || one.samples.is_empty() {
                continue;
            }
            let group = service.unwrap_or(name);
            watched.insert(group);
            let samples = one.samples.iter();
            let up: Vec<(&str, Sample)> = samples
                .filter(|(server, _)| !is_down(name, server, service))
                .map(|(server, sample)| (server.as_str(), *sample))
                .collect();
            for mut change in self.source(source).outliers.observe(group, share, &up, now) {
                if let Some(ejection) = &mut change.ejection {
                    explain(name, &change.server, ejection);
                }
                let event = EjectionEvent {
                    server: Ejected {
                        pool: name.to_owned(),
                        service: service.map(str::to_owned),
                        server: change.server,
                    },
                    ejection: change.ejection,
                };
                changed.insert(name.to_owned());
                self.source(source).apply(&event);
                events.push(event);
            }
        }
        let judged = self.source(source);
        judged.outliers.retain(|group| watched.contains(group));
        judged.ejected.retain(|server, _| {
            let stays = watched.contains(server.group());
            if !stays {
                changed.insert(server.pool.clone());
            }
            stays
        });
        (events, changed)
    }

    /// Ends the ejections that are not in `then`; returns the pools.
    pub(crate) fn end_all_but(&mut self, then: &BTreeSet<Ejected>) -> BTreeSet<String> {
        let mut pools = BTreeSet::new();
        for judged in [
            &mut self.handshakes,
            &mut self.requests,
            &mut self.latencies,
        ] {
            judged.ejected.retain(|server, _| {
                let stays = then.contains(server);
                if !stays {
                    judged.outliers.reset(server.group(), &server.server);
                    pools.insert(server.pool.clone());
                }
                stays
            });
        }
        pools
    }

    const fn sources(&self) -> [&Judged; 3] {
        [&self.handshakes, &self.requests, &self.latencies]
    }

    const fn source(&mut self, source: Source) -> &mut Judged {
        match source {
            Source::Handshakes => &mut self.handshakes,
            Source::Requests => &mut self.requests,
            Source::Latencies => &mut self.latencies,
        }
    }
}

impl Judged {
    fn apply(&mut self, event: &EjectionEvent) {
        match &event.ejection {
            Some(ejection) => drop(self.ejected.insert(event.server.clone(), ejection.clone())),
            None => drop(self.ejected.remove(&event.server)),
        }
    }
}
