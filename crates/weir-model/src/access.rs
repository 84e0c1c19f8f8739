//! `access_log` of a proxy service: where a line for each exchange goes, and what it looks like.

/// What a line looks like.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum LogFormat {
    /// Apache's and nginx's combined format.
    #[default]
    Combined,
    /// A JSON object a line.
    Json,
    /// Text in which `{name}` stands for a value.
    Template(String),
}

impl LogFormat {
    /// What a template may name.
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

/// Where lines go, and what they look like.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccessLog {
    /// The file, appended to; `-` = standard output.
    pub path: String,
    /// What a line looks like.
    pub format: LogFormat,
}
