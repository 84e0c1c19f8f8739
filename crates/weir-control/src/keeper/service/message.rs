//! Defines the messages between an unprivileged keeper and the helper service: JSON with file descriptors.
//!
//! Either side can be one version older than the other, so fields and messages may be added, but must never change
//! their meaning. The service rejects a message with a field that it does not know, so a new field of such a message
//! must be omitted unless it is needed.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::keeper::helper::Kind;
use crate::keeper::root_info::RootInfo;

/// The version of the protocol.
pub(super) const VERSION: u32 = 1;

/// Messages from a keeper, and from `weir upgrade`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToService {
    /// The first message from a keeper.
    Keeper {
        /// See [`VERSION`].
        version: u32,
    },
    /// Permit this program, so that helpers may run it. Only root may send this message.
    Permit {
        /// The program's absolute path.
        program: PathBuf,
    },
    /// Prepare the runtime directory for the account, and acquire the directory's lock for the keeper.
    Lock,
    /// Return the information that only root can determine, for a daemon that runs this program.
    #[serde(rename = "facts")]
    RootInfo {
        /// The program's absolute path.
        program: PathBuf,
    },
    /// Start a daemon's helper at the attached end of its channel when the first request arrives.
    #[serde(rename = "attend")]
    StartHelper {
        /// The helper's task.
        kind: Kind,
        /// The program's absolute path.
        program: PathBuf,
        /// Start the helper immediately, because it was running under the previous service.
        #[serde(rename = "again")]
        is_needed: bool,
    },
    /// Start the VRRP processes, or stop them.
    Vrrp {
        /// Whether the active configuration has virtual routers.
        configured: bool,
        /// The program's absolute path.
        program: PathBuf,
    },
    /// Start the announcer, or stop it.
    Announce {
        /// Whether the active configuration announces VIPs.
        configured: bool,
        /// The program's absolute path.
        program: PathBuf,
    },
    /// Stop virtual routers and announcements.
    Stop,
}

/// Messages from the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromService {
    /// The lock was acquired and is attached.
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
        /// The error message.
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
