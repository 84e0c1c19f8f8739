//! `[tracing]`: traces of proxied requests.

use crate::HttpReceiver;

named_enum! {
    /// What becomes of the trace of a client's request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum ParentTrace {
        /// It is continued, and its decision whether to record is respected.
        #[default]
        Continue = "continue",
        /// It is replaced by a new trace.
        Ignore = "ignore",
    }
}

/// Where traces go, and which requests are recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tracing {
    /// The collector, with the path of its receiver of traces.
    pub endpoint: HttpReceiver,
    /// One of so many new traces is recorded.
    pub sample: u32,
    /// What becomes of the client's trace.
    pub parent: ParentTrace,
    /// `service.name` of the resource.
    pub service_name: String,
}

impl Tracing {
    /// Smallest and largest `sample`.
    pub const SAMPLE: (u32, u32) = (1, 1_000_000);
    /// Default of `service_name`.
    pub const SERVICE_NAME: &str = "weir";
    /// Path that is added to an endpoint (OTLP/HTTP, "Endpoint URLs").
    pub const PATH: &str = "/v1/traces";
}
