//! Defines the verdict of `forward_auth` on a request, and the reference to the session that waits for the verdict.

use std::sync::Arc;

use crate::job_result::Ticket;
use crate::plan::ForwardAuth;
use crate::slab::Key;

/// The `forward_auth` server's decision on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request is allowed; these header lines, each with CRLF, are added before it is forwarded.
    Allowed(Vec<u8>),
    /// The client receives this response instead.
    Denied {
        /// 401, 403, or a redirect status.
        status: u16,
        /// Complete header lines.
        lines: Vec<u8>,
    },
    /// No response arrived in time, or its status neither allows nor denies the request.
    Failed,
}

/// An authorization request: the session that waits for the verdict, the ticket that identifies the wait, and the
/// rules.
#[derive(Debug, Clone)]
pub(crate) struct AuthRequest {
    pub(crate) session: Key,
    pub(crate) ticket: Ticket,
    pub(crate) rules: Arc<ForwardAuth>,
}
