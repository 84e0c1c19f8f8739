//! Defines the settings of `[tracing]`, traces of proxied requests.

use crate::HttpReceiver;

named_enum! {
    /// How the trace context in a client's request is handled.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum ParentTrace {
        /// Weir continues the trace and respects the client's decision whether to record it.
        #[default]
        Continue = "continue",
        /// Weir starts a new trace.
        Ignore = "ignore",
    }
}

/// Where traces are sent, and which requests are recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tracing {
    /// URL of the collector, with the path for traces.
    pub endpoint: HttpReceiver,
    /// One in this many new traces is recorded.
    pub sample: u32,
    /// How the client's trace context is handled.
    pub parent: ParentTrace,
    /// `service.name` of the OpenTelemetry resource.
    pub service_name: String,
}

impl Tracing {
    /// Smallest and largest `sample`.
    pub const SAMPLE: (u32, u32) = (1, 1_000_000);
    /// Default of `service_name`.
    pub const SERVICE_NAME: &str = "weir";
    /// Path to append to the configured endpoint (OTLP/HTTP, "Endpoint URLs").
    pub const PATH: &str = "/v1/traces";
}
