//! Requests of `forward_auth` and their results: between the session that waits and the one that sends the request.

use std::sync::Arc;

use crate::job_result::Ticket;
use crate::plan::ForwardAuth;
use crate::slab::Key;

/// What the server of `forward_auth` has decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request may be answered; with these lines for its server.
    Admitted(Vec<u8>),
    /// The client gets this status, with these lines.
    Refused {
        /// 401, 403, or that of a redirect.
        status: u16,
        /// Whole lines.
        lines: Vec<u8>,
    },
    /// There was no response in time, or none that decides.
    Failed,
}

/// The session that an authorization request belongs to, and the rules.
#[derive(Debug, Clone)]
pub(crate) struct AuthRequest {
    pub(crate) session: Key,
    pub(crate) ticket: Ticket,
    pub(crate) rules: Arc<ForwardAuth>,
}
