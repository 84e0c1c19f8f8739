//! What clients' packets say of servers: once a second the data plane's counts are looked at, and servers that take no
//! connections are ejected. Those that a check has taken out already are left to it.
//!
//! Services that behave as the kernel does (`strict_ipvs`, ipvsadm's) are left alone: it has nothing of the kind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_health::{Sample, Turn};

use super::{Engine, Result, is_made};

impl Engine {
    /// Takes in the last second's counts and puts into force what follows.
    pub(super) fn watch_clients(&mut self) -> Result<()> {
        let samples = self.samples()?;
        let now = SystemTime::now();
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut touched = BTreeSet::new();
        self.outliers.keep(|pool| samples.contains_key(pool));
        for (pool, servers) in &samples {
            let Some(known) = self.desired.pool(pool) else {
                continue;
            };
            let in_order: Vec<(&str, Sample)> = known
                .servers
                .iter()
                .filter(|server| !self.memory.standings.is_down(pool, &server.name))
                .filter_map(|server| Some((server.name.as_str(), *servers.get(&server.name)?)))
                .collect();
            let share = known.health.max_ejected;
            for turn in self.outliers.observe(pool, share, &in_order, now) {
                log(pool, &turn, now);
                let Turn { server, ejection } = turn;
                self.memory.standings.eject(pool, &server, ejection);
                touched.insert(pool.clone());
            }
        }
        if self
            .memory
            .standings
            .forget_ejected(|pool| samples.contains_key(pool))
        {
            touched.extend(self.desired.pools.iter().map(|pool| pool.name.clone()));
        }
        if touched.is_empty() {
            return Ok(());
        }
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        self.pools_changed(&touched)
    }

    /// What was counted of servers, by pool and server: of each over all services of its pool.
    fn samples(&self) -> Result<BTreeMap<String, BTreeMap<String, Sample>>> {
        let maps = self.plane.maps();
        let mut samples: BTreeMap<String, BTreeMap<String, Sample>> = BTreeMap::new();
        for service in &self.desired.services {
            let watched = self
                .desired
                .pool(&service.pool)
                .is_some_and(|pool| pool.health.max_ejected > 0 && pool.servers.len() > 1);
            if !watched || service.strict_ipvs || is_made(&service.name) {
                continue;
            }
            let Some(slot) = self.memory.allocation.services.get(&service.name) else {
                continue;
            };
            let dests = slot.dests.iter();
            for dest in dests.filter(|dest| dest.removed.is_none() && !dest.sorry) {
                let live = maps.live(dest.id)?;
                let pool = samples.entry(service.pool.clone()).or_default();
                let sample = pool.entry(dest.name.clone()).or_default();
                sample.syns = sample.syns.wrapping_add(live.syns);
                sample.answered = sample.answered.wrapping_add(live.answered);
            }
        }
        Ok(samples)
    }
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
