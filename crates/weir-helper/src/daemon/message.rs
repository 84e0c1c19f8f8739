//! Defines the messages between the daemon and its helper: JSON, one message per packet on a SOCK_SEQPACKET socket.
//!
//! The messages have the envelope of [`crate::message`]. A new release may add requests, but must not change the
//! meaning of an existing one. Files are attached.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The number in messages that are not replies to a request, such as [`HelperReply::Started`].
pub(crate) const NO_REQUEST: u64 = u64::MAX;

/// A request from the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum DaemonRequest {
    /// Open a regular file for reading.
    Open { path: PathBuf },
    /// Open a file for appending. The file is created if it does not exist.
    Append { path: PathBuf },
    /// List a directory.
    List { path: PathBuf },
    /// Read a file that another account writes.
    Untrusted {
        path: PathBuf,
        /// Whether the owner of the file is checked (`weir_sys::untrusted_file`).
        check_owner: bool,
        max_bytes: u64,
    },
    /// Bind a TCP socket.
    Bind { address: SocketAddr },
    /// Open a relayed socket for echo requests (`weir_sys::privileged::PingTarget`).
    Ping {
        to: IpAddr,
        from: Option<IpAddr>,
        is_optional: bool,
        interface: Option<String>,
    },
    /// Check whether the configuration file has sections with this digest ([`super::section_digest`]).
    Sections { digest: u64 },
    /// Run a check program.
    Check {
        command: Vec<String>,
        user: String,
        address: IpAddr,
        port: Option<u16>,
    },
    /// Run a pool's notification program.
    Notify {
        command: Vec<String>,
        pool: String,
        server: String,
        service: String,
        from: String,
        to: String,
        reason: String,
    },
    /// Run a notifier's program, under its account.
    Notifier {
        notifier: String,
        /// One line for each change of state.
        lines: Vec<String>,
        /// Number of changes that were omitted.
        lost: u64,
    },
    /// Kill the program that an earlier request started. This request has no reply.
    Kill { number: u64 },
}

/// A reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HelperReply {
    /// A new helper serves the channel; unanswered requests must be resent.
    Started,
    /// The request is permitted.
    Permitted,
    /// The file or socket is attached.
    File,
    /// A file with the text is attached.
    Text,
    /// The file cannot be read as text.
    NoText { reason: String },
    /// A file with a JSON list of paths is attached. `is_directory` = the requested path is a directory.
    Entries { is_directory: bool },
    /// The program exited; `None` = a signal killed it.
    Exit { code: Option<i32> },
    /// The request failed with this error number.
    Failed { errno: i32 },
    /// The policy does not permit the request, or the helper cannot handle it.
    Refused { reason: String },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Envelope;

    #[test]
    fn message_format_is_stable() {
        let encode =
            |request: DaemonRequest| String::from_utf8(Envelope::encode(3, request)).unwrap();
        assert_eq!(
            encode(DaemonRequest::Bind {
                address: "10.0.0.1:80".parse().unwrap()
            }),
            r#"{"version":1,"number":3,"body":{"bind":{"address":"10.0.0.1:80"}}}"#
        );
        assert_eq!(
            encode(DaemonRequest::Open { path: "/a".into() }),
            r#"{"version":1,"number":3,"body":{"open":{"path":"/a"}}}"#
        );
        let unknown = r#"{"version":1,"number":3,"body":{"open":{"path":"/a","as":"root"}}}"#;
        assert!(Envelope::<DaemonRequest>::decode(unknown.as_bytes()).is_err());
    }
}
