//! Whom a pool serves by, and what programs are told when that changes.

/// Whom a pool serves by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Servers of its own, by their states.
    Up,
    /// All of them, whatever their states: too many are down.
    Panic,
    /// The sorry server, where there is one: too little weight is up.
    BelowQuorum,
    /// None of its own.
    Down,
}

impl Serving {
    /// The word for programs that are told.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Panic => "panic",
            Self::BelowQuorum => "below quorum",
            Self::Down => "down",
        }
    }

    /// What that is because of.
    pub const fn cause(self) -> &'static str {
        match self {
            Self::Up => "enough servers are up",
            Self::Panic => "too many servers are down: all are used",
            Self::BelowQuorum => "too little weight is up for the quorum",
            Self::Down => "no server is usable",
        }
    }

    /// Whether clients of a service get an answer.
    pub const fn serves(self, has_sorry: bool) -> bool {
        has_sorry || !matches!(self, Self::Down)
    }
}

/// A pool's change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolTurn {
    /// Its name.
    pub pool: String,
    /// Before.
    pub from: Serving,
    /// Now.
    pub to: Serving,
    /// Whether clients of its services got an answer before, and get one now.
    pub serves: (bool, bool),
}
