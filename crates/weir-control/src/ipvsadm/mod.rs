//! `weir ipvsadm`: command lines of ipvsadm, executed by the daemon, or on the pinned data plane if there is no daemon.
//!
//! weir-ipvsadm parses command lines and formats output; the engine applies edits. This module connects them: edits are
//! sent in batches and listings as values, so names are resolved where the command was called.

mod direct;
mod names;
mod session;

use serde::{Deserialize, Serialize};
use weir_ipvsadm::{Connection, Edit, Listing, Refusal, Timeouts};

pub use names::HostNames;
pub use session::{Streams, run};

/// `POST /v1/ipvsadm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Edits, in order; each has its own result.
    Edits(Vec<Edit>),
    /// Services of both origins.
    Listing,
    /// Every connection.
    Connections,
    /// The active timeouts.
    Timeouts,
}

/// The response to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The result of each edit.
    Edits(Vec<Result<(), Refusal>>),
    /// See [`Request::Listing`].
    Listing(Listing),
    /// See [`Request::Connections`].
    Connections(Vec<Connection>),
    /// See [`Request::Timeouts`].
    Timeouts(Timeouts),
}

/// Adds the file's name to rejections that refer to a line of it.
pub(crate) fn name_file(answers: &mut [Result<(), Refusal>], file: &std::path::Path) {
    for answer in answers {
        if let Err(Refusal::File { line, definition }) = answer {
            let message = format!("{}:{line}: {definition}", file.display());
            *answer = Err(Refusal::Message(message));
        }
    }
}
