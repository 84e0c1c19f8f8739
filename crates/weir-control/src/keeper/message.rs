//! Messages between keeper and daemon: JSON with file descriptors. Either side may be one version older, so fields are
//! only added and never change their meaning.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::facts::Facts;

/// Messages from the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToKeeper {
    /// Store the attached socket.
    Keep {
        /// See [`super::kept::name`].
        name: String,
    },
    /// Remove a socket.
    Forget {
        /// The name under which it was stored.
        name: String,
    },
    /// The configuration is active.
    Ready,
    /// The configuration is not active, and this daemon exits.
    Fails {
        /// Why, for the client that requested the upgrade.
        reason: String,
    },
    /// The active configuration has virtual routers, or none; it was recorded.
    Vrrp {
        /// Whether it has any.
        configured: bool,
    },
    /// The active configuration announces VIPs, or none.
    Announce {
        /// Whether it does.
        configured: bool,
    },
    /// Start this program as the successor; a file with its state is attached.
    Upgrade {
        /// Absolute path.
        program: PathBuf,
    },
}

/// Messages to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToDaemon {
    /// A socket of an earlier daemon is attached.
    Socket {
        /// The name under which it was stored.
        name: String,
    },
    /// The last message of the start. The lock is attached; for a successor also a channel to its predecessor and the
    /// predecessor's state.
    Begin {
        /// Number of daemon crashes since the keeper started.
        restarts: u32,
        /// Cause of the last crash.
        last_death: Option<String>,
        /// Another daemon is active, and hands over when this one is ready.
        successor: bool,
        /// The last attached file is a channel to a privileged helper.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        helper: bool,
        /// The file before that is a channel to a process that owns the layer 4 engine.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        engine: bool,
        /// The last daemon had given up its rights; this one must not have more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        confined: bool,
        /// From the helper service: no process of this keeper is root.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        facts: Option<Facts>,
        /// The helper of the VRRP agent and the announcer read root's file: the daemon needs no rights for them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reads_file: bool,
    },
    /// The successor is ready; a channel to it is attached.
    Succeeded {
        /// Its process.
        pid: u32,
    },
    /// The successor failed.
    Failed {
        /// Why.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_format_is_stable() {
        let messages = [
            serde_json::to_string(&ToKeeper::Keep { name: "a".into() }).unwrap(),
            serde_json::to_string(&ToKeeper::Ready).unwrap(),
            serde_json::to_string(&ToDaemon::Begin {
                restarts: 1,
                last_death: None,
                successor: false,
                helper: false,
                engine: false,
                confined: false,
                facts: None,
                reads_file: false,
            })
            .unwrap(),
        ];
        assert_eq!(
            messages,
            [
                r#"{"keep":{"name":"a"}}"#,
                r#""ready""#,
                r#"{"begin":{"restarts":1,"last_death":null,"successor":false}}"#
            ]
        );
    }
}
