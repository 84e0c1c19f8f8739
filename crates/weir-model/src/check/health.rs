//! Defines a pool's health policy.

use std::fmt;
use std::time::Duration;

use crate::diff::duration;

named_enum! {
    /// How the results of several checks on one server are combined.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Require {
        /// Up if every check passes.
        #[default]
        All = "all",
        /// Up if any check passes.
        Any = "any",
    }
}

/// How a pool reacts to its servers' states.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Health {
    /// How the results of several checks are combined.
    pub require: Require,
    /// Time over which the weight of a recovered server increases; zero = no slow start.
    pub slow_start: Duration,
    /// Total weight below which the sorry server replaces all others; 0 = none.
    pub quorum: u32,
    /// Hysteresis: the quorum is lost below `quorum` minus this value, and regained at `quorum` plus this value.
    pub quorum_hysteresis: u32,
    /// If more than this percentage of servers is down, all servers are used as if they were up; `None` = never.
    pub panic_threshold: Option<u32>,
    /// Maximum percentage of servers that may be ejected because of failures in client traffic; 0 = no ejection.
    pub max_ejected: u32,
    /// Reply latency at layer 4 above which a server is ejected; `None` = no ejection.
    pub max_latency: Option<Duration>,
    /// Program to run when a check changes a server's state, with arguments; empty = none.
    pub notify: Vec<String>,
}

impl Health {
    /// Default of [`Self::max_ejected`].
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
            max_latency: None,
            notify: Vec::new(),
        }
    }
}

/// Formats `require`, and the other keys that differ from their defaults.
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
        if let Some(limit) = &self.max_latency {
            write!(f, ", max_latency {}", duration(limit))?;
        }
        if let Some(program) = self.notify.first() {
            write!(f, ", notify {program}")?;
        }
        Ok(())
    }
}
