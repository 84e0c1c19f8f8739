//! Messages between keeper and daemon: JSON, with file descriptors. Either may be older than the other by an
//! upgrade, so that fields are added and never change their meaning.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// From the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToKeeper {
    /// Hold the socket that comes with it.
    Keep {
        /// See [`super::kept::name`].
        name: String,
    },
    /// Let it go.
    Forget {
        /// As it was kept.
        name: String,
    },
    /// The configuration is active.
    Ready,
    /// It is not, and this daemon ends.
    Fails {
        /// Why, for whoever asked for it.
        reason: String,
    },
    /// Start this program to take over; a file with what it is to know comes along.
    Upgrade {
        /// Absolute.
        program: PathBuf,
    },
}

/// To the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToDaemon {
    /// A socket of an earlier daemon comes with it.
    Socket {
        /// As it was kept.
        name: String,
    },
    /// That was all. The lock comes with it; for a successor also a channel to its predecessor, and what that one left
    /// to it.
    Begin {
        /// How often a daemon died since the keeper started.
        restarts: u32,
        /// How the last one did.
        last_death: Option<String>,
        /// Another daemon is in charge, and will hand over when this one is ready.
        successor: bool,
    },
    /// The successor is ready; a channel to it comes along.
    Succeeded {
        /// Its process.
        pid: u32,
    },
    /// There will be none.
    Failed {
        /// Why.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_stays() {
        let words = [
            serde_json::to_string(&ToKeeper::Keep { name: "a".into() }).unwrap(),
            serde_json::to_string(&ToKeeper::Ready).unwrap(),
            serde_json::to_string(&ToDaemon::Begin {
                restarts: 1,
                last_death: None,
                successor: false,
            })
            .unwrap(),
        ];
        assert_eq!(
            words,
            [
                r#"{"keep":{"name":"a"}}"#,
                r#""ready""#,
                r#"{"begin":{"restarts":1,"last_death":null,"successor":false}}"#
            ]
        );
    }
}
