//! Defines the configuration of a group of directors.

use serde::{Deserialize, Serialize};

/// A configuration that the group has published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupConfiguration {
    /// The name of the group.
    pub group: String,
    /// The version of the configuration.
    pub version: u64,
    /// The text of the configuration.
    pub text: String,
}
