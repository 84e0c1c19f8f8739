//! How a pool serves clients, and a change of that.

/// How a pool serves clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// With its servers, by their states.
    Up,
    /// With all its servers, whatever their states: too many are down.
    Panic,
    /// With the sorry server, where it has one: too little weight is up.
    BelowQuorum,
    /// Without servers of its own.
    Down,
}

impl Serving {
    /// As passed to notify programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Panic => "panic",
            Self::BelowQuorum => "below quorum",
            Self::Down => "down",
        }
    }

    /// The reason, in words.
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

/// A change of a pool's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolTurn {
    /// Its name.
    pub pool: String,
    /// Its previous state.
    pub from: Serving,
    /// Its present state.
    pub to: Serving,
    /// Whether clients of its services were served before, and are now.
    pub serves: (bool, bool),
}
