//! Defines the results that jobs send to their sessions.

use std::io;

use crate::static_file::QueryResult;

/// The result of a job.
#[derive(Debug)]
pub(crate) enum JobResult {
    /// Whether the password is valid.
    Verified(bool),
    /// The response for a file request.
    Lookup(QueryResult),
    /// Bytes read from an open file.
    Read(io::Result<Vec<u8>>),
    /// The job panicked.
    Failed,
}

/// Identifies a session's job. A result may arrive after the session has stopped waiting for it.
pub(crate) type Ticket = u64;
