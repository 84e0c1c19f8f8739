//! `POST /v1/ipvsadm`: requests of ipvsadm and their responses.

use serde::{Deserialize, Serialize};
use weir_ipvsadm::{Connection, Edit, Listing, Refusal, Timeouts};

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
    /// The daemons of flow synchronization.
    Daemons,
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
    /// See [`Request::Daemons`]: the text of `-L --daemon`.
    Daemons(String),
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
