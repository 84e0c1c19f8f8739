//! Defines the requests from ipvsadm and their responses (`POST /v1/ipvsadm`).

use serde::{Deserialize, Serialize};
use weir_ipvsadm::{Connection, Edit, EditError, Listing, Timeouts};

/// The body of `POST /v1/ipvsadm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Execute edits in order. Each edit has its own result.
    Edits(Vec<Edit>),
    /// List all services, from the file and from ipvsadm.
    Listing,
    /// List all connections.
    Connections,
    /// Return the active timeouts.
    Timeouts,
    /// List the flow synchronization daemons.
    Daemons,
}

/// The response to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The results of the edits, in order.
    Edits(Vec<Result<(), EditError>>),
    /// See [`Request::Listing`].
    Listing(Listing),
    /// See [`Request::Connections`].
    Connections(Vec<Connection>),
    /// See [`Request::Timeouts`].
    Timeouts(Timeouts),
    /// See [`Request::Daemons`]: the text of `-L --daemon`.
    Daemons(String),
}

/// Adds the file name to errors that refer to a line in the file.
pub(crate) fn name_file(results: &mut [Result<(), EditError>], file: &std::path::Path) {
    for result in results {
        if let Err(EditError::File { line, definition }) = result {
            let message = format!("{}:{line}: {definition}", file.display());
            *result = Err(EditError::Message(message));
        }
    }
}
