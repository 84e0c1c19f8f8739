//! `[tracing]`: traces of proxied requests.

use crate::HttpReceiver;

named_enum! {
    /// Handling of the trace context in a client's request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum ParentTrace {
        /// The trace is continued, and the client's decision whether to record it is respected.
        #[default]
        Continue = "continue",
        /// A new trace is started.
        Ignore = "ignore",
    }
}

/// Receiver of traces, and which requests are recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tracing {
    /// URL of the collector, with the path for traces.
    pub endpoint: HttpReceiver,
    /// One in this many new traces is recorded.
    pub sample: u32,
    /// Handling of the client's trace context.
    pub parent: ParentTrace,
    /// `service.name` of the resource.
    pub service_name: String,
}

impl Tracing {
    /// Smallest and largest `sample`.
    pub const SAMPLE: (u32, u32) = (1, 1_000_000);
    /// Default of `service_name`.
    pub const SERVICE_NAME: &str = "weir";
    /// Path that is appended to the configured endpoint (OTLP/HTTP, "Endpoint URLs").
    pub const PATH: &str = "/v1/traces";
}
