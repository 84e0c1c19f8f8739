//! The state of a file that is sent to the client.

use std::fs::File;
use std::sync::Arc;

use crate::done::Ticket;

/// A file on its way to the client.
#[derive(Debug)]
pub(super) struct Transfer {
    /// The job that is awaited.
    pub(super) awaited: Option<Ticket>,
    /// Path and query, for a redirect.
    pub(super) target: Vec<u8>,
    pub(super) missing: u16,
    /// Fields that the configuration adds.
    pub(super) edits: Vec<Line>,
    pub(super) removed: Vec<String>,
    /// Once the head was sent.
    pub(super) sent: Option<Sent>,
}

/// What was sent of a file, and what follows.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) status: u16,
    pub(super) file: Arc<File>,
    pub(super) next: u64,
    pub(super) left: u64,
    /// Whether the connection persists.
    pub(super) stays: bool,
}

/// A field that the configuration adds to responses with some statuses.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) value: Vec<u8>,
    pub(super) statuses: Vec<(u16, u16)>,
    pub(super) replaces: bool,
}

impl Transfer {
    pub(super) fn expects(&self, ticket: Ticket) -> bool {
        self.awaited == Some(ticket)
    }

    /// Whether the client received the beginning of the response.
    pub(super) const fn is_answered(&self) -> bool {
        self.sent.is_some()
    }

    /// The status that the client received; 0 = none.
    pub(super) fn status(&self) -> u16 {
        self.sent.as_ref().map_or(0, |sent| sent.status)
    }
}
