//! Defines the messages between the keeper and the daemon: JSON with file descriptors.
//!
//! Either side can be one version older than the other, so fields may be added, but must never change their meaning.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::root_info::RootInfo;

/// Messages from the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToKeeper {
    /// Store the attached socket or file.
    Keep {
        /// See [`super::link::name`].
        name: String,
    },
    /// Remove a stored socket or file.
    Forget {
        /// The name under which it was stored.
        name: String,
    },
    /// The daemon has applied the configuration and serves requests.
    Ready,
    /// The daemon failed to start and is exiting.
    Fails {
        /// The reason, for the client that requested the upgrade.
        reason: String,
    },
    /// Whether the active configuration has virtual routers. The daemon has already recorded the configuration.
    Vrrp {
        /// `true` if there are virtual routers.
        configured: bool,
    },
    /// Whether the active configuration announces VIPs.
    Announce {
        /// `true` if VIPs are announced.
        configured: bool,
    },
    /// Start this program as the successor. A file with the state for the successor is attached.
    Upgrade {
        /// The program's absolute path.
        program: PathBuf,
    },
}

/// Messages to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToDaemon {
    /// The attached socket or file was stored by an earlier daemon.
    Socket {
        /// The name under which it was stored.
        name: String,
    },
    /// The last message during startup. The lock is attached. For a successor, the channel to its predecessor and the
    /// predecessor's state are also attached.
    Begin {
        /// Number of daemon crashes since the keeper started.
        restarts: u32,
        /// Cause of the last crash.
        last_death: Option<String>,
        /// Whether another daemon is active and will hand over when this daemon is ready.
        successor: bool,
        /// Whether the last attached file is a channel to a privileged helper.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        helper: bool,
        /// Whether a channel to the process that owns the layer 4 engine is attached, before the helper's channel if
        /// there is one, otherwise last.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        engine: bool,
        /// Whether the last daemon had dropped its privileges. This daemon must then drop them, too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        confined: bool,
        /// Information from the helper service; present if the keeper is unprivileged and uses the service.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[serde(rename = "facts")]
        root_info: Option<RootInfo>,
        /// Whether the VRRP agent's helper and the announcer read the configuration file themselves, so the daemon
        /// need not run as root for them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reads_file: bool,
    },
    /// The successor is ready. A channel to the successor is attached.
    Succeeded {
        /// The successor's process ID.
        pid: u32,
    },
    /// The successor failed.
    Failed {
        /// The reason.
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
                root_info: None,
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
