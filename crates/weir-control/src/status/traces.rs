//! Describes the export of traces in the status document.

use serde::{Deserialize, Serialize};

use crate::snapshot::TraceStatus;

/// The state of `[tracing]`. All counts are since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traces {
    /// The collector's URL.
    pub endpoint: String,
    /// Number of recorded requests.
    pub recorded: u64,
    /// Number of requests that the collector accepted.
    pub exported: u64,
    /// Number of requests that were dropped because the exporter did not keep up.
    pub dropped: u64,
    /// Number of requests that were dropped because the collector did not accept them.
    pub failed: u64,
}

impl From<&TraceStatus> for Traces {
    fn from(status: &TraceStatus) -> Self {
        Self {
            endpoint: status.endpoint.clone(),
            recorded: status.recorded,
            exported: status.exported,
            dropped: status.dropped,
            failed: status.failed,
        }
    }
}
