//! What clients' packets say of servers: several times a second the data plane's counts are looked at, and servers that
//! take no connections in a service are ejected from that service. Those that a check has taken out already are left to
//! it, and those that are alive although their replies do not come back through the director
//! ([`silence`](super::silence)) stay: they have a warning.
//!
//! Services that behave as the kernel does (`strict_ipvs`, ipvsadm's) are left alone: it has nothing of the kind.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_health::{Ejection, EjectionChange, Outliers, Sample};
use weir_model::{Pool, Service};

use super::standing::{Ejected, Standings};
use super::{Engine, Result, is_made};

/// When a probe that went straight to a server passed last, since the Unix epoch, by pool and server.
pub type Passed<'a> = dyn Fn(&str, &str) -> Option<Duration> + 'a;

/// A pool with what was counted of its servers in one layer 4 service, or in all proxy services.
#[derive(Debug)]
pub(crate) struct Watched<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) service: Option<&'a str>,
    pub(crate) samples: Vec<(String, Sample)>,
}

impl Watched<'_> {
    fn ejected(&self, server: &str) -> Ejected {
        Ejected {
            pool: self.pool.name.clone(),
            service: self.service.map(str::to_owned),
            server: server.to_owned(),
        }
    }
}

/// The group that outliers are looked for in.
fn group(ejected: &Ejected) -> &str {
    ejected.service.as_ref().unwrap_or(&ejected.pool)
}

/// Notes in `standings` who goes and who comes back, by the counts of now; answers the pools where weights follow from
/// that. `explain` may put an ejection's reason into words of its own.
pub(crate) fn judge(
    outliers: &mut Outliers,
    standings: &mut Standings,
    pools: Vec<Watched<'_>>,
    explain: &dyn Fn(&str, &str, &mut Ejection),
) -> BTreeSet<String> {
    let now = SystemTime::now();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (mut watched, mut touched) = (HashSet::new(), BTreeSet::new());
    for one in pools {
        let (pool, service) = (one.pool, one.service);
        let (name, share) = (pool.name.as_str(), pool.health.max_ejected);
        if share == 0 || pool.servers.len() < 2 || one.samples.is_empty() {
            continue;
        }
        let group = service.unwrap_or(name);
        watched.insert(group);
        let samples = one.samples.iter();
        let up = samples
            .filter(|(server, _)| !standings.is_down(name, server, service))
            .map(|(server, sample)| (server.as_str(), *sample));
        let up: Vec<(&str, Sample)> = up.collect();
        for mut turn in outliers.observe(group, share, &up, now) {
            if let Some(ejection) = &mut turn.ejection {
                explain(name, &turn.server, ejection);
            }
            log(&one, &turn, now);
            standings.eject(one.ejected(&turn.server), turn.ejection);
            touched.insert(name.to_owned());
        }
    }
    outliers.retain(|group| watched.contains(group));
    touched.extend(standings.forget_ejected(|it| watched.contains(group(it))));
    touched
}

impl Engine {
    /// Takes in what was counted since the last look and applies what follows. `passed` is asked when a probe of a
    /// server passed last.
    ///
    /// # Errors
    /// A map cannot be read, or what follows not be written.
    pub fn watch_clients(&mut self, passed: &Passed<'_>) -> Result<()> {
        self.watch_replies()?;
        let mut pools = Vec::new();
        for service in &self.desired.services {
            let pool = self.desired.pool(&service.pool);
            let Some(pool) = pool.filter(|it| it.health.max_ejected > 0 && it.servers.len() > 1)
            else {
                continue;
            };
            pools.push(Watched {
                pool,
                service: Some(&service.name),
                samples: self.samples(service, passed)?,
            });
        }
        let as_seen = |_: &str, _: &str, _: &mut Ejection| {};
        let touched = judge(
            &mut self.outliers,
            &mut self.memory.standings,
            pools,
            &as_seen,
        );
        if touched.is_empty() {
            return Ok(());
        }
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        self.pools_changed(&touched)
    }

    /// Servers that are ejected.
    pub fn ejected(&self) -> BTreeSet<Ejected> {
        self.memory.standings.all_ejected().cloned().collect()
    }

    /// Has servers in use again that are ejected and are not in `then`.
    ///
    /// # Errors
    /// What follows cannot be written.
    pub fn forgive(&mut self, then: &BTreeSet<Ejected>) -> Result<()> {
        let touched = forgive(&mut self.outliers, &mut self.memory.standings, then);
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        if touched.is_empty() {
            return Ok(());
        }
        self.pools_changed(&touched)
    }

    /// What was counted of a service's servers that its clients' packets may speak against.
    fn samples(&self, service: &Service, passed: &Passed<'_>) -> Result<Vec<(String, Sample)>> {
        let slot = self.memory.allocation.services.get(&service.name);
        let Some(slot) = slot.filter(|_| !service.strict_ipvs && !is_made(&service.name)) else {
            return Ok(Vec::new());
        };
        let mut samples = Vec::new();
        let dests = slot.dests.iter();
        for dest in dests.filter(|dest| dest.removed.is_none() && !dest.sorry) {
            if self.is_alive(dest, || passed(&service.pool, &dest.name)) {
                continue;
            }
            let live = self.plane.maps().live(dest.id)?;
            let sample = Sample {
                syns: live.syns,
                answered: live.answered,
            };
            samples.push((dest.name.clone(), sample));
        }
        Ok(samples)
    }
}

/// Takes servers back that are away and are not in `then`; returns their pools.
pub(crate) fn forgive(
    outliers: &mut Outliers,
    standings: &mut Standings,
    then: &BTreeSet<Ejected>,
) -> BTreeSet<String> {
    let all = standings.all_ejected().filter(|it| !then.contains(it));
    let new: Vec<Ejected> = all.cloned().collect();
    new.into_iter()
        .map(|ejected| {
            outliers.reset(group(&ejected), &ejected.server);
            let pool = ejected.pool.clone();
            standings.eject(ejected, None);
            pool
        })
        .collect()
}

fn log(watched: &Watched<'_>, turn: &EjectionChange, now: Duration) {
    let (pool, service) = (watched.pool.name.as_str(), watched.service);
    let server = turn.server.as_str();
    match &turn.ejection {
        Some(ejection) => tracing::warn!(
            pool,
            service,
            server,
            cause = ejection.reason,
            seconds = ejection.until.saturating_sub(now).as_secs(),
            "a server was ejected"
        ),
        None => tracing::info!(pool, service, server, "an ejected server is on trial"),
    }
}
