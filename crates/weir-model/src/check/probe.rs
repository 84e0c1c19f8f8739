//! Defines the types of health check probes.

use std::net::IpAddr;

use crate::{Digest, Pattern, Protocol};

/// A probe and its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Probe {
    /// A connection is established.
    #[default]
    Tcp,
    /// The probe sends texts, and the server responds with the expected texts; the last step expects data.
    Exchange(Vec<ExchangeStep>),
    /// The response to a request meets the conditions.
    Http(Box<Http>),
    /// The server reports SERVING (gRPC health checking protocol, `grpc.health.v1.Health/Check`).
    Grpc {
        /// Service name; empty = the server as a whole.
        service: String,
    },
    /// A mail server sends a greeting and accepts HELO (RFC 5321).
    Smtp {
        /// Name sent with HELO.
        helo: String,
    },
    /// The server responds to PING with PONG.
    Redis,
    /// A MySQL server sends a greeting and replies to a login; a rejected login passes.
    Mysql {
        /// Account.
        user: String,
    },
    /// A PostgreSQL server replies to a startup message; a password request passes.
    Postgres {
        /// Account.
        user: String,
    },
    /// The server reports its weight or state (HAProxy's agent-check).
    Agent {
        /// Text to send after connecting.
        send: Option<String>,
    },
    /// The server resolves a name (RFC 1035).
    Dns {
        /// The name.
        name: String,
        /// Record type.
        record: DnsRecord,
        /// An address that the response must contain; `None` = any record of that type.
        answer: Option<IpAddr>,
    },
    /// The server responds to a datagram.
    Udp {
        /// Datagram to send.
        payload: Vec<u8>,
        /// Required first bytes of the response; an inner `None` = any byte at this position. `None` = any response.
        bytes: Option<Vec<Option<u8>>>,
    },
    /// The server responds to an ICMP echo request.
    Ping,
    /// A program on the director; its exit code is the result.
    Script(Script),
    /// A file on the director contains the weight.
    File {
        /// Absolute path.
        path: String,
    },
}

named_enum! {
    /// Kind of a probe; the configuration also has `https` and `tls`, which are `http` and `tcp` over TLS.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum ProbeKind {
        /// [`Probe::Tcp`].
        Tcp = "tcp",
        /// [`Probe::Http`].
        Http = "http",
        /// [`Probe::Grpc`].
        Grpc = "grpc",
        /// [`Probe::Smtp`].
        Smtp = "smtp",
        /// [`Probe::Redis`].
        Redis = "redis",
        /// [`Probe::Mysql`].
        Mysql = "mysql",
        /// [`Probe::Postgres`].
        Postgres = "postgres",
        /// [`Probe::Agent`].
        Agent = "agent",
        /// [`Probe::Dns`].
        Dns = "dns",
        /// [`Probe::Udp`].
        Udp = "udp",
        /// [`Probe::Ping`].
        Ping = "ping",
        /// [`Probe::Script`].
        Script = "script",
        /// [`Probe::File`].
        File = "file",
    }
}

/// A step of a text exchange: text to send, then text to expect.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ExchangeStep {
    /// Text to send; empty = nothing.
    pub send: String,
    /// Text that the data received after `send` must contain; empty = any data.
    pub expect: String,
    /// Pattern that this data must match.
    pub regex: Option<Pattern>,
}

impl ExchangeStep {
    /// Returns whether the step waits for data.
    pub const fn expects_data(&self) -> bool {
        !self.expect.is_empty() || self.regex.is_some()
    }
}

/// A program, its arguments, and the account that it runs as.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Script {
    /// Program and arguments; not passed to a shell.
    pub command: Vec<String>,
    /// Account that the program runs as.
    pub user: String,
    /// Whether exit codes 2 to 255 pass, with the code minus 2 as weight.
    pub dynamic: bool,
}

named_enum! {
    /// DNS check record type.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum DnsRecord {
        /// An IPv4 address.
        #[default]
        A = "A",
        /// An IPv6 address.
        Aaaa = "AAAA",
        /// Mail servers.
        Mx = "MX",
        /// Name servers.
        Ns = "NS",
        /// A zone's start of authority.
        Soa = "SOA",
        /// Texts.
        Txt = "TXT",
    }
}

