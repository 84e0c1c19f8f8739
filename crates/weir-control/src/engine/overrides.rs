//! Operators' words about servers: in force over every configuration until they are taken back.
//!
//! Kept by the names of the file, so that a server which leaves the configuration and comes back is still drained.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_health::Suspended;
use weir_model::{Pool, Server};

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
    /// Whether the state that it gives is shown in place of what checks say.
    pub(super) const fn hides_checks(self) -> bool {
        matches!(self, Self::Drain | Self::Maint)
    }

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

    /// The weight of each server of a pool before its health is counted in.
    pub(super) fn base(&self, pool: &Pool) -> impl Fn(&Server) -> u32 + use<'_> {
        let words = self.0.get(&pool.name);
        move |server| {
            let word = words.and_then(|words| words.get(&server.name));
            word.map_or(server.weight, |word| word.weight())
        }
    }

    /// Servers that no check may go to.
    pub(super) fn maintained(&self) -> Suspended {
        let all = self.0.iter().flat_map(|(pool, servers)| {
            let servers = servers.iter();
            servers.map(move |(server, word)| (pool, server, word))
        });
        all.filter(|(.., word)| **word == Override::Maint)
            .map(|(pool, server, _)| (pool.clone(), server.clone()))
            .collect()
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
