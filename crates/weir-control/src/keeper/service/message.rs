//! Messages between a keeper without rights and the helper service: JSON with file descriptors. Either side may be one
//! version older, so fields and messages are only added and never change their meaning.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::keeper::facts::Facts;
use crate::keeper::helper::Kind;

/// Version of the messages.
pub(super) const VERSION: u32 = 1;

/// Messages of a keeper, and of `weir upgrade`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToService {
    /// The first message of a keeper.
    Keeper {
        /// See [`VERSION`].
        version: u32,
    },
    /// The only message of root: helpers of this program may be started.
    Permit {
        /// Absolute path.
        program: PathBuf,
    },
    /// Prepare the runtime directory for the account, and take its lock for the keeper.
    Lock,
    /// What only root can find out, for a daemon of this program.
    Facts {
        /// Absolute path.
        program: PathBuf,
    },
    /// Start a helper of a daemon at the attached end of their channel with the first request.
    Attend {
        /// What it does.
        kind: Kind,
        /// Absolute path.
        program: PathBuf,
        /// The former service had it already: start it at once.
        again: bool,
    },
    /// The active configuration has virtual routers, or none.
    Vrrp {
        /// Whether it has any.
        configured: bool,
        /// Absolute path.
        program: PathBuf,
    },
    /// The active configuration announces VIPs, or none.
    Announce {
        /// Whether it does.
        configured: bool,
        /// Absolute path.
        program: PathBuf,
    },
    /// End virtual routers and announcements.
    Stop,
}

/// Messages of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromService {
    /// The lock is attached.
    Locked,
    /// Another process has the lock.
    Held {
        /// Its process ID, if it is known.
        holder: Option<u32>,
    },
    /// See [`ToService::Facts`].
    Facts(Facts),
    /// See [`ToService::Permit`].
    Permitted,
    /// Virtual routers and announcements have ended.
    Stopped,
    /// The request is not permitted, or has failed.
    Refused {
        /// In words.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_format_is_stable() {
        let attend = ToService::Attend {
            kind: Kind::Engine,
            program: "/usr/bin/weir".into(),
            again: false,
        };
        assert_eq!(
            [
                serde_json::to_string(&ToService::Keeper { version: VERSION }).unwrap(),
                serde_json::to_string(&ToService::Lock).unwrap(),
                serde_json::to_string(&attend).unwrap(),
                serde_json::to_string(&FromService::Facts(Facts::default())).unwrap(),
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
