//! Further numbers of a service: what its HTTP connections are made of, compression, splicing. One table names them in
//! status and metrics.

use super::counters::Count;

/// A number of a service since the process started, or its current value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Requests in progress, over HTTP/1 and HTTP/2.
    Active,
    /// HTTP/2 connections of clients.
    H2Clients,
    /// HTTP/2 connections that clients opened.
    H2Connections,
    /// Requests in progress over HTTP/2.
    H2Active,
    /// Requests over HTTP/2.
    H2Requests,
    /// Bytes from and to clients over HTTP/2 connections: heads and bodies as HTTP/1 would transfer them.
    H2BytesIn,
    /// See [`Detail::H2BytesIn`].
    H2BytesOut,
    /// HEADERS frames from clients.
    H2Headers,
    /// DATA frames from clients.
    H2Data,
    /// SETTINGS frames from clients.
    H2Settings,
    /// GOAWAY frames from clients.
    H2Goaways,
    /// GOAWAY frames to clients.
    H2GoawaysSent,
    /// HTTP/2 connections that ended with a protocol error.
    H2Errors,
    /// Responses that were compressed.
    Compressed,
    /// Bytes before compression.
    CompressedIn,
    /// Bytes after compression.
    CompressedOut,
    /// Bytes from clients that did not pass user space.
    SplicedIn,
    /// Bytes to clients that did not pass user space.
    SplicedOut,
    /// Connections that ended with an internal error.
    InternalErrors,
    /// Copies of requests that were sent to a mirror.
    Mirrored,
    /// Copies of requests to which no complete response arrived.
    MirrorFailed,
    /// Requests that were not copied because of a limit.
    MirrorSkipped,
    /// Requests that the server of `forward_auth` admitted.
    AuthAdmitted,
    /// Requests that it refused.
    AuthRefused,
    /// Requests about which it did not decide.
    AuthFailed,
}

impl Detail {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 25] = [
        Self::Active,
        Self::H2Clients,
        Self::H2Connections,
        Self::H2Active,
        Self::H2Requests,
        Self::H2BytesIn,
        Self::H2BytesOut,
        Self::H2Headers,
        Self::H2Data,
        Self::H2Settings,
        Self::H2Goaways,
        Self::H2GoawaysSent,
        Self::H2Errors,
        Self::Compressed,
        Self::CompressedIn,
        Self::CompressedOut,
        Self::SplicedIn,
        Self::SplicedOut,
        Self::InternalErrors,
        Self::Mirrored,
        Self::MirrorFailed,
        Self::MirrorSkipped,
        Self::AuthAdmitted,
        Self::AuthRefused,
        Self::AuthFailed,
    ];

    /// Name in the status document; that of the metric follows from it.
    pub const fn as_str(self) -> &'static str {
        self.texts().0
    }

    /// Description of the metric.
    pub const fn help(self) -> &'static str {
        self.texts().1
    }

    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Active => ("active", "Requests in progress."),
            Self::H2Clients => ("h2_clients", "HTTP/2 connections of clients."),
            Self::H2Connections => ("h2_connections", "HTTP/2 connections that clients opened."),
            Self::H2Active => ("h2_active", "Requests in progress over HTTP/2."),
            Self::H2Requests => ("h2_requests", "Requests over HTTP/2."),
            Self::H2BytesIn => (
                "h2_bytes_in",
                "Bytes of requests over HTTP/2, counted as in HTTP/1.",
            ),
            Self::H2BytesOut => (
                "h2_bytes_out",
                "Bytes of responses over HTTP/2, counted as in HTTP/1.",
            ),
            Self::H2Headers => ("h2_headers", "HEADERS frames from clients."),
            Self::H2Data => ("h2_data", "DATA frames from clients."),
            Self::H2Settings => ("h2_settings", "SETTINGS frames from clients."),
            Self::H2Goaways => ("h2_goaways", "GOAWAY frames from clients."),
            Self::H2GoawaysSent => ("h2_goaways_sent", "GOAWAY frames to clients."),
            Self::H2Errors => (
                "h2_errors",
                "HTTP/2 connections that ended with a protocol error.",
            ),
            Self::Compressed => ("compressed", "Responses that were compressed."),
            Self::CompressedIn => (
                "compressed_bytes_in",
                "Bytes of responses before compression.",
            ),
            Self::CompressedOut => (
                "compressed_bytes_out",
                "Bytes of responses after compression.",
            ),
            Self::SplicedIn => ("spliced_bytes_in", "Bytes from clients that were spliced."),
            Self::SplicedOut => ("spliced_bytes_out", "Bytes to clients that were spliced."),
            Self::InternalErrors => (
                "internal_errors",
                "Connections that ended with an internal error.",
            ),
            Self::Mirrored => ("mirrored", "Copies of requests for the pools of `mirror`."),
            Self::MirrorFailed => (
                "mirror_failed",
                "Copies of requests without a complete response.",
            ),
            Self::MirrorSkipped => (
                "mirror_skipped",
                "Requests that were not copied because of a limit of `mirror`.",
            ),
            Self::AuthAdmitted => ("auth_admitted", "Requests that `forward_auth` admitted."),
            Self::AuthRefused => ("auth_refused", "Requests that `forward_auth` refused."),
            Self::AuthFailed => (
                "auth_failed",
                "Requests about which `forward_auth` got no decision, answered with 503.",
            ),
        }
    }

    /// Whether it is a current value.
    pub const fn is_gauge(self) -> bool {
        matches!(self, Self::Active | Self::H2Clients | Self::H2Active)
    }
}

/// The numbers of a service in one worker, in the order of [`Detail::ALL`].
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Details([Count; Detail::ALL.len()]);

impl Details {
    pub(crate) const fn of(&self, detail: Detail) -> &Count {
        &self.0[detail as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_the_order_of_the_table_and_names_unique() {
        for (at, detail) in Detail::ALL.into_iter().enumerate() {
            assert_eq!(detail as usize, at);
            let same = Detail::ALL
                .iter()
                .filter(|it| it.as_str() == detail.as_str());
            assert_eq!(same.count(), 1);
        }
    }
}
