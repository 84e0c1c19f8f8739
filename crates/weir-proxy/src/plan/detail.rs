//! Defines a service's detail counters (such as HTTP/2, compression, splicing, mirrors) and their names.
//!
//! One table defines the names and descriptions for status and metrics.

use super::counters::Count;

/// A service counter since the process started, or a current value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Requests in progress, over HTTP/1 and HTTP/2.
    Active,
    /// Current HTTP/2 connections from clients.
    H2Clients,
    /// HTTP/2 connections that clients have opened.
    H2Connections,
    /// Requests in progress over HTTP/2.
    H2Active,
    /// Requests over HTTP/2.
    H2Requests,
    /// Bytes from clients over HTTP/2 connections: heads and bodies as HTTP/1 would transfer them.
    H2BytesIn,
    /// Bytes to clients over HTTP/2 connections, counted as in [`Detail::H2BytesIn`].
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
    /// Bytes of compressed responses, before compression.
    CompressedIn,
    /// Bytes of compressed responses, after compression.
    CompressedOut,
    /// Bytes from clients that were spliced, without passing through user space.
    SplicedIn,
    /// Bytes to clients that were spliced.
    SplicedOut,
    /// Connections that ended with an internal error.
    InternalErrors,
    /// Copies of requests that were sent to a mirror.
    Mirrored,
    /// Copies of requests that received no complete response.
    MirrorFailed,
    /// Requests that were not copied because of a limit.
    MirrorSkipped,
    /// Requests that the `forward_auth` server allowed.
    AuthAdmitted,
    /// Requests that the `forward_auth` server rejected.
    AuthRefused,
    /// Requests for which the `forward_auth` server did not return a decision.
    AuthFailed,
}

impl Detail {
    /// All values, in the order of their discriminants.
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

    /// Returns the name in the status document; the metric's name is derived from it.
    pub const fn as_str(self) -> &'static str {
        self.texts().0
    }

    /// Returns the description of the metric.
    pub const fn help(self) -> &'static str {
        self.texts().1
    }

    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Active => ("active", "Requests in progress."),
            Self::H2Clients => ("h2_clients", "Current HTTP/2 connections from clients."),
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
                "Bytes of compressed responses, before compression.",
            ),
            Self::CompressedOut => (
                "compressed_bytes_out",
                "Bytes of compressed responses, after compression.",
            ),
            Self::SplicedIn => ("spliced_bytes_in", "Bytes from clients that were spliced."),
            Self::SplicedOut => ("spliced_bytes_out", "Bytes to clients that were spliced."),
            Self::InternalErrors => (
                "internal_errors",
                "Connections that ended with an internal error.",
            ),
            Self::Mirrored => ("mirrored", "Copies of requests sent to `mirror` pools."),
            Self::MirrorFailed => (
                "mirror_failed",
                "Copies of requests that received no complete response.",
            ),
            Self::MirrorSkipped => (
                "mirror_skipped",
                "Requests that were not copied because of a `mirror` limit.",
            ),
            Self::AuthAdmitted => ("auth_admitted", "Requests that `forward_auth` admitted."),
            Self::AuthRefused => ("auth_refused", "Requests that `forward_auth` rejected."),
            Self::AuthFailed => (
                "auth_failed",
                "Requests rejected with 503 because `forward_auth` did not return a decision.",
            ),
        }
    }

    /// Returns whether this is a current value rather than a counter.
    pub const fn is_gauge(self) -> bool {
        matches!(self, Self::Active | Self::H2Clients | Self::H2Active)
    }
}

/// A worker's detail counters for a service, in the order of [`Detail::ALL`].
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
    fn discriminants_follow_table_order_and_names_are_unique() {
        for (index, detail) in Detail::ALL.into_iter().enumerate() {
            assert_eq!(detail as usize, index);
            let same = Detail::ALL
                .iter()
                .filter(|other| other.as_str() == detail.as_str());
            assert_eq!(same.count(), 1);
        }
    }
}
