//! What clients' packets say of servers: several times a second the data plane's counts are looked at, and servers that take no
//! connections are ejected. Those that a check has taken out already are left to it.
//!
//! Services that behave as the kernel does (`strict_ipvs`, ipvsadm's) are left alone: it has nothing of the kind.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_health::{Sample, Turn};
use weir_model::Pool;

use super::{Engine, Result, is_made};

impl Engine {
    /// Takes in what was counted since the last look and puts into force what follows.
    ///
    /// # Errors
    /// A map cannot be read, or what follows not be written.
    pub fn watch_clients(&mut self) -> Result<()> {
        let now = SystemTime::now();
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut outliers = std::mem::take(&mut self.outliers);
        let mut turns = Vec::new();
        let mut watched = HashSet::new();
        let pools = self.desired.pools.iter();
        for pool in pools.filter(|it| it.health.max_ejected > 0 && it.servers.len() > 1) {
            let samples = self.samples(pool)?;
            if samples.is_empty() {
                continue;
            }
            watched.insert(pool.name.clone());
            let in_order: Vec<(&str, Sample)> = pool
                .servers
                .iter()
                .filter(|server| !self.memory.standings.is_down(&pool.name, &server.name))
                .filter_map(|server| {
                    Some((server.name.as_str(), *samples.get(server.name.as_str())?))
                })
                .collect();
            let share = pool.health.max_ejected;
            let turned = outliers.observe(&pool.name, share, &in_order, now);
            turns.extend(turned.into_iter().map(|turn| (pool.name.clone(), turn)));
        }
        outliers.keep(|pool| watched.contains(pool));
        self.outliers = outliers;
        let mut touched = BTreeSet::new();
        for (pool, turn) in turns {
            log(&pool, &turn, now);
            let Turn { server, ejection } = turn;
            self.memory.standings.eject(&pool, &server, ejection);
            touched.insert(pool);
        }
        if self
            .memory
            .standings
            .forget_ejected(|pool| watched.contains(pool))
        {
            touched.extend(self.desired.pools.iter().map(|pool| pool.name.clone()));
        }
        if touched.is_empty() {
            return Ok(());
        }
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
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
