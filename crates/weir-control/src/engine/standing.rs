//! What checks say of servers, as the engine keeps it: by the names of the file, over restarts.
//!
//! A server that has checks and was never heard of counts as starting, so that a reload lets no server in before its
//! first result. The checks themselves run elsewhere ([`weir_probing`]); here their word becomes weight.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_health::{Candidate, Ejection, Regime, SavedState, Standing, State, Weighed, weigh};
use weir_model::{Indexed, Pool, Server, Start};

use weir_probing::{News, PoolTurn, Serving};

/// A server that is away for what clients' packets say of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ejected {
    /// Its pool.
    pub pool: String,
    /// The layer 4 service that it is away from; `None` = away from all proxy services.
    pub service: Option<String>,
    /// Its address as in the file.
    pub server: String,
}

/// By pool and server, both as written in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub(crate) struct Standings {
    servers: BTreeMap<String, BTreeMap<String, Standing>>,
    regimes: BTreeMap<String, Regime>,
    /// What clients' packets say; a new run begins without it.
    ejected: BTreeMap<Ejected, Ejection>,
    /// Whom pools serve by, and whether a sorry server could stand in, as far as they were settled in this run.
    serving: BTreeMap<String, (Serving, bool)>,
    /// What became of them since somebody asked.
    turns: Vec<PoolTurn>,
}

impl Standings {
    /// Takes what became of pools since the last time.
    pub(crate) fn take_turns(&mut self) -> Vec<PoolTurn> {
        std::mem::take(&mut self.turns)
    }

    /// Why a server is away from a layer 4 service, or from proxy services.
    pub(crate) fn ejection(
        &self,
        pool: &str,
        server: &str,
        service: Option<&str>,
    ) -> Option<&Ejection> {
        if self.ejected.is_empty() {
            return None;
        }
        self.ejected.get(&Ejected {
            pool: pool.to_owned(),
            service: service.map(str::to_owned),
            server: server.to_owned(),
        })
    }

    /// Notes that a server is away, or back.
    pub(crate) fn eject(&mut self, server: Ejected, ejection: Option<Ejection>) {
        match ejection {
            Some(ejection) => drop(self.ejected.insert(server, ejection)),
            None => drop(self.ejected.remove(&server)),
        }
    }

    /// All servers that are away so.
    pub(crate) fn all_ejected(&self) -> impl Iterator<Item = &Ejected> {
        self.ejected.keys()
    }

    /// Takes servers back that are watched no more; returns their pools.
    pub(crate) fn forget_ejected(&mut self, watched: impl Fn(&Ejected) -> bool) -> Vec<String> {
        let gone = self.ejected.keys().filter(|server| !watched(server));
        let gone = gone.map(|server| server.pool.clone()).collect();
        self.ejected.retain(|server, _| watched(server));
        gone
    }

    /// The word in force for a server.
    pub(crate) fn get(&self, pool: &str, server: &str) -> Option<&Standing> {
        self.servers.get(pool)?.get(server)
    }

    /// What a new run of checks goes on from.
    pub(crate) fn known(&self, pool: &str, server: &str) -> Option<SavedState> {
        self.get(pool, server).map(SavedState::from)
    }

    /// Takes news in; answers what of it is to be remembered over restarts.
    pub(crate) fn hear(
        &mut self,
        news: Vec<News>,
    ) -> Vec<(String, String, Option<StoredStanding>)> {
        let mut lasting = Vec::new();
        for News {
            pool,
            server,
            standing,
        } in news
        {
            let servers = self.servers.entry(pool.clone()).or_default();
            let stored = standing.as_ref().map(StoredStanding::from);
            let former = match standing {
                Some(standing) => servers.insert(server.clone(), standing),
                None => servers.remove(&server),
            };
            if former.as_ref().map(StoredStanding::from) != stored {
                lasting.push((pool, server, stored));
            }
        }
        self.servers.retain(|_, servers| !servers.is_empty());
        lasting
    }

