//! What a pool makes of its checks.

use std::fmt;
use std::time::Duration;

use crate::diff::duration;

/// How several checks of one server make one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Require {
    /// Up when every check says so.
    #[default]
    All,
    /// Up when one check says so.
    Any,
}

impl Require {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::All, Self::Any];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Any => "any",
        }
    }
}

/// What a pool does with the states of its servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Health {
    /// How several checks make one state.
    pub require: Require,
    /// How long the weight of a server that comes back grows; zero = at once.
    pub slow_start: Duration,
    /// Sum of weights below which the sorry server is used in place of all others; 0 = none.
    pub quorum: u32,
    /// How far the sum must rise above, or fall below, `quorum` to change anything.
    pub quorum_hysteresis: u32,
    /// Share of servers that are down, in percent, above which all are used as if they were up; `None` = never.
    pub panic_threshold: Option<u32>,
    /// Share of servers, in percent, that may be ejected for what clients' packets say of them; 0 = none ever is.
    pub max_ejected: u32,
    /// Program and arguments, called when a check changes a server's state; empty = none.
    pub notify: Vec<String>,
}

impl Health {
    /// [`Self::max_ejected`] where none is given.
    pub const DEFAULT_MAX_EJECTED: u32 = 50;
}

impl Default for Health {
    fn default() -> Self {
        Self {
            require: Require::default(),
            slow_start: Duration::ZERO,
            quorum: 0,
            quorum_hysteresis: 0,
            panic_threshold: None,
            max_ejected: Self::DEFAULT_MAX_EJECTED,
            notify: Vec::new(),
        }
    }
}

/// The keys that differ from their defaults.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "require {}", self.require.as_str())?;
        if !self.slow_start.is_zero() {
            write!(f, ", slow_start {}", duration(&self.slow_start))?;
        }
        if self.quorum > 0 {
            write!(f, ", quorum {} ± {}", self.quorum, self.quorum_hysteresis)?;
        }
        if let Some(percent) = self.panic_threshold {
            write!(f, ", panic_threshold {percent} %")?;
        }
        if self.max_ejected != Self::DEFAULT_MAX_EJECTED {
            write!(f, ", max_ejected {} %", self.max_ejected)?;
        }
        if let Some(program) = self.notify.first() {
            write!(f, ", notify {program}")?;
        }
        Ok(())
    }
}
