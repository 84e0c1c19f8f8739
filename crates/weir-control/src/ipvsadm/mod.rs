//! `weir ipvsadm`: the tool's command lines, carried out by the daemon, or on the pinned plane where there is none.
//!
//! What a line means and what is printed is weir-ipvsadm's; what comes into force is the engine's. Here is the way
//! between: edits travel in batches, listings as values, so that names are looked up where the tool was called.

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
    /// Changes, one after the other; each has an answer of its own.
    Edits(Vec<Edit>),
    /// Services of both origins.
    Listing,
    /// Every connection.
    Connections,
    /// The active timeouts.
    Timeouts,
}

/// The answer to a [`Request`], in its order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What became of each edit.
    Edits(Vec<Result<(), Refusal>>),
    /// See [`Request::Listing`].
    Listing(Listing),
    /// See [`Request::Connections`].
    Connections(Vec<Connection>),
    /// See [`Request::Timeouts`].
    Timeouts(Timeouts),
}

/// Puts the file's name into refusals that speak of a line of it.
pub(crate) fn name_file(answers: &mut [Result<(), Refusal>], file: &std::path::Path) {
    for answer in answers {
        if let Err(Refusal::File { line, definition }) = answer {
            let message = format!("{}:{line}: {definition}", file.display());
            *answer = Err(Refusal::Message(message));
        }
    }
}
