//! Tracks the state of each pool.

use std::collections::BTreeMap;

use weir_health::PoolMode;

/// The state of a pool. It determines which of the pool's servers are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PoolState {
    /// The pool's servers are used according to their states.
    Up,
    /// All servers are used regardless of their states, because too many are down.
    Panic,
    /// The total weight is below the quorum. The sorry server is used; if there is none, the usable servers are used.
    BelowQuorum,
    /// None of the pool's servers is usable. The sorry server is used, if there is one.
    Down,
}

impl PoolState {
    /// Returns the name used in logs and in the status, and passed to notification programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Panic => "panic",
            Self::BelowQuorum => "below quorum",
            Self::Down => "down",
        }
    }

    /// Returns the cause of the state, as text for operators.
    pub const fn cause(self) -> &'static str {
        match self {
            Self::Up => "enough servers are up",
            Self::Panic => "too many servers are down, so all servers are used",
            Self::BelowQuorum => "the usable weight is below the quorum",
            Self::Down => "no server is usable",
        }
    }
}

/// A change to a pool's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolChange {
    /// Name of the pool.
    pub pool: String,
    /// Previous state.
    pub from: PoolState,
    /// New state.
    pub to: PoolState,
    /// Whether clients were served in the previous state, and whether they are served in the new state.
    pub serves: (bool, bool),
}

/// What [`Pools::set`] can change: a pool's mode and state, and the number of recorded changes.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    mode: Option<PoolMode>,
    state: Option<(PoolState, bool)>,
    changes: usize,
}

/// The states of all pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    /// Stored because the quorum has hysteresis. Only [`PoolMode::BelowQuorum`] is persisted.
    pub(crate) pool_modes: BTreeMap<String, PoolMode>,
    /// For each pool whose state has been determined since the daemon started: the state, and whether clients are
    /// served.
    states: BTreeMap<String, (PoolState, bool)>,
    changes: Vec<PoolChange>,
}

impl Pools {
    pub(crate) fn mode(&self, pool: &str) -> PoolMode {
        self.pool_modes.get(pool).copied().unwrap_or_default()
    }

    /// Sets a pool's mode, and records a change if its state, or whether clients are served, has changed.
    pub(crate) fn set(&mut self, pool: &str, mode: PoolMode, has_weight: bool, has_sorry: bool) {
        let before = self.mode(pool);
        if mode != before {
            self.pool_modes.insert(pool.to_owned(), mode);
        }
        let state = match mode {
            PoolMode::Panic => PoolState::Panic,
            PoolMode::BelowQuorum => PoolState::BelowQuorum,
            PoolMode::Normal if has_weight => PoolState::Up,
            PoolMode::Normal => PoolState::Down,
        };
        let to = (state, has_weight || has_sorry);
        let previous = self.states.insert(pool.to_owned(), to);
        // The first state after startup counts as a change only if the mode differs from the persisted mode.
        let from = previous.or_else(|| (mode != before).then_some((PoolState::Up, true)));
        if let Some(from) = from.filter(|from| *from != to) {
            self.changes.push(PoolChange {
                pool: pool.to_owned(),
                from: from.0,
                to: to.0,
                serves: (from.1, to.1),
            });
        }
    }

    /// Returns whether clients of a pool are served; `None` = this has not been determined since the daemon started.
    pub(crate) fn serves(&self, pool: &str) -> Option<bool> {
        self.states.get(pool).map(|(_, serves)| *serves)
    }

    /// Returns what [`Self::set`] can change.
    pub(crate) fn checkpoint(&self, pool: &str) -> Checkpoint {
        Checkpoint {
            mode: self.pool_modes.get(pool).copied(),
            state: self.states.get(pool).copied(),
            changes: self.changes.len(),
        }
    }

    /// Undoes the changes that [`Self::set`] has made to a pool since the checkpoint.
    pub(crate) fn revert(&mut self, pool: &str, checkpoint: &Checkpoint) {
        match checkpoint.mode {
            Some(mode) => drop(self.pool_modes.insert(pool.to_owned(), mode)),
            None => drop(self.pool_modes.remove(pool)),
        }
        match checkpoint.state {
            Some(state) => drop(self.states.insert(pool.to_owned(), state)),
            None => drop(self.states.remove(pool)),
        }
        self.changes.truncate(checkpoint.changes);
    }

