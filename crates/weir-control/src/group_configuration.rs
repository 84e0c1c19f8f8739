//! Defines the configuration of a group of directors.

use serde::{Deserialize, Serialize};

/// A configuration that the group has published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupConfiguration {
    /// The group name.
    pub group: String,
    /// The configuration version.
    pub version: u64,
    /// The configuration text.
    pub text: String,
    /// How long each director guards the configuration, in milliseconds; 0 = no guard.
    #[serde(default)]
    pub guard_ms: u64,
}
