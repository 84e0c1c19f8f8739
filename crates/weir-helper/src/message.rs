//! Defines the messages between the helper and its caller: JSON, one message per packet on a SOCK_SEQPACKET socket.
//!
//! A message has at most [`weir_sys::MAX_MESSAGE_BYTES`] bytes. A new release may add requests, but must not change the
//! meaning of an existing one.

use serde::{Deserialize, Serialize};

use crate::Error;

/// Version of the messages; both sides reject other versions.
pub const VERSION: u32 = 1;

/// A request with its number, or a reply with the number of its request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Envelope<T> {
    pub(crate) version: u32,
    pub(crate) number: u64,
    pub(crate) body: T,
}

/// A request from the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Reread the configuration. A file that is attached to the reply contains the virtual routers.
    Policy,
    /// Add the addresses, routes and rules of a virtual router.
    Add {
        /// Name of the virtual router.
        router: String,
    },
    /// Remove the addresses, routes, rules and devices that were added for a virtual router.
    Remove {
        /// Name of the virtual router.
        router: String,
    },
    /// Remove the addresses, routes, rules and devices that were added for a virtual router that is not active, and its
    /// addresses even if another program has added them. Addresses that were handed over stay until
    /// [`Request::TakeOver`] takes them over.
    #[serde(rename = "vacate")]
    RemoveInactive {
        /// Name of the virtual router.
        router: String,
    },
    /// Remove the addresses, routes, rules and devices that were added for a virtual router that is no longer in the
    /// configuration. Addresses that the active configuration assigns to another owner on the same interface are handed
    /// over to that owner instead.
    Retire {
        /// Name of the virtual router.
        router: String,
    },
    /// Let a virtual router take over the addresses that their former owner has handed over to it.
    #[serde(rename = "keep")]
    TakeOver {
        /// Name of the virtual router.
        router: String,
    },
    /// Remove the addresses, routes, rules and devices of every virtual router that is not in `retained`.
    #[serde(rename = "settle")]
    RemoveAllExcept {
        /// Names of the virtual routers that are active or have addresses that were handed over.
        #[serde(rename = "active")]
        retained: Vec<String>,
    },
    /// Run the notification programs of a virtual router.
    Notify {
        /// Name of the virtual router.
        router: String,
        /// keepalived's name for the state: `MASTER`, `BACKUP`, `FAULT` or `STOP`.
        state: NotifyState,
        /// Priority of the virtual router.
        priority: u8,
    },
    /// Run the notification program of a virtual router's group.
    NotifyGroup {
        /// Name of a virtual router in the group.
        router: String,
        /// State of the group.
        state: NotifyState,
    },
    /// Also serve another caller, whose channel is attached. The reply is sent on that channel; see
    /// [`crate::add_caller`].
    AddCaller,
    /// Run a tracked program, read a tracked file, or search for a tracked process.
    Track {
        /// Name of the virtual router.
        router: String,
        /// Index in the virtual router's `track`.
        object: usize,
    },
}

/// The state that is passed to notification programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum NotifyState {
    /// Active.
    Master,
    /// Backup.
    Backup,
    /// Fault.
    Fault,
    /// Stopped.
    Stop,
}

impl NotifyState {
    /// Returns the state as keepalived passes it to programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Master => "MASTER",
            Self::Backup => "BACKUP",
            Self::Fault => "FAULT",
            Self::Stop => "STOP",
        }
    }
}

/// The reply to a request, with the number of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedReply {
    /// The number that [`crate::Client::request`] returned.
    pub number: u64,
    /// The result.
    pub body: Reply,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The virtual routers are in the attached file.
    Policy,
    /// The request was executed.
    Done,
    /// The request failed.
    Failed {
        /// Why the request failed.
        reason: String,
    },
    /// The state of a tracked object.
    Tracked(TrackedOutcome),
}

/// The state of a tracked program, file or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrackedOutcome {
    /// The program exited with status 0, or the process is running.
    Up,
    /// The program could not be started, failed, was killed, or did not exit in time; or the process is not running.
    Down,
    /// The file contains this number.
    Number(i32),
}

impl<T: for<'a> Deserialize<'a> + Serialize> Envelope<T> {
    pub(crate) fn encode(number: u64, body: T) -> Vec<u8> {
        let envelope = Self {
            version: VERSION,
            number,
            body,
        };
        serde_json::to_vec(&envelope).unwrap_or_default()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let invalid = |reason: String| Error::Message { reason };
        let envelope: Self =
            serde_json::from_slice(bytes).map_err(|error| invalid(error.to_string()))?;
        if envelope.version != VERSION {
            return Err(invalid(format!("unsupported version {}", envelope.version)));
        }
        Ok(envelope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_format_is_stable() {
        let request = Request::Notify {
            router: "outside".to_owned(),
            state: NotifyState::Master,
            priority: 100,
        };
        let bytes = Envelope::encode(7, request.clone());
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert_eq!(
            text,
            r#"{"version":1,"number":7,"body":{"notify":{"router":"outside","state":"MASTER","priority":100}}}"#
        );
        assert_eq!(Envelope::<Request>::decode(&bytes).unwrap().body, request);
        let other = text.replace("\"version\":1", "\"version\":2");
        let error = Envelope::<Request>::decode(other.as_bytes()).unwrap_err();
        assert!(
            error.to_string().contains("unsupported version 2"),
            "{error}"
        );
        for length in 0..bytes.len() {
            assert!(Envelope::<Request>::decode(&bytes[..length]).is_err());
        }
    }
}
