//! What operators and checks say of servers, between configurations.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_health::{SavedState, Suspended};
use weir_model::MAX_WEIGHT;

use super::journal::Record;
use super::overrides::Override;
use super::{Engine, Error, OverrideChange, Result, allocate};
use weir_probing::{News, PoolTurn, ProbeTable as Passages};

impl Engine {
    /// Puts an operator's word about a server into force, in every service of its pool, and remembers it over restarts.
    ///
    /// # Errors
    /// No such server, a weight above [`MAX_WEIGHT`], or the kernel refuses.
    pub async fn set_override(
        &mut self,
        pool: &str,
        server: &str,
        change: OverrideChange,
    ) -> Result<()> {
        let known = self.desired.pool(pool).is_some_and(|known| {
            known
                .server(server)
                .or(known.sorry.as_ref().filter(|sorry| sorry.name == server))
                .is_some()
        });
        if !known {
            return Err(Error::NoServer {
                pool: pool.to_owned(),
                server: server.to_owned(),
            });
        }
        let word = match change {
            OverrideChange::Drain => Some(Override::Drain),
            OverrideChange::Maint => Some(Override::Maint),
            OverrideChange::Ready => None,
            OverrideChange::Weight(weight) if weight > MAX_WEIGHT => {
                return Err(Error::Weight {
                    weight,
                    most: MAX_WEIGHT,
                });
            }
            OverrideChange::Weight(weight) => Some(Override::Weight(weight)),
        };
        let former = self.memory.overrides.get(pool, server);
        if !self.memory.overrides.set(pool, server, word) {
            return Ok(());
        }
        if let Err(error) = self.pools_changed(&[pool]) {
            self.memory.overrides.set(pool, server, former);
            return Err(error);
        }
        let words = vec![(pool.to_owned(), server.to_owned(), word)];
        self.file.append(&Record {
            overrides: words,
            ..Record::default()
        })
    }

    /// Takes in what checks say of servers, and remembers it over restarts.
    ///
    /// # Errors
    /// The kernel refuses, or the state file cannot be written.
    pub fn hear(&mut self, news: Vec<News>) -> Result<()> {
        let pools: BTreeSet<String> = news.iter().map(|news| news.pool.clone()).collect();
        let record = Record {
            standings: self.memory.standings.hear(news),
            ..Record::default()
        };
        if !record.standings.is_empty() {
            self.file.append(&record)?;
        }
        let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
        self.pools_changed(&pools)
    }

    /// What checks said of a server, in this run or a former one.
    pub fn known(&self, pool: &str, server: &str) -> Option<SavedState> {
        self.memory.standings.known(pool, server)
    }

    /// Takes what became of pools since the last time.
    pub fn take_turns(&mut self) -> Vec<PoolTurn> {
        self.memory.standings.take_turns()
    }

    /// Where probes through a service's forward are entered.
    pub fn passages(&self) -> Passages {
        Arc::clone(&self.plane.maps().probes)
    }

    /// Servers in maintenance, by pool and address as in the file.
    pub fn suspended(&self) -> Suspended {
        self.memory.overrides.maintained()
    }

    /// Follows a change of what the servers of some pools may get, in all of their services and nowhere else.
    pub(super) fn pools_changed(&mut self, pools: &[&str]) -> Result<()> {
        for pool in pools.iter().filter_map(|pool| self.desired.pool(pool)) {
            let base = self.memory.overrides.base(pool);
            self.memory.standings.settle(pool, &base);
        }
        let users = pools.iter().flat_map(|pool| self.desired.users(pool));
        let names: Vec<String> = users.map(|it| it.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let former = allocate(&mut self.memory, &self.desired, &self.plane, &names)?;
        self.remember(&former)?;
        self.rewrite(&names)
    }
}
