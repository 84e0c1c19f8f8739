//! The state of a pool: which servers it uses.

use std::collections::BTreeMap;

use weir_health::Regime;

/// Which servers a pool uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// Its own, by their states.
    Up,
    /// All of its own, whatever their states: too many are down.
    Panic,
    /// The sorry server, if there is one: the total weight is below the quorum.
    BelowQuorum,
    /// None of its own: none is usable.
    Down,
}

impl PoolState {
    /// The name in logs, in the status and for notification programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Panic => "panic",
            Self::BelowQuorum => "below quorum",
            Self::Down => "down",
        }
    }

    /// The cause, as a text for operators.
    pub const fn cause(self) -> &'static str {
        match self {
            Self::Up => "enough servers are up",
            Self::Panic => "too many servers are down: all are used",
            Self::BelowQuorum => "too little weight is up for the quorum",
            Self::Down => "no server is usable",
        }
    }

    /// Whether clients are served, given whether a sorry server is usable.
    pub const fn serves(self, has_sorry: bool) -> bool {
        has_sorry || !matches!(self, Self::Down)
    }
}

/// A change of a pool's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolChange {
    /// Name of the pool.
    pub pool: String,
    /// State before.
    pub from: PoolState,
    /// State now.
    pub to: PoolState,
    /// Whether clients were served before, and are served now.
    pub serves: (bool, bool),
}

/// See [`Pools::checkpoint`].
#[derive(Debug)]
pub(crate) struct Checkpoint {
    regime: Option<Regime>,
    state: Option<(PoolState, bool)>,
    changes: usize,
}

/// The states of all pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    /// Kept because the quorum has hysteresis; [`Regime::BelowQuorum`] is persisted.
    pub(crate) regimes: BTreeMap<String, Regime>,
    /// State, and whether a sorry server is usable, if it was determined in this run.
    states: BTreeMap<String, (PoolState, bool)>,
    changes: Vec<PoolChange>,
}

impl Pools {
    pub(crate) fn regime(&self, pool: &str) -> Regime {
        self.regimes.get(pool).copied().unwrap_or_default()
    }

    /// Sets a pool's regime and notes a change of its state.
    pub(crate) fn set(&mut self, pool: &str, regime: Regime, has_weight: bool, has_sorry: bool) {
        let before = self.regime(pool);
        if regime != before {
            self.regimes.insert(pool.to_owned(), regime);
        }
        let state = match regime {
            Regime::Panic => PoolState::Panic,
            Regime::BelowQuorum => PoolState::BelowQuorum,
            Regime::Normal if has_weight => PoolState::Up,
            Regime::Normal => PoolState::Down,
        };
        let to = (state, has_sorry);
        let known = self.states.insert(pool.to_owned(), to);
        // The first state of a run is a change only if the regime differs from the persisted one.
        let from = known.or_else(|| (regime != before).then_some((PoolState::Up, has_sorry)));
        if let Some(from) = from.filter(|from| *from != to) {
            let serves = |(state, sorry): (PoolState, bool)| state.serves(sorry);
            self.changes.push(PoolChange {
                pool: pool.to_owned(),
                from: from.0,
                to: to.0,
                serves: (serves(from), serves(to)),
            });
        }
    }

    /// What [`Self::set`] may change of a pool.
    pub(crate) fn checkpoint(&self, pool: &str) -> Checkpoint {
        Checkpoint {
            regime: self.regimes.get(pool).copied(),
            state: self.states.get(pool).copied(),
            changes: self.changes.len(),
        }
    }

    /// Undoes what [`Self::set`] changed of a pool since the checkpoint.
    pub(crate) fn revert(&mut self, pool: &str, to: &Checkpoint) {
        match to.regime {
            Some(regime) => drop(self.regimes.insert(pool.to_owned(), regime)),
            None => drop(self.regimes.remove(pool)),
        }
        match to.state {
            Some(state) => drop(self.states.insert(pool.to_owned(), state)),
            None => drop(self.states.remove(pool)),
        }
        self.changes.truncate(to.changes);
    }

    pub(crate) fn take_changes(&mut self) -> Vec<PoolChange> {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn retain(&mut self, is_configured: impl Fn(&str) -> bool) {
        self.regimes.retain(|pool, _| is_configured(pool));
        self.states.retain(|pool, _| is_configured(pool));
    }
}
