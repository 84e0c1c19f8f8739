//! What a check asks of a server.

use std::net::IpAddr;

use crate::{Digest, Pattern, Protocol};

/// What is asked of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Probe {
    /// A connection comes about.
    #[default]
    Tcp,
    /// A request is answered as expected.
    Http(Box<Http>),
    /// The server says that it serves (gRPC health checking protocol, `grpc.health.v1.Health/Check`).
    Grpc {
        /// Which of its services; empty = the server as a whole.
        service: String,
    },
    /// A mail server greets and knows us (RFC 5321).
    Smtp {
        /// What the director calls itself.
        helo: String,
    },
    /// PING is answered with PONG.
    Redis,
    /// A MySQL server greets, and says what it thinks of an account; that it refuses it passes.
    Mysql {
        /// Account.
        user: String,
    },
    /// A PostgreSQL server takes a start-up message; that it asks for a password passes.
    Postgres {
        /// Account.
        user: String,
    },
    /// The server says its weight or state (HAProxy's agent-check).
    Agent {
        /// What is sent first.
        send: Option<String>,
    },
    /// A name is resolved (RFC 1035).
    Dns {
        /// The name.
        name: String,
        /// Which record.
        record: DnsRecord,
        /// An address that must be in the answer; `None` = any record of that kind.
        answer: Option<IpAddr>,
    },
    /// A datagram is answered.
    Udp {
        /// What is sent.
        payload: Vec<u8>,
        /// What the answer must begin with, `None` = any octet there; absent = any answer.
        bytes: Option<Vec<Option<u8>>>,
    },
    /// An ICMP echo is answered.
    Ping,
    /// A program of the director says so by its exit code.
    Script(Script),
    /// A file of the director holds the weight.
    File {
        /// Its place, absolute.
        path: String,
    },
}

/// A program and how it is called.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Script {
    /// Program and arguments; no shell sees them.
    pub command: Vec<String>,
    /// Account that it runs as.
    pub user: String,
    /// Whether codes from 2 to 255 pass, with a weight of two less.
    pub dynamic: bool,
}

/// What a DNS check asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DnsRecord {
    /// An IPv4 address.
    #[default]
    A,
    /// An IPv6 address.
    Aaaa,
    /// Mail servers.
    Mx,
    /// Name servers.
    Ns,
    /// A zone's start of authority.
    Soa,
    /// Texts.
    Txt,
}

impl DnsRecord {
    /// Every choice.
    pub const ALL: [Self; 6] = [
        Self::A,
        Self::Aaaa,
        Self::Mx,
        Self::Ns,
        Self::Soa,
        Self::Txt,
    ];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Mx => "MX",
            Self::Ns => "NS",
            Self::Soa => "SOA",
            Self::Txt => "TXT",
        }
    }

    /// The number in messages (RFC 1035 §3.2.2, RFC 3596).
    pub const fn number(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Ns => 2,
            Self::Soa => 6,
            Self::Mx => 15,
            Self::Txt => 16,
            Self::Aaaa => 28,
        }
    }
}

impl Probe {
    /// The name in configuration.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http(_) => "http",
            Self::Grpc { .. } => "grpc",
            Self::Smtp { .. } => "smtp",
            Self::Redis => "redis",
            Self::Mysql { .. } => "mysql",
            Self::Postgres { .. } => "postgres",
            Self::Agent { .. } => "agent",
            Self::Dns { .. } => "dns",
            Self::Udp { .. } => "udp",
            Self::Ping => "ping",
            Self::Script(_) => "script",
            Self::File { .. } => "file",
        }
    }

    /// What it is carried by; `None` = not by TCP or UDP.
    pub const fn protocol(&self) -> Option<Protocol> {
        match self {
            Self::Dns { .. } | Self::Udp { .. } => Some(Protocol::Udp),
            Self::Ping | Self::Script(_) | Self::File { .. } => None,
            _ => Some(Protocol::Tcp),
        }
    }

    /// Whether it goes to a port.
    pub const fn needs_port(&self) -> bool {
        !matches!(self, Self::Ping | Self::Script(_) | Self::File { .. })
    }
}

/// An HTTP request and the answer that passes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Http {
    /// Method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Minor version of HTTP/1: 0 or 1.
    pub minor_version: u8,
    /// `Host`; `None` = the server's address.
    pub host: Option<String>,
    /// Further fields, name and value.
    pub headers: Vec<(String, String)>,
    /// Body of the request.
    pub body: Option<String>,
    /// Status codes that pass, ranges with both ends.
    pub status: Vec<(u16, u16)>,
    /// Text that must be in the answer's body.
    pub contains: Option<String>,
    /// Pattern that must be found in it.
    pub pattern: Option<Pattern>,
    /// Pattern that must not be found in it.
    pub without: Option<Pattern>,
    /// Digest of the whole of it.
    pub digest: Option<Digest>,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            minor_version: 1,
            host: None,
            headers: Vec::new(),
            body: None,
            status: vec![(200, 399)],
            contains: None,
            pattern: None,
            without: None,
            digest: None,
        }
    }
}
