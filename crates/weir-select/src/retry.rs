//! Defines the rules for retrying failed requests, and the faults that passive health checks count.

use weir_model::{RetryCondition, RetryOn};

/// A server's failure, as passive health checks count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection or its TLS session could not be established.
    Unreachable,
    /// The server closed the connection, timed out, or sent an invalid response.
    BadResponse,
    /// The server returned a status of 500 or higher, or one that the service retries.
    ErrorStatus,
}

impl Fault {
    /// Number of variants.
    pub const COUNT: usize = 3;
}

/// A service's rules for retries.
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    /// Maximum number of retries for a request.
    pub limit: u32,
    /// The failures that cause a retry.
    pub on: RetryOn,
    /// Whether the decision to retry may depend on the response's head.
    pub needs_response: bool,
}

impl RetryPolicy {
    /// Creates the rules from the configuration.
    pub fn new(limit: u32, on: RetryOn) -> Self {
        Self {
            limit,
            needs_response: on.has(RetryCondition::Malformed) || !on.statuses.is_empty(),
            on,
        }
    }
}
