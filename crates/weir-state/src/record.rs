//! Defines the formats of the files in which server state is persisted.
//!
//! [`OverrideFile`] is `RUNTIME_DIR/proxy.json`, the authoritative source of all overrides. The layer 4 plane writes
//! `state.json` and its journal, which contain a copy of the overrides and the servers' health ([`SavedServers`]).
//! `proxy-left.json` also contains the health. The formats are those of 0.1.0, except for a marker in `state.json` that
//! 0.1.0 ignores and does not write. Each build can therefore read the other's files, and this build detects whether
//! 0.1.0 has run a layer 4 plane in the meantime.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_health::{ServerHealth, State};

use crate::overrides::{Override, Overrides};

/// Pool, server, and the server's override; `None` = removed.
pub type OverrideRecord = (String, String, Option<Override>);

/// Pool, server, and the server's health; `None` = the server no longer has any checks.
pub type HealthRecord = (String, String, Option<SavedServerHealth>);

/// `RUNTIME_DIR/proxy.json`: overrides, and the revision of the configuration while there is no layer 4 plane to count
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverrideFile {
    /// Number of configurations that took effect without a layer 4 plane.
    pub revision: u64,
    /// The fingerprint of the configuration that `revision` counted last.
    pub fingerprint: u64,
    /// Overrides of all servers.
    #[serde(rename = "words")]
    pub overrides: Overrides,
}

impl OverrideFile {
    /// Parses the content of the file.
    ///
    /// # Errors
    /// Fails if the text is not valid JSON for this type.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// Returns the file's content.
    ///
    /// # Errors
    /// None in practice: all keys are strings.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}

/// The server state in `state.json` and its journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedServers {
    /// Overrides; a copy of [`OverrideFile::overrides`] if `is_copy`.
    pub overrides: Overrides,
    /// The check results.
    #[serde(rename = "standings")]
    pub health_states: SavedHealth,
    /// Whether this build wrote the file. When 0.1.0 starts, it rewrites the whole file without this marker.
    pub is_copy: bool,
}

impl SavedServers {
    /// Applies changes from the journal.
    pub fn replay(&mut self, overrides: Vec<OverrideRecord>, health_states: Vec<HealthRecord>) {
        for (pool, server, new_override) in overrides {
            self.overrides.set(&pool, &server, new_override);
        }
        for (pool, server, server_health) in health_states {
            let servers = self.health_states.servers.entry(pool).or_default();
            match server_health {
                Some(server_health) => drop(servers.insert(server, server_health)),
                None => drop(servers.remove(&server)),
            }
        }
    }
}

/// Check results as they are stored. Weights that checks set, and the progress of slow start, are not stored, because
/// the checks soon provide them again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedHealth {
    /// The health of each server, by pool and server.
    #[serde(default)]
    pub servers: BTreeMap<String, BTreeMap<String, SavedServerHealth>>,
    /// Pools that are below their quorum. Stored because the quorum has hysteresis.
    #[serde(default)]
    pub below_quorum: Vec<String>,
}

/// A [`ServerHealth`] in its stored form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedServerHealth {
    state: StateName,
    since_ms: u64,
    reason: String,
    remove: bool,
    /// The health in each service that checks the server through its own path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    paths: BTreeMap<String, SavedServerHealth>,
}

/// The name of a [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StateName {
    Starting,
    Up,
    Down,
}

impl From<SavedServerHealth> for ServerHealth {
    fn from(saved: SavedServerHealth) -> Self {
        let state = match saved.state {
            StateName::Starting => State::Starting,
            StateName::Up => State::Up,
            StateName::Down => State::Down,
        };
        let paths = saved.paths.into_iter();
        Self {
            reason: saved.reason,
            remove: saved.remove,
            paths: paths
                .map(|(service, path)| (service, Self::from(path)))
                .collect(),
            ..Self::new(state, Duration::from_millis(saved.since_ms))
        }
    }
}

impl From<&ServerHealth> for SavedServerHealth {
    fn from(server_health: &ServerHealth) -> Self {
        let paths = server_health.paths.iter();
        Self {
            state: match server_health.state {
                State::Starting => StateName::Starting,
                State::Up => StateName::Up,
                State::Down => StateName::Down,
            },
            since_ms: u64::try_from(server_health.since.as_millis()).unwrap_or(u64::MAX),
            reason: server_health.reason.clone(),
            remove: server_health.remove,
            paths: paths
                .map(|(service, path)| (service.clone(), Self::from(path)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_health_is_restored_as_saved() {
        for state in [State::Starting, State::Up, State::Down] {
            let mut server_health = ServerHealth::new(state, Duration::from_millis(1_234));
            server_health.reason = "because".to_owned();
            server_health.remove = state == State::Down;
            let json = serde_json::to_string(&SavedServerHealth::from(&server_health)).unwrap();
            let saved: SavedServerHealth = serde_json::from_str(&json).unwrap();
            assert_eq!(ServerHealth::from(saved), server_health, "{json}");
        }
    }

    #[test]
    fn replay_sets_and_removes_entries() {
        let name = |text: &str| text.to_owned();
        let up = SavedServerHealth::from(&ServerHealth::new(State::Up, Duration::ZERO));
        let mut saved = SavedServers::default();
        saved.replay(
            vec![
                (name("p"), name("a"), Some(Override::Drain)),
                (name("p"), name("b"), Some(Override::Maint)),
                (name("p"), name("a"), None),
            ],
            vec![
                (name("p"), name("a"), Some(up.clone())),
                (name("p"), name("b"), Some(up.clone())),
                (name("p"), name("a"), None),
            ],
        );
        let overrides: Vec<_> = saved.overrides.iter().collect();
        assert_eq!(overrides, [("p", "b", Override::Maint)]);
        assert_eq!(
            saved.health_states.servers["p"],
            BTreeMap::from([(name("b"), up)])
        );
    }
}
