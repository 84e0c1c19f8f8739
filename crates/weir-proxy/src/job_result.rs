//! Results of the jobs that other threads do for a session.

use std::io;

use crate::static_file::Found;

/// The result of a job.
#[derive(Debug)]
pub(crate) enum JobResult {
    /// Whether the password is valid.
    Verified(bool),
    /// A file for a request.
    Found(Found),
    /// A part of an opened file.
    Read(io::Result<Vec<u8>>),
    /// The job panicked.
    Failed,
}

/// Identifies a job of a session: its result may come after the session has given up waiting.
pub(crate) type Ticket = u64;
