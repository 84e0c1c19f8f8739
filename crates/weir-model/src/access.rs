//! Defines a proxy service's `access_log` setting: destination and format of log lines.

use crate::Variable;

/// Log line format.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum LogFormat {
    /// Apache's and nginx's combined format.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
    /// A template. Each `{name}` in it is replaced with a value.
    Template(String),
}

impl LogFormat {
    /// Names that a template may contain.
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

    /// Request variables that a JSON line contains in addition to [`NAMES`](Self::NAMES).
    const JSON: [&str; 6] = [
        "request_id",
        "route",
        "scheme",
        "tls_version",
        "tls_cipher",
        "tls_sni",
    ];

    /// Returns whether a template may contain a name: one of [`NAMES`](Self::NAMES), a request variable, or
    /// `response.NAME` for a response field.
    pub fn allows_name(name: &str) -> bool {
        if Self::NAMES.contains(&name) {
            return true;
        }
        if let Some(field) = name.strip_prefix("response.") {
            return !field.is_empty();
        }
        // Capture groups and the rest of a path have a value only in a route's texts.
        Variable::from_name(name)
            .is_some_and(|it| !matches!(it, Variable::Group(_) | Variable::Rest))
    }

    /// Returns the names in the format that are not in [`NAMES`](Self::NAMES), without duplicates.
    pub fn variables(&self) -> Vec<&str> {
        let text = match self {
            Self::Combined => return Vec::new(),
            Self::Json => return Self::JSON.to_vec(),
            Self::Template(text) => text,
        };
        let mut names = Vec::new();
        let mut rest = text.as_str();
        while let Some((name, after)) = rest
            .split_once('{')
            .and_then(|(_, tail)| tail.split_once('}'))
        {
            if !Self::NAMES.contains(&name) && !names.contains(&name) {
                names.push(name);
            }
            rest = after;
        }
        names
    }
}

/// Destination and format of log lines.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccessLog {
    /// A file to append to; `-` = standard output; `syslog` or `journald`, optionally followed by `:SOCKET`.
    pub path: String,
    /// Log line format.
    pub format: LogFormat,
    /// One in this many exchanges is logged, in addition to all failures; 1 = all exchanges.
    pub sample: u32,
    /// Syslog message format.
    pub syslog: SyslogFormat,
}

crate::named_enum! {
    /// Syslog message format.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum SyslogFormat {
        /// The local form of RFC 3164: the syslog daemon adds the time and the host.
        #[default]
        Rfc3164 = "rfc3164",
        /// RFC 5424.
        Rfc5424 = "rfc5424",
    }
}

/// Destination of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTarget<'a> {
    /// Standard output.
    Stdout,
    /// A file.
    File(&'a str),
    /// A syslog daemon's datagram socket.
    Syslog(&'a str),
    /// The socket for systemd-journald's native protocol.
    Journal(&'a str),
}

impl AccessLog {
    /// The syslog daemon's socket.
    pub const SYSLOG: &str = "/dev/log";
    /// systemd-journald's socket.
    pub const JOURNAL: &str = "/run/systemd/journal/socket";

    /// Creates a log that contains every exchange.
    pub fn new(path: &str, format: LogFormat) -> Self {
        Self {
            path: path.to_owned(),
            format,
            sample: 1,
            syslog: SyslogFormat::default(),
        }
    }

    /// Returns the destination of the lines.
    pub fn target(&self) -> LogTarget<'_> {
        match (self.path.as_str(), self.path.split_once(':')) {
            ("-", _) => LogTarget::Stdout,
            ("syslog", _) => LogTarget::Syslog(Self::SYSLOG),
            ("journald", _) => LogTarget::Journal(Self::JOURNAL),
            (_, Some(("syslog", socket))) => LogTarget::Syslog(socket),
            (_, Some(("journald", socket))) => LogTarget::Journal(socket),
            (file, _) => LogTarget::File(file),
        }
    }
}
