//! Defines the steps of a rollout.

use crate::store::Txn;

/// A configuration of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupConfig {
    /// Version; 0 = no configuration.
    pub(crate) version: u64,
    pub(crate) digest: String,
    pub(crate) text: String,
    pub(crate) guard_ms: u64,
    /// MAC of the pointer.
    pub(crate) mac: String,
}

/// The next step of a director.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    Write(Txn),
    /// Apply a configuration, then call `Rollout::finish` with the result.
    Apply(GroupConfig),
    /// Stage another version's servers; see [`crate::Output::Stage`].
    Stage {
        version: u64,
        text: String,
        replaces: bool,
    },
}
