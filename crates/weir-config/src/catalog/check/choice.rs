//! Defines the values of check settings, and the keys of each kind of check.

use weir_model::{DnsRecord, OnFailure, ProxyHeader, Require, Start, Via};

use crate::key::Choices;

weir_model::named_enum! {
    /// A check's `kind`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum CheckKind {
        /// A connection; the default.
        Tcp = "tcp",
        /// An HTTP request.
        Http = "http",
        /// An HTTP request over TLS.
        Https = "https",
        /// A TLS handshake.
        Tls = "tls",
        /// gRPC health checking.
        Grpc = "grpc",
        /// A mail server's greeting.
        Smtp = "smtp",
        /// A DNS query.
        Dns = "dns",
        /// An ICMP echo.
        Ping = "ping",
        /// A UDP datagram.
        Udp = "udp",
        /// PING to Redis.
        Redis = "redis",
        /// A MySQL login.
        Mysql = "mysql",
        /// A PostgreSQL startup message.
        Postgres = "postgres",
        /// A program on the director.
        Script = "script",
        /// A file on the director.
        File = "file",
        /// HAProxy's agent-check.
        Agent = "agent",
    }
}

/// The peer that probes of a kind communicate with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Stream,
    Datagram,
    Host,
    /// Nothing: the check runs on the director.
    Director,
}

impl CheckKind {
    /// Returns the kind with a name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    const fn peer(self) -> Peer {
        match self {
            Self::Tcp
            | Self::Http
            | Self::Https
            | Self::Tls
            | Self::Grpc
            | Self::Smtp
            | Self::Redis
            | Self::Mysql
            | Self::Postgres
            | Self::Agent => Peer::Stream,
            Self::Dns | Self::Udp => Peer::Datagram,
            Self::Ping => Peer::Host,
            Self::Script | Self::File => Peer::Director,
        }
    }

    /// Returns the keys that the kind requires.
    pub(crate) const fn required_keys(self) -> &'static [&'static str] {
        match self {
            Self::Dns => &["query"],
            Self::Udp => &["payload"],
            Self::Script => &["command"],
            Self::File => &["file"],
            Self::Tcp
            | Self::Http
            | Self::Https
            | Self::Tls
            | Self::Grpc
            | Self::Ping
            | Self::Smtp
            | Self::Redis
            | Self::Mysql
            | Self::Postgres
            | Self::Agent => &[],
        }
    }

    /// Returns groups of optional keys for this kind.
    const fn optional_keys(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Ping | Self::Redis | Self::File => &[],
            Self::Tcp => &[&["exchange"]],
            Self::Http => &[HTTP],
            Self::Https => &[HTTP, TLS],
            Self::Tls => &[TLS, &["exchange"]],
            Self::Grpc => &[TLS, &["tls", "service"]],
            Self::Smtp => &[&["helo"]],
            Self::Mysql | Self::Postgres => &[&["user"]],
            Self::Dns => &[&["record", "expect"]],
            Self::Udp => &[&["expect"]],
            Self::Script => &[&["dynamic", "user"]],
            Self::Agent => &[&["send"]],
        }
    }

    /// Returns the keys that all kinds with the same peer share.
    const fn keys_of_peer(self) -> &'static [&'static str] {
        match self.peer() {
            Peer::Stream => &["port", "via", "source", "interface", "proxy_protocol"],
            Peer::Datagram => &["port", "via", "source", "interface"],
            Peer::Host => &["source", "interface"],
            Peer::Director => &[],
        }
    }

    /// Returns the keys of the kind that are not valid for all kinds.
    fn keys(self) -> impl Iterator<Item = &'static str> {
        let optional = self.optional_keys().iter().copied().flatten();
        let other_keys = self.required_keys().iter().chain(self.keys_of_peer());
        other_keys.chain(optional).copied()
    }

    /// Returns whether a key that is valid only for some kinds is valid for this kind.
    pub(crate) fn allows(self, key: &str) -> bool {
        self.keys().any(|allowed| allowed == key)
    }

    /// Returns whether a key is valid only for some kinds.
    pub(crate) fn is_kind_specific(key: &str) -> bool {
        Self::ALL.into_iter().any(|kind| kind.allows(key))
    }
}

const HTTP: &[&str] = &[
    "path", "method", "version", "host", "headers", "body", "expect",
];

const TLS: &[&str] = &["verify", "ca", "server_name"];

pub(super) fn kinds() -> Choices {
    Choices {
        values: CheckKind::ALL.map(CheckKind::as_str).to_vec(),
        known_as: &[
            ("connect", "tcp"),
            ("TCP_CHECK", "tcp"),
            ("HTTP_GET", "http"),
            ("SSL_GET", "https"),
            ("MISC_CHECK", "script"),
            ("external", "script"),
            ("PING_CHECK", "ping"),
            ("UDP_CHECK", "udp"),
            ("DNS_CHECK", "dns"),
            ("SMTP_CHECK", "smtp"),
            ("FILE_CHECK", "file"),
            ("pgsql", "postgres"),
        ],
        ..Choices::default()
    }
}

pub(super) fn records() -> Choices {
    Choices {
        values: DnsRecord::ALL
            .iter()
            .map(|record| record.as_str())
            .collect(),
        ..Choices::default()
    }
}

pub(super) fn versions() -> Choices {
    Choices {
        values: vec!["1.0", "1.1"],
        ..Choices::default()
    }
}

pub(super) fn start_states() -> Choices {
    Choices {
        values: Start::ALL.iter().map(|start| start.as_str()).collect(),
        ..Choices::default()
    }
}

pub(super) fn failure_actions() -> Choices {
    Choices {
        values: OnFailure::ALL
            .iter()
            .map(|choice| choice.as_str())
            .collect(),
        ..Choices::default()
    }
}

pub(super) fn probe_paths() -> Choices {
    Choices {
        values: Via::ALL.iter().map(|via| via.as_str()).collect(),
        ..Choices::default()
    }
}

pub(in crate::catalog) fn proxy_protocols() -> Choices {
    Choices {
        values: ProxyHeader::ALL
            .iter()
            .map(|version| version.as_str())
            .collect(),
        ..Choices::default()
    }
}

pub(in crate::catalog) fn require_modes() -> Choices {
    Choices {
        values: Require::ALL.iter().map(|choice| choice.as_str()).collect(),
        ..Choices::default()
    }
}

#[cfg(test)]
mod tests {
    use weir_model::ProbeKind;

    use super::*;

    #[test]
    fn every_probe_has_a_check_kind() {
        for probe in ProbeKind::ALL {
            assert!(
                CheckKind::from_name(probe.as_str()).is_some(),
                "{}",
                probe.as_str()
            );
        }
    }

    #[test]
    fn keys_of_kinds_exist() {
        for kind in CheckKind::ALL {
            for key in kind.keys() {
                let key_exists = super::super::CHECK.key(key).is_some();
                assert!(key_exists, "{key} of {}", kind.as_str());
            }
        }
        for key in ["kind", "interval", "timeout", "rise", "fall"] {
            assert!(!CheckKind::is_kind_specific(key), "{key}");
        }
    }
}
