//! `access_log` of a proxy service: destination and format of log lines.

/// Format of a log line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum LogFormat {
    /// Apache's and nginx's combined format.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
    /// A template in which `{name}` is replaced by a value.
    Template(String),
}

impl LogFormat {
    /// Names allowed in a template.
    pub const NAMES: [&str; 24] = [
        "time",
        "client",
        "port",
        "service",
        "pool",
        "server",
        "method",
        "target",
        "version",
        "host",
        "referer",
        "agent",
        "status",
        "bytes_in",
        "bytes_out",
        "request_ms",
        "queue_ms",
        "connect_ms",
        "response_ms",
        "total_ms",
        "retries",
        "end",
        "end_reason",
        "date",
    ];
}

/// Destination and format of log lines.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccessLog {
    /// The file, appended to; `-` = standard output.
    pub path: String,
    /// Format of a log line.
    pub format: LogFormat,
}