    pub(crate) fn take_changes(&mut self) -> Vec<PoolChange> {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn retain(&mut self, is_configured: impl Fn(&str) -> bool) {
        self.pool_modes.retain(|pool, _| is_configured(pool));
        self.states.retain(|pool, _| is_configured(pool));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_name_and_cause() {
        for (state, name, cause) in [
            (PoolState::Up, "up", "enough servers are up"),
            (
                PoolState::Panic,
                "panic",
                "too many servers are down, so all servers are used",
            ),
            (
                PoolState::BelowQuorum,
                "below quorum",
                "the usable weight is below the quorum",
            ),
            (PoolState::Down, "down", "no server is usable"),
        ] {
            assert_eq!((state.as_str(), state.cause()), (name, cause));
        }
    }

    /// Returns the state changes that result from these steps (mode, has weight, has sorry server).
    fn changes(steps: &[(PoolMode, bool, bool)]) -> Vec<(PoolState, PoolState, (bool, bool))> {
        let mut pools = Pools::default();
        for (mode, has_weight, has_sorry) in steps {
            pools.set("p", *mode, *has_weight, *has_sorry);
        }
        let changes = pools.take_changes().into_iter();
        changes.map(|it| (it.from, it.to, it.serves)).collect()
    }

    #[test]
    fn state_changes_include_whether_clients_are_served() {
        use PoolState::{BelowQuorum, Down, Panic, Up};
        let (up, down) = (
            (PoolMode::Normal, true, false),
            (PoolMode::Normal, false, false),
        );
        let sorry = (PoolMode::Normal, false, true);
        assert_eq!(changes(&[up, up]), []);
        assert_eq!(changes(&[down]), [], "the first state after startup");
        assert_eq!(
            changes(&[up, down, down, up]),
            [(Up, Down, (true, false)), (Down, Up, (false, true))]
        );
        assert_eq!(
            changes(&[down, sorry]),
            [(Down, Down, (false, true))],
            "the sorry server came up"
        );
        assert_eq!(
            changes(&[
                (PoolMode::Panic, true, false),
                (PoolMode::BelowQuorum, true, false),
                (PoolMode::BelowQuorum, false, false),
                (PoolMode::BelowQuorum, false, true),
                down
            ]),
            [
                (Up, Panic, (true, true)),
                (Panic, BelowQuorum, (true, true)),
                (BelowQuorum, BelowQuorum, (true, false)),
                (BelowQuorum, BelowQuorum, (false, true)),
                (BelowQuorum, Down, (true, false))
            ]
        );
    }

    #[test]
    fn state_of_a_removed_pool_is_forgotten() {
        let mut pools = Pools::default();
        for pool in ["p", "q"] {
            pools.set(pool, PoolMode::Panic, false, false);
        }
        pools.retain(|pool| pool == "p");
        assert_eq!(pools.mode("p"), PoolMode::Panic);
        assert_eq!(pools.serves("p"), Some(false));
        assert_eq!(pools.mode("q"), PoolMode::Normal);
        assert_eq!(pools.serves("q"), None);
    }

    #[test]
    fn revert_restores_the_checkpoint() {
        let mut pools = Pools::default();
        pools.set("p", PoolMode::BelowQuorum, true, false);
        let before = pools.checkpoint("p");
        pools.set("p", PoolMode::Normal, false, false);
        pools.revert("p", &before);
        assert_eq!(pools.mode("p"), PoolMode::BelowQuorum);
        assert_eq!(
            pools.take_changes().len(),
            1,
            "the change before the checkpoint"
        );
        pools.set("p", PoolMode::BelowQuorum, true, false);
        assert_eq!(pools.take_changes(), []);

        let unknown = pools.checkpoint("q");
        pools.set("q", PoolMode::Panic, true, false);
        pools.revert("q", &unknown);
        assert_eq!(pools.mode("q"), PoolMode::Normal);
        pools.set("q", PoolMode::Normal, false, false);
        assert_eq!(pools.take_changes(), [], "the first state after startup");
    }
}