impl DnsRecord {
    /// Returns the RR type number (RFC 1035 §3.2.2, RFC 3596).
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

/// The medium of a probe, with the parameters that the driver needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium<'a> {
    /// A TCP connection, possibly with TLS.
    Stream,
    /// One request and its responses.
    Datagram(DatagramProbe<'a>),
    /// Nothing: the probe runs on the director.
    Director(DirectorProbe<'a>),
}

/// A probe that uses datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramProbe<'a> {
    /// [`Probe::Dns`].
    Dns {
        /// The name.
        name: &'a str,
        /// Record type.
        record: DnsRecord,
        /// See [`Probe::Dns`].
        answer: Option<IpAddr>,
    },
    /// [`Probe::Udp`].
    Udp {
        /// Datagram to send.
        payload: &'a [u8],
        /// See [`Probe::Udp`].
        bytes: Option<&'a [Option<u8>]>,
    },
    /// [`Probe::Ping`].
    Ping,
}

/// A probe that runs on the director.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectorProbe<'a> {
    /// [`Probe::Script`].
    Script(&'a Script),
    /// [`Probe::File`], with its path.
    File(&'a str),
}

impl Probe {
    /// Returns the probe kind.
    pub const fn kind(&self) -> ProbeKind {
        match self {
            Self::Tcp | Self::Exchange(_) => ProbeKind::Tcp,
            Self::Http(_) => ProbeKind::Http,
            Self::Grpc { .. } => ProbeKind::Grpc,
            Self::Smtp { .. } => ProbeKind::Smtp,
            Self::Redis => ProbeKind::Redis,
            Self::Mysql { .. } => ProbeKind::Mysql,
            Self::Postgres { .. } => ProbeKind::Postgres,
            Self::Agent { .. } => ProbeKind::Agent,
            Self::Dns { .. } => ProbeKind::Dns,
            Self::Udp { .. } => ProbeKind::Udp,
            Self::Ping => ProbeKind::Ping,
            Self::Script(_) => ProbeKind::Script,
            Self::File { .. } => ProbeKind::File,
        }
    }

    /// Returns the name in the configuration.
    pub const fn as_str(&self) -> &'static str {
        self.kind().as_str()
    }

    /// Returns the probe's medium.
    pub const fn medium(&self) -> Medium<'_> {
        match self {
            Self::Tcp
            | Self::Exchange(_)
            | Self::Http(_)
            | Self::Grpc { .. }
            | Self::Smtp { .. }
            | Self::Redis
            | Self::Mysql { .. }
            | Self::Postgres { .. }
            | Self::Agent { .. } => Medium::Stream,
            Self::Dns {
                name,
                record,
                answer,
            } => Medium::Datagram(DatagramProbe::Dns {
                name: name.as_str(),
                record: *record,
                answer: *answer,
            }),
            Self::Udp { payload, bytes } => Medium::Datagram(DatagramProbe::Udp {
                payload: payload.as_slice(),
                bytes: match bytes {
                    Some(bytes) => Some(bytes.as_slice()),
                    None => None,
                },
            }),
            Self::Ping => Medium::Datagram(DatagramProbe::Ping),
            Self::Script(script) => Medium::Director(DirectorProbe::Script(script)),
            Self::File { path } => Medium::Director(DirectorProbe::File(path.as_str())),
        }
    }

    /// Returns the transport protocol; `None` = neither TCP nor UDP.
    pub const fn protocol(&self) -> Option<Protocol> {
        match self.medium() {
            Medium::Stream => Some(Protocol::Tcp),
            Medium::Datagram(DatagramProbe::Dns { .. } | DatagramProbe::Udp { .. }) => {
                Some(Protocol::Udp)
            }
            Medium::Datagram(DatagramProbe::Ping) | Medium::Director(_) => None,
        }
    }

    /// Returns whether the probe uses a port.
    pub const fn needs_port(&self) -> bool {
        self.protocol().is_some()
    }
}

/// An HTTP request, and the conditions on the response.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Http {
    /// Method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Minor version of HTTP/1, 0 or 1.
    pub minor_version: u8,
    /// `Host`; `None` = the server's address.
    pub host: Option<String>,
    /// Additional header fields, name and value.
    pub headers: Vec<(String, String)>,
    /// Request body.
    pub body: Option<String>,
    /// Status codes that pass, as inclusive ranges.
    pub status: Vec<(u16, u16)>,
    /// Text that the response body must contain.
    pub contains: Option<String>,
    /// Pattern that the body must match.
    pub pattern: Option<Pattern>,
    /// Pattern that the body must not match.
    pub without: Option<Pattern>,
    /// Digest of the whole body.
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