    /// Takes in what was remembered.
    pub(crate) fn restore(&mut self, stored: Vec<(String, String, Option<StoredStanding>)>) {
        let news = stored.into_iter().map(|(pool, server, stored)| News {
            pool,
            server,
            standing: stored.map(Standing::from),
        });
        self.hear(news.collect());
    }

    /// Forgets servers that are in no pool any more.
    pub(crate) fn forget_all_but(&mut self, desired: &Indexed) {
        self.servers.retain(|pool, servers| {
            let pool = desired.pool(pool);
            let names: HashSet<&str> = pool
                .iter()
                .flat_map(|pool| pool.servers.iter().chain(&pool.sorry))
                .map(|server| server.name.as_str())
                .collect();
            servers.retain(|server, _| names.contains(server.as_str()));
            !servers.is_empty()
        });
        self.regimes.retain(|pool, _| desired.pool(pool).is_some());
        self.serving.retain(|pool, _| desired.pool(pool).is_some());
    }

    /// What holds for a server in a service.
    pub(crate) fn in_service(&self, pool: &str, server: &str, service: &str) -> Option<&Standing> {
        let standing = self.get(pool, server)?;
        Some(standing.in_service(service))
    }

    /// Whether its checks say so, in a service where that makes a difference.
    pub(crate) fn is_down(&self, pool: &str, server: &str, service: Option<&str>) -> bool {
        self.get(pool, server).is_some_and(|standing| {
            let standing = service.map_or(standing, |it| standing.in_service(it));
            standing.state == State::Down
        })
    }

    /// Works out anew how a pool is used, from its servers' weights by configuration and operators; a change is a turn.
    pub(crate) fn settle(&mut self, pool: &Pool, base: &dyn Fn(&Server) -> u32) {
        let before = self.regime(&pool.name);
        let (weighed, regime) = self.weigh(pool, None, base);
        let name = pool.name.as_str();
        if regime != before {
            self.regimes.insert(name.to_owned(), regime);
        }
        let to = match regime {
            Regime::Panic => Serving::Panic,
            Regime::BelowQuorum => Serving::BelowQuorum,
            Regime::Normal if weighed.iter().any(|one| one.effective > 0) => Serving::Up,
            Regime::Normal => Serving::Down,
        };
        let to = (to, self.sorry_serves(pool, None));
        let known = self.serving.insert(name.to_owned(), to);
        // What was never heard of served as it should, unless it was remembered over a restart.
        let from = known.or_else(|| (regime != before).then_some((Serving::Up, to.1)));
        if let Some(from) = from.filter(|from| *from != to) {
            let serves = |(serving, sorry): (Serving, bool)| serving.serves(sorry);
            self.turns.push(PoolTurn {
                pool: name.to_owned(),
                from: from.0,
                to: to.0,
                serves: (serves(from), serves(to)),
            });
        }
    }

    /// How a pool serves, where that is not by its servers' states.
    pub(crate) fn unusual(&self, pool: &str) -> Option<Serving> {
        match self.regime(pool) {
            Regime::Normal => None,
            Regime::Panic => Some(Serving::Panic),
            Regime::BelowQuorum => Some(Serving::BelowQuorum),
        }
    }

    /// How a pool is used.
    pub(crate) fn regime(&self, pool: &str) -> Regime {
        self.regimes.get(pool).copied().unwrap_or_default()
    }

    /// The weights of a pool's servers in a service, or where that makes no difference, in the pool's order, from those
    /// by configuration and operators.
    pub(crate) fn weigh(
        &self,
        pool: &Pool,
        service: Option<&str>,
        base: &dyn Fn(&Server) -> u32,
    ) -> (Vec<Weighed>, Regime) {
        let unheard: Vec<Option<Standing>> = pool
            .servers
            .iter()
            .map(|server| match self.get(&pool.name, &server.name) {
                Some(_) => None,
                None => unheard(pool, server),
            })
            .collect();
        let candidates: Vec<Candidate<'_>> = pool
            .servers
            .iter()
            .zip(&unheard)
            .map(|(server, unheard)| Candidate {
                base: base(server),
                standing: self
                    .get(&pool.name, &server.name)
                    .filter(|_| is_checked(pool, server))
                    .map(|standing| service.map_or(standing, |it| standing.in_service(it)))
                    .or(unheard.as_ref()),
                ejected: self.ejection(&pool.name, &server.name, service).is_some(),
            })
            .collect();
        let before = self.regime(&pool.name);
        weigh(
            &pool.health,
            self.sorry_serves(pool, service),
            &candidates,
            before,
        )
    }

