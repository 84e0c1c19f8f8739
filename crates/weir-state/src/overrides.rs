//! Stores operators' server overrides. An override stays active across reloads until `ready` removes it.
//!
//! Overrides are keyed by the names in the configuration file, so a server that is removed from the file and added
//! again is still drained.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use weir_health::SuspendedServers;
use weir_model::{Pool, Server};

/// An operator's override for one server; a server without one is `ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Override {
    /// No new flows or requests.
    Drain,
    /// No new flows or requests, and no checks.
    Maint,
    /// Use this weight instead of the configured weight.
    Weight(u32),
}

impl Override {
    /// Returns whether status shows the override's state instead of the state from the checks.
    pub const fn hides_checks(self) -> bool {
        matches!(self, Self::Drain | Self::Maint)
    }

    /// Returns the weight that replaces the configured weight.
    pub const fn weight(self) -> u32 {
        match self {
            Self::Drain | Self::Maint => 0,
            Self::Weight(weight) => weight,
        }
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drain => f.write_str("drain"),
            Self::Maint => f.write_str("maint"),
            Self::Weight(weight) => write!(f, "weight {weight}"),
        }
    }
}

/// An operator's request for a server: an override, or `None` for `ready`, which removes the override.
///
/// Its JSON form is the body of `POST /v1/servers/POOL/ADDRESS`: `{"state": "drain"}` or `{"weight": 3}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "UpdateJson", into = "UpdateJson")]
pub struct ServerUpdate(pub Option<Override>);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum UpdateJson {
    State(StateJson),
    Weight(u32),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StateJson {
    Drain,
    Maint,
    Ready,
}

impl From<UpdateJson> for ServerUpdate {
    fn from(update: UpdateJson) -> Self {
        Self(match update {
            UpdateJson::State(StateJson::Drain) => Some(Override::Drain),
            UpdateJson::State(StateJson::Maint) => Some(Override::Maint),
            UpdateJson::State(StateJson::Ready) => None,
            UpdateJson::Weight(weight) => Some(Override::Weight(weight)),
        })
    }
}

impl From<ServerUpdate> for UpdateJson {
    fn from(update: ServerUpdate) -> Self {
        match update.0 {
            Some(Override::Drain) => Self::State(StateJson::Drain),
            Some(Override::Maint) => Self::State(StateJson::Maint),
            None => Self::State(StateJson::Ready),
            Some(Override::Weight(weight)) => Self::Weight(weight),
        }
    }
}

/// Overrides by pool and server, both as written in the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrides(BTreeMap<String, BTreeMap<String, Override>>);

impl Overrides {
    /// Returns a server's override.
    pub fn get(&self, pool: &str, server: &str) -> Option<Override> {
        self.0.get(pool)?.get(server).copied()
    }

    /// Returns all overrides, by pool and server.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, Override)> {
        self.0.iter().flat_map(|(pool, servers)| {
            let servers = servers.iter();
            servers.map(move |(server, active)| (pool.as_str(), server.as_str(), *active))
        })
    }

    /// Returns a function for the servers in a pool: it returns a server's weight without regard to health.
    pub(crate) fn base_weight(&self, pool: &Pool) -> impl Fn(&Server) -> u32 + use<'_> {
        let overrides = self.0.get(&pool.name);
        move |server| {
            let active = overrides.and_then(|servers| servers.get(&server.name));
            active.map_or(server.weight, |active| active.weight())
        }
    }

    /// Returns the servers in maintenance, which are not checked.
    pub(crate) fn servers_in_maintenance(&self) -> SuspendedServers {
        self.iter()
            .filter(|(.., active)| *active == Override::Maint)
            .map(|(pool, server, _)| (pool.to_owned(), server.to_owned()))
            .collect()
    }

    /// Sets or removes a server's override. Returns whether the override changed.
    pub(crate) fn set(&mut self, pool: &str, server: &str, new_override: Option<Override>) -> bool {
        match new_override {
            Some(new_override) => {
                let servers = self.0.entry(pool.to_owned()).or_default();
                servers.insert(server.to_owned(), new_override) != Some(new_override)
            }
            None => {
                let Some(servers) = self.0.get_mut(pool) else {
                    return false;
                };
                let is_removed = servers.remove(server).is_some();
                if servers.is_empty() {
                    self.0.remove(pool);
                }
                is_removed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn override_determines_text_weight_and_whether_checks_are_hidden() {
        for (active, text, weight, hides) in [
            (Override::Drain, "drain", 0, true),
            (Override::Maint, "maint", 0, true),
            (Override::Weight(7), "weight 7", 7, false),
        ] {
            assert_eq!(active.to_string(), text);
            assert_eq!((active.weight(), active.hides_checks()), (weight, hides));
        }
    }

    #[test]
    fn update_json_is_a_state_or_a_weight() {
        let parse = serde_json::from_str::<ServerUpdate>;
        for (json, update) in [
            (r#"{"state":"drain"}"#, Some(Override::Drain)),
            (r#"{"state":"maint"}"#, Some(Override::Maint)),
            (r#"{"state":"ready"}"#, None),
            (r#"{"weight":0}"#, Some(Override::Weight(0))),
        ] {
            assert_eq!(parse(json).unwrap(), ServerUpdate(update));
            assert_eq!(serde_json::to_string(&ServerUpdate(update)).unwrap(), json);
        }
        for wrong in [
            "{}",
            r#"{"state":"up"}"#,
            r#"{"weight":-1}"#,
            r#"{"state":"drain","weight":1}"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_changes_are_reported_and_only_maintenance_suspends_checks() {
        let mut overrides = Overrides::default();
        assert!(overrides.set("p", "a", Some(Override::Maint)));
        assert!(!overrides.set("p", "a", Some(Override::Maint)));
        assert!(overrides.set("p", "b", Some(Override::Drain)));
        assert!(overrides.set("p", "c", Some(Override::Weight(3))));
        let suspended = overrides.servers_in_maintenance();
        assert_eq!(
            suspended,
            SuspendedServers::from([("p".to_owned(), "a".to_owned())])
        );
        for server in ["a", "b", "c"] {
            assert!(overrides.set("p", server, None));
            assert!(!overrides.set("p", server, None));
        }
        assert_eq!(overrides, Overrides::default());
    }
}
