//! Messages between an unprivileged keeper and the helper service: JSON with file descriptors. Either side may be one
//! version older, so fields and messages are only added and never change their meaning.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::keeper::helper::Kind;
use crate::keeper::root_info::RootInfo;

/// Version of the protocol.
pub(super) const VERSION: u32 = 1;

/// Messages from a keeper, and from `weir upgrade`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToService {
    /// The first message of a keeper.
    Keeper {
        /// See [`VERSION`].
        version: u32,
    },
    /// Permit starting helpers of this program. Only root sends this message.
    Permit {
        /// Absolute path.
        program: PathBuf,
    },
    /// Prepare the runtime directory for the account, and acquire its lock for the keeper.
    Lock,
    /// Return the information that only root can determine, for a daemon of this program.
    #[serde(rename = "facts")]
    RootInfo {
        /// Absolute path.
        program: PathBuf,
    },
    /// Start a helper of a daemon at the attached end of its channel, at the first request.
    #[serde(rename = "attend")]
    StartHelper {
        /// The helper's task.
        kind: Kind,
        /// Absolute path.
        program: PathBuf,
        /// Start the helper immediately, because it was running under the previous service.
        #[serde(rename = "again")]
        is_needed: bool,
    },
    /// Start the VRRP processes, or stop them.
    Vrrp {
        /// Whether the active configuration has virtual routers.
        configured: bool,
        /// Absolute path.
        program: PathBuf,
    },
    /// Start the announcer, or stop it.
    Announce {
        /// Whether the active configuration announces VIPs.
        configured: bool,
        /// Absolute path.
        program: PathBuf,
    },
    /// Stop virtual routers and announcements.
    Stop,
}

/// Messages from the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromService {
    /// The lock is attached.
    Locked,
    /// Another process holds the lock.
    Held {
        /// The holder's process ID, if known.
        holder: Option<u32>,
    },
    /// See [`ToService::RootInfo`].
    #[serde(rename = "facts")]
    RootInfo(RootInfo),
    /// See [`ToService::Permit`].
    Permitted,
    /// Virtual routers and announcements have stopped.
    Stopped,
    /// The request was rejected or failed.
    Refused {
        /// The message.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_format_is_stable() {
        let start_helper = ToService::StartHelper {
            kind: Kind::Engine,
            program: "/usr/bin/weir".into(),
            is_needed: false,
        };
        assert_eq!(
            [
                serde_json::to_string(&ToService::Keeper { version: VERSION }).unwrap(),
                serde_json::to_string(&ToService::Lock).unwrap(),
                serde_json::to_string(&start_helper).unwrap(),
                serde_json::to_string(&FromService::RootInfo(RootInfo::default())).unwrap(),
            ],
            [
                r#"{"keeper":{"version":1}}"#,
                r#""lock""#,
                r#"{"attend":{"kind":"engine","program":"/usr/bin/weir","again":false}}"#,
                r#"{"facts":{"pinned":false,"readable":[]}}"#,
            ]
        );
        let unknown = r#"{"permit":{"program":"/bin/sh","arguments":[]}}"#;
        assert!(serde_json::from_str::<ToService>(unknown).is_err());
    }
}