    /// Whether a pool has a sorry server that its own checks have not taken out, in a service where that makes a
    /// difference.
    pub(crate) fn sorry_serves(&self, pool: &Pool, service: Option<&str>) -> bool {
        pool.sorry.as_ref().is_some_and(|server| {
            let unheard = unheard(pool, server);
            let heard = self.get(&pool.name, &server.name);
            let standing = heard
                .filter(|_| is_checked(pool, server))
                .map(|standing| service.map_or(standing, |it| standing.in_service(it)))
                .or(unheard.as_ref());
            standing.is_none_or(|standing| standing.state != State::Down)
        })
    }
}

fn is_checked(pool: &Pool, server: &Server) -> bool {
    !pool.checks_of(server).is_empty()
}

/// What holds of a server with checks before the first word about it.
fn unheard(pool: &Pool, server: &Server) -> Option<Standing> {
    let checks = pool.checks_of(server).iter();
    let starts = checks.map(|check| match check.start {
        Start::Checking => State::Starting,
        Start::Up => State::Up,
        Start::Down => State::Down,
    });
    let state = starts.max_by_key(|state| match state {
        State::Up => 0,
        State::Starting => 1,
        State::Down => 2,
    })?;
    Some(Standing::new(state, Duration::ZERO))
}

/// [`Standings`] as they are stored: weights that a check brings and slow start are heard of again soon enough.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Stored {
    #[serde(default)]
    servers: BTreeMap<String, BTreeMap<String, StoredStanding>>,
    #[serde(default)]
    below_quorum: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredStanding {
    state: StoredState,
    since_ms: u64,
    reason: String,
    remove: bool,
    /// In services with paths of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    paths: BTreeMap<String, StoredStanding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredState {
    Starting,
    Up,
    Down,
}

impl From<StoredStanding> for Standing {
    fn from(stored: StoredStanding) -> Self {
        let state = match stored.state {
            StoredState::Starting => State::Starting,
            StoredState::Up => State::Up,
            StoredState::Down => State::Down,
        };
        Self {
            reason: stored.reason,
            remove: stored.remove,
            paths: stored
                .paths
                .into_iter()
                .map(|(service, path)| (service, Self::from(path)))
                .collect(),
            ..Self::new(state, Duration::from_millis(stored.since_ms))
        }
    }
}

impl From<&Standing> for StoredStanding {
    fn from(standing: &Standing) -> Self {
        Self {
            state: match standing.state {
                State::Starting => StoredState::Starting,
                State::Up => StoredState::Up,
                State::Down => StoredState::Down,
            },
            since_ms: u64::try_from(standing.since.as_millis()).unwrap_or(u64::MAX),
            reason: standing.reason.clone(),
            remove: standing.remove,
            paths: standing
                .paths
                .iter()
                .map(|(service, path)| (service.clone(), Self::from(path)))
                .collect(),
        }
    }
}

impl From<Stored> for Standings {
    fn from(stored: Stored) -> Self {
        let pool = |servers: BTreeMap<String, StoredStanding>| {
            let servers = servers.into_iter();
            servers
                .map(|(name, stored)| (name, Standing::from(stored)))
                .collect()
        };
        let below = stored.below_quorum.into_iter();
        Self {
            servers: stored
                .servers
                .into_iter()
                .map(|(name, servers)| (name, pool(servers)))
                .collect(),
            regimes: below.map(|name| (name, Regime::BelowQuorum)).collect(),
            ..Self::default()
        }
    }
}

