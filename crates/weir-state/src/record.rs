//! Defines the formats in which server state is persisted.
//!
//! [`OverrideFile`] is `RUNTIME_DIR/proxy.json`, the owner of all overrides. `state.json` with its journal, which the
//! layer 4 plane writes, contains a copy of them and the servers' health ([`SavedServers`]); `proxy-left.json` contains
//! the health, too. The formats are those of 0.1.0, with a marker in `state.json` that 0.1.0 ignores and does not
//! write. Each build can therefore read the other's files, and this build detects whether 0.1.0 has run a layer 4 plane
//! since.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_health::{ServerHealth, State};

use crate::overrides::{Override, Overrides};

/// Pool, server, and the server's override; `None` = removed.
pub type OverrideRecord = (String, String, Option<Override>);

/// Pool, server, and the server's health; `None` = the server no longer has a check.
pub type HealthRecord = (String, String, Option<SavedServerHealth>);

/// `RUNTIME_DIR/proxy.json`: overrides, and the configuration's revision if no layer 4 plane counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverrideFile {
    /// Number of configurations that took effect without a layer 4 plane.
    pub revision: u64,
    /// Identifies the configuration of `revision`.
    pub fingerprint: u64,
    /// Overrides of all servers.
    #[serde(rename = "words")]
    pub overrides: Overrides,
}

impl OverrideFile {
    /// Reads the file's content.
    ///
    /// # Errors
    /// Fails if the text is not JSON of this form.
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

/// The servers' part of `state.json` and its journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedServers {
    /// Overrides; a copy of [`OverrideFile::overrides`] if `is_copy`.
    pub overrides: Overrides,
    /// Results of checks.
    #[serde(rename = "standings")]
    pub health_states: SavedHealth,
    /// Whether this build wrote the file. 0.1.0 writes the whole file when it starts, without this marker.
    pub is_copy: bool,
}

impl SavedServers {
    /// Applies changes from the journal.
    pub fn replay(&mut self, overrides: Vec<OverrideRecord>, health_states: Vec<HealthRecord>) {
        for (pool, server, active) in overrides {
            self.overrides.set(&pool, &server, active);
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

/// Results of checks, as they are stored. Reported weights and slow start are not stored, because checks report them
/// again soon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedHealth {
    /// HealthStates by pool and server.
    #[serde(default)]
    pub servers: BTreeMap<String, BTreeMap<String, SavedServerHealth>>,
    /// Pools below their quorum, which has hysteresis.
    #[serde(default)]
    pub below_quorum: Vec<String>,
}

/// A [`ServerHealth`] as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedServerHealth {
    state: StateName,
    since_ms: u64,
    reason: String,
    remove: bool,
    /// HealthStates in services with separate paths.
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
