//! The configuration of a group of directors.

use serde::{Deserialize, Serialize};

/// A configuration that the group has published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupConfiguration {
    /// Name of the group.
    pub group: String,
    /// Version of the configuration.
    pub version: u64,
    /// Text of the configuration.
    pub text: String,
}