impl From<Standings> for Stored {
    fn from(standings: Standings) -> Self {
        let pool = |servers: &BTreeMap<String, Standing>| {
            let servers = servers.iter();
            servers
                .map(|(name, standing)| (name.clone(), StoredStanding::from(standing)))
                .collect()
        };
        let below = standings
            .regimes
            .iter()
            .filter(|(_, regime)| **regime == Regime::BelowQuorum);
        Self {
            servers: standings
                .servers
                .iter()
                .map(|(name, servers)| (name.clone(), pool(servers)))
                .collect(),
            below_quorum: below.map(|(name, _)| name.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ejection_takes_weight_in_its_service_alone() {
        let mut pool = pool(0);
        let other = Server::new("10.0.0.6", "10.0.0.6".parse().unwrap(), None);
        pool.servers.push(other);
        let mut standings = Standings::default();
        let away = Ejected {
            pool: "p".to_owned(),
            service: Some("nat".to_owned()),
            server: "10.0.0.5".to_owned(),
        };
        let ejection = Ejection {
            since: Duration::ZERO,
            until: Duration::from_secs(10),
            reason: String::new(),
        };
        standings.eject(away.clone(), Some(ejection));
        let weights = |standings: &Standings, service: &str| {
            let (weighed, _) = standings.weigh(&pool, Some(service), &|_| 1);
            [weighed[0].effective, weighed[1].effective]
        };
        assert_eq!(weights(&standings, "nat"), [0, 1]);
        assert_eq!(weights(&standings, "direct"), [1, 1]);
        assert_eq!(standings.forget_ejected(|it| *it != away), ["p"]);
        assert_eq!(weights(&standings, "nat"), [1, 1]);
    }

    fn pool(quorum: u32) -> Pool {
        let mut pool = Pool::new("p");
        let server = Server::new("10.0.0.5", "10.0.0.5".parse().unwrap(), None);
        pool.servers.push(server);
        pool.health.quorum = quorum;
        pool
    }

    #[test]
    fn a_broken_path_takes_weight_in_its_service_and_outlives_a_restart() {
        let pool = pool(0);
        let mut standing = Standing::new(State::Up, Duration::from_secs(1));
        let mut broken = Standing::new(State::Down, Duration::from_secs(2));
        broken.reason = "VIP 192.0.2.11 not on lo".to_owned();
        standing.paths = BTreeMap::from([
            ("a".to_owned(), standing.clone()),
            ("b".to_owned(), broken.clone()),
        ]);
        let mut standings = Standings::default();
        let mut pool = pool;
        pool.checks = vec![weir_model::Check::new(weir_model::Probe::Tcp)];
        let lasting = standings.hear(vec![News {
            pool: "p".to_owned(),
            server: "10.0.0.5".to_owned(),
            standing: Some(standing),
        }]);
        let weight = |standings: &Standings, service: Option<&str>| {
            standings.weigh(&pool, service, &|_| 3).0[0].effective
        };
        let mut journal = Standings::default();
        journal.restore(lasting);
        let file = serde_json::to_string(&standings).unwrap();
        let file: Standings = serde_json::from_str(&file).unwrap();
        for standings in [standings, journal, file] {
            assert_eq!(weight(&standings, None), 3);
            assert_eq!(weight(&standings, Some("a")), 3);
            assert_eq!(weight(&standings, Some("b")), 0);
            assert_eq!(standings.in_service("p", "10.0.0.5", "b"), Some(&broken));
            let known = standings.known("p", "10.0.0.5").unwrap();
            assert_eq!(known.paths["b"].state, State::Down);
        }
    }

    #[test]
    fn a_pool_that_begins_below_its_quorum_has_a_turn() {
        let mut standings = Standings::default();
        standings.settle(&pool(0), &|_| 1);
        assert_eq!(standings.take_turns(), []);
        let mut standings = Standings::default();
        standings.settle(&pool(2), &|_| 1);
        let turns = standings.take_turns();
        assert_eq!(
            (turns[0].from, turns[0].to),
            (Serving::Up, Serving::BelowQuorum)
        );
        assert_eq!(standings.unusual("p"), Some(Serving::BelowQuorum));
        let stored = Stored::from(standings);
        let mut standings = Standings::from(stored);
        standings.settle(&pool(2), &|_| 1);
        assert_eq!(standings.take_turns(), [], "it was told before the restart");
    }
}
