//! Values of check settings, and the keys of each kind of check.

use weir_model::{DnsRecord, OnFailure, ProxyHeader, Require, Start, Via};

use crate::key::Choices;

pub(super) fn kinds() -> Choices {
    Choices {
        now: vec![
            "tcp", "http", "https", "tls", "grpc", "smtp", "dns", "ping", "udp", "redis", "mysql",
            "postgres", "script", "file", "agent",
        ],
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

const STREAMS: &[&str] = &[
    "tcp", "http", "https", "tls", "grpc", "smtp", "redis", "mysql", "postgres", "agent",
];

const HTTP: &[&str] = &["http", "https"];

const TLS: &[&str] = &["https", "tls", "grpc"];

const WITH_PORT: &[&str] = &[
    "tcp", "http", "https", "tls", "grpc", "smtp", "redis", "mysql", "postgres", "agent", "dns",
    "udp",
];

const WITH_ADDRESS: &[&str] = &[
    "tcp", "http", "https", "tls", "grpc", "smtp", "redis", "mysql", "postgres", "agent", "dns",
    "udp", "ping",
];

/// Keys required by a kind.
pub(crate) const NEEDED: &[(&str, &str)] = &[
    ("dns", "query"),
    ("udp", "payload"),
    ("script", "command"),
    ("file", "file"),
];

/// Keys that are only valid for some kinds, and these kinds.
pub(crate) const OF_KINDS: &[(&str, &[&str])] = &[
    ("path", HTTP),
    ("method", HTTP),
    ("version", HTTP),
    ("host", HTTP),
    ("headers", HTTP),
    ("body", HTTP),
    ("expect", &["http", "https", "dns", "udp"]),
    ("verify", TLS),
    ("ca", TLS),
    ("server_name", TLS),
    ("tls", &["grpc"]),
    ("service", &["grpc"]),
    ("port", WITH_PORT),
    ("proxy_protocol", STREAMS),
    ("via", WITH_PORT),
    ("source", WITH_ADDRESS),
    ("interface", WITH_ADDRESS),
    ("helo", &["smtp"]),
    ("user", &["script", "mysql", "postgres"]),
    ("query", &["dns"]),
    ("record", &["dns"]),
    ("payload", &["udp"]),
    ("send", &["agent"]),
    ("command", &["script"]),
    ("dynamic", &["script"]),
    ("file", &["file"]),
];

pub(super) fn records() -> Choices {
    Choices {
        now: DnsRecord::ALL
            .iter()
            .map(|record| record.as_str())
            .collect(),
        ..Choices::default()
    }
}

pub(super) fn versions() -> Choices {
    Choices {
        now: vec!["1.0", "1.1"],
        ..Choices::default()
    }
}

pub(super) fn starts() -> Choices {
    Choices {
        now: Start::ALL.iter().map(|start| start.as_str()).collect(),
        ..Choices::default()
    }
}

pub(super) fn on_failures() -> Choices {
    Choices {
        now: OnFailure::ALL
            .iter()
            .map(|choice| choice.as_str())
            .collect(),
        ..Choices::default()
    }
}

pub(super) fn vias() -> Choices {
    Choices {
        now: Via::ALL.iter().map(|via| via.as_str()).collect(),
        ..Choices::default()
    }
}

pub(in crate::catalog) fn proxy_protocols() -> Choices {
    Choices {
        now: ProxyHeader::ALL
            .iter()
            .map(|version| version.as_str())
            .collect(),
        ..Choices::default()
    }
}

pub(in crate::catalog) fn requires() -> Choices {
    Choices {
        now: Require::ALL.iter().map(|choice| choice.as_str()).collect(),
        ..Choices::default()
    }
}
