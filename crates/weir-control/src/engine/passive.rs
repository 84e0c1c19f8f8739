//! What clients' packets say of servers: several times a second the data plane's counts are looked at, and servers that take no
//! connections are ejected. Those that a check has taken out already are left to it.
//!
//! Services that behave as the kernel does (`strict_ipvs`, ipvsadm's) are left alone: it has nothing of the kind.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_health::{Ejection, Outliers, Sample, Turn};
use weir_model::{Pool, Server};

use super::standing::Standings;
use super::{Engine, Result, is_made};

/// A pool with what was counted of its servers, in its order.
#[derive(Debug)]
pub(crate) struct Watched<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) samples: Vec<(String, Sample)>,
}

/// Notes in `standings` who goes and who comes back, by the counts of now; answers the pools where weights follow from that.
/// `explain` may put an ejection's reason into words of its own.
pub(crate) fn judge(
    outliers: &mut Outliers,
    standings: &mut Standings,
    pools: Vec<Watched<'_>>,
    explain: &dyn Fn(&str, &str, &mut Ejection),
) -> BTreeSet<String> {
    let now = SystemTime::now();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (mut watched, mut touched) = (HashSet::new(), BTreeSet::new());
    for Watched { pool, samples } in pools {
        let (name, share) = (pool.name.as_str(), pool.health.max_ejected);
        if share == 0 || pool.servers.len() < 2 || samples.is_empty() {
            continue;
        }
        watched.insert(name);
        let up = samples
            .iter()
            .filter(|(server, _)| !standings.is_down(name, server))
            .map(|(server, sample)| (server.as_str(), *sample));
        let up: Vec<(&str, Sample)> = up.collect();
        for mut turn in outliers.observe(name, share, &up, now) {
            if let Some(ejection) = &mut turn.ejection {
                explain(name, &turn.server, ejection);
            }
            log(name, &turn, now);
            standings.eject(name, &turn.server, turn.ejection);
            touched.insert(name.to_owned());
        }
    }
    outliers.keep(|pool| watched.contains(pool));
    touched.extend(standings.forget_ejected(|pool| watched.contains(pool)));
    touched
}

impl Engine {
    /// Takes in what was counted since the last look and puts into force what follows.
    ///
    /// # Errors
    /// A map cannot be read, or what follows not be written.
    pub fn watch_clients(&mut self) -> Result<()> {
        self.watch_replies()?;
        let mut pools = Vec::new();
        for pool in &self.desired.pools {
            if pool.health.max_ejected > 0 && pool.servers.len() > 1 {
                let samples = self.samples(pool)?;
                let of = |server: &Server| {
                    Some((server.name.clone(), *samples.get(server.name.as_str())?))
                };
                let samples = pool.servers.iter().filter_map(of).collect();
                pools.push(Watched { pool, samples });
            }
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

    /// Servers that are ejected, by pool and name.
    pub fn ejected(&self) -> BTreeSet<(String, String)> {
        self.memory.standings.all_ejected().collect()
    }

    /// Has servers in use again that are ejected and are not in `then`.
    ///
    /// # Errors
    /// What follows cannot be written.
    pub fn forgive(&mut self, then: &BTreeSet<(String, String)>) -> Result<()> {
        let touched = forgive(&mut self.outliers, &mut self.memory.standings, then);
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        if touched.is_empty() {
            return Ok(());
        }
        self.pools_changed(&touched)
    }

    /// What was counted of a pool's servers: of each over all services.
    fn samples(&self, pool: &Pool) -> Result<HashMap<&str, Sample>> {
        let maps = self.plane.maps();
        let mut samples: HashMap<&str, Sample> = HashMap::new();
        for service in self.desired.users(&pool.name) {
            if service.strict_ipvs || is_made(&service.name) {
                continue;
            }
            let Some(slot) = self.memory.allocation.services.get(&service.name) else {
                continue;
            };
            let dests = slot.dests.iter();
            for dest in dests.filter(|dest| dest.removed.is_none() && !dest.sorry) {
                let live = maps.live(dest.id)?;
                let sample = samples.entry(dest.name.as_str()).or_default();
                sample.syns = sample.syns.wrapping_add(live.syns);
                sample.answered = sample.answered.wrapping_add(live.answered);
            }
        }
        Ok(samples)
    }
}

/// Takes servers back that are away and are not in `then`; returns their pools.
pub(crate) fn forgive(
    outliers: &mut Outliers,
    standings: &mut Standings,
    then: &BTreeSet<(String, String)>,
) -> BTreeSet<String> {
    let all: Vec<_> = standings.all_ejected().collect();
    let new = all.into_iter().filter(|name| !then.contains(name));
    new.map(|(pool, server)| {
        outliers.forgive(&pool, &server);
        standings.eject(&pool, &server, None);
        pool
    })
    .collect()
}

fn log(pool: &str, turn: &Turn, now: Duration) {
    let server = turn.server.as_str();
    match &turn.ejection {
        Some(ejection) => tracing::warn!(
            pool,
            server,
            cause = ejection.reason,
            seconds = ejection.until.saturating_sub(now).as_secs(),
            "a server was ejected"
        ),
        None => tracing::info!(pool, server, "an ejected server is on trial"),
    }
}
