//! Operators' words about servers: in force over every configuration until they are taken back.
//!
//! Kept by the names of the file, so that a server which leaves the configuration and comes back is still drained.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An operator's word about one server, in force until it is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Override {
    /// No new flows.
    Drain,
    /// No new flows and no checks.
    Maint,
    /// Another weight than the file's.
    Weight(u32),
}

impl Override {
    /// What the scheduler uses instead of the configured weight.
    pub(super) const fn weight(self) -> u32 {
        match self {
            Self::Drain | Self::Maint => 0,
            Self::Weight(weight) => weight,
        }
    }
}

/// Overrides by pool and server, both as written in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Overrides(BTreeMap<String, BTreeMap<String, Override>>);

impl Overrides {
    /// The one for a server.
    pub(super) fn get(&self, pool: &str, server: &str) -> Option<Override> {
        self.0.get(pool)?.get(server).copied()
    }

    /// Sets or takes back the one for a server; answers whether that changed anything.
    pub(super) fn set(&mut self, pool: &str, server: &str, word: Option<Override>) -> bool {
        let servers = self.0.entry(pool.to_owned()).or_default();
        match word {
            Some(word) => servers.insert(server.to_owned(), word) != Some(word),
            None => servers.remove(server).is_some(),
        }
    }
}
